"""Datasets written without the workspace's own writers: every slice, block and state made here."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.chain.growing import dataset_id
from tests.chain.stores import CountingStore
from trueline.chain import Block, Chain, Instant
from trueline.chain.block import CommitRecord
from trueline.chain.checkpoint import CheckpointFile
from trueline.chain.events import (
    AddPushSource,
    Checkpoint,
    DatasetKind,
    DataSlice,
    Event,
    OffsetInterval,
    Seed,
    SetDataSchema,
    SetInfo,
    SetVocab,
)
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.schema import from_arrow
from trueline.chain.sources import (
    MergeAppend,
    MergeChangelogStream,
    MergeLedger,
    MergeSnapshot,
    MergeUpsertStream,
    ReadParquet,
)
from trueline.chain.store.store import Folder
from trueline.dataset.merge import merge_batch
from trueline.dataset.read.views import changes_of, diff_of, row_of, view_of
from trueline.dataset.state import State
from trueline.identity import logical_hash
from trueline.identity.multihash import Multihash
from trueline.kernel.sorted_keys import unified
from trueline.merge import Append, Changelog, Ledger, Snapshot, Strategy, Upsert

START = Instant.parse("2026-01-01T00:00:00Z")
SECOND = 1_000_000_000
SYSTEM = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("op", pa.int32(), nullable=False),
    pa.field("system_time", pa.timestamp("ms", "UTC"), nullable=False),
]
STORED = {
    Append: lambda m: MergeAppend(),
    Ledger: lambda m: MergeLedger(m.key),
    Snapshot: lambda m: MergeSnapshot(m.key, m.compare),
    Changelog: lambda m: MergeChangelogStream(m.key),
    Upsert: lambda m: MergeUpsertStream(m.key),
}


class History:
    """A dataset that grows by events; `name` is `trades`."""

    def __init__(
        self,
        data: pa.Schema,
        merge: Strategy | None = None,
        *,
        event_time: str | None = None,
        store: object = None,
        index: object = None,
        with_state: bool = False,
    ) -> None:
        self.store = CountingStore() if store is None else store
        self.chain = Chain(self.store, index=index)
        self.merge = merge or Append()
        self.event_time = event_time or "event_time"
        self.with_state = with_state
        self.state = State.open(self.store, None)
        self.system_time = START
        self.ends: list[Multihash] = []
        self.schema = self._whole(data)
        events: list[Event] = [Seed(dataset_id(1), DatasetKind.Root)]
        if event_time:
            events.append(SetVocab(event_time_column=event_time))
        stored = STORED[type(self.merge)](self.merge)
        events.append(AddPushSource(source_name="default", read=ReadParquet(), merge=stored))
        events.append(SetDataSchema(schema=from_arrow(self.schema)))
        self._append(events)

    def _whole(self, data: pa.Schema) -> pa.Schema:
        if self.event_time in data.names:
            time = data.field(self.event_time)
        else:
            time = pa.field(self.event_time, pa.timestamp("ms", "UTC"))
        return pa.schema([*SYSTEM, time, *(field for field in data if field.name != self.event_time)])

    @property
    def data(self) -> pa.Schema:
        return pa.schema(list(self.schema)[4:])

    def evolve(self, data: pa.Schema) -> None:
        """Set another schema."""
        self.schema = self._whole(data)
        self._append([SetDataSchema(schema=from_arrow(self.schema))])

    def describe(self, text: str) -> None:
        """Add a block that holds no data."""
        self._append([SetInfo(description=text)])

    def add(self, rows: pa.Table, *, parts: int = 1, watermark: str | None = None, **layout: object) -> Block:
        """Add events (column `op` where they have one) as one commit of so many slices."""
        tail = self.chain.tail()
        self.system_time = Instant(self.system_time + SECOND)
        cuts = np.linspace(0, rows.num_rows, parts + 1).astype(int)
        blocks = []
        for part in range(1, parts + 1):
            piece = rows.slice(cuts[part - 1], cuts[part] - cuts[part - 1])
            new = {"new_data": self.write(self.records(piece, tail.next_offset), tail.next_offset, **layout)}
            new["new_watermark"] = Instant.parse(watermark) if watermark else tail.watermark
            if self.with_state:
                file = CheckpointFile(self.state.files, {"part": part}).to_bytes()
                new["new_checkpoint"] = Checkpoint(self.store.put(Folder.CHECKPOINTS, file), len(file))
            record = CommitRecord(part, parts).to_extra()
            blocks.append(next_block(tail, next_add_data(tail, **new, extra=record), self.system_time))
            tail = tail.after(blocks[-1])
        self.chain.append(*blocks)
        self.ends.append(self.chain.head)
        return blocks[-1]

    def merged(self, rows: Sequence[dict] | pa.Table, *, parts: int = 1) -> Multihash | None:
        """Merge rows by the strategy, keep the state, and add the events."""
        if not isinstance(rows, pa.Table):
            ops = [pa.field("op", pa.int32())] if rows and "op" in rows[0] else []
            rows = pa.Table.from_pylist(list(rows), schema=pa.schema([*ops, *self.data]))
        if isinstance(self.merge, Append):
            return self.add(rows, parts=parts).hash
        old = None
        if self.state.generations:
            batches = list(self.state.scan())
            kept = pa.Table.from_batches(batches) if batches else None
            old = kept if kept is None or isinstance(self.merge, Ledger) else unified(kept, self.data)
        found = merge_batch(self.merge, rows, old)
        if not found.events.num_rows:
            return None
        delta = found.delta_with_offsets("_offset", self.chain.tail().next_offset)
        if isinstance(self.merge, Ledger):
            delta = delta.select(["_key", "_gone", "_offset"])
        self.state = self.state.apply(delta)
        return self.add(found.events, parts=parts).hash

    def records(self, rows: pa.Table, first: int) -> pa.Table:
        """Give events the columns of the system."""
        count = rows.num_rows
        made = {
            "offset": np.arange(first, first + count),
            "op": rows["op"] if "op" in rows.column_names else np.zeros(count),
            "system_time": np.full(count, int(self.system_time) // 1_000_000),
        }
        columns = []
        for field in self.schema:
            if field.name in made:
                values = made[field.name]
                columns.append(
                    pa.chunked_array([pa.array(np.asarray(values).astype(np.int64))]).cast(field.type)
                )
            elif field.name in rows.column_names:
                columns.append(rows[field.name].cast(field.type))
            else:
                columns.append(pa.nulls(count, field.type))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def write(self, records: pa.Table, first: int, **layout: object) -> DataSlice:
        """Write a slice, whatever it holds."""
        file = io.BytesIO()
        pq.write_table(records, file, version="1.0", **{"row_group_size": 100_000, **layout})
        name = self.store.put(Folder.DATA, file.getvalue())
        interval = OffsetInterval(first, first + max(records.num_rows, 1) - 1)
        return DataSlice(logical_hash(records), name, interval, len(file.getvalue()))

    def _append(self, events: Sequence[Event]) -> None:
        self.system_time = Instant(self.system_time + SECOND)
        tail = self.chain.tail()
        blocks = []
        for event in events:
            blocks.append(next_block(tail, event, self.system_time))
            tail = tail.after(blocks[-1]) if tail else _first(blocks[-1])
        self.chain.append(*blocks)
        self.ends.append(self.chain.head)

    # --- as a dataset offers it -----------------------------------------------------

    def view(self, at: object = None, system: bool = False):
        return view_of("trades", self.chain, at, system=system)

    def changes(self, after: object = None, upto: object = None, system: bool = False):
        return changes_of("trades", self.chain, after, upto, system=system)

    def diff(self, a: object, b: object = None):
        return diff_of("trades", self.chain, a, b)

    def get(self, key: object, at: object = None):
        return row_of("trades", self.chain, key, at)


def _first(block: Block):
    from trueline.chain.head_state import follow

    return follow(None, block)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
