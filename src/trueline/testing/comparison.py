"""Whether two views are the same to every reader (view:C95): what they say and what they give."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

import numpy as np

from trueline.errors import InputError
from trueline.testing.protocol import ViewLike, is_view
from trueline.testing.read import vector
from trueline.testing.subjects import SEEDS

_DOUBLE: Final = struct.Struct("<d")


@dataclass(frozen=True)
class ViewComparison:
    """The answer of `identical`: true if nothing differs, else it says what does first, and where.

    >>> from trueline import View
    >>> bool(identical(View.range(2), View.range(2))), bool(identical(View.range(2), View.range(3)))
    (True, False)
    """

    difference: str = ""
    column: str | None = None
    row: int | None = None

    def __bool__(self) -> bool:
        return not self.difference

    def __str__(self) -> str:
        if not self.difference:
            return "identical"
        where = [f"column {self.column!r}"] if self.column is not None else []
        where += [f"row {self.row:,}"] if self.row is not None else []
        return f"not identical: {', '.join(where)}{': ' if where else ''}{self.difference}"

    def __repr__(self) -> str:
        return f"<{self}>"


def identical(one: ViewLike, other: ViewLike) -> ViewComparison:
    """Say whether two views are the same to every reader.

    Compared are the columns in order, hidden ones too, with their types, annotations and whether they may
    be null; how many rows there are; the id of every row and its values bit by bit (`-0.0` is not `0.0`, a
    NaN is only the same NaN); whether they can be shuffled, and the order that a seed gives. Batches are not
    data (view:C65), and a row count that takes reading is not a difference.

    >>> from trueline import View
    >>> view = View.from_rows([{"x": 0.0}, {"x": 1.5}])
    >>> identical(view, View.from_rows([{"x": -0.0}, {"x": 1.5}]))
    <not identical: column 'x', row 0: 0.0 and -0.0>
    >>> identical(view, view.filter("true"))
    <identical>
    """
    for each in (one, other):
        if not is_view(each):
            raise InputError(f"{each!r:.80} is not a view", remedy="give two views")
    found = next(chain(_columns(one, other), _counts(one, other), _rows(one, other, None)), None)
    if found is not None:
        return found
    if one.can_shuffle != other.can_shuffle:
        can = "the first" if one.can_shuffle else "the second"
        return ViewComparison(f"only {can} can be shuffled")
    seeded = (difference for seed in SEEDS if one.can_shuffle for difference in _rows(one, other, seed))
    return next(seeded, ViewComparison())


def _columns(one: ViewLike, other: ViewLike) -> Iterator[ViewComparison]:
    mine, theirs = ([(c.name, c.is_hidden) for c in view.schema] for view in (one, other))
    if mine != theirs:
        yield ViewComparison(f"the columns are {_names(mine)} and {_names(theirs)}")
        return
    for a, b in zip(one.schema, other.schema, strict=True):
        if a.type != b.type:
            yield ViewComparison(f"the types are {a.type} and {b.type}", a.name)
        if a.nullable != b.nullable:
            yield ViewComparison(f"only in the {'first' if a.nullable else 'second'} it may be null", a.name)
        if a.annotations != b.annotations:
            kinds = sorted({*a.annotations, *b.annotations})
            kind = next(k for k in kinds if a.annotations.found.get(k) != b.annotations.found.get(k))
            said = [about.get(kind, "absent") for about in (a.annotations, b.annotations)]
            yield ViewComparison(f"annotation {kind} is {said[0]!r:.80} and {said[1]!r:.80}", a.name)


def _names(columns: list[tuple[str, bool]]) -> str:
    return ", ".join(f"{name} (hidden)" if hidden else name for name, hidden in columns) or "none"


def _counts(one: ViewLike, other: ViewLike) -> Iterator[ViewComparison]:
    mine, theirs = one.row_count, other.row_count
    if mine is not None and theirs is not None and mine != theirs:
        yield ViewComparison(f"there are {mine:,} and {theirs:,} rows")


def _rows(one: ViewLike, other: ViewLike, seed: int | None) -> Iterator[ViewComparison]:
    places = list(range(len(one.schema)))
    how = "" if seed is None else f" with seed {seed}"
    with one.cursor(places, seed=seed) as mine, other.cursor(places, seed=seed) as theirs:
        pairs = [(mine.getter(place), theirs.getter(place)) for place in places]
        row = 0
        while mine.move_next():
            if not theirs.move_next():
                yield ViewComparison(f"the second has {row:,} rows{how}, the first has more")
                return
            if mine.id != theirs.id:
                yield ViewComparison(f"the ids{how} are {mine.id} and {theirs.id}", row=row)
                return
            for place, (get, other_get) in enumerate(pairs):
                a, b = get(), other_get()
                if bits(a) != bits(b):
                    yield ViewComparison(f"{a!r:.80} and {b!r:.80}{how}", one.schema[place].name, row)
                    return
            row += 1
        if theirs.move_next():
            yield ViewComparison(f"the first has {row:,} rows{how}, the second has more")
            return
    for view, which in ((one, "first"), (other, "second")):
        if view.row_count not in (None, row):
            yield ViewComparison(
                f"the {which} says that it has {view.row_count:,} rows, and gives {row:,}{how}"
            )


def bits(value: Any) -> Hashable:
    """Return a value in a form where equal means the same bits; how a vector is encoded makes no difference.

    >>> bits(0.0) == bits(-0.0), bits(1) == bits(True), bits([0.0, 2.0]) == bits((0.0, 2.0))
    (False, False, True)
    """
    if value is None:
        return None
    kind = type(value).__name__
    if isinstance(value, float):
        return "float", _DOUBLE.pack(value)
    if isinstance(value, str | bytes | int):
        return kind, value
    if isinstance(value, decimal.Decimal):
        return kind, value.as_tuple()
    if isinstance(value, np.generic):
        return value.dtype.str, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((key, bits(each)) for key, each in value.items())
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return cast("Hashable", vector(value, bits))
    return kind, repr(value)  # moments with their zones, ids
