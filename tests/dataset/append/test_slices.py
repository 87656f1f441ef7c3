"""Slices as files: what other readers of the format expect, and bytes that do not depend on chance."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workspace.records import slices
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import SetVocab
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder
from trueline.dataset.append import pieces
from trueline.dataset.append import slices as writing
from trueline.dataset.append.intake import fit, whole_schema
from trueline.errors import OutOfMemory, SchemaError
from trueline.identity import logical_hash

NOW = Instant.parse("2026-01-01T00:00:00.123456789Z")


class Empty:
    """The tail of a dataset without data."""

    schema = None
    vocab = SetVocab()


def write(table: pa.Table, first: int = 0):
    store = MemoryStore()
    fitted = fit(table, Empty)
    layout = writing.SliceLayout(fitted.schema, SetVocab(), NOW)
    told = writing.write_slice(store, [fitted.table], layout, first).slice
    return told, store.get(Folder.DATA, told.physical_hash)


def test_a_slice_is_laid_out_as_the_format_says():
    told, raw = write(pa.table({"city": ["Bern", "Basel"]}), first=7)
    file = pq.ParquetFile(io.BytesIO(raw))
    assert file.metadata.format_version == "1.0"
    assert file.schema_arrow.names == ["offset", "op", "system_time", "event_time", "city"]
    assert [field.nullable for field in file.schema_arrow] == [False, False, False, True, True]
    assert [str(field.type) for field in file.schema_arrow][:4] == [
        "int64", "int32", "timestamp[ms, tz=UTC]", "timestamp[ms, tz=UTC]",
    ]  # fmt: skip
    group = file.metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(5)}
    assert "RLE_DICTIONARY" in encodings["op"] or "PLAIN_DICTIONARY" in encodings["op"]
    assert not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(encodings["offset"])
    assert {group.column(i).compression for i in range(5)} == {"SNAPPY"}
    table = file.read()
    assert table["offset"].to_pylist() == [7, 8]
    assert set(table["system_time"].cast(pa.int64()).to_pylist()) == {int(NOW) // 1_000_000}
    assert (told.offset_interval.start, told.offset_interval.end, told.size) == (7, 8, len(raw))


TYPES = {
    "bool": pa.array([True, None]),
    "int8": pa.array([1, None], pa.int8()),
    "uint16": pa.array([1, None], pa.uint16()),
    "uint32": pa.array([2**32 - 1, None], pa.uint32()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "float16": pa.array([1.5, None], pa.float16()),
    "float32": pa.array([1.5, None], pa.float32()),
    "date32": pa.array([1, None], pa.date32()),
    "date64": pa.array([86_400_000, None], pa.date64()),
    "time32-s": pa.array([1, None], pa.time32("s")),
    "time64-ns": pa.array([1001, None], pa.time64("ns")),
    "timestamp-s": pa.array([1, None], pa.timestamp("s", "UTC")),
    "timestamp-ns": pa.array([1001, None], pa.timestamp("ns", "UTC")),
    "timestamp-us-no-zone": pa.array([1001, None], pa.timestamp("us")),
    "timestamp-zone": pa.array([1, None], pa.timestamp("ms", "Europe/Zurich")),
    "decimal": pa.array(["1.25", None]).cast(pa.decimal128(10, 2)),
    "decimal32": pa.array(["1.25", None]).cast(pa.decimal128(5, 2)).cast(pa.decimal32(5, 2)),
    "decimal256": pa.array(["1.25", None]).cast(pa.decimal256(50, 2)),
    "string": pa.array(["a", None]),
    "binary": pa.array([b"a", None]),
    "fixed-binary": pa.array([b"ab", None], pa.binary(2)),
    "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
    "large-list": pa.array([["a"], None], pa.large_list(pa.large_string())),
    "fixed-list": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "list-of-seconds": pa.array([[1], [2]], pa.list_(pa.timestamp("s"))),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
}


@pytest.mark.parametrize("name", TYPES)
def test_what_is_read_back_hashes_to_what_the_block_says(name):
    told, raw = write(pa.table({"x": TYPES[name]}))
    found = pq.read_table(io.BytesIO(raw))
    assert logical_hash(found) == told.logical_hash
    if pa.types.is_timestamp(TYPES[name].type):
        moments = found["x"].cast(pa.timestamp("ns", TYPES[name].type.tz)).to_pandas().tolist()
        assert moments == TYPES[name].cast(pa.timestamp("ns", TYPES[name].type.tz)).to_pandas().tolist()


def test_bytes_do_not_depend_on_how_the_table_is_split(monkeypatch):
    monkeypatch.setattr(writing, "ROWS_OF_A_GROUP", 1000)
    rows = 2500
    # More than a page of 1 MiB in a row group: chunks would move the ends of pages.
    wide = [f"row {i}" * 300 if i % 3 else None for i in range(rows)]
    table = pa.table({"n": range(rows), "s": wide})
    split = pa.Table.from_batches(table.to_batches(max_chunksize=77))
    offset = pa.concat_tables([table.slice(0, 3), table]).slice(3)
    (one, raw), *others = (write(each) for each in (table, split, offset))
    assert [told for told, _ in others] == [one, one]
    assert pq.ParquetFile(io.BytesIO(raw)).metadata.num_row_groups == 3
    assert pq.read_table(io.BytesIO(raw))["offset"].to_pylist() == list(range(rows))


KB = 1 << 10
WIDE = {
    "text": [f"{i:04}" * KB * (i % 40) for i in range(200)],
    "large text": pa.array(
        [f"{i:04}" * KB * (i % 40) if i % 7 else None for i in range(200)], pa.large_string()
    ),
    "bytes": [b"0123" * KB * (i % 40) for i in range(200)],
    "list": [["0123" * KB] * (i % 40) if i % 7 else None for i in range(200)],
    "numbers": [list(range(KB * (i % 20))) for i in range(200)],
    "struct": [{"a": "0123" * KB * (i % 40), "b": i} for i in range(200)],
}


@pytest.mark.parametrize("name", WIDE)
def test_large_rows_come_in_smaller_groups_which_end_where_the_values_say(name, monkeypatch):
    monkeypatch.setattr(writing, "BYTES_OF_A_GROUP", 500 * KB)
    table = pa.table({"n": range(200), "x": WIDE[name]})
    split = pa.Table.from_batches(table.to_batches(max_chunksize=3))
    late = pa.concat_tables([table.slice(0, 3), table]).slice(3)
    (told, raw), *others = (write(each) for each in (table, split, late))
    assert [other for other, _ in others] == [told, told]
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert len(groups) > 10
    # Pages and their heads come on top of the values; none of these rows is larger than a group.
    assert max(group.total_byte_size for group in groups) < 510 * KB
    assert pq.read_table(io.BytesIO(raw))["offset"].to_pylist() == list(range(200))
    assert logical_hash(pq.read_table(io.BytesIO(raw))) == told.logical_hash


def test_a_row_larger_than_a_group_is_a_group(monkeypatch):
    monkeypatch.setattr(writing, "BYTES_OF_A_GROUP", 10 * KB)
    _, raw = write(pa.table({"x": ["small", "s" * 50 * KB, "l" * 50 * KB, "small", "small"]}))
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    assert [metadata.row_group(number).num_rows for number in range(4)] == [1, 1, 1, 2]


def test_no_more_is_held_than_a_group_and_what_came_last(monkeypatch):
    monkeypatch.setattr(writing, "BYTES_OF_A_GROUP", 1000 * KB)
    came, held = 0, []

    def tables():
        nonlocal came
        for _ in range(100):
            table = pa.table({"x": ["x" * 30 * KB] * 3})
            came += table.nbytes
            yield table

    gone = 0
    for group in writing._groups(tables()):
        held.append(came - gone)
        gone += group.nbytes
    assert len(held) > 8
    assert max(held) <= 1000 * KB + 100 * KB


def test_rows_of_ordinary_size_are_grouped_by_their_number_alone(monkeypatch):
    monkeypatch.setattr(writing, "ROWS_OF_A_GROUP", 1000)
    rows = pa.table({"n": range(3500), "s": ["x" * 500] * 3500})
    told, raw = write(rows)
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    assert [metadata.row_group(number).num_rows for number in range(4)] == [1000, 1000, 1000, 500]
    monkeypatch.setattr(writing, "BYTES_OF_A_GROUP", 1 << 62)
    assert write(rows)[0] == told


def test_a_file_of_few_rows_with_huge_texts_passes_in_small_parts(ds, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "BYTES_OF_A_GROUP", 500 * KB)
    monkeypatch.setattr(pieces, "BYTES_OF_A_BATCH", 300 * KB)
    batches = []
    write_batch = pa.RecordBatchFileWriter.write_batch
    monkeypatch.setattr(
        pa.RecordBatchFileWriter,
        "write_batch",
        lambda self, batch: (batches.append(batch.nbytes), write_batch(self, batch)),
    )
    texts = [f"{number}," + chr(97 + number % 26) * 90 * KB for number in range(40)]
    (tmp_path / "huge.csv").write_text("\n".join(["n,text", *texts]) + "\n")
    ds.append(tmp_path / "huge.csv")
    assert len(batches) > 10
    assert max(batches) < 310 * KB
    ((told, found),) = slices(ds)
    assert [f"{row['n']},{row['text']}" for row in found.to_pylist()] == texts
    raw = ds.chain.store.get(Folder.DATA, told.physical_hash)
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    assert metadata.num_row_groups == 8
    assert max(metadata.row_group(number).total_byte_size for number in range(8)) < 510 * KB
    assert ds.verify().ok


def test_a_lack_of_memory_is_told_as_one():
    def tables():
        yield fit(pa.table({"x": [1]}), Empty).table
        pa.allocate_buffer(1 << 60)

    store = MemoryStore()
    layout = writing.SliceLayout(fit(pa.table({"x": [1]}), Empty).schema, SetVocab(), NOW)
    with pytest.raises(
        OutOfMemory, match=r"out of memory while writing a slice.*\n.*append less at a time"
    ) as caught:
        writing.write_slice(store, tables(), layout, 0)
    assert isinstance(caught.value, MemoryError)
    assert list(store.list(Folder.DATA)) == []


def as_small(table: pa.Table, layout: writing.SliceLayout, first: int):
    store = MemoryStore()
    written = writing.write_small_slice(store, table, layout, first)
    return written, store.get(Folder.DATA, written.slice.physical_hash)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("split", [False, True], ids=["one chunk", "two chunks"])
def test_a_small_slice_is_the_same_slice(name, split):
    table = pa.table({"event_time": pa.array([5, -7], pa.timestamp("ms", "UTC")), "x": TYPES[name]})
    fitted = fit(table, Empty)
    rows = pa.concat_tables([fitted.table.slice(0, 1), fitted.table.slice(1)]) if split else fitted.table
    layout = writing.SliceLayout(fitted.schema, SetVocab(event_time_column="event_time"), NOW, Instant(0))
    store = MemoryStore()
    whole = writing.write_slice(store, [fitted.table], layout, 9)
    assert whole.late == 1
    assert writing.is_small(rows, layout) == ("list" not in name)
    assert as_small(rows, layout, 9) == (whole, store.get(Folder.DATA, whole.slice.physical_hash))


def test_the_bytes_of_a_small_slice_do_not_depend_on_how_the_table_is_split():
    # More than a page of 1 MiB: chunks would move the ends of pages.
    table = pa.table({"n": range(1500), "s": [f"row {i}" * 300 if i % 3 else None for i in range(1500)]})
    fitted = fit(table, Empty)
    layout = writing.SliceLayout(fitted.schema, SetVocab(), NOW)
    split = pa.Table.from_batches(fitted.table.to_batches(max_chunksize=77))
    store = MemoryStore()
    whole = writing.write_slice(store, [fitted.table], layout, 0)
    assert writing.is_small(split, layout)
    assert as_small(fitted.table, layout, 0) == as_small(split, layout, 0)
    assert as_small(split, layout, 0) == (whole, store.get(Folder.DATA, whole.slice.physical_hash))


def test_operations_go_along_and_only_new_rows_are_late():
    fitted = fit(pa.table({"event_time": pa.array([1] * 4, pa.timestamp("ms", "UTC")), "x": range(4)}), Empty)
    rows = fitted.table.append_column("op", pa.array([0, 1, 2, 3], pa.int32()))
    layout = writing.SliceLayout(fitted.schema, SetVocab(event_time_column="event_time"), NOW, NOW)
    store = MemoryStore()
    whole = writing.write_slice(store, [rows], layout, 0)
    assert whole.late == 2
    assert as_small(rows, layout, 0) == (whole, store.get(Folder.DATA, whole.slice.physical_hash))


def test_much_is_not_small():
    fitted = fit(pa.table({"x": np.zeros(writing.ROWS_OF_A_GROUP + 1, np.int8)}), Empty)
    layout = writing.SliceLayout(fitted.schema, SetVocab(), NOW)
    assert not writing.is_small(fitted.table, layout)
    assert writing.is_small(fitted.table.slice(1), layout)
    wide = fit(pa.table({"x": ["x" * (5 << 20)]}), Empty)
    assert not writing.is_small(wide.table, writing.SliceLayout(wide.schema, SetVocab(), NOW))


def test_what_a_table_carries_besides_rows_is_not_stored():
    table = pa.table({"x": [1]})
    other = table.replace_schema_metadata({"made by": "someone"})
    assert write(table)[0] == write(other)[0]


def test_the_schema_of_a_slice_is_the_one_in_the_chain(ds):
    ds.append(pa.table({"x": pa.array([1], pa.timestamp("s"))}))
    ((_, found),) = slices(ds)
    stored = DataSchema(fields_of(ds.chain.tail().schema))
    assert whole_schema(pa.schema({"x": found.schema.field("x").type}), SetVocab()) == stored


def test_a_type_that_cannot_be_stored_is_refused_by_its_column():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["a", "b"]))
    with pytest.raises(SchemaError, match="column 'x'"):
        write(pa.table({"x": runs}))
