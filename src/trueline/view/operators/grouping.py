"""A row for each group of rows with equal values.

A group's id is that of its first row, and groups come in the order of their first rows. Missing is a value
like others, NaN is equal to NaN. Rows are brought together by a hash of the key; results come in as many
pieces as a reader likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trueline.errors import SchemaError
from trueline.kernel.aggregates import Spans
from trueline.kernel.chunk import Chunk
from trueline.kernel.comparison import codes, first_rows, order_of_words
from trueline.kernel.exchange import Gathered, Once, Plan, gather
from trueline.kernel.external_sort import Ordered, bucket, how_many, taken
from trueline.kernel.pieces import Piece
from trueline.kernel.value_hash import Salt, hash_values
from trueline.view.operators.sorting import ByColumns
from trueline.view.plan.aggregate_calls import Asked, bound, needed
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Column, Schema


@dataclass(frozen=True)
class ByKey:
    """A hash of key columns, by where they stand in a chunk."""

    at: tuple[int, ...]
    descending: tuple[bool, ...] = (False,)

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the hashes."""
        found = hash_values([chunk.arrays[place] for place in self.at], chunk.rows, Salt.of("exchange", 0))
        return [pa.array(found)]


@dataclass(frozen=True, eq=False)
class Grouped(Node):
    """The key of each group, and aggregates of its rows."""

    below: Node
    by: tuple[int, ...]
    asked: tuple[Asked, ...]
    columns: Schema

    @property
    def schema(self) -> Schema:
        """The key, then the aggregates."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def portable(self) -> bool:
        """Each process would group all rows again."""
        return False

    @property
    def title(self) -> str:
        key = ", ".join(self.below.schema[place].name for place in self.by)
        made = ", ".join(f"{each.name} = {each.text}" for each in self.asked)
        return f"grouped by {key or 'nothing'}{f', with {made}' if made else ''}"

    def _chosen(self, want: Want) -> list[Asked]:
        return [self.asked[index - len(self.by)] for index in want.columns if index >= len(self.by)]

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The key, and what the aggregates read that are wanted (view:C35)."""
        return (want.of(tuple(dict.fromkeys((*self.by, *needed(self._chosen(want)))))),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """The key is the input's."""
        return (0, self.by[column]) if column < len(self.by) else None

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return parts of the groups, in order."""
        (below,) = self.wants(want)
        at = {column: place for place, column in enumerate(below.columns)}
        made: list[int | tuple[Asked, int | None]] = []
        for index in want.columns:
            if index < len(self.by):
                made.append(at[self.by[index]])
            else:
                asked = self.asked[index - len(self.by)]
                made.append((asked, None if asked.column is None else at[asked.column]))
        parts = how_many(want.parts, None)
        key = tuple(at[place] for place in self.by)
        work = Grouping(key, tuple(made), len(below.columns), want.ids)
        shared = Once(ToGroup(tuple(self.below.pieces(below)), work, parts))
        return [GroupedPiece(shared, number) for number in range(parts)]


@dataclass(frozen=True)
class Grouping:
    """How groups are made of rows: where the key is in a chunk, and which columns are made of which."""

    key: tuple[int, ...]
    made: tuple[int | tuple[Asked, int | None], ...]
    width: int
    ids: bool

    def groups(self, chunk: Chunk) -> tuple[Chunk, np.ndarray]:
        """Return the groups of some rows, which are all rows of their groups; and their first rows."""
        found, count = codes([chunk.arrays[place] for place in self.key], chunk.rows, missing=True)
        firsts = first_rows(found)
        order = order_of_words(found.astype(np.uint64))
        ends = np.cumsum(np.bincount(found, minlength=count))
        spans = Spans(chunk.rows, np.concatenate([[0], ends[:-1]]).astype(np.int64), ends.astype(np.int64))
        at, first = pa.array(order), pa.array(firsts)
        sorted_: dict[int, pa.Array] = {}
        arrays = []
        for each in self.made:
            if isinstance(each, int):
                arrays.append(chunk.arrays[each].take(first))
                continue
            asked, place = each
            if place is not None and place not in sorted_:
                sorted_[place] = chunk.arrays[place].take(at)
            arrays.append(asked.of(None if place is None else sorted_[place], spans))
        ids = chunk.ids[firsts] if self.ids and chunk.ids is not None else None
        return Chunk(count, tuple(arrays), ids), firsts


@dataclass(frozen=True)
class ToGroup:
    """What groups the rows of pieces, when it is asked to."""

    below: tuple[Piece, ...]
    work: Grouping
    parts: int

    def __call__(self) -> Groupings:
        plan = Plan(ByKey(self.work.key), self.work.width, self.work.ids, positions=True)
        gathered = gather(self.below, plan)
        if gathered.held is not None:
            return Groupings(self.work.groups(gathered.held)[0], None, self.parts)
        if not gathered.rows:
            return Groupings(None, None, self.parts)
        # The groups of each bucket are put in order by the positions of their first rows.
        buckets = -(-gathered.size // gathered.part_bytes)
        pieces = [BucketPiece(gathered, number, buckets, self.work) for number in range(buckets)]
        made = len(self.work.made)
        ordered = Ordered(gather(pieces, Plan(ByColumns((made,), (False,)), made, self.work.ids)), self.parts)
        return Groupings(None, ordered, self.parts)


@dataclass(frozen=True, eq=False)
class BucketPiece:
    """The groups whose keys have hashes in one range, and the positions of their first rows."""

    gathered: Gathered
    number: int
    buckets: int
    work: Grouping

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the groups."""
        chunk = bucket(self.gathered, self.number, self.buckets)
        if chunk is not None:
            found, firsts = self.work.groups(chunk)
            positions = chunk.arrays[-1].take(pa.array(firsts))
            yield Chunk(found.rows, (*found.arrays, positions), found.ids)


@dataclass(frozen=True)
class Groupings:
    """All groups in order: in memory, or in an exchange of their own, or none."""

    held: Chunk | None
    ordered: Ordered | None
    parts: int

    def part(self, number: int) -> Iterator[Chunk]:
        """Yield one part of them."""
        if self.held is not None:
            low, high = (self.held.rows * (number + at) // self.parts for at in (0, 1))
            yield from taken(self.held, np.arange(low, high))
        elif self.ordered is not None:
            yield from self.ordered.part(number)


@dataclass(frozen=True, eq=False)
class GroupedPiece:
    """One part of the groups; whoever reads the first part makes them all."""

    shared: Once[Groupings]
    number: int

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the groups."""
        yield from self.shared().part(self.number)


def grouped(below: Node, by: Sequence[Column], aggregates: Mapping[str, str]) -> Grouped:
    """Group rows by columns and say what to make of them."""
    node, asked = bound(below, aggregates, window=False)
    fields = [*(column.field for column in by), *(each.field for each in asked)]
    for each in asked:
        if any(column.name == each.name for column in by):
            raise SchemaError(
                f"{each.name!r} is a column of the key",
                remedy="name the aggregate otherwise",
                column=each.name,
            )
    return Grouped(node, tuple(column.index for column in by), tuple(asked), Schema(fields))
