"""Functions of vectors; dense and sparse ones are alike (view:C107)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import SchemaError
from trueline.kernel.vectors import is_sparse, items_at, sizes
from trueline.view.expressions.functions.conditional import common, logical
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.operands import Array, Operand, over


def _kind(array: Array) -> t.Vector:
    """The type of the items is all that counts here."""
    found = (
        t.vector(t.of(array.type.field("values").type.value_field)) if is_sparse(array) else t.of(array.type)
    )
    if not isinstance(found, t.Vector):
        raise SchemaError(
            f"{array.type} is not a vector", remedy="give a vector of single values", code="TypeMismatch"
        )
    return found


@function(
    "size",
    "vector",
    says="how many values a vector has",
)
def size(array: Array) -> Array:
    """Count the values."""
    _kind(array)
    return sizes(array).cast(pa.int64())


@function(
    "item",
    "vector",
    "whole",
    says="the value at a place, counted from 0, as `v[0]`; null if there is none",
    spark="written `v[0]` there",
)
def item(array: Array, place: Array) -> Array:
    """Return a value by its place from 0 on."""
    at = np.asarray(pc.fill_null(place, -1)).astype(np.int64)
    return items_at(array, _kind(array), at)


@function(
    "element_at", "vector", "whole", says="the value at a place, counted from 1, from the end if below 0"
)
def element_at(array: Array, place: Array) -> Array:
    """Return a value by its place from 1 on."""
    at = np.asarray(pc.fill_null(place, 0)).astype(np.int64)
    count = np.asarray(pc.fill_null(sizes(array), 0), np.int64)
    return items_at(array, _kind(array), np.where(at > 0, at - 1, np.where(at < 0, count + at, -1)))


@function("array", "values*", says="a vector of values, all of one type; a null is a null item")
def array(*sides: Operand) -> Operand:
    """Put values into a vector."""
    given = common(sides)
    kind = t.vector(logical(given[0]), len(given)) if given and not pa.types.is_null(given[0].type) else None
    if kind is None:
        raise SchemaError(
            "array() without values has no type", remedy="cast one of the values", code="TypeMismatch"
        )
    return over(given, lambda *arrays: _interleaved(arrays, kind))


def _interleaved(arrays: tuple[Array, ...], kind: t.Vector) -> Array:
    rows = len(arrays[0])
    joined = pa.concat_arrays([each.cast(kind.item.arrow) for each in arrays])
    order = np.arange(rows * len(arrays)).reshape(len(arrays), rows).T.reshape(-1)
    return pa.FixedSizeListArray.from_arrays(joined.take(pa.array(order)), type=kind.arrow)
