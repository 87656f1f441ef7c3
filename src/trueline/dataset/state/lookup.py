"""Looking keys up in segments: newest first, only where they can be, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.dataset.state.segment import GONE, rows_of
from trueline.dataset.state.segment_reader import SegmentReader
from trueline.kernel.key_encoding import KEY
from trueline.kernel.sorted_keys import Bools, as_array, find, sorting, unified

# Reading a group and searching it leave Python, so two at a time keep two cores busy.
READERS: Final = 2
_Hit = tuple[int, Bools, pa.Table]


class RoomIsFull(Exception):
    """Rows have more bytes than there is room for."""


class RoomForRows:
    """How many bytes rows may have together, any number if nothing is said."""

    def __init__(self, most: int | None = None) -> None:
        self._left = most

    def take(self, rows: pa.Table) -> None:
        """Make room for rows."""
        if self._left is not None:
            self._left -= rows.nbytes
            if self._left < 0:
                raise RoomIsFull


def found_rows(
    newest_first: Sequence[Sequence[SegmentReader]],
    keys: pa.BinaryArray,
    wanted: pa.Schema,
    room: RoomForRows,
) -> pa.Table:
    """Return the rows of sorted, unique keys; each is looked for, newest first, until it is found."""
    schema = rows_of(wanted)
    pieces = [schema.empty_table()]
    for generation in newest_first:
        if not len(keys):
            break
        seen = np.zeros(len(keys), dtype=bool)
        for start, hit, rows in _in_generation(generation, keys, schema, room):
            seen[start : start + len(hit)] |= hit
            pieces.append(rows)
        keys = keys.filter(pa.array(~seen))
    rows = pa.concat_tables(pieces)
    rows = rows.filter(pc.invert(rows[GONE])).drop_columns([GONE])
    order = sorting(as_array(rows[KEY]))
    return rows if order is None else rows.take(pa.array(order))


def _in_generation(
    generation: Sequence[SegmentReader], keys: pa.BinaryArray, schema: pa.Schema, room: RoomForRows
) -> Iterator[_Hit]:
    """Search segments, side by side if they have many groups; none waits for the end of a segment."""
    work = [(reader, groups) for reader in generation if (groups := reader.groups_with(keys))]
    if sum(len(groups) for _, groups in work) < 2 * READERS:
        return chain.from_iterable(_in_groups(reader, groups, keys, schema, room) for reader, groups in work)
    shares = [(reader, groups[number::READERS]) for reader, groups in work for number in range(READERS)]
    with ThreadPoolExecutor(READERS) as pool:
        return chain(*pool.map(lambda share: _in_groups(share[0], share[1], keys, schema, room), shares))


def _in_groups(
    reader: SegmentReader,
    groups: Sequence[tuple[int, int, int]],
    keys: pa.BinaryArray,
    schema: pa.Schema,
    room: RoomForRows,
) -> list[_Hit]:
    """Search groups: first the keys alone, then the columns of those that have some."""
    found: list[_Hit] = []
    if not groups:
        return found
    columns = [name for name in schema.names if name != KEY]
    with reader.groups() as read:
        for number, start, end in groups:
            here = keys[start:end]
            places, hit = find(as_array(read(number, [KEY])[KEY]), here)
            if not hit.any():
                continue
            rows = read(number, columns).take(pa.array(places[hit]))
            rows = rows.add_column(0, KEY, here.filter(pa.array(hit)))
            room.take(rows)
            found.append((start, hit, unified(rows, schema)))
    return found
