"""The events of a dataset as a source: slices in the order of offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from trueline.chain.compacted import CompactFile, compact_files
from trueline.chain.events import DataSlice, OffsetInterval
from trueline.chain.index_rows import SliceEntry
from trueline.chain.store.file import FileStore
from trueline.dataset.dataset_at import Standing
from trueline.dataset.read.slice_reader import SliceFile, Slices
from trueline.errors import CorruptionError
from trueline.identity.multihash import Multihash
from trueline.lazy import kept_property
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds, Interval, step_of
from trueline.view.source import RowSource

_KEPT_AT_ONCE: Final = 256
_ROWS_OF_A_PIECE: Final = 1 << 20
Times = tuple[int | None, int | None]


@dataclass(frozen=True)
class Events:
    """The records (after, upto] of a dataset; `columns` are those a reader sees.

    Where slices were compacted the larger files are read, unless each is wanted `apart`.
    """

    standing: Standing
    columns: tuple[str, ...]
    first: int = 0
    after: Multihash | None = None
    apart: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns a reader sees."""
        return self.schema_of(self.columns)

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """Some columns of the dataset, with or without the system's."""
        return pa.schema([self.standing.schema.field(name) for name in columns])

    @property
    def row_count(self) -> int | None:
        """Offsets are dense, and removals are counted, so the number of records is known."""
        count = self.standing.last_offset - self.first + 1
        return count - self.standing.removed(self.first) if count > 0 else count

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The dataset and the commit."""
        return self.standing.origin(self.after, self.first)

    @property
    def ordinal(self) -> str | None:
        """Who a row is: the offset of its event."""
        return str(self.standing.vocab.offset)

    def explain(self) -> list[str]:
        """Say which offsets are read."""
        end = self.standing.last_offset
        span = f"offsets {self.first:,} to {end:,}" if end >= self.first else "no records"
        return [f"slices of {', '.join(map(str, self.origins.values()))}: {span}"]

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return the slices the bounds do not rule out, in groups of at most about a million records."""
        first, last, times = self._within(bounds)
        most = min(_ROWS_OF_A_PIECE, -(-max(0, last - first + 1) // parts)) if parts > 0 else _ROWS_OF_A_PIECE
        found: list[RowSource] = []
        group: list[SliceFile] = []
        for entry, file in self._files(first, last, times, backwards=False):
            group.append(file)
            if entry.last - group[0].first + 1 >= most:
                found.append(self._piece(group, first, last))
                group = []
        return [*found, self._piece(group, first, last)] if group else found

    def _piece(self, files: Sequence[SliceFile], first: int, last: int) -> RowSource:
        vocab = self.standing.vocab
        span = (max(first, files[0].first), min(last, files[-1].last))
        return Slices(tuple(files), self.standing.schema, vocab.offset, span)

    def files(self) -> Sequence[str] | None:
        """Return the files of the slices if they lie in a folder; a missing one is an error now."""
        chain = self.standing.chain
        if not isinstance(chain.store, FileStore):
            return None
        found = []
        for entry in self.entries(self.first, self.standing.last_offset):
            file = self.file(entry)
            file.check_present()
            if file.place is not None:
                found.append(str(Path(chain.store.location, *file.place)))
        return found

    def plain_files(self, schema: pa.Schema, most: int, rows: int) -> Sequence[str] | None:
        """Return the files if they lie in a folder and whoever reads Parquet can be sent to them.

        That is: there are not more than `most`, they have these columns in these types and none that differs
        by case only, and so many rows of them can be decoded together. A damaged one is an error now.
        """
        store, standing = self.standing.chain.store, self.standing
        lower = [name.lower() for name in standing.schema.names]
        if not isinstance(store, FileStore) or len(set(lower)) < len(lower):
            return None
        entries = list(islice(self.entries(self.first, standing.last_offset), most + 1))
        if len(entries) > most:
            return None
        found = []
        for entry in entries:
            file = self.file(entry)
            if file.first < self.first or (
                file.place and not file.is_plain(schema, standing.vocab.offset, rows)
            ):
                return None
            if file.place is not None:
                found.append(str(Path(store.location, *file.place)))
        return found

    def most_values(self, name: str, most: int) -> int | None:
        """Return what the different values of a column of whole numbers cannot be more than, without nulls.

        None where the footers of the slices do not say, or there are more slices than `most`.
        """
        field, offset = self.standing.schema.field(name), self.standing.vocab.offset
        if pa.types.is_boolean(field.type):
            return 2
        if step_of(field.type) is None or pa.types.is_unsigned_integer(field.type):
            return None
        entries = list(islice(self.entries(self.first, self.standing.last_offset), most + 1))
        if len(entries) > most:
            return None
        ranges = [self.file(entry).times(field, offset) for entry in entries]
        lows = [each[0] for each in ranges if each is not None and each[0] is not None]
        highs = [each[1] for each in ranges if each is not None and each[1] is not None]
        if None in ranges:
            return None
        return max(highs) - min(lows) + 1 if lows else 0

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the records in order, leaving out slices and groups of rows that the bounds rule out."""
        for _, batch in self.read(columns, bounds):
            yield batch

    def read(
        self, columns: Sequence[str], bounds: Bounds, *, backwards: bool = False
    ) -> Iterator[tuple[SliceEntry, pa.RecordBatch]]:
        """Yield the records with the slice they are in."""
        vocab = self.standing.vocab
        schema = self.schema_of(columns)
        first, last, times = self._within(bounds)
        for entry, file in self._files(first, last, times, backwards=backwards):
            for batch in file.read(schema, vocab.offset, first=first, last=last, bounds=bounds):
                yield entry, batch

    def _within(self, bounds: Bounds) -> tuple[int, int, Bounds]:
        """The offsets, and the event times, that bounds leave."""
        vocab = self.standing.vocab
        wanted = bounds.get(vocab.offset, Interval())
        first = self.first if wanted.low is None else max(self.first, wanted.low)
        last = self.standing.last_offset
        last = last if wanted.high is None else min(last, wanted.high)
        return first, last, {name: bounds[name] for name in (vocab.event_time,) if name in bounds}

    def _files(
        self, first: int, last: int, times: Bounds, *, backwards: bool
    ) -> Iterator[tuple[SliceEntry, SliceFile]]:
        """Yield the slices that can hold what is asked for, learning on the way what the others hold."""
        learnt: dict[Multihash, Times] = {}
        try:
            for entry, file in self._readable(first, last, times, backwards=backwards):
                known = entry.times
                if times and known is None:
                    vocab = self.standing.vocab
                    known = file.times(self.standing.schema.field(vocab.event_time), vocab.offset)
                    if known is not None:
                        if file.data.physical_hash not in self._compacted:
                            learnt[entry.block] = known
                        if not self._meets(known, times):
                            continue
                yield entry, file
                if len(learnt) >= _KEPT_AT_ONCE:
                    self.standing.chain.keep_times(learnt)
                    learnt = {}
        finally:
            if learnt:
                self.standing.chain.keep_times(learnt)

    def _readable(
        self, first: int, last: int, times: Bounds, *, backwards: bool
    ) -> Iterator[tuple[SliceEntry, SliceFile]]:
        """Yield what holds the records: larger files where there are some, slices elsewhere."""
        at = first
        for large in () if backwards else self._compacted.values():
            if large.first < at or large.last > last:
                continue
            yield from self._slices(at, large.first - 1, times, backwards=False)
            number = self.standing.chain.sequence_of(large.block) or 0
            entry = SliceEntry(large.first, large.last, number, large.block, None)
            yield entry, self._large_file(large)
            at = large.last + 1
        yield from self._slices(at, last, times, backwards=backwards)

    def _slices(
        self, first: int, last: int, times: Bounds, *, backwards: bool
    ) -> Iterator[tuple[SliceEntry, SliceFile]]:
        for entry in self.entries(first, last, backwards=backwards):
            if times and entry.times is not None and not self._meets(entry.times, times):
                continue
            yield entry, self.file(entry)

    @kept_property
    def _compacted(self) -> dict[Multihash, CompactFile]:
        """The larger files up to here; none where records were removed, which they would still hold."""
        chain, position = self.standing.chain, self.standing.position
        if self.apart or self.standing.removals:
            return {}
        found = compact_files(chain)
        return {file.hash: file for file in found if chain.is_ancestor(file.block, position.block)}

    def _large_file(self, large: CompactFile) -> SliceFile:
        chain = self.standing.chain
        interval = OffsetInterval(large.first, large.last)
        data = DataSlice(large.hash, large.hash, interval, large.size)
        return SliceFile(self.standing.name, chain.store, large.block, data, None, chain.limits)

    def entries(self, first: int, last: int, *, backwards: bool = False) -> Iterator[SliceEntry]:
        """Yield what the index knows of the slices with these offsets."""
        if first > last:
            return
        found = self.standing.chain.slices(first, last, self.standing.position.block)
        yield from reversed(list(found)) if backwards else found

    def file(self, entry: SliceEntry) -> SliceFile:
        """Return the file of a slice; its block is read, and proven by its hash."""
        chain = self.standing.chain
        event = chain.block(entry.block).data_event
        data = event.new_data if event is not None else None
        if data is None or (data.offset_interval.start, data.offset_interval.end) != (
            entry.first,
            entry.last,
        ):
            raise CorruptionError(
                f"{self.standing.name}: the index names block {entry.block} for the offsets {entry.first:,} "
                f"to {entry.last:,}, which are not in it",
                remedy="delete the index of the dataset (.trueline/index), it is rebuilt",
                code="IndexWrong",
                block=entry.block,
            )
        hole = self.standing.removals.hole(data)
        limits = chain.limits
        return SliceFile(self.standing.name, chain.store, entry.block, data, hole, limits)

    def _meets(self, known: Times, times: Bounds) -> bool:
        low, high = known
        if low is None or high is None:
            return False
        name = self.standing.vocab.event_time
        step = step_of(self.standing.schema.field(name).type) or 1
        return times[name].meets(low * step, high * step)
