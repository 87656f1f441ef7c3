"""Vectors in chunks: the dense encoding, the sparse one, and what is the same for both.

Dense is a list for each row (of a fixed size, if the type says so). Sparse is
a struct for each row: `size`, `indices` in rising order, and as many `values`;
a row whose `indices` are null is dense within it (view:C105). Entries that
are not listed have the item's default: 0, false, the empty text (view:C106).

What a source gives is looked at once, as it comes in: a vector that is
malformed or of the wrong length is null, like any cell that cannot be
read, whichever columns are read (view:C37, view:C108). From there on every
vector is well formed; a kernel that makes another one is wrong, which is reported
by `checked`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import InputError, SchemaError

Array: TypeAlias = Any  # pyarrow has no types
Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
_LARGEST: Final = (1 << 31) - 1


def sparse_type(kind: t.Vector) -> pa.DataType:
    """Return how sparse vectors lie in memory."""
    return kind.sparse


def is_sparse(array: Array) -> bool:
    """Say whether an array of vectors is in the sparse encoding."""
    return bool(pa.types.is_struct(array.type))


def default(item: t.Type) -> pa.Scalar:
    """Return what an entry is that a sparse vector does not list (view:C106)."""
    kind = item.arrow
    if isinstance(item, t.RowIdentity):
        return pa.scalar(bytes(16), kind)
    if item == t.text:
        return pa.scalar("", kind)
    if item == t.binary:
        return pa.scalar(b"", kind)
    if item == t.boolean:
        return pa.scalar(False, kind)
    if pa.types.is_temporal(kind):
        return pa.array([0], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)[0]
    return pa.scalar(0, pa.int8()).cast(kind) if not pa.types.is_decimal(kind) else pa.scalar(0, kind)


# --- taking apart and putting together ----------------------------------------------------------


@dataclass(frozen=True)
class Apart:
    """Vectors taken apart, whatever they came in: row by row how long they are, and what they list."""

    valid: Flags
    sizes: Ints
    listed: Flags  # whether the row names the places of its values
    counts: Ints  # of values
    indices: Ints  # the place of each value in its row
    items: Array

    @property
    def rows(self) -> Ints:
        """The row of each value."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def starts(self) -> Ints:
        """Where the values of each row begin."""
        return np.cumsum(self.counts) - self.counts


def apart(array: Array) -> Apart:
    """Take well-formed vectors apart."""
    valid = np.asarray(pc.is_valid(array))
    if not is_sparse(array):
        counts = _lengths(array)
        none = np.zeros(len(array), np.bool_)
        return Apart(valid, counts, none, counts, _within_rows(counts), array.flatten())
    size, indices, values = array.flatten()
    counts = _lengths(values)
    listed = np.asarray(pc.is_valid(indices))
    places = _within_rows(counts)
    if listed.any():
        places[np.repeat(listed, counts)] = np.asarray(indices.flatten(), np.int64)
    sizes = np.asarray(pc.fill_null(size, 0), np.int64)
    return Apart(valid, sizes, listed, counts, places, values.flatten())


def _lengths(lists: Array) -> Ints:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def _within_rows(counts: Ints) -> Ints:
    """Count from 0 in each row."""
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)


def _offsets(counts: Ints) -> Array:
    total = int(counts.sum())
    if total > _LARGEST:
        raise InputError(
            f"{total:,} values of vectors do not fit one array",
            remedy="read them sparse, row by row with a cursor, or take fewer columns",
            code="TooLarge",
        )
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())


def dense(array: Array, kind: t.Vector) -> Array:
    """Return vectors in the dense encoding, whatever they came in."""
    if not is_sparse(array):
        return array
    found = apart(array)
    sizes = np.where(found.valid, found.sizes, 0)
    slots = np.full(len(sizes), kind.size) if kind.size else sizes
    offsets = _offsets(slots)
    # Place 0 holds the default, which everything is that is not listed.
    source = np.zeros(int(slots.sum()), np.int64)
    source[np.asarray(offsets, np.int64)[:-1][found.rows] + found.indices] = np.arange(
        1, len(found.items) + 1
    )
    first = pa.array([default(kind.item).as_py()], kind.item.arrow)
    items = pa.concat_arrays([first, found.items.cast(kind.item.arrow)]).take(pa.array(source))
    return _listed(kind.arrow, offsets, items, ~found.valid)


def _listed(kind: pa.DataType, offsets: Array, items: Array, gone: Flags) -> Array:
    mask = pa.array(gone)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)


def sparse(array: Array, kind: t.Vector, where: Flags | None = None) -> Array:
    """Return vectors in the sparse encoding; with `where`, other rows are dense within it (view:C107)."""
    found = apart(array)
    listed = found.valid if where is None else where & found.valid
    if is_sparse(array):
        # Rows that are to be dense are filled, the others are emptied of what need not be listed.
        found = apart(dense(array, kind))
    keep = ~(is_default(found.items, kind.item) & listed[found.rows])
    counts = np.bincount(found.rows[keep], minlength=len(listed)).astype(np.int64)
    places = found.indices[keep]
    items = found.items.filter(pa.array(keep))
    return together(
        Apart(found.valid, found.sizes, listed, counts, places, items),
        kind,
    )


def together(parts: Apart, kind: t.Vector) -> Array:
    """Put vectors together in the sparse encoding."""
    places = parts.indices[np.repeat(parts.listed, parts.counts)].astype(np.int32)
    indices = pa.ListArray.from_arrays(
        _offsets(np.where(parts.listed, parts.counts, 0)), pa.array(places), mask=pa.array(~parts.listed)
    )
    target = kind.sparse
    values = pa.ListArray.from_arrays(_offsets(parts.counts), parts.items, type=target.field("values").type)
    sizes = pa.array(parts.sizes, pa.int32())
    return pa.StructArray.from_arrays(
        [sizes, indices, values], fields=list(target), mask=pa.array(~parts.valid)
    )


def is_default(items: Array, item: t.Type) -> Flags:
    """Say which values are exactly the default: not null, and not the negative zero."""
    kind = items.type
    if pa.types.is_floating(kind):
        bits = items.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        return np.asarray(pc.fill_null(pc.equal(bits, 0), False))
    return np.asarray(pc.fill_null(pc.equal(items, default(item)), False))


def concatenated(arrays: Sequence[Array], kind: pa.DataType) -> Array:
    """Return arrays of one column one after another; encodings may differ from one to the next."""
    if not arrays:
        return pa.array([], kind)
    if len(arrays) == 1:
        return arrays[0]
    if len({is_sparse(array) for array in arrays}) > 1:
        target = t.of(kind)
        assert isinstance(target, t.Vector)
        none = [np.zeros(len(array), np.bool_) for array in arrays]
        # Filling in what is not listed could take any amount of memory.
        arrays = [
            array if is_sparse(array) else sparse(array, target, where)
            for array, where in zip(arrays, none, strict=True)
        ]
    return pa.concat_arrays(arrays)


# --- what kernels need --------------------------------------------------------------------------


def sizes(array: Array) -> Array:
    """Return how long the vectors are."""
    return array.flatten()[0] if is_sparse(array) else pc.list_value_length(array).cast(pa.int32())


def items_at(array: Array, kind: t.Vector, places: Ints) -> Array:
    """Return one value of each row, by its place; null where there is none."""
    found = apart(array)
    inside = found.valid & (places >= 0) & (places < found.sizes)
    # The values are in order of row and place: one search finds them all.
    step = int(found.sizes.max(initial=0)) + 1
    keys = found.rows * step + found.indices
    wanted = np.arange(len(places)) * step + np.where(inside, places, 0)
    at = np.searchsorted(keys, wanted)
    hit = (at < len(keys)) & (keys[np.minimum(at, len(keys) - 1)] == wanted) if len(keys) else inside & False
    first = pa.array([default(kind.item).as_py()], kind.item.arrow)
    all_items = pa.concat_arrays([first, found.items.cast(kind.item.arrow)])
    return all_items.take(pa.array(np.where(hit, at + 1, 0), mask=~inside))


def with_items(array: Array, kind: t.Vector, item: t.Type, change: Callable[[Array], Array]) -> Array:
    """Return vectors of another item type, each value changed; what is not listed is changed alike."""
    target = t.Vector(item, kind.dims)
    if is_sparse(array):
        usual = change(pa.array([default(kind.item).as_py()], kind.item.arrow))
        if not is_default(usual, item)[0]:
            array = dense(array, kind)
    found = apart(array)
    if is_sparse(array):
        parts = Apart(
            found.valid, found.sizes, found.listed, found.counts, found.indices, change(found.items)
        )
        return together(parts, target)
    items = change(found.items)
    if target.size:
        # Null rows have slots too.
        source = np.where(found.valid, found.starts, -1)[:, None] + np.arange(target.size)
        gone = np.repeat(~found.valid, target.size)
        items = items.take(pa.array(source.reshape(-1), mask=gone))
    return _listed(target.arrow, None if target.size else _offsets(found.counts), items, ~found.valid)


def sized(array: Array, kind: t.Vector, target: t.Vector) -> Array:
    """Return vectors as those of a type with the same items; those of another length are null."""
    if is_sparse(array):
        wrong = _wrong_size(np.asarray(pc.fill_null(sizes(array), 0), np.int64), target)
        return _without(array, wrong)
    if kind.size == target.size:
        return array
    found = apart(array)
    if not target.size:
        return _listed(target.arrow, _offsets(found.counts), found.items, ~found.valid)
    good = found.valid & (found.counts == target.size)
    source = np.where(good, found.starts, 0)[:, None] + np.arange(target.size)
    items = found.items.take(pa.array(source.reshape(-1), mask=np.repeat(~good, target.size)))
    return _listed(target.arrow, None, items, ~good)


def same(one: Array, other: Array, kind: t.Vector) -> Flags:
    """Say row by row whether vectors have the same values, blind to how they are encoded (view:C107)."""
    a, b = (_bare(apart(array), kind) for array in (one, other))
    alike: Flags = (a.valid == b.valid) & (a.sizes == b.sizes) & (a.counts == b.counts)
    keep_a, keep_b = (alike[parts.rows] for parts in (a, b))
    x, y = a.items.filter(pa.array(keep_a)), b.items.filter(pa.array(keep_b))
    equal = np.asarray(pc.fill_null(pc.equal(x, y), False))
    equal |= np.asarray(pc.and_(pc.is_null(x), pc.is_null(y)))
    if pa.types.is_floating(x.type):
        equal |= np.asarray(pc.fill_null(pc.and_(pc.is_nan(x), pc.is_nan(y)), False))
    equal &= a.indices[keep_a] == b.indices[keep_b]
    alike[a.rows[keep_a][~equal]] = False
    return alike


def _bare(found: Apart, kind: t.Vector) -> Apart:
    """Vectors that list nothing but what is not the default."""
    keep = ~np.asarray(pc.fill_null(pc.equal(found.items, default(kind.item)), False))
    counts = np.bincount(found.rows[keep], minlength=len(found.counts)).astype(np.int64)
    lengths = np.where(found.valid, found.sizes, 0)
    return Apart(
        found.valid, lengths, found.listed, counts, found.indices[keep], found.items.filter(pa.array(keep))
    )


# --- what comes in ------------------------------------------------------------------------------


def mended(array: Array, kind: t.Vector) -> tuple[Array, int]:
    """Return vectors of a source with the malformed ones null, and how many those are (view:C37)."""
    wrong = malformed(array, kind)
    count = int(np.count_nonzero(wrong))
    return (_without(array, wrong), count) if count else (array, 0)


def checked(array: Array, kind: t.Vector, who: str) -> Array:
    """Return vectors that a kernel made, or say that it makes malformed ones (view:C105, view:C108)."""
    wrong = np.flatnonzero(malformed(array, kind))
    if len(wrong):
        raise SchemaError(
            f"{who} made a vector that is not {kind}: {array[int(wrong[0])].as_py()!r:.200}",
            remedy="indices ascend below the size, with one value each, and the length is that of the type",
            code="BadVector",
        )
    return array


def malformed(array: Array, kind: t.Vector) -> Flags:
    """Say which rows are not vectors of the type (view:C105, view:C108)."""
    valid = np.asarray(pc.is_valid(array))
    if not is_sparse(array):
        return valid & _wrong_size(_lengths(array), kind)
    size, indices, values = array.flatten()
    counts, places = _lengths(values), _lengths(indices)
    length = np.asarray(pc.fill_null(size, -1), np.int64)
    listed = np.asarray(pc.is_valid(indices))
    wrong = (length < 0) | ~np.asarray(pc.is_valid(values)) | _wrong_size(length, kind)
    wrong |= np.where(listed, counts != places, counts != length)
    flat = np.asarray(pc.fill_null(indices.flatten(), -1), np.int64)
    rows = np.repeat(np.arange(len(array)), places)
    bad = (flat < 0) | (flat >= length[rows])
    bad[1:] |= (rows[1:] == rows[:-1]) & (flat[1:] <= flat[:-1])
    wrong[rows[bad]] = True
    found: Flags = valid & wrong
    return found


def _wrong_size(lengths: Ints, kind: t.Vector) -> Flags:
    return np.not_equal(lengths, kind.size) if kind.size else np.zeros(len(lengths), np.bool_)


def _without(array: Array, gone: Flags) -> Array:
    if not gone.any():
        return array
    return pc.if_else(pa.array(gone), pa.scalar(None, array.type), array)
