"""Parquet."""

from __future__ import annotations

import datetime as dt
import io
from itertools import pairwise
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers.reading import everything, plain, totals
from trueline.errors import BrokenFile, InputError, SchemaError
from trueline.readers import ParquetReader, Source

TABLE = pa.table(
    {"a": list(range(100)), "b": [f"row {n}" for n in range(100)], "c": [[n] for n in range(100)]}
)


def packed(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


FILE = packed(TABLE, row_group_size=30, write_page_checksum=True)


def test_a_table_comes_back_with_nested_columns():
    result = everything(ParquetReader(), FILE, TABLE.schema, batch_rows=7)
    assert result["columns"] == TABLE.to_pydict()
    assert result["bad"] == []
    assert ParquetReader().infer([Source.memory(FILE)]) == TABLE.schema
    assert ParquetReader().count_rows(Source.memory(FILE)) == 100


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 110), max_size=4), st.integers(1, 40))
def test_ranges_that_meet_give_every_row_once(cuts, rows):
    cuts = [0, *sorted(cuts), None]
    found = []
    for start, stop in pairwise(cuts):
        part = everything(ParquetReader(), FILE, TABLE.schema, start=start, stop=stop, batch_rows=rows)
        found += part["columns"]["a"]
    assert found == list(range(100))


def test_row_groups_outside_the_range_are_not_read():
    class Watched(io.BytesIO):
        touched: ClassVar[list[int]] = []

        def read(self, size=-1):
            self.touched.append(self.tell())
            return super().read(size)

    held = Watched(FILE)
    source = Source("x", lambda: held, len(FILE))
    meta = pq.read_metadata(io.BytesIO(FILE))
    first_behind = meta.row_group(1).column(0).file_offset or meta.row_group(1).column(0).data_page_offset
    assert [b.start for b in ParquetReader().read(source, TABLE.schema, columns=["a"], start=95)] == [95]
    footer = len(FILE) - meta.serialized_size - 8
    assert [at for at in Watched.touched if 4 < at < first_behind and at < footer] == []


def test_a_value_that_does_not_fit_is_a_bad_cell():
    data = packed(pa.table({"a": [1, 300, None], "b": [1.0, 1.5, 2.0], "c": ["1", "x", "2026-01-01"]}))
    schema = pa.schema({"a": pa.int8(), "b": pa.int64(), "c": pa.int64()})
    result = everything(ParquetReader(), data, schema)
    assert result["columns"] == {"a": [1, None, None], "b": [1, None, 2], "c": [1, None, None]}
    assert result["bad"] == [
        (1, None, "a", "300"),
        (1, None, "b", "1.5"),
        (1, None, "c", "x"),
        (2, None, "c", "2026-01-01"),
    ]


def test_times_change_their_unit_and_what_is_cut_off_is_counted():
    far = pa.array([0, 1_500, -1, 2**62], pa.timestamp("us"))
    result = everything(
        ParquetReader(), packed(pa.table({"t": far})), pa.schema({"t": pa.timestamp("ms", "UTC")})
    )
    assert result["columns"]["t"] == [0, 1, -1, 2**62 // 1000]
    assert result["rounded"] == {"t": 3}
    result = everything(ParquetReader(), packed(pa.table({"t": far})), pa.schema({"t": pa.timestamp("ns")}))
    assert result["columns"]["t"] == [0, 1_500_000, -1_000, None]
    assert result["counts"] == {"t": 1}


def test_a_zone_is_not_taken_away_without_a_word():
    data = packed(pa.table({"t": pa.array([0], pa.timestamp("us", "UTC"))}))
    with pytest.raises(SchemaError) as caught:
        everything(ParquetReader(), data, pa.schema({"t": pa.timestamp("us")}))
    assert caught.value.column == "t"


def test_types_between_which_nothing_can_be_kept_are_refused():
    with pytest.raises(SchemaError):
        everything(ParquetReader(), FILE, pa.schema({"c": pa.int64()}))


def broken_text(kind=None):
    raw = pa.array([b"ok", b"\xff", None, "é".encode()], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    return text if kind is None else kind(text)


def test_text_that_is_no_text_is_a_bad_cell_even_inside_a_list():
    flat = everything(ParquetReader(), packed(pa.table({"a": broken_text()})), pa.schema({"a": pa.string()}))
    assert flat["columns"]["a"] == ["ok", None, None, "é"]
    assert flat["bad"] == [(1, None, "a", "\ufffd")]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 2, 4], pa.int32()), broken_text())
    nested = everything(
        ParquetReader(), packed(pa.table({"a": lists})), pa.schema({"a": pa.list_(pa.string())})
    )
    assert nested["columns"]["a"] == [["ok"], None, [], [None, "é"]]
    assert nested["counts"] == {"a": 1}


def test_a_dictionary_is_read_as_its_values():
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    schema = ParquetReader().infer([Source.memory(packed(table))])
    assert schema == pa.schema({"a": pa.string()})
    assert everything(ParquetReader(), packed(table), schema)["columns"]["a"] == ["x", "y", "x"]


def test_columns_a_file_lacks_are_missing_and_named():
    schema = pa.schema({"a": pa.int64(), "new": pa.string()})
    stats = totals(ParquetReader(), FILE, schema)
    assert (stats.absent, stats.unknown) == (["new"], ["b", "c"])
    with pytest.raises(SchemaError):
        everything(ParquetReader(), FILE, pa.schema({"other": pa.int64()}))


def test_no_column_still_gives_the_rows():
    assert everything(ParquetReader(), FILE, TABLE.schema, columns=[])["rows"] == 100


def test_schemas_of_several_files_are_widened():
    files = [Source.memory(packed(pa.table({"a": pa.array([1], kind)}))) for kind in (pa.int32(), pa.int64())]
    assert ParquetReader().infer(files) == pa.schema({"a": pa.int64()})
    with pytest.raises(SchemaError):
        ParquetReader().infer([*files, Source.memory(packed(pa.table({"a": [dt.date(2026, 1, 1)]})))])


@pytest.mark.parametrize(
    "cut", [0, 3, 4, 12, 200, len(FILE) - 9, len(FILE) - 8, len(FILE) - 4, len(FILE) - 1]
)
def test_a_torn_file_is_broken(cut):
    for act in (
        lambda source: everything(ParquetReader(), source, TABLE.schema),
        lambda source: ParquetReader().infer([source]),
        lambda source: ParquetReader().count_rows(source),
    ):
        with pytest.raises(BrokenFile, match=r"torn\.parquet"):
            act(Source.memory(FILE[:cut], "torn.parquet"))


@pytest.mark.parametrize("at", range(4, len(FILE), 41))
def test_a_wrong_byte_gives_a_typed_error_or_the_same_rows(at):
    data = bytearray(FILE)
    data[at] ^= 0x55
    try:
        found = [plain(batch.table["a"]) for batch in ParquetReader().read(Source.memory(data), TABLE.schema)]
    except (BrokenFile, SchemaError):
        return
    footer = len(FILE) - int.from_bytes(FILE[-8:-4], "little") - 8
    assert at >= footer or [value for part in found for value in part] == TABLE["a"].to_pylist()


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (5, 4)])
def test_a_range_that_is_none_is_refused(start, stop):
    with pytest.raises(InputError):
        ParquetReader().read(Source.memory(FILE), TABLE.schema, start=start, stop=stop)
