"""How many bytes the values of rows have, however the rows are held."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LENGTHS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def rows_within(table: pa.Table, most: int) -> tuple[int, int]:
    """Return how many rows from the first on have at most so many bytes, and how many they have.

    One row is always within.

    >>> rows_within(pa.table({"n": [1, 2, 3], "text": ["a", "bb", None]}), 19)
    (2, 19)
    """
    if table.nbytes <= most:  # which is more than the values: it counts what says where they end, too
        return table.num_rows, table.nbytes
    ends = np.cumsum(sum((_sizes(column) for column in table.columns), np.zeros(table.num_rows, np.int64)))
    rows = max(1, int(np.searchsorted(ends, most, side="right")))
    return rows, int(ends[rows - 1])


def _sizes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the bytes of each value of a column."""
    return np.concatenate([np.zeros(0, np.int64), *(_sizes_of(chunk) for chunk in column.chunks)])


def _sizes_of(array: Any) -> npt.NDArray[np.int64]:
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes_of(array.storage)
    if types.is_struct(kind):
        return sum((_sizes_of(each) for each in array.flatten()), np.zeros(len(array), np.int64))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        ends = np.concatenate([[0], np.cumsum(_sizes_of(array.flatten()))])
        stops = np.cumsum(_filled(pc.list_value_length(array)))
        return np.diff(ends[stops], prepend=0)
    if any(test(kind) for test in _LENGTHS):
        return _filled(pc.binary_length(array))
    try:
        return np.full(len(array), kind.bit_width // 8, np.int64)
    except ValueError:  # nothing we store: a value counts as nothing, its rows still count
        return np.zeros(len(array), np.int64)


def _filled(lengths: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(lengths, 0), np.int64)
