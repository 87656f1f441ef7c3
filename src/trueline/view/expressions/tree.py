"""The parts of an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

import pyarrow as pa

from trueline.types import Type

Comparing: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
Reckoning: TypeAlias = Literal["+", "-", "*", "/", "%"]


@dataclass(frozen=True)
class Name:
    """A column; its type is known once the expression is bound to columns."""

    name: str
    kind: Type | None = None


@dataclass(frozen=True)
class Value:
    """A constant: written in the text, or given for a parameter."""

    scalar: pa.Scalar


@dataclass(frozen=True)
class Compare:
    """Two values compared; missing if one of them is."""

    op: Comparing
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Distinct:
    """Whether two values differ, where missing is a value like others; `negated` asks whether they do not."""

    left: Expr
    right: Expr
    negated: bool


@dataclass(frozen=True)
class And:
    """`and`."""

    left: Expr
    right: Expr


@dataclass(frozen=True)
class Or:
    """`or`."""

    left: Expr
    right: Expr


@dataclass(frozen=True)
class Not:
    """`not`."""

    of: Expr


@dataclass(frozen=True)
class IsNull:
    """Whether a value is missing."""

    of: Expr


@dataclass(frozen=True)
class IsTruth:
    """`is true` and `is false`: missing is neither."""

    of: Expr
    truth: bool


@dataclass(frozen=True)
class In:
    """`in`."""

    of: Expr
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Like:
    """Text that fits a pattern of `%` and `_`."""

    of: Expr
    pattern: Value
    ignore_case: bool


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic; missing where there is no answer: division by zero, overflow."""

    op: Reckoning
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Negate:
    """The same number below zero."""

    of: Expr


@dataclass(frozen=True)
class Months:
    """A span of months, which have no fixed length: it can be added to a day or a moment, and no more."""

    count: int


@dataclass(frozen=True)
class Cast:
    """A value of another type; missing where there is none."""

    of: Expr
    kind: Type


@dataclass(frozen=True)
class Case:
    """The value behind the first condition that is true, else the last value."""

    conditions: tuple[Expr, ...]
    values: tuple[Expr, ...]  # one more than conditions


@dataclass(frozen=True)
class Call:
    """A function of the language."""

    name: str
    arguments: tuple[Expr, ...]


Condition: TypeAlias = Compare | Distinct | And | Or | Not | IsNull | IsTruth | In | Like
Expr: TypeAlias = Name | Value | Condition | Arithmetic | Negate | Months | Cast | Case | Call


def parts(node: Expr) -> Iterator[Expr]:
    """Yield what an expression is made of, one level down."""
    for field in fields(node):
        part = getattr(node, field.name)
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, Expr):
                yield each


def names(node: Expr) -> Iterator[str]:
    """Yield the columns an expression needs."""
    if isinstance(node, Name):
        yield node.name
    for part in parts(node):
        yield from names(part)


def rebuilt(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression whose parts are changed, from the inside out."""

    def inside(part: object) -> object:
        if isinstance(part, tuple):
            return tuple(inside(each) for each in part)
        return rebuilt(part, change) if isinstance(part, Expr) else part

    again = {field.name: inside(getattr(node, field.name)) for field in fields(node)}
    return change(replace(node, **again))  # type: ignore[arg-type]
