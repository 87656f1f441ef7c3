"""Definitions in a folder: compared first, applied in order; vanished files are reported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trueline.check import not_null
from trueline.dataset.derivation import derivation_at
from trueline.errors import InputError, TruelineError
from trueline.flow import nondet
from trueline.workspace.derive.folder import request_of

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
