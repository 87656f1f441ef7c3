"""How many examples of a property are looked at: few in `make test`, many new ones in `make soak`."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return how many to look at; `count` is enough to see that a property is kept, in `make test`."""
    usual = settings.default.max_examples  # type: ignore[union-attr]
    return max(count, usual) if usual > 100 else count
