"""What the cells of a whole column are, counted batch by batch: inferred types without a sample."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.readers import times
from trueline.readers.cells import convert
from trueline.readers.inference import BOOLEAN, EXACT, INTEGER, fraction_pattern
from trueline.readers.rules import CellRules

_UTC: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Profile:
    """How many cells of a column are what; profiles of parts add up to that of the whole.

    `integers` fit 64 bits; `wide` are integers that a float cannot hold exactly, of any size. `moments` are
    dates and times, `zoned` those that name a zone, `fine` those with more than six digits of a second.

    >>> Profile.of(pa.array(["1", "2.5", None]), CellRules()).kind
    DataType(double)
    >>> (Profile.of(pa.array(["1"]), CellRules()) + Profile.of(pa.array(["x"]), CellRules())).kind
    DataType(string)
    """

    cells: int = 0
    booleans: int = 0
    integers: int = 0
    wide: int = 0
    numbers: int = 0
    dates: int = 0
    moments: int = 0
    zoned: int = 0
    fine: int = 0

    @classmethod
    def of(cls, cells: pa.Array, rules: CellRules) -> Profile:
        """Count the cells of some rows, given as text; null and white space do not count."""
        text = pc.utf8_trim(cells.drop_null(), " \t")
        text = text.filter(pc.not_equal(text, ""))
        if not len(text):
            return cls()
        whole = pc.match_substring_regex(text, INTEGER)
        integers = convert(text.filter(whole), pa.int64(), rules).array
        values = integers.drop_null().to_numpy()
        words = pc.match_substring_regex(text, r"^-?(?i:nan|inf|infinity)$")
        numeric = pc.or_(pc.or_(whole, words), pc.match_substring_regex(text, fraction_pattern(rules)))
        zoned, fine = times.zones(text, rules.timestamp_format)
        return cls(
            len(text),
            _count(pc.match_substring_regex(text, BOOLEAN)),
            len(values),
            int(np.count_nonzero((values > EXACT) | (values < -EXACT))) + integers.null_count,
            _valid(text.filter(numeric), pa.float64(), rules),
            _valid(text, pa.date32(), rules),
            _valid(text, _UTC, rules),
            zoned,
            fine,
        )

    def __add__(self, other: Profile) -> Profile:
        return Profile(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Profile)))

    @property
    def kind(self) -> pa.DataType:
        """The narrowest type that loses no cell; text if there is no other."""
        if self.cells and self.booleans == self.cells:
            return pa.bool_()
        for kind, fitting in ((self.number, self.numbers), (self.moment, max(self.dates, self.moments))):
            if kind is not None and fitting == self.cells:
                return kind
        return pa.string()

    @property
    def number(self) -> pa.DataType | None:
        """The type of the cells that are numbers, None if there is none that holds all of them exactly."""
        if self.numbers and self.numbers == self.integers:
            return pa.int64()
        return pa.float64() if self.numbers and not self.wide else None

    @property
    def moment(self) -> pa.DataType | None:
        """The type of the cells that are dates or times, None if some name a zone and others do not."""
        if self.dates and self.dates >= self.moments:
            return pa.date32()
        if not self.moments or self.zoned not in {0, self.moments}:
            return None
        return pa.timestamp("ns" if self.fine else "us", "UTC" if self.zoned else None)


def _count(flags: Any) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _valid(text: pa.Array, kind: pa.DataType, rules: CellRules) -> int:
    found = convert(text, kind, rules).array
    return len(found) - int(found.null_count)
