"""What a merge gives: events to record, what they do to the state, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Self

import numpy as np
import pyarrow as pa

from trueline.errors import InputError
from trueline.kernel.key_encoding import RANK
from trueline.kernel.sorted_keys import Ints, as_array

# Why a row of the input became no event.
IGNORED: Final = ("duplicate", "conflicting", "unchanged", "superseded", "unknown")


class Op(IntEnum):
    """What an event does; the numbers of Open Data Fabric."""

    APPEND = 0
    RETRACT = 1
    CORRECT_FROM = 2
    CORRECT_TO = 3


# After these, as the last of a key, it has no row. What a correction replaced had the key of what came in its
# place, unless the dataset has another key since.
TAKES_AWAY: Final = (int(Op.RETRACT), int(Op.CORRECT_FROM))


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """How many rows were inserted, updated and deleted, and by how many the current rows grew.

    A changelog may insert what is there and delete what is not, so that its growth is counted by itself.

    >>> MergeCounts.of(inserts=3, updates=1, deletes=1) + MergeCounts.of(inserts=1)
    MergeCounts(inserts=4, updates=1, deletes=1, growth=3)
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    growth: int = 0

    @classmethod
    def of(cls, inserts: int = 0, updates: int = 0, deletes: int = 0) -> Self:
        """Count changes each of which does what it says."""
        return cls(inserts, updates, deletes, inserts - deletes)

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.growth + other.growth,
        )


@dataclass(frozen=True)
class Merged:
    """Events in their final order, and everything that follows from them.

    `events` has the column of operations first, then the columns of the data;
    those of append and ledger, which keep the order of the source, end with `_rank`.
    `delta` is what `State.apply` takes; None for append, which keeps no state.
    `set_by` says for each row of `delta` which event set it (null where the key is gone).
    `ignored` counts input rows by reason; `quarantined` are input rows without a key.
    `tally` counts what the events do.
    """

    events: pa.Table
    delta: pa.Table | None
    set_by: pa.Array | None
    ignored: Mapping[str, int]
    quarantined: pa.Table
    tally: MergeCounts = field(default_factory=MergeCounts)

    def delta_with_offsets(self, column: str, first: int) -> pa.Table:
        """Return `delta` with the offset of the event that set each row, if the events begin at `first`."""
        if self.delta is None or self.set_by is None:
            raise InputError("an append keeps no state", remedy="ask for the events only")
        offsets = pa.compute.add(self.set_by, pa.scalar(first, pa.int64()))
        return self.delta.append_column(pa.field(column, pa.int64()), offsets)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Join merges of ascending key ranges into the merge of all: what one call would have given."""
        if not parts:
            raise InputError("nothing to join", remedy="merge at least one range of keys")
        events = pa.concat_tables([part.events for part in parts])
        starts = np.cumsum([0, *(part.events.num_rows for part in parts)])[:-1].tolist()
        ignored = {why: sum(part.ignored.get(why, 0) for part in parts) for why in IGNORED}
        quarantined = pa.concat_tables([part.quarantined for part in parts])
        delta = set_by = None
        if all(part.delta is not None for part in parts):
            delta = pa.concat_tables([part.delta for part in parts])
            moved = [
                pa.compute.add(part.set_by, pa.scalar(start, pa.int64()))
                for part, start in zip(parts, starts, strict=True)
            ]
            set_by = pa.concat_arrays(moved)
        if RANK in events.column_names:
            order = _by_rank(events)
            events = events.take(pa.array(order))
            if set_by is not None:
                places = np.empty(len(order), dtype=np.int64)
                places[order] = np.arange(len(order))
                set_by = pa.array(places).take(set_by)
        quarantined = quarantined.take(pa.array(_by_rank(quarantined)))
        tally = sum((part.tally for part in parts), MergeCounts())
        return cls(events, delta, set_by, ignored, quarantined, tally)


def _by_rank(table: pa.Table) -> Ints:
    return np.argsort(np.asarray(as_array(table[RANK])), kind="stable").astype(np.int64)
