"""K3 and K4: a view gives the same rows each time, to any thread, and as many as it says."""

from __future__ import annotations

from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.read import RowsRead, drain, same
from trueline.testing.subjects import ViewSubject
from trueline.testing.threads import at_once
from trueline.view.cursor.row import Cursor


@holds("view", "K3.twice", "view:C25", "view:C26", "view:C40")
def twice(subject: ViewSubject) -> None:
    """A second reading gives the same rows, ids and values; so do two that take turns."""
    remedy = "let every cursor start fresh: keep no state in the view, draw no random numbers while reading"
    same(subject.serial, subject.read(), "a second reading differs", remedy)
    with subject.view.cursor(subject.all) as one, subject.view.cursor(subject.all) as other:
        found = [RowsRead(), RowsRead()]
        going = [True, True]
        while any(going):
            going = [_step(one, found[0], subject.all), _step(other, found[1], subject.all)]
    for rows in found:
        same(subject.serial, rows, "two cursors read in turn differ from one", remedy)


def _step(cursor: Cursor, rows: RowsRead, columns: list[int]) -> bool:
    found = drain(cursor, columns, most=1)
    rows.ids.extend(found.ids)
    rows.values.extend(found.values)
    return bool(found.ids)


@holds("view", "K3.threads", "view:C28")
def threads(subject: ViewSubject) -> None:
    """Four threads that read at once get the same rows."""
    remedy = "let cursors share no mutable state"
    for found in at_once([subject.read] * 4, subject.patience, "cursors read at once", remedy):
        same(subject.serial, found, "a cursor that is read beside others differs", remedy)


@holds("view", "K4.true", "view:C29", "view:C30")
def true(subject: ViewSubject) -> None:
    """The number of rows is None or what reading finds."""
    said = subject.view.row_count
    if said is not None and said != len(subject.serial):
        raise Broken(
            f"row_count is {said}, reading finds {len(subject.serial)} rows",
            "return None where the number is known only after reading",
        )


@holds("view", "K4.stable", "view:C29")
def stable(subject: ViewSubject) -> None:
    """A number of rows never changes once it is known."""
    before = subject.view.row_count
    subject.read([])
    subject.read_set(2)
    after = subject.view.row_count
    if before is None:
        raise NotApplicable("the number of rows is not known before reading")
    if before != after:
        raise Broken(f"row_count was {before} and is {after}", "return None until it is certain")
