"""How the kit reads: everything a cursor gives, in a form that can be compared bit by bit."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.errors import InputError
from trueline.identity import RowId
from trueline.testing.kit import Broken
from trueline.view.cursor.row import Cursor

# What a sparse vector need not list, where that is not false in Python.
_ZEROS: Final = frozenset(
    {
        dt.date(1970, 1, 1),
        dt.datetime(1970, 1, 1),  # noqa: DTZ001 (without a zone, as such)
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.time(0),
        RowId(0),
    }
)
MOST_ROWS: Final = 2_000_000


@dataclass(frozen=True)
class RowsRead:
    """What a cursor gave: ids, batches and, in the order asked for, values, row by row."""

    ids: list[Any] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


def drain(cursor: Cursor, columns: Sequence[int], most: int | None = None) -> RowsRead:
    """Read a cursor to its end, or so many rows; getters are made on the first row."""
    rows = RowsRead()
    getters = None
    while (most is None or len(rows) < most) and cursor.move_next():
        if getters is None:
            getters = [cursor.getter(column) for column in columns]
        rows.ids.append(cursor.id)
        rows.batches.append(cursor.batch)
        rows.values.append(tuple(token(get()) for get in getters))
        if len(rows) > MOST_ROWS:
            raise InputError(
                f"the view has more than {MOST_ROWS:,} rows",
                remedy="check a part of it: the checks read it many times, row by row",
            )
    return rows


def token(value: Any) -> Any:
    """Return a value in a form where equal means the same: NaN is NaN, -0.0 is not 0.0, encodings are one.

    >>> token(float("nan")) == token(float("nan")), token(-0.0) == token(0.0), token([1, 0, None])
    (True, False, (3, (0, 1), (2, None)))
    """
    if value is None or isinstance(value, str | int | bytes):
        return value
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 (NaN alone differs from itself)
            return "NaN"
        return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value
    if isinstance(value, Mapping):
        return tuple((key, token(each)) for key, each in value.items())
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return _vector(value)
    return value


def _vector(value: Any) -> tuple[Any, ...]:
    """A vector as its length and what is not the default, which a sparse one need not list (view:C107)."""
    places = getattr(value, "indices", None)
    if places is None:
        plain = value.tolist() if hasattr(value, "tolist") else list(value)
        listed = list(enumerate(plain))
    else:
        listed = [(place, value[place]) for place in map(int, places)]
    kept = ((place, token(each)) for place, each in listed)
    return (
        len(value),
        *((place, each) for place, each in kept if each is None or (each and each not in _ZEROS)),
    )


def difference(expected: RowsRead, found: RowsRead) -> tuple[int, str] | None:
    """Return the first row at which two readings differ, and how; batches are not data (view:C65)."""
    for row, (one, other) in enumerate(zip(expected.ids, found.ids, strict=False)):
        if one != other:
            return row, f"the id is {other}, expected {one}"
        if expected.values[row] != found.values[row]:
            return row, f"{found.values[row]!r:.200}, expected {expected.values[row]!r:.200}"
    if len(expected) != len(found):
        return min(len(expected), len(found)), f"{len(found)} rows, expected {len(expected)}"
    return None


def same(expected: RowsRead, found: RowsRead, what: str, remedy: str, **where: object) -> None:
    """Raise if two readings differ."""
    if (apart := difference(expected, found)) is not None:
        row, how = apart
        raise Broken(f"{what}: {how}", remedy, row=row, **where)


def same_ids(expected: Sequence[Any], found: Sequence[Any], what: str, remedy: str, **where: object) -> None:
    """Raise if two readings have other rows, or in another order."""
    for row, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            raise Broken(f"{what}: row {other}, where row {one} was", remedy, row=row, **where)
    if len(expected) != len(found):
        row = min(len(expected), len(found))
        raise Broken(f"{what}: {len(found)} rows, where there were {len(expected)}", remedy, row=row, **where)
