"""Whether values differ, in the sense of SQL's IS DISTINCT FROM, for every type a column may have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.kernel.nan import canonical_bits
from trueline.kernel.sorted_keys import Bools, as_array, bools


def distinct(left: pa.Array, right: pa.Array) -> Bools:
    """Say row by row whether two columns of one type differ.

    Null equals null, NaN equals NaN, and −0.0 differs from 0.0: two
    values are the same when their stored bytes are.

    >>> nan = float("nan")
    >>> distinct(pa.array([1.0, None, None, nan]), pa.array([1.0, None, 2.0, nan])).tolist()
    [False, False, True, False]
    """
    assert left.type == right.type, (left.type, right.type)
    assert len(left) == len(right)
    kind = left.type
    no_left, no_right = bools(left.is_null()), bools(right.is_null())
    found: Bools = no_left != no_right
    both: Bools = ~(no_left | no_right)
    if not both.any():
        return found
    if pa.types.is_floating(kind):
        found |= both & (canonical_bits(left) != canonical_bits(right))
        return found
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            found |= both & distinct(left.field(index), right.field(index))
        return found
    if pa.types.is_nested(kind):
        found |= _lists_differ(left, right, both)
        return found
    if pa.types.is_dictionary(kind):
        return distinct(left.cast(kind.value_type), right.cast(kind.value_type))
    found |= both & bools(pc.fill_null(pc.not_equal(left, right), False))
    return found


def _lists_differ(left: pa.Array, right: pa.Array, both: Bools) -> Bools:
    """Compare lists and maps that are there: first their lengths, then their items."""
    found = np.zeros(len(left), dtype=bool)
    rows = np.flatnonzero(both)
    left, right = left.take(pa.array(rows)), right.take(pa.array(rows))
    lengths, others = _lengths(left), _lengths(right)
    found[rows[lengths != others]] = True
    equal = np.flatnonzero(lengths == others)
    left, right = left.take(pa.array(equal)), right.take(pa.array(equal))
    owners = np.repeat(rows[equal], lengths[equal])
    for items, other_items in zip(_items(left), _items(right), strict=True):
        found[owners[distinct(items, other_items)]] = True
    return found


def _lengths(lists: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if pa.types.is_fixed_size_list(lists.type):
        return np.full(len(lists), lists.type.list_size, dtype=np.int64)
    if pa.types.is_map(lists.type):
        return np.diff(np.asarray(lists.offsets)).astype(np.int64)
    return np.asarray(pc.list_value_length(lists), dtype=np.int64)


def _items(lists: pa.Array) -> list[pa.Array]:
    """The items of lists of which none is null, one after another."""
    if pa.types.is_map(lists.type):
        return [lists.keys, lists.items]
    return [lists.flatten()]


def rows_differ(old: pa.Table, new: pa.Table, columns: Sequence[str], filled_in: str | None) -> Bools:
    """Say which rows differ in any of the columns; one that is filled in only counts where it was given."""
    found = np.zeros(new.num_rows, dtype=bool)
    for name in columns:
        before, after = as_array(old[name]), as_array(new[name])
        differs = distinct(before, after)
        if name == filled_in:
            differs &= ~bools(after.is_null())
        found |= differs
    return found
