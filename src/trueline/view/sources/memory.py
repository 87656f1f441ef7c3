"""Rows in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import pyarrow as pa

from trueline import types as t
from trueline.identity import RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk
from trueline.kernel.pieces import Piece
from trueline.view.origin import Origin
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Schema
from trueline.view.source_cells import Pass, Tally, as_types


@dataclass(frozen=True, eq=False)
class Memory(Node):
    """An Arrow table; a row's id is its number."""

    table: pa.Table
    given: Mapping[str, Origin] = field(default_factory=dict)
    name: str = "rows in memory"
    tally: Tally = field(default_factory=Tally)

    @cached_property
    def schema(self) -> Schema:
        """The table's columns."""
        return Schema.from_arrow(self.table.schema)

    @property
    def row_count(self) -> int | None:
        """As many as the table has."""
        return int(self.table.num_rows)

    @property
    def can_shuffle(self) -> bool:
        """Any row can be had at any time."""
        return True

    @property
    def origins(self) -> Mapping[str, Origin]:
        """What whoever made it says."""
        return self.given

    @property
    def title(self) -> str:
        return f"{self.name}: {self.table.num_rows:,} rows, {self.table.num_columns} columns"

    @property
    def bad(self) -> dict[str, int]:
        """The cells that are no values of their columns, by column, as far as they were read."""
        return self.tally.bad

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return equal parts of the table, some thousands of rows each, or as many as are wanted."""
        total = self.table.num_rows
        parts = max(-(-total // ROWS_OF_A_CHUNK), min(want.parts, total))
        kinds = tuple(self.schema[index].type for index in want.columns)
        chosen, noted = self.table.select(list(want.columns)), Pass(self.tally)
        cuts = [total * part // parts for part in range(parts + 1)] if parts else []
        return [
            MemoryPiece(chosen.slice(start, stop - start), kinds, start, stop - start, want.ids, noted)
            for start, stop in pairwise(cuts)
        ]


@dataclass(frozen=True, eq=False)
class MemoryPiece:
    """Some rows of a table, from number `start` on."""

    table: pa.Table
    kinds: tuple[t.Type, ...]
    start: int
    rows: int
    ids: bool
    noted: Pass

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        bad: Counter[str] = Counter()
        for start in range(0, self.rows, ROWS_OF_A_CHUNK):
            rows = min(ROWS_OF_A_CHUNK, self.rows - start)
            part = self.table.slice(start, rows)
            arrays = as_types(part.columns, self.kinds, part.column_names, bad)
            if bad:
                self.noted.note(self.start, bad)
            yield Chunk(rows, arrays, RowIds.range(self.start + start, rows) if self.ids else None)
