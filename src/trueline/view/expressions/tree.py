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
    left: Node
    right: Node


@dataclass(frozen=True)
class Distinct:
    """Whether two values differ, where missing is a value like others; `negated` asks whether they do not."""

    left: Node
    right: Node
    negated: bool


@dataclass(frozen=True)
class Both:
    """`and`."""

    left: Node
    right: Node


@dataclass(frozen=True)
class Either:
    """`or`."""

    left: Node
    right: Node


@dataclass(frozen=True)
class Not:
    """`not`."""

    of: Node


@dataclass(frozen=True)
class IsNull:
    """Whether a value is missing."""

    of: Node


@dataclass(frozen=True)
class IsTruth:
    """`is true` and `is false`: missing is neither."""

    of: Node
    truth: bool


@dataclass(frozen=True)
class Among:
    """`in`."""

    of: Node
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Like:
    """Text that fits a pattern of `%` and `_`."""

    of: Node
    pattern: Value
    ignore_case: bool


@dataclass(frozen=True)
class Reckon:
    """Arithmetic; missing where there is no answer: division by zero, overflow."""

    op: Reckoning
    left: Node
    right: Node


@dataclass(frozen=True)
class Negate:
    """The same number below zero."""

    of: Node


@dataclass(frozen=True)
class Months:
    """A span of months, which have no fixed length: it can be added to a day or a moment, and no more."""

    count: int


@dataclass(frozen=True)
class Cast:
    """A value of another type; missing where there is none."""

    of: Node
    kind: Type


@dataclass(frozen=True)
class Case:
    """The value behind the first condition that is true, else the last value."""

    conditions: tuple[Node, ...]
    values: tuple[Node, ...]  # one more than conditions


@dataclass(frozen=True)
class Call:
    """A function of the language."""

    name: str
    arguments: tuple[Node, ...]


Condition: TypeAlias = Compare | Distinct | Both | Either | Not | IsNull | IsTruth | Among | Like
Node: TypeAlias = Name | Value | Condition | Reckon | Negate | Months | Cast | Case | Call


def parts(node: Node) -> Iterator[Node]:
    """Yield what an expression is made of, one level down."""
    for field in fields(node):
        part = getattr(node, field.name)
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, Node):
                yield each


def names(node: Node) -> Iterator[str]:
    """Yield the columns an expression needs."""
    if isinstance(node, Name):
        yield node.name
    for part in parts(node):
        yield from names(part)


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return an expression whose parts are changed, from the inside out."""

    def inside(part: object) -> object:
        if isinstance(part, tuple):
            return tuple(inside(each) for each in part)
        return rebuilt(part, change) if isinstance(part, Node) else part

    again = {field.name: inside(getattr(node, field.name)) for field in fields(node)}
    return change(replace(node, **again))  # type: ignore[arg-type]
