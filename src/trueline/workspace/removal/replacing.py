"""What is left of slices and state once some records are gone, written anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.store import Folder, Store
from trueline.errors import HashMismatch
from trueline.identity.physical import physical_hash
from trueline.workspace.reading.slices import SliceFile
from trueline.workspace.removal.choosing import Chosen, Offsets
from trueline.workspace.removal.record import REPLACES
from trueline.workspace.state.keys import OFFSET
from trueline.workspace.state.segment import GONE, write_segments
from trueline.workspace.state.state import State

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
    """Stage the states of a checkpoint anew, without the rows that removed records had set last.

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
