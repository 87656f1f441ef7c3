"""Checks are judged on the rows that a commit brings, before anything of it is written (derive:V22).

A row that breaks a check stops the commit, is left out, or is counted; a condition that is null is broken.
Rows are looked at where they are, by tasks; what has to see several rows together looks at columns alone, and
holds a bounded number of their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.chain import Chain
from trueline.chain.events import DatasetKind
from trueline.chain.head_state import Tail
from trueline.check import Action, DatasetCheck
from trueline.dataset.append.incoming import Incoming
from trueline.dataset.append.intake import ColumnOf
from trueline.dataset.append.merge import Terms
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter
from trueline.dataset.commit import Advice
from trueline.dataset.counts import counted_rows
from trueline.dataset.definition import strategy_of
from trueline.dataset.derivation import derivation_at
from trueline.dataset.key_counts import counted
from trueline.dataset.merge.result import Op
from trueline.errors import CheckFailed, InputError, UnsupportedVersion
from trueline.kernel.key_encoding import KeyEncoding, encode_keys
from trueline.kernel.sorted_keys import Bools, as_array, find
from trueline.kernel.tasks import InlineTasks, Tasks
from trueline.merge import Changelog, Keyed, NetChange, Strategy, Upsert

# Of the rows that break a check so many are shown.
_SHOWN: Final = 3


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
        what = _breaking(self.count)
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
                shown[at] += [shown_row(row) for row in some]
    return list(zip(counts, shown, strict=True))


def current(table: pa.Table, op: str | None) -> pa.Table:
    """Return the rows that are current after the events of a table: no deletes and no pre-images."""
    if op is None or op not in table.column_names:
        return table
    return table.filter(is_set(table[op])).drop_columns([op])


def is_set(ops: pa.ChunkedArray) -> pa.BooleanArray:
    """Say which events set a row; an operation that is null is an append."""
    known = pc.fill_null(as_array(ops), int(Op.APPEND)).cast(pa.int32())
    return pc.is_in(known, value_set=pa.array([int(Op.APPEND), int(Op.CORRECT_TO)], pa.int32()))


def shown_row(row: Mapping[str, object]) -> str:
    """Show a row in an error: the values it has."""
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
    checks: Sequence[DatasetCheck], incoming: Incoming, strategy: Strategy | Keyed, terms: Terms
) -> tuple[Incoming, dict[str, int]]:
    """Leave out the rows that break a check which says so, and count them by check.

    Rows in scratch are written there once more.
    """
    asked = [check for check in checks if check.action is Action.QUARANTINE]
    if not asked or not incoming.rows:
        return incoming, {}
    quarantine = Quarantine(tuple(asked), strategy, incoming.vocab.op)
    if not judged_rows(asked, incoming.pieces, quarantine.passing, terms.tasks):
        return incoming, {}
    pieces, counts = [], dict.fromkeys(map(str, asked), 0)
    for number, piece in enumerate(incoming.pieces):
        if (table := getattr(piece, "table", None)) is not None:
            pieces.append(IncomingPiece.of(quarantine.kept(table, counts)))
            continue
        writer: PieceWriter | None = None
        for table in piece.read(0, piece.rows):
            if writer is None:
                writer = PieceWriter(terms.scratch, f"kept-{number}", table.schema)
            writer.write(quarantine.kept(table, counts))
        pieces.append(writer.finish() if writer is not None else piece)
    left = {name: count for name, count in counts.items() if count}
    return _with_pieces(incoming, tuple(pieces)), left


def _with_pieces(incoming: Incoming, pieces: tuple[IncomingPiece, ...]) -> Incoming:
    """Return it with fewer rows in each of its pieces; no piece has rows of two files."""
    ends = np.cumsum([0, *(piece.rows for piece in incoming.pieces)])
    left = np.cumsum([0, *(piece.rows for piece in pieces)])

    def rows(given: Sequence[int]) -> list[int]:
        stops = np.cumsum([0, *given])
        return [int(count) for count in np.diff(left[np.searchsorted(ends, stops, side="right") - 1])]

    files = zip(incoming.files, rows([note.rows for note in incoming.files]), strict=True)
    by_file = zip(incoming.by_file, rows([part.rows for part in incoming.by_file]), strict=True)
    return replace(
        incoming,
        pieces=pieces,
        files=tuple(replace(note, rows=count) for note, count in files),
        by_file=tuple(replace(part, rows=count) for part, count in by_file),
    )


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Which rows of a commit are left out: what it sets is judged, not what it takes away."""

    checks: tuple[DatasetCheck, ...]
    strategy: Strategy | Keyed
    op: str

    @property
    def passing(self) -> str | None:
        """The column of operations, if rows that go are kept whatever they hold.

        A result loses rows that it would have: of those that break a check none is there.
        """
        return self.op if isinstance(self.strategy, Upsert | Changelog) else None

    def kept(self, table: pa.Table, counts: dict[str, int]) -> pa.Table:
        """Return the rows that are not left out, and count the others by check."""
        sets = np.ones(table.num_rows, dtype=bool)
        if self.op in table.column_names and isinstance(self.strategy, Upsert | Changelog | NetChange):
            sets = is_set(table[self.op]).to_numpy(zero_copy_only=False)
        kept = np.ones(table.num_rows, dtype=bool)
        for check in self.checks:
            broken = kept & ~_met(table, check).to_numpy(zero_copy_only=False)
            counts[str(check)] += int((broken & sets).sum())
            kept &= ~broken
        if self.passing is not None:
            kept |= ~sets
        if isinstance(self.strategy, Changelog) and not kept.all():
            kept = self._whole_pairs(table, kept)
        return table.filter(pa.array(kept))

    def _whole_pairs(self, table: pa.Table, kept: Bools) -> Bools:
        """Leave out with each half of a correction the one before it, of the same key."""
        assert isinstance(self.strategy, Changelog)
        keys = encode_keys(table.combine_chunks(), self.strategy.key, encoding=KeyEncoding.GROUP)
        codes = np.asarray(keys.dictionary_encode().indices)
        order = np.argsort(codes, kind="stable")
        ops = np.asarray(pc.fill_null(as_array(table[self.op]), int(Op.APPEND)))[order]
        leaves = ~kept[order] & (ops == Op.CORRECT_TO)
        same = np.append(codes[order][1:] == codes[order][:-1], False)
        with_next = (ops == Op.CORRECT_FROM) & same & np.append(leaves[1:], False)
        found = kept.copy()
        found[order[with_next]] = False
        return found


# --- a whole commit ---------------------------------------------------------------------------------


def _breaking(count: int) -> str:
    return "1 row breaks" if count == 1 else f"{count:,} rows break"


def advice_of(counts: Mapping[str, int]) -> tuple[Advice, ...]:
    """Say for people which checks were broken by rows that were committed or left out."""
    return tuple(
        Advice(
            "CheckBroken",
            f"{_breaking(count)} {check}" + ", left out of the commit" * check.endswith("quarantine()"),
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

    def judge(
        self, checks: Sequence[DatasetCheck], tasks: Tasks, *, is_replay: bool = False
    ) -> dict[str, int]:
        """Return how many rows break each check that warns; raise for the first that stops the commit.

        A commit that is replayed was judged when it was made.
        """
        if not checks:
            return {}
        unknown = next((check for check in checks if not check.is_known), None)
        if unknown is not None:
            raise UnsupportedVersion(f"the check {unknown} is not known here", remedy="upgrade trueline")
        if is_replay:
            return {}
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
            return self._repeated(check, op)
        if check.kind == "relation":
            return self._unrelated(check, op)
        return []

    def _repeated(self, check: DatasetCheck, op: str | None) -> list[BrokenCheck]:
        count = 0
        for share, found in counted(lambda: self._keys(check.columns, op)):
            count += int((found.counts - 1).sum())
            for table in self._untouched(check.columns) if len(found.keys) else ():
                _, known = find(found.keys, share.of(_encoded(table, check.columns)))
                count += int(known.sum())
        return [BrokenCheck(check, count)] if count else []

    def _unrelated(self, check: DatasetCheck, op: str | None) -> list[BrokenCheck]:
        assert self.column_of is not None, "whoever commits says where other datasets are read"
        (column,), other = check.columns, str(check.option("other"))
        kind = next((table.schema.field(column).type for table in self._tables([column])), None)
        count = 0
        for share, found in counted(lambda: self._keys([column], op)):
            # A null is no value of the other column, unless that has one too.
            missing = np.ones(len(found.keys), dtype=bool)
            there = self.column_of(check) if len(found.keys) else ()
            for table in there:
                keys = _encoded(table.cast(pa.schema([pa.field(other, kind)])), [other])
                places, known = find(found.keys, share.of(keys))
                missing[places[known]] = False
            count += int(found.counts[missing].sum())
        return [BrokenCheck(check, count)] if count else []

    def _tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of the events, as far as these have them."""
        for piece in self.pieces:
            for table in piece.read(0, piece.rows):
                yield table.select([name for name in columns if name in table.column_names])

    def _keys(self, columns: Sequence[str], op: str | None) -> Iterator[pa.BinaryArray]:
        """Yield what the rows that the commit sets are compared by: null is a value, and so is NaN."""
        for table in self._tables([*columns, *([op] if op is not None else [])]):
            yield _encoded(current(table, op), columns)

    def _untouched(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the rows that were current before and that the commit does not touch.

        Equal rows of a bag are told apart by the number of the copy.
        """
        from trueline.dataset.read import current_columns

        if self.tail.last_offset is None or self.alone:
            return
        key = key_at(self.tail)
        wanted = list(dict.fromkeys([*columns, *key]))
        view = current_columns(self.name, self.chain, self.tail.head, wanted)
        if not key:
            yield from (pa.Table.from_batches([batch]) for batch in view.batches(wanted))
            return
        for share, touched in counted(lambda: self._keys(key, None)):
            for batch in view.batches(wanted):
                table = pa.Table.from_batches([batch])
                keys = _encoded(table, key)
                _, known = find(touched.keys, keys)
                yield table.filter(pa.array(share.holds(keys) & ~known))


def key_at(tail: Tail) -> tuple[str, ...]:
    """Return the columns by which later events replace earlier ones, none for append."""
    derivation = derivation_at(tail) if tail.dataset_kind is DatasetKind.Derivative else None
    return derivation.key if derivation is not None else tuple(getattr(strategy_of(tail), "key", ()))


def _encoded(table: pa.Table, columns: Sequence[str]) -> pa.BinaryArray:
    return encode_keys(table.combine_chunks(), columns, encoding=KeyEncoding.GROUP)
