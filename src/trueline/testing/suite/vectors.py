"""K17: vectors have the length their type says, and sparse ones are in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trueline import types as t
from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.subjects import ViewSubject


def _vectors(subject: ViewSubject) -> Iterator[tuple[int, int, t.Vector, Any]]:
    """Yield row, column, type and value of all vectors that are not null."""
    kinds = [(each, subject.view.schema[each].type) for each in subject.all]
    columns = [(each, kind) for each, kind in kinds if isinstance(kind, t.Vector)]
    if not columns:
        raise NotApplicable("no column holds vectors")
    with subject.view.cursor([each for each, _ in columns]) as cursor:
        getters = None
        while cursor.move_next():
            getters = getters or [cursor.getter(each) for each, _ in columns]
            for (column, kind), get in zip(columns, getters, strict=True):
                if (value := get()) is not None:
                    yield cursor.position, column, kind, value


@holds("view", "K17.lengths", "view:C108")
def lengths(subject: ViewSubject) -> None:
    """A vector of known size has that many values."""
    for row, column, kind, value in _vectors(subject):
        if kind.size and len(value) != kind.size:
            raise Broken(
                f"{len(value)} values in a {kind}",
                "declare the column without a size, or return null where the length is wrong",
                column=subject.name(column),
                row=row,
            )


@holds("view", "K17.sparse", "view:C105", "view:C106")
def sparse(subject: ViewSubject) -> None:
    """The indices of a sparse vector increase, are within its length, and each has a value."""
    for row, column, _, value in _vectors(subject):
        indices = getattr(value, "indices", None)
        if indices is None:
            continue
        places = [int(each) for each in indices]
        problem = None
        if len(places) != len(value.values):
            problem = f"{len(places)} indices with {len(value.values)} values"
        elif any(one >= other for one, other in pairwise(places)):
            problem = f"the indices {places[:10]} do not increase"
        elif places and not 0 <= places[0] <= places[-1] < len(value):
            problem = f"index {places[-1]} in a vector of {len(value)}"
        if problem:
            raise Broken(
                problem, "list each index once, in increasing order", column=subject.name(column), row=row
            )
