"""The logical hash `arrow0-sha3-256`: what a table says, whatever file it is stored in.

It depends on column names, order, nesting, types and values, and on the order
of rows. It does not depend on nullability flags, metadata, encodings, how
rows are split into batches, or whether text is Utf8, LargeUtf8 or Utf8View.
Bytes are hashed as they are: whoever writes a slice gives NaN one bit pattern first; -0.0 stays.

Each leaf column has its own sha3-256, over its type and then one byte form
per value; `elements` builds those forms for a whole array at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha3_256
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from trueline.errors import InputError, NotPortable, SchemaError
from trueline.identity.elements import Encoder, elements_of, fixed_width, plain_type
from trueline.identity.multihash import Multihash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Path: TypeAlias = tuple[int, ...]

# Elements are built for about this many bytes of a column at once, so that they are still in the
# second-level cache when they are hashed.
_PIECE_BYTES: Final = 1 << 18
_PIECE_ROWS: Final = 256

_UNITS: Final = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def logical_hash(data: Any) -> Multihash:
    """Hash a table, a record batch, a reader, or anything with `__arrow_c_stream__`.

    Raises `NotPortable` for shapes that other readers would hash differently or not at all.

    >>> import pyarrow as pa
    >>> offset, population = pa.array([1, 0]), pa.array([200, 100], pa.uint64())
    >>> logical_hash(pa.table({"offset": offset, "city": ["B", "A"], "population": population}))
    'f9680c001200b3483eecc3d5c6b50ee6b8cba11b51c08f89ea1f53d3a334c743199f5fe656e'
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        hasher = LogicalHasher(data.schema)
        hasher.update(data)
        return hasher.finish()
    if not isinstance(data, pa.RecordBatchReader):
        if not hasattr(data, "__arrow_c_stream__"):
            raise InputError(
                f"cannot take the logical hash of a {type(data).__name__}",
                remedy="give a pyarrow Table, RecordBatch or RecordBatchReader",
                code="NotArrow",
            )
        data = pa.RecordBatchReader.from_stream(data)
    hasher = LogicalHasher(data.schema)
    for batch in data:
        hasher.update(batch)
    return hasher.finish()


class LogicalHasher:
    """Takes the logical hash of rows that arrive in batches; the split does not matter.

    A schema that cannot be hashed portably is refused here, before any data.

    >>> import pyarrow as pa
    >>> table = pa.table({"city": ["B", "A"]})
    >>> hasher = LogicalHasher(table.schema)
    >>> for batch in table.to_batches(max_chunksize=1):
    ...     hasher.update(batch)
    >>> hasher.finish() == logical_hash(table)
    True
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._plan = _plan(schema)
        self._columns = [sha3_256(leaf.prefix) for leaf in self._plan.leaves]

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; a batch that is refused changes nothing."""
        plan = self._plan_for(batch.schema)
        columns = batch.columns
        for struct in plan.structs:
            for array in _descend(columns, struct.path):
                if array.null_count:
                    raise _null_structs(struct.name, array.null_count)
        for leaf, hasher in zip(plan.leaves, self._columns, strict=True):
            for array in _descend(columns, leaf.path):
                _hash_values(array, leaf, hasher)

    def finish(self) -> Multihash:
        """Return the hash of all rows so far."""
        whole = sha3_256(self._plan.names)
        for column in self._columns:
            whole.update(column.digest())
        return Multihash.arrow0_sha3_256(whole.digest())

    def _plan_for(self, schema: pa.Schema) -> _Plan:
        """Return how to read a batch: any layout of the same names and logical types will do."""
        if schema is self._schema or schema.equals(self._schema):
            return self._plan
        plan = _plan(schema)
        if plan.signature != self._plan.signature:
            raise SchemaError(
                f"a batch of {_outline(schema)} cannot be hashed with rows of {_outline(self._schema)}",
                remedy="cast the batch to the schema the hasher was made for",
            )
        return plan


@dataclass(frozen=True, slots=True)
class _Struct:
    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: Path
    prefix: bytes
    width: int
    encode: Encoder


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a schema contributes to the hash, and how to reach and encode its leaf columns."""

    names: bytes
    leaves: tuple[_Leaf, ...]
    structs: tuple[_Struct, ...]

    @property
    def signature(self) -> tuple[bytes, tuple[bytes, ...]]:
        return self.names, tuple(leaf.prefix for leaf in self.leaves)


@lru_cache(maxsize=64)  # 35 µs for nine columns, of the 300 µs that 1,000 rows of them take
def _plan(schema: pa.Schema) -> _Plan:
    names = bytearray()
    leaves: list[_Leaf] = []
    structs: list[_Struct] = []

    def walk(fields: Iterable[pa.Field], path: Path, parent: str) -> None:
        for index, field in enumerate(fields):
            name = field.name.encode()
            names.extend(_u64(len(name)) + name + _u64(len(path)))
            full, here, kind = parent + field.name, (*path, index), plain_type(field.type)
            if pa.types.is_struct(kind):
                structs.append(_Struct(here, full))
                walk(kind, here, full + ".")
            else:
                prefix = _type(kind, full)
                leaves.append(_Leaf(here, prefix, fixed_width(kind), elements_of(field.type)))

    walk(schema, (), "")
    return _Plan(bytes(names), tuple(leaves), tuple(structs))


def _descend(columns: list[Any], path: Path) -> Iterator[pa.Array]:
    """Yield the arrays of one column, chunk by chunk, as deep in its structs as the path says."""
    column = columns[path[0]]
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        array = chunk
        for index in path[1:]:
            array = (array.storage if isinstance(array, pa.ExtensionArray) else array).field(index)
        yield array


def _hash_values(array: pa.Array, leaf: _Leaf, hasher: Any) -> None:
    count = len(array)
    if not count:
        return
    if leaf.width and not array.null_count:
        hasher.update(array.buffers()[1].slice(array.offset * leaf.width, count * leaf.width))
        return
    rows = max(_PIECE_ROWS, count * _PIECE_BYTES // (array.nbytes + 1))
    for start in range(0, count, rows):
        piece = array if rows >= count else array.slice(start, rows)
        hasher.update(leaf.encode(piece).stream())


def _type(kind: pa.DataType, column: str) -> bytes:
    """Return the bytes a leaf's type adds to its hash, or refuse the type."""
    kind = plain_type(kind)
    types = pa.types
    if types.is_integer(kind):
        return _u16(1) + bytes([types.is_signed_integer(kind)]) + _u64(kind.bit_width)
    if types.is_floating(kind):
        return _u16(2) + _u64(kind.bit_width)
    if _is_text(kind):
        return _u16(4)
    if types.is_timestamp(kind):
        zone = (kind.tz or "").encode()
        return _u16(9) + _u16(_UNITS[kind.unit]) + (_u64(len(zone)) + zone if zone else b"\0")
    if types.is_boolean(kind):
        return _u16(5)
    if types.is_decimal(kind):
        return _u16(6) + _u64(kind.bit_width) + _u64(kind.precision) + _u64(kind.scale % (1 << 64))
    if types.is_date(kind):
        return _u16(7) + _u64(kind.bit_width) + _u16(types.is_date64(kind))
    if types.is_time(kind):
        return _u16(8) + _u64(kind.bit_width) + _u16(_UNITS[kind.unit])
    if _is_bytes(kind):
        return _u16(3)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _u16(11) + _type(kind.value_type, column + "[]")
    if types.is_null(kind):
        return _u16(0)
    raise _not_portable(kind, column)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    varying = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(varying or types.is_fixed_size_binary(kind))


def _not_portable(kind: pa.DataType, column: str) -> NotPortable:
    types = pa.types
    why = "the logical hash is not defined for this type"
    if types.is_struct(kind):
        why = "a struct inside a list has no logical hash"
        remedy = "store one list column per field, or one row per item"
    elif types.is_dictionary(kind):
        why = "a dictionary is an encoding, which the logical hash does not see"
        remedy = f"cast the column to {kind.value_type}"
    elif types.is_run_end_encoded(kind):
        why = "run ends are an encoding, which the logical hash does not see"
        remedy = "decode the column with pyarrow.compute.run_end_decode"
    elif types.is_duration(kind):
        remedy = f"store it as int64 and say in the column's name that it counts {kind.unit}"
    elif types.is_interval(kind):
        remedy = "store months, days and nanoseconds as integer columns"
    elif types.is_map(kind):
        remedy = "store the keys and the values as two list columns"
    elif types.is_union(kind):
        remedy = "store one nullable column per alternative"
    elif types.is_list_view(kind) or types.is_large_list_view(kind):
        remedy = "cast the column to list"
    else:
        remedy = "cast the column to a type that Parquet can store"
    return NotPortable(f"column {column!r} is {kind}: {why}", remedy=remedy, column=column, type=str(kind))


def _null_structs(column: str, count: int) -> NotPortable:
    return NotPortable(
        f"column {column!r} has {count} null structs: readers disagree on whether their fields are null too",
        remedy="keep structs free of nulls: make the fields null instead, or give them columns of their own",
        column=column,
        type="struct",
    )


def _outline(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _u16(value: int) -> bytes:
    return int(value).to_bytes(2, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")
