"""Who a row is: a 128-bit id and the three ways to make an id from others."""

from __future__ import annotations

import builtins
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import index
from typing import ClassVar, Final, Self

from trueline.errors import InputError

MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
C1: Final = 0x87C3_7B91_1142_53D5
C2: Final = 0x4CF5_AD43_2745_937F
A1: Final = 0x52DC_E729
A2: Final = 0x3849_5AB5
# rotl(C1, 31) * C2. It is xored in after mixing: ids are kept bit-exact to the code they come from,
# whose comment describes a Murmur block (1, 0) that it does not compute.
FORK: Final = 0x34E0_9D0B_6BDE_FE38

_HEX: Final = re.compile("[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class RowId:
    """A 128-bit row id: an unfinalised MurmurHash3 state of two unsigned words (view:C73).

    Ids of source rows are ordinals; `fork` and `next` give the ids of the
    rows one row becomes, `combine` the id of a row made from two. Ids are
    ordered by `high`, then `low`.

    >>> RowId(5).combine(RowId(7))
    RowId('6ae986d114cc78851787f98390bfc330')
    >>> RowId(2) < RowId(1, high=1)
    True

    >>> id = RowId(5)
    >>> id.hex, RowId.from_bytes(id.bytes) == id
    ('00000000000000000000000000000005', True)
    """

    low: int
    high: int = 0

    ZERO: ClassVar[RowId]
    ONES: ClassVar[RowId]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            try:
                word = index(value)
            except TypeError:
                raise _refused(f"the {name} word of a row id is an integer, not {value!r}") from None
            if not 0 <= word <= MASK:
                raise _refused(f"the {name} word of a row id is {word}, outside 0 … 2**64 - 1")
            object.__setattr__(self, name, word)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Read the 32 hex digits that `hex` writes, high word first.

        >>> RowId.from_hex("0000000000000001000000000000000a")
        RowId('0000000000000001000000000000000a')
        """
        if not isinstance(text, str):
            raise _refused(f"the text of a row id is expected, not {type(text).__name__}")
        if not _HEX.fullmatch(text):
            raise _refused(f"{text!r:.80} is not the text of a row id")
        return cls(int(text[16:], 16), int(text[:16], 16))

    @classmethod
    def from_bytes(cls, raw: builtins.bytes) -> Self:
        """Read the 16 bytes that `bytes` writes."""
        if not isinstance(raw, builtins.bytes):
            raise _refused(f"the bytes of a row id are expected, not {type(raw).__name__}")
        if len(raw) != 16:
            raise _refused(f"{raw!r:.80} is not the 16 bytes of a row id")
        return cls(int.from_bytes(raw[8:], "big"), int.from_bytes(raw[:8], "big"))

    def next(self) -> RowId:
        """Return the id that follows this one: 16 zero bytes absorbed.

        >>> RowId(0).next().hex
        '00000001d699de820000000052dce729'
        """
        low = (_rotl(self.low, 27) + self.high) * 5 + A1 & MASK
        return RowId(low, (_rotl(self.high, 31) + low) * 5 + A2 & MASK)

    def fork(self) -> RowId:
        """Return the id of the first row this one becomes, apart from every ordinal.

        >>> RowId(0).fork().hex
        '00000001d699de8234e09d0b39021911'
        """
        after = self.next()
        return RowId(after.low ^ FORK, after.high)

    def combine(self, other: RowId) -> RowId:
        """Return the id of a row made from this one and `other`; the order matters.

        >>> RowId(0).combine(RowId(1)).hex
        '9e0a1d2e49d5142304cd65793f9e9e51'
        """
        key = other.fork()
        low = self.low ^ _rotl(key.low * C1 & MASK, 31) * C2 & MASK
        low = (_rotl(low, 27) + self.high) * 5 + A1 & MASK
        high = self.high ^ _rotl(key.high * C2 & MASK, 33) * C1 & MASK
        return RowId(low, (_rotl(high, 31) + low) * 5 + A2 & MASK)

    @property
    def hex(self) -> str:
        """The id as 32 lower-case hex digits, high word first."""
        return f"{self.high:016x}{self.low:016x}"

    @property
    def bytes(self) -> builtins.bytes:
        """The id as 16 bytes, big endian, high word first: their order is the ids' order."""
        return (self.high << 64 | self.low).to_bytes(16, "big")

    def __str__(self) -> str:
        return self.hex

    def __repr__(self) -> str:
        return f"RowId({self.hex!r})"

    def __lt__(self, other: RowId) -> bool:
        if not isinstance(other, RowId):
            return NotImplemented
        return (self.high, self.low) < (other.high, other.low)

    def __le__(self, other: RowId) -> bool:
        if not isinstance(other, RowId):
            return NotImplemented
        return (self.high, self.low) <= (other.high, other.low)

    def __gt__(self, other: RowId) -> bool:
        if not isinstance(other, RowId):
            return NotImplemented
        return (self.high, self.low) > (other.high, other.low)

    def __ge__(self, other: RowId) -> bool:
        if not isinstance(other, RowId):
            return NotImplemented
        return (self.high, self.low) >= (other.high, other.low)


_SET_LOW: Final = RowId.__dict__["low"].__set__
_SET_HIGH: Final = RowId.__dict__["high"].__set__


def ids_of(lows: Sequence[int], highs: Sequence[int]) -> list[RowId]:
    """Return the ids of words that are known to be words: to check each again takes four times as long.

    >>> ids_of([1, 2], [0, 0]) == [RowId(1), RowId(2)]
    True
    """
    found = list(map(object.__new__, repeat(RowId, len(lows))))
    # Whole maps that are run for their effect: 0.2 µs an id, a loop takes 0.4.
    deque(map(_SET_LOW, found, lows), maxlen=0)
    deque(map(_SET_HIGH, found, highs), maxlen=0)
    return found


RowId.ZERO = RowId(0)
RowId.ONES = RowId(MASK, MASK)


def _rotl(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & MASK


def _refused(problem: str) -> InputError:
    return InputError(
        problem,
        remedy="give two words of 64 bits, RowId(low, high), or 32 hex digits, high word first",
        code="BadRowId",
    )
