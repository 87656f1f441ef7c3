"""Reading the members of a set as one cursor, in the order of the rows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from trueline.errors import InputError
from trueline.identity import RowId
from trueline.view.cursor.cursor import ChunkCursor, nowhere

if TYPE_CHECKING:
    from trueline.view.cursor.row import Asked, Cursor, Getter, Key
    from trueline.view.schema import Schema


def consolidate(cursors: Sequence[Cursor]) -> Consolidated:
    """Merge the cursors of a set: their rows, in the order one cursor would have had (view:C64).

    Members that are ours read ahead, each in a thread of its own, from the
    first move on. Closing it closes them all; an error in one ends the others.

    >>> from trueline import View
    >>> with consolidate(View.range(5).cursor_set("n", 2)) as c:
    ...     get = c.getter("n")
    ...     while c.move_next():
    ...         print(c.position, get(), end="; ")
    0 0; 1 1; 2 2; 3 3; 4 4;
    """
    members = tuple(cursors)
    if not members:
        raise InputError("no cursors to merge", remedy="give what view.cursor_set() returned")
    if len({id(member) for member in members}) < len(members):
        raise InputError("a cursor is given twice", remedy="give each member of the set once")
    first = members[0]
    for member in members[1:]:
        if member.schema is not first.schema:
            raise InputError(
                "the cursors belong to different views", remedy="give the members of one set (view:C66)"
            )
    active = [[member.is_active(column) for column in first.schema] for member in members]
    if any(each != active[0] for each in active):
        raise InputError(
            "the cursors read different columns", remedy="give the members of one set (view:C66)"
        )
    if any(member.position >= 0 for member in members):
        raise InputError(
            "a cursor has been moved already", remedy="merge the cursors of a set before moving any"
        )
    return Consolidated(members)


class _Here:
    """Which member is on the row; one past the last if there is no row. Getters hold this."""

    __slots__ = ("member",)

    def __init__(self, member: int) -> None:
        self.member = member


class Consolidated:
    """One cursor over the members of a set: always the one whose batch is the smallest (view:C72)."""

    def __init__(self, members: tuple[Cursor, ...]) -> None:
        self._members = members
        self._here = _Here(len(members))
        self._current: Cursor | None = None
        # The others that are on a row: batch, then the order of members.
        self._waiting: list[tuple[int, int]] = []
        self._position = -1
        self._batch = 0
        self._getters: dict[int, Getter] = {}
        self._started = False

    @property
    def schema(self) -> Schema:
        """The view's own (view:C1)."""
        return self._members[0].schema

    @property
    def position(self) -> int:
        """The number of the row, counted here (view:C42)."""
        return self._position

    @property
    def batch(self) -> int:
        """The member's."""
        return self._batch

    @property
    def id(self) -> RowId:
        """The member's."""
        return self._current.id if self._current is not None else nowhere()

    def is_active(self, column: Key) -> bool:
        """Say whether the column was asked for; the members agree (view:C66)."""
        return self._members[0].is_active(column)

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (a promised name)
        """Return the function that gives the column's value of the row there is; the same each time."""
        line = [member.getter(column, type) for member in self._members]
        place = self.schema.find(column).index
        if place not in self._getters:
            self._getters[place] = _getter(self._here, [*line, nowhere])
        return self._getters[place]

    def id_getter(self) -> Callable[[], RowId]:
        """Return the function that gives the id of the row there is."""
        line = [*(member.id_getter() for member in self._members), nowhere]
        return _getter(self._here, line)

    def move_next(self) -> bool:
        """Go to the next row, if there is one (view:C43)."""
        try:
            current = self._current
            if current is None:
                return self._begin()
            if current.move_next():
                if current.batch == self._batch:
                    self._position += 1
                    return True
                self._check_rising(current.batch)
                heapq.heappush(self._waiting, (current.batch, self._here.member))
            return self._smallest()
        except BaseException:
            for member in self._members:
                with suppress(Exception):  # the first error is the one to report
                    member.close()
            self._end()
            raise

    def _check_rising(self, batch: int) -> None:
        if batch < self._batch:
            raise _misnumbered(
                f"member {self._here.member} of the set falls from batch {self._batch} to {batch}"
            )

    def _begin(self) -> bool:
        if self._started:
            return False
        self._started = True
        for member in self._members:
            if isinstance(member, ChunkCursor):
                member.start()
        for number, member in enumerate(self._members):
            if member.move_next():
                heapq.heappush(self._waiting, (member.batch, number))
        return self._smallest()

    def _smallest(self) -> bool:
        if not self._waiting:
            self.close()
            return False
        self._batch, self._here.member = heapq.heappop(self._waiting)
        if self._waiting and self._waiting[0][0] == self._batch:
            both = f"{self._here.member} and {self._waiting[0][1]}"
            raise _misnumbered(f"members {both} of the set both have batch {self._batch}")
        self._current = self._members[self._here.member]
        self._position += 1
        return True

    def _end(self) -> None:
        self._started, self._current, self._waiting = True, None, []
        self._position, self._here.member = -1, len(self._members)

    def close(self) -> None:
        """Close all members (view:C55); an error of one is raised when all are closed."""
        self._end()
        problems = []
        for member in self._members:
            try:
                member.close()
            except Exception as error:  # noqa: BLE001 (the others are closed first)
                problems.append(error)
        if problems:
            raise problems[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cursor of {len(self._members)} merged>"


def _misnumbered(problem: str) -> InputError:
    return InputError(
        f"{problem}: the order of the rows is not known",
        remedy="let the batches of a member rise, and no two members share one; trueline.testing.check(view) "
        "finds what is wrong with a view",
        code="BatchOrder",
    )


def _getter(here: _Here, line: Sequence[Getter]) -> Getter:
    def get() -> Any:
        return line[here.member]()

    return get
