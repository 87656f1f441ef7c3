"""Rows that tasks have staged, each partition as an object of the store, and that another process commits.

Spark's writers have no session where they commit, and offsets are known only there: so tasks type the
rows and stage them, and the commit writes the slices. No block refers to a staged object, so `gc`
removes those of writes that were cut short.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, cast

import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.head_state import Tail
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.frames import EventTimes, frame_rows, typed_frame
from trueline.dataset.append.incoming import Incoming, latest, newest_event
from trueline.dataset.append.intake import fit_rows
from trueline.dataset.append.new_columns import NewColumns
from trueline.dataset.append.pieces import BatchWriter, rows_of_file
from trueline.errors import EnvironmentMissing, StoreError
from trueline.identity.multihash import Multihash
from trueline.kernel.row_fingerprint import Fingerprint

_GATHERED_BYTES: Final = 1 << 20


# --- in a task ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What a task says of the partition it staged: which object holds its rows, None if there are none.

    `head` is the block whose schema the rows were typed for.
    """

    partition: int
    head: Multihash
    object: Multihash | None
    ends: tuple[int, ...]
    times: EventTimes
    fingerprint: Fingerprint

    @property
    def rows(self) -> int:
        return self.fingerprint.rows


@dataclass(frozen=True, slots=True)
class StagePartition:
    """Types the rows of a partition for a dataset and stages them; small, so that tasks are handed it."""

    store: Store
    schema: pa.Schema
    typed: Tail
    with_op: bool
    new: NewColumns = "error"

    @classmethod
    def of(cls, store: Store, schema: pa.Schema, tail: Tail, new: NewColumns = "error") -> StagePartition:
        """Prepare for the rows of a frame with an Arrow schema, or say what keeps them from the dataset."""
        typed, with_op, _ = typed_frame(schema, tail, new)
        return cls(store, schema, typed, with_op, new)

    def __call__(self, partition: int, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Stage a partition; each attempt has an object of its own, which is durable when this returns."""
        newest, rounded, digest = None, 0, Fingerprint()
        rows: BatchWriter | None = None
        ends: tuple[int, ...] = ()
        name: Multihash | None = None
        with self.store.lease():
            target = self.store.writer(Folder.DATA)
            try:
                for batch in batches:
                    # Spark sends instants in the zone of the session.
                    given = pa.Table.from_batches([batch]).cast(self.schema)
                    fitted = fit_rows(given, self.typed, with_op=self.with_op, new=self.new)
                    if rows is None:
                        file = cast("BinaryIO", pa.output_stream(target, buffer_size=_GATHERED_BYTES))
                        rows = BatchWriter(file, _marked(fitted.table.schema))
                    rows.write(fitted.table)
                    newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
                    digest += Fingerprint.of(fitted.table, self._digested(fitted.table))
                if rows is not None and rows.rows:
                    ends, name = rows.close(), target.finish().hash
            finally:
                target.abandon()
            self.store.sync()
        return StagedPart(partition, self.typed.head, name, ends, EventTimes(newest, rounded), digest)

    def _digested(self, rows: pa.Table) -> list[str]:
        """The columns that say whether rows are the same: those that were handed in."""
        given = [name for name in rows.column_names if name in self.schema.names]
        return given or [self.typed.vocab.event_time]


def _marked(schema: pa.Schema) -> pa.Schema:
    """Return a schema that no other has, so that no two staged objects are the same object.

    Of two writers of equal rows the first to commit would remove what the other is about to read.
    """
    return schema.with_metadata({"staged": uuid.uuid4().hex})


# --- where they are committed ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """The rows of a partition, as a piece."""

    store: Store
    name: Multihash
    rows: int
    ends: tuple[int, ...]

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Read the rows [start, stop), some at a time."""
        with self.store.open(Folder.DATA, self.name) as file:
            for table in rows_of_file(file, self.ends, start, stop):
                yield table.replace_schema_metadata(None)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What `Dataset.append` takes for rows that were staged: the parts of a frame with an Arrow schema."""

    schema: pa.Schema
    parts: tuple[StagedPart, ...]

    def take(self, chain: Chain, tail: Tail, new: NewColumns = "error") -> Incoming:
        """Return the rows, in the order of the partitions."""
        parts = {part.partition: part for part in reversed(self.parts)}
        counted = [parts[number] for number in sorted(parts)]
        _check_there(chain.store, counted)
        # Typed as the tasks have typed them; what others did to the schema since is met at the commit.
        known = {part.head for part in counted}
        at = chain.tail_at(known.pop()) if known else tail
        typed, with_op, ignored = typed_frame(self.schema, at, new)
        pieces = tuple(
            StagedPiece(chain.store, part.object, part.rows, part.ends)
            for part in counted
            if part.object is not None
        )
        times = [part.times for part in counted]
        incoming = frame_rows(pieces, times, self.schema, typed, with_op=with_op, ignored=ignored, new=new)
        digest = sum((part.fingerprint for part in counted), Fingerprint())
        return replace(incoming, digest=str(digest))

    def discard(self, store: Store) -> None:
        """Remove what was staged; what cannot be removed is left to `gc`."""
        for part in self.parts:
            if part.object is not None:
                with suppress(StoreError):
                    store.delete(Folder.DATA, part.object)


def _check_there(store: Store, parts: list[StagedPart]) -> None:
    """Check that this process sees every object: where a folder is not shared, some are on other machines."""
    gone = [part for part in parts if part.object and store.size(Folder.DATA, part.object) is None]
    if gone:
        raise EnvironmentMissing(
            f"the rows of {len(gone)} of {len(parts)} partitions were staged in {store.location}, "
            "but where they are committed they are not to be seen",
            remedy="choose a folder that all machines of the cluster share, or an object store; "
            "if they share it, a collection has removed the rows: write them again",
            code="FolderNotShared",
            folder=store.location,
        )
