"""What a source hands over, made to be what its schema says: the one place where cells are looked at.

Behind it every array has exactly its column's type. A cell that is no value
of the type is missing, whichever columns are read (view:C37): a code beyond
a category's count, a vector that is malformed or of the wrong length.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.kernel.vectors import is_sparse, mended, with_items
from trueline.view.converting.numbers import codes

Array: TypeAlias = Any  # pyarrow has no types


def entered(column: Array, kind: t.Type) -> Array:
    """Return a column of a source as one array of its logical type.

    >>> entered(pa.chunked_array([[0, 7]], pa.uint32()), t.category(3)).to_pylist()
    [0, None]
    """
    array = one(column)
    if isinstance(kind, t.Vector):
        return _vectors(array, kind)
    array = array if array.type == kind.arrow else castable(array).cast(kind.arrow)
    return _coded(array, kind) if isinstance(kind, t.Category) else array


def one(column: Array) -> Array:
    """Return a column as one array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # what combine_chunks gives for no chunks, and beyond 2 GB
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def castable(array: Array) -> Array:
    """Return an array that `cast` can read: it cannot read a dictionary of text views, as polars has it.

    >>> coded = pa.DictionaryArray.from_arrays([0, None, 0], pa.array(["Bern"], pa.string_view()))
    >>> castable(coded).cast(pa.string()).to_pylist()
    ['Bern', None, 'Bern']
    """
    if not pa.types.is_dictionary(array.type):
        return array
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(
        array.type.value_type
    )
    if plain is None:
        return array
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))


def _vectors(array: Array, kind: t.Vector) -> Array:
    target = kind.sparse if is_sparse(array) else kind.arrow
    array = array if array.type == target else array.cast(target)
    array, _ = mended(array, kind)
    if isinstance(item := kind.item, t.Category):
        items = array.flatten()[2].flatten() if is_sparse(array) else array.flatten()
        if _is_beyond(items, item):
            return with_items(array, kind, item, lambda found: _coded(found, item))
    return array


def _coded(array: Array, kind: t.Category) -> Array:
    return codes(array, kind) if _is_beyond(array, kind) else array


def _is_beyond(array: Array, kind: t.Category) -> bool:
    most = pc.max(array).as_py()
    return most is not None and most >= kind.count
