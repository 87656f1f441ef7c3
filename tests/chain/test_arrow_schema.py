from __future__ import annotations

import base64
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chain.golden import vector
from tests.chain.hostile import cost_of
from tests.chain.raw_schemas import bare
from tests.examples import examples
from trueline.chain import datatypes as t
from trueline.chain.schema import from_arrow, read_raw, to_arrow
from trueline.errors import InputError, SchemaError

RAW = base64.b64decode(vector("serde_set_data_schema_legacy", 2).block["event"]["rawArrowSchema"])
UNITS = st.sampled_from(list(t.TimeUnit))

# --- every type -------------------------------------------------------------------

leaves = st.one_of(
    st.sampled_from(
        [
            t.Bool(),
            t.Date(),
            t.Float16(),
            t.Float32(),
            t.Float64(),
            t.Int8(),
            t.Int16(),
            t.Int32(),
            t.Int64(),
            t.UInt8(),
            t.UInt16(),
            t.UInt32(),
            t.UInt64(),
            t.Null(),
            t.String(),
            t.Binary(),
        ]
    ),
    st.builds(t.Binary, st.integers(1, 1000)),
    st.integers(1, 76).flatmap(lambda digits: st.builds(t.Decimal, st.just(digits), st.integers(-5, digits))),
    st.builds(t.Duration, UNITS),
    st.builds(t.Time, UNITS),
    st.builds(t.Timestamp, UNITS, st.sampled_from(["UTC", "Europe/Berlin", "+02:00", ""])),
)


def optional(kind: t.Record) -> t.Record:
    return kind if isinstance(kind, t.Null | t.Option) else t.Option(kind)


def nested(inner: st.SearchStrategy[t.Record]) -> st.SearchStrategy[t.Record]:
    maybe = inner | inner.map(optional)
    names = st.lists(st.text(max_size=5), max_size=4, unique=True)
    members = names.flatmap(
        lambda found: st.tuples(*(st.builds(t.DataField, st.just(n), maybe) for n in found))
    )
    keys = leaves.filter(lambda kind: not isinstance(kind, t.Null))
    return st.one_of(
        st.builds(t.List, maybe, st.none() | st.integers(0, 10)),
        st.builds(t.Struct, members),
        st.builds(t.Map, keys, maybe, st.sampled_from([None, True])),
    )


types = st.recursive(leaves, nested, max_leaves=6)
columns = types | types.map(optional)
schemas = st.lists(st.text(max_size=6), max_size=6, unique=True).flatmap(
    lambda names: st.tuples(*(st.builds(t.DataField, st.just(name), columns) for name in names)).map(
        t.DataSchema
    )
)


@settings(max_examples=examples(100))
@given(schemas)
def test_a_schema_survives_arrow(schema):
    arrow = to_arrow(schema)
    assert arrow.names == list(schema.names)
    assert from_arrow(arrow) == schema
    assert to_arrow(from_arrow(arrow)) == arrow


@settings(max_examples=examples(66))
@given(schemas)
def test_the_raw_form_of_a_schema_is_read(schema):
    message = to_arrow(schema).serialize().to_pybytes()
    assert read_raw(bare(message)) == schema


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.large_string(), t.String()),
        (pa.string_view(), t.String()),
        (pa.large_binary(), t.Binary()),
        (pa.binary_view(), t.Binary()),
        (pa.date64(), t.Date()),
        (pa.dictionary(pa.int8(), pa.string()), t.String()),
        (pa.large_list(pa.int8()), t.List(t.Option(t.Int8()))),
        (pa.list_view(pa.int8()), t.List(t.Option(t.Int8()))),
        (pa.decimal256(40, 3), t.Decimal(40, 3)),
        (pa.decimal64(9, 3), t.Decimal(9, 3)),
        (pa.timestamp("us"), t.Timestamp(t.TimeUnit.Microsecond, "")),
    ],
    ids=str,
)
def test_encodings_of_arrow_are_left_out(arrow, kind):
    schema = from_arrow(pa.schema([pa.field("x", arrow, nullable=False)]))
    assert schema.fields == (t.DataField("x", kind),)


@pytest.mark.parametrize(
    "kind",
    [
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.struct([("inner", pa.month_day_nano_interval())]),
        pa.list_(pa.month_day_nano_interval()),
        pa.map_(pa.string(), pa.month_day_nano_interval()),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_stored_is_refused_with_its_column(kind):
    with pytest.raises(SchemaError) as caught:
        from_arrow(pa.schema([("x", kind)]))
    assert caught.value.column.startswith("x")
    assert caught.value.remedy


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("x", pa.int8()), ("x", pa.int8())]),
        pa.schema([("y", pa.struct([("x", pa.int8()), ("x", pa.int8())]))]),
        pa.schema([("y", pa.list_(pa.struct([("x", pa.int8()), ("x", pa.int8())])))]),
    ],
    ids=["columns", "members", "members of items"],
)
def test_a_name_that_occurs_twice_is_refused(schema):
    with pytest.raises(SchemaError) as caught:
        from_arrow(schema)
    assert "x" in caught.value.problem
    assert "twice" in caught.value.problem


@pytest.mark.parametrize(
    "kind",
    [
        t.Decimal(0, 0),
        t.Decimal(77, 0),
        t.Decimal(4_000_000_000, 0),
        t.Binary(1 << 40),
        t.List(t.Int8(), 1 << 40),
        t.Map(t.Null(), t.Int8()),
        t.Struct((t.DataField("a", t.Decimal(77, 0)),)),
    ],
    ids=str,
)
def test_a_type_that_arrow_cannot_hold_is_refused_with_its_column(kind):
    with pytest.raises(SchemaError) as caught:
        to_arrow(t.DataSchema((t.DataField("x", kind),)))
    assert "x" in caught.value.problem
    assert caught.value.remedy


def test_optional_twice_is_optional():
    schema = t.DataSchema((t.DataField("x", t.Option(t.Option(t.Int8()))),))
    assert to_arrow(schema) == pa.schema([("x", pa.int8())])


# --- the deprecated form ----------------------------------------------------------


def test_the_golden_raw_schema_is_read():
    schema = read_raw(RAW)
    assert schema.names == ("a", "b")
    assert schema["a"].type == t.Int64()
    assert schema["b"].type == t.Bool()


def attempt(raw: bytes) -> t.DataSchema | InputError:
    try:
        return read_raw(raw)
    except InputError as error:
        return error


def test_a_damaged_raw_schema_is_read_or_refused():
    refused = 0
    for position in range(len(RAW)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, RAW[position] ^ 1):
            damaged = bytearray(RAW)
            damaged[position] = value
            refused += isinstance(attempt(bytes(damaged)), InputError)
    assert refused > len(RAW)


def test_a_raw_schema_cut_short_is_refused_or_holds_no_column():
    for length in range(len(RAW) - 3):
        found = attempt(RAW[:length])
        assert isinstance(found, InputError) or found.fields == ()


@given(st.binary(max_size=120))
def test_random_bytes_are_no_raw_schema(raw):
    attempt(raw)


def test_spliced_raw_schemas_are_read_or_refused():
    chance = random.Random(7)
    for _ in range(2000):
        cut, other = chance.randrange(len(RAW)), chance.randrange(len(RAW))
        attempt(RAW[:cut] + RAW[other:])


def test_reading_a_raw_schema_costs_no_more_than_its_size():
    wide = to_arrow(t.DataSchema(tuple(t.DataField(f"column {n}", t.Int64()) for n in range(500))))
    raw = bare(wide.serialize().to_pybytes())
    assert cost_of(lambda: read_raw(raw)).calls < 100 * 500
