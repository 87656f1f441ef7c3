"""A file in parts is the file: the same rows, bad cells, lines and totals, or else it is not cut."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers.reading import plain
from tests.readers.test_csv_properties import NAMES, READERS, SCHEMAS, files
from trueline.errors import BrokenFile, InputError
from trueline.readers import CsvReader, JsonReader, ParquetReader, Reader, ReadStats, Source, TextReader
from trueline.readers.parts import Part, followed_by, in_the_file
from trueline.readers.records import Dialect

TEXTS = pa.schema(dict.fromkeys(NAMES, pa.string()))


def in_one(reader: Reader, source: Source, schema: pa.Schema) -> dict[str, Any]:
    return told([whole_of(reader, source, schema)], schema)


def in_parts(
    reader: Reader, source: Source, schema: pa.Schema, size: int
) -> tuple[list[Part], dict[str, Any]]:
    """Read all parts, then put them together."""
    parts = reader.parts(source, size=size)
    return parts, told([whole_of(reader, source, schema, part=part) for part in parts], schema)


def whole_of(reader, source, schema, **options):
    reading = reader.read(source, schema, **options)
    batches = list(reading)
    return batches, reading.stats


def told(found, schema):
    stats: ReadStats | None = None
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    bad: list[Any] = []
    for batches, part in found:
        for batch in batches:
            for name in schema.names:
                columns[name] += plain(batch.table.column(name))
            cells = pa.Table.from_batches([batch.bad])
            bad += (cells if stats is None else in_the_file(cells, stats)).to_pylist()
        stats = part if stats is None else followed_by(stats, part, max_listed=10_000)
    assert stats is not None
    totals = stats.to_dict()
    del totals["lines"]
    return {"columns": columns, "bad": bad[:10_000], "totals": totals}


def rough(reader: Reader, size: int) -> Reader:
    return Reader.from_dict({**reader.to_dict(), "block_bytes": size})


@settings(max_examples=examples(50))
@given(files(), SCHEMAS, READERS, st.integers(1, 30), st.integers(1, 12))
@example(b'a,b,c\n1,2,3\n4,"x\n7,8,9\n7,8,9\n7,8,9\n",6\n1,2,3\n', TEXTS, CsvReader(), 8, 4)
@example(b"a,b,c\n1,2,3\n4,5,6\\\n7,8,9\n1,2,3\n4,5,6\n", TEXTS, CsvReader(escape="\\"), 14, 4)
@example(b"a,b,c\n1,2,3\n\xef\xbb\xbf4,5,6\n\x1f\x8b7,8,9\n", TEXTS, CsvReader(), 6, 3)
@example(b"\n\n\n\n\n\n\n\n\n\n\n\na,b,c\n1,2,3\n4,5,6\n", TEXTS, CsvReader(), 4, 2)
def test_parts_that_can_all_be_read_are_the_file(data, schema, reader, size, block):
    source, reader = Source.memory(data), rough(reader, block)
    try:
        _, found = in_parts(reader, source, schema, size)
    except InputError:
        return
    assert found == in_one(reader, source, schema)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_file_with_quotes_lines_in_cells_and_ragged_rows_is_cut_and_proven(header, end):
    rows = [
        b'1,"one, and a half",x',
        b'2,"two' + end + b'lines",y',
        b"three,,",
        b'4,"he said ""no""",z',
        b"5,short",
        b"6,a,b,too,long",
        b"",
        b'"7",\xff,\xef\xbb\xbf8',
    ]
    data = end.join([b"a,b,c"] * header + rows * 40) + end
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.string()})
    reader, source = CsvReader(header=header, block_bytes=64), Source.memory(data)
    parts, found = in_parts(reader, source, schema, 300)
    assert len(parts) > 5
    assert found == in_one(reader, source, schema)
    assert {cell["column"] for cell in found["bad"]} == {"a", "b", "c", "(extra)"}


def test_a_cut_within_quotes_is_found_out():
    row = b"1,2,3\n"
    data = b"a,b,c\n" + row * 20 + b'4,"' + row * 40 + b'",6\n' + row * 20
    reader = CsvReader(block_bytes=16)
    parts = reader.parts(Source.memory(data), size=100)
    assert len(parts) > 3
    with pytest.raises(BrokenFile):
        in_parts(reader, Source.memory(data), TEXTS, 100)


def test_an_escaped_line_end_is_no_place_to_cut():
    line = b"1,2,3\\\n4,5,6\n"
    data = b"a,b,c\n" + line * 30
    reader, source = CsvReader(escape="\\", block_bytes=8), Source.memory(data)
    start = data.index(b"4,", 120)
    assert list(reader.read(source, TEXTS, part=Part(0, data.index(b"1,", 120))))
    with pytest.raises(BrokenFile):
        list(reader.read(source, TEXTS, part=Part(0, start)))


def test_a_guess_passes_over_lines_in_cells():
    text = b'word\nmore words, and a comma\nlast",x\n1,"a\nb",2\n3,4,5\n6,7,8\n'
    assert Dialect(b",").begin(text, width=3) == text.index(b'1,"a')
    assert Dialect(b",").begin(b"no line ends here", width=3) is None
    assert Dialect(b",").begin(b"a\nb\nc\n", width=3) is None


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        (CsvReader(), b"\x1f\x8b" + b"1,2,3\n" * 50),
        (CsvReader(encoding="latin-1"), b"a,b,c\n" + b"1,2,3\n" * 50),
        (CsvReader(), b"a,b,c\r" + b"1,2,3\r" * 50),
        (TextReader(whole=True), b"line\n" * 50),
        (JsonReader(encoding="utf-16"), ('{"a": 1}\n' * 50).encode("utf-16")),
        (CsvReader(), b"a,b,c\n1,2,3\n"),
    ],
    ids=["packed", "another encoding", "lines that end otherwise", "one row", "two bytes each", "small"],
)
def test_what_cannot_be_cut_is_one_part(reader, data):
    assert reader.parts(Source.memory(data), size=20) == [Part()]


def test_marks_of_a_start_are_data_in_the_middle():
    data = b"1,2,3\n" * 2 + b"\x1f\x8b1,2,3\n" + b"\xef\xbb\xbf1,2,3\n"
    reader, source = CsvReader(header=False), Source.memory(data)
    for at, cell in ((12, b"\x1f\x8b1"), (20, b"\xef\xbb\xbf1")):
        [batch] = reader.read(source, pa.schema(dict.fromkeys(NAMES, pa.binary())), part=Part(at))
        assert batch.table["a"][0].as_py() == cell


def test_the_header_and_skipped_lines_are_never_cut():
    data = b"about this file\n" * 20 + b"a,b,c\n" + b"1,2,3\n" * 50
    reader, source = CsvReader(skip_lines=20, block_bytes=16), Source.memory(data)
    parts, found = in_parts(reader, source, TEXTS, 30)
    assert len(parts) > 3
    assert parts[0].stop is not None
    assert parts[0].stop > data.index(b"1,2,3")
    assert found == in_one(reader, source, TEXTS)


@pytest.mark.parametrize(
    ("reader", "lines", "schema"),
    [
        (
            JsonReader(block_bytes=16),
            [b'{"a": 1, "z": 2}', b"", b"{", b'{"a": "\\n"}', b'{"later": 1}'],
            {"a": pa.int64()},
        ),
        (TextReader(block_bytes=16), [b"1", b"", b"x\r\ny", b"\xff", b"2\r3"], {"text": pa.int32()}),
    ],
    ids=["json", "text"],
)
def test_lines_are_cut_anywhere(reader, lines, schema):
    source = Source.memory(b"\n".join(lines * 30))
    parts, found = in_parts(reader, source, pa.schema(schema), 40)
    assert len(parts) > 5
    assert found == in_one(reader, source, pa.schema(schema))
    assert found["bad"]


def test_a_parquet_file_is_cut_between_row_groups(monkeypatch):
    monkeypatch.setattr("trueline.readers.parquet_reader.PART_ROWS", 40)
    file = io.BytesIO()
    pq.write_table(pa.table({"a": range(250, 350)}), file, row_group_size=15)
    source, schema = Source.memory(file.getvalue()), pa.schema({"a": pa.uint8()})
    parts, found = in_parts(ParquetReader(), source, schema, 1)
    assert [(part.start, part.stop) for part in parts] == [(0, 30), (30, 60), (60, 90), (90, None)]
    assert found == in_one(ParquetReader(), source, schema)
    assert [cell["row"] for cell in found["bad"]] == list(range(6, 100))
    assert ParquetReader().parts(source) == [Part()]
