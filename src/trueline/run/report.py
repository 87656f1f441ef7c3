"""What came of a run: work kept and thrown away, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trueline.run.coordinator import Coordinator
from trueline.run.failure import Failure


@dataclass(frozen=True)
class StepReport:
    """One step: how many values it was given, and of how many the work was kept or thrown away."""

    name: str
    calls: int
    kept: int
    wasted: int
    skipped: bool


@dataclass(frozen=True)
class Report:
    """All steps, and what failed."""

    steps: tuple[StepReport, ...]
    failures: tuple[Failure, ...]

    @classmethod
    def of(cls, coordinator: Coordinator) -> Report:
        """Look at a coordinator."""
        steps = tuple(
            StepReport(
                line.step.name or type(line.step).__name__, line.calls, line.kept, line.wasted, line.cancelled
            )
            for line in coordinator.lines
        )
        return cls(steps, tuple(coordinator.failures))

    @property
    def quarantine(self) -> dict[object, Failure]:
        """The keys that were left out, and why."""
        return {failure.key: failure for failure in self.failures}

    def __str__(self) -> str:
        rows = [f"{s.name}: {s.calls} done, {s.kept} kept, {s.wasted} thrown away" for s in self.steps]
        return "\n".join(rows)
