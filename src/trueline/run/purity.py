"""Steps held to being functions: they change nothing they are given, and give the same again."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Final

from trueline.errors import InputError
from trueline.run.attempt import Outcome, Token, work
from trueline.run.equality import same
from trueline.run.step import ERASED, Step

_UNKNOWN: Final = object()


def checked(step: Step, items: list[tuple[Any, Any]], token: Token | None) -> Outcome:
    """Do a batch twice; a step that is not a function of its input fails on the keys that show it."""
    copies = [(key, _copy(value)) for key, value in items]
    before = [_image(value) for _, value in items]
    first = work(step, items, token)
    wrong: dict[Any, str] = {}
    for (key, value), image in zip(items, before, strict=True):
        if image is not _UNKNOWN and image != _image(value):
            wrong[key] = f"changed the value it was given for {key!r}"
    again = work(step, copies, token)
    for key in _differing(step, first, again):
        # What rests on all keys of a batch is held against each of them.
        for each in [given for given, _ in items] if key is None else [key]:
            wrong.setdefault(each, f"gave another result for {each!r} the second time")
    if wrong:
        first.errors = [each for each in first.errors if each[0] not in wrong]
        first.errors += [(key, _impure(step, what)) for key, what in wrong.items()]
        first.changed = [each for each in first.changed if each[0] not in wrong]
        first.writes = [each for each in first.writes if each[0] not in wrong and each[0] is not None]
    return first


def _differing(step: Step, one: Outcome, other: Outcome) -> list[Any]:
    """The keys of which two outcomes say different things."""
    made: list[dict[Any, list[tuple[Any, Any]]]] = []
    for outcome in (one, other):
        found: dict[Any, list[tuple[Any, Any]]] = {}
        for key, value in outcome.changed:
            found.setdefault(key, []).append((key, value))
        for source, dst, value in outcome.writes:
            found.setdefault(source, []).append((dst, value))
        for key, error in outcome.errors:
            found.setdefault(key, []).append(("raised", type(error)))
        made.append(found)
    first, second = made
    return [key for key in {**first, **second} if not _equal(step, first.get(key, []), second.get(key, []))]


def _equal(step: Step, one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> bool:
    return len(one) == len(other) and all(
        a[0] == b[0] and (same(step, a[1], b[1]) or _alike(a[1], b[1]))
        for a, b in zip(one, other, strict=True)
    )


def _alike(one: Any, other: Any) -> bool:
    """Say of values that do not compare equal whether they hold the same, as objects of a plain class do."""
    image = _image(one)
    return image is not _UNKNOWN and image == _image(other)


def _image(value: Any) -> Any:
    """Bytes that are others when a value was changed."""
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 (whatever a value's own pickling raises)
        return _UNKNOWN


def _copy(value: Any) -> Any:
    """A value of its own for the second time; one that cannot be copied is given again as it is."""
    try:
        return value if value is ERASED else copy.deepcopy(value)
    except Exception:  # noqa: BLE001 (whatever a value's own copying raises)
        return value


def _impure(step: Step, what: str) -> InputError:
    return InputError(
        f"{step!r} {what}",
        remedy="return a new value instead, and use nothing but what is given: runs may call a step again",
        code="ImpureStep",
    )
