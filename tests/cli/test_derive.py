"""The commands derive and reset, where they need no Spark; what they define is tested with the workspace."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.by_hand import define
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline.cli.derive import _defined, _said
from trueline.console import CapturedConsole


@pytest.fixture
def shop(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as ws:
        sales = ws.create("sales", checks=[tl.check.max_age("1d")])
        sales.append([{"id": 1, "n": 5}])
        sales.append([{"id": 2, "n": 6}])
    return tmp_path / "shop"


def test_what_is_missing_is_said(run, shop, tmp_path):
    for words, said in (
        (["derive"], "needs a name"),
        (["derive", "x"], "needs a name"),
        (["derive", "x", "select 1 as y", "--function", "a:b"], "needs a name"),
        (["derive", "x", "nowhere.sql"], "cannot read"),
        (["derive", "x", "-f", tmp_path], "without a name"),
        (["derive", "-f", tmp_path / "nowhere"], "not a folder"),
        (["derive", "x", "select * from sale"], "did you mean 'sales'"),
    ):
        done = run("-C", shop, *words)
        assert done.code == 2, words
        assert said in done.err, words


@pytest.mark.contract("derive:V31")
def test_a_folder_is_shown_first_and_nothing_is_done_without_a_yes(run, shop, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "many.sql").write_text("-- key: id\nselect id, n from sales where n > 5\n")
    done = run("-C", shop, "derive", "-f", folder)
    assert done.code == 1
    assert "new      many" in done.out
    assert "nothing was changed; --yes applies it" in done.out
    document = run("-C", shop, "derive", "-f", folder, "--json").json
    assert document["changes"] == [{"name": "many", "kind": "new", "differences": []}]
    assert document["applied"] is False
    assert [each["name"] for each in run("-C", shop, "list", "--json").json["datasets"]] == ["sales"]


def test_files_come_after_those_whose_events_they_read(run, shop, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a.sql").write_text("select id, op as what from changes('b')\n")
    (folder / "b.sql").write_text("-- key: id\nselect id, n from sales where n > 5\n")
    document = run("-C", shop, "derive", "-f", folder, "--json").json
    assert [each["name"] for each in document["changes"]] == ["b", "a"]


def test_a_head_is_moved_back_only_with_a_yes(run, shop):
    with tl.open(shop) as ws:
        first = list(ws["sales"].log())[1]
    done = run("-C", shop, "reset", "sales", "--to", first.short)
    assert done.code == 2
    assert "--yes" in done.err
    document = run("-C", shop, "reset", "sales", "--to", first.short, "--yes", "--json").json
    assert document == {"reset": "sales", "head": str(first.block), "resting": []}
    with tl.open(shop) as ws:
        assert ws["sales"].view().to_arrow().to_pylist() == [{"id": 1, "n": 5}]
        assert ws.verify().ok


def test_a_file_says_the_strategy_unless_an_option_does(tmp_path):
    path = tmp_path / "x.sql"
    path.write_text("-- key: id\n-- strategy: incremental\nselect id from sales\n")
    assert _said(str(path), "x", {})["strategy"] == "incremental"
    assert _said(str(path), "x", {"strategy": "auto"})["strategy"] == "auto"


def test_what_is_of_another_folder_stays_and_that_is_said(run, shop, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    with tl.open(shop) as ws:
        more = {"columns": {"id": pa.int64()}, "key": "id", "file": "models/ids.sql", "folder": "0" * 32}
        define_by_hand(ws, "ids", "select id from sales", ["sales"], **more)
    done = run("-C", shop, "derive", "-f", folder, "--yes", "--prune")
    assert done.code == 0
    assert "ids was defined by another folder models, and stays" in done.err
    assert "ids" in run("-C", shop, "list").out


@pytest.mark.contract("derive:V30")
def test_data_that_are_too_old_are_an_exit_code(run, shop):
    assert run("-C", shop, "status", "--check").code == 0
    with tl.open(shop) as ws:
        ws.create("sales", checks=[tl.check.max_age("0s")], on_change="from_here")
    assert run("-C", shop, "status").code == 0
    done = run("-C", shop, "status", "--check")
    assert done.code == 1
    assert "max_age('0s'): the newest data are" in done.out


@pytest.mark.contract("derive:V30")
def test_lists_and_states_say_how_far_derived_datasets_are_behind(run, shop):
    where = ["-C", shop]

    def behind():
        """What people and programs see of `q` in both commands."""
        listed = {each["name"]: each for each in run(*where, "list", "--json").json["datasets"]}
        (state,) = run(*where, "status", "q", "--json").json["datasets"]
        assert listed["sales"]["behind_commits"] is None
        assert (listed["q"]["behind_commits"], state["behind_commits"]) == (state["behind_commits"],) * 2
        (line,) = [line for line in run(*where, "list").out.splitlines() if line.startswith("q ")]
        (field,) = [line for line in run(*where, "status", "q").out.splitlines() if "behind" in line]
        return state["behind_commits"], line, field.split("behind")[1].strip()

    assert "behind" not in run(*where, "list").out
    assert "behind" not in run(*where, "status").out
    columns = {"account": pa.string(), "total": pa.float64()}
    with tl.open(shop) as ws:
        define_by_hand(ws, "q", "select 1", ["sales"], columns=columns)
    count, line, field = behind()
    assert (count, "behind" in run(*where, "list").out) == (2, True)
    assert re.search(r"2 commits, \d+ \w+$", line.rstrip())
    assert re.fullmatch(r"2 commits, \d+ \w+", field)
    with tl.open(shop) as ws, computing(counted):
        ws.pull("q")
    count, line, field = behind()
    assert (count, line.rstrip().endswith("up to date"), field) == (0, True, "up to date")
    with tl.open(shop) as ws:
        ws["sales"].append([{"id": 3, "n": 7}])
    assert re.fullmatch(r"1 commit, \d+ \w+", behind()[2])


def test_what_was_defined_says_how_it_follows_and_why(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as ws:
        info = define(ws, "d", pa.schema({"k": pa.string()}), ("k",)).info
    said = CapturedConsole()
    for each in (replace(info, strategy="keyed", reason=""), replace(info, reason="join")):
        _defined(said, each)
    assert [item.text for item in said.items][1::2] == ["    keyed", "    recompute (join): it joins tables"]
