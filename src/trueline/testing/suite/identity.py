"""K12: the identity of rows, however they are read."""

from __future__ import annotations

from collections import Counter

from trueline.identity import RowId
from trueline.testing.kit import Broken, holds, refused
from trueline.testing.subjects import SEEDS, ViewSubject


@holds("view", "K12.ids", "view:C73")
def ids(subject: ViewSubject) -> None:
    """Every row has an id of 128 bits, with no column asked for too."""
    for row, who in enumerate(subject.read([]).ids):
        if not isinstance(who, RowId):
            raise Broken(f"the id is a {type(who).__name__}, not a RowId", "give a trueline.RowId", row=row)


@holds("view", "K12.unique", "view:C75")
def unique(subject: ViewSubject) -> None:
    """No two rows have the same id."""
    for who, count in Counter(subject.serial.ids).most_common(1):
        if count > 1:
            raise Broken(
                f"{count} rows have the id {who}",
                "make ids of rows that come from one row with fork() and next(), of two with combine()",
                row=subject.serial.ids.index(who, subject.serial.ids.index(who) + 1),
            )


@holds("view", "K12.getter", "view:C44", "view:C45", "view:C74")
def id_getter(subject: ViewSubject) -> None:
    """A getter of ids, made before the first row, gives the id of every row, and none where there is none."""
    with subject.view.cursor([]) as cursor:
        get = cursor.id_getter()
        if refused(lambda: cursor.id) and not refused(get):
            raise Broken("the getter gives an id before the first row", "refuse it, as `id` is")
        while cursor.move_next():
            for _ in range(2):
                if (found := get()) != cursor.id:
                    raise Broken(
                        f"the getter gives {found}, the row's id is {cursor.id}",
                        "look at the row there is each time the getter is called",
                        row=cursor.position,
                    )
        if refused(lambda: cursor.id) and not refused(get):
            raise Broken("the getter gives an id after the last row", "refuse it, as `id` is")


@holds("view", "K12.same_row", "view:C74", "view:C71", "view:C84")
def same_row(subject: ViewSubject) -> None:
    """An id has the same values in one cursor, in a set, and shuffled."""
    known: dict[object, set[object]] = {}
    for who, values in zip(subject.serial.ids, subject.serial.values, strict=True):
        known.setdefault(who, set()).add(values)
    readings = [("set", each) for n in (2, 7) for each in subject.read_set(n)]
    readings += [(f"cursor with seed {seed}", subject.read(seed=seed)) for seed in SEEDS]
    for how, found in readings:
        for row, (who, values) in enumerate(zip(found.ids, found.values, strict=True)):
            if who in known and values not in known[who]:
                expected = next(iter(known[who]))
                column = next(at for at in subject.all if values[at] != expected[at])  # type: ignore[index]
                raise Broken(
                    f"in a {how} row {who} has {values[column]!r:.100}, in order {expected[column]!r:.100}",  # type: ignore[index]
                    "compute a row from that row; what depends on the order sets can_shuffle to False and "
                    "comes in one piece",
                    column=subject.name(column),
                    row=row,
                )
