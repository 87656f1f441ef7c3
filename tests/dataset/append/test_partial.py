"""Rows that lack columns: an upsert keeps what it was not given, a snapshot asks for it."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.workspace.records import records
from trueline.dataset.append import merge as merging
from trueline.errors import InputError, SchemaError
from trueline.run import Step

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int64())])
DAY = datetime(2026, 11, 13, tzinfo=UTC)
START = [{"id": 1, "city": "Bern", "n": 1}, {"id": 2, "city": "Basel", "n": 2}]


def rows(ds):
    return [tuple(row.values()) for row in ds.view().to_arrow().to_pylist()]


@pytest.fixture
def ds(ws):
    made = ws.create("x", merge=tl.merge.upsert("id"), schema=SCHEMA)
    made.append(START)
    return made


def test_a_column_that_a_frame_lacks_keeps_its_value(ds):
    commit = ds.append(pa.table({"id": [1, 3], "n": [7, 3]}))
    assert rows(ds) == [(1, "Bern", 7), (2, "Basel", 2), (3, None, 3)]
    assert commit.operations == {"insert": 1, "update": 1, "delete": 0}
    assert ds.verify().ok


def test_an_explicit_null_sets_null(ds):
    ds.append(pa.table({"id": [1], "city": pa.array([None], pa.string()), "n": [7]}))
    assert rows(ds)[0] == (1, None, 7)


def test_what_one_row_of_a_frame_has_the_others_have_as_null(ds):
    ds.append([{"id": 1, "n": 7}, {"id": 2, "city": "Zug", "n": 2}])
    assert rows(ds) == [(1, None, 7), (2, "Zug", 2)]


def test_nothing_changes_if_only_known_values_are_given(ds):
    commit = ds.append(pa.table({"id": [1], "n": [1]}))
    assert (commit.rows, commit.ignored) == (0, {"unchanged": 1})


def test_nothing_is_inherited_after_a_retraction(ds):
    given = pa.table({"id": [1, 1], "n": [0, 9], "op": pa.array([1, 0], pa.int32())})
    ds.append(given)
    assert rows(ds)[0] == (1, None, 9)
    ds.append(pa.table({"id": [2], "op": pa.array([1], pa.int32())}))
    ds.append(pa.table({"id": [2], "n": [4]}))
    assert rows(ds)[1] == (2, None, 4)


def test_files_fold_in_their_order_each_with_its_own_columns(ds, tmp_path):
    (tmp_path / "a.csv").write_text("id,city\n1,Zug\n3,Chur\n")
    (tmp_path / "b.csv").write_text("id,n\n1,10\n3,30\n")
    (tmp_path / "c.csv").write_text("id,city\n3,\n")
    commit = ds.append([tmp_path / name for name in ("a.csv", "b.csv", "c.csv")])
    assert rows(ds) == [(1, "Zug", 10), (2, "Basel", 2), (3, None, 30)]
    assert commit.ignored == {"superseded": 1}, "the first row of 3 gave nothing that is left"


def test_json_says_null_or_nothing(ds, tmp_path):
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    one.write_text('{"id": 1, "n": 5}\n{"id": 2, "n": 6}\n')
    ds.append(one)
    assert rows(ds) == [(1, "Bern", 5), (2, "Basel", 6)]
    other.write_text('{"id": 1, "n": 5}\n{"id": 2, "n": 6, "city": null}\n')
    ds.append(other)
    assert rows(ds) == [(1, None, 5), (2, None, 6)]


def test_a_key_of_json_that_comes_late_is_read(ds, tmp_path):
    lines = [json.dumps({"id": number, "n": 1}) for number in range(12_000)]
    lines.append(json.dumps({"id": 1, "n": 1, "city": "Olten"}))
    (tmp_path / "late.json").write_text("\n".join(lines))
    ds.append(tmp_path / "late.json")
    assert ds.get(1)["city"] == "Olten"
    assert ds.get(2)["city"] is None, "the file has the column, so null was said"


@pytest.mark.parametrize("write", ["parquet", "stream", "view", "frame"])
def test_however_rows_come(ds, tmp_path, write):
    given = pa.table({"id": [1], "n": [7]})
    if write == "parquet":
        pq.write_table(given, tmp_path / "x.parquet")
        ds.append(tmp_path / "x.parquet")
    elif write == "stream":
        ds.append(given.to_reader())
    elif write == "view":
        ds.append(tl.View.from_arrow(given))
    else:
        ds.append(given.to_pandas())
    assert rows(ds)[0] == (1, "Bern", 7)


def test_steps_decide_what_a_prepared_file_has(ds, tmp_path):
    (tmp_path / "a.csv").write_text("id,city,n\n1,Zug,10\n")
    ds.append(tmp_path / "a.csv", steps=[Step(map=without_city, name="without city")])
    assert rows(ds)[0] == (1, "Bern", 10)


def without_city(path, table):
    return table.drop_columns(["city"])


def test_a_required_column_may_be_absent_only_where_the_key_is_known(ws):
    required = pa.schema(
        [pa.field("id", pa.int64(), False), pa.field("city", pa.string(), False), ("n", pa.int64())]
    )
    ds = ws.create("x", merge=tl.merge.upsert("id"), schema=required)
    ds.append(pa.Table.from_pylist(START, required))
    ds.append(pa.table({"id": [2, 1], "n": [20, 10]}))
    assert rows(ds) == [(1, "Bern", 10), (2, "Basel", 20)]
    with pytest.raises(SchemaError, match=r"column 'city' is missing.*{'id': 3}") as raised:
        ds.append(pa.table({"id": [2, 3], "n": [20, 30]}))
    assert raised.value.code == "MissingForNewKeys"
    with pytest.raises(SchemaError, match="column 'city' is missing"):
        ds.append(pa.table({"id": [1, 1], "n": [0, 1], "op": pa.array([1, 0], pa.int32())}))
    # The remedy, as it is said.
    ds.append(pa.table({"id": [2, 3], "city": ["Basel", "Chur"], "n": [20, 30]}))
    assert rows(ds)[2] == (3, "Chur", 30)
    assert ds.verify().ok


def test_a_declared_event_time_may_be_absent_for_known_keys(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"), event_time="day")
    ds.append([{"id": 1, "day": DAY, "n": 1}])
    ds.append(pa.table({"id": [1], "n": [2]}))
    assert ds.get(1) == {"id": 1, "day": DAY, "n": 2}
    with pytest.raises(SchemaError, match="column 'day' is missing"):
        ds.append(pa.table({"id": [2], "n": [2]}))


def test_a_retry_with_a_key_finds_its_commit(ds):
    given = pa.table({"id": [1], "n": [7]})
    first = ds.append(given, idempotency_key="k")
    assert ds.append(given, idempotency_key="k").block == first.block
    with pytest.raises(InputError, match="other data"):
        ds.append(pa.table({"id": [1], "city": pa.array([None], pa.string()), "n": [7]}), idempotency_key="k")


def test_a_column_that_others_add_meanwhile_keeps_its_value(ds):
    def stream():
        yield pa.table({"id": [1], "city": ["Bern"], "n": [9]})
        ds.append([{"id": 1, "city": "Bern", "n": 1, "zip": "3000"}], new_columns="add")
        yield pa.table({"id": [2], "city": ["Zug"], "n": [9]})

    ds.append(stream())
    assert ds.get(1) == {"id": 1, "city": "Bern", "n": 9, "zip": "3000"}


# --- the same whichever way ---------------------------------------------------------

CELL = st.sampled_from([None, "a", "b"])
FRAMES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["p", "q"])),
        st.lists(
            st.tuples(st.integers(0, 3), CELL, CELL, st.sampled_from([0, 0, 0, 1])), min_size=1, max_size=5
        ),
    ),
    min_size=1,
    max_size=4,
)


def expected(state, frames):
    """One row after another, as the rules say it."""
    for columns, frame in frames:
        for key, p, q, op in frame:
            if op == 1:
                state.pop(key, None)
                continue
            there = state.get(key, {"p": None, "q": None})
            state[key] = there | {name: value for name, value in (("p", p), ("q", q)) if name in columns}
    return state


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=3), st.sampled_from([1 << 20, 4]))
def test_rows_fold_in_source_order(commits, rows_at_once):
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("q", pa.string())])
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(merging, "ROWS_AT_ONCE", rows_at_once)
        with tl.open(folder, create=True) as ws:
            ds = ws.create("x", merge=tl.merge.upsert("id"), schema=schema)
            state = {}
            for number, frames in enumerate(commits):
                files = []
                for at, (columns, frame) in enumerate(frames):
                    file = f"{folder}/{number}-{at}.parquet"
                    names = ["id", *sorted(columns), "op", "file"]
                    table = pa.table(
                        {
                            "id": [row[0] for row in frame],
                            "p": pa.array([row[1] for row in frame], pa.string()),
                            "q": pa.array([row[2] for row in frame], pa.string()),
                            "op": pa.array([row[3] for row in frame], pa.int32()),
                        }
                    ).select(names[:-1])
                    pq.write_table(table.replace_schema_metadata({"n": f"{number}-{at}"}), file)
                    files.append(file)
                ds.append(files)
                state = expected(state, frames)
                found = {row.pop("id"): row for row in ds.view().to_arrow().to_pylist()}
                assert found == state


# --- snapshots ----------------------------------------------------------------------


def test_a_snapshot_that_lacks_a_known_column_is_refused(ws, tmp_path):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append(START)
    with pytest.raises(SchemaError, match="the snapshot lacks column 'city'") as raised:
        ds.append(pa.table({"id": [1, 2], "n": [1, 2]}))
    assert raised.value.code == "SnapshotLacksColumn"
    (tmp_path / "dump.csv").write_text("id,n\n1,1\n")
    with pytest.raises(SchemaError, match=r"dump\.csv lacks column 'city'"):
        ds.append(tmp_path / "dump.csv")
    assert rows(ds) == [(1, "Bern", 1), (2, "Basel", 2)]
    # The remedy: null where there is no value.
    ds.append(pa.table({"id": [1], "city": pa.array([None], pa.string()), "n": [1]}))
    assert rows(ds) == [(1, None, 1)]


def test_a_snapshot_may_lack_what_it_does_not_compare(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("id", compare=["n"]))
    ds.append(START)
    ds.append(pa.table({"id": [1, 2, 3], "n": [1, 9, 3]}))
    assert rows(ds) == [(1, "Bern", 1), (2, "Basel", 9), (3, None, 3)]
    with pytest.raises(SchemaError, match="lacks column 'n'"):
        ds.append(pa.table({"id": [1], "city": ["Bern"]}))


def test_every_file_of_a_snapshot_needs_the_columns(ws, tmp_path):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append(START)
    (tmp_path / "a.csv").write_text("id,city,n\n1,Bern,1\n")
    (tmp_path / "b.csv").write_text("id,n\n2,2\n")
    with pytest.raises(SchemaError, match=r"b\.csv lacks column 'city'"):
        ds.append([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert len(records(ds)) == 2
