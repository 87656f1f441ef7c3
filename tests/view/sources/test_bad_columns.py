"""A column with cells that are not values of its type: null, counted, whichever columns are read with it."""

from __future__ import annotations

import datetime as dt
from itertools import combinations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from trueline.errors import SchemaError
from trueline.readers.cast import sound


def text_of(values, kind=None):
    """Text whose bytes nobody has checked."""
    wide = pa.large_binary() if kind == pa.large_string() else pa.binary()
    return pa.array(values, wide).view(kind or pa.string())


BROKEN = {
    "good": pa.array([1, 2, 3, None]),
    "text": text_of([b"a", b"\xff", b"\xc3\xa9", None]),
    "large": text_of([b"a", b"\xff", b"\xc3\xa9", None], pa.large_string()),
    "coded": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None], pa.int8()), text_of([b"a", b"\xff"])),
    "day": pa.array([0, 1, 86_400_000, None], pa.int64()).view(pa.date64()),
    "clock": pa.array([0, 86_400_000, 86_399_999, None], pa.int32()).view(pa.time32("ms")),
    "fine": pa.array([0, -1, 1, None], pa.int64()).view(pa.time64("us")),
    "list": pa.ListArray.from_arrays([0, 1, 2, 3, 3], text_of([b"a", b"\xff", b"b"])),
    "struct": pa.StructArray.from_arrays([text_of([b"a", b"\xff", b"b", b"c"])], names=["x"]),
}
ODD = sorted(set(BROKEN) - {"good"})


def check(view, names):
    """Read a view of some columns in every way."""
    table = view.to_arrow()
    for name in names:
        column = table[name].combine_chunks()
        column.validate(full=True)
        lost = [] if name == "good" else [1]
        known = [row for row in range(4) if BROKEN[name][row].is_valid]
        assert [row for row in known if not column[row].is_valid] == lost, name
    assert view.bad == {name: 1 for name in names if name != "good"}
    with view.cursor() as cursor:
        getters = [cursor.getter(name) for name in names]
        while cursor.move_next():
            for get in getters:
                get()


@pytest.mark.parametrize(
    "names", [[name] for name in BROKEN] + [list(BROKEN), *map(list, combinations(ODD[:3], 2))]
)
def test_tables_in_memory(names):
    check(tl.View.from_arrow(pa.table(BROKEN)).select(*names), names)


def test_a_column_beside_a_bad_one_reads_as_if_it_were_alone():
    view = tl.View.from_arrow(pa.table(BROKEN))
    assert view.select("good").to_arrow()["good"].to_pylist() == [1, 2, 3, None]
    assert view.bad == {}
    assert view.filter("good > 1").select("text").to_arrow()["text"].to_pylist() == [None, "é"]


@pytest.mark.parametrize(
    "names", [["good"], ["text"], ["clock"], ["good", "text", "clock", "fine", "list", "struct"]]
)
def test_parquet_files(tmp_path, names):
    kept = ["good", "text", "large", "clock", "fine", "list", "struct"]
    pq.write_table(
        pa.table({name: BROKEN[name] for name in kept}), tmp_path / "a.parquet", store_schema=False
    )
    check(tl.View.read_parquet(tmp_path / "a.parquet").select(*names), names)


def test_appended_parquet_files_count_the_same_cells(ws, tmp_path):
    kept = ["good", "text", "clock", "fine", "list"]
    pq.write_table(pa.table({name: BROKEN[name] for name in kept}), tmp_path / "a.parquet")
    commit = ws.create("odd").append(tmp_path / "a.parquet", max_bad=10)
    assert commit.bad == {"text": 1, "clock": 1, "fine": 1, "list": 1}
    row = ws["odd"].view().to_arrow().to_pylist()[1]
    assert {name: row[name] for name in kept} == {
        "good": 2,
        "text": None,
        "clock": None,
        "fine": None,
        "list": None,
    }


def test_a_time_beyond_the_day_does_not_wrap():
    late = pa.array([86_400 + 5, 5], pa.int32()).view(pa.time32("s"))
    view = tl.View.from_arrow(pa.table({"at": late}))
    assert view.to_arrow()["at"].to_pylist() == [None, dt.time(0, 0, 5)]
    assert view.bad == {"at": 1}


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "Mars/Olympus"), pa.list_(pa.timestamp("ms", "Nowhere"))]
)
def test_a_zone_that_does_not_exist_is_refused_when_the_schema_is_made(tmp_path, kind):
    table = pa.table({"n": [1], "at": pa.nulls(1, kind)})
    with pytest.raises(SchemaError, match="is not a time zone") as refused:
        _ = tl.View.from_arrow(table).schema
    assert (refused.value.code, refused.value.column) == ("UnknownZone", "at")
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="is not a time zone"):
        tl.View.read_parquet(tmp_path / "a.parquet").select("n").to_arrow()


def test_the_remedy_for_a_zone_works():
    column = pa.nulls(1, pa.timestamp("us", "Mars/Olympus"))
    view = tl.View.from_arrow(pa.table({"at": column.cast(pa.timestamp("us", "UTC"))}))
    assert view.to_arrow()["at"].to_pylist() == [None]


def test_many_bad_cells_are_found_one_by_one():
    values = [b"\xff" if n % 3 else b"ok" for n in range(1000)]
    lists = pa.ListArray.from_arrays(range(1001), text_of(values))
    for array in (text_of(values), lists, lists[10:500]):
        found = sound(array)
        assert (
            found.array.null_count
            == int(found.bad.sum())
            == sum(1 for n in range(array.offset, array.offset + len(array)) if n % 3)
        )
