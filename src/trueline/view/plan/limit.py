"""Rows by their number: the first ones, all but those, or the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trueline.view.plan.node import OneInput


@dataclass(frozen=True, eq=False)
class Limit(OneInput):
    """The rows from number `start` on, at most `count` of them (None: all)."""

    start: int
    count: int | None

    @property
    def title(self) -> str:
        some = "all" if self.count is None else f"{self.count:,}"
        return f"{some} rows from row {self.start:,} on"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """What is left of the input's, if that is known (view:C31)."""
        total = counts[0]
        if total is None:
            return 0 if self.count == 0 else None
        left = max(0, total - self.start)
        return left if self.count is None else min(left, self.count)

    @property
    def serial(self) -> str | None:
        """Where rows are not counted, which ones these are is known by reading those before."""
        return None if self.below.row_count is not None else "rows are counted from the start"


@dataclass(frozen=True, eq=False)
class LastRows(OneInput):
    """The last `count` rows; ids and order do not change."""

    count: int

    @property
    def title(self) -> str:
        return f"the last {self.count:,} rows"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """As many as were asked for, if there are so many (view:C31)."""
        if self.count == 0:
            return 0
        return None if counts[0] is None else min(self.count, counts[0])

    @property
    def serial(self) -> str | None:
        """Where rows are not counted, which ones are the last is known by reading to the end."""
        return None if self.below.row_count is not None else "rows are counted from the end"
