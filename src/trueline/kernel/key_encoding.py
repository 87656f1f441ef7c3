"""Keys as bytes: values of any number of columns in a form whose order is the order of its bytes.

A key is the concatenation of its columns, each of fixed length or terminated,
so that no key is the beginning of another, and different values never give
the same bytes. Comparison is of unsigned bytes; there is no collation.
Encoding 1 is for merge keys, which have no null; encoding 2 is for groups,
joins and derivation. `docs/state.md` has the table of types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError, SchemaError
from trueline.kernel.nan import canonical_bits
from trueline.merge import KeyEquality

KEY: Final = "_key"
# Of the event that set a row; kept beside the columns of the data.
OFFSET: Final = "_offset"
# A row's number in its source, which orders rows of one key.
RANK: Final = "_rank"
_MOST_BYTES: Final = (1 << 31) - 1
_SHOWN: Final = 20
_TERMINATOR: Final = b"\x00\x00"
# What a column of encoding 2 begins with: a null is after every value.
_VALUE: Final = 1
_NULL: Final = 2

Bytes = npt.NDArray[np.uint8]


class KeyEncoding(IntEnum):
    """Which bytes keys have; a checkpoint names it for each file of a state."""

    MERGE = 1
    GROUP = 2


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `first` on, before `end`; None means no bound.

    >>> b"b" in KeyRange(b"a", b"c"), b"c" in KeyRange(b"a", b"c"), b"x" in KeyRange(b"a")
    (True, False, True)
    >>> KeyRange(b"a") & KeyRange(None, b"c"), (KeyRange(b"c") & KeyRange(None, b"b")).is_empty
    (KeyRange(first=b'a', end=b'c'), True)
    """

    first: bytes | None = None
    end: bytes | None = None

    def __contains__(self, key: bytes) -> bool:
        return (self.first is None or self.first <= key) and (self.end is None or key < self.end)

    def __and__(self, other: KeyRange) -> KeyRange:
        firsts = [each.first for each in (self, other) if each.first is not None]
        ends = [each.end for each in (self, other) if each.end is not None]
        return KeyRange(max(firsts, default=None), min(ends, default=None))

    def holds(self, keys: pa.BinaryArray) -> pa.BooleanArray:
        """Say of each key whether it is in it.

        >>> KeyRange(b"a", b"c").holds(pa.array([b"a", b"b", b"c"], pa.binary())).to_pylist()
        [True, True, False]
        """
        found = pa.repeat(True, len(keys))
        if self.first is not None:
            found = pc.and_(found, pc.greater_equal(keys, pa.scalar(self.first, keys.type)))
        if self.end is not None:
            found = pc.and_(found, pc.less(keys, pa.scalar(self.end, keys.type)))
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is no key in it."""
        return self.end is not None and self.end <= (self.first or b"")


def ranges(splitters: Sequence[bytes]) -> list[KeyRange]:
    """Return the ranges between ascending splitters; together they hold every key once.

    >>> ranges([b"m"])
    [KeyRange(first=None, end=b'm'), KeyRange(first=b'm', end=None)]
    """
    if any(a >= b for a, b in pairwise(splitters)):
        raise InputError("splitters do not ascend", remedy="sort them and leave out repeated ones")
    bounds = [None, *splitters, None]
    return [KeyRange(first, end) for first, end in pairwise(bounds)]


def splitters_by_rank(keys: Sequence[bytes], parts: int) -> list[bytes]:
    """Return at most `parts` − 1 of the ascending keys that cut them into ranges of about equal numbers.

    >>> splitters_by_rank([b"a", b"b", b"c", b"d"], 2)
    [b'c']
    """
    if parts < 1:
        raise InputError(f"keys cannot be cut into {parts} ranges", remedy="ask for at least one")
    places = sorted({len(keys) * number // parts for number in range(1, parts)} - {0})
    return [keys[place] for place in places]


@dataclass(frozen=True, slots=True)
class MergeKey:
    """The columns of a merge key, and which of their values are equal.

    >>> zeros = pa.table({"x": [-0.0, 0.0]})
    >>> len(MergeKey(("x",)).encode(zeros).unique())
    2
    >>> len(MergeKey(("x",), KeyEquality.NUMERIC).encode(zeros).unique())
    1
    """

    columns: tuple[str, ...]
    equality: KeyEquality = KeyEquality.BITWISE

    @property
    def encoding(self) -> KeyEncoding:
        """Which bytes its keys have."""
        return KeyEncoding.GROUP if self.equality == KeyEquality.GROUP else KeyEncoding.MERGE

    def encode(self, table: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
        """Return each row's key; rows without one are refused, unless null is a value."""
        return encode_keys(table, self.columns, encoding=self.encoding, equality=self.equality)

    def missing(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Say which rows have no key, because a column of it is null there."""
        if self.encoding == KeyEncoding.GROUP:
            return np.zeros(table.num_rows, dtype=bool)
        return rows_without_key(table, self.columns)

    def encode_ranked(self, table: pa.Table, rank: str) -> pa.BinaryArray:
        """Return each row's key with the eight bytes of a rank behind it, which is never null.

        >>> rows = pa.table({"s": ["a", None], "rank": [0, 1]})
        >>> [len(key) for key in MergeKey(("s",), KeyEquality.GROUP).encode_ranked(rows, "rank").to_pylist()]
        [12, 9]
        """
        if self.encoding == KeyEncoding.MERGE:
            return MergeKey((*self.columns, rank), self.equality).encode(table)
        # Where null is a value, each value says that it is there; a rank does not.
        return pc.binary_join_element_wise(self.encode(table), encode_keys(table, [rank]), b"")


def encode_keys(
    table: pa.Table | pa.RecordBatch,
    columns: Sequence[str],
    *,
    encoding: KeyEncoding = KeyEncoding.MERGE,
    equality: KeyEquality = KeyEquality.BITWISE,
) -> pa.BinaryArray:
    r"""Return each row's key: order-preserving and injective for the types of the columns.

    Of encoding 1 a null is refused with the rows that have it, and -0.0 and 0.0
    are two keys unless `equality` makes them one. Of encoding 2 a null is a value,
    after all others, zeros are one, and the key of no columns is empty. All NaN
    are one, after every number.

    >>> keys = encode_keys(pa.table({"n": [-1, 0, 258]}), ["n"])
    >>> [key.hex() for key in keys.to_pylist()]
    ['7fffffffffffffff', '8000000000000000', '8000000000000102']
    >>> encode_keys(pa.table({"s": ["a", "ab"]}), ["s"]).to_pylist()
    [b'a\x00\x00', b'ab\x00\x00']
    >>> encode_keys(pa.table({"s": ["a", None]}), ["s"], encoding=KeyEncoding.GROUP).to_pylist()
    [b'\x01a\x00\x00', b'\x02']
    """
    arrays = [_plain(table, name) for name in columns]
    one_zero = equality == KeyEquality.NUMERIC or encoding == KeyEncoding.GROUP
    if encoding == KeyEncoding.GROUP:
        if not arrays:
            return fixed_keys(np.empty((table.num_rows, 0), np.uint8))
        encoded = [
            _with_null_byte(array, _encoded(_as_count(array), name, one_zero))
            for array, name in zip(arrays, columns, strict=True)
        ]
    else:
        if not arrays:
            raise InputError("the key has no columns", remedy="name at least one column")
        missing = null_rows(arrays)
        if missing.any():
            raise null_key(columns, np.flatnonzero(missing))
        encoded = [_encoded(array, name, one_zero) for array, name in zip(arrays, columns, strict=True)]
    parts = _gathered(encoded)
    _fits(sum(part.nbytes for part in parts), table.num_rows)
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def null_rows(arrays: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Say which rows have a null in any of the columns."""
    found = np.zeros(len(arrays[0]), dtype=bool)
    for array in arrays:
        if array.null_count:
            found |= array.is_null().to_numpy(zero_copy_only=False)
    return found


def rows_without_key(table: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Say which rows have no key, because a column of it is null there."""
    return null_rows([_plain(table, name) for name in columns])


def null_key(
    columns: Sequence[str], rows: Sequence[int] | npt.NDArray[np.integer[Any]], count: int | None = None
) -> InputError:
    """The error of rows without a key; `rows` are the first of them if there are more."""
    shown = [int(row) for row in rows[:_SHOWN]]
    count = len(rows) if count is None else count
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    whole = " and ".join(f"`{name.replace('`', '``')}` is not null" for name in columns)
    return InputError(
        f"{count:,} rows have a null in the key ({', '.join(columns)}): rows {shown}{more}",
        remedy=f"fix these rows, or leave them out: view.filter({whole!r}), "
        f"or for files append(path, steps=[validate({whole!r}, drop=True)])",
        code="NullKey",
        rows=shown,
        count=count,
        condition=whole,
    )


def _plain(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as one array of a type that has an encoding."""
    if name not in table.schema.names:
        raise SchemaError(
            f"missing primary key column {name!r}: the columns are {', '.join(table.schema.names)}",
            remedy="name a column that is there",
            code="MissingKeyColumn",
            column=name,
        )
    column = table.column(name)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        raise InputError(
            f"column {name!r} holds more than 2 GiB", remedy="merge fewer rows at a time", column=name
        )
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string()).cast(pa.binary())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array


# --- one column ---------------------------------------------------------------


def _as_count(array: pa.Array) -> pa.Array:
    """Return durations as whole numbers of their unit, and a column without a type as one of nulls."""
    if pa.types.is_duration(array.type):
        return array.view(pa.int64())
    return array.cast(pa.bool_()) if pa.types.is_null(array.type) else array


def _with_null_byte(array: pa.Array, encoded: pa.Array | Bytes) -> pa.Array | Bytes:
    """Put before each value that it is there; a null is one byte and nothing else."""
    if isinstance(encoded, pa.Array):
        found = pc.binary_join_element_wise(bytes([_VALUE]), encoded, b"")
        return pc.fill_null(found, bytes([_NULL])) if array.null_count else found
    rows, width = encoded.shape
    marked = np.empty((rows, width + 1), np.uint8)
    marked[:, 0], marked[:, 1:] = _VALUE, encoded
    if not array.null_count:
        return marked
    null = np.asarray(array.is_null())
    marked[null, 0] = _NULL
    there = np.ones_like(marked, dtype=bool)
    there[null, 1:] = False
    ends = np.concatenate([[0], np.cumsum(np.where(null, 1, width + 1))])
    _fits(int(ends[-1]), rows)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(marked[there])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _encoded(array: pa.Array, name: str, one_zero: bool) -> pa.Array | Bytes:
    """Return terminated bytes as an array, values of fixed length as a matrix; any bytes for null."""
    kind = array.type
    if pa.types.is_binary(kind):
        if pc.any(pc.match_substring(array, b"\x00")).as_py():
            array = pc.replace_substring(array, b"\x00", b"\x00\xff")
        return pc.binary_join_element_wise(array, _TERMINATOR, b"")
    if pa.types.is_boolean(kind):
        return np.asarray(array.cast(pa.uint8()).fill_null(0)).reshape(-1, 1)
    if pa.types.is_floating(kind):
        return _floats(array, one_zero)
    if pa.types.is_fixed_size_binary(kind):
        return _raw(array, kind.byte_width).copy()
    if pa.types.is_decimal(kind) or _is_counted(kind):
        width = kind.bit_width // 8
        signed = not pa.types.is_unsigned_integer(kind)
        found = _raw(array, width)[:, ::-1].copy()
        if signed:
            found[:, 0] ^= 0x80
        return found
    raise InputError(
        f"column {name!r} is of type {kind}, which cannot be a key",
        remedy="use text, numbers, dates, times, booleans or binary",
        code="BadKeyType",
        column=name,
    )


def _is_counted(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of something."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    )


def _raw(array: pa.Array, width: int) -> Bytes:
    """The bytes of fixed-length values as they lie in memory, one row each."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros((len(array), width), dtype=np.uint8)
    found = np.frombuffer(buffer, dtype=np.uint8, count=len(array) * width, offset=array.offset * width)
    return found.reshape(-1, width)


def _floats(array: pa.Array, one_zero: bool) -> Bytes:
    """Total order: negative numbers have all bits turned, others the sign; NaN becomes the quiet one."""
    width = array.type.bit_width // 8
    bits = canonical_bits(array, one_zero=one_zero)
    top = bits.dtype.type(1 << (8 * width - 1))
    ordered = np.where(bits & top, ~bits, bits | top)
    return ordered.astype(f">u{width}").view(np.uint8).reshape(-1, width)


def _gathered(parts: Sequence[pa.Array | Bytes]) -> list[pa.Array]:
    """Turn neighbouring matrices into one array of bytes each."""
    found: list[pa.Array] = []
    waiting: list[Bytes] = []
    for part in [*parts, None]:
        if isinstance(part, np.ndarray):
            waiting.append(part)
            continue
        if waiting:
            found.append(fixed_keys(waiting[0] if len(waiting) == 1 else np.hstack(waiting)))
            waiting = []
        if part is not None:
            found.append(part)
    return found


def fixed_keys(matrix: Bytes) -> pa.BinaryArray:
    """Make an array of keys of a matrix of bytes, one row each."""
    rows, width = matrix.shape
    _fits(rows * width, rows)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _fits(size: int, rows: int) -> None:
    if size > _MOST_BYTES:
        raise InputError(
            f"the keys of {rows:,} rows are more than 2 GiB", remedy="merge fewer rows at a time"
        )
