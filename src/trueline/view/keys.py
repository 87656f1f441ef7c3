"""Keys: rows with equal values get equal numbers, whatever the types of the columns.

NaN is equal to NaN, and 0.0 to -0.0. Whether missing is equal to missing is for the asker to say:
it is for groups, it is not for joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.view.hashing import Salt, canonical, hash_values, is_one_word
from trueline.view.ordering import order_of_words
from trueline.view.schema import Column, Schema

Codes = npt.NDArray[np.int64]
_TRIES: Final = 64


def key_columns(schema: Schema, names: Sequence[str], what: str) -> tuple[Column, ...]:
    """Return the columns of a key; only single values can be compared."""
    found = schema.find_all(tuple(names))
    for column in found:
        if not column.type.is_primitive:
            raise SchemaError(
                f"column {column.name!r} is of type {column.type}, whose values {what} cannot compare",
                remedy="name columns of single values; explode() gives each value of a vector its row",
                code="TypeMismatch",
                column=column.name,
                found=str(column.type),
            )
    return found


def plain(array: pa.Array) -> pa.Array:
    """Return values so that equal ones are equal bytes."""
    if pa.types.is_floating(array.type):
        filled = np.asarray(pc.fill_null(array, 0.0) if array.null_count else array)
        mask = np.asarray(array.is_null()) if array.null_count else None
        return pa.array(canonical(filled.astype(np.float64)).view(np.int64), mask=mask)
    return array


def codes(arrays: Sequence[pa.Array], rows: int, *, missing: bool) -> tuple[Codes, int]:
    """Number the keys in the order of their first rows; say how many there are.

    With `missing` a missing value is a value like others; without, a key that has one gets -1.

    >>> codes([pa.array(["b", "a", None, "b"])], 4, missing=False)
    (array([ 0,  1, -1,  0]), 2)
    """
    found, count = np.zeros(rows, np.int64), 1 if rows else 0
    gone = np.zeros(rows, bool)
    for number, array in enumerate(arrays):
        encoded = plain(array).dictionary_encode(null_encoding="encode" if missing else "mask")
        here = np.asarray(pc.fill_null(encoded.indices, 0)).astype(np.int64)
        if encoded.indices.null_count:
            gone |= np.asarray(encoded.indices.is_null())
        if number == 0:
            found, count = here, len(encoded.dictionary)
            continue
        # Both counts are at most the number of rows: the product stays below 2^62.
        both = pa.array(found * max(1, len(encoded.dictionary)) + here).dictionary_encode()
        found, count = np.asarray(both.indices).astype(np.int64), len(both.dictionary)
    if not gone.any():
        return found, count
    there = pa.array(found, mask=gone).dictionary_encode()
    return np.asarray(pc.fill_null(there.indices, -1)).astype(np.int64), len(there.dictionary)


def first_rows(found: Codes) -> Codes:
    """Return the first row of each key, as `codes` numbers them."""
    highest = np.maximum.accumulate(found)
    return np.flatnonzero(np.diff(highest, prepend=-1) > 0)


class KeyIndex:
    """The keys of some rows, found again for any others: what a join looks its partners up in."""

    def __init__(self, arrays: Sequence[pa.Array], rows: int) -> None:
        self.codes, self.count = codes(arrays, rows, missing=False)
        self._known = [plain(array.take(pa.array(first_rows(self.codes)))) for array in arrays]
        # A word that is the value itself cannot be that of another one.
        self._sure = len(arrays) == 1 and is_one_word(arrays[0].type)
        for attempt in range(_TRIES):
            self._salt = Salt.of("keys", attempt)
            hashes = hash_values(self._known, self.count, self._salt)
            self._code = order_of_words(hashes)
            self._sorted = hashes[self._code]
            if not (self._sorted[1:] == self._sorted[:-1]).any():
                break
        else:
            raise AssertionError("no hash keeps these keys apart")
        bits = max(1, self.count.bit_length())
        self._shift = np.uint64(64 - bits)
        slots = np.bincount((self._sorted >> self._shift).astype(np.int64), minlength=1 << bits)
        self._starts = np.concatenate([[0], np.cumsum(slots)])

    def find(self, arrays: Sequence[pa.Array], rows: int) -> Codes:
        """Return the numbers of the keys of other rows, -1 where there is none or a value is missing."""
        given = [plain(array) for array in arrays]
        hashes = hash_values(given, rows, self._salt)
        found = np.full(rows, -1, np.int64)
        slot = (hashes >> self._shift).astype(np.int64)
        at, end = self._starts[slot], self._starts[slot + 1]
        # Hashes are spread evenly: a slot has one key on average.
        asking = np.flatnonzero(at < end)
        at, end, wanted = at[asking], end[asking], hashes[asking]
        while len(asking):
            hit = self._sorted[at] == wanted
            found[asking[hit]] = self._code[at[hit]]
            at = at + 1
            on = ~hit & (at < end)
            asking, at, end, wanted = asking[on], at[on], end[on], wanted[on]
        for array in arrays:
            if array.null_count:
                found[np.asarray(array.is_null())] = -1
        return found if self._sure else self._verified(found, given)

    def _verified(self, found: Codes, given: Sequence[pa.Array]) -> Codes:
        """Drop those that share a hash with a key but not its values."""
        hits = np.flatnonzero(found >= 0)
        if not len(hits):
            return found
        at, of = pa.array(hits), pa.array(found[hits])
        same = np.ones(len(hits), bool)
        for array, known in zip(given, self._known, strict=True):
            same &= np.asarray(pc.equal(array.take(at), known.take(of)))
        found[hits[~same]] = -1
        return found
