"""Steps held to being functions: they change nothing they are given, and give the same again."""

from __future__ import annotations

import copy
from typing import Any

from trueline.errors import InputError
from trueline.run.attempt import Outcome, Token, work
from trueline.run.step import Step, same


def checked(step: Step, items: list[tuple[Any, Any]], token: Token | None) -> Outcome:
    """Do a batch twice on copies; a step that is no function of its input fails on the keys that show it."""
    before = copy.deepcopy(items)
    first = work(step, items, token)
    failed = {key for key, _ in first.errors}
    for (key, value), (_, untouched) in zip(items, before, strict=True):
        if key not in failed and not same(step, value, untouched):
            failed.add(key)
            first.errors.append((key, _impure(step, f"changed the value it was given for {key!r}")))
    again = work(step, copy.deepcopy(before), token)
    for key in _differing(step, first, again) - failed:
        first.errors.append((key, _impure(step, f"gave another result for {key!r} the second time")))
    wrong = {key for key, _ in first.errors}
    first.changed = [each for each in first.changed if each[0] not in wrong]
    first.writes = [each for each in first.writes if each[0] not in wrong]
    return first


def _differing(step: Step, one: Outcome, other: Outcome) -> set[Any]:
    """The keys of which two outcomes say different things."""
    made: list[dict[Any, list[tuple[Any, Any]]]] = []
    for outcome in (one, other):
        found: dict[Any, list[tuple[Any, Any]]] = {}
        for key, value in outcome.changed:
            found.setdefault(key, []).append((key, value))
        for source, dst, value in outcome.writes:
            found.setdefault(source, []).append((dst, value))
        made.append(found)
    first, second = made
    return {
        key
        for key in first.keys() | second.keys()
        if not _equal(step, first.get(key, []), second.get(key, []))
    }


def _equal(step: Step, one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> bool:
    return len(one) == len(other) and all(
        a[0] == b[0] and same(step, a[1], b[1]) for a, b in zip(one, other, strict=True)
    )


def _impure(step: Step, what: str) -> InputError:
    return InputError(
        f"{step!r} {what}",
        remedy="return a new value instead, and use nothing but what is given: runs may call a step again",
        code="ImpureStep",
    )
