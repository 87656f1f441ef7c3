"""Views that break one contract each: one for every check of the kit, and those found in shipped code.

Each is an honest view with one thing changed, so that the check it was made for is the only one to see it.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from dataclasses import replace
from functools import partial

from tests.testing.honest import ABOUT, ROWS, Honest
from trueline import types as t
from trueline.identity import RowId
from trueline.testing import SimpleCursor
from trueline.view import Column, Field, Schema
from trueline.view.annotations import IS_NORMALISED, Annotations

BROKEN: dict[str, type[Honest]] = {}


def breaks(check):
    """Say which check a view was made for."""

    def register(cls):
        assert check not in BROKEN
        BROKEN[check] = cls
        return cls

    return register


# --- K1: columns --------------------------------------------------------------------------------


@breaks("K1.one_schema")
class SchemaAnew(Honest):
    schema = property(lambda self: self.columns(), lambda self, value: None)


@breaks("K1.places")
class NegativePlaces(Honest):
    class Schema(Schema):
        __slots__ = ()

        def __getitem__(self, key):
            return super().__getitem__(len(self) - 1 if key == -1 else key)

        def find(self, key):
            return super().find(99 if key == -1 else key)

    def columns(self):
        return self.Schema(super().columns().fields)


@breaks("K1.names")
class EmptyName(Honest):
    class Schema(Schema):
        __slots__ = ()

        def __getitem__(self, key):
            return super().__getitem__(0 if key == "" else key)

    def columns(self):
        return self.Schema(super().columns().fields)


@breaks("K1.hidden")
class NothingHidden(Honest):
    class Schema(Schema):
        __slots__ = ()

        def __init__(self, fields):
            super().__init__(fields)
            self._columns = tuple(replace(column, is_hidden=False) for column in self._columns)

    def columns(self):
        return self.Schema(super().columns().fields)


@breaks("K1.lookup")
class AlwaysFinds(Honest):
    class Schema(Schema):
        __slots__ = ()

        def __getitem__(self, key):
            if isinstance(key, str) and key not in self:
                raise KeyError(key)
            return super().__getitem__(key)

        def get(self, name):
            return super().get(name) or self[0]

    def columns(self):
        return self.Schema(super().columns().fields)


@breaks("K1.beyond")
class IgnoresUnknownColumns(Honest):
    """One of two column helpers upstream ignores what is out of range (6.2b)."""

    def known(self, columns):
        there = {*range(len(self.schema)), *self.schema.names}
        return [c for c in columns if isinstance(c, Column) or c in there] if columns is not None else None

    def cursor(self, columns=None, seed=None):
        return super().cursor(self.known(columns), seed)

    def cursor_set(self, columns=None, n=0, seed=None):
        return super().cursor_set(self.known(columns), n, seed)


@breaks("K1.foreign")
class TakesForeignColumns(Honest):
    """Neither of two column helpers upstream notices a column of another schema (6.2b)."""

    def cursor(self, columns=None, seed=None):
        return super().cursor([getattr(c, "index", c) for c in columns], seed)


@breaks("K2.annotations")
class AnnotationsOfAnyType(Honest):
    class Annotations(Annotations):
        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            return super().getter(column)

    def columns(self):
        return Schema([Field("n", t.int64, self.Annotations(ABOUT.found)), *super().columns().fields[1:]])


@breaks("K2.unknown")
class AnnotationsOfAnyKind(Honest):
    class Annotations(Annotations):
        def __getitem__(self, kind):
            return super().get(kind)

    def columns(self):
        return Schema([Field("n", t.int64, self.Annotations(ABOUT.found)), *super().columns().fields[1:]])


@breaks("K2.repeatable")
class AnnotationsThatChange(Honest):
    class Annotations(Annotations):
        counter = itertools.count()

        def __getitem__(self, kind):
            return next(self.counter) if kind == IS_NORMALISED else super().__getitem__(kind)

    def columns(self):
        return Schema([Field("n", t.int64, self.Annotations(ABOUT.found)), *super().columns().fields[1:]])


# --- K3, K4: the same each time -----------------------------------------------------------------


@breaks("K3.twice")
class OneShot(Honest):
    """The cursors of a thread share where they stand."""

    def __init__(self):
        super().__init__()
        self.here = threading.local()

    def numbered(self, columns, seed):
        mine = self.here.latest = object()
        for row in super().numbered(columns, seed):
            if self.here.latest is not mine:
                return
            yield row


@breaks("K3.threads")
class BoundToItsThread(Honest):
    def __init__(self):
        super().__init__()
        self.owner = threading.get_ident()

    def cursor(self, columns=None, seed=None):
        if threading.get_ident() != self.owner:
            raise RuntimeError("made in another thread")
        return super().cursor(columns, seed)


@breaks("K4.true")
class WrongCount(Honest):
    row_count = ROWS + 1


@breaks("K4.stable")
class CountThatGrows(Honest):
    more = 0
    row_count = property(lambda self: ROWS + self.more)

    def cursor_set(self, columns=None, n=0, seed=None):
        found = super().cursor_set(columns, n, seed)
        self.more += n == 2
        return found


# --- K5: columns asked for ----------------------------------------------------------------------


@breaks("K5.rows")
class RowsDependOnColumns(Honest):
    def numbered(self, columns, seed):
        for row in super().numbered(columns, seed):
            if [c.name for c in columns] != ["x"] or row[2][0] is not None:
                yield row


@breaks("K5.values")
class ValuesDependOnColumns(Honest):
    def rows(self, columns):
        for values in super().rows(columns):
            yield [0.0] if [c.name for c in columns] == ["x"] else values


@breaks("K5.inactive")
class GettersForAll(Honest):
    class Cursor(SimpleCursor):
        alone = False

        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            return super().getter(column, type) if self.is_active(column) or not self.alone else lambda: None

    def cursor(self, columns=None, seed=None):
        found = super().cursor(columns, seed)
        found.alone = True
        return found


@breaks("K5.wrong_type")
class WidensTypes(Honest):
    class Cursor(SimpleCursor):
        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            return super().getter(column, None if type in (t.int32, t.int64, t.float32, t.float64) else type)


@breaks("K5.other_types")
class ConvertsSmallNumbersDecimalsAndDates(Honest):
    class Cursor(SimpleCursor):
        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            return super().getter(column, None if type in (t.int16, t.decimal(9, 2), t.date) else type)


@breaks("K5.active")
class MoreColumnsActive(Honest):
    """The custom mapping filter upstream reports the columns of its predicate too (6.2b)."""

    class Cursor(SimpleCursor):
        alone = False

        def is_active(self, column):
            return super().is_active(column) or (self.alone and self.schema.find(column).index == 0)

    def cursor(self, columns=None, seed=None):
        found = super().cursor(columns, seed)
        found.alone = True
        return found


@breaks("K5.fitting")
class FloatsForInts(Honest):
    def value(self, column, n):
        found = super().value(column, n)
        return float(n) if column.index == 0 else found


# --- K7: moving ---------------------------------------------------------------------------------


@breaks("K7.position")
class StaysAtTheLastRow(Honest):
    """The data frame upstream keeps its position after the end (6.2b)."""

    class Cursor(SimpleCursor):
        over = closed = False
        position = property(lambda self: ROWS - 1 if self.over and not self.closed else self._position)

        def move_next(self):
            moved = super().move_next()
            self.over = not moved
            return moved

        def close(self):
            # At the end the adapter closes itself, where no row is left.
            self.closed = self._row is not None or self._rows is None
            super().close()


@breaks("K7.sticky")
class BeginsAgain(Honest):
    class Cursor(SimpleCursor):
        def __init__(self, schema, columns, rows):
            super().__init__(schema, columns, rows)
            self.again, self.over = rows, False

        def move_next(self):
            moved = super().move_next()
            if not moved and not self.over:
                self._open, self._rows = self.again, None
            return moved

        def __exit__(self, *exc):
            self.over = True
            super().close()

        def close(self):
            if self._rows is None or self._row is not None:
                self.over = True
            super().close()


@breaks("K7.no_row")
class StaleIds(Honest):
    """The data frame upstream has no check of state in its getters (6.2b)."""

    class Cursor(SimpleCursor):
        id = property(lambda self: RowId(0) if self._row is None else self._row[1])


@breaks("K7.early")
class NoGetterBeforeTheFirstRow(Honest):
    class Cursor(SimpleCursor):
        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            if self.position < 0:
                raise RuntimeError("no row yet")
            return super().getter(column, type)


@breaks("K7.calls")
class GettersThatTake(Honest):
    class Cursor(SimpleCursor):
        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            get, seen = super().getter(column, type), []

            def taken():
                value = get()
                if seen[-1:] == [self.position]:
                    return None
                seen.append(self.position)
                return value

            return taken


# --- K8: what is handed out ---------------------------------------------------------------------


@breaks("K8.kept")
class OneBufferForAllRows(Honest):
    """The whole row object is reused upstream, if asked: all values equal the last."""

    def numbered(self, columns, seed):
        buffer = []
        for batch, who, values in super().numbered(columns, seed):
            for place, column in enumerate(columns):
                if column.name == "v":
                    buffer[:] = values[place]
                    values[place] = buffer
            yield batch, who, values


@breaks("K8.changed")
class HandsOutItsOwn(Honest):
    """The data frame upstream can be changed by its readers (6.2b)."""

    def __init__(self):
        super().__init__()
        self.kept = {n: [float(n), -1.0] for n in range(ROWS)}

    def value(self, column, n):
        return self.kept[n] if column.name == "v" else super().value(column, n)


# --- K9: closing --------------------------------------------------------------------------------


@breaks("K9.closed")
class GoesOnWhenClosed(Honest):
    class Cursor(SimpleCursor):
        def close(self):
            if self._row is None:
                super().close()


class Holding(SimpleCursor):
    """Holds a file from the first move on."""

    file = None

    def move_next(self):
        if self.file is None and self._open is not None:
            self.file = os.open(os.devnull, os.O_RDONLY)
            LEFT.append(self.file)
        return super().move_next()

    def release(self):
        if self.file is not None:
            LEFT.remove(self.file)
            os.close(self.file)
            self.file = None


# Files that broken cursors left open; tests close them.
LEFT: list[int] = []


@breaks("K9.left")
class LeavesFilesOpen(Honest):
    class Cursor(Holding):
        def move_next(self):
            moved = super().move_next()
            if not moved:
                self.release()
            return moved


@breaks("K9.end")
class HoldsUntilClosed(Honest):
    """The data frame upstream is not disposed at its end (6.2b)."""

    class Cursor(Holding):
        ending = False

        def move_next(self):
            self.ending = True
            moved = super().move_next()
            self.ending = False
            return moved

        def close(self):
            super().close()
            if not self.ending:
                self.release()


# --- K10, K11: sets -----------------------------------------------------------------------------


@breaks("K10.members")
class NoMembers(Honest):
    def cursor_set(self, columns=None, n=0, seed=None):
        return [] if n < 0 else super().cursor_set(columns, n, seed)


class Dealt(Honest):
    """A view that deals its rows out in a way of its own, in sets of one size, unshuffled."""

    size = 0

    def members(self, rows):
        raise NotImplementedError

    def cursor_set(self, columns=None, n=0, seed=None):
        if n != self.size or seed is not None:
            return super().cursor_set(columns, n, seed)
        found = self.schema.find_all(columns)
        parts = self.members(list(self.numbered(found, None)))
        return [self.Cursor(self.schema, found, partial(iter, part)) for part in parts]


@breaks("K10.partition")
class LosesARow(Dealt):
    size = 7

    def members(self, rows):
        return [rows[:8], rows[8:-1]]


@breaks("K10.rising")
class FallingBatches(Dealt):
    size = 1

    def members(self, rows):
        return [[(place, who, values) for place, (_, who, values) in reversed(list(enumerate(rows)))]]


@breaks("K10.exclusive")
class SharedBatches(Dealt):
    size = 3

    def members(self, rows):
        same = [(0, who, values) for _, who, values in rows]
        return [same[:8], same[8:]]


@breaks("K10.merged")
class WrongBatches(Dealt):
    size = 3

    def members(self, rows):
        return [[(9, who, values) for _, who, values in rows[:8]], [(1, *rest) for _, *rest in rows[8:]]]


@breaks("K10.seeded")
class SetsDropTheSeed(Honest):
    """The stateful custom mapping upstream drops the random source in its sets (6.2b)."""

    def cursor_set(self, columns=None, n=0, seed=None):
        return super().cursor_set(columns, n)


@breaks("K10.seeded_values")
class SeededSetsMixValues(Honest):
    """The members of a shuffled set compute from the row's place, not from the row."""

    def dealt(self, columns, seed, member, members):
        for place, (batch, who, values) in enumerate(super().dealt(columns, seed, member, members)):
            wrong = [place if c.index == 0 else value for c, value in zip(columns, values, strict=True)]
            yield batch, who, values if seed is None else wrong


@breaks("K10.inactive")
class MembersWithGettersForAll(Honest):
    class Cursor(SimpleCursor):
        member = False

        def getter(self, column, type=None):  # noqa: A002 (the protocol's name)
            if self.member and not self.is_active(column):
                return lambda: None
            return super().getter(column, type)

    def cursor_set(self, columns=None, n=0, seed=None):
        found = super().cursor_set(columns, n, seed)
        found[-1].member = True
        return found


@breaks("K10.agreed")
class MembersDisagree(Honest):
    class Cursor(SimpleCursor):
        last = False

        def is_active(self, column):
            return self.last or super().is_active(column)

    def cursor_set(self, columns=None, n=0, seed=None):
        found = super().cursor_set(columns, n, seed)
        found[-1].last = True
        return found


@breaks("K11.uneven")
class MembersWait(Honest):
    class Cursor(SimpleCursor):
        first, moved = True, None

        def move_next(self):
            if self.moved is not None:
                if self.first:
                    self.moved.set()
                self.moved.wait(3)  # for ever, in a test that has to end
            return super().move_next()

    def cursor_set(self, columns=None, n=0, seed=None):
        found, moved = super().cursor_set(columns, n, seed), threading.Event()
        for number, each in enumerate(found):
            each.first, each.moved = number == 0, moved
        return found


@breaks("K11.abandoned")
class OneClosedAllClosed(Honest):
    class Cursor(SimpleCursor):
        others = ()

        def close(self):
            if self._row is not None:
                for other in self.others:
                    SimpleCursor.close(other)
            super().close()

    def cursor_set(self, columns=None, n=0, seed=None):
        found = super().cursor_set(columns, n, seed)
        for each in found:
            each.others = found
        return found


# --- K12, K13: ids and order --------------------------------------------------------------------


@breaks("K12.ids")
class NumbersForIds(Honest):
    def who(self, n):
        return n


@breaks("K12.unique")
class IdsTwice(Honest):
    def who(self, n):
        return RowId(n // 2)


@breaks("K12.getter")
class TheFirstIdForAll(Honest):
    class Cursor(SimpleCursor):
        def id_getter(self):
            seen = []

            def first():
                seen.append(self.id)
                return seen[0]

            return first


@breaks("K12.same_row")
class StatefulMapping(Honest):
    """The stateful custom mapping upstream sees shuffled rows, so that values of a row change (6.2b)."""

    def numbered(self, columns, seed):
        for place, (batch, who, values) in enumerate(super().numbered(columns, seed)):
            yield batch, who, [place if c.index == 3 else v for c, v in zip(columns, values, strict=True)]


@breaks("K13.ignored")
class ShufflesAnyway(Honest):
    can_shuffle = False

    def numbered(self, columns, seed):
        rows = list(super().numbered(columns, None))
        if seed is not None:
            order = self.shuffled([(who, values) for _, who, values in rows], seed)
            rows = [(place // 4, who, values) for place, (who, values) in enumerate(order)]
        return iter(rows)


@breaks("K13.permutation")
class ShufflesSome(Honest):
    def shuffled(self, rows, seed):
        return super().shuffled(rows, seed)[1:]


@breaks("K13.same_seed")
class ShufflesAnew(Honest):
    def shuffled(self, rows, seed):
        return super().shuffled(rows, random.random())


@breaks("K13.unseeded")
class StaysShuffled(Honest):
    latest = None

    def cursor(self, columns=None, seed=None):
        used = self.latest if columns == [] and seed is None else seed
        self.latest = seed if columns == [] else None
        return super().cursor(columns, used)


@breaks("K13.differs")
class NeverShuffles(Honest):
    """The optional column transform upstream claims to shuffle and drops the random source (6.2b)."""

    def shuffled(self, rows, seed):
        return rows


# --- K17: vectors -------------------------------------------------------------------------------


@breaks("K17.lengths")
class VectorsOfAnyLength(Honest):
    def value(self, column, n):
        return [float(n)] * 3 if column.name == "v" and n == 5 else super().value(column, n)


class Sparse:
    """A vector that lists its values in any order."""

    def __init__(self, indices, values):
        self.indices, self.values = indices, values

    def __len__(self):
        return 2

    def __getitem__(self, place):
        return self.values[self.indices.index(place)]


@breaks("K17.sparse")
class IndicesInAnyOrder(Honest):
    def value(self, column, n):
        return Sparse([1, 0], [1.0, float(n)]) if column.name == "v" else super().value(column, n)


def clean_up():
    """Close what broken cursors left open."""
    while LEFT:
        os.close(LEFT.pop())
