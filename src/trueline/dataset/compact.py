"""Compacting a dataset: the records of many small slices are written again into few larger files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.chain import Chain
from trueline.chain.compacted import CompactFile, compact_files, keep_files
from trueline.chain.index_rows import SliceEntry
from trueline.chain.store.store import Folder
from trueline.dataset.append.pieces import ROWS_OF_A_SLICE
from trueline.dataset.at import resolve
from trueline.dataset.dataset_at import Standing
from trueline.dataset.read.events import Events
from trueline.dataset.remove.record import removals_of
from trueline.errors import InputError, NotPortable
from trueline.identity.logical import LogicalHasher
from trueline.identity.multihash import physical_hash
from trueline.readers.parquet_file import BoundedFile
from trueline.view.plan.node import Interval

# A file of this many records is large enough: slices of half as many are not written again.
_ROWS_OF_A_FILE: Final = ROWS_OF_A_SLICE
_BATCHES_OF_A_GROUP: Final = 4
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Compacted:
    """What readers find in larger files now: how many of those, and the slices and records they hold."""

    files: int
    slices: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        if not self.files:
            return "nothing to compact: its slices are few, or large"
        return (
            f"{self.slices:,} slices with {self.rows:,} records are read from {self.files:,}"
            f" file{'s' * (self.files != 1)} now, {self.bytes:,} bytes"
        )


def compact(name: str, chain: Chain, *, rows_of_a_file: int = _ROWS_OF_A_FILE) -> Compacted:
    """Write the records of neighbouring small slices into larger files, which reads use and hashes ignore."""
    if removals_of(chain):
        raise InputError(
            f"records were removed from {name!r}, and larger files would hold them again",
            remedy="read it as it is: what was not removed stays readable",
            code="RecordsRemoved",
        )
    tail_at = resolve(chain, None)
    standing = Standing.of(name, chain, tail_at)
    events = Events(standing, tuple(standing.schema.names), apart=True)
    known = {(file.first, file.last, file.block): file for file in compact_files(chain)}
    made: list[CompactFile] = []
    slices = 0
    with chain.store.lease():
        for group in _groups(events.entries(0, standing.last_offset), rows_of_a_file):
            last = group[-1]
            there = known.get((group[0].first, last.last, last.block))
            if there is None or not _is_whole(chain, there):
                there = _written(chain, events, group)
            made.append(there)
            slices += len(group)
        chain.store.sync()
        keep_files(chain, made)
    return Compacted(len(made), slices, sum(file.rows for file in made), sum(file.size for file in made))


def holds_its_slices(name: str, chain: Chain, file: CompactFile) -> bool:
    """Say whether the records of a larger file are those of the slices it stands for.

    Its name is the hash of its bytes, but no block names it. Types that have no logical hash are passed over.
    """
    standing = Standing.of(name, chain, resolve(chain, None))
    with chain.store.open(Folder.DATA, file.hash) as opened, suppress(NotPortable):
        try:
            with closing(BoundedFile(opened, str(file.hash), chain.limits)) as parquet:
                schema = parquet.schema_arrow
                if not set(schema.names) <= set(standing.schema.names):
                    return False
                there, slices = LogicalHasher(schema), LogicalHasher(schema)
                for batch in parquet.all_batches(_BATCH_ROWS):
                    there.update(batch)
        except (InputError, pa.ArrowException):
            return False
        events = Events(standing, tuple(schema.names), apart=True)
        bounds = {standing.vocab.offset: Interval(file.first, file.last)}
        for batch in events.batches(schema.names, bounds):
            slices.update(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
        return there.finish() == slices.finish()
    return True


def _groups(entries: Iterator[SliceEntry], most: int) -> Iterator[list[SliceEntry]]:
    """Yield neighbouring slices that are small, together not more than a file; one alone stays as it is."""
    group: list[SliceEntry] = []
    rows = 0
    for entry in entries:
        count = entry.last - entry.first + 1
        if group and (rows + count > most or 2 * count >= most):
            yield from [group] if len(group) > 1 else []
            group, rows = [], 0
        if 2 * count < most:
            group.append(entry)
            rows += count
    if len(group) > 1:
        yield group


def _is_whole(chain: Chain, file: CompactFile) -> bool:
    with chain.store.open(Folder.DATA, file.hash) as opened:
        return physical_hash(opened) == file.hash


def _written(chain: Chain, events: Events, group: Sequence[SliceEntry]) -> CompactFile:
    """Write the records of some slices into one file, in bounded memory."""
    first, last = group[0].first, group[-1].last
    schema = events.schema.remove_metadata()
    writer = chain.store.writer(Folder.DATA)
    try:
        with (
            pa.output_stream(writer, buffer_size=1 << 20) as sink,
            pq.ParquetWriter(sink, schema, compression="snappy", version="2.6") as parquet,
        ):
            waiting: list[pa.RecordBatch] = []
            bounds = {events.standing.vocab.offset: Interval(first, last)}
            for batch in events.batches(schema.names, bounds):
                waiting.append(batch)
                if len(waiting) == _BATCHES_OF_A_GROUP:
                    parquet.write_table(pa.Table.from_batches(waiting).cast(schema))
                    waiting = []
            if waiting:
                parquet.write_table(pa.Table.from_batches(waiting).cast(schema))
        stored = writer.finish()
    finally:
        writer.abandon()
    return CompactFile(first, last, group[-1].block, stored.hash, stored.size)
