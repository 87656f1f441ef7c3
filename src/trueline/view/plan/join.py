"""Rows of two views with equal keys, side by side.

Rows come in the order of the left, those of one left row in the order of the right; in a right or full join
the rows of the right without a partner come last, in their order. An id is `left.combine(right)`; for a
partner that is not there the id of all ones is taken. A semi or anti join keeps rows of the left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from trueline.errors import InputError, SchemaError
from trueline.kernel.comparison import has_words
from trueline.view.plan.node import IdRule, Node, OwnSchema, Want
from trueline.view.plan.same_type import check_same
from trueline.view.schema import Field, Schema, key_columns

How: TypeAlias = Literal["inner", "left", "right", "full", "cross", "semi", "anti"]
_HOW: Final = get_args(How)
_SIDES: Final = ("on the left", "on the right")
# How else kinds of joins are called.
_OTHERWISE: Final[Mapping[str, str]] = {
    "outer": "; outer is full",
    "full_outer": "; it is full",
    "fullouter": "; it is full",
    "left_outer": "; it is left",
    "leftouter": "; it is left",
    "right_outer": "; it is right",
    "rightouter": "; it is right",
    "left_semi": "; it is semi",
    "leftsemi": "; it is semi",
    "left_anti": "; it is anti",
    "leftanti": "; it is anti",
    "asof": "; give as_of= with inner or left",
}


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

    @property
    def keeps_right(self) -> bool:
        """Whether rows of the right without a partner come too."""
        return self.how in ("right", "full")

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """The left's, where each of its rows comes exactly once; the product, where all are partners."""
        left, right = counts
        if self.how == "cross":
            return None if left is None or right is None else left * right
        return left if self.how == "left" and self.as_of is not None else None

    @property
    def title(self) -> str:
        names = ", ".join(
            f"{a} = {b}" if a != b else a
            for a, b in ((self.left.schema[x].name, self.right.schema[y].name) for x, y in self.on)
        )
        last = ""
        if self.as_of is not None:
            last = f", as of {self.left.schema[self.as_of[0]].name}"
        key = "" if self.how == "cross" else f" on {names or 'nothing'}"
        return f"{self.how} join{key}{last}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted of each side, and what partners are found by."""
        places = [self.line[index] for index in want.columns]
        alike = (*self.on, *((self.as_of,) if self.as_of else ()))
        left = dict.fromkeys([*(place for place, _ in places if place is not None), *(x for x, _ in alike)])
        right = dict.fromkeys([*(place for _, place in places if place is not None), *(y for _, y in alike)])
        right_ids = want.ids and not self.keeps_left
        return want.of(tuple(left)), Want(tuple(right), right_ids)

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column is one side's, but for the key of a right or full join, which is of both."""
        left, right = self.line[column]
        if left is not None and right is not None:
            return None
        return (0, left) if left is not None else (1, right) if right is not None else None


def joined(  # noqa: PLR0917 (as `View.join` has them)
    left: Node,
    right: Node,
    on: str | Sequence[str] | Mapping[str, str] | None,
    how: How,
    as_of: str | tuple[str, str] | None,
    suffix: str,
) -> Join:
    """Join two views; all that can be wrong with the columns is said here."""
    if how not in _HOW:
        raise InputError(
            f"there is no {how!r} join", remedy=f"use one of {', '.join(_HOW)}{_OTHERWISE.get(how, '')}"
        )
    names = _names(on, how, as_of)
    lefts = key_columns(left.schema, tuple(names), "a join")
    rights = key_columns(right.schema, tuple(names.values()), "a join")
    for mine, theirs in zip(lefts, rights, strict=True):
        check_same((mine, theirs), _SIDES, lossless=False)
    moments = _moments(left, right, as_of)
    pairs = tuple((mine.index, theirs.index) for mine, theirs in zip(lefts, rights, strict=True))
    if how in ("semi", "anti"):
        line: list[tuple[int | None, int | None]] = [(column.index, None) for column in left.schema]
        return Join(left, right, how, pairs, moments, tuple(line), left.schema)
    of_both = how in ("right", "full")
    key = dict(pairs) if of_both else {}
    line = [(column.index, key.get(column.index)) for column in left.schema]
    fields = [
        _field(
            column.field,
            of_both and (column.index not in key or right.schema[key[column.index]].nullable),
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
        fields.append(_field(column.field, how in ("left", "full"), name))
        line.append((None, column.index))
    return Join(left, right, how, pairs, moments, tuple(line), Schema(fields))


def _names(
    on: str | Sequence[str] | Mapping[str, str] | None, how: How, as_of: str | tuple[str, str] | None
) -> dict[str, str]:
    """Return the key columns of the left, each with that of the right."""
    if isinstance(on, Mapping):
        names = dict(on)
    else:
        names = {each: each for each in ([on] if isinstance(on, str) else on or ())}
    if how == "cross" and (names or as_of is not None):
        raise InputError("a cross join with key columns", remedy='leave on= out, or join with how="inner"')
    if how != "cross" and not names and as_of is None:
        raise InputError(
            "join() without key columns",
            remedy='name the columns whose values are to be equal, as in on="id"; '
            'for every pair of rows write how="cross"',
        )
    return names


def _field(field: Field, may_lack: bool, name: str | None = None) -> Field:
    return Field(name or field.name, field.type, field.annotations, field.nullable or may_lack)


def _moments(left: Node, right: Node, as_of: str | tuple[str, str] | None) -> tuple[int, int] | None:
    if as_of is None:
        return None
    mine, theirs = (as_of, as_of) if isinstance(as_of, str) else as_of
    pair = left.schema.find(mine), right.schema.find(theirs)
    check_same(pair, _SIDES, lossless=False)
    if not has_words(pair[0].type.arrow):
        raise SchemaError(
            f"column {pair[0].name!r} is of type {pair[0].type}, which as_of cannot follow",
            remedy="give a column of times or numbers",
            code="TypeMismatch",
            column=pair[0].name,
        )
    return pair[0].index, pair[1].index
