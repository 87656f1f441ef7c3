"""When a step works ahead on values that may still change, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trueline.run.line import Line

# Work on input that may still change is begun at most so many times for a key; then it waits.
ATTEMPTS: Final = 3
# Below this chance that nothing will change, a step waits for its input instead of working ahead.
WORTH: Final = 0.25


def attempts_allowed(line: Line) -> int:
    """Return how often a step may begin a key before its input is final (run:F21).

    A step has as many as there are steps before it: with the last one, on the final value, that makes at
    most S (S + 1) / 2 calls for a key in S steps, and never more than four for each.
    """
    return min(ATTEMPTS, max(1, line.index))


def is_worth(chance: float) -> bool:
    """Say whether to work ahead on a value that stays with this chance."""
    return chance >= WORTH


def chance_through(before: Iterable[Line]) -> float:
    """Return the chance that whatever comes through these steps stays, by how often each changed a value.

    For one key only the steps count that may still change it (`Finality.due`): a file that was parsed is
    worth working ahead on, though parsing changes all of them and others are not parsed yet.
    """
    chance = 1.0
    for line in before:
        if not line.cancelled:
            chance *= 1.0 - line.change_rate
    return chance
