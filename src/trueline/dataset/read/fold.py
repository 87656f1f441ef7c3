"""Folding events by key: many events become the few of each key that count, in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.dataset.state import KEY
from trueline.kernel.key_encoding import RANK, MergeKey
from trueline.kernel.sorted_keys import Bools, as_array, repeats, sorting
from trueline.kernel.sorted_runs import RunFile, read_range, sort_run
from trueline.kernel.spill import SpillFolder, space_explained

# What is folded in memory at once: beyond it, sorted runs go through files.
ROWS_AT_ONCE: Final = 1 << 20
BYTES_AT_ONCE: Final = 256 << 20

# Given where keys begin and end in sorted events: which of them count.
Keep = Callable[[Bools, Bools], Bools]


def last(first_of_key: Bools, last_of_key: Bools) -> Bools:
    """The last event of each key."""
    del first_of_key
    return last_of_key


def ends(first_of_key: Bools, last_of_key: Bools) -> Bools:
    """The first and the last event of each key."""
    return first_of_key | last_of_key


def folded(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    *,
    key: MergeKey,
    offset: str,
    keep: Keep,
    rows_at_once: int | None = None,
) -> Iterator[pa.Table]:
    """Yield the events that count, with `_key`, by key and offset; `batches` come in the order of offsets.

    Folding parts and then what is left of them gives the same as folding all at once.
    """
    most = ROWS_AT_ONCE if rows_at_once is None else rows_at_once
    with SpillFolder() as place, space_explained(tempfile.gettempdir()):
        runs: list[RunFile] = []
        left = schema.empty_table()
        for part in _parts(batches, schema, most):
            left = _fold(_sorted(pa.concat_tables([left, part]), key, offset), keep)
            if left.num_rows > most // 2 or left.nbytes > BYTES_AT_ONCE // 2:
                rows = left.append_column(RANK, left[offset].cast(pa.int64()))
                runs.append(sort_run(rows, key, place, f"run-{len(runs):06}"))
                left = schema.empty_table()
            else:
                left = left.drop_columns([KEY])
        if not runs:
            if left.num_rows:
                yield _fold(_sorted(left, key, offset), keep)
            return
        if left.num_rows:
            left = left.append_column(RANK, left[offset].cast(pa.int64()))
            runs.append(sort_run(left, key, place, f"run-{len(runs):06}"))
        names = [*schema.names, KEY]
        yield from _fold_sorted((table.select(names) for table in read_range(place, runs)), keep)


def _parts(batches: Iterable[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= most or size >= BYTES_AT_ONCE:
            yield pa.Table.from_batches(waiting, schema=schema)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)


def _sorted(table: pa.Table, key: MergeKey, offset: str) -> pa.Table:
    """Sort by key; events of one key stay in the order of offsets, in which they come."""
    del offset
    keys = key.encode(table)
    table = table.append_column(pa.field(KEY, pa.binary(), nullable=False), keys)
    order = sorting(keys)
    return table if order is None else table.take(pa.array(order))


def _fold(table: pa.Table, keep: Keep) -> pa.Table:
    if not table.num_rows:
        return table
    again = repeats(as_array(table[KEY]))
    first_of_key = ~again
    last_of_key = np.append(first_of_key[1:], True)
    return table.filter(pa.array(keep(first_of_key, last_of_key)))


def _fold_sorted(tables: Iterable[pa.Table], keep: Keep) -> Iterator[pa.Table]:
    """Fold a sorted stream; the last key of a table may go on in the next, so it waits."""
    waiting: pa.Table | None = None
    for table in tables:
        if not table.num_rows:
            continue
        joined = table if waiting is None else pa.concat_tables([waiting, table])
        again = repeats(as_array(joined[KEY]))
        begin = int(np.flatnonzero(~again)[-1])
        done, waiting = joined.slice(0, begin), _fold(joined.slice(begin), keep)
        if done.num_rows:
            yield _fold(done, keep)
    if waiting is not None:
        yield _fold(waiting, keep)
