"""The current rows of a dataset whose events replace each other: one for each key, in key order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import StateMissing
from trueline.view.bounds import NO_BOUNDS, Bounds
from trueline.view.origin import Origin
from trueline.workspace.merging.merged import Op
from trueline.workspace.reading.events import Events
from trueline.workspace.reading.folding import folded, last
from trueline.workspace.reading.standing import Standing
from trueline.workspace.state import KEY, State
from trueline.workspace.state.ordering import as_array, find, unified


@dataclass(frozen=True)
class CurrentRows:
    """Per key the row with the highest offset, unless it was retracted.

    Read from the state a commit names; without one, folded from the events. Both give the same.
    """

    standing: Standing
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns a reader sees."""
        return pa.schema([self.standing.schema.field(name) for name in self.columns])

    @property
    def row_count(self) -> int | None:
        """Not known: it takes reading the keys to count them."""
        return 0 if self.standing.last_offset < 0 else None

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The dataset and the commit."""
        return self.standing.origin()

    def explain(self) -> list[str]:
        """Say where the rows come from."""
        how = "the state kept there" if self._state(self.columns) is not None else "all its events"
        key = ", ".join(self.standing.key)
        return [f"current rows of {next(iter(self.origins.values()))} by {key}, from {how}"]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in key order."""
        del bounds  # an event outside of them may be the one that replaced a row inside
        state = self._state(columns)
        if state is None:
            yield from self.from_events(columns)
            return
        schema = pa.schema([self.standing.schema.field(name) for name in columns])
        kept = [name for name in columns if name in state.schema.names]
        found = False
        try:
            for batch in state.scan(kept):
                found = True
                table = pa.Table.from_batches([batch])
                yield from _shaped(table, schema).to_batches()
        except StateMissing:
            # Lost between looking and reading; what was given out cannot be taken back.
            if found:
                raise
            yield from self.from_events(columns)

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
            key=standing.key,
            offset=vocab.offset,
            keep=last,
        ):
            there = table.filter(pc.not_equal(table[vocab.op], int(Op.RETRACT)))
            if there.num_rows:
                yield there

    def lookup(self, keys: pa.BinaryArray, columns: Sequence[str]) -> pa.Table:
        """Return `_key` and columns of those sorted keys that have a current row, in key order."""
        schema = pa.schema(
            [
                pa.field(KEY, pa.binary(), nullable=False),
                *(self.standing.schema.field(name) for name in columns),
            ]
        )
        state = self._state(columns)
        if state is not None:
            kept = [name for name in columns if name in state.schema.names]
            return _shaped(state.lookup(keys, kept), schema)
        pieces = [schema.empty_table()]
        for table in self.folded(columns):
            _, hit = find(keys, as_array(table[KEY]))
            pieces.append(_shaped(table.filter(pa.array(hit)), schema))
        return pa.concat_tables(pieces)

    def _state(self, columns: Sequence[str]) -> State | None:
        """The state, if it keeps what is asked for; it need not know all columns of the system."""
        state = self.standing.state
        if state is None:
            return None
        system = set(self.standing.vocab.names) - set(state.schema.names)
        return None if system & set(columns) else state


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give rows the columns of a schema: those that came later are missing."""
    found = unified(table, schema) if schema.names else table.select([])
    return found.cast(schema) if schema.names and found.schema != schema else found
