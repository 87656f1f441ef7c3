"""The current rows of a dataset whose events replace each other: one for each key, in key order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.block import record_of
from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.counts import kept_counts
from trueline.chain.events import AddData
from trueline.chain.store.store import Store
from trueline.dataset.dataset_at import Standing
from trueline.dataset.merge.result import TAKES_AWAY
from trueline.dataset.read.events import Events
from trueline.dataset.read.fold import folded, last
from trueline.dataset.state import KEY, OFFSET, KeyRange, State, encode_keys, ranges
from trueline.errors import StateMissing
from trueline.kernel.sorted_keys import as_array, find, unified
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds, Interval, step_of
from trueline.view.source import RowSource

# Under which name the state keeps the offset of the event that set a row.
_BYTES_OF_A_PIECE: Final = 64 << 20


@dataclass(frozen=True)
class NamedState:
    """A state, and under which names it keeps what was asked for."""

    state: State
    names: Mapping[str, str]

    def rows(self, key_range: KeyRange, only: tuple[bytes, ...] | None) -> Iterator[pa.Table]:
        """Yield the rows in a range of keys, or of some keys, under the names that were asked for."""
        if only is not None:
            yield self.of(pa.array(only, pa.binary()))
            return
        for batch in self.state.scan(list(self.names.values()), key_range):
            yield self.named(pa.Table.from_batches([batch]))

    def of(self, keys: pa.BinaryArray) -> pa.Table:
        """Return the rows of some keys, in ascending order, that have one."""
        return self.named(self.state.lookup(keys, list(self.names.values())))

    def named(self, rows: pa.Table) -> pa.Table:
        """Give rows of the state the names that were asked for, `_key` first."""
        return rows.select([KEY, *self.names.values()]).rename_columns([KEY, *self.names])


@dataclass(frozen=True)
class CurrentRows:
    """Per key the row with the highest offset, unless it was retracted.

    Read from the state a commit names; without one, folded from the events. Both give the same. A reader
    that will miss no row but those of some keys says so (`only`, in ascending order); others may come too.
    """

    standing: Standing
    columns: tuple[str, ...]
    only: tuple[bytes, ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns a reader sees."""
        return pa.schema([self.standing.schema.field(name) for name in self.columns])

    @property
    def row_count(self) -> int | None:
        """Not known: it takes reading the keys to count them."""
        return 0 if self.standing.last_offset < 0 else None

    @property
    def noted_count(self) -> int | None:
        """How many rows the commit notes: to be shown, since whoever wrote it may have been wrong.

        What was removed later is not in it.
        """
        chain, tail = self.standing.chain, self.standing.tail
        if self.standing.removals:
            return None
        noted = record_of(tail.data).current_rows if isinstance(tail.data, AddData) else None
        return noted if noted is not None else kept_counts(chain, tail.head).current

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The dataset and the commit."""
        return self.standing.origin()

    @property
    def ordinal(self) -> str | None:
        """Who a row is: the offset of the event that last set it."""
        return str(self.standing.vocab.offset)

    @property
    def travels(self) -> bool:
        """Whether other processes can read its pieces: they are ranges of the state, if that is kept."""
        return self.kept(tuple(dict.fromkeys((*self.columns, self.standing.vocab.offset)))) is not None

    def explain(self) -> list[str]:
        """Say where the rows come from."""
        how = "the state kept there" if self.kept(self.columns) is not None else "all its events"
        key = ", ".join(self.standing.key)
        return [f"current rows of {next(iter(self.origins.values()))} by {key}, from {how}"]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in key order."""
        kept = self.kept(columns)
        if kept is None:
            yield from self.from_events(columns)
            return
        schema = pa.schema([self.standing.schema.field(name) for name in columns])
        found = False
        try:
            for rows in kept.rows(self.keys_within(bounds), self.only):
                found = True
                yield from _shaped(rows, schema).to_batches()
        except StateMissing:
            # Lost between looking and reading; what was given out cannot be taken back.
            if found:
                raise
            yield from self.from_events(columns)

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return ranges of keys of the state; without one the rows are folded in this process."""
        offset = self.standing.vocab.offset
        kept = self.kept(tuple(dict.fromkeys((*self.columns, offset))))
        if kept is None:
            return None
        state, schema = kept.state, self.standing.schema
        if self.only is not None:
            return [StateRange(state.store, state.files, kept.names, schema, KeyRange(), offset, self.only)]
        parts = max(1, parts, -(-state.size // _BYTES_OF_A_PIECE))
        wanted = self.keys_within(bounds)
        found = [each & wanted for each in ranges(state.splitters(parts))]
        return [
            StateRange(state.store, state.files, kept.names, schema, key_range, offset)
            for key_range in found
            if not key_range.is_empty
        ]

    def keys_within(self, bounds: Bounds) -> KeyRange:
        """Return the keys that bounds leave: those of the first column of the key count.

        What they say of other columns does not: an event outside of them may have replaced one inside.
        """
        first = self.standing.key[0]
        wanted, kind = bounds.get(first, Interval()), self.standing.schema.field(first).type
        step = step_of(kind)
        if step is None or pa.types.is_unsigned_integer(kind):
            return KeyRange()
        bits = kind.bit_width - 1
        low = None if wanted.low is None else max(-(-wanted.low // step), -(1 << bits))
        high = None if wanted.high is None else min(wanted.high // step, (1 << bits) - 1)
        if (low is not None and low >= 1 << bits) or (high is not None and high < -(1 << bits)):
            return KeyRange(b"", b"")
        return KeyRange(
            None if low is None else self._key_of(low, kind),
            None if high is None or high == (1 << bits) - 1 else self._key_of(high + 1, kind),
        )

    def _key_of(self, number: int, kind: pa.DataType) -> bytes:
        """Return what the keys begin with whose first column has a value, as it is stored."""
        stored = pa.array([number], pa.int64()).cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        values = stored.cast(kind) if kind.bit_width < 32 else stored.view(kind)
        return bytes(encode_keys(pa.table({"": values}), [""])[0].as_py())

    def sent(self) -> KeptRows | None:
        """Return what finds rows by key in other processes: the state, if it is kept."""
        kept = self.kept(self.columns)
        if kept is None:
            return None
        return KeptRows(kept.state.store, kept.state.files, kept.names, self.standing.schema)

    def files(self) -> Sequence[str] | None:
        """No file holds the current rows as they are."""
        return None

    def from_events(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows without the state."""
        schema = pa.schema([self.standing.schema.field(name) for name in columns])
        for table in self.folded(columns):
            yield from _shaped(table, schema).to_batches()

    def folded(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield `_key` and columns of the current rows, computed from the events."""
        standing = self.standing
        if not standing.schema.names:
            return
        vocab = standing.vocab
        needed = tuple(dict.fromkeys((*columns, *standing.key, vocab.offset, vocab.op)))
        events = Events(standing, needed)
        for table in folded(
            events.batches(needed, NO_BOUNDS),
            events.schema,
            key=standing.merge_key,
            offset=vocab.offset,
            keep=last,
        ):
            gone = pc.is_in(table[vocab.op], pa.array(TAKES_AWAY, table.schema.field(vocab.op).type))
            there = table.filter(pc.invert(gone))
            if there.num_rows:
                yield there

    def lookup(self, keys: pa.BinaryArray, columns: Sequence[str]) -> pa.Table:
        """Return `_key` and columns of those sorted keys that have a current row, in key order."""
        schema = _keyed(self.standing.schema, columns)
        kept = self.kept(columns)
        if kept is not None:
            return _shaped(kept.of(keys), schema)
        pieces = [schema.empty_table()]
        for table in self.folded(columns):
            _, hit = find(keys, as_array(table[KEY]))
            pieces.append(_shaped(table.filter(pa.array(hit)), schema))
        return pa.concat_tables(pieces)

    def kept(self, columns: Sequence[str]) -> NamedState | None:
        """The state, if it keeps what is asked for.

        It has the columns of its last update: optional ones may have come
        since, and are missing. Of a ledger it may keep no columns at all, and
        of the system's only the offset.
        """
        state, vocab = self.standing.state, self.standing.vocab
        if state is None:
            return None
        there = set(state.schema.names)
        names = {name: OFFSET if name == vocab.offset else name for name in columns}
        names = {name: own for name, own in names.items() if own in there}
        lacking = [self.standing.schema.field(name) for name in columns if name not in names]
        has_rows = bool(there & set(self.standing.given_columns))
        is_new = all(field.nullable and field.name in self.standing.given_columns for field in lacking)
        return NamedState(state, names) if not lacking or (has_rows and is_new) else None


@dataclass(frozen=True)
class KeptRows:
    """The current rows of a state, to be looked up in another process."""

    store: Store
    files: tuple[StateFile, ...]
    names: Mapping[str, str]
    schema: pa.Schema

    def lookup(self, keys: pa.BinaryArray, columns: Sequence[str]) -> pa.Table:
        """Return `_key` and columns of those sorted keys that have a current row, in key order."""
        state = State.open(self.store, CheckpointFile(self.files))
        kept = NamedState(state, {name: self.names[name] for name in columns if name in self.names})
        return _shaped(kept.of(keys), _keyed(self.schema, columns))


@dataclass(frozen=True)
class StateRange:
    """The current rows in a range of keys, as a source that can be sent to another process."""

    store: Store
    files: tuple[StateFile, ...]
    names: Mapping[str, str]
    schema: pa.Schema
    key_range: KeyRange
    ordinal: str | None = None
    only: tuple[bytes, ...] | None = None
    row_count: int | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in key order."""
        del bounds
        schema = pa.schema([self.schema.field(name) for name in columns])
        state = State.open(self.store, CheckpointFile(self.files))
        kept = NamedState(state, {name: self.names[name] for name in columns if name in self.names})
        for rows in kept.rows(self.key_range, self.only):
            yield from _shaped(rows, schema).to_batches()

    def explain(self) -> list[str]:
        """Say what it is."""
        return [f"current rows of {self.key_range}"]


def _keyed(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return `_key` and columns of a schema."""
    key = pa.field(KEY, pa.binary(), nullable=False)
    return pa.schema([key, *(schema.field(name) for name in columns)])


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give rows the columns of a schema: those that came later are null."""
    found = unified(table, schema) if schema.names else table.select([])
    return found.cast(schema) if schema.names and found.schema != schema else found
