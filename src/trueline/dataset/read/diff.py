"""What changed between two commits, net: per key, or for datasets that only grow the rows that came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trueline.chain.sources import MergeChangelogStream
from trueline.dataset.dataset_at import Standing
from trueline.dataset.merge.differences import distinct
from trueline.dataset.merge.result import Op
from trueline.dataset.read.changes import OPERATIONS
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.events import Events
from trueline.dataset.read.fold import ends, folded
from trueline.dataset.state import KEY
from trueline.kernel.sorted_keys import Bools, Ints, as_array, find, repeats
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds


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
        del bounds
        if self.before.last_offset == self.after.last_offset:
            return
        vocab = self.after.vocab
        needed = tuple(dict.fromkeys((*self.columns, *self.after.key, vocab.offset, vocab.op)))
        events = Events(self.after, needed, self.before.last_offset + 1)
        for table in folded(
            events.batches(needed, NO_BOUNDS),
            events.schema,
            key=self.after.merge_key,
            offset=vocab.offset,
            keep=ends,
        ):
            found = self._net(table)
            if found.num_rows:
                yield from found.select(list(columns)).to_batches()

    def _net(self, table: pa.Table) -> pa.Table:
        """Turn the first and last events of some keys into their net change."""
        table = table.combine_chunks()
        starts = np.flatnonzero(~repeats(as_array(table[KEY])))
        stops = np.append(starts[1:], table.num_rows) - 1
        ops = np.asarray(as_array(table[self.after.vocab.op]))
        old, old_rows = self._old(table, starts, ops)
        is_there = ops[stops] != Op.RETRACT
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
        """Where the row is that each key had before, −1 if none.

        A retraction or correction repeats the row it cancels. A changelog says
        what it was given, so there the rows themselves are looked up.
        """
        if not isinstance(self.after.merge, MergeChangelogStream):
            cancels = (ops[starts] == Op.RETRACT) | (ops[starts] == Op.CORRECT_FROM)
            return table, np.where(cancels, starts, -1)
        keys = as_array(table[KEY]).take(pa.array(starts))
        schema = pa.schema([self.after.schema.field(name) for name in self.columns])
        if not self.before.is_keyed or self.before.last_offset < 0:
            return schema.empty_table(), np.full(len(starts), -1, dtype=np.int64)
        known = tuple(name for name in self.columns if name in self.before.schema.names)
        found = CurrentRows(self.before, known).lookup(keys, known)
        places, hit = find(as_array(found[KEY]), keys)
        columns = [
            found[field.name] if field.name in known else pa.nulls(found.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema), np.where(hit, places, -1)

    def _differs(self, old: pa.Table, old_rows: Ints, new: pa.Table, new_rows: Ints) -> Bools:
        found = np.zeros(len(old_rows), dtype=bool)
        before, after = old.take(pa.array(old_rows)), new.take(pa.array(new_rows))
        for name in self.columns:
            found |= distinct(as_array(before[name]), as_array(after[name]))
        return found
