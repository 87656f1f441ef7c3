"""How much of a property is looked at: a sample in `make test`, many new cases or all in `make soak`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")


def is_soak() -> bool:
    """Whether this is `make soak`, by the profile of hypothesis."""
    return settings.default.max_examples > 100  # type: ignore[union-attr]


def examples(count: int) -> int:
    """Return how many to look at; `count` is enough to see that a property is kept, in `make test`."""
    return max(count, settings.default.max_examples) if is_soak() else count  # type: ignore[union-attr]


def some(cases: Iterable[T], count: int) -> list[T]:
    """Return so many of the cases, spread over all of them, the first and the last too; all in `make soak`.

    A test that uses it is marked `sampled`, so that `make soak` runs it.

    >>> some(range(10), 4)
    [0, 3, 6, 9]
    """
    every = list(cases)
    if is_soak() or len(every) <= count:
        return every
    return [every[round(number * (len(every) - 1) / (count - 1))] for number in range(count)]
