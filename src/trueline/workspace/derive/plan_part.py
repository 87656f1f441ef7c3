"""A query as Spark has analysed it, as far as a judge looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A node of an analysed query: the name of its class, what it is computed from, and its type if known."""

    name: str
    is_plan: bool
    parts: tuple[PlanPart, ...]
    type: str = ""
    value: str = ""

    def walk(self) -> Iterator[PlanPart]:
        """Yield the node and all below it."""
        yield self
        for part in self.parts:
            yield from part.walk()
