"""Rows that lack columns: for a known key the values that are there stay.

A column is lacking where the whole frame or file does not have it; a null that was given is a value. The rows
of a key are folded in the order of the source, each over what the one before it left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import pyarrow as pa

from trueline.dataset.merge.keyed_rows import Incoming, shown_keys
from trueline.dataset.merge.result import Op
from trueline.errors import SchemaError
from trueline.kernel.sorted_keys import Bools, Ints, as_array, find


@dataclass(frozen=True, slots=True)
class Lacking:
    """The rows with ranks in [start, stop), of one frame or file, and the columns these do not have."""

    start: int
    stop: int
    columns: frozenset[str]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Partial:
    """What rows of a source lack; those for a key that is not there must not lack what is `required`."""

    parts: tuple[Lacking, ...] = ()
    required: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def columns(self) -> frozenset[str]:
        """All columns that some rows lack."""
        return frozenset(name for part in self.parts for name in part.columns)

    def lacks(self, column: str, ranks: Ints) -> Bools:
        """Say which rows lack a column."""
        found = np.zeros(len(ranks), dtype=bool)
        for part in self.parts:
            if column in part.columns:
                found |= (ranks >= part.start) & (ranks < part.stop)
        return found


WHOLE = Partial()


def folded(
    new: Incoming, kept: pa.Table, kept_keys: pa.BinaryArray, partial: Partial, key: Sequence[str]
) -> tuple[Incoming, Bools]:
    """Return the last row of each key with what it lacks filled in, and which rows gave something.

    What a row lacks comes from the rows of its key before it, then from the current row; after a retraction
    from neither.
    """
    places, known = find(kept_keys, new.keys)
    count = len(new.keys)
    retracts = np.zeros(count, dtype=bool) if new.ops is None else new.ops == Op.RETRACT
    starts = new.first_of_key
    after_retraction = ~starts & np.append(False, retracts[:-1])[:count]
    begins = starts | after_retraction
    numbers = np.arange(count)
    # The row of its key from which on the values of a row may come, and the current row below that one.
    since = np.maximum.accumulate(np.where(begins, numbers, 0)) if count else numbers
    below = np.where((starts & known)[since], places[since], -1)
    fresh = begins & (below < 0) & ~retracts
    last = new.last_of_key
    used = last.copy()
    columns = []
    for field in new.rows.schema:
        column = as_array(new.rows[field.name])
        lacks = partial.lacks(field.name, new.ranks) if field.name in partial.columns else None
        if lacks is None or not lacks.any():
            columns.append(column.filter(pa.array(last)))
            continue
        if field.name in partial.required and (fresh & lacks).any():
            _refuse(new.take(fresh & lacks), field.name, partial, key)
        given = np.maximum.accumulate(np.where(~lacks & ~retracts, numbers, -1))
        found = np.where(given >= since, given, -1)[last]
        used[found[found >= 0]] = True
        old = as_array(kept[field.name])
        from_new = np.where(found >= 0, found + len(old), below[last])
        both = pa.concat_arrays([old, column])
        columns.append(both.take(pa.array(from_new, mask=from_new < 0)))
    winners = new.take(last)
    return replace(winners, rows=pa.Table.from_arrays(columns, schema=new.rows.schema)), used


def _refuse(rows: Incoming, column: str, partial: Partial, key: Sequence[str]) -> NoReturn:
    shown = shown_keys(rows.rows, key)
    rank = int(rows.ranks[0])
    name = next((part.name for part in partial.parts if part.start <= rank < part.stop and part.name), "")
    raise SchemaError(
        f"{name + ': ' if name else ''}column {column!r} is missing, and {len(rows.keys):,} "
        f"key{'s' * (len(rows.keys) != 1)} are not in the dataset yet: {shown}",
        remedy=f"give column {column!r} for new keys; only where a key is known its value stays",
        code="MissingForNewKeys",
        column=column,
        keys=shown,
        count=len(rows.keys),
    )
