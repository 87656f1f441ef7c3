"""Typed columns to the types that were declared: what does not fit is null, and reported."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.readers.cells import Cells, attempt, convert, decode, flags
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
    checked = sound(array)
    if kind.equals(wanted):
        return checked
    found = attempt(checked.array, wanted)
    if found.null_count == array.null_count:
        return Cells(found)
    return Cells(found, flags(pc.and_(pc.is_valid(array), pc.is_null(found))), checked.undecodable)


# --- cells that are not values of their own type ---------------------------------------------


def may_be_unsound(kind: pa.DataType) -> bool:
    """Whether an array of a type can hold what is not a value of it, though Arrow reads it.

    >>> may_be_unsound(pa.list_(pa.string())), may_be_unsound(pa.int64())
    (True, False)
    """
    types = pa.types
    if is_text(kind) or types.is_date64(kind) or types.is_time(kind) or types.is_decimal(kind):
        return True
    return any(may_be_unsound(kind.field(number).type) for number in range(kind.num_fields))


def sound(array: pa.Array) -> Cells:
    """Make null what is not a value: invalid UTF-8, a date off midnight, a time beyond the day.

    A struct or list of which a part is not one is null as a whole.

    >>> sound(pa.array([0, 1], pa.int64()).view(pa.date64())).array.null_count
    1
    """
    kind = array.type
    if not may_be_unsound(kind) or not len(array) or _is_valid(array):
        return Cells(array)
    if is_text(kind) and not pa.types.is_string_view(kind):
        texts, broken = decode(
            array.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
        )
        return Cells(texts.cast(kind), broken, 0 if broken is None else int(np.count_nonzero(broken)))
    broken = np.zeros(len(array), np.bool_)
    _find_broken(array, 0, broken)
    if not broken.any():
        return Cells(array)
    edges = np.flatnonzero(np.diff(broken, prepend=not broken[0], append=not broken[-1]))
    runs = [array[low:high] for low, high in pairwise(edges.tolist())]
    parts = [pa.nulls(len(run), kind) if broken[low] else run for low, run in zip(edges, runs, strict=False)]
    return Cells(pa.concat_arrays(parts), broken, int(np.count_nonzero(broken)) if kind.num_fields else 0)


def _is_valid(array: pa.Array) -> bool:
    # A slice of lists still holds the memory of its neighbours; only a copy holds the rows in question alone.
    alone = pa.concat_arrays([array, array[:0]]) if array.type.num_fields else array
    try:
        alone.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _find_broken(array: pa.Array, start: int, broken: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    if _is_valid(array):
        return
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
