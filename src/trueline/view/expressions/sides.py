"""The sides of an expression: a column of values, or one value for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# An array or a scalar of Arrow's: pyarrow has no types to say so with.
Side: TypeAlias = Any
Array: TypeAlias = Any


def as_array(side: Side, rows: int) -> Array:
    """Return a value for each row."""
    if isinstance(side, pa.ChunkedArray):
        return side.combine_chunks()
    if isinstance(side, pa.Array):
        return side
    return pa.repeat(side, rows) if side.is_valid and rows else pa.nulls(rows, side.type)


def over(sides: Sequence[Side], run: Callable[..., Array]) -> Side:
    """Run a kernel that wants arrays: over the rows there are, or over one if all are single values."""
    rows = [len(side) for side in sides if not isinstance(side, pa.Scalar)]
    if not rows:
        return run(*(as_array(side, 1) for side in sides))[0]
    return run(*(as_array(side, rows[0]) for side in sides))


def flags(array: Array) -> npt.NDArray[np.bool_]:
    """Return truth as numpy has it; missing is false."""
    return np.asarray(pc.fill_null(array, False))
