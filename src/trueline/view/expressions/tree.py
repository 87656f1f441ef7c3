"""The parts of an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

import pyarrow as pa

from trueline import types
from trueline.errors import SchemaError
from trueline.types import Type

Comparing: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOp: TypeAlias = Literal["+", "-", "*", "/", "%"]


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
    """Two values compared; null if one of them is."""

    op: Comparing
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Distinct:
    """Whether two values differ, where null is a value like others; `negated` asks whether they do not."""

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
    """Whether a value is null."""

    of: Expr


@dataclass(frozen=True)
class IsTruth:
    """`is true` and `is false`: null is neither."""

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
    """Arithmetic; null where there is no answer: division by zero, overflow."""

    op: ArithmeticOp
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
    """A value of another type; null where there is none."""

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


# --- opaque types: stored as numbers or bytes, and neither (view:C14) --------------------------

# Arrow's types do not tell categories and row ids from numbers and bytes. An expression is looked through
# once, when it is bound to columns: they can be compared for equality with their own kind, looked for in
# lists, chosen among, and cast.
_CHOOSING = frozenset({"coalesce", "nullif", "array"})
_ASKING = frozenset({"isnull", "isnotnull", "size"})


def kind_of(node: Expr) -> types.Type | None:
    """Return the type of an expression that Arrow's types do not tell, None for all others."""
    match node:
        case Name(_, kind) | Cast(_, kind):
            return kind if kind is not None and kind.is_told else None
        case Case(_, values):
            return _one(values)
        case Call("array", arguments):
            item = _one(arguments)
            return None if item is None else types.vector(item, len(arguments))
        case Call("item" | "element_at", (of, *_)):
            vector = kind_of(of)
            item = vector.item if isinstance(vector, types.Vector) else None
            return item if item is not None and item.is_told else None
        case Call("coalesce", arguments):
            return _one(arguments)
        case Call("nullif", (one, *_)):
            return kind_of(one)
    return None


def _one(nodes: tuple[Expr, ...]) -> types.Type | None:
    return next((kind for kind in map(kind_of, nodes) if kind is not None), None)


def check(node: Expr) -> None:
    """Refuse what would take a category or a row id for the number or the bytes it is stored as."""
    for part in parts(node):
        check(part)
    marked = [kind for kind in map(kind_of, parts(node)) if kind is not None]
    if not marked:
        return
    match node:
        case IsNull() | Cast():
            return
        case Compare("=" | "<>", left, right) | Distinct(left, right, _):
            _alike((left, right))
        case In(of, values):
            _alike((of, *values))
        case Case(_, values):
            _alike(values)
        case Call(name, arguments) if name in _CHOOSING:
            _alike(arguments)
        case Call(name, _) if name in _ASKING:
            return
        case Call("item" | "element_at", (_, place)) if kind_of(place) is None:
            return
        case _ if all(isinstance(kind, types.Vector) and not kind.item.is_told for kind in marked):
            return  # of several dimensions: stored as what it is
        case _:
            raise _refused(marked[0])


def _alike(nodes: tuple[Expr, ...]) -> None:
    kinds = {kind_of(node) for node in nodes if not _is_nothing(node)}
    if len(kinds) > 1:
        marked = next(kind for kind in kinds if kind is not None)
        raise _refused(marked)


def _is_nothing(node: Expr) -> bool:
    return isinstance(node, Value) and not node.scalar.is_valid


def _refused(kind: types.Type) -> SchemaError:
    meant = "int64" if isinstance(kind, types.Category) else "text"
    return SchemaError(
        f"{kind} is neither the number nor the bytes it is stored as",
        remedy=f"if that is meant, say so: cast(x as {meant})",
        code="TypeMismatch",
    )
