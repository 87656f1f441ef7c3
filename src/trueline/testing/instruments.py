"""A sample that is watched while it is read, and can break on the way."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.kernel.vectors import sparse
from trueline.view import Origin, View
from trueline.view.plan.node import Bounds


class Fault(OSError):
    """What a sample raises where it is broken."""


@dataclass
class Log:
    """What was read of a sample: rows, and cells by column."""

    rows: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, columns: Sequence[str], rows: int) -> None:
        """Count some rows of some columns."""
        with self.lock:
            self.rows += rows
            self.cells.update(dict.fromkeys(columns, rows))

    @property
    def touched(self) -> frozenset[str]:
        """The columns of which a cell was read."""
        return frozenset(name for name, count in self.cells.items() if count)


@dataclass(frozen=True)
class Watched:
    """A source of views: the rows of a table, some at a time, in `parts` pieces; it breaks at a row."""

    table: pa.Table
    rows_at_once: int = 8
    parts: int = 0
    breaks: int | None = None
    first: int = 0
    log: Log = field(default_factory=Log)

    @property
    def schema(self) -> pa.Schema:
        """That of the table."""
        return self.table.schema

    @property
    def row_count(self) -> int | None:
        """That of the table."""
        return int(self.table.num_rows)

    @property
    def origins(self) -> Mapping[str, Origin]:
        """None: it is made up."""
        return {}

    @property
    def ordinal(self) -> str | None:
        """Rows are known by their number."""
        return None

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows, counting them."""
        for start in range(0, self.table.num_rows, self.rows_at_once):
            part = self.table.slice(start, self.rows_at_once)
            if self.breaks is not None and 0 <= self.breaks - self.first - start < part.num_rows:
                raise Fault(f"the sample breaks at row {self.breaks}")
            self.log.note(columns, part.num_rows)
            if columns:
                yield part.select(list(columns)).combine_chunks().to_batches()[0]
            else:
                yield pa.record_batch({"": pa.nulls(part.num_rows)}).select([])

    def pieces(self, bounds: Bounds | None = None, parts: int = 0) -> Sequence[Watched] | None:
        """Return the parts."""
        if not self.parts:
            return None
        cuts = [self.table.num_rows * part // self.parts for part in range(self.parts + 1)]
        return [
            replace(self, table=self.table.slice(start, stop - start), parts=0, first=start)
            for start, stop in pairwise(cuts)
        ]

    def files(self) -> Sequence[str] | None:
        """None: it is in memory."""
        return None

    def explain(self) -> list[str]:
        """Say what it is."""
        return ["a sample, watched"]

    @property
    def view(self) -> View:
        """A view of it."""
        return View(self)


def sparse_table(table: pa.Table) -> pa.Table | None:
    """Return a table with its vectors encoded sparsely, every third row dense; None if it has none."""
    fields, arrays, found = [], [], False
    for each, column in zip(table.schema, table.columns, strict=True):
        kind, array = t.of(each), column.combine_chunks()
        if isinstance(kind, t.Vector):
            array = sparse(array, kind, np.arange(len(array)) % 3 > 0)
            told = {**(each.metadata or {}), t.LOGICAL: json.dumps(str(kind)).encode()}
            each, found = pa.field(each.name, kind.sparse, metadata=told), True  # noqa: PLW2901
        fields.append(each)
        arrays.append(array)
    return pa.table(arrays, schema=pa.schema(fields)) if found else None


def repeated(table: pa.Table, rows: int) -> pa.Table:
    """Return a table with at least so many rows, by repeating one."""
    times = -(-rows // max(1, table.num_rows))
    return pa.concat_tables([table] * times).combine_chunks() if times > 1 else table
