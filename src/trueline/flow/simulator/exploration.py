"""What a search has seen, said so that a search that was cut short is never taken for a whole one."""

from __future__ import annotations

from dataclasses import dataclass


class NotExhaustive(UserWarning):
    """A search ended at its budget: what it did not look at may still fail."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """The answer of a search that found no failure.

    `executions` ran to the end of the test, `pruned` were cut short at a state that had been seen,
    `discarded` were set aside by `assume`. `states` are the distinct ones. `exhaustive` is True only if every
    schedule was looked at.
    """

    mode: str
    executions: int
    states: int
    exhaustive: bool
    pruned: int = 0
    discarded: int = 0
    deviations: int | None = None
    stopped: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.executions:,} execution{'s' * (self.executions != 1)}"]
        if self.states:
            parts.append(f"{self.states:,} states")
        if self.pruned:
            parts.append(f"{self.pruned:,} cut short at a state seen before")
        if self.discarded:
            parts.append(f"{self.discarded:,} set aside by assume")
        whole = "every schedule" if self.exhaustive else "NOT every schedule"
        why = f" ({self.stopped})" if self.stopped else ""
        return f"{self.mode}: {', '.join(parts)}: {whole}{why}"
