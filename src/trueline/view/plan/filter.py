"""The rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trueline.view.expressions import Expression, condition
from trueline.view.plan.node import Node, OneInput, Want


@dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """The rows for which a condition is true; ids and order do not change."""

    where: Expression

    @property
    def title(self) -> str:
        pruned = ", ".join(self.where.bounds)
        return f"rows where {self.where.text}{f' (skips what {pruned} rules out)' if pruned else ''}"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """Known by reading only."""
        return None

    @property
    def needed(self) -> tuple[int, ...]:
        """The columns the condition reads."""
        return tuple(self.schema[name].index for name in self.where.columns)

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and what the condition reads."""
        columns = tuple(dict.fromkeys((*want.columns, *self.needed)))
        pruned = {self.schema[name].index: each for name, each in self.where.bounds.items()}
        return (want.of(columns).within(want.bounds).within(pruned),)


def filtered(below: Node, where: str, parameters: Mapping[str, object]) -> Filter:
    """Keep the rows for which a condition is true."""
    return Filter(below, condition(where, below.schema.to_arrow(), parameters))
