"""K8: a value from a getter belongs to the caller; these run last, for they change values."""

from __future__ import annotations

import copy
from collections.abc import MutableMapping, MutableSequence
from typing import Any, Final

from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.read import same, token
from trueline.testing.subjects import ViewSubject

_ROWS: Final = 1_000


@holds("view", "K8.kept", "view:C25", "view:C49")
def kept(subject: ViewSubject) -> None:
    """Values from a getter do not change when the cursor moves."""
    held: list[list[Any]] = []
    copies: list[list[Any]] = []
    with subject.view.cursor(subject.all) as cursor:
        getters = None
        while len(held) < _ROWS and cursor.move_next():
            getters = getters or [cursor.getter(column) for column in subject.all]
            held.append([get() for get in getters])
            copies.append([token(copy.deepcopy(value)) for value in held[-1]])
        while cursor.move_next():
            pass
    for row, (values, expected) in enumerate(zip(held, copies, strict=True)):
        for column, (value, one) in enumerate(zip(values, expected, strict=True)):
            if token(value) != one:
                raise Broken(
                    f"a value that was {one!r:.100} became {value!r:.100} when the cursor moved",
                    "return a new object for every row",
                    column=subject.name(column),
                    row=row,
                )


@holds("view", "K8.changed", "view:C25")
def changed(subject: ViewSubject) -> None:
    """Changing a value from a getter changes nothing for others."""
    before, spoiled = subject.read(), 0
    with subject.view.cursor(subject.all) as cursor:
        getters = None
        while cursor.move_next():
            getters = getters or [cursor.getter(column) for column in subject.all]
            spoiled += sum(_spoil(get()) for get in getters)
    if not spoiled:
        raise NotApplicable("no value is mutable")
    same(before, subject.read(), "changing a value changed the view", "return copies, or immutable values")


def _spoil(value: Any) -> bool:
    """Change a value if it lets us."""
    try:
        if isinstance(value, MutableSequence):
            value.append(value[0] if value else None)
            value.reverse()
        elif isinstance(value, MutableMapping):
            value.clear()
        elif hasattr(value, "flags") and len(value):
            value[0] = value[-1] if len(value) > 1 and value[0] != value[-1] else 0
        else:
            return False
    except (TypeError, ValueError):
        return False
    return True
