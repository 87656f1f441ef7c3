"""Rows of two views with equal keys, side by side.

Rows come in the order of the left, those of one left row in the order of the right; in a full join the rows
of the right without a partner come last, in their order. An id is `left.combine(right)`; for a partner that
is not there the id of all ones stands. A semi or anti join keeps rows of the left as they are.

The right side is held in memory, and the left streams past it in its own pieces. Where the right does not
fit, both go through the exchange by a hash of the key, and the result once more to be in order again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np
import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.kernel.chunk import Chunk
from trueline.kernel.comparison import has_words
from trueline.kernel.exchange import Gathered, Once, Plan, gather
from trueline.kernel.external_sort import Ordered, bucket
from trueline.kernel.pieces import Piece
from trueline.view.annotations import category_values
from trueline.view.operators.grouping import ByKey
from trueline.view.operators.matching import How, Joiner, Matching, Side
from trueline.view.operators.sorting import ByColumns
from trueline.view.plan.node import Node, Want, once_a_walk
from trueline.view.schema import Column, Field, Schema, key_columns

_HOW: Final = get_args(How)


@dataclass(frozen=True, eq=False)
class Joined(Node):
    """The columns of the left, then those of the right but for its key; `line` says which is which."""

    left: Node
    right: Node
    how: How
    on: tuple[tuple[int, int], ...]
    as_of: tuple[int, int] | None
    line: tuple[tuple[int | None, int | None], ...]
    columns: Schema

    @property
    def schema(self) -> Schema:
        """The columns of both; of a semi or anti join the left's own schema."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Two."""
        return (self.left, self.right)

    @property
    def row_count(self) -> int | None:
        """The left's, where each of its rows comes exactly once."""
        return self.left.row_count if self.how == "left" and self.as_of is not None else None

    @property
    def portable(self) -> bool:
        """Each process would read the right side again."""
        return False

    @property
    def title(self) -> str:
        names = ", ".join(
            f"{a} = {b}" if a != b else a
            for a, b in ((self.left.schema[x].name, self.right.schema[y].name) for x, y in self.on)
        )
        last = ""
        if self.as_of is not None:
            last = f", as of {self.left.schema[self.as_of[0]].name}"
        return f"{self.how} join on {names or 'nothing'}{last}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted of each side, and what partners are found by."""
        places = [self.line[index] for index in want.columns]
        alike = (*self.on, *((self.as_of,) if self.as_of else ()))
        left = dict.fromkeys([*(place for place, _ in places if place is not None), *(x for x, _ in alike)])
        right = dict.fromkeys([*(place for _, place in places if place is not None), *(y for _, y in alike)])
        right_ids = want.ids and self.how not in ("semi", "anti")
        return want.of(tuple(left)), Want(tuple(right), right_ids)

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column is one side's, but for the key of a full join, which is of both."""
        left, right = self.line[column]
        if left is not None and right is not None:
            return None
        return (0, left) if left is not None else (1, right) if right is not None else None

    @once_a_walk
    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return those of the left; a full join has one more."""
        left, right = self.wants(want)
        matching = self._matching(want, left, right)
        lefts = self.left.pieces(left)
        parts = len(lefts) + (self.how == "full")
        shared = Once(ToJoin(tuple(lefts), tuple(self.right.pieces(right)), matching, parts))
        found: list[Piece] = [JoinedPiece(shared, piece, number) for number, piece in enumerate(lefts)]
        if self.how == "full":
            found.append(RestPiece(shared, tuple(lefts), parts - 1))
        return found

    def _matching(self, want: Want, left: Want, right: Want) -> Matching:
        at_left = {column: place for place, column in enumerate(left.columns)}
        at_right = {column: place for place, column in enumerate(right.columns)}
        sides = (
            Side(tuple(at_left[x] for x, _ in self.on), at_left[self.as_of[0]] if self.as_of else None),
            Side(tuple(at_right[y] for _, y in self.on), at_right[self.as_of[1]] if self.as_of else None),
        )
        columns = tuple(
            (None if x is None else at_left[x], None if y is None else at_right[y])
            for x, y in (self.line[index] for index in want.columns)
        )
        kinds = (
            tuple(self.left.schema[column].type.arrow for column in left.columns),
            tuple(self.right.schema[column].type.arrow for column in right.columns),
        )
        return Matching(self.how, *sides, columns, *kinds, want.ids)


# --- reading it -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ToJoin:
    """What prepares a join, when it is asked to: the right side in memory, or all of it in order."""

    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    matching: Matching
    parts: int

    def __call__(self) -> Stream | Ordered:
        matching = self.matching
        right = gather(self.right, self._plan(matching.right, matching.right_kinds, matching.right_ids))
        if right.held is not None or not right.rows:
            return Stream(Joiner(right.held or matching.none(), matching), len(self.left))
        left = gather(self.left, self._plan(matching.left, matching.left_kinds, matching.ids)).in_runs()
        buckets = -(-max(left.size, right.size) // right.part_bytes)
        pieces = [JoinedBucket(left, right, number, buckets, matching) for number in range(buckets)]
        made = len(matching.columns)
        return Ordered(gather(pieces, Plan(ByColumns((made,), (False,)), made, matching.ids)), self.parts)

    def _plan(self, side: Side, kinds: Sequence[pa.DataType], ids: bool) -> Plan:
        return Plan(ByKey(side.key), len(kinds), ids, positions=True)


class Stream:
    """A right side in memory, and which pieces of the left went past it."""

    def __init__(self, joiner: Joiner, pieces: int) -> None:
        self.joiner = joiner
        self.left = set(range(pieces))

    def past(self, number: int) -> None:
        """Remember that all rows of a piece of the left were looked at."""
        self.left.discard(number)


@dataclass(frozen=True, eq=False)
class JoinedPiece:
    """The rows of one piece of the left with their partners."""

    shared: Once[Stream | Ordered]
    left: Piece
    number: int

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        run = self.shared()
        if isinstance(run, Ordered):
            yield from run.part(self.number)
            return
        for chunk in self.left.chunks():
            for found, _ in run.joiner.rows(chunk):
                yield found
        run.past(self.number)


@dataclass(frozen=True, eq=False)
class RestPiece:
    """The rows of the right without a partner; they are known when all of the left was looked at."""

    shared: Once[Stream | Ordered]
    left: tuple[Piece, ...]
    number: int

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows; what others have not looked at yet is looked at here, waiting for nobody."""
        run = self.shared()
        if isinstance(run, Ordered):
            yield from run.part(self.number)
            return
        for number in sorted(run.left):
            for chunk in self.left[number].chunks():
                run.joiner.mark(*run.joiner.partners.find(chunk))
        for found, _ in run.joiner.alone():
            yield found


@dataclass(frozen=True, eq=False)
class JoinedBucket:
    """The rows whose keys have hashes in one range, with their partners, and where they belong."""

    left: Gathered
    right: Gathered
    number: int
    buckets: int
    matching: Matching

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows and, as the last column, their positions; those of the right alone come last."""
        left = bucket(self.left, self.number, self.buckets)
        right = bucket(self.right, self.number, self.buckets)
        joiner = Joiner(right or self.matching.none(), self.matching)
        if left is not None:
            positions = left.arrays[-1]
            for found, at in joiner.rows(left):
                yield Chunk(found.rows, (*found.arrays, positions.take(pa.array(at))), found.ids)
        if self.matching.how == "full" and right is not None:
            last = np.asarray(right.arrays[-1]) | np.uint64(1 << 63)
            for found, at in joiner.alone():
                yield Chunk(found.rows, (*found.arrays, pa.array(last[at])), found.ids)


# --- making it ------------------------------------------------------------------------------


def joined(  # noqa: PLR0917 (as `View.join` has them)
    left: Node,
    right: Node,
    on: str | Sequence[str] | Mapping[str, str],
    how: How,
    as_of: str | tuple[str, str] | None,
    suffix: str,
) -> Joined:
    """Join two views; all that can be wrong with the columns is said here."""
    if how not in _HOW:
        raise InputError(f"a {how!r} join", remedy=f"how is one of {', '.join(_HOW)}")
    names = (
        dict(on)
        if isinstance(on, Mapping)
        else {each: each for each in ([on] if isinstance(on, str) else on)}
    )
    if not names and as_of is None:
        raise InputError("a join on no column", remedy="name the columns whose values are to be equal")
    lefts = key_columns(left.schema, tuple(names), "a join")
    rights = key_columns(right.schema, tuple(names.values()), "a join")
    for mine, theirs in zip(lefts, rights, strict=True):
        _check(mine, theirs)
    moments = _moments(left, right, as_of)
    pairs = tuple((mine.index, theirs.index) for mine, theirs in zip(lefts, rights, strict=True))
    if how in ("semi", "anti"):
        line: list[tuple[int | None, int | None]] = [(column.index, None) for column in left.schema]
        return Joined(left, right, how, pairs, moments, tuple(line), left.schema)
    key = dict(pairs) if how == "full" else {}
    line = [(column.index, key.get(column.index)) for column in left.schema]
    fields = [
        _field(
            column.field,
            how == "full" and (column.index not in key or right.schema[key[column.index]].nullable),
        )
        for column in left.schema
    ]
    theirs_by_name = {y for _, y in pairs}
    for column in right.schema.visible:
        if column.index in theirs_by_name:
            continue
        name = column.name if column.name not in left.schema else f"{column.name}{suffix}"
        if name in {field.name for field in fields}:
            raise SchemaError(
                f"two columns would be {name!r}",
                remedy="rename() one of them, or give another suffix=",
                column=name,
            )
        fields.append(_field(column.field, how != "inner", name))
        line.append((None, column.index))
    return Joined(left, right, how, pairs, moments, tuple(line), Schema(fields))


def _field(field: Field, may_lack: bool, name: str | None = None) -> Field:
    return Field(name or field.name, field.type, field.annotations, field.nullable or may_lack)


def _moments(left: Node, right: Node, as_of: str | tuple[str, str] | None) -> tuple[int, int] | None:
    if as_of is None:
        return None
    mine, theirs = (as_of, as_of) if isinstance(as_of, str) else as_of
    pair = left.schema.find(mine), right.schema.find(theirs)
    _check(*pair)
    if not has_words(pair[0].type.arrow):
        raise SchemaError(
            f"column {pair[0].name!r} is of type {pair[0].type}, which as_of cannot follow",
            remedy="give a column of times or numbers",
            code="TypeMismatch",
            column=pair[0].name,
        )
    return pair[0].index, pair[1].index


def _check(mine: Column, theirs: Column) -> None:
    if mine.type != theirs.type:
        raise SchemaError(
            f"{mine.name!r} on the left is of type {mine.type}, {theirs.name!r} on the right {theirs.type}",
            remedy=f"convert one of them: with_columns({theirs.name} = 'cast({theirs.name} as {mine.type})')",
            code="TypeMismatch",
            column=mine.name,
            found=str(theirs.type),
            asked=str(mine.type),
        )
    if category_values(mine) != category_values(theirs):
        raise SchemaError(
            f"the codes of {mine.name!r} and {theirs.name!r} stand for other values",
            remedy="make them categories of the same values, or text",
            code="TypeMismatch",
            column=mine.name,
        )
