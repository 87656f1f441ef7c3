"""Values travel to Spark and back without loss, whatever their type and wherever their array begins."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.lowering.nasty import _bits
from trueline import types as t
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk
from trueline.kernel.vectors import dense
from trueline.spark.lowering.layout import Layout, OrderColumn


def whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(1 << (bits - 1)) if signed else 0
    high = 1 << (bits - 1 if signed else bits)
    return st.one_of(st.integers(low, high - 1), st.sampled_from([low, 0, high - 1]))


def below(count: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, count - 1), st.sampled_from([0, count - 1]))


def decimals(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    numbers = st.one_of(st.integers(-most, most), st.sampled_from([-most, 0, most]))
    return numbers.map(lambda number: Decimal(f"{number}e-{places}"))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
BYTES = st.binary(max_size=5)
# By type, what arrays of another type are made of whose bits are theirs, and its values.
VIEWED = {
    t.of(pa.float16()): (pa.uint16(), whole(16, signed=False)),
    t.float32: (pa.uint32(), whole(32, signed=False)),
    t.float64: (pa.uint64(), whole(64, signed=False)),
    t.of(pa.date32()): (pa.int32(), whole(32)),
    t.of(pa.time32("s")): (pa.int32(), below(86_400)),
    t.of(pa.time32("ms")): (pa.int32(), below(86_400_000)),
    t.of(pa.time64("us")): (pa.int64(), below(86_400_000_000)),
    t.of(pa.time64("ns")): (pa.int64(), below(86_400_000_000_000)),
} | {
    t.of(kind(unit)): (pa.int64(), whole(64))
    for unit in ("s", "ms", "us", "ns")
    for kind in (pa.timestamp, pa.duration, lambda unit: pa.timestamp(unit, "UTC"))
}
PLAIN = {
    t.boolean: st.booleans(),
    **{t.of(getattr(pa, f"int{bits}")()): whole(bits) for bits in (8, 16, 32, 64)},
    **{t.of(getattr(pa, f"uint{bits}")()): whole(bits, signed=False) for bits in (8, 16, 32, 64)},
    t.category(3): below(3),
    t.category(1 << 32): below(1 << 32),
    **{t.of(kind): TEXTS for kind in (pa.string(), pa.large_string())},
    **{t.of(kind): BYTES for kind in (pa.binary(), pa.large_binary())},
    t.of(pa.binary(3)): st.binary(min_size=3, max_size=3),
    **{t.of(pa.decimal128(*each)): decimals(*each) for each in ((9, 9), (18, 0), (38, 10))},
    **{t.of(pa.decimal256(*each)): decimals(*each) for each in ((38, 10), (50, 2), (76, 0))},
    t.of(pa.struct([("a", pa.uint64()), ("b", pa.list_(pa.duration("ns")))])): st.fixed_dictionaries(
        {"a": st.none() | whole(64, signed=False), "b": st.none() | st.just([]) | st.just([None, 7])}
    ),
    t.vector(t.int64): st.lists(whole(64), max_size=3),
    t.vector(t.uint64, 2): st.lists(whole(64, signed=False), min_size=2, max_size=2),
    t.vector(t.category(5)): st.lists(below(5), max_size=3),
    t.vector(t.text): st.lists(TEXTS, max_size=3),
}
KINDS = {str(kind): kind for kind in (*VIEWED, *PLAIN)}


@st.composite
def arrays(draw: st.DrawFn, kind: t.Type) -> pa.Array:
    """Return an array with nulls, perhaps one that begins within its buffers."""
    source, values = VIEWED[kind] if kind in VIEWED else (kind.arrow, PLAIN[kind])
    cells = draw(st.lists(st.none() | values, max_size=12))
    made = pa.array(cells, source)
    first = draw(st.integers(0, len(cells)))
    made = made if made.type == kind.arrow else made.view(kind.arrow)
    return made.slice(first, draw(st.integers(0, len(cells) - first)))


def travelled(layout: Layout, chunk: Chunk) -> Chunk:
    """Return rows as they are after they were written and read as Arrow, as between Spark and its workers."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, layout.arrow_schema) as stream:
        stream.write_batch(layout.encode(chunk))
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        return layout.decode(stream.read_next_batch())


def cells_of(array: pa.Array, kind: t.Type) -> pa.Array:
    found = dense(array, kind) if isinstance(kind, t.Vector) else array
    if found.type == pa.float16():
        return found.view(pa.int16())
    return _bits(found)


@pytest.mark.contract("exchange:E6")
@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_values_come_back_as_they_were(name, data):
    kind = KINDS[name]
    array = data.draw(arrays(kind))
    ids = RowIds.range(1 << 63, len(array))
    places = pa.array(np.arange(len(array)))
    layout = Layout((kind,), True, (OrderColumn(pa.int64()),))
    found = travelled(layout, Chunk(len(array), (array, places), ids))
    # Vectors have one encoding on the way, in which the dense ones stay so.
    assert found.arrays[0].type == (kind.sparse if isinstance(kind, t.Vector) else array.type)
    assert cells_of(found.arrays[0], kind).equals(cells_of(array, kind))
    assert found.ids is not None
    assert found.ids.equals(ids)
    assert found.arrays[1].equals(places)


@pytest.mark.contract("exchange:E6")
def test_sparse_vectors_come_back_as_they_were():
    kind = t.vector(t.float64)
    nan = np.array([0x7FF8000000000123], np.uint64).view(np.float64)[0]
    rows = [
        {"size": 4, "indices": [0, 3], "values": [nan, -0.0]},
        None,
        {"size": 4, "indices": [], "values": []},
    ]
    names = [field.name for field in kind.sparse]
    cells = [None if row is None else dict(zip(names, row.values(), strict=True)) for row in rows]
    array = pa.array([None, *cells], kind.sparse).slice(1)
    found = travelled(Layout((kind,), False, ()), Chunk(len(array), (array,)))
    assert cells_of(found.arrays[0], kind).equals(cells_of(array, kind))
