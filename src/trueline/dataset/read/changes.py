"""The events of a dataset as readers see changes: named operations, offsets and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.block import commit_record
from trueline.chain.events import AddData, ExecuteTransform
from trueline.chain.instant import Instant
from trueline.dataset.read.events import Events
from trueline.dataset.read.slice_reader import Slices
from trueline.errors import CorruptionError, SchemaError
from trueline.identity.multihash import Multihash
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds
from trueline.view.source import RowSource

# By the number of an operation (0 append, 1 retract, 2 correct from, 3 correct to).
OPERATIONS: Final = ("insert", "delete", "update_preimage", "update_postimage")
LATE: Final = "late"
# No event time is before it.
_NEVER: Final = -(1 << 63)


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

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return some slices each, operations as words, with what says which records are late."""
        name, vocab = self.events.standing.name, self.events.standing.vocab
        # Whether a record is late depends on the commit it came with.
        events = replace(self.events, apart=True) if self.with_late else self.events
        found = events.pieces(bounds, parts)
        if found is None or not self.with_late:
            return None if found is None else [ChangedSlices(part, str(vocab.op), name) for part in found]
        return [ChangedSlices(part, str(vocab.op), name, self._late_by(part)) for part in found]

    def _late_by(self, piece: RowSource) -> LateBy:
        assert isinstance(piece, Slices)
        vocab = self.events.standing.vocab
        limits = tuple(_limit(self.watermark_before(file.block)) for file in piece.files)
        firsts = tuple(file.first for file in piece.files)
        return LateBy(str(vocab.offset), str(vocab.event_time), str(vocab.op), firsts, limits)

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the events in order."""
        standing = self.events.standing
        vocab = standing.vocab
        own = self.schema
        schema = pa.schema([(own if name in own.names else standing.schema).field(name) for name in columns])
        needed = [name for name in columns if name != LATE or not self.with_late]
        if LATE in columns and self.with_late:
            needed += [name for name in (vocab.event_time, vocab.op) if name not in needed]
        limits: dict[Multihash, int] = {}
        events = replace(self.events, apart=True) if LATE in columns and self.with_late else self.events
        for entry, batch in events.read(needed, bounds):
            found: list[pa.Array] = []
            for name in columns:
                if name == vocab.op:
                    ops = batch.column(needed.index(name))
                    found.append(words_of(ops, f"the slice of block {entry.block}", standing.name))
                elif name == LATE and self.with_late:
                    if entry.block not in limits:
                        limits = {entry.block: _limit(self.watermark_before(entry.block))}
                    times, ops = (batch.column(needed.index(n)) for n in (vocab.event_time, vocab.op))
                    found.append(_late(times, ops, pa.repeat(limits[entry.block], len(times))))
                else:
                    found.append(batch.column(needed.index(name)))
            yield pa.RecordBatch.from_arrays(found, schema=schema) if columns else batch

    def watermark_before(self, block_of_slice: Multihash) -> Instant | None:
        """The watermark recorded before the commit a slice belongs to: late is decided by it, once."""
        chain = self.events.standing.chain
        part = commit_record(chain.block(block_of_slice)).part
        number = chain.sequence_of(block_of_slice)
        before = None if number is None else chain.entry_number(number - part)
        if before is None:
            return None
        block = chain.newest(AddData, ExecuteTransform, upto=before.hash)
        event = block.data_event if block is not None else None
        return event.new_watermark if event is not None else None


@dataclass(frozen=True)
class LateBy:
    """Says which records of some slices are late: before the watermark of the commit that each came after.

    `firsts` are the first offsets of the slices, `limits` the times before which their new rows are late.
    """

    offset: str
    event_time: str
    op: str
    firsts: tuple[int, ...]
    limits: tuple[int, ...]

    @property
    def needed(self) -> tuple[str, str, str]:
        """The columns that it looks at."""
        return self.offset, self.event_time, self.op

    def of(self, offsets: pa.Array, times: pa.Array, ops: pa.Array) -> pa.Array:
        """Say which records are late; those of a slice lie together, and have the next offsets."""
        places = np.searchsorted(np.asarray(self.firsts), np.asarray(offsets), side="right") - 1
        return _late(times, ops, pa.array(np.asarray(self.limits, np.int64)[places]))


@dataclass(frozen=True)
class ChangedSlices:
    """Some slices as changes: a source that can be sent to another process."""

    slices: RowSource
    op: str
    dataset: str
    late: LateBy | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns, with operations as words."""
        there = self.slices.schema
        there = there.set(there.get_field_index(self.op), pa.field(self.op, pa.string(), nullable=False))
        return there if self.late is None else there.append(pa.field(LATE, pa.bool_(), nullable=False))

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
        late = self.late if LATE in columns else None
        needed = list(columns)
        if late is not None:
            needed = list(dict.fromkeys((*(name for name in columns if name != LATE), *late.needed)))
        for batch in self.slices.batches(needed, bounds):
            if late is None and self.op not in columns:
                yield batch
                continue
            found = {name: batch.column(needed.index(name)) for name in needed}
            if late is not None:
                found[LATE] = late.of(*(found[name] for name in late.needed))
            if self.op in columns:
                found[self.op] = words_of(found[self.op], "a slice", self.dataset)
            yield pa.RecordBatch.from_arrays([found[name] for name in columns], schema=schema)


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


def _limit(watermark: Instant | None) -> int:
    """Return the milliseconds before which event times are late."""
    # Event times are dates or whole milliseconds: rounding the watermark up keeps "before it" exact.
    return _NEVER if watermark is None else -(-int(watermark) // 1_000_000)


def _late(times: pa.Array, ops: pa.Array, limits: pa.Array) -> pa.Array:
    """Say which records are late; those that repeat an old row were decided when it came."""
    moments = times.cast(pa.timestamp("ms")) if pa.types.is_date(times.type) else times
    late = pc.less(moments.cast(pa.int64()), limits)
    # Making Arrow values loads pandas, which looking at rows must not wait for.
    from trueline.dataset.append.slices import NEW

    return pc.fill_null(pc.and_(late, pc.is_in(ops, value_set=NEW)), False)
