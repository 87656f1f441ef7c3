"""What a view does to its source, as immutable steps; each knows its columns before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from trueline.view.bounds import NO_BOUNDS, Bounds, both
from trueline.view.expressions import Expression
from trueline.view.origin import Origin
from trueline.view.source import ROWS_OF_A_BATCH, Source


class Step(Protocol):
    """Something with columns and rows, made of other such things down to a source."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def row_count(self) -> int | None: ...

    @property
    def origins(self) -> Mapping[str, Origin]: ...

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]: ...

    def explain(self) -> list[str]: ...


@dataclass(frozen=True)
class Scan:
    """The rows of a source."""

    source: Source

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @property
    def row_count(self) -> int | None:
        return self.source.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        return self.source.origins

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        return self.source.batches(columns, bounds)

    def explain(self) -> list[str]:
        return self.source.explain()


@dataclass(frozen=True)
class Project:
    """Some columns in some order, under the names they get here; `of` maps new names to those below."""

    below: Step
    of: Mapping[str, str]

    @property
    def schema(self) -> pa.Schema:
        fields = self.below.schema
        return pa.schema([fields.field(old).with_name(new) for new, old in self.of.items()])

    @property
    def row_count(self) -> int | None:
        return self.below.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        return self.below.origins

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        below = {self.of[name]: interval for name, interval in bounds.items() if name in self.of}
        schema = pa.schema([self.schema.field(name) for name in columns])
        for batch in self.below.batches([self.of[name] for name in columns], below):
            renamed = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            yield renamed if columns else batch

    def explain(self) -> list[str]:
        shown = ", ".join(new if new == old else f"{old} as {new}" for new, old in self.of.items())
        return [f"columns {shown}", *_indented(self.below)]


@dataclass(frozen=True)
class Filter:
    """The rows for which an expression is true."""

    below: Step
    where: Expression

    @property
    def schema(self) -> pa.Schema:
        return self.below.schema

    @property
    def row_count(self) -> int | None:
        return None

    @property
    def origins(self) -> Mapping[str, Origin]:
        return self.below.origins

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        needed = list(dict.fromkeys((*columns, *self.where.columns)))
        for batch in self.below.batches(needed, both(bounds, self.where.bounds)):
            kept = batch.select(list(columns)).filter(self.where.mask(batch))
            if kept.num_rows:
                yield kept

    def explain(self) -> list[str]:
        ruled = ", ".join(self.where.bounds)
        skips = f" (skips what {ruled} rules out)" if ruled else ""
        return [f"rows where {self.where.text}{skips}", *_indented(self.below)]


@dataclass(frozen=True)
class Part:
    """The rows from number `start` on, at most `count` of them (None: all)."""

    below: Step
    start: int
    count: int | None

    @property
    def schema(self) -> pa.Schema:
        return self.below.schema

    @property
    def row_count(self) -> int | None:
        total = self.below.row_count
        if total is None:
            return 0 if self.count == 0 else None
        left = max(0, total - self.start)
        return left if self.count is None else min(left, self.count)

    @property
    def origins(self) -> Mapping[str, Origin]:
        return self.below.origins

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        # What a filter above rules out still counts here.
        del bounds
        skip, left = self.start, self.count
        if left == 0:
            return
        for batch in self.below.batches(columns, NO_BOUNDS):
            taken = batch.slice(skip, left) if left is not None else batch.slice(skip)
            skip = max(0, skip - batch.num_rows)
            if taken.num_rows:
                yield taken
            if left is not None:
                left -= taken.num_rows
                if left == 0:
                    return

    def explain(self) -> list[str]:
        some = "all" if self.count is None else f"{self.count:,}"
        return [f"{some} rows from row {self.start:,} on", *_indented(self.below)]


@dataclass(frozen=True)
class Sort:
    """All rows, by columns; rows that are equal there stay as they were."""

    below: Step
    by: tuple[str, ...]
    descending: bool = False

    @property
    def schema(self) -> pa.Schema:
        return self.below.schema

    @property
    def row_count(self) -> int | None:
        return self.below.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        return self.below.origins

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        if not columns:
            yield from self.below.batches(columns, bounds)
            return
        needed = list(dict.fromkeys((*columns, *self.by)))
        table = gathered(self.below, needed, bounds)
        direction = "descending" if self.descending else "ascending"
        order = pc.sort_indices(table, sort_keys=[(name, direction) for name in self.by])
        yield from table.select(list(columns)).take(order).to_batches(max_chunksize=ROWS_OF_A_BATCH)

    def explain(self) -> list[str]:
        how = ", descending" if self.descending else ""
        return [f"sorted by {', '.join(self.by)}{how} (in memory)", *_indented(self.below)]


def divided(step: Step) -> list[Step] | None:
    """Return steps over pieces that together have the same rows, in order; None if rows depend on others."""
    match step:
        case Scan(source):
            pieces = source.pieces() if hasattr(source, "pieces") else None
            return None if pieces is None else [Scan(piece) for piece in pieces]
        case Project(below, of):
            parts = divided(below)
            return None if parts is None else [Project(part, of) for part in parts]
        case Filter(below, where):
            parts = divided(below)
            return None if parts is None else [Filter(part, where) for part in parts]
    return None


def gathered(step: Step, columns: Sequence[str], bounds: Bounds = NO_BOUNDS) -> pa.Table:
    """Return the rows of a step as one table."""
    schema = pa.schema([step.schema.field(name) for name in columns])
    batches = list(step.batches(columns, bounds))
    if not columns:
        # A table of no columns has its number of rows only if it is made of one that has some.
        rows = sum(batch.num_rows for batch in batches)
        return pa.table({"": pa.nulls(rows)}).select([])
    return pa.Table.from_batches(batches, schema=schema)


def _indented(step: Step) -> list[str]:
    return [f"  {line}" for line in step.explain()]
