"""Columns that come together in a join or one after another: of one type, their codes of one meaning.

Where they differ, the error says which side to convert and how. Categories that say on one side only what
their codes mean go together by their codes: an annotation that is absent is never an error (view:C20).
"""

from __future__ import annotations

from collections.abc import Sequence

from trueline import types as t
from trueline.errors import SchemaError
from trueline.view.annotations import category_values
from trueline.view.expressions.functions.conditional import wider
from trueline.view.plan.with_columns import conversion
from trueline.view.schema import Column


def check_same(columns: Sequence[Column], places: Sequence[str], *, lossless: bool) -> None:
    """Raise unless columns are of one type; with `lossless` no conversion that loses values is offered."""
    first = columns[0]
    for column, place in zip(columns, places, strict=True):
        if column.type != first.type:
            other = "" if column.name == first.name else f", as {column.name!r}"
            raise SchemaError(
                f"column {first.name!r} is of type {first.type} {places[0]} and {column.type} {place}{other}",
                remedy=_conversion((first, places[0]), (column, place), lossless=lossless),
                code="TypeMismatch",
                column=first.name,
                found=str(column.type),
                asked=str(first.type),
            )
    said = [
        (column, place)
        for column, place in zip(columns, places, strict=True)
        if category_values(column) is not None
    ]
    for column, place in said:
        if category_values(column) != category_values(said[0][0]):
            raise SchemaError(
                f"the codes of column {said[0][0].name!r} {said[0][1]} mean different values than those of "
                f"{column.name!r} {place}",
                remedy=_both(said[0], (column, place), _decoded(said[0][0]), _decoded(column)),
                code="TypeMismatch",
                column=first.name,
            )


def are_same(columns: Sequence[Column]) -> bool:
    """Say whether columns go together as they are."""
    said = [values for values in map(category_values, columns) if values is not None]
    return all(column.type == columns[0].type for column in columns) and all(v == said[0] for v in said)


def _conversion(one: tuple[Column, str], other: tuple[Column, str], *, lossless: bool) -> str:
    """Say what makes two columns one type: by value, and without loss where that is possible."""
    (mine, _), (theirs, _) = one, other
    if all(category_values(column) is not None for column in (mine, theirs)):
        return _both(one, other, _decoded(mine), _decoded(theirs))
    for side, beside in ((one, other), (other, one)):
        if category_values(side[0]) is not None and t.family(beside[0].type) == "text":
            return f"convert the column {side[1]}: {_decoded(side[0])}"
    target = _target(mine.type, theirs.type, lossless=lossless)
    if target is None:
        return f"there is no conversion between {mine.type} and {theirs.type}: use other columns"
    calls = [None if column.type == target else conversion(column.name, target) for column, _ in (one, other)]
    if calls[0] is not None and calls[1] is not None:
        return _both(one, other, calls[0], calls[1])
    place, call = (one[1], calls[0]) if calls[0] is not None else (other[1], calls[1])
    return f"convert the column {place}: {call}"


def _both(one: tuple[Column, str], other: tuple[Column, str], first: str, second: str) -> str:
    if first == second:
        return f"convert both columns: {first}"
    return f"convert the column {one[1]}: {first}, and the column {other[1]}: {second}"


def _decoded(column: Column) -> str:
    return f"decode({column.name!r})"


def _target(one: t.Type, other: t.Type, *, lossless: bool) -> t.Type | None:
    """Return the type that both can have; None if there is none."""
    families = (t.family(one), t.family(other))
    if families == ("category", "category"):
        assert isinstance(one, t.Category)
        assert isinstance(other, t.Category)
        return one if one.count > other.count else other
    if "category" in families and "int" in families:
        return t.int64
    if "text" in families:
        # Text that stands beside times or numbers was most likely meant as such; a join leaves out the rest.
        typed = other if families[0] == "text" else one
        if not lossless and t.can_convert(t.text, typed):
            return typed
        return t.text if t.can_convert(typed, t.text) else None
    try:
        return wider(one, other)
    except SchemaError:
        pass
    return t.text if t.can_convert(one, t.text) and t.can_convert(other, t.text) else None
