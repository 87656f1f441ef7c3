"""Tables of every shape that has a logical hash, for hypothesis."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

ZONES = st.sampled_from([None, "UTC", "Europe/Berlin", "+02:00"])
UNITS = st.sampled_from(["s", "ms", "us", "ns"])


def _decimals(make, limit):
    return st.tuples(st.integers(1, limit), st.integers(0, 5)).map(lambda p: make(p[0], min(p[0], p[1])))


LEAVES = st.one_of(
    st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.bool_(), pa.null()]),
    st.sampled_from([pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]),
    st.sampled_from([pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64()]),
    st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(0), pa.binary(3)]),
    st.sampled_from([pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]),
    st.builds(pa.timestamp, UNITS, ZONES),
    _decimals(pa.decimal32, 9),
    _decimals(pa.decimal64, 18),
    _decimals(pa.decimal128, 38),
    _decimals(pa.decimal256, 76),
)
LISTS = st.recursive(
    LEAVES,
    lambda items: st.one_of(
        items.map(pa.list_), items.map(pa.large_list), st.builds(pa.list_, items, st.integers(0, 3))
    ),
    max_leaves=3,
)
TYPES = st.recursive(
    LISTS,
    lambda inner: st.lists(inner, max_size=3).map(
        lambda kinds: pa.struct([pa.field(f"f{i}", kind) for i, kind in enumerate(kinds)])
    ),
    max_leaves=4,
)


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    """Return plain values of a type that `pa.array` takes; a struct is never null, all else may be."""
    types = pa.types
    if types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if types.is_fixed_size_list(kind):
        items = values_of(kind.value_type)
        return st.none() | st.lists(items, min_size=kind.list_size, max_size=kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=4)
    return st.none() | _plain_values(kind)


def _plain_values(kind: pa.DataType) -> st.SearchStrategy:
    types = pa.types
    text = str(kind)
    if types.is_null(kind):
        return st.none()
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if "binary" in text:
        return st.binary(max_size=20)
    if "string" in text:
        return st.text(max_size=20)
    if types.is_decimal(kind):
        limit = 10**kind.precision - 1
        return st.integers(-limit, limit).map(lambda n: Decimal((n < 0, _digits(n), -kind.scale)))
    if types.is_floating(kind):
        width = kind.bit_width
        numbers = st.floats(width=width, allow_nan=False) | st.just(float("nan"))
        return numbers.map(np.float16) if width == 16 else numbers
    if types.is_integer(kind):
        low = -(2 ** (kind.bit_width - 1)) if types.is_signed_integer(kind) else 0
        return st.integers(low, low + 2**kind.bit_width - 1)
    if types.is_date64(kind):
        return st.integers(-1000, 20_000).map(lambda day: day * 86_400_000)
    if types.is_time(kind):
        return st.integers(0, 86_399)
    return st.integers(-1000, 2**31 - 1)


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


@st.composite
def arrays(draw: st.DrawFn, kind: pa.DataType, count: int) -> pa.ChunkedArray:
    """Draw values of a type as a column whose chunks are slices of something larger."""
    chunks = []
    while count:
        size = draw(st.integers(1, count))
        before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
        rows = before + size + after
        values = draw(st.lists(values_of(kind), min_size=rows, max_size=rows))
        chunks.append(_array(values, kind).slice(before, size))
        count -= size
    return pa.chunked_array(chunks, kind)


def _array(values: list, kind: pa.DataType) -> pa.Array:
    if pa.types.is_date64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table; names may repeat and may be empty."""
    kinds = draw(st.lists(TYPES, max_size=4))
    count = draw(st.integers(0, 12))
    names = [draw(st.sampled_from(["a", "b", "ä", ""]) | st.text(max_size=3)) for _ in kinds]
    columns = [draw(arrays(kind, count)) for kind in kinds]
    fields = [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
