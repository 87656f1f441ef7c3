"""Aggregates as they are written: `sum(price)`, `count(*)`, `count(distinct city)`, `lag(x, 2)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.kernel import aggregates as s
from trueline.view.plan.node import Node
from trueline.view.schema import Column, Field

_CALL: Final = re.compile(r"\s*(\w+)\s*\(\s*(distinct\s)?(.*?)\s*\)\s*", re.DOTALL | re.IGNORECASE)
_STEPS: Final = re.compile(r"(.*\S)\s*,\s*(\d+)", re.DOTALL)
_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^\W\d]\w*)")


@dataclass(frozen=True)
class Kind:
    """One aggregate: what it makes of which types, and where it may stand."""

    make: s.Aggregate
    result: Callable[[t.Type], t.Type | None]
    takes: str
    groups: bool = True
    windows: bool = True
    steps: bool = False


@dataclass(frozen=True)
class Asked:
    """An aggregate that was asked for: its name, of which column of the input, with which result."""

    name: str
    text: str
    column: int | None
    kind: Kind
    type: t.Type
    k: int = 0

    @property
    def field(self) -> Field:
        """The column it makes; counts are never missing."""
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


_KINDS: Final[Mapping[str, Kind]] = {
    "count": Kind(s.count, _number, "any column"),
    "count distinct": Kind(s.count_distinct, _number_of_single, "single values", windows=False),
    "sum": Kind(s.total, _sum_type, "numbers, decimals and durations"),
    "avg": Kind(s.average, _average_type, "numbers, decimals and durations"),
    "min": Kind(s.smallest, _ordered, "single values"),
    "max": Kind(s.largest, _ordered, "single values"),
    "first": Kind(s.first, _same, "any column"),
    "last": Kind(s.last, _same, "any column"),
    "collect": Kind(s.collect, _vector, "single values"),
    "any": Kind(s.any_true, _truth, "booleans"),
    "all": Kind(s.all_true, _truth, "booleans"),
    "lag": Kind(s.lag, _same, "any column", groups=False, steps=True),
    "lead": Kind(s.lead, _same, "any column", groups=False, steps=True),
}


def bound(below: Node, texts: Mapping[str, str], *, window: bool) -> tuple[Node, list[Asked]]:
    """Bind aggregates to columns of the input, to which what they compute first is added."""
    from trueline.view.operators.computing import with_columns

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


def _read(name: str, text: object, *, window: bool) -> tuple[Kind, str | None, int]:
    call = _CALL.fullmatch(text) if isinstance(text, str) else None
    word = "" if call is None else f"{call[1].lower()}{' distinct' if call[2] else ''}"
    kind = _KINDS.get(word)
    if call is None or kind is None or not (kind.windows if window else kind.groups):
        known = ", ".join(word for word, each in _KINDS.items() if (each.windows if window else each.groups))
        raise InputError(
            f"{name} = {text!r:.200} is no aggregate of {'a window' if window else 'groups'}",
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


def _typed(name: str, text: str, kind: Kind, column: Column | None, k: int) -> Asked:
    given = t.int64 if column is None else column.type
    result = kind.result(given)
    if result is None:
        raise SchemaError(
            f"{name} = {text} is of a column of type {given}; it takes {kind.takes}",
            remedy="choose another column, or convert it first",
            code="TypeMismatch",
            found=str(given),
        )
    return Asked(name, text, None if column is None else column.index, kind, result, k)


def needed(asked: Sequence[Asked]) -> tuple[int, ...]:
    """Return the columns that aggregates read."""
    return tuple(dict.fromkeys(each.column for each in asked if each.column is not None))
