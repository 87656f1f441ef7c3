"""One definition: what is read depends on bytes, options and schema, on nothing else."""

from __future__ import annotations

import csv as python_csv
import io

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers import oracle
from tests.readers.reading import everything
from trueline.errors import BrokenFile, SchemaError
from trueline.readers import CsvReader, Source
from trueline.readers.records import Dialect

NAMES = ("a", "b", "c")
KINDS = st.sampled_from(
    [
        pa.string(),
        pa.large_string(),
        pa.int64(),
        pa.int8(),
        pa.uint16(),
        pa.float64(),
        pa.float32(),
        pa.decimal128(5, 2),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("ms"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
    ]
)
WORDS = st.sampled_from(
    [
        b"",
        b" ",
        b"1",
        b" 7\t",
        b"+5",
        b"-0",
        b"0x1F",
        b"300",
        b"99999999999999999999",
        b"1.5",
        b"1.500",
        b"12345.6",
        b"1e400",
        b"1e-400",
        b"nan",
        b"-nan",
        b"nan(x)",
        b"INF",
        b"+inf",
        b".5",
        b"5.",
        b"1,5",
        b"1e2",
        b"NA",
        b"true",
        b"T",
        b"no",
        b" yes",
        b"2026-02-28",
        b"2026-02-30",
        b"0000-01-01",
        b"9999-12-31",
        b"1600-01-01",
        b"2026-02-03 10:11:12",
        b"2026-02-03T10:11:12.123456789",
        b"2026-02-03T10:11Z",
        b"2026-02-03 10+0130",
        b"2026-02-03 24:00:00",
        b"x",
        b"\xff",
        b"\xc3\xa9",
        b"\xef\xbb\xbf1",
        b'"1"',
        b'""',
        b'"a,b"',
        b'"a""b"',
        b'"two\nlines"',
        b'"cr\r\nlf"',
        b'a"b',
        b'"a"b',
        b'"NA"',
        b"\\,",
        b"\\",
    ]
)
NOISE = st.lists(
    st.sampled_from([b'"', b",", b"\n", b"\r", b"\r\n", b"a", b"1", b" ", b"\\", b";"]), max_size=24
)
LINE_ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r", b"\n\n"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Mostly a table, sometimes not."""
    out = [draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\n"])), b"a,b,c", draw(LINE_ENDS)]
    for _ in range(draw(st.integers(0, 8))):
        width = draw(st.sampled_from([3, 3, 3, 3, 2, 4, 1, 6]))
        out += [b",".join(draw(WORDS) for _ in range(width)), draw(LINE_ENDS)]
    if draw(st.integers(0, 4)) == 0:
        out += draw(NOISE)
    if draw(st.booleans()):
        out.append(draw(WORDS))
    return b"".join(out)


SCHEMAS = st.tuples(KINDS, KINDS, KINDS).map(lambda kinds: pa.schema(list(zip(NAMES, kinds, strict=True))))
READERS = st.builds(
    CsvReader,
    escape=st.sampled_from([None, None, "\\"]),
    nulls=st.sampled_from([("",), ("NA",), ("", "NA", "1")]),
    decimal=st.sampled_from([".", ".", ","]),
)


def expected(reader, data, schema, columns=None):
    try:
        return oracle.csv(reader, data, schema, columns)
    except oracle.Unterminated:
        return "broken"


def found(reader, data, schema, **options):
    try:
        return everything(reader, data, schema, **options)
    except BrokenFile:
        return "broken"


@settings(max_examples=examples(133))
@given(files(), SCHEMAS, READERS)
@example(b"a,b,c\n1,2", pa.schema(dict.fromkeys(NAMES, pa.string())), CsvReader(nulls=("NA",)))
@example(b'a,b,c\n"",,""\n', pa.schema(dict.fromkeys(NAMES, pa.string())), CsvReader())
@example(b"a,b,c\n1,1,12\n", pa.schema(dict.fromkeys(NAMES, pa.decimal128(3, 2))), CsvReader())
@example(b"a,b,c\n\xef\xbb\xbf1,1,12\n", pa.schema(dict.fromkeys(NAMES, pa.string())), CsvReader())
def test_reading_gives_what_the_rules_say(data, schema, reader):
    assert found(reader, data, schema) == expected(reader, data, schema)


@settings(max_examples=examples(66))
@given(files(), SCHEMAS, READERS, st.integers(1, 40), st.integers(1, 5))
def test_neither_blocks_nor_batches_nor_the_way_can_be_seen(data, schema, reader, block, rows):
    whole = found(reader, data, schema)
    small = CsvReader.from_dict({**reader.to_dict(), "block_bytes": block})
    assert found(small, data, schema) == whole
    assert found(reader, data, schema, batch_rows=rows) == whole
    assert found(small, data, schema, batch_rows=rows, typed=False) == whole


@settings(max_examples=examples(50))
@given(files(), SCHEMAS, READERS, st.lists(st.sampled_from(NAMES), unique=True))
def test_which_rows_there_are_does_not_depend_on_the_columns_read(data, schema, reader, columns):
    whole, part = found(reader, data, schema), found(reader, data, schema, columns=columns)
    if whole == "broken":
        assert part == "broken"
        return
    assert part["rows"] == whole["rows"]
    assert part["columns"] == {name: whole["columns"][name] for name in columns}
    seen = {*columns, "(extra)"}
    order = {name: place for place, name in enumerate([*columns, "(extra)"])}
    kept = [cell for cell in whole["bad"] if cell[2] in seen]
    assert part["bad"] == sorted(kept, key=lambda cell: (cell[0], order[cell[2]]))


@settings(max_examples=examples(50))
@given(st.lists(st.lists(WORDS, max_size=4).map(b",".join), max_size=6).map(b"\n".join), SCHEMAS)
def test_a_file_without_a_header_is_read_by_place(data, schema):
    reader = CsvReader(header=False)
    assert found(reader, data, schema) == expected(reader, data, schema)


@settings(max_examples=examples(50))
@given(st.lists(st.sampled_from([b"", b"1", b'""', b'"x\ny"', b" "])), LINE_ENDS, st.integers(1, 9))
def test_an_empty_line_is_a_row_where_a_row_is_one_cell(cells, end, block):
    data = end.join([b"a", *cells])
    reader, schema = CsvReader(block_bytes=block), pa.schema({"a": pa.string()})
    assert found(reader, data, schema) == expected(reader, data, schema)


@settings(max_examples=examples(100))
@given(NOISE.map(b"".join), st.sampled_from([None, b"\\"]))
def test_the_two_ways_to_find_the_end_of_records_agree(text, escape):
    dialect = Dialect(b",", escape=escape)
    quick = dialect._by_parity(text, final=False)
    slow = max((stop for _, stop in dialect._records(text, final=False)), default=0)
    assert quick in {None, slow}
    assert dialect.whole(text, final=False) == slow


@settings(max_examples=examples(66))
@given(st.lists(st.lists(st.text('ab",;\n\r x', max_size=5), min_size=2, max_size=2), max_size=6))
def test_what_python_writes_is_read_back(rows):
    out = io.StringIO(newline="")
    python_csv.writer(out, quoting=python_csv.QUOTE_ALL).writerows([["a", "b"], *rows])
    schema = pa.schema({"a": pa.string(), "b": pa.string()})
    result = everything(CsvReader(), out.getvalue().encode(), schema)
    assert list(zip(*result["columns"].values(), strict=True)) == [tuple(row) for row in rows]
    assert result["bad"] == []


@settings(max_examples=examples(50))
@given(
    st.text('aé€"\n,ő', max_size=30),
    st.sampled_from(["utf-16", "utf-16-be", "utf-32", "utf-8-sig"]),
    st.integers(1, 9),
)
def test_an_encoding_changes_nothing_but_the_bytes(text, encoding, block):
    text = "a,b,c\n" + text
    schema = pa.schema(dict.fromkeys(NAMES, pa.string()))
    as_utf8 = found(CsvReader(), text.encode(), schema)
    assert found(CsvReader(encoding=encoding, block_bytes=block), text.encode(encoding), schema) == as_utf8


@settings(max_examples=examples(50))
@given(st.lists(files(), min_size=1, max_size=3), READERS, st.integers(1, 30), st.integers(1, 12))
def test_a_schema_is_inferred_from_rows_not_from_blocks(parts, reader, block, rows):
    small = CsvReader.from_dict({**reader.to_dict(), "block_bytes": block})
    sources = [Source.memory(part) for part in parts]

    def infer(with_reader):
        try:
            return with_reader.infer(sources, rows=rows)
        except (BrokenFile, SchemaError) as error:
            return type(error)

    assert infer(small) == infer(reader) or BrokenFile in {infer(small), infer(reader)}


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8), st.integers(1, 8), READERS)
def test_a_sample_fits_the_types_inferred_from_it_however_it_is_split(rows, cut, reader):
    lines = [b",".join(row) for row in rows if reader.escape is None or b"\\" not in b"".join(row)]
    lines = [line for line in lines if line.count(b'"') % 2 == 0 and b'a"b' not in line]
    one = [Source.memory(b"\n".join([b"a,b", *lines, b""]))]
    two = [Source.memory(b"\n".join([b"a,b", *some, b""])) for some in (lines[:cut], lines[cut:])]
    schema = reader.infer(one)
    assert schema == reader.infer(two)
    result = everything(reader, one[0], schema)
    assert [cell for cell in result["bad"] if cell[2] != "(extra)" and "\ufffd" not in cell[3]] == []
    assert result["rounded"] == {}


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("typed", [True, False])
def test_bad_cells_among_many_good_ones_are_found_the_fast_way_too(block, typed):
    lines = [b"a,b,c"] + [b"%d,%d.5,2026-01-%02d" % (n, n, n % 28 + 1) for n in range(700)]
    for row, text in (
        (3, b"x,1.5,2026-01-01"),
        (200, b"1,1e400,2026-02-30"),
        (699, b"99999999999999999999,,"),
    ):
        lines[row + 1] = text
    data = b"\n".join(lines)
    schema = pa.schema({"a": pa.int64(), "b": pa.float64(), "c": pa.date32()})
    reader = CsvReader(block_bytes=block)
    assert everything(reader, data, schema, typed=typed) == oracle.csv(reader, data, schema)
