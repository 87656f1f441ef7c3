"""Make a failing line as plain as possible: few deviations, early ones, small numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trueline.flow.simulator.choices import deviations, trimmed

Fails = Callable[[Sequence[int]], "tuple[int, ...] | None"]
"""Runs a line; if it fails in the same way, returns the line that was really taken."""


def shrink(line: Sequence[int], fails: Fails, limit: int = 2_000) -> tuple[int, ...]:
    """Shrink a failing line within `limit` runs; the answer fails in the same way.

    >>> shrink([0, 3, 1, 2], lambda line: tuple(line) if 3 in line else None)
    (3,)
    """
    best = trimmed(line)
    runs = 0

    def attempt(candidate: Sequence[int]) -> bool:
        nonlocal best, runs
        if runs >= limit or plainness(candidate) >= plainness(best):
            return False
        runs += 1
        taken = fails(candidate)
        if taken is None or plainness(trimmed(taken)) >= plainness(best):
            return False
        best = trimmed(taken)
        return True

    while _shorter(best, attempt) or _eager(best, attempt) or _smaller(best, attempt):
        pass
    return best


def plainness(line: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """Order lines: fewer deviations first, then shorter, then smaller numbers."""
    short = trimmed(line)
    return (deviations(short), len(short), short)


def _shorter(line: tuple[int, ...], attempt: Callable[[Sequence[int]], bool]) -> bool:
    """Cut off the tail: half of it, a quarter, … one choice."""
    step = len(line) // 2
    while step:
        if attempt(line[: len(line) - step]):
            return True
        step //= 2
    return False


def _eager(line: tuple[int, ...], attempt: Callable[[Sequence[int]], bool]) -> bool:
    """Undo deviations: all but one, one at a time; or leave a choice out, so that what follows moves up."""
    places = [place for place, value in enumerate(line) if value]
    if len(places) > 1:
        for keep in places:
            if attempt([value if place == keep else 0 for place, value in enumerate(line)]):
                return True
    for place in places:
        if attempt([*line[:place], 0, *line[place + 1 :]]) or attempt([*line[:place], *line[place + 1 :]]):
            return True
    return any(attempt([*line[:place], *line[place + 1 :]]) for place, value in enumerate(line) if value == 0)


def _smaller(line: tuple[int, ...], attempt: Callable[[Sequence[int]], bool]) -> bool:
    for place, value in enumerate(line):
        for lower in range(1, value):
            if attempt([*line[:place], lower, *line[place + 1 :]]):
                return True
    return False
