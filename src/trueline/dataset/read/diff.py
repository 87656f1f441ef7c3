"""What changed between two commits, net: per key, or for datasets that only grow the rows that came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from trueline.chain.sources import MergeChangelogStream
from trueline.dataset.dataset_at import Standing
from trueline.dataset.merge.differences import distinct
from trueline.dataset.merge.result import TAKES_AWAY
from trueline.dataset.read.changes import OPERATIONS
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.events import Events
from trueline.dataset.read.fold import ends, folded
from trueline.dataset.state import KEY, KeyRange, ranges
from trueline.kernel.key_encoding import MergeKey
from trueline.kernel.sorted_keys import Bools, Ints, as_array, find, repeats
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds
from trueline.view.source import RowSource

# Each piece reads all events: so many that folding them takes longer than reading them again.
_EVENTS_OF_A_PIECE: Final = 4 << 20
_MOST_PIECES: Final = 32


@dataclass(frozen=True)
class Difference:
    """Rows of `after` that `before` lacks (insert), the reverse (delete), and pairs of changed ones, by key.

    Only the events in between are read: the first event of a key says what was there, the last what is.
    """

    before: Standing
    after: Standing
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """`op`, then the columns of the data."""
        op = pa.field(self.after.vocab.op, pa.string(), nullable=False)
        return pa.schema([op, *(self.after.schema.field(name) for name in self.columns)])

    @property
    def row_count(self) -> int | None:
        """Not known without reading, unless nothing happened."""
        return 0 if self.before.last_offset == self.after.last_offset else None

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The dataset, and between which commits."""
        return self.after.origin(self.before.position.block)

    @property
    def ordinal(self) -> str | None:
        """Who a row is: its number, since a pair shares its key."""
        return None

    def explain(self) -> list[str]:
        """Say what is read."""
        count = self.after.last_offset - self.before.last_offset
        return [f"net change of {next(iter(self.origins.values()))}: {count:,} events by key"]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the changes in key order, what was there before what is."""
        if self.row_count == 0:
            return
        there = CurrentRows(self.before, self._known) if self._asks_before else None
        yield from self._within(KeyRange(), (self._events,), there).batches(columns, bounds)

    @property
    def travels(self) -> bool:
        """Whether other processes can read it: what was there may only be found in the state, if at all."""
        return not self._asks_before or CurrentRows(self.before, self._known).travels

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return ranges of keys; each reads all the events in between, and folds those of its keys."""
        del bounds
        if self.row_count == 0:
            return []
        there = CurrentRows(self.before, self._known).sent() if self._asks_before else None
        events = self._events.pieces()
        if events is None or (self._asks_before and there is None):
            return None
        many = self.after.last_offset - self.before.last_offset
        count = min(_MOST_PIECES, max(1, parts, -(-many // _EVENTS_OF_A_PIECE)))
        state = self.after.state if count > 1 else None
        splitters = [] if state is None else state.splitters(count)
        return [self._within(each, tuple(events), there) for each in ranges(splitters)]

    @property
    def _events(self) -> Events:
        vocab = self.after.vocab
        needed = tuple(dict.fromkeys((*self.columns, *self.after.key, vocab.offset, vocab.op)))
        return Events(self.after, needed, self.before.last_offset + 1)

    @property
    def _asks_before(self) -> bool:
        """Whether the rows that were there are looked up.

        A retraction or correction repeats the row it cancels. A changelog says what it was given, so there
        the rows themselves are asked for.
        """
        is_changelog = isinstance(self.after.merge, MergeChangelogStream)
        return is_changelog and self.before.is_keyed and self.before.last_offset >= 0

    @property
    def _known(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name in self.before.schema.names)

    def _within(
        self, key_range: KeyRange, events: tuple[RowSource, ...], there: RowsByKey | None
    ) -> DifferenceOfKeys:
        after = self.after
        return DifferenceOfKeys(
            key_range,
            events,
            self._events.schema,
            self.schema,
            after.merge_key,
            str(after.vocab.offset),
            isinstance(after.merge, MergeChangelogStream),
            there,
            self._known,
        )


class RowsByKey(Protocol):
    """Where the rows of some keys are looked up."""

    def lookup(self, keys: pa.BinaryArray, columns: Sequence[str]) -> pa.Table:
        """Return `_key` and columns of those sorted keys that have a row, in key order."""


@dataclass(frozen=True)
class DifferenceOfKeys:
    """The changes of the keys in a range, as a source that can be sent to another process.

    `schema` begins with the operation; `there` is asked for the rows of a changelog, of which it has the
    columns `known`.
    """

    key_range: KeyRange
    events: tuple[RowSource, ...]
    read: pa.Schema
    schema: pa.Schema
    key: MergeKey
    offset: str
    is_changelog: bool
    there: RowsByKey | None
    known: tuple[str, ...]
    row_count: int | None = None
    ordinal: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns of the data."""
        return list(self.schema.names[1:])

    def explain(self) -> list[str]:
        """Say what it is."""
        return [f"net change of {self.key_range}"]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the changes in key order, what was there before what is."""
        del bounds
        for table in folded(self._events(), self.read, key=self.key, offset=self.offset, keep=ends):
            found = self._net(table)
            if found.num_rows:
                yield from found.select(list(columns)).to_batches()

    def _events(self) -> Iterator[pa.RecordBatch]:
        """Yield the events of the keys, in the order of offsets."""
        for source in self.events:
            for batch in source.batches(self.read.names, NO_BOUNDS):
                if self.key_range == KeyRange():
                    yield batch
                    continue
                keys = self.key.encode(pa.Table.from_batches([batch]))
                found = batch.filter(self.key_range.holds(keys))
                if found.num_rows:
                    yield found

    def _net(self, table: pa.Table) -> pa.Table:
        """Turn the first and last events of some keys into their net change."""
        table = table.combine_chunks()
        starts = np.flatnonzero(~repeats(as_array(table[KEY])))
        stops = np.append(starts[1:], table.num_rows) - 1
        ops = np.asarray(as_array(table[self.schema.names[0]]))
        old, old_rows = self._old(table, starts, ops)
        is_there = ~np.isin(ops[stops], TAKES_AWAY)
        was_there = old_rows >= 0
        both = np.flatnonzero(was_there & is_there)
        same = np.zeros(len(starts), dtype=bool)
        same[both] = ~self._differs(old, old_rows[both], table, stops[both])
        deleted = was_there & ~same
        added = is_there & ~same
        words = np.where(
            was_there & is_there,
            np.array([[OPERATIONS[2]], [OPERATIONS[3]]]),
            np.array([[OPERATIONS[1]], [OPERATIONS[0]]]),
        )
        rows = pa.concat_tables([old.select(self.columns), table.select(self.columns)])
        places = np.stack([old_rows, stops + old.num_rows], axis=1)
        keep = np.stack([deleted, added], axis=1)
        taken = rows.take(pa.array(places[keep]))
        op = pa.array(words.T[keep].tolist(), pa.string())
        return pa.Table.from_arrays([op, *taken.columns], schema=self.schema)

    def _old(self, table: pa.Table, starts: Ints, ops: np.ndarray) -> tuple[pa.Table, Ints]:
        """Where the row is that each key had before, −1 if none."""
        if not self.is_changelog:
            return table, np.where(np.isin(ops[starts], TAKES_AWAY), starts, -1)
        keys = as_array(table[KEY]).take(pa.array(starts))
        schema = pa.schema(list(self.schema)[1:])
        if self.there is None:
            return schema.empty_table(), np.full(len(starts), -1, dtype=np.int64)
        found = self.there.lookup(keys, self.known)
        places, hit = find(as_array(found[KEY]), keys)
        columns = [
            found[field.name] if field.name in self.known else pa.nulls(found.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema), np.where(hit, places, -1)

    def _differs(self, old: pa.Table, old_rows: Ints, new: pa.Table, new_rows: Ints) -> Bools:
        found = np.zeros(len(old_rows), dtype=bool)
        before, after = old.take(pa.array(old_rows)), new.take(pa.array(new_rows))
        for name in self.columns:
            found |= distinct(as_array(before[name]), as_array(after[name]))
        return found
