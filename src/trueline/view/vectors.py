"""Vectors in chunks: the dense encoding, the sparse one, and what is the same for both.

Dense is a list for each row (of a fixed size, if the type says so). Sparse is
a struct for each row: `size`, `indices` in rising order, and as many `values`;
a row whose `indices` are missing is dense within it (view:C105). Entries that
are not listed have the item's default: 0, false, the empty text (view:C106).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from trueline import types as t


def sparse_type(kind: t.Vector) -> pa.DataType:
    """Return how sparse vectors lie in memory."""
    return pa.struct(
        [
            pa.field("size", pa.int32(), nullable=False),
            pa.field("indices", pa.list_(pa.int32())),
            pa.field("values", pa.list_(pa.field("item", kind.item.arrow))),
        ]
    )


def is_sparse(array: pa.Array) -> bool:
    """Say whether an array of vectors is in the sparse encoding."""
    return bool(pa.types.is_struct(array.type))


def dense(array: pa.Array, kind: t.Vector) -> pa.Array:
    """Return vectors in the dense encoding, whatever they came in."""
    if not is_sparse(array):
        return array
    raise NotImplementedError


def concatenated(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return arrays of one column one after another; encodings may differ from one to the next."""
    if not arrays:
        return pa.array([], kind)
    if len(arrays) == 1:
        return arrays[0]
    if len({array.type for array in arrays}) > 1:
        target = t.of(kind)
        assert isinstance(target, t.Vector)
        arrays = [dense(array, target) for array in arrays]
    return pa.concat_arrays(arrays)


def value_reader(kind: t.Vector) -> Any:
    """Return what turns an array of vectors into a function from row to value."""

    def read(array: pa.Array) -> Any:
        plain = dense(array, kind)
        return lambda at: plain[at].as_py()

    return read
