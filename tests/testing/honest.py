"""Views and operators as a user might write them, from the public protocol alone: they keep all contracts."""

from __future__ import annotations

import csv
import threading
import warnings
from functools import partial
from typing import ClassVar

from trueline import types as t
from trueline.identity import RowId
from trueline.testing import SimpleCursor, SimpleView
from trueline.view import Field, Schema
from trueline.view.annotations import IS_NORMALISED, Annotation, Annotations

ROWS = 24
ABOUT = Annotations({IS_NORMALISED: Annotation(t.boolean, True)})


class Honest(SimpleView):
    """Rows made up as they are read: blocks of four rows are dealt out to up to three members."""

    can_shuffle = True
    row_count = ROWS
    Cursor: ClassVar[type[SimpleCursor]] = SimpleCursor

    def __init__(self):
        self.schema = self.columns()

    def columns(self):
        return Schema(
            [
                Field("n", t.int64),
                Field("x", t.float64, ABOUT),
                Field("v", t.vector(t.float64, 2)),
                Field("n", t.int64),
            ]
        )

    def value(self, column, n):
        return [n, n / 2 if n % 5 else None, [float(n), -1.0], n * n][column.index]

    def rows(self, columns):
        for n in range(ROWS):
            yield [self.value(column, n) for column in columns]

    def who(self, n):
        return RowId(n)

    def numbered(self, columns, seed):
        rows = ((0, RowId(n), values) for n, values in enumerate(self.rows(columns)))
        if seed is not None and self.can_shuffle:
            rows = self.shuffled(list(rows), seed)
        for place, (_, who, values) in enumerate(rows):
            yield place // 4, self.who(who.low), values

    def shuffled(self, rows, seed):
        import random

        random.Random(seed).shuffle(rows)
        return rows

    def cursor(self, columns=None, seed=None):
        found = self.schema.find_all(columns)
        return self.Cursor(self.schema, found, partial(self.numbered, found, seed))

    def cursor_set(self, columns=None, n=0, seed=None):
        found = self.schema.find_all(columns)
        members = min(3, n) if n > 0 else 2
        return [
            self.Cursor(self.schema, found, partial(self.dealt, found, seed, member, members))
            for member in range(members)
        ]

    def dealt(self, columns, seed, member, members):
        for row in self.numbered(columns, seed):
            if row[0] % members == member:
                yield row


class Passing(SimpleView):
    """An operator that hands on what it reads, row by row."""

    def __init__(self, below):
        self.below = below
        self.schema = below.schema

    def value(self, column, value):
        return value

    def rows(self, columns):
        raise NotImplementedError

    def read(self, opened, columns):
        with opened as cursor:
            getters = [(column, cursor.getter(column.index)) for column in columns]
            while cursor.move_next():
                yield cursor.batch, cursor.id, [self.value(column, get()) for column, get in getters]

    def cursor(self, columns=None, seed=None):
        found = self.schema.find_all(columns)
        return SimpleCursor(self.schema, found, lambda: self.read(self.open(found), found))

    def open(self, columns):
        return self.below.cursor([column.index for column in columns])

    def cursor_set(self, columns=None, n=0, seed=None):
        found = self.schema.find_all(columns)
        opened = self.below.cursor_set([column.index for column in found], n)
        return [SimpleCursor(self.schema, found, partial(self.read, each, found)) for each in opened]


class Kept(SimpleView):
    """A cache: each column is read once, when it is first asked for."""

    can_shuffle = True

    def __init__(self, below):
        self.below, self.schema = below, below.schema
        self.ids, self.values, self.lock = None, {}, threading.Lock()

    @property
    def row_count(self):
        return None if self.ids is None else len(self.ids)

    def rows(self, columns):
        with self.lock:
            self.fill([column.index for column in columns if column.index not in self.values])
            found = [self.values[column.index] for column in columns]
        for row in range(len(self.ids)):
            yield [values[row] for values in found]

    def fill(self, missing):
        if not missing and self.ids is not None:
            return
        ids, values = [], {column: [] for column in missing}
        with self.below.cursor(missing) as cursor:
            getters = [(column, cursor.getter(column)) for column in missing]
            while cursor.move_next():
                ids.append(cursor.id)
                for column, get in getters:
                    values[column].append(get())
        self.ids = ids
        self.values.update(values)


class Lines(SimpleView):
    """A CSV file of an int, a float and a text column; what cannot be read is missing, and warned of."""

    def __init__(self, paths):
        self.paths = paths
        self.schema = Schema([Field("n", t.int64), Field("x", t.float64), Field("s", t.text)])

    def cell(self, column, text):
        try:
            return {"n": int, "x": float, "s": str}[column.name](text)
        except ValueError:
            self.warn(column)
            return None

    def warn(self, column):
        warnings.warn(f"a cell of {column.name!r} cannot be read", stacklevel=2)

    def keeps(self, line):
        return True

    def rows(self, columns):
        for path in self.paths:
            with path.open(encoding="utf-8", newline="") as lines:
                for line in csv.DictReader(lines):
                    if self.keeps(line):
                        yield [self.cell(column, line[column.name]) for column in columns]
