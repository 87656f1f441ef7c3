"""Where the rows of views come from: tables in memory, numbers, files, and sources from other rooms.

Nodes say which rows these are; `trueline.view.sources` opens and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError
from trueline.limits import DEFAULT, Limits
from trueline.view.plan.node import SourceNode
from trueline.view.schema import Field, Schema

if TYPE_CHECKING:
    from trueline.readers import Reader
    from trueline.readers import Source as File
    from trueline.view.origin import Origin
    from trueline.view.source import RowSource

_SHOWN: Final = 3
Range: TypeAlias = tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Memory(SourceNode):
    """An Arrow table; a row's id is its number."""

    table: pa.Table
    made_from: Mapping[str, Origin] = field(default_factory=dict)
    name: str = "rows in memory"

    @cached_property
    def schema(self) -> Schema:
        """The table's columns."""
        return Schema.from_arrow(self.table.schema)

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """As many as the table has."""
        return int(self.table.num_rows)

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The datasets it was made from."""
        return self.made_from

    @property
    def title(self) -> str:
        return f"{self.name}: {self.table.num_rows:,} rows, {self.table.num_columns} columns"


@dataclass(frozen=True, eq=False)
class Numbers(SourceNode):
    """The whole numbers from `start` on; a row's id is its number from 0 on."""

    count: int
    start: int
    name: str

    def __post_init__(self) -> None:
        for each in (self.count, self.start):
            if isinstance(each, bool) or not isinstance(each, int):
                raise InputError(f"range({each!r}) is not of whole numbers", remedy="give whole numbers")
        if self.count < 0 or not -(1 << 63) <= self.start <= (1 << 63) - max(1, self.count):
            raise InputError(
                f"{self.count:,} numbers from {self.start:,} on are not a range of 64-bit integers",
                remedy="give a count of at least 0, and a start with room for it",
            )

    @cached_property
    def schema(self) -> Schema:
        """One column."""
        return Schema([Field(self.name, t.int64, nullable=False)])

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """As many as were asked for."""
        return self.count

    @property
    def title(self) -> str:
        return f"numbers from {self.start:,} on: {self.count:,} rows"


@dataclass(frozen=True, eq=False)
class TextFiles(SourceNode):
    """Files of text one after another; a row's id is its number over all of them."""

    reader: Reader
    files: tuple[File, ...]
    arrow: pa.Schema

    @cached_property
    def schema(self) -> Schema:
        """Declared, or what the first rows suggest."""
        return Schema.from_arrow(self.arrow)

    @property
    def title(self) -> str:
        return f"{self.reader.kind} files {_names(self.files)}"


@dataclass(frozen=True)
class RowGroup:
    """A group of rows of a file: how many, and the ranges of the columns that say them."""

    file: int
    number: int
    rows: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, eq=False)
class ParquetFiles(SourceNode):
    """Parquet files one after another; a row's id is its number over all of them."""

    files: tuple[File, ...]
    arrow: pa.Schema
    groups: tuple[RowGroup, ...]
    limits: Limits = DEFAULT

    @cached_property
    def schema(self) -> Schema:
        """What the files say, with their annotations."""
        return Schema.from_arrow(self.arrow)

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """What the files say."""
        return sum(group.rows for group in self.groups)

    @property
    def title(self) -> str:
        return f"parquet files {_names(self.files)}: {len(self.groups)} groups of rows"


@dataclass(frozen=True, eq=False)
class SourceScan(SourceNode):
    """The rows of a source from another room; a row's id is what its ordinal column says, else its number."""

    source: RowSource

    @cached_property
    def schema(self) -> Schema:
        """The source's columns."""
        return Schema.from_arrow(self.source.schema)

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """What the source says."""
        return self.source.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        """What the source says."""
        return self.source.origins

    @property
    def title(self) -> str:
        return "; ".join(self.source.explain())


def _names(files: Sequence[File]) -> str:
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return f"{', '.join(file.path for file in files[:_SHOWN]) or '(none)'}{more}"
