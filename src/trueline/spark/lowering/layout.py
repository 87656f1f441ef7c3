"""Rows of a view as columns that Spark has, and back: nothing is lost on the way (exchange:E6).

A column of a type that Spark lacks travels as one it has: unsigned numbers in the next wider type, uint64 and
times by their bits, decimals beyond 38 digits as bytes in the order of their values, vectors as size, places
and values. Floats stay floats: shuffles, sorts and joins keep every bit of a NaN (only Spark's Parquet writer
does not, so nothing here is written by it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import NotPortable
from trueline.identity import RowIds
from trueline.kernel.chunk import BYTES_OF_A_CHUNK, ROWS_OF_A_CHUNK, Chunk
from trueline.kernel.vectors import apart, is_sparse, together
from trueline.spark.types import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Change: TypeAlias = Callable[[pa.Array], pa.Array]
IDS: Final = ("il", "ih")
_SIGN: Final = np.uint8(0x80)


@dataclass(frozen=True)
class Wire:
    """The Arrow type under which values of another one travel, and the ways there and back."""

    kind: pa.DataType
    encode: Change
    decode: Change


@dataclass(frozen=True)
class OrderColumn:
    """A column that rows are ordered by: small first, unless it falls; null is last.

    `below` is what whole numbers from 0 on are known to be below; 0 where nothing is known.
    """

    kind: pa.DataType
    descending: bool = False
    below: int = 0


@dataclass(frozen=True)
class Layout:
    """What the columns of a frame are: values of a view (`c0` …), row ids (`il`, `ih`), order (`o0` …)."""

    types: tuple[t.Type, ...]
    ids: bool
    order: tuple[OrderColumn, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of values."""
        return tuple(f"c{number}" for number in range(len(self.types)))

    @property
    def order_names(self) -> tuple[str, ...]:
        """The names of the columns of the order."""
        return tuple(f"o{number}" for number in range(len(self.order)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return (*self.columns, *(IDS if self.ids else ()), *self.order_names)

    @cached_property
    def wires(self) -> tuple[Wire, ...]:
        """How the values travel."""
        return tuple(map(wire, self.types))

    @cached_property
    def spark_schema(self) -> StructType:
        """The columns as Spark names them."""
        kinds = [
            *(each.kind for each in self.wires),
            *([pa.int64()] * 2 if self.ids else ()),
            *(each.kind for each in self.order),
        ]
        return to_spark_schema(pa.schema(list(zip(self.names, kinds, strict=True))))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns as Spark gives them to Python and takes them from there."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.spark_schema, timezone="UTC")

    # --- rows in tasks ----------------------------------------------------------------------

    def encode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return rows as Spark takes them; the arrays are values, then what orders them."""
        arrays = [each.encode(array) for each, array in zip(self.wires, chunk.arrays, strict=False)]
        if self.ids:
            assert chunk.ids is not None
            arrays += [pa.array(words).view(pa.int64()) for words in (chunk.ids.low, chunk.ids.high)]
        arrays += chunk.arrays[len(self.types) :]
        target = self.arrow_schema
        cast = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, schema=target)

    def decode(self, batch: pa.RecordBatch) -> Chunk:
        """Return rows that came from Spark."""
        count = len(self.types)
        arrays = [each.decode(array) for each, array in zip(self.wires, batch.columns, strict=False)]
        ids = None
        if self.ids:
            low, high = (np.asarray(batch.column(count + at)).view(np.uint64) for at in (0, 1))
            ids = RowIds(low, high)
        order = batch.columns[count + (2 if self.ids else 0) :]
        return Chunk(batch.num_rows, (*arrays, *order), ids)

    def chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        """Return the rows of a task in chunks of the usual size, however Spark cuts them."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            if held and size + batch.nbytes > BYTES_OF_A_CHUNK:
                yield self.decode(_as_one(held))
                held, rows, size = [], 0, 0
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= ROWS_OF_A_CHUNK:
                yield self.decode(_as_one(held))
                held, rows, size = [], 0, 0
        if held:
            yield self.decode(_as_one(held))


def _as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # One batch would be copied too.
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


# --- how values travel ----------------------------------------------------------------------


def wire(kind: t.Type) -> Wire:
    """Say how values of a type travel."""
    if isinstance(kind, t.Vector):
        return _vector(kind)
    return _of_arrow(kind.arrow, str(kind))


def _as_is(array: pa.Array) -> pa.Array:
    return array


def _vector(kind: t.Vector) -> Wire:
    # One encoding for all rows, in which those that are dense stay so.
    inside = _of_arrow(kind.sparse, str(kind))

    def encode(array: pa.Array) -> pa.Array:
        return inside.encode(array if is_sparse(array) else together(apart(array), kind))

    return Wire(inside.kind, encode, inside.decode)


def _of_arrow(kind: pa.DataType, name: str) -> Wire:
    is_ = pa.types
    if kind in _PLAIN or (is_.is_decimal128(kind) and 0 <= kind.scale <= kind.precision):
        return Wire(kind, _as_is, _as_is)
    if kind in _WIDER:
        wider = _WIDER[kind]
        return Wire(wider, lambda array: array.cast(wider), lambda array: array.cast(kind))
    if kind in _BITS or is_.is_temporal(kind):
        bits = _BITS.get(kind) or (pa.int32() if kind.bit_width == 32 else pa.int64())
        return Wire(bits, lambda array: array.view(bits), lambda array: array.view(kind))
    if is_.is_decimal(kind):
        return Wire(pa.binary(), _ordered_bytes, lambda array: _decimals(array, kind))
    if is_.is_fixed_size_binary(kind):
        return Wire(pa.binary(), lambda array: array.cast(pa.binary()), lambda array: array.cast(kind))
    if is_.is_struct(kind):
        return _struct(kind, name)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return _list(kind, name)
    if is_.is_map(kind):
        entries = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        inside = _of_arrow(entries, name)
        return Wire(
            inside.kind,
            lambda array: inside.encode(array.cast(entries)),
            lambda array: inside.decode(array).cast(kind),
        )
    raise NotPortable(
        f"values of the type {name} cannot be moved by Spark",
        remedy="leave the column out, or convert it before rows are sorted, joined or grouped",
        type=name,
    )


def _struct(kind: pa.DataType, name: str) -> Wire:
    parts = [_of_arrow(field.type, f"{name}.{field.name}") for field in kind]
    target = pa.struct([pa.field(f"f{at}", each.kind) for at, each in enumerate(parts)])

    def encode(array: pa.Array) -> pa.Array:
        found = [part.encode(array.field(at)) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(found, fields=list(target), mask=array.is_null())

    def decode(array: pa.Array) -> pa.Array:
        found = [part.decode(array.field(at)) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(found, fields=list(kind), mask=array.is_null())

    return Wire(target, encode, decode)


def _list(kind: pa.DataType, name: str) -> Wire:
    part = _of_arrow(kind.value_type, f"{name}[]")
    target = pa.list_(pa.field("element", part.kind))
    plain = pa.list_(kind.value_field)

    def encode(array: pa.Array) -> pa.Array:
        return _with_values(array.cast(plain), part.encode, target)

    def decode(array: pa.Array) -> pa.Array:
        found = _with_values(array, part.decode, plain)
        return found if found.type == kind else found.cast(kind)

    return Wire(target, encode, decode)


def _with_values(array: pa.Array, change: Change, kind: pa.DataType) -> pa.Array:
    """Return lists whose values are others; a null has none."""
    lengths = np.asarray(array.value_lengths().fill_null(0))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), change(array.flatten()), type=kind, mask=mask)


def _ordered_bytes(array: pa.Array) -> pa.Array:
    """Return large decimals as bytes that are ordered as the numbers are: high byte first, sign turned."""
    width = array.type.bit_width // 8
    raw = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, width)[array.offset :][: len(array)]
    turned = raw[:, ::-1].copy()
    turned[:, 0] ^= _SIGN
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(array), [None, pa.py_buffer(turned.tobytes())]
    )
    return pa.array(fixed.to_pylist(), pa.binary(), mask=np.asarray(array.is_null()))


def _decimals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    width = kind.bit_width // 8
    filled = array.fill_null(bytes(width)).cast(pa.binary(width))
    raw = np.frombuffer(filled.buffers()[1], np.uint8).reshape(-1, width)[filled.offset :][: len(filled)]
    turned = raw.copy()
    turned[:, 0] ^= _SIGN
    valid = array.is_valid()
    found = pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(turned[:, ::-1].tobytes())])
    return pc.if_else(valid, found, pa.scalar(None, kind)) if array.null_count else found


_PLAIN: Final = frozenset(
    (
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
    )
)
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
_BITS: Final = {pa.uint64(): pa.int64(), pa.float16(): pa.int16()}
