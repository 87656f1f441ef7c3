"""Definitions in a folder: compared first, applied in order; vanished files are reported."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import define_by_hand
from trueline.chain.sources import SqlQueryStep
from trueline.check import not_null
from trueline.dataset.derivation import derivation_at
from trueline.errors import InputError, TruelineError
from trueline.flow import nondet
from trueline.workspace.derive.folder import _requests, apply_folder, plan_folder, request_of

BALANCES = """\
-- What everybody has.
-- key: account
-- description: What everybody has
-- columns:
--   total: in francs
select account, sum(amount) as total
from transfers group by account
"""
RICH = """\
-- step some
select * from balances where total > 1;
-- step rich
select account from some
"""


@pytest.fixture
def ws(spark_workspace):
    rows = pa.table({"id": [1, 2], "account": ["a", "b"], "amount": [1.0, 2.0]})
    spark_workspace.create("transfers").append(rows)
    return spark_workspace


def kinds(plan):
    return {each.name: each.kind for each in plan.changes}


@pytest.mark.contract("derive:V31")
def test_a_folder_is_compared_applied_and_pruned(ws, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "balances.sql").write_text(BALANCES)
    (folder / "a_rich.sql").write_text(RICH)
    (folder / "a_rich.yaml").write_text("checks:\n  - {kind: not_null, columns: [account], action: warn}\n")
    plan = ws.derive_folder(folder)
    assert kinds(plan) == {"balances": "new", "a_rich": "new"}
    assert [each.name for each in plan.changes] == ["balances", "a_rich"], "inputs come first"
    assert list(ws) == ["transfers"], "nothing was changed"
    ws.derive_folder(folder, apply=True)
    assert derivation_at(ws["balances"].chain.tail()).key == ("account",)
    assert derivation_at(ws["a_rich"].chain.tail()).checks == (not_null("account").warn(),)
    assert ws["balances"].info.description == "What everybody has"
    assert ws.derive_folder(folder).is_empty
    # A folder of the same name is another folder.
    twin = tmp_path / "b" / "models"
    twin.mkdir(parents=True)
    assert ws.derive_folder(twin, apply=True, prune=True).pruned == ()
    assert ws.derive_folder(twin).elsewhere == ("a_rich", "balances")
    (folder / "balances.sql").write_text(BALANCES.replace("group by", "where amount > 1 group by"))
    plan = ws.derive_folder(folder)
    assert kinds(plan) == {"balances": "changed", "a_rich": "same"}
    assert "query: -from transfers group by account" in plan.changes[0].differences
    ws.derive_folder(folder, apply=True)
    assert ws.derive_folder(folder).is_empty
    for name in ("balances.sql", "a_rich.sql", "a_rich.yaml"):
        (folder / name).unlink()
    plan = ws.derive_folder(folder, apply=True)
    assert plan.vanished == ("a_rich", "balances"), "readers first"
    assert "balances" in ws, "nothing is deleted unless that is asked for"
    assert ws.derive_folder(folder, apply=True, prune=True).pruned == ("a_rich", "balances")
    assert list(ws) == ["transfers"]


def project(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


MANIFEST = """\
kind: DatasetSnapshot
version: 1
content:
  name: rich
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs: [{datasetRef: transfers, alias: t}]
      transform: {kind: Sql, engine: trueline, query: select id from t where amount > 1}
"""


def test_files_of_yaml_alone_are_manifests_or_name_functions(here, tmp_path):
    folder = project(tmp_path / "models", "a.yaml", MANIFEST)
    project(folder, "b.yml", "fn: tests.workspace.derive.frame_functions:totals\nkey: id\ninputs: [rich]\n")
    plan = plan_folder(here, folder)
    assert [(each.name, each.kind) for each in plan.changes] == [("rich", "new"), ("b", "new")]
    asked = {each.name: each for each in _requests(folder)}
    assert asked["rich"].sql == "select id from t where amount > 1"
    assert (asked["rich"].inputs, asked["rich"].file) == ({"t": "transfers"}, "models/a.yaml")
    assert (asked["b"].fn, asked["b"].key, asked["b"].inputs) == (
        "tests.workspace.derive.frame_functions:totals",
        "id",
        ["rich"],
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.yaml", "key: id\n", "x.yaml defines nothing: there is no x.sql"),
        ("x.yml", "fn: a:b\ncolour: red\nkey: id\n", "'colour' is not part of a definition"),
        ("x.yaml", "fn: a:b\n", "a function needs a key"),
        (
            "x.yaml",
            MANIFEST.replace("engine: trueline", "engine: flink"),
            "defines no dataset that is derived",
        ),
        ("x.yaml", MANIFEST.replace("version: 1", "version: 9"), "x.yaml: "),
        ("rich.sql", "select 1", "define the same dataset 'rich'"),
    ],
)
def test_a_file_that_would_be_passed_over_is_refused(here, tmp_path, name, text, said):
    folder = project(tmp_path / "models", name, text)
    if name == "rich.sql":
        project(folder, "manifest.yaml", MANIFEST)
    with pytest.raises(InputError) as caught:
        plan_folder(here, folder)
    assert said in str(caught.value)


@pytest.fixture
def here(tmp_path):
    """A workspace that is not given a Spark."""
    with tl.open(tmp_path / "ws", create=True) as workspace:
        workspace.create("transfers").append(pa.table({"id": [1], "amount": [1.0]}))
        yield workspace


def test_only_datasets_of_the_same_folder_are_pruned(here, tmp_path):
    """One is of a folder `models` elsewhere, one of this folder before it had a mark."""
    folder = tmp_path / "models"
    folder.mkdir()
    apply_folder(here, folder)
    mark = (folder / ".trueline-folder").read_text().split()[0]
    said = {"columns": {"id": pa.int64()}, "key": "id"}
    for name, owner in (("mine", mark), ("theirs", "0" * 32), ("earlier", None)):
        define_by_hand(
            here,
            name,
            "select id from transfers",
            ["transfers"],
            file=f"models/{name}.sql",
            folder=owner,
            **said,
        )
    plan = apply_folder(here, folder, prune=True)
    assert (plan.vanished, plan.pruned, plan.elsewhere) == (("mine",), ("mine",), ("earlier", "theirs"))
    assert sorted(here) == ["earlier", "theirs", "transfers"]
    (folder / ".trueline-folder").write_text("not a mark")
    assert plan_folder(here, folder).vanished == ()


@pytest.mark.contract("derive:V31")
def test_files_in_folders_below_belong_to_it_and_may_move_between_them(here, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    apply_folder(here, folder)
    project(folder, "x.sql", "-- key: id\nselect id from transfers\n")
    mark = (folder / ".trueline-folder").read_text().split()[0]
    query = (SqlQueryStep(query="SELECT `transfers`.`id` FROM `transfers` AS `transfers`"),)
    said = {"columns": {"id": pa.int64()}, "key": "id", "queries": query, "folder": mark}
    define_by_hand(here, "x", "select id from transfers", ["transfers"], file="models/x.sql", **said)
    below = project(folder / "staging", "y.SQL", "select id from x\n")
    (folder / "x.sql").rename(below / "x.sql")
    project(folder / ".drafts", "z.sql", "select nothing")
    plan = plan_folder(here, folder)
    assert kinds(plan) == {"x": "same", "y": "new"}
    assert (plan.vanished, plan.elsewhere) == ((), ())
    assert {each.file for each in _requests(folder)} == {"models/staging/x.sql", "models/staging/y.SQL"}
    project(folder, "y.sql", "select id from transfers\n")
    with pytest.raises(
        InputError, match=r"models/y.sql and models/staging/y.SQL define the same dataset 'y'"
    ):
        plan_folder(here, folder)
    # One of another folder of this name stood below it.
    define_by_hand(
        here, "w", "select 1", ["transfers"], file="models/old/w.sql", columns={"id": pa.int64()}, key="id"
    )
    (folder / "y.sql").unlink()
    assert plan_folder(here, folder).elsewhere == ("w",)


def test_what_a_check_refers_to_is_defined_before_it(here, tmp_path):
    folder = project(tmp_path / "models", "b.sql", "select id from transfers\n")
    relation = "checks: [{kind: relation, columns: [id], dataset: b, other: id}]"
    project(folder, "a.sql", f"-- {relation}\nselect id from transfers\n")
    assert [each.name for each in plan_folder(here, folder).changes] == ["b", "a"]


def test_what_is_asked_for_beside_the_query_is_a_change(here, tmp_path):
    text = "select * from transfers"
    folder = project(tmp_path / "models", "x.sql", f"-- key: id\n{text}\n")
    expanded = "SELECT `transfers`.`id`, `transfers`.`amount` FROM `transfers` AS `transfers`"
    define_by_hand(
        here,
        "x",
        text,
        ["transfers"],
        columns={"id": pa.int64(), "amount": pa.float64()},
        key="id",
        queries=(SqlQueryStep(query=expanded),),
    )
    (change,) = plan_folder(here, folder).changes
    assert (change.kind, change.differences) == ("same", ())
    project(folder, "x.yaml", "strategy: incremental\n")
    (change,) = plan_folder(here, folder).changes
    assert change.differences == ("strategy: it is recompute (by_hand), asked for is incremental",)
    (folder / "x.yaml").unlink()
    here["transfers"].append(pa.table({"id": [2], "amount": [2.0], "fee": [0.5]}), new_columns="add")
    (change,) = plan_folder(here, folder).changes
    assert (change.kind, change.differences) == ("changed", ("query: * stands for fee now, too",))


def test_a_file_says_which_inputs_are_read_at_a_cut_of_their_own(tmp_path):
    path = tmp_path / "x.sql"
    path.write_text("select 1")
    (tmp_path / "x.yaml").write_text(
        "inputs:\n  t: transfers\n  fx: {dataset: rates, nondet: old ones will do}\n"
        "  day: {nondet: so will these}\n"
    )
    assert request_of(path, "x").inputs == {
        "t": "transfers",
        "fx": ("rates", nondet("old ones will do")),
        "day": ("day", nondet("so will these")),
    }
    (tmp_path / "x.yaml").write_text("inputs: {fx: {dataset: rates}}")
    with pytest.raises(InputError, match="the input 'fx' says dataset"):
        request_of(path, "x")


def test_what_a_file_cannot_say_is_refused(tmp_path):
    path = tmp_path / "x.sql"
    for text, words in (
        ("-- key: a\n-- colour: red\nselect 1", "'colour' is not part of a definition"),
        ("-- key: [a\nselect 1", "x.sql"),
        ("-- checks:\n--   - {kind: magic}\nselect 1", "not known here"),
    ):
        path.write_text(text)
        with pytest.raises(TruelineError) as caught:
            request_of(path, "x")
        assert words in str(caught.value)
    path.write_text("-- a comment: nothing more\nselect 1 -- key: a\n")
    assert request_of(path, "x").key is None
    path.write_text("-- key: a\n\nselect 1\n")
    assert request_of(path, "x").sql == "select 1"
    with pytest.raises(InputError, match="cannot read"):
        request_of(tmp_path / "y.sql", "y")
