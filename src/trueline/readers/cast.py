"""Typed columns to the types that were declared: what does not fit is null, and reported."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.readers.cells import Cells, attempt, convert, flags
from trueline.readers.rules import CellRules, is_bytes, is_readable, is_text

_STEPS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def check_castable(kind: pa.DataType, field: pa.Field, path: str) -> None:
    """Refuse types between which no value could be kept, before anything is read."""
    if not _is_castable(kind, field.type):
        raise SchemaError(
            f"{path}: column {field.name!r} is {kind} and cannot be read as {field.type}",
            remedy="declare the type the file has, and convert later",
            path=path,
            column=field.name,
        )


def _is_castable(kind: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if kind.equals(wanted) or types.is_null(kind):
        return True
    if is_text(kind) or is_bytes(kind):
        return is_readable(wanted)
    if types.is_timestamp(kind) and types.is_timestamp(wanted):
        # A time without a zone is UTC; a zone cannot be dropped silently.
        return kind.tz is None or wanted.tz is not None
    try:
        pa.nulls(0, kind).cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def cast_column(array: pa.Array, wanted: pa.DataType) -> Cells:
    """Cast a column, cell by cell where it must be.

    >>> cast_column(pa.array([1.0, 1.5]), pa.int64()).array.to_pylist()
    [1, None]
    """
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if is_text(kind):
        # Arrow returns text as Parquet stores it, without checking that it is UTF-8.
        return convert(array.cast(pa.binary()), wanted, CellRules(nulls=()))
    if is_bytes(kind) and not is_bytes(wanted):
        return convert(array.cast(pa.binary()), wanted, CellRules(nulls=()))
    if types.is_timestamp(kind) and types.is_timestamp(wanted):
        return _timestamps(array, wanted)
    if kind.equals(wanted):
        return _valid(array)
    found = attempt(array, wanted)
    if found.null_count == array.null_count:
        return _valid(found)
    return Cells(found, flags(pc.and_(pc.is_valid(array), pc.is_null(found))))


def _valid(array: pa.Array) -> Cells:
    """Text inside structs and lists is checked too; a cell with invalid UTF-8 is bad."""
    if not pa.types.is_nested(array.type):
        return Cells(array)
    broken = np.zeros(len(array), np.bool_)
    _find_broken(array, 0, broken)
    if not broken.any():
        return Cells(array)
    kept = [None if gone else array[row : row + 1] for row, gone in enumerate(broken)]
    parts = [pa.nulls(1, array.type) if part is None else part for part in kept]
    return Cells(pa.concat_arrays(parts), broken, int(np.count_nonzero(broken)))


def _find_broken(array: pa.Array, start: int, broken: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    # A slice still holds the memory of its neighbours; only a copy holds the rows in question alone.
    try:
        pa.concat_arrays([array, array[:0]]).validate(full=True)
    except pa.ArrowInvalid:
        if len(array) == 1:
            broken[start] = True
            return
        half = len(array) // 2
        _find_broken(array[:half], start, broken)
        _find_broken(array[half:], start + half, broken)


def _timestamps(array: pa.Array, wanted: pa.DataType) -> Cells:
    """Another unit: digits too fine are cut off and counted, times too far away are bad."""
    have, want = _STEPS[array.type.unit], _STEPS[wanted.unit]
    ticks = array.view(pa.int64())
    if want < have:
        step = have // want
        values = pc.fill_null(ticks, 0).to_numpy()
        rounded = int(np.count_nonzero(values % step))
        made = pa.array(values // step, mask=flags(pc.is_null(array)))
        return Cells(made.view(wanted), None, 0, rounded)
    if want == have:
        return Cells(ticks.view(wanted))
    step = want // have
    values = pc.fill_null(ticks, 0).to_numpy()
    far = (values > (2**63 - 1) // step) | (values < -(2**63 - 1) // step)
    made = pa.array(np.where(far, 0, values) * step, mask=far | flags(pc.is_null(array)))
    return Cells(made.view(wanted), far if far.any() else None)
