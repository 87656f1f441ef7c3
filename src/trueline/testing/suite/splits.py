"""K12 for splits: parts that share the rows, each row in one of them for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.subjects import ComponentSubject, Split, ViewSubject
from trueline.view import View


def parts(subject: ComponentSubject, view: View) -> dict[object, list[Any]]:
    """Return the ids of each part."""
    assert isinstance(subject.component, Split)
    made = subject.component.make(view)
    named = dict(made) if isinstance(made, Mapping) else dict(enumerate(made))
    return {name: ViewSubject(part).read([]).ids for name, part in named.items()}


@holds("split", "K12.disjoint", "view:C61")
def disjoint(subject: ComponentSubject) -> None:
    """No row is in two parts."""
    owner: dict[object, object] = {}
    for name, ids in parts(subject, subject.sample).items():
        for row, who in enumerate(ids):
            if owner.setdefault(who, name) != name:
                raise Broken(
                    f"row {who} is in parts {owner[who]!r} and {name!r}",
                    "let ranges be half open: a value on a boundary belongs to one side",
                    row=row,
                )


@holds("split", "K12.complete", "view:C61")
def complete(subject: ComponentSubject) -> None:
    """Every row is in a part, and no part has other rows."""
    expected = set(ViewSubject(subject.sample).read([]).ids)
    found = Counter(who for ids in parts(subject, subject.sample).values() for who in ids)
    if expected - found.keys():
        raise Broken(f"{len(expected - found.keys())} rows are in no part", "let the ranges cover everything")
    if found.keys() - expected:
        raise Broken(f"{len(found.keys() - expected)} rows are new", "keep the ids of rows")


@holds("split", "K12.grown", "view:C74", "view:C27")
def grown(subject: ComponentSubject) -> None:
    """A row stays in its part when rows are added."""
    count = len(ViewSubject(subject.sample).read([]))
    if count < 2:
        raise NotApplicable("fewer than 2 rows")
    before = parts(subject, subject.sample.limit(count // 2))
    after = {who: name for name, ids in parts(subject, subject.sample).items() for who in ids}
    for name, ids in before.items():
        for row, who in enumerate(ids):
            if after.get(who, name) != name:
                raise Broken(
                    f"row {who} moves from part {name!r} to {after[who]!r} when rows are added",
                    "decide by a hash of the row's id, or of its key, and not by its number",
                    row=row,
                )
