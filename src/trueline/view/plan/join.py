"""Rows of two views with equal keys, side by side.

Rows come in the order of the left, those of one left row in the order of the right; in a full join the rows
of the right without a partner come last, in their order. An id is `left.combine(right)`; for a partner that
is not there the id of all ones is taken. A semi or anti join keeps rows of the left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from trueline.errors import InputError, SchemaError
from trueline.kernel.comparison import has_words
from trueline.view.annotations import category_values
from trueline.view.plan.node import IdRule, Node, OwnSchema, Want
from trueline.view.schema import Column, Field, Schema, key_columns

How: TypeAlias = Literal["inner", "left", "full", "semi", "anti"]
_HOW: Final = get_args(How)


@dataclass(frozen=True, eq=False)
class Join(OwnSchema):
    """The columns of the left, then those of the right but for its key; `line` says which is which."""

    left: Node
    right: Node
    how: How
    on: tuple[tuple[int, int], ...]
    as_of: tuple[int, int] | None
    line: tuple[tuple[int | None, int | None], ...]
    columns: Schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Two."""
        return (self.left, self.right)

    @property
    def keeps_left(self) -> bool:
        """Whether rows of the left stay as they are."""
        return self.how in ("semi", "anti")

    @property
    def id_rule(self) -> IdRule:
        """Those of both sides, unless rows of the left stay as they are."""
        return IdRule.UNCHANGED if self.keeps_left else IdRule.JOIN

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """The left's, where each of its rows comes exactly once."""
        return counts[0] if self.how == "left" and self.as_of is not None else None

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
        right_ids = want.ids and not self.keeps_left
        return want.of(tuple(left)), Want(tuple(right), right_ids)

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column is one side's, but for the key of a full join, which is of both."""
        left, right = self.line[column]
        if left is not None and right is not None:
            return None
        return (0, left) if left is not None else (1, right) if right is not None else None


def joined(  # noqa: PLR0917 (as `View.join` has them)
    left: Node,
    right: Node,
    on: str | Sequence[str] | Mapping[str, str],
    how: How,
    as_of: str | tuple[str, str] | None,
    suffix: str,
) -> Join:
    """Join two views; all that can be wrong with the columns is said here."""
    if how not in _HOW:
        raise InputError(f"there is no {how!r} join", remedy=f"use one of {', '.join(_HOW)}")
    names = (
        dict(on)
        if isinstance(on, Mapping)
        else {each: each for each in ([on] if isinstance(on, str) else on)}
    )
    if not names and as_of is None:
        raise InputError("join() without key columns", remedy="name the columns whose values are to be equal")
    lefts = key_columns(left.schema, tuple(names), "a join")
    rights = key_columns(right.schema, tuple(names.values()), "a join")
    for mine, theirs in zip(lefts, rights, strict=True):
        _check(mine, theirs)
    moments = _moments(left, right, as_of)
    pairs = tuple((mine.index, theirs.index) for mine, theirs in zip(lefts, rights, strict=True))
    if how in ("semi", "anti"):
        line: list[tuple[int | None, int | None]] = [(column.index, None) for column in left.schema]
        return Join(left, right, how, pairs, moments, tuple(line), left.schema)
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
                f"two columns would be named {name!r}",
                remedy="rename() one of them, or give another suffix=",
                column=name,
            )
        fields.append(_field(column.field, how != "inner", name))
        line.append((None, column.index))
    return Join(left, right, how, pairs, moments, tuple(line), Schema(fields))


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
            f"the codes of {mine.name!r} and {theirs.name!r} mean other values",
            remedy="make them categories of the same values, or text",
            code="TypeMismatch",
            column=mine.name,
        )
