"""Groups of rows that tasks read themselves: each task combines its rows to parts of groups, a shuffle by key
brings the parts of a group to one task, and the kernel puts them together.

No row is moved, only parts: for 50 M rows of 100,000 groups that takes less than Spark's own aggregation of
the same files. It is done where keys are known to be few: of whole numbers the footers of slices say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.dataset.read.events import Events
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece, bytes_of, together
from trueline.kernel.comparison import places_in_order
from trueline.kernel.limbs import LIMB
from trueline.kernel.limbs import TYPE as FLOAT_PARTS
from trueline.spark.engines import engine_of
from trueline.spark.lowering.dispatch import LoweringTarget, is_read_by_tasks
from trueline.spark.lowering.keys import equal_key
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered, TaskPieces, read_by_tasks, types_of
from trueline.spark.lowering.rows import column
from trueline.view.execute import pieces
from trueline.view.execute.group_by import Grouping, PartialGroups, made_columns
from trueline.view.plan.filter import Filter
from trueline.view.plan.group_by import GroupBy
from trueline.view.plan.node import Node, SourceNode, Want, steps
from trueline.view.plan.select import Select
from trueline.view.plan.sources import SourceScan
from trueline.view.plan.with_columns import WithColumns

# Rows that a task reads: enough that a group has few parts, few enough that little is lost with a task.
_ROWS_OF_A_TASK: Final = 4 << 20
_TASKS_OF_A_CORE: Final = 2
# Parts are worth making where a task has so many rows for each of them.
_ROWS_OF_A_PART: Final = 8
# Footers are looked at by this process when the plan is made.
_MOST_SLICES: Final = 512
# A sum of floats travels as its four counts, and its limbs as bytes: a place and a limb, 8 bytes each.
_FLOAT_WIRE: Final = (t.int64, t.int64, t.int64, t.int64, t.binary)
_ENTRY: Final = 16


def grouped_by_tasks(node: GroupBy, want: Want, target: LoweringTarget, *, ordered: bool) -> Lowered | None:
    """Return groups that tasks make of what they read; None where they cannot, or keys may be many."""
    if not is_read_by_tasks(node.below) or engine_of(target.session).is_connect:
        return None
    most = most_groups(node)
    if most is None:
        return None
    (below,) = node.wants(want)
    parts = pieces(node.below, below)
    found = read_by_tasks(target.session, node.below, below, parts, notes=target.notes)
    rows = found.most if found.most is not None else _source_rows(node.below)
    cores = target.session.sparkContext.defaultParallelism
    tasks = max(1, min(len(parts), max(_TASKS_OF_A_CORE * cores, -(-rows // _ROWS_OF_A_TASK))))
    if rows < tasks * most * _ROWS_OF_A_PART or not isinstance(found.given, TaskPieces):
        return None
    found = replace(found, base=engine_of(target.session).numbers(len(parts), tasks))
    return _lowered(node, want, below, found, most, ordered=ordered)


def _lowered(node: GroupBy, want: Want, below: Want, found: Lowered, most: int, *, ordered: bool) -> Lowered:
    at = {place: number for number, place in enumerate(below.columns)}
    key = tuple(at[place] for place in node.by)
    work = PartialGroups(Grouping(key, made_columns(node, want, at), len(below.columns), want.ids))
    order = found.layout.order if ordered or want.ids else ()
    kinds = types_of(node.below.schema, below.columns)
    wire = PartsOnTheWire(
        tuple(kinds[place] for place in key), tuple(_part_kinds(work, kinds)), is_ordered=bool(order)
    )
    combine = partial(PartsOfRows, work=work, wire=wire, limits=CombineLimits())
    parts = found.then(combine, Layout(wire.types, want.ids, order))
    keys = [equal_key(column(f"c{number}"), kind) for number, kind in enumerate(wire.keys)]
    moved = parts.frame.repartition(*keys) if keys else parts.frame.repartition(1)
    layout = Layout(types_of(node.schema, want.columns), want.ids, order)
    step = partial(GroupsOfParts, work=work, wire=wire, limits=CombineLimits())
    return Lowered(moved, parts.layout, (step,), layout, cuts=found.cuts if order else None, most=most)


def _part_kinds(work: PartialGroups, kinds: Sequence[t.Type]) -> Iterator[pa.DataType]:
    """Yield the types of the columns of parts, as the kernel makes them of no rows."""
    none = tuple(pa.array([], kind.arrow) for kind in kinds)
    found = work.of_placed_rows(Chunk(0, (*none, pa.array([], pa.int64()))))
    for array in found.arrays[len(work.work.key) : -1]:
        yield array.type


# --- how many groups there may be ---------------------------------------------------------------


def most_groups(node: GroupBy) -> int | None:
    """Return what groups cannot be more than, by the footers of the slices; None where they do not say."""
    if not node.by:
        return 1
    most = 1
    for place in node.by:
        found = _origin_of(node.below, place)
        if found is None:
            return None
        source, name = found
        values = source.most_values(name, _MOST_SLICES)
        if values is None:
            return None
        most *= values + 1  # null is a key too
    return most


def _origin_of(node: Node, place: int) -> tuple[Events, str] | None:
    """Return the column of a dataset that a column of a node is, whatever rows are left out."""
    while True:
        match node:
            case Select():
                place, node = node.places[place], node.below
            case Filter():
                node = node.below
            case WithColumns():
                line = node.line[place]
                if not isinstance(line, int):
                    return None
                place, node = line, node.below
            case SourceScan(source=Events() as source):
                return source, node.schema[place].name
            case _:
                return None


def _source_rows(node: Node) -> int:
    """Return how many rows there are in what a node reads, as far as that is known."""
    return sum(each.row_count or 0 for each in steps(node) if isinstance(each, SourceNode))


# --- parts in frames ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PartsOnTheWire:
    """How parts of groups travel: keys, columns of parts (sums of floats as bytes), and the first place."""

    keys: tuple[t.Type, ...]
    parts: tuple[pa.DataType, ...]
    is_ordered: bool

    @property
    def types(self) -> tuple[t.Type, ...]:
        """The types of all columns but the place."""
        found: list[t.Type] = list(self.keys)
        for kind in self.parts:
            found += _FLOAT_WIRE if kind == FLOAT_PARTS else [t.of(kind)]
        return tuple(found)

    def encode(self, chunk: Chunk) -> Chunk:
        """Return parts of the kernel as they travel."""
        keys = len(self.keys)
        arrays = list(chunk.arrays[:keys])
        for kind, array in zip(self.parts, chunk.arrays[keys:-1], strict=True):
            arrays += _float_columns(array) if kind == FLOAT_PARTS else [array]
        places = chunk.arrays[-1:] if self.is_ordered else ()
        return Chunk(chunk.rows, (*arrays, *places), chunk.ids)

    def decode(self, chunk: Chunk) -> Chunk:
        """Return parts that have travelled as the kernel takes them."""
        at = len(self.keys)
        arrays = list(chunk.arrays[:at])
        for kind in self.parts:
            width = len(_FLOAT_WIRE) if kind == FLOAT_PARTS else 1
            columns = chunk.arrays[at : at + width]
            arrays.append(_float_parts(columns) if kind == FLOAT_PARTS else columns[0])
            at += width
        places = chunk.arrays[at] if self.is_ordered else pa.array(np.zeros(chunk.rows, np.int64))
        return Chunk(chunk.rows, (*arrays, places), chunk.ids)


def _float_columns(array: pa.StructArray) -> list[pa.Array]:
    *counts, limbs = array.flatten()
    place, limb = limbs.flatten().flatten()
    entries = np.column_stack([np.asarray(place, np.int64), np.asarray(limb)])
    offsets = np.concatenate([[0], np.cumsum(np.asarray(limbs.value_lengths()))]) * _ENTRY
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(entries))]
    return [*counts, pa.Array.from_buffers(pa.binary(), len(array), buffers)]


def _float_parts(columns: Sequence[pa.Array]) -> pa.StructArray:
    *counts, packed = columns
    _, offsets, data = packed.buffers()
    ends = np.frombuffer(offsets, np.int32)[packed.offset : packed.offset + len(packed) + 1]
    entries = np.frombuffer(data or b"", np.int64)[ends[0] // 8 : ends[-1] // 8].reshape(-1, 2)
    fields = [pa.array(entries[:, 0].astype(np.int16)), pa.array(np.ascontiguousarray(entries[:, 1]))]
    limbs = pa.ListArray.from_arrays(
        pa.array((ends - ends[0]) // _ENTRY),
        pa.StructArray.from_arrays(fields, fields=list(LIMB)),
        type=FLOAT_PARTS.field("limbs").type,
    )
    return pa.StructArray.from_arrays([*counts, limbs], fields=list(FLOAT_PARTS))


# --- in tasks -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CombineLimits:
    """How many rows, and bytes of rows or parts, a task combines at a time."""

    rows: int = 1 << 21
    size: int = 64 << 20


@dataclass(frozen=True, eq=False)
class PartsOfRows:
    """Parts of the groups of a piece whose rows have their places as their last column."""

    below: Piece
    work: PartialGroups
    wire: PartsOnTheWire
    limits: CombineLimits

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield few parts: as many as there are groups, or more where they would take too much memory."""
        parts: list[Chunk] = []
        for rows in _batched(self.below.chunks(), self.limits):
            parts.append(self.work.of_placed_rows(rows))
            if sum(map(bytes_of, parts)) < self.limits.size:
                continue
            parts = [self.work.of_parts(together(parts))] if len(parts) > 1 else parts
            if bytes_of(parts[0]) > self.limits.size // 2:
                yield from self._sent(parts)
                parts = []
        yield from self._sent([self.work.of_parts(together(parts))] if len(parts) > 1 else parts)

    def _sent(self, parts: Sequence[Chunk]) -> Iterator[Chunk]:
        for part in parts:
            yield from _slices(self.wire.encode(part))


@dataclass(frozen=True, eq=False)
class GroupsOfParts:
    """The groups of the parts of a task, which has all parts of its groups."""

    below: Piece
    work: PartialGroups
    wire: PartsOnTheWire
    limits: CombineLimits

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the groups, in the order of their first rows."""
        held: list[Chunk] = []
        size = merged = 0
        for chunk in self.below.chunks():
            held.append(self.wire.decode(chunk))
            size += bytes_of(held[-1])
            if size >= max(self.limits.size, 2 * merged):
                held = [self.work.of_parts(_in_order(held))]
                size = merged = bytes_of(held[0])
        if held:
            found = self.work.groups(_in_order(held))
            last = len(found.arrays) if self.wire.is_ordered else len(found.arrays) - 1
            yield from _slices(found.select(range(last)))


def _in_order(parts: Sequence[Chunk]) -> Chunk:
    """Return parts by the places of their first rows."""
    whole = together(parts)
    return whole.take(places_in_order([whole.arrays[-1]], (False,)))


def _batched(chunks: Iterator[Chunk], limits: CombineLimits) -> Iterator[Chunk]:
    """Yield rows so many at a time that groups have several of them."""
    held: list[Chunk] = []
    rows = size = 0
    for chunk in chunks:
        if not chunk.rows:
            continue
        held.append(chunk)
        rows, size = rows + chunk.rows, size + bytes_of(chunk)
        if rows >= limits.rows or size >= limits.size:
            yield together(held)
            held, rows, size = [], 0, 0
    if held:
        yield together(held)


def _slices(chunk: Chunk) -> Iterator[Chunk]:
    for start in range(0, chunk.rows, ROWS_OF_A_CHUNK):
        yield chunk.slice(start, ROWS_OF_A_CHUNK)
