"""What rows are, whatever their order and however they are cut: the digest of what is sent with a key.

A frame that is computed again has the same rows, but a shuffle may give them in another order. So each
row is hashed to 64 bits and the hashes are added up. This tells accidents apart, not forgeries: the
sender of a key decides what is sent with it. It is stored, so it never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as is_

from trueline.kernel.tasks import Tasks
from trueline.kernel.value_hash import GOLDEN, Words, mix

_MASK: Final = (1 << 64) - 1
# What a digest begins with.
ROWS: Final = "rows:"
# Odd, so that it has an inverse modulo 2^64.
_BASE: Final = int(GOLDEN)
_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_MISSING: Final = np.uint64(0x6A09E667F3BCC909)
_ONE: Final = np.uint64(1)
# Elements of lists and bytes of text that are worked on together: eight bytes each, four times.
_ELEMENTS: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How many rows, and the sum of their hashes.

    >>> some, more = pa.table({"x": [1, 2]}), pa.table({"x": [3]})
    >>> whole = Fingerprint.of(pa.table({"x": [3, 1, 2]}), ["x"])
    >>> Fingerprint.of(some, ["x"]) + Fingerprint.of(more, ["x"]) == whole
    True
    >>> str(whole)
    'rows:3:a58f16e8bc52f7ff'
    """

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, table: pa.Table, columns: Sequence[str]) -> Self:
        """Hash the rows of some columns, by the columns' names."""
        total = 0
        for batch in table.select(sorted(columns)).to_batches():
            rows = np.zeros(batch.num_rows, np.uint64)
            for column in batch.columns:
                rows = _mixed(rows * np.uint64(_BASE) + _words(column))
            total += int(rows.sum(dtype=np.uint64))
        return cls(table.num_rows, total & _MASK)

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.total + other.total) & _MASK)

    def __str__(self) -> str:
        return f"{ROWS}{self.rows}:{self.total:016x}"


def fingerprint(pieces: Sequence[Any], columns: Sequence[str], tasks: Tasks) -> Fingerprint:
    """Hash the rows of pieces where they are: only sums come back."""
    work = [(piece, tuple(columns)) for piece in pieces]
    parts = (part for _, part in tasks.map(_of_piece, work, label="hash rows"))
    return sum(parts, Fingerprint())


def _of_piece(work: tuple[Any, tuple[str, ...]]) -> Fingerprint:
    piece, columns = work
    parts = (Fingerprint.of(table, columns) for table in piece.read(0, piece.rows))
    return sum(parts, Fingerprint())


# --- values to words --------------------------------------------------------------------


def _words(array: pa.Array) -> Words:
    """Hash every value of a column to 64 bits."""
    kind = array.type
    if is_.is_null(kind):
        return np.full(len(array), _MISSING)
    if is_.is_dictionary(kind):
        return _words(array.dictionary_decode())
    found = _mixed(_present(array, kind))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _MISSING
    return found


def _present(array: pa.Array, kind: pa.DataType) -> Words:
    if is_.is_boolean(kind):
        flags: Words = array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
        return flags
    if is_.is_struct(kind):
        rows = np.zeros(len(array), np.uint64)
        for child in array.flatten():
            rows = _mixed(rows * np.uint64(_BASE) + _words(child))
        return rows
    if is_.is_map(kind):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        return _sequences(np.asarray(array.offsets), lambda start, stop: _words(pairs[start:stop]))
    if is_.is_list(kind) or is_.is_large_list(kind):
        return _sequences(np.asarray(array.offsets), lambda start, stop: _words(array.values[start:stop]))
    if is_.is_fixed_size_list(kind):
        ends = (np.arange(len(array) + 1) + array.offset) * kind.list_size
        return _sequences(ends, lambda start, stop: _words(array.values[start:stop]))
    if is_.is_fixed_size_binary(kind) or is_.is_decimal(kind):
        return _bytes(array, (np.arange(len(array) + 1) + array.offset) * (kind.bit_width // 8), 1)
    if is_.is_string(kind) or is_.is_binary(kind):
        return _bytes(array, _offsets(array, np.dtype(np.int32)), 2)
    if is_.is_large_string(kind) or is_.is_large_binary(kind):
        return _bytes(array, _offsets(array, np.dtype(np.int64)), 2)
    if is_.is_string_view(kind) or is_.is_binary_view(kind):
        return _present(array.cast(pa.large_binary()), pa.large_binary())
    width = kind.bit_width // 8
    buffer = array.buffers()[1]
    values = np.frombuffer(buffer, f"u{width}", len(array), array.offset * width)
    return values.astype(np.uint64)


def _offsets(array: pa.Array, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, kind)
    return np.frombuffer(buffer, kind, len(array) + 1, array.offset * kind.itemsize)


def _bytes(array: pa.Array, ends: npt.NDArray[Any], number: int) -> Words:
    buffer = array.buffers()[number]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    return _sequences(ends, lambda start, stop: data[start:stop].astype(np.uint64))


def _sequences(ends: npt.NDArray[Any], elements: Any) -> Words:
    """Hash sequences of words that lie one behind the other: a polynomial of each, by sums from the left."""
    found = np.zeros(len(ends) - 1, np.uint64)
    for first, last in _blocks(ends):
        start, stop = int(ends[first]), int(ends[last])
        powers, inverses = _powers(_rounded(stop - start))
        sums = np.zeros(stop - start + 1, np.uint64)
        np.cumsum((elements(start, stop) + _ONE) * powers[: stop - start], out=sums[1:])
        at = (ends[first : last + 1] - start).astype(np.intp)
        lengths = np.diff(at).astype(np.uint64)
        found[first:last] = _mixed((sums[at[1:]] - sums[at[:-1]]) * inverses[at[:-1]]) + lengths
    return found


def _blocks(ends: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield ranges of sequences that have so many elements together, or one that has more alone."""
    first, count = 0, len(ends) - 1
    while first < count:
        last = int(np.searchsorted(ends, ends[first] + _ELEMENTS, side="right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


def _rounded(length: int) -> int:
    return max(1024, 1 << length.bit_length())


@lru_cache(maxsize=2)
def _powers(length: int) -> tuple[Words, Words]:
    bases = np.full((2, length), [[_BASE], [_INVERSE]], dtype=np.uint64)
    bases[:, 0] = 1
    powers, inverses = np.cumprod(bases, axis=1, dtype=np.uint64)
    return powers, inverses


def _mixed(words: Words) -> Words:
    """Spread every bit of new words over all of them."""
    mix(words, np.empty_like(words))
    return words
