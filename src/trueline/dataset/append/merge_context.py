"""New rows, the current rows of their keys, and what a strategy makes of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trueline.chain.events import SetVocab
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.pieces import RowRange
from trueline.dataset.merge.partial_rows import WHOLE, Partial
from trueline.dataset.merge.result import Merged
from trueline.dataset.merge.strategies import merge_batch
from trueline.dataset.state.state import State
from trueline.kernel.key_encoding import KEY, OFFSET, RANK, KeyRange, MergeKey
from trueline.kernel.sorted_keys import unified
from trueline.kernel.tasks import Tasks
from trueline.merge import Keyed, KeyEquality, Snapshot


@dataclass(frozen=True, slots=True)
class Meeting:
    """A strategy, the state before it, and the columns of the rows; small, so that tasks are handed it.

    `once` says that each key comes once.
    """

    strategy: Keyed
    vocab: SetVocab
    columns: pa.Schema
    state: State
    equality: KeyEquality = KeyEquality.BITWISE
    partial: Partial = WHOLE
    once: bool = False

    @property
    def key(self) -> MergeKey:
        """The columns of the key, and which of their values are equal."""
        return MergeKey(self.strategy.key, self.equality)

    def read(self, parts: Sequence[RowRange], rank: int) -> pa.Table:
        """Read rows with all columns of the dataset, also those others added meanwhile, and number them."""
        tables = [
            unified(table, self.columns) for part in parts for table in part.piece.read(part.start, part.stop)
        ]
        rows = pa.concat_tables(tables) if tables else self.columns.empty_table()
        return rows.append_column(RANK, pa.array(np.arange(rank, rank + rows.num_rows, dtype=np.int64)))

    def nothing(self) -> pa.Table:
        """No rows, with their keys."""
        return self.read((), 0).append_column(
            pa.field(KEY, pa.binary(), nullable=False), pa.array([], pa.binary())
        )

    def merged(self, new: pa.Table, key_range: KeyRange | None = None) -> Merged:
        """Merge rows whose keys lie in a range into the state."""
        return self.merged_with(self.current(new, key_range), new)

    def merged_with(self, old: pa.Table | None, new: pa.Table) -> Merged:
        """Merge rows into the current ones that they meet."""
        return merge_batch(
            self.strategy, new, old, vocab=self.vocab, equality=self.equality, partial=self.partial
        )

    def current(self, new: pa.Table, key_range: KeyRange | None = None) -> pa.Table | None:
        """Return the current rows a strategy needs: those of the new keys, for a snapshot all."""
        if not self.state.generations:
            return None
        columns = [name for name in self.state.schema.names if name != OFFSET]
        if isinstance(self.strategy, Snapshot):
            batches = list(self.state.scan(columns, key_range))
            return pa.Table.from_batches(batches) if batches else None
        keys = new[KEY].combine_chunks() if KEY in new.column_names else self.key.encode(new)
        return self.state.lookup(keys, columns)


@dataclass(frozen=True, slots=True)
class Means:
    """How a merge is done: files in flight, who does the work, and how many rows of the source one takes."""

    scratch: Scratch
    tasks: Tasks
    rows_of_a_run: int
