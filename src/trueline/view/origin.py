"""Exactly which records a view was made from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """A dataset at the end of a commit: its name and id, the block, and the last offset there.

    `after` is where the records begin, None for the dataset's first record;
    `removed` says how many of them were removed on purpose and are passed over.
    """

    dataset: str
    id: str
    block: str
    offset: int | None
    after: str | None = None
    removed: int = 0

    def __str__(self) -> str:
        end = "no records" if self.offset is None else f"offset {self.offset:,}"
        since = f", after {self.after[-8:]}" if self.after else ""
        gone = f", {self.removed:,} removed" if self.removed else ""
        return f"{self.dataset}@{self.block[-8:]} ({end}{since}{gone})"


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Which column of which source a column is: the source in words, its datasets, the name there."""

    source: str
    column: str
    index: int
    origins: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        where = ", ".join(map(str, self.origins)) or self.source
        return f"{self.column} of {where}"
