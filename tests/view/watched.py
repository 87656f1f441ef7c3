"""A source that says what was read of it, and by whom; it can fail on the way and come in pieces."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa


@dataclass
class Log:
    """What all pieces of a source were asked for."""

    rows: int = 0
    cells: Counter = field(default_factory=Counter)
    opened: int = 0
    closed: int = 0
    readers: dict[int, set[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Watched:
    """Rows of a table, some at a time; `fails_at` is the row at which reading breaks."""

    table: pa.Table
    rows_at_once: int = 10
    parts: int = 0
    counted: bool = True
    fails_at: int | None = None
    first: int = 0
    log: Log = field(default_factory=Log)

    @property
    def schema(self):
        return self.table.schema

    @property
    def row_count(self):
        return self.table.num_rows if self.counted else None

    origins = {}  # noqa: RUF012 (a protocol's property)
    ordinal = None

    def batches(self, columns, bounds):
        with self.log.lock:
            self.log.opened += 1
            self.log.readers.setdefault(self.first, set()).add(threading.current_thread().name)
        try:
            for start in range(0, self.table.num_rows, self.rows_at_once):
                part = self.table.slice(start, self.rows_at_once).select(list(columns))
                if self.fails_at is not None and start + part.num_rows > self.fails_at - self.first >= start:
                    raise OSError(f"the disk broke at row {self.fails_at}")
                with self.log.lock:
                    self.log.rows += part.num_rows
                    self.log.cells.update(dict.fromkeys(columns, part.num_rows))
                if columns:
                    yield from part.combine_chunks().to_batches()
                else:
                    yield pa.record_batch({"": pa.nulls(part.num_rows)}).select([])
        finally:
            with self.log.lock:
                self.log.closed += 1

    def pieces(self, bounds=None, parts=0):
        if not self.parts:
            return None
        cuts = [self.table.num_rows * part // self.parts for part in range(self.parts + 1)]
        return [replace(self, table=self.table.slice(a, b - a), parts=0, first=a) for a, b in pairwise(cuts)]

    def files(self):
        return None

    def explain(self):
        return ["watched rows"]


def numbers(rows: int) -> pa.Table:
    """Three columns, of which the first is the number of the row."""
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "half": pa.array([n / 2 for n in range(rows)], pa.float32()),
            "name": [None if n % 7 == 0 else f"row {n}" for n in range(rows)],
        }
    )
