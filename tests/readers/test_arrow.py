"""Arrow IPC and Feather: read as Parquet is, and hostile bytes are refused within the limits."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

import trueline as tl
from tests.examples import examples
from tests.readers.reading import everything
from trueline.errors import BrokenFile, InputError, LimitExceeded, SchemaError
from trueline.readers import ArrowReader, Source, reader_for

TABLE = pa.table(
    {
        "n": [1, 2, None],
        "s": ["x", "é", None],
        "d": pa.array(["u", "v", "u"]).dictionary_encode(),
        "l": [["a"], [], None],
        "v": pa.array(["q" * 30, "r", None], pa.string_view()),
        "r": pa.array([{"x": 1, "y": "z"}, None, {"x": 2, "y": None}]),
        "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)
ROWS = TABLE.to_pylist()


def stored(table, form="file", compression=None, **options) -> bytes:
    file = io.BytesIO()
    if form == "feather":
        feather.write_feather(table, file, compression=compression or "uncompressed", **options)
        return file.getvalue()
    make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with make(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, **options)
    return file.getvalue()


def rows_of(data, reader=None, schema=None):
    reader = reader or ArrowReader()
    file = data if isinstance(data, Source) else Source.memory(data, "a.arrow")
    schema = schema if schema is not None else reader.infer([file])
    return [row for batch in reader.read(file, schema) for row in batch.table.to_pylist()]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("form", ["file", "stream", "feather"])
def test_every_form_is_read(form, compression):
    assert rows_of(stored(TABLE, form, compression)) == ROWS
    small = {"chunksize": 1} if form == "feather" else {"max_chunksize": 1}
    assert rows_of(stored(TABLE, form, compression, **small)) == ROWS


@pytest.mark.parametrize("ending", ["arrow", "feather", "ipc"])
def test_the_ending_of_a_name_chooses_the_reader(ws, tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(stored(TABLE.select(["n", "s", "d"]), "stream" if ending == "ipc" else "file"))
    assert reader_for([Source.file(path)]) == ArrowReader()
    commit = ws.create("rows").append(path)
    assert (commit.rows, commit.bad) == (3, {})
    assert ws["rows"].view().to_arrow().to_pylist() == TABLE.select(["n", "s", "d"]).to_pylist()
    assert tl.View.read_arrow(path).to_arrow().to_pylist() == TABLE.select(["n", "s", "d"]).to_pylist()


def test_the_reader_may_be_given_and_columns_are_cast(ws, tmp_path):
    (tmp_path / "data").write_bytes(stored(pa.table({"a": [1, 300], "b": ["7", "x"]})))
    schema = pa.schema({"b": pa.int64(), "a": pa.int8()})
    found = everything(tl.arrow(), Source.file(tmp_path / "data"), schema)
    assert found["columns"] == {"a": [1, None], "b": [7, None]}
    assert [cell[2:] for cell in found["bad"]] == [("b", "x"), ("a", "300")]
    assert everything(tl.arrow(), Source.file(tmp_path / "data"), schema, columns=["a"])["rows"] == 2
    assert ws.create("given").append(tmp_path / "data", tl.arrow()).rows == 2


def test_text_that_is_not_utf8_is_a_bad_cell_and_not_a_broken_file():
    text = pa.array([b"a", b"\xff"]).view(pa.string())
    nested = pa.StructArray.from_arrays([text], names=["x"])
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1]), text)
    clock = pa.array([0, 86_400_000], pa.int32()).view(pa.time32("ms"))
    data = stored(pa.table({"a": text, "b": nested, "c": coded, "d": clock}))
    found = everything(ArrowReader(), data, ArrowReader().infer([Source.memory(data)]))
    assert found["counts"] == {"a": 1, "b": 1, "c": 1, "d": 1}


@pytest.mark.parametrize("form", ["file", "stream"])
def test_a_file_that_ends_too_early_is_broken(form):
    whole = stored(TABLE, form, "lz4", max_chunksize=1)
    for cut in range(0, len(whole) - 1, 13):
        with pytest.raises(BrokenFile) as broken:
            rows_of(whole[:cut])
        assert broken.value.path == "a.arrow"


@pytest.mark.parametrize(
    "data", [b"", b"x", b"a,b\n1,2\n" * 50, b"FEA1" + b"\0" * 50, b"PAR1" + b"\0" * 50, b"\xff" * 99]
)
def test_what_is_not_arrow_is_refused(data):
    with pytest.raises(BrokenFile, match="not Arrow"):
        rows_of(data)


SEEDS = [stored(TABLE, form, how) for form in ("file", "stream") for how in (None, "lz4", "zstd")]
SMALL = ArrowReader(max_batch_bytes=1 << 20)


@settings(max_examples=examples(133), deadline=None)
@given(st.sampled_from(range(len(SEEDS))), st.data())
def test_damaged_bytes_give_rows_or_an_error_of_ours(seed, data):
    damaged = bytearray(SEEDS[seed])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, damaged[place] ^ 1]))
    try:
        found = rows_of(bytes(damaged), SMALL)
    except InputError:
        return
    assert len(found) < 1 << 20


def most(act) -> int:
    """The memory that Arrow takes at most."""
    pool = pa.system_memory_pool()
    before, pa_pool = pool.max_memory(), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        act()
    finally:
        pa.set_memory_pool(pa_pool)
    return pool.max_memory() - before


def refused(data):
    def read():
        with pytest.raises(LimitExceeded) as beyond:
            rows_of(data, SMALL)
        assert beyond.value.limit == "limits.batch_bytes"
        assert beyond.value.path == "a.arrow"

    assert most(read) < 16 << 20


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_buffers_that_unpack_to_more_than_fits_are_refused(form, compression):
    data = stored(pa.table({"a": pa.array([b"\0" * (64 << 20)])}), form, compression)
    assert len(data) < 400_000
    refused(data)


def test_dictionaries_are_counted_together():
    kind = pa.dictionary(pa.int32(), pa.binary())
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
    with pa.ipc.new_stream(file, pa.schema({"a": kind}), options=options) as writer:
        values = []
        for number in range(8):
            values.append(bytes([number]) * (1 << 20))
            codes = pa.array([number], pa.int32())
            writer.write_batch(
                pa.record_batch({"a": pa.DictionaryArray.from_arrays(codes, pa.array(values))})
            )
    refused(file.getvalue())


def test_rows_that_have_no_bytes_are_counted():
    few, many = ((123_457).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little"))
    data = stored(pa.table({"a": pa.nulls(123_457)}), "stream")
    assert data.count(few) == 3  # rows, cells, nulls
    refused(data.replace(few, many))


def test_lists_of_nulls_are_counted():
    items = pa.ListArray.from_arrays(pa.array([0, 1 << 21], pa.int32()), pa.nulls(1 << 21))
    refused(stored(pa.table({"a": items})))


def test_cells_that_share_their_bytes_are_written_out_a_few_at_a_time():
    text = pa.array(["x" * 100_000])
    coded = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int8()), text)
    same = struct.pack("<i4sii", 100_000, b"yyyy", 0, 0) * 300
    buffers = [None, pa.py_buffer(same), pa.py_buffer(b"y" * 100_000)]
    views = pa.Array.from_buffers(pa.string_view(), 300, buffers)
    for column in (coded, views):
        data = stored(pa.table({"a": column}))
        reader, file = ArrowReader(max_batch_bytes=1 << 20), Source.memory(data)
        sizes = [batch.table.nbytes for batch in reader.read(file, pa.schema({"a": pa.string()}))]
        assert len(sizes) > 20
        assert max(sizes) < 2 << 20


@pytest.mark.parametrize(
    "column",
    [
        pa.RunEndEncodedArray.from_arrays([3], pa.array([1])),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ],
)
def test_types_that_repeat_their_bytes_in_other_ways_are_refused_by_name(column):
    with pytest.raises(SchemaError) as beyond:
        rows_of(stored(pa.table({"odd": column})))
    assert (beyond.value.column, beyond.value.path) == ("odd", "a.arrow")
