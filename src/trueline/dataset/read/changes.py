"""The events of a dataset as readers see changes: named operations, offsets and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.block import commit_record
from trueline.chain.events import AddData, ExecuteTransform
from trueline.chain.index_rows import SliceEntry
from trueline.chain.instant import Instant
from trueline.dataset.read.events import Events
from trueline.errors import CorruptionError, SchemaError
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds
from trueline.view.source import RowSource

# By the number of an operation (0 append, 1 retract, 2 correct from, 3 correct to).
OPERATIONS: Final = ("insert", "delete", "update_preimage", "update_postimage")
LATE: Final = "late"


@dataclass(frozen=True)
class Changes:
    """Events with `op` as a word; with `late`, whether a record came after its watermark had passed."""

    events: Events
    with_late: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the system first."""
        vocab = self.events.standing.vocab
        fields = [
            pa.field(vocab.op, pa.string(), nullable=False) if field.name == vocab.op else field
            for field in self.events.schema
        ]
        if self.with_late and fields:
            if any(field.name == LATE for field in fields):
                raise SchemaError(
                    f"the dataset has a column {LATE!r} of its own",
                    remedy="ask without system=True",
                    column=LATE,
                )
            fields.insert(3, pa.field(LATE, pa.bool_(), nullable=False))
        return pa.schema(fields)

    @property
    def row_count(self) -> int | None:
        """As many as there are offsets."""
        return self.events.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The dataset, and between which commits."""
        return self.events.origins

    @property
    def ordinal(self) -> str | None:
        """Who a row is: the offset of its event."""
        return self.events.ordinal

    def explain(self) -> list[str]:
        """Say which offsets are read."""
        return [f"changes: {line}" for line in self.events.explain()]

    @property
    def travels(self) -> bool:
        """Whether other processes can read it: what is late is looked up in the chain, in this one."""
        return not self.with_late

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return some slices each, with their operations as words."""
        found = self.events.pieces(bounds, parts) if self.travels else None
        if found is None:
            return None
        name, op = self.events.standing.name, str(self.events.standing.vocab.op)
        return [ChangedSlices(part, op, name) for part in found]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the events in order."""
        standing = self.events.standing
        vocab = standing.vocab
        own = self.schema
        schema = pa.schema([(own if name in own.names else standing.schema).field(name) for name in columns])
        needed = [name for name in columns if name != LATE or not self.with_late]
        if LATE in columns and self.with_late:
            needed += [name for name in (vocab.event_time, vocab.op) if name not in needed]
        watermarks: dict[int, Instant | None] = {}
        # Whether a record is late depends on the commit it came with.
        events = replace(self.events, apart=True) if LATE in columns and self.with_late else self.events
        for entry, batch in events.read(needed, bounds):
            found: list[pa.Array] = []
            for name in columns:
                if name == vocab.op:
                    ops = batch.column(needed.index(name))
                    found.append(words_of(ops, f"the slice of block {entry.block}", standing.name))
                elif name == LATE and self.with_late:
                    if entry.sequence_number not in watermarks:
                        watermarks = {entry.sequence_number: self.watermark_before(entry)}
                    times, ops = (batch.column(needed.index(n)) for n in (vocab.event_time, vocab.op))
                    found.append(_late(times, ops, watermarks[entry.sequence_number]))
                else:
                    found.append(batch.column(needed.index(name)))
            yield pa.RecordBatch.from_arrays(found, schema=schema) if columns else batch

    def watermark_before(self, entry: SliceEntry) -> Instant | None:
        """The watermark recorded before the commit a slice belongs to: late is decided by it, once."""
        chain = self.events.standing.chain
        part = commit_record(chain.block(entry.block)).part
        before = chain.entry_number(entry.sequence_number - part)
        if before is None:
            return None
        block = chain.newest(AddData, ExecuteTransform, upto=before.hash)
        event = block.data_event if block is not None else None
        return event.new_watermark if event is not None else None


@dataclass(frozen=True)
class ChangedSlices:
    """Some slices as changes: a source that can be sent to another process."""

    slices: RowSource
    op: str
    dataset: str

    @property
    def schema(self) -> pa.Schema:
        """The columns, with operations as words."""
        there = self.slices.schema
        return there.set(there.get_field_index(self.op), pa.field(self.op, pa.string(), nullable=False))

    @property
    def row_count(self) -> int | None:
        """As many as the slices have."""
        return self.slices.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        """What the slices rest on."""
        return self.slices.origins

    @property
    def ordinal(self) -> str | None:
        """Who a row is: the offset of its event."""
        return self.slices.ordinal

    def explain(self) -> list[str]:
        """Say how many there are."""
        return [f"changes: {line}" for line in self.slices.explain()]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the events in order."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for batch in self.slices.batches(columns, bounds):
            if self.op not in columns:
                yield batch
                continue
            found = list(batch.columns)
            place = list(columns).index(self.op)
            found[place] = words_of(found[place], "a slice", self.dataset)
            yield pa.RecordBatch.from_arrays(found, schema=schema)


def words_of(ops: pa.Array, where: str, dataset: str) -> pa.Array:
    """Return operations as words."""
    try:
        return pa.array(OPERATIONS).take(ops)
    except pa.ArrowIndexError:
        raise CorruptionError(
            f"{dataset}: {where} has unknown operations: {pc.min(ops)} to {pc.max(ops)}",
            remedy=f"`trueline verify {dataset}` says more",
            code="SliceDamaged",
        ) from None


def _late(times: pa.Array, ops: pa.Array, watermark: Instant | None) -> pa.Array:
    """Say which records are late; those that repeat an old row were decided when it came."""
    if watermark is None:
        return pa.array([False]).take(pa.array([0] * len(times), pa.int32()))
    # Event times are dates or whole milliseconds: rounding the watermark up keeps "before it" exact.
    limit = -(-int(watermark) // 1_000_000)
    moments = times.cast(pa.timestamp("ms")) if pa.types.is_date(times.type) else times
    late = pc.less(moments.cast(pa.int64()), limit)
    # Making Arrow values loads pandas, which looking at rows must not wait for.
    from trueline.dataset.append.slices import NEW

    return pc.fill_null(pc.and_(late, pc.is_in(ops, value_set=NEW)), False)
