"""K7: the position of a cursor, when it ends, and when it has a value."""

from __future__ import annotations

from trueline.testing.kit import Broken, NotApplicable, holds, refused
from trueline.testing.read import token
from trueline.testing.subjects import ViewSubject
from trueline.view.cursor.row import Cursor


@holds("view", "K7.position", "view:C42")
def position(subject: ViewSubject) -> None:
    """Positions are -1, then 0, 1, 2 …, and -1 after the end, for every kind of cursor."""
    view = subject.view
    for cursor in [view.cursor([]), view.cursor([], seed=1), *view.cursor_set([], n=2)]:
        with cursor:
            _expect(cursor, -1, "before the first row")
            row = 0
            while cursor.move_next():
                _expect(cursor, row, f"on row {row}")
                row += 1
            _expect(cursor, -1, "after the end")


def _expect(cursor: Cursor, position: int, where: str) -> None:
    if cursor.position != position:
        raise Broken(
            f"the position is {cursor.position} {where}",
            f"it should be {position}: count this cursor's rows, -1 where it is not on a row",
        )


@holds("view", "K7.sticky", "view:C43")
def sticky(subject: ViewSubject) -> None:
    """Once a cursor is at its end it stays there."""
    with subject.view.cursor([]) as cursor:
        while cursor.move_next():
            pass
        for _ in range(100):
            if cursor.move_next():
                raise Broken("move_next() is True again after the end", "remember that the end was reached")


@holds("view", "K7.no_row", "view:C44", "view:C39")
def no_row(subject: ViewSubject) -> None:
    """There is no value and no id before the first row and after the last."""
    remedy = "raise where the position is -1"
    with subject.view.cursor(subject.all) as cursor:
        if not refused(lambda: cursor.id):
            raise Broken("there is an id before the first row", remedy)
        getters = None
        while cursor.move_next():
            getters = getters or [cursor.getter(column) for column in subject.all]
        if not refused(lambda: cursor.id):
            raise Broken("there is an id after the last row", remedy)
        for column, get in enumerate(getters or ()):
            if not refused(get):
                raise Broken("there is a value after the last row", remedy, column=subject.name(column))


@holds("view", "K7.early", "view:C45", "view:C39", "view:C44")
def early(subject: ViewSubject) -> None:
    """A getter made before the first row serves all rows, and has no value before them."""
    with subject.view.cursor(subject.all) as cursor:
        getters = [cursor.getter(column) for column in subject.all]
        for column, get in enumerate(getters):
            if not refused(get):
                raise Broken(
                    "there is a value before the first row",
                    "raise where the position is -1",
                    column=subject.name(column),
                )
        for row, expected in enumerate(subject.serial.values):
            if not cursor.move_next():
                break
            for column, get in enumerate(getters):
                if token(get()) != expected[column]:
                    raise Broken(
                        f"a getter made early gives {get()!r:.80}, not {expected[column]!r:.80}",
                        "let a getter return the value of the current row when it is called",
                        column=subject.name(column),
                        row=row,
                    )


@holds("view", "K7.calls", "view:C49")
def calls(subject: ViewSubject) -> None:
    """A getter may be called never or twice on a row, with no effect on what it returns."""
    if not subject.all:
        raise NotApplicable("there are no columns")
    with subject.view.cursor(subject.all) as cursor:
        getters = None
        for row, expected in enumerate(subject.serial.values):
            if not cursor.move_next():
                break
            getters = getters or [cursor.getter(column) for column in subject.all]
            for _ in range(row % 3):
                for column, get in enumerate(getters):
                    if token(get()) != expected[column]:
                        raise Broken(
                            f"{get()!r:.99} after {row % 3} calls, {expected[column]!r:.99} when called once",
                            "let a getter change nothing",
                            column=subject.name(column),
                            row=row,
                        )
