"""The keys of some rows, found again for others: by slots, by Arrow's table of few texts, or by hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.kernel.comparison import (
    Codes,
    NumberedTexts,
    Slots,
    codes,
    first_rows,
    hashes_of,
    is_text,
    plain,
)
from trueline.kernel.value_hash import Salt, Words, hash_values, is_one_word, value_words
from trueline.kernel.word_order import order_of_words

# So many look-ups at a time, which are of any place of a large table.
_FEW_ROWS: Final = 1 << 14
# Texts are looked up in a table that is made for each chunk, where so few are known.
_FEW_KEYS: Final = 1 << 12
# Hashes that are tried until one keeps all keys apart.
_TRIES: Final = 64


class KeyIndex:
    """The keys of some rows, found again for any others: what a join looks its partners up in."""

    def __init__(self, arrays: Sequence[pa.Array], rows: int) -> None:
        texts = NumberedTexts.of(arrays[0]) if len(arrays) == 1 else None
        if texts is not None:
            self.codes, self.count = texts.codes, len(texts.hashes)
        else:
            self.codes, self.count = codes(arrays, rows, nulls=False)
        self._slots = self._in_slots(arrays)
        if self._slots is not None:
            return
        self._known = list(arrays)
        if self.count < rows:
            first = pa.array(first_rows(self.codes))
            self._known = [array.take(first) for array in arrays]
        self._known = [plain(array) for array in self._known]
        # Arrow finds texts among few in a fifth of the time.
        is_few = len(arrays) == 1 and self.count <= _FEW_KEYS and is_text(arrays[0].type)
        self._few = self._known[0] if is_few else None
        # A word that is the value itself cannot be that of another one.
        self._sure = len(arrays) == 1 and is_one_word(arrays[0].type)
        if texts is not None:
            self._salt, self._sorted, self._code = texts.SALT, texts.hashes, texts.numbers
        else:
            self._salt, self._sorted, self._code = self._hashed()
        bits = max(1, self.count.bit_length())
        self._shift = np.uint64(64 - bits)
        slots = np.bincount((self._sorted >> self._shift).view(np.int64), minlength=1 << bits)
        self._starts = np.concatenate([[0], np.cumsum(slots)])
        # Slots behind the last key begin here: no key, whatever its hash.
        self._sorted, self._code = np.append(self._sorted, np.uint64(0)), np.append(self._code, -1)

    def _hashed(self) -> tuple[Salt, Words, Codes]:
        """Return the hashes of the keys in order, and their numbers, with a salt that keeps all apart."""
        for attempt in range(_TRIES):
            salt = Salt.of("keys", attempt)
            hashes = hashes_of(self._known, self.count, salt)
            order = order_of_words(hashes)
            hashes = hashes[order]
            if not (hashes[1:] == hashes[:-1]).any():
                return salt, hashes, order
        raise AssertionError("no hash keeps these keys apart")

    def _in_slots(self, arrays: Sequence[pa.Array]) -> tuple[Slots, Codes] | None:
        """Return the numbers of keys that are whole numbers near each other, by slots."""
        if len(arrays) != 1 or not is_one_word(arrays[0].type) or pa.types.is_floating(arrays[0].type):
            return None
        there = self.codes >= 0
        words, code = value_words(arrays[0]).view(np.int64), self.codes
        if not there.all():
            words, code = words[there], code[there]
        slots = Slots.of(words)
        if slots is None:
            return None
        known = np.full(slots.size, -1, np.int64)
        known[slots.at(words)] = code
        return slots, known

    def find(self, arrays: Sequence[pa.Array], rows: int) -> Codes:
        """Return the numbers of the keys of other rows, -1 where there is none or a value is null."""
        if self._slots is not None:
            slots, known = self._slots
            found = slots.find(value_words(arrays[0]).view(np.int64), known)
            if arrays[0].null_count:
                found[np.asarray(arrays[0].is_null())] = -1
            return found
        if self._few is not None and arrays[0].type == self._few.type:
            return np.asarray(pc.fill_null(pc.index_in(arrays[0], self._few), -1)).astype(np.int64)
        given = [plain(array) for array in arrays]
        hashes = hash_values(given, rows, self._salt)
        found = np.full(rows, -1, np.int64)
        for start in range(0, rows, _FEW_ROWS):
            self._look_up(hashes[start : start + _FEW_ROWS], found[start : start + _FEW_ROWS])
        for array in arrays:
            if array.null_count:
                found[np.asarray(array.is_null())] = -1
        return found if self._sure else self._verified(found, given)

    def _look_up(self, hashes: Words, found: Codes) -> None:
        """Put the numbers of the keys with these hashes where they belong."""
        slot = (hashes >> self._shift).view(np.int64)
        # Hashes are spread evenly: a slot has one key on average, and what is in another has another hash.
        at = self._starts[slot]
        hit = self._sorted[at] == hashes
        rows = np.flatnonzero(hit)
        found[rows] = self._code[at[rows]]
        asking = np.flatnonzero(~hit)
        at, end, wanted = at[asking] + 1, self._starts[slot[asking] + 1], hashes[asking]
        while len(asking):
            on = at < end
            asking, at, end, wanted = asking[on], at[on], end[on], wanted[on]
            hit = self._sorted[at] == wanted
            found[asking[hit]] = self._code[at[hit]]
            asking, at, end, wanted = asking[~hit], at[~hit] + 1, end[~hit], wanted[~hit]

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
