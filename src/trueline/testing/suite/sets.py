"""K10 and K11: cursors that share the rows, and merge back into one."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final, cast

from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.read import RowsRead, drain, same_ids
from trueline.testing.subjects import NUMBERS, SEEDS, ViewSubject
from trueline.testing.threads import at_once

_MERGE_REMEDY: Final = "number batches so that sorting by them, stably, gives the order of one cursor"


@holds("view", "K10.members", "view:C60")
def members(subject: ViewSubject) -> None:
    """A set has at least one member, for any number asked for."""
    for n in (-1, *NUMBERS):
        found = list(subject.view.cursor_set(subject.all, n=n))
        for cursor in found:
            cursor.close()
        if not found:
            raise Broken(f"cursor_set(n={n}) is empty", "return at least one cursor, even for no rows")


@holds("view", "K10.partition", "view:C61")
def partition(subject: ViewSubject) -> None:
    """Together the members have exactly the rows of one cursor, each once."""
    expected = Counter(subject.serial.ids)
    for n in NUMBERS:
        found = Counter(each for member in subject.read_set(n, columns=[]) for each in member.ids)
        for text, some in (("missing", expected - found), ("repeated", found - expected)):
            if some:
                row = subject.serial.ids.index(next(iter(some))) if text == "missing" else None
                raise Broken(
                    f"of {len(subject.serial)} rows, {sum(some.values())} are {text} in a set of {n}",
                    "give every row to exactly one member",
                    row=row,
                )


@holds("view", "K10.rising", "view:C62")
def rising(subject: ViewSubject) -> None:
    """Within a member the batch number never decreases."""
    for n in NUMBERS:
        for member in subject.read_set(n, columns=[]):
            for row, batch in enumerate(cast("list[Any]", member.batches)):
                if not isinstance(batch, int) or not -(1 << 63) <= batch < 1 << 63:
                    raise Broken(f"the batch number is {batch!r}", "give a whole number of 64 bits", row=row)
                if row and batch < member.batches[row - 1]:
                    raise Broken(
                        f"the batch number decreases from {member.batches[row - 1]} to {batch}",
                        "let a member read its batches in order",
                        row=row,
                    )


@holds("view", "K10.exclusive", "view:C63")
def exclusive(subject: ViewSubject) -> None:
    """A batch belongs to one member."""
    for n in NUMBERS:
        owner: dict[int, int] = {}
        for number, member in enumerate(subject.read_set(n, columns=[])):
            for batch in set(member.batches):
                if owner.setdefault(batch, number) != number:
                    raise Broken(
                        f"batch {batch} is in members {owner[batch]} and {number} of a set of {n}",
                        "let no two members share a batch",
                    )


@holds("view", "K10.merged", "view:C64", "view:C72")
def merged(subject: ViewSubject) -> None:
    """Sorted by batch, the rows of a set are those of one cursor, in its order."""
    for n in NUMBERS:
        found = _merged(subject.read_set(n, columns=[]))
        if Counter(found) == Counter(subject.serial.ids):  # else K10.partition reports it
            same_ids(subject.serial.ids, found, f"a set of {n}, sorted by batch, differs", _MERGE_REMEDY)


@holds("view", "K10.seeded", "view:C64", "view:C85")
def seeded(subject: ViewSubject) -> None:
    """A seed gives a set the order it gives one cursor."""
    if not subject.view.can_shuffle:
        raise NotApplicable("the view cannot be shuffled")
    for seed in SEEDS:
        expected = subject.read([], seed=seed).ids
        if expected != subject.read([], seed=seed).ids:
            continue  # K13.same_seed reports it
        for n in NUMBERS:
            found = _merged(subject.read_set(n, seed, columns=[]))
            what = f"a set of {n} with seed {seed}, sorted by batch, differs from one cursor with that seed"
            same_ids(expected, found, what, "pass the seed to the members")


def _merged(members: list[RowsRead]) -> list[Any]:
    rows = [(batch, who) for member in members for batch, who in zip(member.batches, member.ids, strict=True)]
    return [who for _, who in sorted(rows, key=lambda row: row[0])]


@holds("view", "K10.agreed", "view:C66", "view:C50")
def agreed(subject: ViewSubject) -> None:
    """Exactly the columns asked for are active, in every member."""
    asked = subject.all[::2]
    for n in (2, 7):
        cursors = list(subject.view.cursor_set(asked, n=n))
        said = [[cursor.is_active(column) for column in subject.all] for cursor in cursors]
        for cursor in cursors:
            cursor.close()
        for number, each in enumerate(said):
            for column, is_active in enumerate(each):
                if is_active != (column in asked):
                    raise Broken(
                        f"in member {number} the column is {'' if is_active else 'not '}active",
                        "open every member with the same columns",
                        column=subject.name(column),
                    )


@holds("view", "K11.uneven", "view:C68")
def uneven(subject: ViewSubject) -> None:
    """Members are read by threads, each at its own speed, and none waits for another."""
    remedy = "let no member wait for what another has not read"
    for n in (2, 7):
        cursors = list(subject.view.cursor_set(subject.all, n=n))
        first, rest = cursors[0], cursors[1:]
        jobs = [partial(drain, cursor, subject.all) for cursor in rest]
        found = (
            at_once(jobs, subject.patience, "the members beside one that is not read", remedy) if jobs else []
        )
        (late,) = at_once([partial(drain, first, subject.all)], subject.patience, "the last member", remedy)
        ids = Counter(each for member in [*found, late] for each in member.ids)
        for cursor in cursors:
            cursor.close()
        if ids != Counter(each for member in subject.read_set(n) for each in member.ids):
            raise Broken("members read by threads have different rows", "let members share no mutable state")


@holds("view", "K11.abandoned", "view:C68")
def abandoned(subject: ViewSubject) -> None:
    """A member that is closed early takes nothing from the others, and holds none of them up."""
    expected = [member.ids for member in subject.read_set(3)][1:]
    cursors = list(subject.view.cursor_set(subject.all, n=3))
    if len(cursors) < 2:
        raise NotApplicable("the set has one member")
    cursors[0].move_next()
    cursors[0].close()
    jobs = [partial(drain, cursor, subject.all) for cursor in cursors[1:]]
    remedy = "let a closed member stop no other"
    found = at_once(jobs, subject.patience, "the members beside a closed one", remedy)
    for cursor in cursors[1:]:
        cursor.close()
    for one, other in zip(expected, found, strict=True):
        same_ids(one, other.ids, "a member beside a closed one has different rows", remedy)
