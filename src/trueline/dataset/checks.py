"""Checks are judged on the rows that a commit brings, before anything of it is written (derive:V22).

A row that breaks a check stops the commit, is left out, or is counted; a condition that is null is broken.
Rows are looked at where they are, by tasks; what has to see several rows together looks at columns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.chain import Chain
from trueline.chain.events import DatasetKind
from trueline.chain.head_state import Tail
from trueline.chain.store.scratch import Scratch
from trueline.check import Action, DatasetCheck
from trueline.dataset.append.incoming import Incoming
from trueline.dataset.append.intake import ColumnOf
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter
from trueline.dataset.commit import Advice
from trueline.dataset.counts import counted_rows
from trueline.dataset.definition import strategy_of
from trueline.dataset.derivation import COPY, derivation_at
from trueline.dataset.merge.result import Op
from trueline.errors import CheckFailed, InputError, UnsupportedVersion
from trueline.kernel.key_encoding import KeyEncoding, encode_keys
from trueline.kernel.sorted_keys import as_array, find, repeats, sorting
from trueline.kernel.tasks import InlineTasks, Tasks

# Of the rows that break a check so many are shown.
_SHOWN: Final = 3
# Yields columns of the rows that were current before a commit and that it does not touch.
Untouched = Callable[[Sequence[str]], Iterator[pa.Table]]


def condition_of(check: DatasetCheck) -> tuple[str, dict[str, object]]:
    """Return what every row has to meet, with its parameters.

    >>> from trueline import check
    >>> condition_of(check.in_range("price", 0, 9))
    ('`price` >= :at_least and `price` <= :at_most', {'at_least': 0, 'at_most': 9})
    """
    if check.kind == "expression":
        return str(check.option("condition")), {}
    names = [f"`{name.replace('`', '``')}`" for name in check.columns]
    if check.kind == "not_null":
        return " and ".join(f"{name} is not null" for name in names), {}
    signs = {"at_least": ">=", "at_most": "<="}
    given = {name: check.option(name) for name in signs if check.option(name) is not None}
    return " and ".join(f"{names[0]} {signs[name]} :{name}" for name in given), given


def answers(table: pa.Table, condition: str, parameters: Mapping[str, object]) -> Any:
    """Say which rows meet a condition; those for which it is null do not."""
    from trueline.view import View

    name = "met"
    while name in table.column_names:
        name += "_"
    found = View.from_arrow(table).with_columns({name: condition}, **parameters).to_arrow()[name]
    if not pa.types.is_boolean(found.type):
        raise InputError(
            f"{condition!r} is not a condition: its type is {found.type}", remedy="compare it to something"
        )
    return as_array(pc.fill_null(found, False))


def _met(table: pa.Table, check: DatasetCheck) -> Any:
    if check.kind == "not_null":
        found = pc.is_valid(as_array(table[check.columns[0]]))
        for name in check.columns[1:]:
            found = pc.and_(found, pc.is_valid(as_array(table[name])))
        return found
    return answers(table, *condition_of(check))


@dataclass(frozen=True, slots=True)
class BrokenCheck:
    """How many rows break a check, and some of them as they are shown."""

    check: DatasetCheck
    count: int
    rows: tuple[str, ...] = ()

    def refused(self, name: str) -> CheckFailed:
        """The error of a check that stops the commit."""
        shown = "".join(f"\n    {row}" for row in self.rows)
        what = f"{self.count:,} rows break"
        if self.check.kind == "row_count":
            what = f"it would have {self.count:,} rows, which breaks"
        return CheckFailed(
            f"nothing was committed to {name!r}: {what} {self.check}{shown}",
            remedy="fix the rows, or let the check warn() or quarantine()",
            condition=str(self.check),
            rows=self.count,
            dataset=name,
        )


# --- rows by themselves -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """Rows to look at, and what they are to be checked for; `op` is the column of operations, if any."""

    piece: IncomingPiece
    checks: tuple[DatasetCheck, ...]
    op: str | None

    @property
    def rows(self) -> int:
        return self.piece.rows


def broken_rows(part: CheckedPart) -> list[tuple[int, list[str]]]:
    """Count the rows of a piece that break each check, and show the first of them."""
    counts = [0] * len(part.checks)
    shown: list[list[str]] = [[] for _ in part.checks]
    for table in part.piece.read(0, part.piece.rows):
        rows = current(table, part.op)
        for at, check in enumerate(part.checks):
            wrong = pc.invert(_met(rows, check))
            counts[at] += pc.sum(wrong).as_py() or 0
            if len(shown[at]) < _SHOWN:
                some = rows.filter(wrong).slice(0, _SHOWN - len(shown[at])).to_pylist()
                shown[at] += [_shown(row) for row in some]
    return list(zip(counts, shown, strict=True))


def current(table: pa.Table, op: str | None) -> pa.Table:
    """Return the rows that are current after the events of a table: no deletes and no pre-images."""
    if op is None or op not in table.column_names:
        return table
    kept = pc.is_in(table[op], value_set=pa.array([int(Op.APPEND), int(Op.CORRECT_TO)], pa.int32()))
    return table.filter(kept).drop_columns([op])


def _shown(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value!r:.60}" for name, value in row.items() if value is not None)[:300]


def judged_rows(
    checks: Sequence[DatasetCheck], pieces: Sequence[IncomingPiece], op: str | None, tasks: Tasks
) -> list[BrokenCheck]:
    """Judge the checks that each row keeps or breaks by itself, where the rows are."""
    asked = tuple(check for check in checks if check.by_row)
    parts = [CheckedPart(piece, asked, op) for piece in pieces if piece.rows]
    if not asked or not parts:
        return []
    totals: list[tuple[int, list[str]]] = [(0, []) for _ in asked]
    # Rows in this process are not sent to others; those of a spool have no table.
    here = any(getattr(part.piece, "table", None) is not None for part in parts)
    found = dict((InlineTasks() if here else tasks).map(broken_rows, parts, label="check rows"))
    for at in sorted(found):
        totals = [
            (count + more, (rows + others)[:_SHOWN])
            for (count, rows), (more, others) in zip(totals, found[at], strict=True)
        ]
    return [
        BrokenCheck(check, count, tuple(rows))
        for check, (count, rows) in zip(asked, totals, strict=True)
        if count
    ]


# --- rows that are left out -------------------------------------------------------------------------


def without_broken(
    checks: Sequence[DatasetCheck], incoming: Incoming, scratch: Scratch, tasks: Tasks
) -> tuple[Incoming, dict[str, int]]:
    """Leave out the rows that break a check which says so, and count them by check.

    Rows in scratch are written there once more.
    """
    asked = [check for check in checks if check.action is Action.QUARANTINE]
    if not asked or not incoming.rows:
        return incoming, {}
    if not judged_rows(asked, incoming.pieces, None, tasks):
        return incoming, {}
    pieces, counts = [], dict.fromkeys(map(str, asked), 0)
    for number, piece in enumerate(incoming.pieces):
        if (table := getattr(piece, "table", None)) is not None:
            pieces.append(IncomingPiece.of(_filtered(table, asked, counts)))
            continue
        writer: PieceWriter | None = None
        for table in piece.read(0, piece.rows):
            if writer is None:
                writer = PieceWriter(scratch, f"kept-{number}", table.schema)
            writer.write(_filtered(table, asked, counts))
        if writer is not None:
            pieces.append(writer.finish())
    left = {name: count for name, count in counts.items() if count}
    return replace(incoming, pieces=tuple(pieces)), left


def _filtered(table: pa.Table, checks: Sequence[DatasetCheck], counts: dict[str, int]) -> pa.Table:
    kept = np.ones(table.num_rows, dtype=bool)
    for check in checks:
        met = _met(table, check).to_numpy(zero_copy_only=False)
        counts[str(check)] += int((kept & ~met).sum())
        kept &= met
    return table.filter(pa.array(kept))


# --- a whole commit ---------------------------------------------------------------------------------


def advice_of(counts: Mapping[str, int]) -> tuple[Advice, ...]:
    """Say for people which checks were broken by rows that were committed or left out."""
    return tuple(
        Advice(
            "CheckBroken",
            f"{count:,} rows break {check}" + ", and were left out" * check.endswith("quarantine()"),
            "commit.checks counts them",
        )
        for check, count in counts.items()
    )


@dataclass(frozen=True)
class CheckedCommit:
    """What a commit is about to do: its events in pieces, and by how many the current rows grow.

    One that is `alone` leaves none of the rows that were there.
    """

    name: str
    chain: Chain
    tail: Tail
    pieces: Sequence[IncomingPiece]
    growth: int
    column_of: ColumnOf | None = None
    alone: bool = False

    def judge(self, checks: Sequence[DatasetCheck], tasks: Tasks) -> dict[str, int]:
        """Return how many rows break each check that warns; raise for the first that stops the commit."""
        if not checks:
            return {}
        unknown = next((check for check in checks if not check.is_known), None)
        if unknown is not None:
            raise UnsupportedVersion(f"the check {unknown} is not known here", remedy="upgrade trueline")
        op = None if self._only_inserts else self.tail.vocab.op
        asked = [each for each in checks if each.action is not Action.QUARANTINE]
        found = [
            *judged_rows(asked, self.pieces, op, tasks),
            *(broken for check in checks for broken in self._together(check, op)),
        ]
        for each in found:
            if each.check.action is Action.STOP:
                raise each.refused(self.name)
        return {str(each.check): each.count for each in found}

    @property
    def _only_inserts(self) -> bool:
        return not self.tail.replaces_rows

    def _together(self, check: DatasetCheck, op: str | None) -> list[BrokenCheck]:
        """Judge what takes several rows: how many there are, whether they repeat, what they refer to."""
        if check.kind == "row_count":
            count = counted_rows(self.chain, self.tail) + self.growth
            low, high = check.option("at_least"), check.option("at_most")
            is_broken = (low is not None and count < low) or (high is not None and count > high)
            return [BrokenCheck(check, count)] if is_broken else []
        if check.kind == "unique":
            return _repeated(check, self.pieces, op, self._untouched)
        if check.kind == "relation":
            assert self.column_of is not None, "whoever commits says where other datasets are read"
            return _unrelated(check, self.pieces, op, self.column_of)
        return []

    def _untouched(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the rows that were current before and that the commit does not touch."""
        from trueline.dataset.read import view_of

        if self.tail.last_offset is None or self.alone:
            return
        key = [name for name in key_at(self.tail) if name != COPY]
        touched = None
        if key:
            tables = [table.select(key) for piece in self.pieces for table in piece.read(0, piece.rows)]
            touched = _keys(pa.concat_tables(tables), key) if tables else None
        wanted = list(dict.fromkeys([*columns, *key]))
        for batch in view_of(self.name, self.chain, self.tail.head, system=False).batches(wanted):
            table = pa.Table.from_batches([batch])
            if touched is not None:
                _, known = find(touched, encode_keys(table, key, encoding=KeyEncoding.GROUP))
                table = table.filter(pa.array(~known))
            yield table


def key_at(tail: Tail) -> tuple[str, ...]:
    """Return the columns by which later events replace earlier ones, none for append."""
    derivation = derivation_at(tail) if tail.dataset_kind is DatasetKind.Derivative else None
    return derivation.key if derivation is not None else tuple(getattr(strategy_of(tail), "key", ()))


def _columns(pieces: Sequence[IncomingPiece], op: str | None, columns: Sequence[str]) -> pa.Table | None:
    """Return some columns of the rows that a commit sets."""
    wanted = [*columns, *([op] if op is not None else [])]
    tables = [
        current(table.select([name for name in wanted if name in table.column_names]), op)
        for piece in pieces
        for table in piece.read(0, piece.rows)
    ]
    return pa.concat_tables(tables) if tables else None


def _keys(table: pa.Table, columns: Sequence[str]) -> pa.BinaryArray:
    """Return what rows are compared by, in order: null is a value, and so is NaN."""
    keys = encode_keys(table.combine_chunks(), columns, encoding=KeyEncoding.GROUP)
    order = sorting(keys)
    return keys if order is None else keys.take(pa.array(order))


def _repeated(
    check: DatasetCheck, pieces: Sequence[IncomingPiece], op: str | None, untouched: Untouched
) -> list[BrokenCheck]:
    rows = _columns(pieces, op, check.columns)
    if rows is None or not rows.num_rows:
        return []
    keys = _keys(rows, check.columns)
    count = int(repeats(keys).sum())
    for table in untouched(check.columns):
        _, known = find(keys, encode_keys(table.combine_chunks(), check.columns, encoding=KeyEncoding.GROUP))
        count += int(known.sum())
    return [BrokenCheck(check, count)] if count else []


def _unrelated(
    check: DatasetCheck, pieces: Sequence[IncomingPiece], op: str | None, column_of: ColumnOf
) -> list[BrokenCheck]:
    rows = _columns(pieces, op, check.columns)
    if rows is None or not rows.num_rows:
        return []
    keys = _keys(rows, check.columns)
    missing = np.ones(len(keys), dtype=bool)
    other = str(check.option("other"))
    for table in column_of(str(check.option("dataset")), other):
        there = table.cast(pa.schema([pa.field(other, rows.schema.field(check.columns[0]).type)]))
        _, known = find(_keys(there, [other]), keys)
        missing &= ~known
    count = int(missing.sum())  # a null is no value of the other column, unless that has one too
    return [BrokenCheck(check, count)] if count else []
