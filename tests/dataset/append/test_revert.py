"""Going back to an earlier commit: its rows are current again, and everything since stays in the log."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.workspace.records import records
from trueline.chain.instant import Instant
from trueline.dataset.append import merge as merging
from trueline.dataset.append import revert as reverting
from trueline.dataset.append import stream
from trueline.errors import InputError

KEYED = ["upsert", "snapshot", "changelog"]


def rows(ds, at=None):
    return ds.view(at).to_arrow().to_pylist()


def filled(ws, kind, name="x"):
    """Rows 1 and 2; then 1 changes, 2 goes, 3 comes; and a column is added."""
    ds = ws.create(name, merge=getattr(tl.merge, kind)("id"))
    if kind == "snapshot":
        first = ds.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        ds.append([{"id": 1, "n": 9, "city": "Bern"}, {"id": 3, "n": 3, "city": "Zug"}], new_columns="add")
        return ds, first
    first = ds.append([{"op": 0, "id": 1, "n": 1}, {"op": 0, "id": 2, "n": 2}])
    changes = [(0, 1, 9, "Bern"), (1, 2, 2, None), (0, 3, 3, "Zug")]
    if kind == "changelog":
        changes[0:1] = [(2, 1, 1, None), (3, 1, 9, "Bern")]
    rows = [dict(zip(("op", "id", "n", "city"), each, strict=True)) for each in changes]
    ds.append(rows, new_columns="add")
    return ds, first


@pytest.mark.parametrize("kind", KEYED)
def test_the_rows_of_an_earlier_commit_are_current_again_and_history_stays(ws, kind):
    ds, first = filled(ws, kind)
    before = [commit.block for commit in ds.log()]
    commit = ds.revert(to=first)
    assert rows(ds) == [{"id": 1, "n": 1, "city": None}, {"id": 2, "n": 2, "city": None}]
    assert commit.changes == "+1 ~1 -1 rows"
    assert (commit.reverted_to, commit.current_rows) == (first.block, 2)
    assert commit.summary.startswith(f"reverted to {first.short}: +1 ~1 -1 rows")
    assert [each.block for each in ds.log()][1:] == before
    assert ds.commit().reverted_to == first.block
    assert records(ds)["op"].to_pylist()[-4:] == [2, 3, 0, 1]
    assert ds.verify().ok
    # And one can go back again, or on.
    ds.revert(to=before[0])
    assert {row["id"]: row["n"] for row in rows(ds)} == {1: 9, 3: 3}
    assert ds.get(1)["n"] == 9


@pytest.mark.parametrize("kind", KEYED)
def test_what_follows_builds_on_the_restored_rows(ws, kind):
    ds, first = filled(ws, kind)
    ds.revert(to=first)
    given = [{"id": 1, "n": 1, "city": None}, {"id": 2, "n": 5, "city": None}]
    if kind == "changelog":
        given = [{"op": 2, **rows(ds)[1]}, {"op": 3, **given[1]}]
    schema = pa.schema([("op", pa.int32()), ("id", pa.int64()), ("n", pa.int64()), ("city", pa.string())])
    commit = ds.append(
        pa.Table.from_pylist(given, schema if kind == "changelog" else pa.schema(list(schema)[1:]))
    )
    assert commit.changes == "~1 row"
    assert [row["n"] for row in rows(ds)] == [1, 5]


def test_every_form_of_at_is_taken(ws):
    moments = iter([Instant.parse(f"2090-01-{day:02}T12:00:00Z") for day in range(1, 31)])
    ws.clock = lambda: next(moments)
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    first = ds.append([{"id": 1, "n": 1}])
    forms = [
        first,
        first.block,
        str(first.block),
        first.short,
        0,
        "offset:0",
        str(first.system_time),
        str(first.system_time)[:10],
        datetime.fromisoformat(str(first.system_time)).astimezone(UTC),
    ]
    for number, to in enumerate(forms):
        ds.append([{"id": 1, "n": 100 + number}])
        assert ds.revert(to=to).reverted_to == first.block, to
        assert ds.get(1)["n"] == 1
    assert not ds.revert(to="head").blocks, "nothing differs, so nothing is recorded"


def test_to_before_the_first_rows_is_to_none(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    empty = ds.head
    assert not ds.revert(to="head").blocks
    ds.append([{"id": 1}, {"id": 2}])
    assert ds.revert(to=empty).changes == "-2 rows"
    assert rows(ds) == []


@pytest.mark.parametrize("merge", [tl.merge.append(), tl.merge.ledger("id")])
def test_append_and_ledger_refuse_and_the_remedy_works(ws, merge):
    ds = ws.create("x", merge=merge)
    first = ds.append([{"id": 1}])
    ds.append([{"id": 2}])
    with pytest.raises(InputError, match="keeps every row") as raised:
        ds.revert(to=first)
    assert raised.value.code == "NotRevertible"
    assert rows(ws["x"], first) == [{"id": 1}]
    ws.create("y", merge=merge).append(ws["x"].view(at=first))
    assert rows(ws["y"]) == [{"id": 1}]


def test_a_dataset_with_a_source_can_go_back_too(ws, tmp_path):
    file = tmp_path / "stock.csv"
    file.write_text("id,n\n1,1\n2,2\n")
    ds = ws.create("stock", merge=tl.merge.snapshot("id"), source=file)
    first = ws.pull()["stock"].commit
    file.write_text("id,n\n1,-1\n")
    ws.pull()
    ds.revert(to=first)
    assert rows(ds) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    assert ws.pull()["stock"].told == "nothing new", "what was read is not read again"


@pytest.mark.parametrize("kind", KEYED)
def test_rows_that_were_removed_do_not_come_back(ws, kind):
    ds, first = filled(ws, kind)
    ds.drop_data(where="id = 2", reason="asked to")
    left = rows(ds, first)
    assert [row["id"] for row in left] == [1]
    ds.revert(to=first)
    assert rows(ds) == [{**row, "city": None} for row in left]
    assert ds.info.rows == 1
    assert 2 not in ds.changes().to_arrow()["id"].to_pylist()


def test_other_writers_come_in_between(ws, monkeypatch):
    ds, first = filled(ws, "upsert")
    real, calls = reverting.undone, []

    def undone(difference):
        if not calls:
            ds.append([{"id": 7, "n": 7}])
        calls.append(1)
        return real(difference)

    monkeypatch.setattr(reverting, "undone", undone)
    ds.revert(to=first)
    assert len(calls) == 2
    assert [row["id"] for row in rows(ds)] == [1, 2], "what came in between is undone as well"


def test_many_rows_pass_through_scratch(ws, monkeypatch):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    first = ds.append(pa.table({"id": range(5000), "n": range(5000)}))
    ds.append(pa.table({"id": range(2500, 7500), "n": [-1] * 5000}))
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 512)
    monkeypatch.setattr(merging, "_at_once", lambda *_: pytest.fail("all rows in memory"))
    commit = ds.revert(to=first)
    assert commit.operations == {"insert": 0, "update": 2500, "delete": 2500}
    assert ds.view().to_arrow().equals(ds.view(first).to_arrow())
    assert ds.verify().ok


HISTORY = st.lists(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([None, 1, 2]), st.sampled_from([0, 0, 1])), max_size=5
    ),
    min_size=1,
    max_size=5,
)
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@settings(max_examples=examples(40), deadline=None)
@given(HISTORY, st.sampled_from(KEYED), st.sampled_from([1 << 20, 3]), st.data())
def test_any_commit_can_be_restored(history, kind, rows_at_once, data):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(merging, "ROWS_AT_ONCE", rows_at_once)
        with tl.open(folder, create=True) as ws:
            ds = ws.create("x", merge=getattr(tl.merge, kind)("id"), schema=SCHEMA)
            heads = [ds.head]
            for step in history:
                given = list({row[0]: row for row in step}.values()) if kind == "snapshot" else step
                table = pa.Table.from_pylist([{"id": row[0], "n": row[1]} for row in given], SCHEMA)
                if kind != "snapshot":
                    table = table.append_column("op", pa.array([row[2] for row in given], pa.int32()))
                ds.append(table, allow_empty=True)
                heads.append(ds.head)
            to = data.draw(st.sampled_from(heads))
            ds.revert(to=to)
            assert rows(ds) == rows(ds, to)
            assert ds.info.rows == len(rows(ds))
            assert ds.verify().ok
