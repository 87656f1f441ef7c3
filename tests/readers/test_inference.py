"""Types from a sample: the table of the documents."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trueline.errors import SchemaError
from trueline.readers import CsvReader, JsonReader, ParquetReader, Source, TextReader

US, NS = pa.timestamp("us"), pa.timestamp("ns")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2", "0"], pa.int64()),
        (["1", ""], pa.int64()),
        (["1", " 2"], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["1", "nan"], pa.float64()),
        (["1e3", ".5"], pa.float64()),
        (["1", "007"], pa.string()),
        (["+41791234567"], pa.string()),
        (["-0"], pa.float64()),
        (["00.5"], pa.string()),
        (["1", "x"], pa.string()),
        (["9223372036854775808"], pa.string()),
        (["9007199254740993", "0.5"], pa.string()),
        (["9007199254740992", "0.5"], pa.float64()),
        (["1.5", "1e400"], pa.string()),
        (["0x1F"], pa.string()),
        (["true", "False"], pa.bool_()),
        (["true", "1"], pa.string()),
        (["yes", "no"], pa.string()),
        (["2026-01-01", "2024-02-29"], pa.date32()),
        (["2026-01-01", "2026-02-30"], pa.string()),
        (["2026-01-01", "2026-01-01 10:00"], US),
        (["2026-01-01T10:00:00.123456"], US),
        (["2026-01-01T10:00:00.1234567"], NS),
        (["2026-01-01T10:00:00.1234567", "1500-01-01"], pa.string()),
        (["2026-01-01T10:00:00Z", "2026-01-01T10:00:00+01:00"], pa.timestamp("us", "UTC")),
        (["2026-01-01T10:00:00Z", "2026-01-01T10:00:00"], pa.string()),
        (["01.02.2026"], pa.string()),
        (["12:30"], pa.string()),
        (["", ""], pa.string()),
        ([], pa.string()),
    ],
)
def test_a_column_of(cells, kind):
    data = "\n".join(["a,b", *(f"{cell},x" for cell in cells)]).encode()
    assert CsvReader().infer([Source.memory(data)]).field("a").type == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([12345678901234567890], pa.string()),
        ([1, "2"], pa.string()),
        (["1", "2"], pa.string()),
        ([True, False], pa.bool_()),
        ([True, 1], pa.string()),
        (["2026-01-01"], pa.date32()),
        (["2026-01-01T00:00:00Z"], pa.timestamp("us", "UTC")),
        ([[1]], pa.string()),
        ([{"a": 1}, None], pa.string()),
        ([None], pa.string()),
        (["\ud800"], pa.string()),
    ],
)
def test_a_key_with(values, kind):
    data = "\n".join(json.dumps({"k": value}) for value in values).encode()
    assert JsonReader().infer([Source.memory(data)]) == pa.schema({"k": kind})


def test_formats_and_commas_count_where_they_were_said():
    data = b"a;b\n1,5;01.02.2026\n2;28.02.2026\n"
    reader = CsvReader(separator=";", decimal=",", date_format="%d.%m.%Y")
    assert reader.infer([Source.memory(data)]) == pa.schema({"a": pa.float64(), "b": pa.date32()})


def test_only_the_first_rows_are_looked_at():
    data = b"a\n" + b"1\n" * 10 + b"x\n"
    assert CsvReader().infer([Source.memory(data)], rows=10).field("a").type == pa.int64()
    assert CsvReader().infer([Source.memory(data)], rows=11).field("a").type == pa.string()
    lines = b'{"a": 1}\n' * 10 + b'{"a": "x"}\n'
    assert JsonReader().infer([Source.memory(lines)], rows=10).field("a").type == pa.int64()
    assert JsonReader().infer([Source.memory(lines)], rows=11).field("a").type == pa.string()


def test_the_columns_of_several_files_are_taken_together_in_order():
    files = [Source.memory(b"b,a\n1,2\n"), Source.memory(b"c,a\nx,2.5\n")]
    assert CsvReader().infer(files) == pa.schema({"b": pa.int64(), "a": pa.float64(), "c": pa.string()})


def test_a_file_without_a_header_has_numbered_columns():
    files = [Source.memory(b"\n\n1,x\n"), Source.memory(b"2,y,z\n")]
    expected = pa.schema({"column_1": pa.int64(), "column_2": pa.string()})
    assert CsvReader(header=False).infer(files) == expected
    assert CsvReader(header=False, block_bytes=1).infer(files) == expected


def test_names_replace_the_header():
    assert CsvReader(names=("x", "y")).infer([Source.memory(b"a,a\n1,2\n")]).names == ["x", "y"]


def test_no_file_and_no_row_give_no_type_but_text():
    assert CsvReader().infer([]) == pa.schema([])
    assert CsvReader().infer([Source.memory(b"")]) == pa.schema([])
    assert CsvReader().infer([Source.memory(b"a,b\n")]) == pa.schema({"a": pa.string(), "b": pa.string()})
    assert TextReader(column="line").infer([]) == pa.schema({"line": pa.string()})


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        (CsvReader(), b"a,b\nx,1\ny,2\n"),
        (JsonReader(), b'{"a": "x", "b": 1}\n'),
        (TextReader(column="a"), b"x\n"),
    ],
)
def test_types_that_are_known_are_not_guessed(reader, data):
    found = reader.infer([Source.memory(data)], known=pa.schema({"a": pa.date32(), "z": pa.int8()}))
    assert found.field("a").type == pa.date32()
    assert found.names in (["a", "b"], ["a"])
    assert "b" not in found.names or found.field("b").type == pa.int64()


def test_files_that_differ_in_a_column_whose_type_is_known_are_alike():
    files = []
    for column in (["1"], [2]):
        file = io.BytesIO()
        pq.write_table(pa.table({"a": column}), file)
        files.append(Source.memory(file.getvalue()))
    with pytest.raises(SchemaError):
        ParquetReader().infer(files)
    assert ParquetReader().infer(files, known=pa.schema({"a": pa.int8()})) == pa.schema({"a": pa.int8()})
