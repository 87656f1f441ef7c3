"""The parts of an expression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

import pyarrow as pa

Comparing: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
Reckoning: TypeAlias = Literal["+", "-", "*", "/", "%"]


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str


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


Node: TypeAlias = (
    Name
    | Value
    | Compare
    | Distinct
    | Both
    | Either
    | Not
    | IsNull
    | IsTruth
    | Among
    | Like
    | Reckon
    | Negate
)


def names(node: Node) -> Iterator[str]:
    """Yield the columns an expression needs."""
    if isinstance(node, Name):
        yield node.name
        return
    for field in fields(node):
        part = getattr(node, field.name)
        for each in part if isinstance(part, tuple) else (part,):
            if hasattr(each, "__dataclass_fields__"):
                yield from names(each)
