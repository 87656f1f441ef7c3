"""Choosing among values: case, coalesce, least and their like; and the type that values of several have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import SchemaError
from trueline.view.converting import convert
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.operands import Array, Operand, as_moment, over, plain
from trueline.view.source_cells import entered

_UNITS: Final = ("s", "ms", "us", "ns")


def logical(side: Operand) -> t.Type:
    """Return the logical type of a side, encodings given up."""
    return t.of(side.type)


def converted(side: Operand, target: t.Type) -> Operand:
    """Return a side as another type, null where there is no such value."""
    source = logical(side)
    if source == target and side.type == target.arrow:
        return side
    return over([side], lambda array: convert(entered(array, source), source, target))


# --- the type of several ------------------------------------------------------------------------


def common(sides: Sequence[Operand]) -> list[Operand]:
    """Return sides as one type: the narrowest that holds all of them; constants go along if they can."""
    given = [plain(side) for side in sides]
    columns = [side for side in given if not isinstance(side, pa.Scalar) and not _is_nothing(side)]
    target = reduce(wider, map(logical, columns)) if columns else None
    for side in given:
        if isinstance(side, pa.Scalar) and not _is_nothing(side):
            target = _with_constant(target, side)
    if target is None:
        return given
    return [converted(_constant(side, target), target) for side in given]


def _is_nothing(side: Operand) -> bool:
    return bool(pa.types.is_null(side.type))


def _with_constant(target: t.Type | None, constant: pa.Scalar) -> t.Type:
    """A constant takes the type of the other operand if that holds it exactly."""
    kind = logical(constant)
    if target is None or kind == target:
        return kind
    if kind == t.text and (isinstance(target, t.Timestamp | t.Time) or target == t.date):
        as_moment(constant, target.arrow)  # says what is wrong with it
        return target
    if t.family(kind) in _NUMBERS and t.family(target) in _NUMBERS and constant.is_valid:
        there = converted(constant, target)
        if there.is_valid and converted(there, kind).equals(constant):
            return target
    return target if not constant.is_valid and t.can_convert(kind, target) else wider(target, kind)


def _constant(side: Operand, target: t.Type) -> Operand:
    if isinstance(side, pa.Scalar) and logical(side) == t.text != target and side.is_valid:
        return as_moment(side, target.arrow)
    return side


_NUMBERS: Final = ("int", "float", "decimal")


def wider(one: t.Type, other: t.Type) -> t.Type:
    """Return the narrowest type that holds the values of both."""
    if one == other:
        return one
    families = (t.family(one), t.family(other))
    found: t.Type | None = None
    if all(family in _NUMBERS for family in families):
        found = _wider_number(one, other, families)
    elif set(families) <= {"date", "timestamp"}:
        found = _wider_moment(one, other)
    elif isinstance(one, t.Time | t.Duration) and type(one) is type(other):
        assert isinstance(other, t.Time | t.Duration)
        found = type(one)(max(one.unit, other.unit, key=_UNITS.index))
    elif isinstance(one, t.Vector) and isinstance(other, t.Vector):
        item = wider(one.item, other.item)
        found = t.Vector(
            item, one.dims if one.dims == other.dims else (one.size if one.size == other.size else 0,)
        )
    if found is None:
        raise SchemaError(
            f"{one} and {other} have no type in common",
            remedy=f"say which is meant: cast(x as {one})",
            code="TypeMismatch",
            left=str(one),
            right=str(other),
        )
    return found


def _wider_number(one: t.Type, other: t.Type, families: tuple[str, str]) -> t.Type:
    if "float" in families:
        return t.float64
    if "decimal" in families:
        kinds = [_as_decimal(kind) for kind in (one, other)]
        scale = max(kind.scale for kind in kinds)
        return t.decimal(min(76, max(kind.precision - kind.scale for kind in kinds) + scale), scale)
    bits = {kind.arrow.bit_width: kind for kind in (one, other)}
    signs = [pa.types.is_signed_integer(kind.arrow) for kind in (one, other)]
    if all(signs) or not any(signs):
        return bits[max(bits)]
    unsigned = (one if signs[1] else other).arrow.bit_width
    signed = (other if signs[1] else one).arrow.bit_width
    if max(unsigned * 2, signed) > 64:
        return t.decimal(20)
    return t.Primitive(f"int{max(unsigned * 2, signed)}")


def _as_decimal(kind: t.Type) -> t.Decimal:
    return kind if isinstance(kind, t.Decimal) else t.decimal(20 if kind == t.uint64 else 19)


def _wider_moment(one: t.Type, other: t.Type) -> t.Type:
    stamps = [kind for kind in (one, other) if isinstance(kind, t.Timestamp)]
    unit = max((kind.unit for kind in stamps), key=_UNITS.index)
    zoned = any(kind.zone for kind in stamps)
    return t.timestamp(unit, "UTC" if zoned else None)


# --- choosing -------------------------------------------------------------------------------------


def case(conditions: Sequence[Operand], values: Sequence[Operand]) -> Operand:
    """Return for each row the value behind the first condition that is true, else the last value."""
    chosen = common(values)
    found = chosen[-1]
    for truth, value in zip(reversed(conditions), reversed(chosen[:-1]), strict=True):
        found = _if_else(pc.fill_null(truth, False), value, found)
    return found


def _if_else(truth: Operand, one: Operand, other: Operand) -> Operand:
    if isinstance(truth, pa.Scalar):
        rows = next((len(side) for side in (one, other) if not isinstance(side, pa.Scalar)), None)
        chosen = one if truth.as_py() else other
        return (
            chosen
            if rows is None or not isinstance(chosen, pa.Scalar)
            else over([chosen, pa.nulls(rows)], _first)
        )
    if _is_nothing(one) and _is_nothing(other):
        return pa.nulls(len(truth))
    return over([truth, one, other], pc.if_else)


def _first(array: Array, _: Array) -> Array:
    return array


@function("coalesce", "values", "values*", says="the first that is not null")
def coalesce(*sides: Operand) -> Operand:
    """Return the first that is there."""
    given = common(sides)
    if all(_is_nothing(side) for side in given):
        return given[0]
    return pc.coalesce(*given)


@function("nullif", "values", "values", says="the first, null where both are equal")
def nullif(one: Operand, other: Operand) -> Operand:
    """Return the first where it differs from the second."""
    from trueline.view.expressions.expression import compare

    equal = pc.fill_null(compare("=", one, other), False)
    return case([equal], [pa.scalar(None, plain(one).type), one])


@function("isnull", "values", says="whether it is null, as `is null`")
def isnull(side: Operand) -> Operand:
    """Say whether a value is null."""
    return pc.is_null(side)


@function("isnotnull", "values", says="whether it is there, as `is not null`")
def isnotnull(side: Operand) -> Operand:
    """Say whether a value is there."""
    return pc.is_valid(side)


@function(
    "least", "values", "values", "values*", says="the smallest of those that are there; NaN is the largest"
)
def least(*sides: Operand) -> Operand:
    """Return the smallest."""
    return _extreme(sides, "<")


@function(
    "greatest", "values", "values", "values*", says="the largest of those that are there; NaN is the largest"
)
def greatest(*sides: Operand) -> Operand:
    """Return the largest."""
    return _extreme(sides, ">")


def _extreme(sides: Sequence[Operand], op: str) -> Operand:
    given = common(sides)
    kind = given[0].type
    if pa.types.is_null(kind):
        return given[0]
    if not logical(given[0]).has_order:
        raise SchemaError(f"{kind} has no order", remedy="compare its items", code="TypeMismatch")
    better: Any = pc.less if op == "<" else pc.greater

    def of(one: Array, other: Array) -> Array:
        wins = pc.fill_null(better(one, other), False)
        if pa.types.is_floating(kind):
            nan = pc.fill_null(pc.is_nan(other if op == "<" else one), False)
            wins = pc.and_(pc.or_(wins, nan), pc.is_valid(one))
        wins = pc.or_(wins, pc.is_null(other))
        return pc.if_else(pc.and_(wins, pc.is_valid(one)), one, other)

    return over(given, lambda *arrays: reduce(of, arrays))
