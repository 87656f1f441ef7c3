"""Which records are to go: by offset, or by a condition on their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.store.store import Folder, Store
from trueline.dataset.dataset_at import Standing
from trueline.dataset.read.events import Events
from trueline.dataset.read.slice_reader import SliceFile
from trueline.dataset.remove.record import REPLACES
from trueline.dataset.state.segment import GONE, write_segments
from trueline.dataset.state.state import State
from trueline.errors import HashMismatch
from trueline.identity.multihash import Multihash, physical_hash
from trueline.kernel.key_encoding import OFFSET
from trueline.kernel.sorted_keys import as_array, find, sorting
from trueline.view.plan.node import NO_BOUNDS

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
    a chosen record of the same key goes with it: otherwise an old value would come
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
        places, hit = find(keys, standing.merge_key.encode(batch))
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
            keys.append(standing.merge_key.encode(batch.filter(pa.array(hit))))
            offsets.append(at[hit])
    every, at = as_array(pa.chunked_array(keys)), np.concatenate(offsets)
    order = sorting(every)
    if order is not None:
        every, at = every.take(pa.array(order)), at[order]
    # Sorting keeps the order of offsets within a key, so the last of each is its newest.
    last = np.ones(len(every), dtype=bool)
    last[:-1] = ~np.asarray(pa.compute.equal(every[1:], every[:-1]))
    return every.filter(pa.array(last)), at[last]


_BATCH_ROWS = 65_536
_GATHERED_BYTES = 1 << 20


def write_rest(file: SliceFile, offset: str, gone: Offsets) -> StateFile:
    """Stage the records of a slice that stay, as a file like the slice."""
    assert file.place is not None
    with file.store.open(*file.place) as raw:
        if (actual := physical_hash(raw)) != file.place[1]:
            # A rewrite must not give damaged rows a good name.
            raise HashMismatch(
                f"{file.place[0]}/{file.place[1]} hashes to {actual}",
                remedy="restore the file from a copy of the dataset, then remove again",
                expected=file.place[1],
                actual=actual,
            )
    writer = file.store.writer(Folder.CHECKPOINTS)
    kept = 0
    try:
        with (
            file.open(offset) as parquet,
            pa.output_stream(writer, buffer_size=_GATHERED_BYTES) as sink,
            pq.ParquetWriter(sink, parquet.schema_arrow, compression="snappy") as out,
        ):
            for batch in parquet.all_batches(_BATCH_ROWS):
                stays = ~np.isin(np.asarray(batch.column(offset)), gone)
                out.write_batch(batch.filter(pa.array(stays)))
                kept += int(stays.sum())
        stored = writer.finish()
    finally:
        writer.abandon()
    notes = {REPLACES: str(file.data.physical_hash), "rows": kept}
    return StateFile(stored.hash, stored.size, notes)


def state_without(store: Store, checkpoint: CheckpointFile | None, gone: Chosen | int) -> list[StateFile]:
    """Stage the states of a checkpoint again, without the rows that removed records had set last.

    They are written as one base each: older generations may hold removed
    values that newer ones have covered. A state that does not say which
    record set a row is left out; it is a cache and is rebuilt.
    """
    files = checkpoint.files if checkpoint is not None else ()
    names = sorted({name for file in files if isinstance(name := file.notes.get("state"), str)})
    found: list[StateFile] = []
    for name in names:
        state = State.open(store, checkpoint, name)
        if OFFSET in state.schema.names:
            found += state.replaced(0, write_segments(store, _staying(state, gone), state.schema)).files
    return found


def _staying(state: State, gone: Chosen | int) -> Iterator[pa.Table]:
    state.verify()
    for batch in state.scan():
        at = batch.column(OFFSET)
        leaves = np.asarray(at) <= gone if isinstance(gone, int) else gone.holds(at)
        rows = pa.Table.from_batches([batch.filter(pa.array(~leaves))])
        yield rows.append_column(GONE, pa.array(np.zeros(rows.num_rows, dtype=bool)))
