"""The table of types in the reference: every row is stored, seen in its slice, viewed, and sent to Spark."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.architecture import ROOT
from trueline.chain.schema import fields_of, show
from trueline.chain.store.store import Folder
from trueline.errors import InputError
from trueline.spark.types import arrow_schema_of, to_spark_schema

NOON, MOMENT = time(12, 0, 1), datetime(2026, 11, 13, 9, 30, 1, tzinfo=UTC)
# Each row: a type as it is given in Arrow, and a value of it.
GIVEN = [
    (pa.bool_(), True),
    (pa.int8(), -128),
    (pa.int16(), -32768),
    (pa.int32(), -(2**31)),
    (pa.int64(), -(2**63)),
    (pa.uint8(), 255),
    (pa.uint16(), 65535),
    (pa.uint32(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1),
    (pa.float16(), 0.5),
    (pa.float32(), 0.1),
    (pa.float64(), 0.1),
    (pa.decimal128(10, 2), Decimal("-12345678.90")),
    (pa.decimal128(38, 0), Decimal(10**38 - 1)),
    (pa.decimal256(50, 2), Decimal("1.10")),
    (pa.string(), "ä\0"),
    (pa.large_string(), "ä"),
    (pa.string_view(), "ä"),
    (pa.dictionary(pa.int32(), pa.string()), "ä"),
    (pa.binary(), b"\0\xff"),
    (pa.large_binary(), b"\0"),
    (pa.binary(4), b"\0\1\2\3"),
    (pa.date32(), date(2026, 11, 13)),
    (pa.date64(), date(2026, 11, 13)),
    (pa.time32("s"), NOON),
    (pa.time32("ms"), NOON),
    (pa.time64("us"), NOON),
    (pa.time64("ns"), NOON),
    (pa.timestamp("s", "UTC"), MOMENT),
    (pa.timestamp("ms", "UTC"), MOMENT),
    (pa.timestamp("us", "UTC"), MOMENT),
    (pa.timestamp("ns", "UTC"), MOMENT),
    (pa.timestamp("us", "Europe/Paris"), MOMENT),
    (pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
    (pa.list_(pa.int64()), [1, None]),
    (pa.large_list(pa.int64()), [1, None]),
    (pa.list_(pa.int64(), 2), [1, None]),
    (pa.struct({"x": pa.int64()}), {"x": None}),
]
REFUSED = [
    pa.null(),
    pa.duration("us"),
    pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.struct({"x": pa.int64()})),
    pa.month_day_nano_interval(),
]
ROWS = re.compile(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \| `(.+?)` \| (.+?) \|$", re.MULTILINE)


def page() -> str:
    return (ROOT / "docs" / "reference" / "types.md").read_text(encoding="utf-8")


def slice_schema(ds):
    name = ds.chain.tail().data.new_data.physical_hash
    return pq.ParquetFile(pa.BufferReader(ds.chain.store.get(Folder.DATA, name))).schema


def parquet(schema, column: str) -> str:
    """Describe how a column lies in a file."""
    places = [schema.column(place) for place in range(len(schema))]
    (leaf,) = [place for place in places if place.path.split(".")[0] == column]
    size = f"({leaf.length})" if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else ""
    kind = leaf.physical_type.replace("_LEN_BYTE_ARRAY", "").lower() + size
    logical = _logical(str(leaf.logical_type))
    around = "List of " if ".list." in leaf.path else "group of " if "." in leaf.path else ""
    return f"{around}{kind}{f', {logical}' if logical else ''}"


def _logical(text: str) -> str:
    if number := re.match(r"Int\(bitWidth=(\d+), isSigned=(\w+)\)", text):
        return f"{'Int' if number[2] == 'true' else 'UInt'}({number[1]})"
    if moment := re.match(r"(Time|Timestamp)\(isAdjustedToUTC=(\w+), timeUnit=(\w+?)seconds", text):
        zone = "" if moment[1] == "Time" else ", UTC" if moment[2] == "true" else ", local"
        return f"{moment[1]}({moment[3]}s{zone})"
    return {"None": ""}.get(text, text.partition("(")[0])


def shown(kind: pa.DataType) -> str:
    return str(kind)


@pytest.fixture
def stored(ws):
    """One dataset with a column of each type."""
    columns = {f"c{i}": pa.array([value, None], kind) for i, (kind, value) in enumerate(GIVEN)}
    # A struct that is missing has no hash that every reader computes alike.
    struct = next(name for name, array in columns.items() if pa.types.is_struct(array.type))
    columns[struct] = pa.array([{"x": None}, {"x": 1}], columns[struct].type)
    ds = ws.create("types")
    ds.append(pa.table(columns))
    return ds, columns


def test_the_table_says_what_each_type_becomes(stored):
    ds, columns = stored
    slices, view = slice_schema(ds), ds.view().schema
    made = []
    for name, array in columns.items():
        field = next(field for field in fields_of(ds.chain.tail().schema) if field.name == name)
        kind = view[name].type
        try:
            spark = to_spark_schema(pa.schema({"c": kind.arrow}))["c"].dataType.simpleString()
        except InputError:
            spark = "–"
        row = (shown(array.type), show(field.type.inner), str(kind), spark, parquet(slices, name))
        made.append(row)
    listed = [tuple(row) for row in ROWS.findall(page())]
    wanted = "\n".join("| " + " | ".join([*(f"`{cell}`" for cell in row[:4]), row[4]]) + " |" for row in made)
    assert listed == made, f"the table is to be\n{wanted}"


def test_values_of_every_type_come_back(stored):
    ds, columns = stored
    found = ds.view().to_arrow()
    for name, array in columns.items():
        expected = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        assert found[name].combine_chunks() == expected.cast(found[name].type), array.type
    assert ds.verify().ok


def test_values_of_every_type_go_to_spark_and_back(stored, spark):
    ds, columns = stored
    # Spark has no decimals of more than 38 digits.
    names = [name for name, array in columns.items() if not pa.types.is_decimal256(array.type)]
    view = ds.view().select(*names)
    frame = view.to_spark()
    assert frame.schema == to_spark_schema(view.schema.to_arrow())
    back, there = frame.toArrow(), arrow_schema_of(frame.schema)
    rows = back.take(pa.array([0, 1] if back["c0"][0].is_valid else [1, 0])).cast(there)
    expected = view.to_arrow().cast(there)
    assert [name for name in names if rows[name] != expected[name]] == []


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_what_cannot_be_stored_is_refused(ws, kind):
    with pytest.raises(InputError):
        ws.create("x").append(pa.table({"c": pa.nulls(1, kind)}))
