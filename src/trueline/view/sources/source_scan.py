"""The rows of a source from another room: a dataset at a commit, a frozen Spark frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece
from trueline.view.bounds import Interval
from trueline.view.origin import Origin
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Schema
from trueline.view.source import Source
from trueline.view.source_cells import Pass, Tally, as_types


@dataclass(frozen=True, eq=False)
class Given(Node):
    """A source; a row's id is what its ordinal column says, else its number."""

    source: Source
    tally: Tally = field(default_factory=Tally)

    @cached_property
    def schema(self) -> Schema:
        """The source's columns."""
        return Schema.from_arrow(self.source.schema)

    @property
    def row_count(self) -> int | None:
        """What the source says."""
        return self.source.row_count

    @property
    def can_shuffle(self) -> bool:
        """Sources can be read again and again."""
        return True

    @property
    def origins(self) -> Mapping[str, Origin]:
        """What the source says."""
        return self.source.origins

    @property
    def bad(self) -> dict[str, int]:
        """The cells that are no values of their columns, by column, as far as they were read here."""
        return self.tally.bad

    @property
    def title(self) -> str:
        return "; ".join(self.source.explain())

    @property
    def portable(self) -> bool:
        """Whether the source can be divided into pieces that travel."""
        divide = getattr(self.source, "pieces", None)
        travels = getattr(self.source, "travels", True)
        return divide is not None and travels and divide() is not None

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return the pieces of the source; rows that are known by their number need those before counted."""
        names = tuple(self.schema[index].name for index in want.columns)
        kinds = tuple(self.schema[index].type for index in want.columns)
        bounds = {self.schema[index].name: each for index, each in want.bounds.items()}
        ordinal = getattr(self.source, "ordinal", None)
        if want.ids and ordinal is None:
            bounds = {}  # rows that are known by their number cannot be left out before they are counted
        divide = getattr(self.source, "pieces", None)
        parts: Sequence[Source] | None = divide(bounds, want.parts) if divide is not None else None
        if parts is not None and not parts:
            return []
        noted = Pass(self.tally)
        if parts is None:
            return [GivenPiece(self.source, names, kinds, bounds, ordinal, 0, want.ids, noted, 0)]
        if want.ids and ordinal is None:
            counts = [part.row_count for part in parts]
            if None in counts:
                return [GivenPiece(self.source, names, kinds, bounds, ordinal, 0, True, noted, 0)]
            firsts = list(accumulate((count or 0 for count in counts), initial=0))[:-1]
        else:
            firsts = [0] * len(parts)
        return [
            GivenPiece(part, names, kinds, bounds, ordinal, first, want.ids, noted, number)
            for number, (part, first) in enumerate(zip(parts, firsts, strict=True))
        ]


@dataclass(frozen=True, eq=False)
class GivenPiece:
    """One source, or a part of one."""

    source: Source
    names: tuple[str, ...]
    kinds: tuple[t.Type, ...]
    bounds: Mapping[str, Interval]
    ordinal: str | None
    first: int
    ids: bool
    noted: Pass
    number: int

    @property
    def rows(self) -> int | None:
        """What the source says, unless it may leave rows out."""
        return None if self.bounds else self.source.row_count

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        extra = [self.ordinal] if self.ids and self.ordinal and self.ordinal not in self.names else []
        number, bad = self.first, Counter[str]()
        for batch in self.source.batches([*self.names, *extra], self.bounds):
            arrays = as_types(batch.columns[: len(self.kinds)], self.kinds, self.names, bad)
            if bad:
                self.noted.note(self.number, bad)
            yield Chunk(batch.num_rows, arrays, self._ids(batch, number) if self.ids else None)
            number += batch.num_rows

    def _ids(self, batch: pa.RecordBatch, number: int) -> RowIds:
        if self.ordinal is None:
            return RowIds.range(number, batch.num_rows)
        place = self.names.index(self.ordinal) if self.ordinal in self.names else len(self.names)
        low = np.asarray(batch.column(place)).astype(np.uint64)
        return RowIds(low, np.zeros_like(low))
