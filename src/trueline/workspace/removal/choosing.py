"""Which records are to go: by offset, or by a condition on their columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.identity.multihash import Multihash
from trueline.view.bounds import NO_BOUNDS
from trueline.workspace.reading.events import Events
from trueline.workspace.reading.standing import Standing
from trueline.workspace.state.keys import encode_keys
from trueline.workspace.state.ordering import as_array, find, sorting

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Condition:
    """Columns, and what says of a batch of them which rows are meant."""

    columns: tuple[str, ...]
    mask: Callable[[pa.RecordBatch], pa.Array]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The offsets that are to go, by the block whose slice they are in."""

    slices: dict[Multihash, Offsets] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(len(offsets) for offsets in self.slices.values())

    def holds(self, offsets: pa.Array) -> npt.NDArray[np.bool_]:
        """Say which of some offsets are among them."""
        every = np.concatenate([np.empty(0, np.int64), *self.slices.values()])
        return np.isin(np.asarray(offsets), every)


def choose(standing: Standing, condition: Condition) -> Chosen:
    """Find the records a condition means, among those that are still there.

    Where later events replace earlier ones of their key, what is older than
    a chosen record of the same key goes with it: else an old value would come
    back as the current one.
    """
    found = _matching(standing, condition)
    return _with_older(standing, found) if standing.is_keyed and found.rows else found


def _matching(standing: Standing, condition: Condition) -> Chosen:
    offset = standing.vocab.offset
    columns = tuple(dict.fromkeys((*condition.columns, offset)))
    parts: dict[Multihash, list[Offsets]] = {}
    for entry, batch in Events(standing, columns).read(columns, NO_BOUNDS):
        mask = np.asarray(condition.mask(batch), dtype=bool)
        if mask.any():
            parts.setdefault(entry.block, []).append(np.asarray(batch.column(offset))[mask])
    return Chosen({block: np.concatenate(each) for block, each in parts.items()})


def _with_older(standing: Standing, found: Chosen) -> Chosen:
    """Add the earlier records of the keys that were found."""
    keys, newest = _newest(standing, found)
    offset = standing.vocab.offset
    columns = (*standing.key, offset)
    parts: dict[Multihash, list[Offsets]] = {}
    for entry, batch in Events(standing, columns).read(columns, NO_BOUNDS):
        at = np.asarray(batch.column(offset))
        places, hit = find(keys, encode_keys(batch, standing.key))
        older = hit & (at <= newest[np.minimum(places, len(newest) - 1)])
        if older.any():
            parts.setdefault(entry.block, []).append(at[older])
    return Chosen({block: np.concatenate(each) for block, each in parts.items()})


def _newest(standing: Standing, found: Chosen) -> tuple[pa.BinaryArray, Offsets]:
    """Return the keys of chosen records, sorted, and the newest chosen offset of each."""
    offset = standing.vocab.offset
    columns = (*standing.key, offset)
    keys, offsets = [], []
    wanted = set(found.slices)
    for entry, batch in Events(standing, columns).read(columns, NO_BOUNDS):
        if entry.block in wanted:
            at = np.asarray(batch.column(offset))
            hit = np.isin(at, found.slices[entry.block])
            keys.append(encode_keys(batch.filter(pa.array(hit)), standing.key))
            offsets.append(at[hit])
    every, at = as_array(pa.chunked_array(keys)), np.concatenate(offsets)
    order = sorting(every)
    if order is not None:
        every, at = every.take(pa.array(order)), at[order]
    # Sorting keeps the order of offsets within a key, so the last of each is its newest.
    last = np.ones(len(every), dtype=bool)
    last[:-1] = ~np.asarray(pa.compute.equal(every[1:], every[:-1]))
    return every.filter(pa.array(last)), at[last]
