"""Operators, loaders, savers and splits that break one contract each."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl
from tests.testing.honest import Kept, Lines, Passing
from trueline import types as t
from trueline.testing import Loader, Operator, Saver, Split
from trueline.view import Schema

# --- operators ----------------------------------------------------------------------------------


class TrustsAnnotations(Passing):
    def __init__(self, below):
        super().__init__(below)
        self.names = [len(column.annotations.get("slot_names") or ()) for column in self.schema]


class ReadsWhenMade(Passing):
    def __init__(self, below):
        super().__init__(below)
        with below.cursor([]) as cursor:
            cursor.move_next()


class ReadsAllColumns(Passing):
    def open(self, columns):
        return self.below.cursor(list(range(len(self.schema))))


class ReadsAllRows(Passing):
    def read(self, opened, columns):
        yield from list(super().read(opened, columns))


class TakesErrorsForTheEnd(Passing):
    def read(self, opened, columns):
        try:
            yield from super().read(opened, columns)
        except OSError:
            return


class ExpectsDenseVectors(Passing):
    def value(self, column, value):
        is_vector = isinstance(column.type, t.Vector) and value is not None
        return value.values.to_pylist() if is_vector else value


class DropsColumns(Kept):
    """Cache and shuffle upstream drop columns they cannot hold (6.2b)."""

    def __init__(self, below):
        super().__init__(below)
        self.schema = Schema(below.schema.fields[:-1])


class Forgets(Kept):
    def rows(self, columns):
        yield from super().rows(columns)
        self.values = {}


OPERATORS = {
    "K2.fuzzed": Operator(TrustsAnnotations),
    "K6.opening": Operator(ReadsWhenMade),
    "K6.columns": Operator(ReadsAllColumns),
    "K6.rows": Operator(ReadsAllRows),
    "K11.raising": Operator(TakesErrorsForTheEnd),
    "K17.encoding": Operator(ExpectsDenseVectors),
    "K19.transparent": Operator(DropsColumns, blocking=True, caches=True),
    "K19.once": Operator(Forgets, blocking=True, caches=True),
}

# --- loaders ------------------------------------------------------------------------------------


class NeedsAFile(Lines):
    """The columns are looked for in the first file, though they are declared."""

    def __init__(self, paths):
        super().__init__(paths)
        self.first = paths[0]


class DropsBadRows(Lines):
    def keeps(self, line):
        return "garbage" not in "".join(line.values())


class RaisesOnBadCells(Lines):
    """The text loader upstream raises for a bad cell, if its column is active (6.2b)."""

    def cell(self, column, text):
        return {"n": int, "x": float, "s": str}[column.name](text)


class ZeroForBadCells(Lines):
    def cell(self, column, text):
        found = super().cell(column, text)
        return 0 if found is None and column.name == "n" else found


class SilentOnBadCells(Lines):
    def warn(self, column):
        pass


LOADERS = {
    "K18.no_files": Loader(NeedsAFile),
    "K18.rows": Loader(DropsBadRows),
    "K18.raises": Loader(RaisesOnBadCells),
    "K18.cells": Loader(ZeroForBadCells),
    "K18.counted": Loader(SilentOnBadCells),
}

# --- savers -------------------------------------------------------------------------------------


def written(view, path, change=lambda table: table):
    pq.write_table(change(view.to_arrow()), path)


def read_back(path):
    return tl.View.from_arrow(pq.read_table(path))


def rounded(table):
    place = table.column_names.index("x")
    return table.set_column(
        place, table.schema.field(place), table.column(place).cast("float32").cast("float64")
    )


def bare(table):
    kept = [
        field.with_metadata({k: v for k, v in (field.metadata or {}).items() if k == t.LOGICAL})
        for field in table.schema
    ]
    return table.cast(pa.schema(kept))


def saver(change=lambda table: table, **options):
    return Saver(partial(written, change=change), read_back, **options)


SAVERS = {
    "K20.columns": saver(lambda table: table.select(table.column_names[:-1])),
    "K20.values": saver(rounded),
    "K20.annotations": saver(bare),
    "K20.losses": saver(losses=frozenset({"annotations"})),
}

# --- splits -------------------------------------------------------------------------------------

SPLITS = {
    # The ranges of the cross-validation split upstream are closed at both ends (6.2b).
    "K12.disjoint": Split(lambda view: [view.filter("n <= 20"), view.filter("n >= 20")]),
    "K12.complete": Split(lambda view: {"a": view.filter("n < 20"), "b": view.filter("n > 20")}),
    "K12.grown": Split(lambda view: [view.limit(view.count() // 2), view.skip(view.count() // 2)]),
}

HONEST = {
    "operator": Operator(Passing),
    "cache": Operator(Kept, blocking=True, caches=True),
    "loader": Loader(Lines),
    "saver": saver(),
    "split": Split(lambda view: [view.filter("n < 20"), view.filter("n >= 20")]),
}
