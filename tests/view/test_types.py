"""Logical types: what they are, how they are spelt, how they travel with Arrow and Parquet."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId

PRIMITIVES = [
    t.boolean,
    *sorted(t.NUMBERS, key=str),
    t.text,
    t.binary,
    t.date,
    t.decimal(10, 2),
    t.decimal(76, 76),
    t.timestamp(),
    t.timestamp("ms"),
    t.timestamp("ns", None),
    t.timestamp("s", "Europe/Zurich"),
    t.timestamp("us", "+01:00"),
    t.time("s"),
    t.time("ns"),
    t.duration("ms"),
    t.rowid,
    t.category(5),
    t.category(1 << 32),
]
VECTORS = [
    t.vector(t.float32),
    t.vector(t.text, 3),
    t.vector(t.category(7), 2),
    t.vector(t.rowid),
    t.vector(t.decimal(5, 1), 2, 2),
    t.vector(t.float64, 0, 64),
    t.vector(t.timestamp("ms"), 1),
]
TYPES = [*PRIMITIVES, *VECTORS]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_is_found_again_in_its_spelling_its_field_and_its_pickle(kind):
    assert t.parse(str(kind)) == kind
    assert t.of(t.field("x", kind)) == kind
    again = pickle.loads(pickle.dumps(kind))
    assert again == kind
    assert hash(again) == hash(kind)
    assert t.of(kind) is kind


def test_types_survive_a_parquet_file(tmp_path):
    stored = [kind for kind in TYPES if not str(kind).startswith(("duration", "time(s"))]
    schema = pa.schema([t.field(str(kind), kind) for kind in stored])
    pq.write_table(pa.table([pa.nulls(2, each.type) for each in schema], schema=schema), tmp_path / "x")
    found = pq.read_table(tmp_path / "x").schema
    # Parquet has no seconds: a timestamp in them comes back in milliseconds.
    expected = [t.timestamp("ms", k.zone) if str(k).startswith("timestamp(s") else k for k in stored]
    assert [t.of(each) for each in found] == expected


def test_each_type_differs_from_every_other():
    assert len(set(TYPES)) == len(TYPES)
    assert len({str(kind) for kind in TYPES}) == len(TYPES)


@pytest.mark.contract("view:C14")
def test_a_category_is_not_the_number_it_is_stored_as():
    stored = t.field("x", t.category(5))
    assert stored.type == pa.uint32()
    assert t.of(stored) == t.category(5) != t.uint32
    assert t.of(stored.type) == t.uint32
    assert json.loads(stored.metadata[b"trueline/type"]) == "category(5)"
    assert t.rowid.arrow == t.of(pa.binary(16)).arrow
    assert t.of(pa.binary(16)) != t.rowid


@pytest.mark.contract("view:C111")
def test_vectors_are_equal_by_items_and_dimensions_and_compatible_by_size():
    flat, square = t.vector(t.float32, 4), t.vector(t.float32, 2, 2)
    assert flat != square
    assert flat.compatible(square)
    assert not flat.compatible(t.vector(t.float64, 4))
    assert not flat.compatible(t.vector(t.float32, 5))
    assert not flat.compatible(t.float32)
    assert t.vector(t.float32, 2, 2) == square


@pytest.mark.contract("view:C112")
@pytest.mark.parametrize(
    ("dims", "size"),
    [((3,), 3), ((2, 3), 6), ((0,), 0), ((0, 64), 0), ((64, 0), 0), (((1 << 31) - 1,), (1 << 31) - 1)],
)
def test_dimensions_multiply_and_one_of_zero_makes_the_size_unknown(dims, size):
    assert t.Vector(t.int8, dims).size == size


@pytest.mark.contract("view:C112")
@pytest.mark.parametrize("dims", [(), (-1,), (True,), (1.5,), (1 << 16, 1 << 15), (2, -2)])
def test_other_dimensions_are_refused(dims):
    with pytest.raises(InputError):
        t.Vector(t.int8, dims)


@pytest.mark.contract("view:C110")
@pytest.mark.parametrize("item", [t.vector(t.float32), t.Nested(pa.struct([("x", pa.int8())]))])
def test_a_vector_holds_single_values_only(item):
    with pytest.raises(InputError, match="vector of"):
        t.vector(item)
    assert isinstance(t.of(pa.list_(pa.list_(pa.int8()))), t.Nested)


@pytest.mark.contract("view:C47")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (t.float64, t.float32),
        (t.int32, t.int64),
        (t.uint32, t.category(3)),
        (t.category(4), t.category(3)),
        (t.binary, t.rowid),
        (t.timestamp("ms"), t.timestamp("us")),
        (t.timestamp("ms", None), t.timestamp("ms")),
        (t.vector(t.float32), t.vector(t.float32, 3)),
        (t.vector(t.float32, 4), t.vector(t.float32, 2, 2)),
        (float, t.float32),
        (int, t.int32),
        ("int", t.int64),
        (pa.string(), t.binary),
    ],
)
def test_nothing_is_widened_when_a_type_is_asked_for(asked, found):
    with pytest.raises(SchemaError) as caught:
        t.same(asked, found, "x")
    assert caught.value.code == "TypeMismatch"
    assert str(found) in str(caught.value)
    assert str(t.of(asked)) in str(caught.value)
    assert f"cast(x as {t.of(asked)})" in caught.value.remedy


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (bool, t.boolean),
        (int, t.int64),
        (float, t.float64),
        (str, t.text),
        (bytes, t.binary),
        (dt.date, t.date),
        (dt.datetime, t.timestamp()),
        (dt.time, t.time()),
        (dt.timedelta, t.duration()),
        (decimal.Decimal, t.decimal(38, 9)),
        (RowId, t.rowid),
        ("int", t.int32),
        ("bigint", t.int64),
        ("float", t.float32),
        ("double", t.float64),
        (" String ", t.text),
        ("timestamp", t.timestamp()),
        ("timestamp_ntz", t.timestamp("us", None)),
        ("numeric(10,2)", t.decimal(10, 2)),
        ("decimal", t.decimal(10)),
        ("vector( float32 ,3 )", t.vector(t.float32, 3)),
        ("null", t.Nested(pa.null())),
        (pa.large_string(), t.text),
        (pa.string_view(), t.text),
        (pa.float16(), t.float32),
        (pa.date64(), t.date),
        (pa.dictionary(pa.int8(), pa.string()), t.text),
        (pa.large_list(pa.int8()), t.vector(t.int8)),
        (pa.list_(pa.field("item", pa.uint32(), metadata=t.category(3).metadata)), t.vector(t.category(3))),
        (pa.decimal128(5, -2), t.Nested(pa.decimal128(5, -2))),
    ],
)
def test_the_type_of_what_others_have_is_found(given, kind):
    assert t.of(given) == kind
    t.same(given, kind, "x")


@pytest.mark.parametrize(
    "given",
    [
        "",
        "float33",
        "vector",
        "vector()",
        "vector(vector(int8))",
        "category(0)",
        "category(x)",
        "decimal(99)",
        "decimal(2, 3)",
        "timestamp(h)",
        "vector(int8, -1)",
        "int8(3)",
        "vector(" * 2000 + "int8" + ")" * 2000,
        object,
        7,
        None,
    ],
)
def test_what_is_no_type_is_refused(given):
    with pytest.raises(InputError) as caught:
        t.of(given)
    assert caught.value.remedy


@given(st.text(max_size=30))
def test_parsing_finds_a_type_or_refuses(text):
    try:
        found = t.parse(text)
    except InputError:
        return
    assert isinstance(found, t.Type)


@pytest.mark.contract("view:C20")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.int64(), b'"category(5)"'),
        (pa.uint32(), b'"category(0)"'),
        (pa.uint32(), b"category"),
        (pa.uint32(), b"{}"),
        (pa.uint32(), b"\xff"),
        (pa.uint32(), b'"nonsense("'),
        (pa.uint32(), b'"float32"'),
        (pa.list_(pa.float32(), 3), b'"vector(float32, 2, 2)"'),
        (pa.struct([("x", pa.int8())]), b'"vector(int8)"'),
    ],
)
def test_what_a_field_says_wrongly_of_its_type_is_passed_over(kind, said):
    assert t.of(pa.field("x", kind, metadata={b"trueline/type": said})) == t.of(kind)


@given(st.binary(max_size=40), st.sampled_from([pa.uint32(), pa.string(), pa.list_(pa.int8()), pa.null()]))
def test_no_metadata_keeps_a_type_from_being_found(said, kind):
    assert t.of(pa.field("x", kind, metadata={b"trueline/type": said})) is not None


def test_vectors_may_be_stored_sparse_if_the_field_says_so():
    kind = t.vector(t.float32, 5)
    assert t.of(pa.field("x", kind.sparse, metadata={b"trueline/type": b'"vector(float32, 5)"'})) == kind
    assert isinstance(t.of(kind.sparse), t.Nested)
    other = pa.field("x", kind.sparse, metadata={b"trueline/type": b'"vector(float64, 5)"'})
    assert isinstance(t.of(other), t.Nested)


def test_single_values_have_an_order_and_vectors_have_none():
    assert t.int8.has_order
    assert t.category(2).has_order
    assert not t.vector(t.int8).has_order
    assert not t.Nested(pa.struct([("x", pa.int8())])).has_order


@pytest.mark.parametrize(
    "make", [lambda: t.Primitive("float33"), lambda: t.category(True), lambda: t.time("h")]
)
def test_a_type_that_cannot_be_is_not_made(make):
    with pytest.raises(InputError):
        make()
