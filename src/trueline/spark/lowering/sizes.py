"""What is known of the size of rows before any is read: how many at most, and how long texts are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from itertools import islice
from typing import Final

import pyarrow as pa

from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.events import Events
from trueline.spark.frozen_frames import FrozenFrame
from trueline.view.execute import row_count
from trueline.view.plan.cache import Cache
from trueline.view.plan.concat import Concat
from trueline.view.plan.filter import Filter
from trueline.view.plan.node import Node
from trueline.view.plan.on_spark import OnSpark
from trueline.view.plan.sample import Sample
from trueline.view.plan.select import Select
from trueline.view.plan.shuffle import Shuffle
from trueline.view.plan.sort import Sort
from trueline.view.plan.sources import Memory, ParquetFiles, SourceScan
from trueline.view.plan.with_columns import WithColumns

# Their rows are among those of the input, with no further columns.
_NO_MORE: Final = (Filter, Select, Sort, Shuffle)
_NO_MORE_ROWS: Final = (*_NO_MORE, WithColumns)
_BYTES_OF_AN_ID: Final = 16
# How many times as large rows of files may be in memory. With texts counted as 64 KiB, 5 M rows of short
# ones were sorted by 200 tasks in 22 s instead of 7; 10 M by 50 tasks in 14 s, by 16 in 10. Ranges of rows
# that are packed tighter are larger than they need be, and sorted all the same.
_UNPACKED: Final = 2
# Slices of a dataset that speak for all of them.
_SOME: Final = 32


def known_bytes(node: Node) -> int | None:
    """Return how many bytes the rows of a node have at most; None where that takes reading them."""
    if isinstance(node, Memory):
        return int(node.table.nbytes) + _BYTES_OF_AN_ID * int(node.table.num_rows)
    if isinstance(node, _NO_MORE) and (known := known_bytes(node.inputs[0])) is not None:
        return known
    count = most_rows(node)
    if count is None or not all(is_fixed(each.type.arrow) for each in node.schema):
        return None
    return count * (8 * len(node.schema) + _BYTES_OF_AN_ID)


def most_rows(node: Node) -> int | None:
    """Return how many rows a node has at most: of a keyed dataset no more than were ever appended."""
    if isinstance(node, SourceScan) and isinstance(node.source, CurrentRows):
        return node.source.standing.last_offset + 1
    found = row_count(node)
    return most_rows(node.inputs[0]) if found is None and isinstance(node, _NO_MORE_ROWS) else found


def is_fixed(kind: pa.DataType) -> bool:
    """Say whether all values of a type take the same bytes."""
    return bool(pa.types.is_primitive(kind))


# --- texts and lists ------------------------------------------------------------------------


@singledispatch
def text_bytes(node: Node) -> int | None:
    """Guess how many bytes texts and lists of a node have on average; None where they may have any number.

    They have no more than all the row has where it is stored.
    """
    del node
    return None


@text_bytes.register(Filter)
@text_bytes.register(Select)
@text_bytes.register(Sort)
@text_bytes.register(Shuffle)
@text_bytes.register(Sample)
@text_bytes.register(Cache)
@text_bytes.register(OnSpark)
def _of_some_rows(node: Node) -> int | None:
    return text_bytes(node.inputs[0])


@text_bytes.register(Concat)
def _of_all(node: Node) -> int | None:
    return longest(map(text_bytes, node.inputs))


@text_bytes.register(WithColumns)
def _with_more(node: WithColumns) -> int | None:
    made = (
        column for column, place in zip(node.schema, node.line, strict=True) if not isinstance(place, int)
    )
    return text_bytes(node.below) if all(is_fixed(column.type.arrow) for column in made) else None


@text_bytes.register(Memory)
def _in_memory(node: Memory) -> int:
    return _share(node.table.nbytes, node.table.num_rows)


@text_bytes.register(ParquetFiles)
def _in_files(node: ParquetFiles) -> int | None:
    sizes = [file.size for file in node.files]
    known = [size for size in sizes if size is not None]
    return _share(_UNPACKED * sum(known), row_count(node)) if len(known) == len(sizes) else None


@text_bytes.register(SourceScan)
def _in_source(node: SourceScan) -> int | None:
    source = node.source
    if isinstance(source, FrozenFrame):
        # Its rows are in files if they were computed.
        return (
            None if source.row_count is None else _share(_UNPACKED * source.frozen().size, source.row_count)
        )
    if isinstance(source, CurrentRows):
        source = Events(source.standing, ())
    if not isinstance(source, Events):
        return None
    entries = list(islice(source.entries(source.first, source.standing.last_offset), _SOME))
    files = [source.file(entry).data for entry in entries]
    rows = sum(entry.last - entry.first + 1 for entry in entries)
    return _share(_UNPACKED * sum(file.size for file in files), rows)


def _share(size: int, rows: int | None) -> int:
    return size // max(1, rows or 0)


def longest(sizes: Iterable[int | None]) -> int | None:
    """Return the largest of what is known; None if one is not."""
    found = list(sizes)
    return None if None in found else max((size for size in found if size is not None), default=None)
