"""Working with sorted keys: searching, sorting, cutting into ranges, laying newer rows over older ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError
from trueline.kernel.key_encoding import KeyRange

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")
# Taken from each sorted run: ranges cut at them are within a few hundredths of equal size.
SAMPLES_OF_A_RUN: Final = 256
_NUMBER: Final = 8
# Longer keys are compared as bytes: that what all begin with is the same would have to be looked at.
_WIDEST: Final = 16
# Half as many keys as there are: 5 ms by sorting, 12 ms by halving (65,536 keys); a hundredth: 5 ms and 1 ms.
_MANY: Final = 8


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type=column.type)


def bools(array: pa.Array | pa.ChunkedArray) -> Bools:
    """Booleans as numpy has them."""
    return np.asarray(as_array(array).to_numpy(zero_copy_only=False), dtype=bool)


def numbers(keys: pa.BinaryArray) -> npt.NDArray[np.uint64] | None:
    """Keys of one length that differ in their last eight bytes alone, as numbers in the same order.

    None for others. Searching and sorting numbers is about ten times faster than bytes. What all keys begin
    with, such as the byte that says that a value is not null, says nothing of their order.
    """
    rows = len(keys)
    if not rows or keys.null_count:
        return None
    _, offset_buffer, data = keys.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32, count=rows + 1, offset=keys.offset * 4)
    width = int(offsets[1] - offsets[0])
    if not 0 < width <= _WIDEST or int(offsets[-1] - offsets[0]) != rows * width:
        return None
    if (np.diff(offsets) != width).any():
        return None
    raw = np.frombuffer(data, dtype=np.uint8, count=rows * width, offset=int(offsets[0]))
    if width == _NUMBER:
        return raw.view(">u8").astype(np.uint64)
    table = raw.reshape(rows, width)
    padded = np.zeros((rows, _NUMBER), dtype=np.uint8)
    if width < _NUMBER:
        padded[:, _NUMBER - width :] = table
    else:
        ahead = table[:, : width - _NUMBER]
        if (ahead != ahead[0]).any():
            return None
        padded[:] = table[:, width - _NUMBER :]
    return padded.reshape(-1).view(">u8").astype(np.uint64)


def _beginning(keys: pa.BinaryArray) -> tuple[int, bytes]:
    """The length of the first key, and what it has before its last eight bytes."""
    if not len(keys):
        return 0, b""
    first = keys[0].as_py()
    return len(first), first[:-_NUMBER]


def search_sorted(keys: pa.BinaryArray, wanted: pa.BinaryArray) -> Ints:
    """Return for each wanted key how many of the sorted keys are smaller.

    Keys that are not numbers are searched by halving, all wanted ones at
    once, which looks only at the keys it compares with.
    """
    if not len(keys) or not len(wanted):
        return np.zeros(len(wanted), dtype=np.int64)
    if len(wanted) == 1:
        return np.array([_bisect(keys, wanted[0].as_py())], dtype=np.int64)
    if _beginning(keys) == _beginning(wanted):
        hay, needles = numbers(keys), numbers(wanted)
        if hay is not None and needles is not None:
            return np.searchsorted(hay, needles).astype(np.int64)
    if len(wanted) * _MANY > len(keys):
        return _ranked(keys, wanted)
    low = np.zeros(len(wanted), dtype=np.int64)
    high = np.full(len(wanted), len(keys), dtype=np.int64)
    for _ in range(len(keys).bit_length()):
        middle = (low + high) // 2
        # Where the search is over, the middle may be one past the end.
        less = bools(pc.less(keys.take(pa.array(np.minimum(middle, len(keys) - 1))), wanted))
        open_ = low < high
        low = np.where(open_ & less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    return low


def _ranked(keys: pa.BinaryArray, wanted: pa.BinaryArray) -> Ints:
    """Search for many keys at once, by sorting them among the others."""
    order = np.asarray(pc.array_sort_indices(pa.concat_arrays([wanted, keys])).to_numpy(), dtype=np.int64)
    is_wanted = order < len(wanted)
    places = np.empty(len(wanted), dtype=np.int64)
    places[order[is_wanted]] = np.cumsum(~is_wanted)[is_wanted]
    return places


def _bisect(keys: pa.BinaryArray, wanted: bytes) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def find(keys: pa.BinaryArray, wanted: pa.BinaryArray) -> tuple[Ints, Bools]:
    """Search sorted keys: where each wanted key is or would be, and whether it is there."""
    places = search_sorted(keys, wanted)
    if not len(keys):
        return places, np.zeros(len(wanted), dtype=bool)
    at = pa.array(np.minimum(places, len(keys) - 1))
    return places, (places < len(keys)) & bools(pc.equal(keys.take(at), wanted))


def sorting(keys: pa.BinaryArray) -> Ints | None:
    """Return the stable order of the keys, None if they ascend already."""
    found = numbers(keys)
    if found is not None:
        if (found[1:] >= found[:-1]).all():
            return None
        return np.argsort(found, kind="stable").astype(np.int64)
    if len(keys) < 2 or pc.all(pc.greater_equal(keys[1:], keys[:-1])).as_py():
        return None
    return np.asarray(pc.array_sort_indices(keys).to_numpy(), dtype=np.int64)


def repeats(keys: pa.BinaryArray) -> Bools:
    """Say which of the sorted keys equal the one before."""
    found = np.zeros(len(keys), dtype=bool)
    if len(keys) > 1:
        found[1:] = bools(pc.equal(keys[1:], keys[:-1]))
    return found


def ascends(keys: pa.BinaryArray) -> bool:
    """Whether every key is there and greater than the one before."""
    if keys.null_count:
        return False
    found = numbers(keys)
    if found is not None:
        return bool((found[1:] > found[:-1]).all())
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def within(keys: pa.BinaryArray, wanted: KeyRange | None) -> tuple[int, int]:
    """Return from where to where sorted keys lie in a range."""
    if wanted is None:
        return 0, len(keys)
    first = 0 if wanted.first is None else _bisect(keys, wanted.first)
    end = len(keys) if wanted.end is None else _bisect(keys, wanted.end)
    return first, max(first, end)


def sample_places(rows: int, samples: int = SAMPLES_OF_A_RUN) -> Ints:
    """Return the places of samples at regular distances among so many rows, the first of them 0."""
    count = min(samples, rows)
    return np.arange(count, dtype=np.int64) * rows // max(count, 1)


def even_cuts(weighed: Iterable[tuple[T, float]], parts: int) -> list[T]:
    """Return at most `parts` − 1 ascending samples that cut all runs into ranges of about equal size.

    Each sample comes with the number of rows it represents. The smallest is not a cut: no range is empty.

    >>> even_cuts([(b"a", 1), (b"b", 1), (b"c", 1), (b"d", 1)], 2)
    [b'c']
    """
    if parts < 1:
        raise InputError(f"keys cannot be cut into {parts} ranges", remedy="ask for at least one")
    given: list[Any] = list(weighed)
    ordered = sorted(given)
    total = sum(weight for _, weight in ordered)
    cuts: list[T] = []
    before, number = 0.0, 1
    for sample, weight in ordered:
        if number < parts and before >= total * number / parts:
            # All rows of a key belong to one range; a frequent key uses up several.
            if sample > ordered[0][0] and (not cuts or sample > cuts[-1]):
                cuts.append(sample)
            while number < parts and before >= total * number / parts:
                number += 1
        before += weight
    return cuts


def overlay(parts: Sequence[pa.Table], column: str) -> pa.Table:
    """Merge tables sorted by a column of unique keys; where several have a key, the last one wins."""
    parts = [part for part in parts if part.num_rows]
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    newest = parts[-1]
    keys = as_array(newest[column])
    rows: Ints = np.arange(newest.num_rows, dtype=np.int64) + starts[-2]
    for number in range(len(parts) - 2, -1, -1):
        older = as_array(parts[number][column])
        older_rows: Ints = np.arange(len(older), dtype=np.int64) + starts[number]
        if keys[0].as_py() > older[-1].as_py():
            keys, rows = pa.concat_arrays([older, keys]), np.concatenate([older_rows, rows])
            continue
        order = _two(older, keys)
        rows = np.concatenate([older_rows, rows])[order]
        if number:
            keys = pa.concat_arrays([older, keys]).take(pa.array(order))
    return pa.concat_tables(parts).combine_chunks().take(pa.array(rows))


def _two(older: pa.BinaryArray, newer: pa.BinaryArray) -> Ints:
    """Return the merged order of older followed by newer keys, without older ones that newer ones replace."""
    keep = np.ones(len(older), dtype=bool)
    if len(newer) <= len(older):
        places, hit = find(older, newer)
        keep[places[hit]] = False
        dropped = np.concatenate([[0], np.cumsum(~keep)])
        slots = places - dropped[places] + np.arange(len(newer))
        order = np.empty(len(newer) + int(keep.sum()), dtype=np.int64)
        taken = np.zeros(len(order), dtype=bool)
        order[slots], taken[slots] = np.arange(len(newer)) + len(older), True
        order[~taken] = np.flatnonzero(keep)
        return order
    places, hit = find(newer, older)
    kept = np.flatnonzero(~hit)
    slots = places[kept] + np.arange(len(kept))
    order = np.empty(len(newer) + len(kept), dtype=np.int64)
    taken = np.zeros(len(order), dtype=bool)
    order[slots], taken[slots] = kept, True
    order[~taken] = np.arange(len(newer)) + len(older)
    return order


def unified(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema in its order; columns the table lacks are null in every row."""
    columns: list[Any] = []
    for field in schema:
        if field.name in table.schema.names:
            columns.append(table.column(field.name))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def merged(streams: Sequence[Iterator[pa.Table]], column: str) -> Iterator[pa.Table]:
    """Merge streams that each ascend by unique keys; where several have a key, the last stream wins.

    Holds one table of each stream. Each round gives out everything up to the
    smallest of their last keys, so at least one of them is used up.
    """
    waiting: list[pa.Table | None] = [None] * len(streams)
    while True:
        for number, stream in enumerate(streams):
            waiting[number] = _filled(waiting[number], stream)
        live = [(number, table) for number, table in enumerate(waiting) if table is not None]
        if not live:
            return
        if len(live) == 1:
            number, table = live[0]
            waiting[number] = None
            yield table
            continue
        keys = [as_array(table[column]) for _, table in live]
        # The smallest key after the bound: what is before it is given out.
        bound = KeyRange(end=min(each[-1].as_py() for each in keys) + b"\x00")
        heads = []
        for (number, table), each in zip(live, keys, strict=True):
            _, end = within(each, bound)
            heads.append(table.slice(0, end))
            waiting[number] = table.slice(end)
        yield overlay(heads, column)


def _filled(table: pa.Table | None, stream: Iterator[pa.Table]) -> pa.Table | None:
    """Return a table with rows: this one, or else the next of its stream; None at its end."""
    while table is None or not table.num_rows:
        table = next(stream, None)
        if table is None:
            return None
    return table
