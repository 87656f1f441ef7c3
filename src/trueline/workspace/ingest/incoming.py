"""Rows ready for a dataset: typed, in source order, with what is known of where they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.datatypes import DataSchema
from trueline.chain.events import SetDataSchema, SetVocab, SourceState
from trueline.chain.evolution import differences, fields_of
from trueline.chain.instant import Instant
from trueline.chain.tail import Tail
from trueline.errors import InputError, SchemaError
from trueline.identity.multihash import Multihash
from trueline.workspace.ingest.pieces import Piece
from trueline.workspace.intake import Fitted, fit

Held: TypeAlias = "pa.Table | list[Mapping[str, Any]]"


@dataclass(frozen=True, slots=True)
class FileNote:
    """A file that was taken in: its name, its bytes by hash, how many rows it gave."""

    name: str
    hash: Multihash
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Incoming:
    """Pieces for a dataset; `schema` is the whole schema of the slices, `newest` the latest event time."""

    pieces: tuple[Piece, ...]
    schema: DataSchema
    vocab: SetVocab
    newest: Instant | None = None
    rounded: int = 0
    files: tuple[FileNote, ...] = ()
    skipped: tuple[str, ...] = ()
    bad: Mapping[str, int] = field(default_factory=dict)
    bad_cells: pa.Table | None = None
    digest: str | None = None
    source_state: SourceState | None = None
    typed_for: SetDataSchema | None = None
    again: Callable[[Tail], Incoming] | None = None

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def for_tail(self, tail: Tail) -> Incoming:
        """Meet what others did to the schema since the rows were typed: they may have added columns."""
        if tail.schema is None or tail.schema == self.typed_for:
            return self
        if self.again is not None:
            return replace(self.again(tail), digest=self.digest)
        current = fields_of(tail.schema)
        known = {column.name for column in current}
        added = tuple(column for column in self.schema.fields if column.name not in known)
        united = DataSchema((*current, *added))
        mine = {column.name for column in self.schema.fields}
        shared = tuple(column for column in current if column.name in mine)
        conflicts = list(differences(shared, self.schema.fields, ""))
        if conflicts:
            raise SchemaError(
                "the schema changed while the rows were read: " + "; ".join(conflicts),
                remedy="append them again",
            )
        return replace(self, schema=united)


def from_table(held: Held, tail: Tail, *, with_op: bool) -> Incoming:
    """Take rows that are in memory."""
    fitted = fit_rows(held, tail, with_op=with_op)
    return Incoming(
        (Piece.of(fitted.table),),
        fitted.schema,
        fitted.vocab or tail.vocab,
        newest_event(fitted),
        fitted.rounded,
        typed_for=tail.schema,
        again=lambda later: from_table(held, later, with_op=with_op),
    )


def fit_rows(held: Held, tail: Tail, *, with_op: bool) -> Fitted:
    """Fit rows to a dataset; where its strategy takes operations, the column of them goes along."""
    name = tail.vocab.op
    if not with_op:
        return fit(held, tail)
    if isinstance(held, list):
        ops: Any = pa.chunked_array([[row.get(name) for row in held]], pa.int32())
        given = any(name in row for row in held)
        rest: Held = [{key: value for key, value in row.items() if key != name} for row in held]
    else:
        given = name in held.column_names
        ops = held[name].cast(pa.int32()) if given else None
        rest = held.drop_columns([name]) if given else held
    fitted = fit(rest, tail)
    return replace(fitted, table=fitted.table.append_column(name, ops)) if given else fitted


def typed_for(schema: pa.Schema, tail: Tail) -> Tail:
    """Return a tail whose schema is the one rows of an Arrow schema will be stored with.

    Rows that come in batches are fitted to it one batch at a time.
    """
    fitted = fit(schema.empty_table(), tail)
    return tail._replace(schema=SetDataSchema(schema=fitted.schema), vocab=fitted.vocab or tail.vocab)


def newest_event(fitted: Fitted) -> Instant | None:
    """Return the latest event time of fitted rows, which have it as their first column."""
    column = fitted.table.column(0)
    newest = pc.max(column).cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).as_py() if len(column) else None
    if newest is None:
        return None
    try:
        return Instant(newest * 1_000_000)
    except InputError as error:
        name = fitted.table.column_names[0]
        raise SchemaError(f"column {name!r}: {error.problem}", remedy=error.remedy, column=name) from None


def latest(moments: Sequence[Instant | None]) -> Instant | None:
    """Return the latest of some moments."""
    return max((moment for moment in moments if moment is not None), default=None)
