"""What commits record of current rows and of what they did to them, and what is counted later."""

from __future__ import annotations

import shutil
import tempfile

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.architecture import ROOT
from tests.examples import examples
from trueline import console
from trueline.chain.block import CURRENT, OPERATIONS
from trueline.chain.counts import Counts, keep_counts, kept_counts
from trueline.dataset.append import append as committing
from trueline.dataset.append import merge as merging

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


def table(*rows):
    return pa.table({"id": [row[0] for row in rows], "city": [row[1] for row in rows]}, schema=SCHEMA)


def test_an_upsert_records_what_it_did_and_how_many_rows_are_current(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern"), (2, "Basel")))
    rows = [
        {"id": 1, "city": "Zug", "op": 0},
        {"id": 2, "city": None, "op": 1},
        {"id": 3, "city": "Chur", "op": 0},
    ]
    commit = ds.append(rows)
    assert (commit.rows, commit.current_rows) == (4, 2), "rows of a commit stay events"
    assert commit.operations == {"insert": 1, "update": 1, "delete": 1}
    assert commit.changes == "+1 ~1 -1 rows"
    assert commit.summary == "+1 ~1 -1 rows, offsets 2 to 5"
    assert ds.commit().to_dict()["operations"] == {"insert": 1, "update": 1, "delete": 1}
    assert (ds.info.rows, ds.info.events) == (2, 6)


def test_a_snapshot_and_a_changelog_record_it_too(ws):
    ds = ws.create("s", merge=tl.merge.snapshot("id"))
    ds.append(table((1, "Bern"), (2, "Basel")))
    commit = ds.append(table((2, "Zug"), (3, "Chur"), (4, "Olten")))
    assert (commit.changes, commit.current_rows) == ("+2 ~1 -1 rows", 3)
    log = ws.create("c", merge=tl.merge.changelog("id"))
    log.append([{"id": 1, "city": "Bern", "op": 0}, {"id": 2, "city": "Basel", "op": 0}])
    # A changelog may add what is there and take away what is not.
    commit = log.append([{"id": 1, "city": "Zug", "op": 0}, {"id": 9, "city": None, "op": 1}])
    assert (commit.changes, commit.current_rows, log.view().count()) == ("+1 -1 rows", 2, 2)


def first_line(view) -> str:
    with console.use(console.CapturedConsole()) as seen:
        view.show(2)
    return seen.text.splitlines()[0]


def test_a_keyed_view_is_shown_with_the_number_of_its_rows(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    first = ds.append(table((1, "Bern"), (2, "Basel"), (3, "Zug")))
    ds.append(table((3, "Chur"), (4, "Olten")))
    view = ds.view()
    assert first_line(view) == "first 2 of 4 rows, 2 columns"
    assert first_line(view.with_columns(n="id + 1").sort("n")) == "first 2 of 4 rows, 3 columns"
    assert "4 rows, 2 columns" in view._repr_html_()
    assert repr(view).startswith("<View 4 rows, ")
    assert first_line(ds.view(at=first)) == "first 2 of 3 rows, 2 columns"
    assert first_line(view.filter("id > 1")) == "first 2 rows (and more), 2 columns"
    assert first_line(view.limit(3)) == "first 2 of 3 rows, 2 columns"
    assert view.row_count is None, "a note is not a promise"
    ds.drop_data(where="id = 1", reason="asked to")
    assert first_line(ds.view()) == "first 2 rows (and more), 2 columns", "noted before the removal"


def test_a_number_of_rows_that_is_noted_wrongly_is_not_shown_where_it_is_seen_to_be_wrong(ws, monkeypatch):
    monkeypatch.setattr(committing, "_row_counts", lambda prepared: {CURRENT: 1})
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern"), (2, "Basel"), (3, "Zug")))
    assert first_line(ds.view()) == "first 2 rows (and more), 2 columns"
    assert ds.view().count() == 3
    with console.use(console.CapturedConsole()) as seen:
        ds.view().show(5)
    assert seen.text.startswith("3 rows, 2 columns")


def test_a_ledger_and_an_append_have_as_many_rows_as_records(ws):
    ledger = ws.create("l", merge=tl.merge.ledger("id"))
    commit = ledger.append(table((1, "Bern"), (1, "Zug"), (2, "Basel")))
    assert (commit.changes, commit.current_rows, ledger.info.rows) == ("+2 rows", 2, 2)
    plain = ws.create("a")
    commit = plain.append(table((1, "Bern"), (1, "Zug")))
    assert (commit.changes, commit.operations["insert"], plain.info.rows) == ("+2 rows", 2, 2)


def test_a_commit_without_rows_keeps_the_count(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern"), (2, "Basel")))
    commit = ds.append([], watermark="2026-01-01")
    assert (commit.rows, commit.current_rows, ds.info.rows) == (0, 2, 2)
    assert ds.append(table((3, "Chur"))).current_rows == 3


@pytest.mark.parametrize("merge", [tl.merge.upsert("id"), tl.merge.append(), tl.merge.ledger("id")])
def test_rows_that_were_removed_are_not_counted(ws, merge):
    ds = ws.create("x", merge=merge)
    ds.append(table((1, "Bern"), (2, "Basel"), (3, "Chur")))
    ds.drop_data(where="id = 2", reason="asked to")
    assert (ds.info.rows, ds.info.events) == (2, 3)
    ds.append(table((4, "Zug")))
    assert ds.info.rows == ds.view().count() == 3
    ds.drop_data(upto="head", reason="all")
    assert ds.info.rows == ds.view().count() == 0


@pytest.fixture
def earlier(tmp_path):
    """A workspace that an earlier version wrote."""
    shutil.copytree(ROOT / "tests" / "golden" / "workspace-bitwise-keys", tmp_path / "earlier")
    with tl.open(tmp_path / "earlier") as ws:
        yield ws


def keyed(ws):
    return [
        ds for ds in ws.datasets() if ds.info.merge and not ds.info.merge.startswith(("append", "ledger"))
    ]


def test_commits_of_an_earlier_version_say_that_it_is_not_known(earlier):
    found = keyed(earlier)
    assert found
    for ds in found:
        assert ds.info.rows is None
        assert "?" in ds._repr_html_()
        assert next(commit.changes for commit in ds.log() if commit.rows).startswith("? rows in ")


def test_verify_counts_commits_of_an_earlier_version_once(earlier, monkeypatch):
    for ds in keyed(earlier):
        expected = ds.view().count()
        assert ds.verify().ok
        assert ds.info.rows == expected
        done = [commit.operations for commit in ds.log() if commit.rows]
        assert sum(each["insert"] - each["delete"] for each in done) == expected
        kept = kept_counts(ds.chain, ds.head)
        assert kept.current == expected
    monkeypatch.setattr("trueline.dataset.counts.keep_counts", lambda *_: pytest.fail("counted again"))
    assert earlier.verify().ok


def test_an_append_counts_what_an_earlier_version_left_and_goes_on(earlier):
    for ds in keyed(earlier):
        before = ds.view().count()
        commit = ds.append([], watermark="2099-01-01")
        assert commit.current_rows == ds.info.rows == before


def test_a_damaged_row_of_the_index_counts_as_none(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern")))
    keep_counts(ds.chain, {ds.head: Counts(current=7)})
    keep_counts(ds.chain, {ds.head: Counts(None, 3, 2, 1)})
    assert kept_counts(ds.chain, ds.head) == Counts(7, 3, 2, 1)
    with ds.chain._index._writing() as connection:
        connection.execute("UPDATE counted SET current = 8")
    assert kept_counts(ds.chain, ds.head) == Counts()


@pytest.mark.parametrize(
    "noted", [{CURRENT: "7"}, {CURRENT: -1}, {OPERATIONS: [1]}, {OPERATIONS: {"insert": None}}]
)
def test_what_another_writer_notes_there_is_passed_over(ws, monkeypatch, noted):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    monkeypatch.setattr(committing, "_row_counts", lambda prepared: noted)
    commit = ds.append(table((1, "Bern")))
    assert commit.current_rows is None
    assert (commit.operations, ds.info.rows) == (None, None)
    monkeypatch.undo()
    assert ds.append(table((2, "Zug"))).current_rows == 2


STEPS = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from([0, 0, 1])), max_size=6),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, st.sampled_from(["upsert", "snapshot", "changelog"]), st.sampled_from([1 << 20, 4]))
def test_the_count_is_that_of_the_view_after_every_commit(steps, kind, rows_at_once):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(merging, "ROWS_AT_ONCE", rows_at_once)
        with tl.open(folder, create=True) as ws:
            ds = ws.create("x", merge=getattr(tl.merge, kind)("id"), schema=SCHEMA)
            for step in filter(None, steps):
                rows = list({row[0]: row for row in step}.values()) if kind == "snapshot" else step
                data = table(*((key, str(city)) for key, city, _ in rows))
                if kind != "snapshot":
                    data = data.append_column("op", pa.array([op for _, _, op in rows], pa.int32()))
                commit = ds.append(data)
                assert ds.info.rows == ds.view().count()
                assert commit.current_rows in (ds.info.rows, None)
