"""Reading views in all the ways there are, and sources that say what was asked of them."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa

import trueline as tl
from trueline.identity import RowId
from trueline.kernel import exchange
from trueline.view.execute import cache as caching


class Counting:
    """A source that counts the cells it gives and the readers it has; in pieces, if it has sizes for them."""

    def __init__(self, table, *, sizes=None, batch=10, counted=False):
        self.table, self.sizes, self.batch = table, sizes, batch
        self.schema, self.origins, self.ordinal = table.schema, {}, None
        self.row_count = table.num_rows if counted or sizes is not None else None
        self.cells = dict.fromkeys(table.column_names, 0)
        self.opened = self.open = 0

    def pieces(self, bounds=None, parts=0):
        if self.sizes is None:
            return None
        return [Slice(self, start, size) for start, size in self.sizes]

    def batches(self, columns, bounds):
        yield from self.give(columns, 0, self.table.num_rows)

    def give(self, columns, start, stop):
        self.opened += 1
        self.open += 1
        try:
            for at in range(start, stop, self.batch):
                rows = min(self.batch, stop - at)
                for name in columns:
                    self.cells[name] += rows
                if columns:
                    part = self.table.slice(at, rows).select(list(columns)).combine_chunks()
                    yield part.to_batches()[0]
                else:
                    yield pa.record_batch({"": pa.nulls(rows)}).select([])
        finally:
            self.open -= 1

    def explain(self):
        return ["counting"]


class Slice:
    """Some rows of a counting source."""

    def __init__(self, whole, start, size):
        self.whole, self.start, self.row_count = whole, start, size
        self.schema, self.origins, self.ordinal = whole.schema, {}, None

    def batches(self, columns, bounds):
        yield from self.whole.give(columns, self.start, self.start + self.row_count)

    def explain(self):
        return ["slice"]


def divided(table, *sizes):
    """A source in pieces of these sizes."""
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    assert sum(sizes) == table.num_rows
    return Counting(table, sizes=list(zip(starts, sizes, strict=True)))


class Broken(Counting):
    """A source that fails when half of it was read."""

    def give(self, columns, start, stop):
        for number, batch in enumerate(super().give(columns, start, stop)):
            if number * self.batch * 2 >= self.table.num_rows:
                raise OSError("the disk is gone")
            yield batch


def rows_of(cursor, columns):
    """What a cursor gives: batch, id, values."""
    found = []
    getters = [cursor.getter(name) for name in columns]
    while cursor.move_next():
        found.append((cursor.batch, cursor.id, tuple(plain(get()) for get in getters)))
    return found


def plain(value):
    """A value that can be compared and hashed; NaN is equal to itself."""
    if isinstance(value, float) and value != value:  # noqa: PLR0124
        return "NaN"
    if value is None or isinstance(value, int | float | str | bytes | RowId | bool):
        return value
    if hasattr(value, "__len__"):
        return tuple(plain(each) for each in value)
    return value


def serial(view, columns=None, seed=None):
    """The rows of one cursor: id, values."""
    names = list(view.schema.names if columns is None else columns)
    with view.cursor(names, seed=seed) as cursor:
        return [row[1:] for row in rows_of(cursor, names)]


def in_set(view, n, columns=None, seed=None):
    """The rows of a set of cursors, put in order by batch; no batch is in two of them."""
    names = list(view.schema.names if columns is None else columns)
    members = [rows_of(cursor, names) for cursor in view.cursor_set(names, n, seed=seed)]
    batches = [{row[0] for row in member} for member in members]
    assert sum(map(len, batches)) == len(set().union(*batches))
    assert all([row[0] for row in member] == sorted(row[0] for row in member) for member in members)
    return [row[1:] for row in sorted((row for member in members for row in member), key=lambda row: row[0])]


def ids(view):
    """The ids in order."""
    return [row[0] for row in serial(view, [])]


def values(view, *columns):
    """The values of a column in order, or tuples of several."""
    table = view.select(*columns).to_arrow()
    lists = [table[name].to_pylist() for name in columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def agree(view, *, sets=(1, 2, 3, 7), seeds=(None, 5)):
    """Hold a view to the laws of reading: sets are the serial rows, ids are unique and say who a row is."""
    for seed in seeds:
        rows = serial(view, seed=seed)
        for n in sets:
            assert in_set(view, n, seed=seed) == rows, f"{n} cursors, seed {seed}"
        if seed is None:
            canonical = dict(rows)
            assert len(canonical) == len(rows), "ids repeat"
            first = rows
        assert dict(rows) == canonical
    names = view.schema.names
    for chosen in ([], names[:1], names[::2], names[1::2]):
        assert ids(view) == [row[0] for row in serial(view, chosen)]
        places = [names.index(name) for name in chosen]
        assert serial(view, chosen) == [(each, tuple(row[at] for at in places)) for each, row in first]
    if view.row_count is not None:
        assert view.row_count == len(first)
    assert view.count() == len(first)
    return first


@contextmanager
def memory(limit):
    """Let operators hold so many bytes."""
    before = exchange.memory_budget, caching.memory_budget
    exchange.memory_budget = caching.memory_budget = lambda: limit
    try:
        yield
    finally:
        exchange.memory_budget, caching.memory_budget = before


def numbers(count, **columns):
    """A view of so many rows in memory, in several pieces where there are enough."""
    return tl.View.from_arrow(pa.table({"n": pa.array(range(count), pa.int64()), **columns}))
