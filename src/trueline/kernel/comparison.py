"""Comparing rows: which comes first, and which have equal keys, whatever the types of the columns.

Order: null last, NaN before it, equal values as they were; where a value fits a word, words are compared
instead of values. Equality: NaN is equal to NaN, and 0.0 to -0.0; whether null is equal to null is for the
caller to say: it is for groups, it is not for joins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import total_ordering
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.kernel.chunk import on_threads
from trueline.kernel.nan import canonical_floats
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.value_hash import Salt, Words, hash_values, is_one_word, value_words, whole_numbers
from trueline.kernel.word_order import Places, order_of_texts, order_of_words, unlike_before

Codes: TypeAlias = npt.NDArray[np.int64]

_SIGN: Final = np.uint64(1 << 63)
# Keys of fewer rows than this are numbered by one thread.
_MANY: Final = 1 << 20
# So many rows at a time stay near the processor.
_BLOCK: Final = 1 << 16
# Fewer texts than this are sorted by Arrow.
_MANY_TEXTS: Final = 1 << 14
# So many texts tell whether few are equal.
_SAMPLE: Final = 1 << 12
# Texts are found among those of the first rows, where they are so few, and the rows so many more.
_FEW_KEYS: Final = 1 << 12
_MANY_FEW: Final = 16
# Slots for each number, where numbers lie near each other.
_SLOTS: Final = 2
_FEW_SLOTS: Final = 1 << 16


def has_words(kind: pa.DataType) -> bool:
    """Say whether values of a type are ordered as words are."""
    return is_one_word(kind)


def order_words(array: pa.Array) -> Words:
    """Return words in the order of the values, NaN the largest; where a value is null, any word."""
    kind = array.type
    if pa.types.is_floating(kind):
        filled = pc.fill_null(array, pa.scalar(0.0, kind)) if array.null_count else array
        return _float_words(np.asarray(filled))
    if pa.types.is_unsigned_integer(kind):
        return np.asarray(pc.fill_null(array, 0)).astype(np.uint64)
    return whole_numbers(array).view(np.uint64) ^ _SIGN


def _float_words(values: npt.NDArray[np.floating]) -> Words:
    """Return words in the order of numbers, some rows at a time so that they stay near the processor."""
    found = np.empty(len(values), np.uint64)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK].astype(np.float64, copy=False)
        bits = canonical_floats(block).view(np.int64)
        # Below zero all bits turn round, above it the sign only: bits are then in the order of the numbers.
        turned = (bits >> 63).view(np.uint64) | _SIGN
        np.bitwise_xor(bits.view(np.uint64), turned, out=found[start : start + _BLOCK])
    return found


def places_in_order(arrays: Sequence[pa.Array], descending: Sequence[bool]) -> Places:
    """Return the places of the rows in the order of some columns; equal rows stay as they were."""
    if len(arrays) == 1 and has_words(arrays[0].type):
        return _one_column(arrays[0], descending=descending[0])
    if len(arrays) == 1 and len(arrays[0]) >= _MANY_TEXTS and is_text(arrays[0].type):
        return _one_text_column(arrays[0], descending=descending[0])
    names = [f"k{number}" for number in range(len(arrays))]
    table = pa.table(dict(zip(names, [_comparable(array) for array in arrays], strict=True)))
    how = ["descending" if down else "ascending" for down in descending]
    found = pc.sort_indices(table, sort_keys=list(zip(names, how, strict=True)))  # null last
    return np.asarray(found).astype(np.int64)


def like_the_one_before(array: pa.Array, order: Places) -> npt.NDArray[np.bool_]:
    """Say of each row of an order whether its value is equal to that of the row before it, null to null.

    >>> like_the_one_before(pa.array([2.0, None, 2.0, None]), np.array([0, 2, 1, 3])).tolist()
    [False, True, False, True]
    """
    if not has_words(array.type):
        words = codes([array], len(array), nulls=True)[0][order].view(np.uint64)
    else:
        words = order_words(array)[order]
    same = words[1:] == words[:-1]
    if array.null_count:
        none = np.asarray(array.is_null())[order]
        same = np.where(none[1:] | none[:-1], none[1:] & none[:-1], same)
    return np.concatenate([[False], same])[: len(order)]


def _comparable(array: pa.Array) -> pa.Array:
    """Times as whole numbers, which Arrow compares in every kind of table."""
    if pa.types.is_temporal(array.type) or pa.types.is_boolean(array.type):
        return pa.array(whole_numbers(array), mask=np.asarray(array.is_null()))
    return array


def sorted_words(array: pa.Array, descending: bool) -> Words | None:
    """Return words that rise in an order of values; None for values that have none, or that are null."""
    return _directed(array, descending) if has_words(array.type) and not array.null_count else None


def _directed(array: pa.Array, descending: bool) -> Words:
    words = order_words(array)
    if descending:
        words = ~words
        if pa.types.is_floating(array.type):
            words[np.asarray(pc.fill_null(pc.is_nan(array), False))] = ~np.uint64(0)
    return words


def _one_column(array: pa.Array, *, descending: bool) -> Places:
    words = _directed(array, descending)
    if not array.null_count:
        return order_of_words(words)
    missing = np.asarray(array.is_null())
    there = np.flatnonzero(~missing)
    return np.concatenate([there[order_of_words(words[there])], np.flatnonzero(missing)])


def is_text(kind: pa.DataType) -> bool:
    """Say whether values are texts or bytes of any length."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind))


def _one_text_column(array: pa.Array, *, descending: bool) -> Places:
    """Order texts by ranks of those that are different, where they repeat, else by words of eight bytes."""
    there = np.flatnonzero(np.asarray(array.is_valid()))
    values = array.drop_null() if array.null_count else array
    first = values.slice(0, _MANY_TEXTS)
    if 2 * len(first.unique()) > len(first):
        order = order_of_texts(values, descending)
    else:
        code, count = _numbered(values)
        rank = np.empty(count, np.uint64)
        how = "descending" if descending else "ascending"
        rank[np.asarray(pc.array_sort_indices(values.take(pa.array(first_rows(code))), order=how))] = (
            np.arange(count, dtype=np.uint64)
        )
        order = order_of_words(rank[code])
    return np.concatenate([there[order], np.flatnonzero(np.asarray(array.is_null()))])


# --- single rows ----------------------------------------------------------------------------


@total_ordering
class _Down:
    """A value whose order is turned round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and self.value == other.value

    def __lt__(self, other: _Down) -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]


def row_key(arrays: Sequence[pa.Array], descending: Sequence[bool]) -> Callable[[int], tuple[Any, ...]]:
    """Return a function from a row to a tuple that Python compares as `places_in_order` does."""
    plain = [_comparable(array) for array in arrays]

    def key(row: int) -> tuple[Any, ...]:
        return tuple(_rank(array[row].as_py(), down) for array, down in zip(plain, descending, strict=True))

    return key


def _rank(value: Any, down: bool) -> tuple[Any, ...]:
    if value is None:
        return (2,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    return (0, _Down(value) if down else value)


# --- equal keys -----------------------------------------------------------------------------


def plain(array: pa.Array) -> pa.Array:
    """Return values so that equal ones are equal bytes."""
    if pa.types.is_floating(array.type):
        filled = np.asarray(pc.fill_null(array, 0.0) if array.null_count else array)
        mask = np.asarray(array.is_null()) if array.null_count else None
        return pa.array(canonical_floats(filled.astype(np.float64)).view(np.int64), mask=mask)
    return array


def codes(arrays: Sequence[pa.Array], rows: int, *, nulls: bool) -> tuple[Codes, int]:
    """Number the keys in the order of their first rows; say how many there are.

    With `nulls` a null is a value like others; without, a key that has one gets -1.

    >>> codes([pa.array(["b", "a", None, "b"])], 4, nulls=False)
    (array([ 0,  1, -1,  0]), 2)
    """
    found, count = np.zeros(rows, np.int64), 1 if rows else 0
    gone = np.zeros(rows, bool)
    for number, array in enumerate(arrays):
        here, different = _numbered(array)
        if array.null_count and not nulls:
            gone |= np.asarray(array.is_null())
        if number == 0:
            found, count = here, different
            continue
        # Both counts are at most the number of rows: the product stays below 2^62.
        found, count = _numbered(pa.array(found * max(1, different) + here))
    if not gone.any():
        return found, count
    there = pa.array(found, mask=gone).dictionary_encode()
    return np.asarray(pc.fill_null(there.indices, -1)).astype(np.int64), len(there.dictionary)


def _numbered(array: pa.Array) -> tuple[Codes, int]:
    """Number the values of one column in the order of their first rows, null like others."""
    is_whole = pa.types.is_primitive(array.type) and not pa.types.is_floating(array.type)
    if is_whole and not array.null_count and is_one_word(array.type):
        words = value_words(array).view(np.int64)
        slots = Slots.of(words)
        if slots is not None:
            return _numbered_slots(words, slots)
    by_hash = NumberedTexts.of(array)
    if by_hash is not None:
        return by_hash.codes, len(by_hash.hashes)
    few = _numbered_few(array)
    if few is not None:
        return few
    whole = plain(array)
    cuts = _cuts(len(array))
    parts = on_threads(_encoded, [whole.slice(a, b - a) for a, b in pairwise(cuts)], len(array))
    if len(parts) == 1:
        return np.asarray(parts[0].indices).astype(np.int64), len(parts[0].dictionary)
    # The dictionaries one after another are the values in the order of their first rows.
    known = pa.concat_arrays([part.dictionary for part in parts]).dictionary_encode(null_encoding="encode")
    numbers = np.asarray(known.indices).astype(np.int64)
    starts = np.cumsum([0, *(len(part.dictionary) for part in parts)]).tolist()
    found = np.empty(len(array), np.int64)

    def renumber(number: int) -> None:
        known_here = numbers[starts[number] : starts[number + 1]]
        indices = np.asarray(parts[number].indices)
        for start in range(0, len(indices), _BLOCK):
            block = indices[start : start + _BLOCK]
            at = cuts[number] + start
            # To clip is faster than to check: all of them are there.
            np.take(known_here, block, out=found[at : at + len(block)], mode="clip")

    on_threads(renumber, range(len(parts)), len(array))
    return found, len(known.dictionary)


def _numbered_few(array: pa.Array) -> tuple[Codes, int] | None:
    """Number texts of which the first rows have nearly all different ones; None for others.

    Arrow finds a text among known ones in less time than it takes to add one to a dictionary: 5 M among 1,000
    took 0.05 s of a processor, 0.07 in dictionaries of two parts that are put together.
    """
    if len(array) < _MANY_FEW * _BLOCK or not is_text(array.type):
        return None
    known = _encoded(array.slice(0, _BLOCK)).dictionary
    some = array.take(pa.array(np.arange(0, len(array), len(array) // _SAMPLE)))
    if len(known) > _FEW_KEYS or _MANY_FEW * pc.index_in(some, known).null_count > len(some):
        return None
    found = np.empty(len(array), np.int64)

    def number(cut: tuple[int, int]) -> int:
        at = pc.index_in(array.slice(cut[0], cut[1] - cut[0]), known)
        found[slice(*cut)] = pc.fill_null(at, -1) if at.null_count else at
        return int(at.null_count)

    if not sum(on_threads(number, list(pairwise(_cuts(len(array)))), len(array))):
        return found, len(known)
    # The others come behind: none of them is in the first rows.
    rest = np.flatnonzero(found < 0)
    others = _encoded(array.take(pa.array(rest)))
    found[rest] = np.asarray(others.indices) + len(known)
    return found, len(known) + len(others.dictionary)


def _cuts(rows: int) -> list[int]:
    """Return where rows are cut to be looked at by several threads."""
    return [rows * part // THREADS for part in range(THREADS + 1)] if rows >= _MANY else [0, rows]


@dataclass(frozen=True)
class NumberedTexts:
    """Texts of which few are equal, numbered by their hashes.

    3 M texts that all differ took 0.5 s, against 2.0 in a dictionary.
    """

    codes: Codes
    # Of the different ones the hashes in order, and the number of each.
    hashes: Words
    numbers: Codes

    SALT: ClassVar = Salt.of("keys", 0)

    @classmethod
    def of(cls, array: pa.Array) -> NumberedTexts | None:
        """Return the numbers; None for others, for nulls, and where different texts share a hash."""
        if len(array) < _MANY_TEXTS or array.null_count or not is_text(array.type):
            return None
        some = array.take(pa.array(np.arange(0, len(array), max(1, len(array) // _SAMPLE))))
        if 2 * len(some.unique()) < len(some):
            return None
        hashes = hashes_of([array], len(array), cls.SALT)
        order = order_of_words(hashes)
        hashes = hashes[order]
        is_new = unlike_before(hashes)
        if is_new.all():
            return cls(np.arange(len(array)), hashes, order)
        firsts, run = order[is_new], np.cumsum(is_new) - 1
        at, first = pa.array(order[~is_new]), pa.array(firsts[run[~is_new]])
        if not pc.all(pc.equal(array.take(at), array.take(first))).as_py():
            return None
        numbers, found = np.empty(len(firsts), np.int64), np.empty(len(array), np.int64)
        numbers[order_of_words(firsts.astype(np.uint64))] = np.arange(len(firsts))
        found[order] = numbers[run]
        return cls(found, hashes[is_new], numbers)


def hashes_of(arrays: Sequence[pa.Array], rows: int, salt: Salt) -> Words:
    """Return a hash of every row's values, made by several threads where rows are many."""

    def of(cut: tuple[int, int]) -> Words:
        start, stop = cut
        return hash_values([array.slice(start, stop - start) for array in arrays], stop - start, salt)

    return np.concatenate(on_threads(of, list(pairwise(_cuts(rows))), rows))


def _encoded(array: pa.Array) -> pa.DictionaryArray:
    return array.dictionary_encode(null_encoding="encode")


@dataclass(frozen=True)
class Slots:
    """A slot for each whole number of a range that is not much larger than the numbers are many."""

    least: np.int64
    size: int

    @classmethod
    def of(cls, numbers: npt.NDArray[np.int64]) -> Slots | None:
        """Return slots of all these numbers; None if they lie too far apart."""
        if not len(numbers):
            return None
        least = numbers.min()
        size = int(numbers.max()) - int(least) + 1
        return cls(least, size) if size <= max(_FEW_SLOTS, _SLOTS * len(numbers)) else None

    def at(self, numbers: npt.NDArray[np.int64]) -> Places:
        """Return the slots of numbers; those of others are below zero, or `size` and more."""
        with np.errstate(over="ignore"):
            return numbers - self.least

    def find(self, numbers: npt.NDArray[np.int64], known: Codes) -> Codes:
        """Return what is known of the slots of any numbers, -1 for those of others."""
        place = self.at(numbers).view(np.uint64)
        inside = place < np.uint64(self.size)
        if inside.all():
            return known[place.view(np.int64)]
        return np.where(inside, known[np.where(inside, place, np.uint64(0)).view(np.int64)], -1)


def _numbered_slots(numbers: npt.NDArray[np.int64], slots: Slots) -> tuple[Codes, int]:
    """Number values by the first rows that are found in their slots, some rows at a time."""
    rows = len(numbers)
    kind = np.dtype(np.int32 if rows < 1 << 31 else np.int64)
    first: npt.NDArray[np.signedinteger] = np.full(slots.size, rows, kind)
    for start in range(0, rows, _BLOCK):
        block = slots.at(numbers[start : start + _BLOCK])
        # What was found in a block before has an earlier row: of few keys no more is found soon.
        new = np.flatnonzero(first[block] == rows)
        np.minimum.at(first, block[new], (new + start).astype(kind))
    used = np.flatnonzero(first < rows)
    # From here on a slot has the number of its value instead.
    first[used[order_of_words(first[used].astype(np.uint64))]] = np.arange(len(used))
    found = np.empty(rows, np.int64)

    def number(cut: tuple[int, int]) -> None:
        for start in range(*cut, _BLOCK):
            stop = min(start + _BLOCK, cut[1])
            found[start:stop] = first[slots.at(numbers[start:stop])]

    on_threads(number, list(pairwise(_cuts(rows))), rows)
    return found, len(used)


def first_rows(found: Codes) -> Codes:
    """Return the first row of each key, as `codes` numbers them."""
    parts = [np.zeros(0, np.int64)]
    highest = -1
    for start in range(0, len(found), _BLOCK):
        block = found[start : start + _BLOCK]
        top = int(block.max())
        # New keys come early: most blocks of few keys have none.
        if top > highest:
            so_far = np.maximum(np.maximum.accumulate(block), highest)
            parts.append(np.flatnonzero(np.diff(so_far, prepend=highest) > 0) + start)
            highest = top
    return np.concatenate(parts)
