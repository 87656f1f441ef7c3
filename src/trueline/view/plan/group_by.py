"""A row for each group of rows with equal values.

A group's id is that of its first row, and groups come in the order of their first rows. Null is a value like
others, NaN is equal to NaN.

Aggregates are written as calls, here and in windows: `sum(price)`, `count(distinct city)`, `lag(x, 2)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.kernel import aggregates as s
from trueline.view.plan.node import IdRule, Node, OneInput, OwnSchema, Want
from trueline.view.plan.with_columns import with_columns
from trueline.view.schema import Column, Field, Schema

_CALL: Final = re.compile(r"\s*(\w+)\s*\(\s*(distinct\s)?(.*?)\s*\)\s*", re.DOTALL | re.IGNORECASE)
_STEPS: Final = re.compile(r"(.*\S)\s*,\s*(\d+)", re.DOTALL)
_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^\W\d]\w*)")


@dataclass(frozen=True, eq=False)
class GroupBy(OwnSchema, OneInput):
    """The key of each group, and aggregates of its rows."""

    by: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    columns: Schema

    @property
    def id_rule(self) -> IdRule:
        """A group is known by its first row."""
        return IdRule.FIRST_ROW

    @property
    def title(self) -> str:
        key = ", ".join(self.below.schema[place].name for place in self.by)
        made = ", ".join(f"{each.name} = {each.text}" for each in self.calls)
        return f"grouped by {key or 'nothing'}{f', with {made}' if made else ''}"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """Known by reading only."""
        return None

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The key, and what the aggregates read that are wanted (view:C35)."""
        calls = [self.calls[index - len(self.by)] for index in want.columns if index >= len(self.by)]
        return (want.of(tuple(dict.fromkeys((*self.by, *needed(calls))))),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """The key is the input's."""
        return (0, self.by[column]) if column < len(self.by) else None


def grouped(below: Node, by: Sequence[Column], aggregates: Mapping[str, str]) -> GroupBy:
    """Group rows by columns and say what to make of them."""
    node, asked = bound(below, aggregates, window=False)
    fields = [*(column.field for column in by), *(each.field for each in asked)]
    for each in asked:
        if any(column.name == each.name for column in by):
            raise SchemaError(
                f"{each.name!r} is a column of the key",
                remedy="give the aggregate another name",
                column=each.name,
            )
    return GroupBy(node, tuple(column.index for column in by), tuple(asked), Schema(fields))


# --- aggregate calls ------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: what it makes of which types, and where it may be used."""

    make: s.AggregateKernel
    result: Callable[[t.Type], t.Type | None]
    takes: str
    groups: bool = True
    windows: bool = True
    steps: bool = False


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate that was asked for: its name, of which column of the input, with which result."""

    name: str
    text: str
    column: int | None
    kind: Aggregate
    type: t.Type
    k: int = 0

    @property
    def field(self) -> Field:
        """The column it makes; counts are never null."""
        return Field(self.name, self.type, nullable=self.kind.make not in (s.count, s.count_distinct))

    def of(self, values: pa.Array | None, spans: s.Spans) -> pa.Array:
        """Return its values."""
        return self.kind.make(values, spans, self.type, self.k)


def _sum_type(kind: t.Type) -> t.Type | None:
    if isinstance(kind, t.Decimal):
        return t.Decimal(38 if kind.precision <= 38 else 76, kind.scale)
    if kind in t.FLOATS:
        return t.float64
    if kind in t.NUMBERS:
        return t.uint64 if pa.types.is_unsigned_integer(kind.arrow) else t.int64
    return kind if isinstance(kind, t.Duration) else None


def _average_type(kind: t.Type) -> t.Type | None:
    if isinstance(kind, t.Decimal):
        most = 38 if kind.precision <= 38 else 76
        scale = min(kind.scale + 4, most)
        return t.Decimal(most, scale)
    return t.float64 if kind in t.NUMBERS else kind if isinstance(kind, t.Duration) else None


def _number(_kind: t.Type) -> t.Type | None:
    return t.int64


def _number_of_single(kind: t.Type) -> t.Type | None:
    return t.int64 if kind.is_primitive else None


def _same(kind: t.Type) -> t.Type | None:
    return kind


def _ordered(kind: t.Type) -> t.Type | None:
    return kind if kind.has_order else None


def _truth(kind: t.Type) -> t.Type | None:
    return kind if kind == t.boolean else None


def _vector(kind: t.Type) -> t.Type | None:
    return t.Vector(kind) if kind.is_primitive else None


_KINDS: Final[Mapping[str, Aggregate]] = {
    "count": Aggregate(s.count, _number, "any column"),
    "count distinct": Aggregate(s.count_distinct, _number_of_single, "single values", windows=False),
    "sum": Aggregate(s.total, _sum_type, "numbers, decimals and durations"),
    "avg": Aggregate(s.average, _average_type, "numbers, decimals and durations"),
    "min": Aggregate(s.smallest, _ordered, "single values"),
    "max": Aggregate(s.largest, _ordered, "single values"),
    "first": Aggregate(s.first, _same, "any column"),
    "last": Aggregate(s.last, _same, "any column"),
    "collect": Aggregate(s.collect, _vector, "single values"),
    "any": Aggregate(s.any_true, _truth, "booleans"),
    "all": Aggregate(s.all_true, _truth, "booleans"),
    "lag": Aggregate(s.lag, _same, "any column", groups=False, steps=True),
    "lead": Aggregate(s.lead, _same, "any column", groups=False, steps=True),
}


def bound(below: Node, texts: Mapping[str, str], *, window: bool) -> tuple[Node, list[AggregateCall]]:
    """Bind aggregates to columns of the input, to which what they compute first is added."""
    computed: dict[str, str] = {}
    parsed = []
    for name, text in texts.items():
        kind, argument, k = _read(name, text, window=window)
        if argument is not None and _column(argument) is None:
            computed.setdefault(argument, _unused(argument, below))
        parsed.append((name, text, kind, argument, k))
    node = below
    if computed:
        node = with_columns(below, {name: text for text, name in computed.items()}, {})
    found = []
    for name, text, kind, argument, k in parsed:
        plain = None if argument is None else _column(argument)
        column = None if argument is None else node.schema[plain or computed[argument]]
        found.append(_typed(name, text, kind, column, k))
    return node, found


def _unused(argument: str, below: Node) -> str:
    """Name what is computed first as it is written; no column of the input must be hidden by it."""
    name = argument
    while name in below.schema:
        name += "'"
    return name


def _read(name: str, text: object, *, window: bool) -> tuple[Aggregate, str | None, int]:
    call = _CALL.fullmatch(text) if isinstance(text, str) else None
    word = "" if call is None else f"{call[1].lower()}{' distinct' if call[2] else ''}"
    kind = _KINDS.get(word)
    if call is None or kind is None or not (kind.windows if window else kind.groups):
        known = ", ".join(word for word, each in _KINDS.items() if (each.windows if window else each.groups))
        raise InputError(
            f"{name} = {text!r:.200} is not an aggregate of {'a window' if window else 'groups'}",
            remedy=f"write one of {known} of a column or an expression, as in sum(x * 2); "
            "compute with the results in with_columns()",
            code="BadExpression",
            expression=str(text),
        )
    argument, k = call[3], 1
    if kind.steps and (steps := _STEPS.fullmatch(argument)):
        argument, k = steps[1], int(steps[2])
    if argument == "*" and word == "count":
        return kind, None, 0
    if not argument or argument == "*":
        raise InputError(
            f"{name} = {text!r:.200} names no column", remedy=f"write {word}(x)", code="BadExpression"
        )
    return kind, argument, k


def _column(argument: str) -> str | None:
    """Return the name if the argument is nothing but a column."""
    found = _NAME.fullmatch(argument)
    if found is None or argument.lower() in ("null", "true", "false"):
        return None
    return found[2] or found[1].replace("``", "`")


def _typed(name: str, text: str, kind: Aggregate, column: Column | None, k: int) -> AggregateCall:
    given = t.int64 if column is None else column.type
    result = kind.result(given)
    if result is None:
        raise SchemaError(
            f"{name} = {text} is applied to type {given}; it takes {kind.takes}",
            remedy="choose another column, or convert it first",
            code="TypeMismatch",
            found=str(given),
        )
    return AggregateCall(name, text, None if column is None else column.index, kind, result, k)


def needed(asked: Sequence[AggregateCall]) -> tuple[int, ...]:
    """Return the columns that aggregates read."""
    return tuple(dict.fromkeys(each.column for each in asked if each.column is not None))
