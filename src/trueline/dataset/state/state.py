"""State: the current row of every key, kept so that an update writes what it touches (decision 18).

Rows lie in immutable segments sorted by key. The oldest generation is the
base; each update adds one, and the newest row of a key counts. A checkpoint
names the files. They are a cache: when one is missing, the owner rebuilds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.store.store import Store
from trueline.dataset.state.lookup import RoomForRows, RoomIsFull, found_rows
from trueline.dataset.state.segment import (
    BOUND_BYTES,
    GONE,
    SegmentInfo,
    rows_of,
    write_segment,
    write_segments,
)
from trueline.dataset.state.segment_reader import Reads, SegmentReader
from trueline.errors import CorruptionError, InputError, SchemaError
from trueline.identity.multihash import Multihash
from trueline.kernel.key_encoding import KEY, KeyEncoding, KeyRange, splitters_by_rank
from trueline.kernel.sorted_keys import as_array, ascends, merged, repeats, sorting, unified

Generation = tuple[SegmentInfo, ...]
_GENERATIONS_AT_MOST: Final = 100_000


class State:
    """The rows of a dataset by key, as one checkpoint has them; a value: updates return another.

    Its keys all have one `encoding`. `reads` counts what was read through this state and those made from it.

    >>> from trueline.chain.store.memory import MemoryStore
    >>> from trueline.kernel.key_encoding import encode_keys
    >>> rows = pa.table({"city": ["kyiv", "oslo"], "people": [3, 1]})
    >>> keys = encode_keys(rows, ["city"])
    >>> delta = rows.add_column(0, "_gone", [[False, False]]).add_column(0, "_key", keys)
    >>> state = State.open(MemoryStore(), None).apply(delta)
    >>> state.lookup(keys[1:], ["people"]).column("people").to_pylist()
    [1]

    >>> state.lookup_within(keys, 1_000).num_rows, state.lookup_within(keys, 10)
    (2, None)
    >>> [file.size for file in state.files] == [state.size], state.schema.names
    (True, ['city', 'people'])
    >>> [batch.num_rows for batch in state.scan(["people"])], state.splitters(2), state.due
    ([2], [], None)
    >>> state.verify()
    >>> state.verify_segment(state.generations[0][0])
    >>> more = state.apply_parts([state.write_part(delta.slice(0, 1))]).compact_if_needed()
    >>> more.replaced(0, more.write_merged(0)).lookup(keys).num_rows
    2
    >>> len(more.merged_with(delta).generations)
    1
    """

    def __init__(
        self,
        store: Store,
        name: str = "state",
        generations: Sequence[Generation] = (),
        encoding: KeyEncoding = KeyEncoding.MERGE,
        *,
        readers: dict[Multihash, SegmentReader] | None = None,
        reads: Reads | None = None,
    ) -> None:
        self.store = store
        self.name = name
        self.generations = tuple(generations)
        self.encoding = encoding
        self.reads = reads or Reads()
        known = readers or {}
        self._readers = {
            info.hash: known.get(info.hash) or SegmentReader(store, info, self.reads)
            for generation in self.generations
            for info in generation
        }

    def __reduce__(self) -> tuple[object, ...]:
        # What was read stays here: another process opens the files for itself.
        return type(self), (self.store, self.name, self.generations, self.encoding)

    def __repr__(self) -> str:
        sizes = [sum(info.size for info in generation) for generation in self.generations]
        return f"State({self.name!r}, {len(sizes)} generations, {sum(sizes):,} bytes)"

    @classmethod
    def open(
        cls,
        store: Store,
        checkpoint: CheckpointFile | None,
        name: str = "state",
        *,
        encoding: KeyEncoding | None = None,
    ) -> Self:
        """Return the state a checkpoint names; an empty one without a checkpoint. Nothing is read yet.

        Whoever looks keys up says in which `encoding` they are; another one is refused.
        """
        files = [file for file in (checkpoint.files if checkpoint else ()) if file.notes.get("state") == name]
        generations = _generations(files)
        there = {info.encoding for generation in generations for info in generation}
        wanted = KeyEncoding(encoding or next(iter(there), KeyEncoding.MERGE))
        if there - {wanted}:
            found = ", ".join(map(str, sorted(there)))
            raise CorruptionError(
                f"the state {name!r} has keys of encoding {found}, not {int(wanted)}",
                remedy="rebuild the state from the dataset",
                code="StateCorrupt",
            )
        return cls(store, name, generations, wanted)

    @property
    def files(self) -> tuple[StateFile, ...]:
        """What the checkpoint is to list."""
        return tuple(
            info.to_file(self.name, number, part)
            for number, generation in enumerate(self.generations)
            for part, info in enumerate(generation)
        )

    @property
    def size(self) -> int:
        """How many bytes the files have."""
        return sum(info.size for generation in self.generations for info in generation)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are kept: those of the newest generation, which has them all."""
        return self._readers[self.generations[-1][0].hash].schema if self.generations else pa.schema([])

    # --- reading ------------------------------------------------------------

    def lookup(self, keys: pa.BinaryArray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return `_key` and columns of those keys that are there, in key order, each once.

        Groups of rows whose range holds none of the keys are not read.
        """
        return self._lookup(keys, columns, RoomForRows())

    def lookup_within(
        self, keys: pa.BinaryArray, most: int, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """Return what `lookup` does; None as soon as that has more than so many bytes."""
        try:
            return self._lookup(keys, columns, RoomForRows(most))
        except RoomIsFull:
            return None

    def _lookup(self, keys: pa.BinaryArray, columns: Sequence[str] | None, room: RoomForRows) -> pa.Table:
        wanted = self._wanted(columns)
        keys = as_array(keys)
        if keys.null_count:
            raise InputError(
                "a key to look up is null", remedy="leave out rows without a key", code="NullKey"
            )
        order = sorting(keys)
        keys = keys if order is None else keys.take(pa.array(order))
        again = repeats(keys)
        if again.any():
            keys = keys.filter(pa.array(~again))
        newest_first = [
            [self._readers[info.hash] for info in generation] for generation in reversed(self.generations)
        ]
        return found_rows(newest_first, keys, wanted, room)

    def splitters(self, parts: int) -> list[bytes]:
        """Return keys that cut the base into about equal ranges, for work that is done range by range."""
        base = self.generations[0] if self.generations else ()
        starts = [start for info in base for start in self._readers[info.hash].group_starts()]
        return splitters_by_rank(starts, parts)

    def scan(
        self, columns: Sequence[str] | None = None, key_range: KeyRange | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield `_key` and columns of all rows in key order, holding one group of rows of each generation."""
        for table in self._scan(self._wanted(columns), key_range, 0, with_gone=False):
            yield from table.drop_columns([GONE]).combine_chunks().to_batches()

    def _wanted(self, columns: Sequence[str] | None) -> pa.Schema:
        schema = self.schema
        if columns is None:
            return schema
        unknown = [name for name in columns if name not in schema.names]
        if unknown and self.generations:
            raise SchemaError(
                f"the state has no column {unknown[0]!r}, its columns are {', '.join(schema.names)}",
                remedy="ask for columns that are kept",
                column=unknown[0],
            )
        return pa.schema([schema.field(name) for name in columns if name in schema.names])

    def _scan(
        self, wanted: pa.Schema, key_range: KeyRange | None, start: int, *, with_gone: bool
    ) -> Iterator[pa.Table]:
        """Merge the generations from `start` on."""
        streams = [self._stream(generation, wanted, key_range) for generation in self.generations[start:]]
        return _merged(streams, with_gone=with_gone)

    def _stream(
        self, generation: Generation, wanted: pa.Schema, key_range: KeyRange | None
    ) -> Iterator[pa.Table]:
        schema = rows_of(wanted)
        last: bytes | None = None
        for info in generation:
            if not info.overlaps(key_range):
                continue
            for rows in self._readers[info.hash].stream(wanted.names, key_range):
                if last is not None and rows[KEY][0].as_py() <= last:
                    raise _disordered(info.hash)
                last = rows[KEY][-1].as_py()
                yield unified(rows, schema)

    def verify(self) -> None:
        """Hash every file and look at every row group; raises `StateMissing` or `CorruptionError`."""
        for reader in self._readers.values():
            reader.verify()

    def verify_segment(self, segment: SegmentInfo) -> None:
        """Hash one file and look at its row groups, as `verify` does for all."""
        self._readers[segment.hash].verify()

    # --- writing ------------------------------------------------------------

    def apply(self, delta: pa.Table) -> Self:
        """Return the state after an update: `_key`, `_gone` (the key is removed) and all columns.

        Stages one new segment and nothing else. Keys need no order, but each
        may come once. Columns may be added; older rows lack them.
        """
        return self.apply_parts([delta])

    def apply_parts(self, parts: Sequence[pa.Table | Sequence[SegmentInfo]]) -> Self:
        """Return the state after one update that comes in parts of separate, ascending key ranges.

        A part is rows, or segments that a task has written with `write_part`; the cuts do not show.
        """
        generation: list[SegmentInfo] = []
        for part in parts:
            generation += self.write_part(part) if isinstance(part, pa.Table) else part
        _check_parts(generation)
        return self._with((*self.generations, tuple(generation))) if generation else self

    def write_part(self, delta: pa.Table) -> tuple[SegmentInfo, ...]:
        """Stage the segments of a part of an update, for `apply_parts`."""
        rows, payload = _checked(delta, self.schema)
        if not self.generations:
            rows = rows.filter(pc.invert(rows[GONE]))
        return self._encoded(write_segment(self.store, rows, payload))

    @property
    def due(self) -> int | None:
        """The generation from which on all should become one, by the rules of `compaction`."""
        return rewritten_from([sum(info.rows for info in generation) for generation in self.generations])

    def compact_if_needed(self) -> Self:
        """Return the same rows in fewer files, if the rules of `compaction` ask for it."""
        start = self.due
        return self if start is None else self.replaced(start, self.write_merged(start))

    def merged_with(self, delta: pa.Table) -> Self:
        """Return the state after an update that is merged with all there is, in fewer files at once."""
        self._check_hashes(0, None)
        rows, payload = _checked(delta, self.schema)
        streams = [self._stream(generation, payload, None) for generation in self.generations]
        newest = iter([unified(rows, rows_of(payload))])
        after = _merged([*streams, newest], with_gone=False)
        return self.replaced(0, write_segments(self.store, after, payload))

    def write_merged(
        self, start: int, key_range: KeyRange | None = None, *, verified: bool = False
    ) -> tuple[SegmentInfo, ...]:
        """Stage the generations from `start` on as one, or that of it which lies in a key range.

        Where several tasks write a range each, the caller may verify once and say so.
        """
        if not verified:
            self._check_hashes(start, key_range)
        schema = self.schema
        rows = self._scan(schema, key_range, start, with_gone=start > 0)
        return self._encoded(write_segments(self.store, rows, schema))

    def _check_hashes(self, start: int, key_range: KeyRange | None) -> None:
        """Hash files that are to be rewritten: a rewrite must not give damaged rows a good name."""
        for info in (info for generation in self.generations[start:] for info in generation):
            if info.overlaps(key_range):
                self._readers[info.hash].check_hash()

    def _encoded(self, segments: Sequence[SegmentInfo]) -> tuple[SegmentInfo, ...]:
        """Note how the keys of new segments are encoded."""
        return tuple(replace(info, encoding=int(self.encoding)) for info in segments)

    def replaced(self, start: int, segments: Sequence[SegmentInfo]) -> Self:
        """Return the state with the generations from `start` on replaced by their merged segments."""
        _check_parts(segments)
        merged_segments = self._encoded(segments)
        return self._with((*self.generations[:start], *([merged_segments] if segments else [])))

    def _with(self, generations: Sequence[Generation]) -> Self:
        return type(self)(
            self.store, self.name, generations, self.encoding, readers=self._readers, reads=self.reads
        )


def _merged(streams: Sequence[Iterator[pa.Table]], *, with_gone: bool) -> Iterator[pa.Table]:
    for table in merged(streams, KEY):
        rows = table if with_gone else table.filter(pc.invert(table[GONE]))
        if rows.num_rows:
            yield rows


def _checked(delta: pa.Table, known: pa.Schema) -> tuple[pa.Table, pa.Schema]:
    """Return an update sorted by key, and the columns it keeps; refuse what would not be state."""
    for name, kind in ((KEY, pa.binary()), (GONE, pa.bool_())):
        if name not in delta.schema.names or delta.schema.field(name).type != kind:
            raise InputError(f"an update of state needs the column {name!r} of type {kind}", remedy="add it")
        if delta[name].null_count:
            raise InputError(f"an update of state has rows without {name!r}", remedy="leave them out")
    payload = pa.schema([field for field in delta.schema if field.name not in (KEY, GONE)])
    for field in known:
        if field.name not in payload.names or payload.field(field.name).type != field.type:
            raise SchemaError(
                f"an update of state has no column {field.name!r} of type {field.type}",
                remedy="give every column that is kept; columns may only be added",
                column=field.name,
            )
    # The columns that are known keep their order, so that the newest generation has them all.
    payload = pa.schema([*known, *(field for field in payload if field.name not in known.names)])
    keys = as_array(delta[KEY])
    order = sorting(keys)
    if order is not None:
        delta = delta.take(pa.array(order))
        keys = as_array(delta[KEY])
    if not ascends(keys):
        twice = keys.filter(pa.array(repeats(keys)))
        raise InputError(
            f"{len(twice):,} keys occur twice in an update of state, the first is {twice[0].as_py()!r}",
            remedy="give one row for each key",
            code="DuplicateKeys",
        )
    return delta, payload


def _generations(files: Sequence[StateFile]) -> list[Generation]:
    """Put the files of a state in order; refuse numbers that leave gaps and ranges that overlap."""
    found: dict[int, dict[int, SegmentInfo]] = {}
    for file in files:
        number, part = _number(file, "generation"), _number(file, "part")
        if part in found.setdefault(number, {}):
            raise _disordered(file.hash)
        found[number][part] = SegmentInfo.from_file(file)
    generations = []
    for number, (given, parts) in enumerate(sorted(found.items())):
        if number != given or sorted(parts) != list(range(len(parts))):
            raise _disordered(files[0].hash)
        generation = tuple(parts[part] for part in sorted(parts))
        try:
            _check_parts(generation)
        except InputError:
            raise _disordered(files[0].hash) from None
        generations.append(generation)
    return generations


def _number(file: StateFile, what: str) -> int:
    value: Any = file.notes.get(what)
    if type(value) is not int or not 0 <= value < _GENERATIONS_AT_MOST:
        raise _disordered(file.hash)
    return value


def _disordered(name: Multihash) -> CorruptionError:
    return CorruptionError(
        f"the checkpoint's list of state files is out of order at {name.short}",
        remedy="rebuild the state from the dataset",
        code="StateCorrupt",
        hash=name,
    )


def _check_parts(parts: Sequence[SegmentInfo]) -> None:
    for before, after in pairwise(parts):
        # Bounds of long keys are cut short and may meet; reading such parts looks at the keys themselves.
        exact = len(after.first_key) < BOUND_BYTES
        if (before.last_key if exact else before.first_key) >= after.first_key + (b"" if exact else b"\x00"):
            raise InputError(
                "the parts of an update overlap",
                remedy="cut it into ascending ranges of keys, each key in one",
            )


# Of the base's rows: newer segments together, before the base is rewritten.
NEWER_AT_MOST: Final = 0.25
# A look-up through 50 was as fast as through 10 at 5 M keys, but every one is a file to open and to list.
SEGMENTS_AT_MOST: Final = 32
# Of the base's rows: a segment that is merged with its neighbours. Larger ones wait for the base.
SMALL: Final = 0.04


def rewritten_from(sizes: Sequence[int]) -> int | None:
    """Return the generation from which on all are to be merged into one (0 is the base), None for no need.

    `sizes` are the rows of the generations, the base first.

    >>> rewritten_from([100, 10, 10]), rewritten_from([100, 20, 10]), rewritten_from([1000, *[2] * 32])
    (None, 0, 1)
    """
    if len(sizes) < 2:
        return None
    base = sizes[0]
    if sum(sizes[1:]) > NEWER_AT_MOST * base:
        return 0
    if len(sizes) <= SEGMENTS_AT_MOST:
        return None
    start = len(sizes)
    while start > 1 and sizes[start - 1] <= SMALL * base:
        start -= 1
    return start if len(sizes) - start > 1 else 0
