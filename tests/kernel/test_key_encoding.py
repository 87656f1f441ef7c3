"""Keys as bytes: their order is that of the values, and different values never meet."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trueline.dataset.state import KeyRange, encode_keys, ranges, splitters_by_rank
from trueline.errors import InputError, SchemaError
from trueline.kernel.key_encoding import KeyEncoding
from trueline.merge import KeyEquality

UTC = dt.UTC


def number(value: float) -> tuple[int, float, int]:
    """A float in total order: −0.0 before 0.0, NaN after everything."""
    if math.isnan(value):
        return (1, 0.0, 0)
    return (0, value, 0 if math.copysign(1, value) < 0 else 1)


def text(value: str) -> bytes:
    return value.encode()


def as_it_is(value):
    return value


KINDS = {
    "int8": (pa.int8(), st.integers(-128, 127), as_it_is),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1), as_it_is),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), as_it_is),
    "uint16": (pa.uint16(), st.integers(0, 2**16 - 1), as_it_is),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), as_it_is),
    "bool": (pa.bool_(), st.booleans(), as_it_is),
    "float32": (pa.float32(), st.floats(width=32), number),
    "float64": (pa.float64(), st.floats(), number),
    "string": (pa.string(), st.text(st.sampled_from("\x00\x01aZé\U0001f600"), max_size=5), text),
    "large_string": (pa.large_string(), st.text(max_size=5), text),
    "string_view": (pa.string_view(), st.text(max_size=20), text),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["", "a", "ab", "b"]), text),
    "binary": (
        pa.binary(),
        st.binary(max_size=4) | st.sampled_from([b"\0", b"\0\xff", b"\0\0", b"\xff"]),
        as_it_is,
    ),
    "fixed_size_binary": (pa.binary(3), st.binary(min_size=3, max_size=3), as_it_is),
    "date32": (pa.date32(), st.dates(), as_it_is),
    "date64": (pa.date64(), st.dates(), as_it_is),
    "time32": (pa.time32("s"), st.times().map(lambda t: t.replace(microsecond=0)), as_it_is),
    "time64": (pa.time64("us"), st.times(), as_it_is),
    "timestamp": (pa.timestamp("us"), st.datetimes(), as_it_is),
    "timestamp_utc": (
        pa.timestamp("ms", "UTC"),
        st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)),
        as_it_is,
    ),
    "decimal128": (pa.decimal128(12, 3), st.decimals(-999999999, 999999999, places=3), as_it_is),
    "decimal256": (pa.decimal256(50, 2), st.decimals(-(10**40), 10**40, places=2), as_it_is),
    "decimal64": (pa.decimal64(9, 2), st.decimals(-9999999, 9999999, places=2), as_it_is),
}


def same_order(keys: list[bytes], values: list) -> None:
    """Bytes compare as the values do, and are equal where those are."""
    pairs = list(zip(keys, values, strict=True))
    for key, value in pairs:
        for other_key, other in pairs:
            assert (key < other_key) == (value < other), (value, other)
            assert (key == other_key) == (value == other), (value, other)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_bytes_compare_as_the_values_of_one_column_do(kind, data):
    type_, values, order = KINDS[kind]
    rows = data.draw(st.lists(values, max_size=8))
    table = pa.table({"k": pa.array(rows, type=type_)})
    same_order(encode_keys(table, ["k"]).to_pylist(), [order(row) for row in rows])


@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=4))
def test_bytes_of_several_columns_compare_column_by_column(data, kinds):
    rows = data.draw(st.lists(st.tuples(*(KINDS[kind][1] for kind in kinds)), max_size=6))
    arrays = [pa.array([row[i] for row in rows], type=KINDS[kind][0]) for i, kind in enumerate(kinds)]
    names = [f"c{i}" for i in range(len(kinds))]
    keys = encode_keys(pa.table(arrays, names=names), names).to_pylist()
    same_order(keys, [tuple(KINDS[k][2](v) for k, v in zip(kinds, row, strict=True)) for row in rows])


@given(rows=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=1, max_size=6))
@example(rows=[("a", "b"), ("ab", ""), ("", "ab")])
@example(rows=[("a\0", ""), ("a", "\0"), ("a", "")])
def test_no_key_is_the_beginning_of_another(rows):
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    keys = dict(zip(encode_keys(table, ["a", "b"]).to_pylist(), rows, strict=True))
    assert set(keys.values()) == set(rows)
    assert [(x, y) for x in keys for y in keys if x != y and y.startswith(x)] == []


def test_every_nan_is_one_key_and_both_zeros_are_two():
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    column = pa.array(np.array([math.nan, odd, -math.nan, 0.0, -0.0, math.inf]))
    keys = encode_keys(pa.table({"x": column}), ["x"]).to_pylist()
    assert keys[0] == keys[1] == keys[2] == max(keys)
    assert keys[4] < keys[3] < keys[5] < keys[0]


def test_keys_are_these_bytes_for_ever():
    table = pa.table(
        {
            "s": ["a\0b"],
            "i": pa.array([-2], pa.int16()),
            "d": [decimal.Decimal("1.50")],
            "t": pa.array([dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC")),
            "f": [-1.0],
            "b": [True],
        }
    )
    keys = encode_keys(table, ["s", "i", "d", "t", "f", "b"]).to_pylist()
    decimal_150 = "80" + "00" * 14 + "96"
    assert (
        keys[0].hex()
        == "6100ff620000" + "7ffe" + decimal_150 + "80000000000003e8" + "400fffffffffffff" + "01"
    )


def test_slices_and_chunks_have_the_keys_of_their_rows():
    rows = pa.table({"s": ["x", "y", "z", "w"], "n": [1.5, 2.5, -1.0, 4.0], "b": [True, False, True, True]})
    names = ["s", "n", "b"]
    whole = encode_keys(rows, names).to_pylist()
    assert encode_keys(rows.slice(1, 2), names).to_pylist() == whole[1:3]
    assert encode_keys(rows.slice(1, 2).to_batches()[0], names).to_pylist() == whole[1:3]
    assert encode_keys(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), names).to_pylist() == whole
    assert encode_keys(rows.slice(0, 0), names).to_pylist() == []


def test_rows_without_a_value_are_refused_and_named():
    table = pa.table({"a": [1, None, 3, 4], "b": ["x", "y", None, "z"]})
    with pytest.raises(InputError) as raised:
        encode_keys(table, ["a", "b"])
    assert (raised.value.code, raised.value.rows, raised.value.count) == ("NullKey", [1, 2], 2)


@pytest.mark.parametrize(
    "column",
    [[[1]], [{"x": 1}], pa.array([1], pa.duration("s")), pa.array([[("a", 1)]], pa.map_("string", "int8"))],
)
def test_types_without_an_order_are_refused(column):
    with pytest.raises(InputError) as raised:
        encode_keys(pa.table({"k": column}), ["k"])
    assert raised.value.code == "BadKeyType"


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(SchemaError, match="missing primary key column 'foo'") as raised:
        encode_keys(pa.table({"k": [1]}), ["k", "foo"])
    assert raised.value.column == "foo"
    with pytest.raises(InputError, match="no columns"):
        encode_keys(pa.table({"k": [1]}), [])


@given(keys=st.lists(st.binary(max_size=3)), cuts=st.sets(st.binary(min_size=1, max_size=3)))
def test_every_key_is_in_one_range(keys, cuts):
    found = ranges(sorted(cuts))
    assert len(found) == len(cuts) + 1
    assert [sum(key in each for each in found) for key in keys] == [1] * len(keys)


@given(keys=st.sets(st.binary(max_size=2), max_size=30), parts=st.integers(1, 8))
def test_splitters_by_rank_cut_keys_into_even_ranges(keys, parts):
    keys = sorted(keys)
    found = ranges(splitters_by_rank(keys, parts))
    counts = [sum(key in each for key in keys) for each in found]
    assert len(found) <= parts
    assert sum(counts) == len(keys)
    if len(keys) >= parts:
        assert len(found) == parts
        assert max(counts) - min(counts) <= 1
    with pytest.raises(InputError):
        splitters_by_rank(keys, 0)


def test_splitters_that_do_not_ascend_are_refused():
    with pytest.raises(InputError, match="ascend"):
        ranges([b"b", b"b"])
    assert ranges([]) == [KeyRange()]


# --- encoding 2: groups, joins, derivation ----------------------------------------------

DURATION = (pa.duration("us"), st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)), as_it_is)
GROUP_KINDS = {**KINDS, "duration": DURATION}


def group_order(kind: str, value: object) -> tuple[int, object]:
    """Null after every value, both zeros one, NaN after every number."""
    if value is None:
        return (1, 0)
    if kind.startswith("float"):
        assert isinstance(value, float)
        return (0, (1, 0.0) if math.isnan(value) else (0, value + 0.0))
    return (0, GROUP_KINDS[kind][2](value))


def group_keys(table: pa.Table, names: list[str]) -> list[bytes]:
    return encode_keys(table, names, encoding=KeyEncoding.GROUP).to_pylist()


def prefix_free(keys: list[bytes]) -> bool:
    """If any key begins with another, so does the one that directly follows that in order."""
    ordered = sorted(set(keys))
    return not any(after.startswith(before) for before, after in pairwise(ordered))


@pytest.mark.parametrize("kind", GROUP_KINDS)
@given(data=st.data())
def test_group_keys_compare_as_values_with_null_last(kind, data):
    type_, values, _ = GROUP_KINDS[kind]
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    keys = group_keys(pa.table({"k": pa.array(rows, type=type_)}), ["k"])
    same_order(keys, [group_order(kind, row) for row in rows])
    assert prefix_free(keys)


@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(GROUP_KINDS)), min_size=2, max_size=4))
def test_group_keys_of_several_columns_compare_column_by_column(data, kinds):
    values = st.tuples(*(st.none() | GROUP_KINDS[kind][1] for kind in kinds))
    rows = data.draw(st.lists(values, max_size=6))
    arrays = [pa.array([row[i] for row in rows], type=GROUP_KINDS[kind][0]) for i, kind in enumerate(kinds)]
    names = [f"c{i}" for i in range(len(kinds))]
    keys = group_keys(pa.table(arrays, names=names), names)
    same_order(keys, [tuple(group_order(k, v) for k, v in zip(kinds, row, strict=True)) for row in rows])
    assert prefix_free(keys)


def test_group_keys_are_these_bytes_for_ever():
    table = pa.table(
        {
            "s": ["a\0b", None],
            "i": pa.array([-2, None], pa.int16()),
            "z": [-0.0, None],
            "f": [math.nan, -1.0],
            "b": [True, None],
            "d": pa.array([1, None], pa.duration("s")),
            "n": pa.nulls(2),
        }
    )
    first, second = group_keys(table, table.column_names)
    zero, nan, minus_one = "8000000000000000", "fff8000000000000", "400fffffffffffff"
    expected = ["016100ff620000", "017ffe", "01" + zero, "01" + nan, "0101", "018000000000000001", "02"]
    assert first.hex() == "".join(expected)
    assert second.hex() == "".join(["02", "02", "02", "01" + minus_one, "02", "02", "02"])


def test_the_group_key_of_no_columns_is_empty_for_every_row():
    assert group_keys(pa.table({"k": [1, 2, None]}), []) == [b"", b"", b""]
    assert group_keys(pa.table({"k": [1]}).slice(0, 0), []) == []


def test_group_keys_of_slices_and_chunks_are_those_of_their_rows():
    rows = pa.table({"s": ["x", None, "z", "w"], "n": [1.5, None, -0.0, 4.0], "b": [None, False, True, None]})
    names = ["n", "b", "s"]
    whole = group_keys(rows, names)
    assert group_keys(rows.slice(1, 2), names) == whole[1:3]
    assert group_keys(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), names) == whole
    assert group_keys(rows.slice(0, 0), names) == []


@pytest.mark.parametrize("column", [[[1]], [{"x": 1}], pa.array([[("a", 1)]], pa.map_("string", "int8"))])
def test_group_keys_of_nested_types_are_refused(column):
    with pytest.raises(InputError) as raised:
        group_keys(pa.table({"k": column}), ["k"])
    assert raised.value.code == "BadKeyType"


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_numeric_equality_of_merge_keys_makes_the_zeros_one_and_changes_nothing_else(kind):
    column = pa.array(np.array([-0.0, 0.0, 1.5, -1.5, math.nan, -math.inf, 6e-8], kind.to_pandas_dtype()))
    table = pa.table({"x": column, "n": list(range(7))})
    bitwise = encode_keys(table, ["x"]).to_pylist()
    numeric = encode_keys(table, ["x"], equality=KeyEquality.NUMERIC).to_pylist()
    assert bitwise[0] != bitwise[1]
    assert numeric == [bitwise[1], *bitwise[1:]]
    others = {equality: encode_keys(table, ["n"], equality=equality) for equality in KeyEquality}
    assert others[KeyEquality.BITWISE].equals(others[KeyEquality.NUMERIC])
