"""The conversion table: every cell, and every pair of types that has none."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.architecture import ROOT
from tests.examples import examples
from tests.view.conversion_table import table
from trueline import types as t
from trueline.errors import SchemaError
from trueline.kernel.vectors import dense, same, sparse
from trueline.types.conversions import FAMILIES, RULES
from trueline.view.converting import convert

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
NOON = dt.datetime(2026, 11, 13, 12, 30, 0, 500_000, UTC)
ID = bytes(range(16))
# (from, to, values, what they become); None, which stays None, is added to each.
CELLS = [
    (t.boolean, t.int8, [True, False], [1, 0]),
    (t.boolean, t.float32, [True, False], [1.0, 0.0]),
    (t.boolean, t.decimal(3, 2), [True, False], [Decimal("1.00"), Decimal("0.00")]),
    (t.boolean, t.decimal(2, 2), [True, False], [None, Decimal("0.00")]),
    (t.boolean, t.text, [True, False], ["true", "false"]),
    (t.int64, t.boolean, [0, 1, -7], [False, True, True]),
    (t.int64, t.int8, [127, 128, -128, -129], [127, None, -128, None]),
    (t.int64, t.uint64, [-1, 0, (1 << 63) - 1], [None, 0, (1 << 63) - 1]),
    (t.uint64, t.int64, [(1 << 63) - 1, 1 << 63], [(1 << 63) - 1, None]),
    (t.uint8, t.int8, [127, 128], [127, None]),
    (t.int8, t.int64, [-128, 127], [-128, 127]),
    (t.int64, t.float64, [(1 << 53) + 1, -3], [float(1 << 53), -3.0]),
    (t.int64, t.float32, [(1 << 24) + 1], [float(1 << 24)]),
    (t.uint64, t.float64, [(1 << 64) - 1], [float(1 << 64)]),
    (t.int64, t.decimal(4, 1), [999, 1000, -999], [Decimal("999.0"), None, Decimal("-999.0")]),
    (t.uint64, t.decimal(76, 56), [(1 << 64) - 1], [Decimal((1 << 64) - 1)]),
    (t.int64, t.text, [-(1 << 63), 0], ["-9223372036854775808", "0"]),
    (t.int64, t.category(3), [0, 2, 3, -1], [0, 2, None, None]),
    (t.uint64, t.category(1 << 32), [(1 << 32) - 1, 1 << 32], [(1 << 32) - 1, None]),
    (t.float64, t.boolean, [0.0, -0.0, 0.5, NAN, INF], [False, False, True, None, True]),
    (t.float64, t.int64, [1.9, -1.9, NAN, INF, 2.0**63, -(2.0**63)], [1, -1, None, None, None, -(1 << 63)]),
    (t.float64, t.uint8, [255.9, 256.0, -0.9, -1.0], [255, None, 0, None]),
    (t.float64, t.uint64, [2.0**64, 2.0**64 - 2048], [None, (1 << 64) - 2048]),
    (t.float32, t.int32, [2.0**31, -(2.0**31)], [None, -(1 << 31)]),
    (t.float32, t.float64, [0.5, NAN, -INF], [0.5, NAN, -INF]),
    (t.float64, t.float32, [0.1, 1e300, INF, NAN], [float(np.float32(0.1)), None, INF, NAN]),
    (
        t.float64,
        t.decimal(6, 2),
        [2.675, -2.675, 1e300, NAN, INF, 5e-324, 9999.994, 9999.995, -0.0],
        [
            Decimal("2.68"),
            Decimal("-2.68"),
            None,
            None,
            None,
            Decimal(0),
            Decimal("9999.99"),
            None,
            Decimal(0),
        ],
    ),
    (t.float32, t.decimal(3, 1), [0.1, 1e20], [Decimal("0.1"), None]),
    (t.float64, t.decimal(38, 0), [1e37, 1e38], [Decimal(10**37), None]),
    (
        t.float64,
        t.text,
        [1.0, 0.1, 1e20, NAN, INF, -INF, -0.0, 1e-7],
        ["1.0", "0.1", "1e+20", "NaN", "Infinity", "-Infinity", "-0.0", "1e-7"],
    ),
    (t.float32, t.text, [0.1], ["0.1"]),
    (t.decimal(4, 2), t.boolean, [Decimal("0.00"), Decimal("-0.01")], [False, True]),
    (t.decimal(6, 2), t.int8, [Decimal("127.99"), Decimal("-128.99"), Decimal("128.00")], [127, -128, None]),
    (t.decimal(38, 0), t.uint64, [Decimal((1 << 64) - 1), Decimal(1 << 64)], [(1 << 64) - 1, None]),
    (
        t.decimal(30, 20),
        t.float64,
        [Decimal("0.1"), Decimal("123456789.12345678901234567890")],
        [0.1, 123456789.12345679],
    ),
    (t.decimal(4, 2), t.float32, [Decimal("0.10")], [float(np.float32(0.1))]),
    (
        t.decimal(6, 3),
        t.decimal(4, 2),
        [Decimal("2.675"), Decimal("-2.675"), Decimal("99.995")],
        [Decimal("2.68"), Decimal("-2.68"), None],
    ),
    (t.decimal(4, 2), t.decimal(10, 5), [Decimal("1.25")], [Decimal("1.25000")]),
    (t.decimal(76, 0), t.decimal(76, 76), [Decimal(10**75), Decimal(0)], [None, Decimal(0)]),
    (
        t.decimal(20, 10),
        t.text,
        [Decimal("1.5"), Decimal("1E-10"), Decimal(0)],
        ["1.5000000000", "0.0000000001", "0.0000000000"],
    ),
    (t.text, t.boolean, ["true", "NO", "y", "2", ""], [True, False, True, None, None]),
    (t.text, t.int8, ["7", " +8 ", "1.5", "128", "0x1", ""], [7, 8, None, None, None, None]),
    (t.text, t.float64, ["0.1", " -1e3", "nan", "inf", "1e400", "1,5"], [0.1, -1000.0, NAN, INF, None, None]),
    (
        t.text,
        t.decimal(4, 2),
        ["1.25", "1.250", "1.255", "100", "1e1"],
        [Decimal("1.25"), Decimal("1.25"), None, None, Decimal(10)],
    ),
    (t.text, t.binary, ["é"], ["é".encode()]),
    (t.text, t.date, ["2026-11-13", "2026-02-30", "13.11.2026"], [dt.date(2026, 11, 13), None, None]),
    (
        t.text,
        t.timestamp("ms"),
        ["2026-11-13 12:30:00.5004", "2026-11-13T13:30:00.5+01:00", "2026-11-13", "x"],
        [NOON, NOON, dt.datetime(2026, 11, 13, tzinfo=UTC), None],
    ),
    (
        t.text,
        t.timestamp("us", None),
        ["2026-11-13 12:30:00.5", "2026-11-13 12:30:00Z"],
        [NOON.replace(tzinfo=None), None],
    ),
    (t.text, t.time("ms"), ["12:30:00.5", "25:00:00"], [dt.time(12, 30, 0, 500_000), None]),
    (
        t.text,
        t.duration("ms"),
        ["PT1H30M0.5S", "-PT1S", "P1D", "P", "PT", "90s", "P9999999DT999999999999S", "PT.5S"],
        [
            dt.timedelta(hours=1, minutes=30, milliseconds=500),
            dt.timedelta(seconds=-1),
            dt.timedelta(days=1),
            None,
            None,
            None,
            dt.timedelta(days=9_999_999, seconds=999_999_999_999),
            None,
        ],
    ),
    (t.text, t.duration("ns"), ["PT999999999999S", "PT9999999999999999999S"], [None, None]),
    (t.text, t.category(3), ["2", "3", "-1", "b"], [2, None, None, None]),
    (t.text, t.rowid, [ID.hex(), ID.hex().upper(), "00", "g" * 32], [ID, ID, None, None]),
    (t.binary, t.text, ["é".encode(), b"\xff"], ["é", None]),
    (t.binary, t.rowid, [ID, b"short"], [ID, None]),
    (t.date, t.text, [dt.date(1, 1, 1), dt.date(9999, 12, 31)], ["0001-01-01", "9999-12-31"]),
    (t.date, t.timestamp("ms"), [dt.date(1969, 12, 31)], [dt.datetime(1969, 12, 31, tzinfo=UTC)]),
    (t.date, t.timestamp("ns"), [dt.date(1, 1, 1)], [None]),
    (t.timestamp("ms"), t.text, [NOON], ["2026-11-13 12:30:00.500Z"]),
    (t.timestamp("s", None), t.text, [dt.datetime(1, 1, 1)], ["0001-01-01 00:00:00"]),
    (t.timestamp("ms", "Europe/Zurich"), t.text, [NOON], ["2026-11-13 12:30:00.500Z"]),
    (
        t.timestamp("us"),
        t.date,
        [NOON, dt.datetime(1969, 12, 31, 23, tzinfo=UTC)],
        [dt.date(2026, 11, 13), dt.date(1969, 12, 31)],
    ),
    (
        t.timestamp("us"),
        t.timestamp("s"),
        [NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 1, UTC)],
        [NOON.replace(microsecond=0), dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)],
    ),
    (
        t.timestamp("s"),
        t.timestamp("ns"),
        [dt.datetime(9999, 1, 1, tzinfo=UTC), dt.datetime(1970, 1, 1, tzinfo=UTC)],
        [None, dt.datetime(1970, 1, 1, tzinfo=UTC)],
    ),
    (t.timestamp("us"), t.timestamp("us", None), [NOON], [NOON.replace(tzinfo=None)]),
    (t.timestamp("us", None), t.timestamp("us"), [NOON.replace(tzinfo=None)], [NOON]),
    (
        t.timestamp("us"),
        t.time("s"),
        [NOON, dt.datetime(1969, 12, 31, 23, 0, 0, 1, UTC)],
        [dt.time(12, 30), dt.time(23)],
    ),
    (t.time("us"), t.text, [dt.time(12, 30, 0, 500_000)], ["12:30:00.500000"]),
    (t.time("us"), t.time("s"), [dt.time(12, 30, 0, 500_000)], [dt.time(12, 30)]),
    (t.time("s"), t.time("ns"), [dt.time(12, 30)], [dt.time(12, 30)]),
    (
        t.duration("ms"),
        t.text,
        [dt.timedelta(hours=1, milliseconds=500), dt.timedelta(seconds=-1), dt.timedelta(0)],
        ["PT3600.5S", "-PT1S", "PT0S"],
    ),
    (
        t.duration("ms"),
        t.duration("s"),
        [dt.timedelta(seconds=-1.5), dt.timedelta(seconds=1.5)],
        [dt.timedelta(seconds=-1), dt.timedelta(seconds=1)],
    ),
    (
        t.duration("s"),
        t.duration("ns"),
        [dt.timedelta(days=200_000), dt.timedelta(1)],
        [None, dt.timedelta(1)],
    ),
    (t.category(300), t.int8, [127, 128], [127, None]),
    (t.category(300), t.text, [7], ["7"]),
    (t.category(300), t.category(8), [7, 8], [7, None]),
    (t.rowid, t.text, [ID], [ID.hex()]),
    (t.rowid, t.binary, [ID], [ID]),
    (
        t.vector(t.text),
        t.vector(t.int8, 2),
        [["1", "x"], ["1"], [], ["1", "2", "3"]],
        [[1, None], None, None, None],
    ),
    (t.vector(t.int64, 2), t.vector(t.float32), [[1, None]], [[1.0, None]]),
    (t.vector(t.float64, 4), t.vector(t.float64, 2, 2), [[1.0, 2.0, 3.0, 4.0]], [[1.0, 2.0, 3.0, 4.0]]),
]
SAME = [
    t.boolean,
    t.int64,
    t.float32,
    t.decimal(4, 2),
    t.text,
    t.binary,
    t.date,
    t.timestamp(),
    t.time(),
    t.duration(),
    t.category(3),
    t.rowid,
    t.vector(t.int8),
]


def plain(array):
    """As values that can be compared, NaN under a name."""
    unit = getattr(array.type, "unit", None)
    if unit == "ns":
        kinds = {"t": pa.timestamp("us", getattr(array.type, "tz", None)), "d": pa.duration("us")}
        array = array.cast(pa.time64("us") if pa.types.is_time(array.type) else kinds[str(array.type)[0]])
    return named(array.to_pylist())


def named(values):
    return ["NaN" if isinstance(value, float) and math.isnan(value) else value for value in values]


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"), CELLS, ids=[f"{a} to {b}" for a, b, *_ in CELLS]
)
def test_values_become_what_the_table_says(source, target, values, expected):
    array = pa.array([None, *values], source.arrow)
    found = convert(array, source, target)
    assert found.type == target.arrow
    assert plain(found) == named([None, *expected])
    # What a value becomes does not depend on those beside it, nor on where an array begins.
    ones = [convert(array[at : at + 1], source, target) for at in range(len(array))]
    assert plain(pa.concat_arrays(ones)) == plain(found)
    assert plain(convert(array[:0], source, target)) == []


def test_every_cell_of_the_table_has_an_example():
    shown = {(t.family(a), t.family(b)) for a, b, *_ in CELLS} | {(t.family(k),) * 2 for k in SAME}
    assert shown == set(RULES)


@pytest.mark.parametrize("kind", SAME, ids=str)
def test_a_type_becomes_itself_untouched(kind):
    array = pa.nulls(3, kind.arrow)
    assert convert(array, kind, kind) is array


PAIRS = list(product(SAME, SAME))


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a} to {b}" for a, b in PAIRS])
def test_where_there_is_no_cell_there_is_no_way_and_a_remedy(source, target):
    if t.can_convert(source, target):
        assert convert(pa.nulls(2, source.arrow), source, target).null_count == 2
        return
    with pytest.raises(SchemaError) as caught:
        convert(pa.nulls(2, source.arrow), source, target)
    assert caught.value.code == "NoConversion"
    assert str(source) in str(caught.value)
    assert str(target) in str(caught.value)
    assert caught.value.remedy


def test_items_that_have_no_way_keep_their_vectors_from_having_one():
    assert not t.can_convert(t.vector(t.date), t.vector(t.float32))
    assert not t.can_convert(t.float32, t.vector(t.float32))
    assert not t.can_convert(t.Nested(pa.struct([("x", pa.int8())])), t.text)


def test_what_is_always_missing_becomes_anything():
    nothing = t.Nested(pa.null())
    assert [convert(pa.nulls(2), nothing, kind).type for kind in SAME] == [kind.arrow for kind in SAME]


@pytest.mark.parametrize("target", [t.vector(t.int8, 3), t.vector(t.text), t.vector(t.float32)], ids=str)
def test_sparse_vectors_become_what_dense_ones_do(target):
    kind = t.vector(t.float64, 3)
    array = pa.array([[0.0, 1.5, 0.0], None, [NAN, None, 300.0]], kind.arrow)
    one, other = convert(array, kind, target), convert(sparse(array, kind), kind, target)
    assert same(other, one, target).all()
    assert str(dense(other, target)) == str(one)


def test_a_sparse_vector_of_another_length_is_missing():
    kind, target = t.vector(t.int8), t.vector(t.int8, 2)
    array = pa.array([[0, 1], [1], []], kind.arrow)
    assert dense(convert(sparse(array, kind), kind, target), target).to_pylist() == [[0, 1], None, None]


def test_entries_that_are_not_listed_are_converted_too():
    kind, target = t.vector(t.text, 2), t.vector(t.int8, 2)
    array = sparse(pa.array([["", "1"]], kind.arrow), kind)
    assert dense(convert(array, kind, target), target).to_pylist() == [[None, 1]]


@pytest.mark.parametrize(
    "kind",
    [
        t.int64,
        t.uint64,
        t.float64,
        t.float32,
        t.date,
        t.timestamp("us"),
        t.timestamp("ns", None),
        t.time("ns"),
        t.duration("us"),
        t.decimal(20, 3),
        t.boolean,
    ],
    ids=str,
)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_what_is_written_as_text_reads_back_the_same(kind, data):
    stored = data.draw(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
    array = _from_bits(stored, kind)
    text = convert(array, kind, t.text)
    assert text.type == pa.string()
    again = convert(text, t.text, kind)
    kept = text.is_valid()
    assert again.filter(kept).equals(array.filter(kept)) or plain(again.filter(kept)) == plain(
        array.filter(kept)
    )


def _from_bits(stored, kind):
    """Any values of a type, made of whole numbers."""
    if kind == t.boolean:
        return pa.array([None if n is None else n % 2 == 0 for n in stored], pa.bool_())
    if isinstance(kind, t.Decimal):
        return pa.array([None if n is None else Decimal(n % 10**17).scaleb(-3) for n in stored], kind.arrow)
    bits = kind.arrow.bit_width
    day = 86_400 * 10**9
    wrapped = [
        None if n is None else n % day if isinstance(kind, t.Time) else n % (1 << bits) for n in stored
    ]
    values = pa.array(wrapped, pa.uint64())
    if bits == 32:
        return values.cast(pa.uint32()).view(pa.int32()).view(kind.arrow)
    return values if kind == t.uint64 else values.view(pa.int64()).view(kind.arrow)


def test_the_page_shows_the_table_as_it_is():
    page = (ROOT / "docs" / "types.md").read_text(encoding="utf-8")
    assert table() in page


def test_every_rule_is_between_families_that_exist():
    assert {name for pair in RULES for name in pair} == set(FAMILIES)
