"""What came of a run: work kept and thrown away, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trueline.run.coordinator import Coordinator
from trueline.console.items import Table, as_html, as_text
from trueline.run.failure import Failure


@dataclass(frozen=True)
class StepReport:
    """One step: how often it worked on a value, and how much of that was kept or thrown away.

    `reused` counts what a journal knew already; it is in `kept` and `wasted`, not in `calls`.
    """

    name: str
    calls: int
    kept: int
    wasted: int
    skipped: bool
    reused: int = 0


@dataclass(frozen=True)
class RunReport:
    """All steps, and what failed.

    >>> from trueline.run import Run, Step
    >>> run = Run([Step(map=lambda key, value: 1 // value, name="divide", on_error="skip_key")])
    >>> run.execute({"a": 1, "b": 0})
    {'a': 1}
    >>> isinstance(run.report, RunReport), list(run.report.quarantine), run.report.table.columns
    (True, ['b'], ('step', 'done', 'kept', 'thrown away', 'failed'))
    """

    steps: tuple[StepReport, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...] = ()
    """What a journal held for the steps and could not be used, and why."""

    @classmethod
    def of(cls, coordinator: Coordinator) -> RunReport:
        """Look at a coordinator."""
        steps = tuple(
            StepReport(state.name, state.calls, state.kept, state.wasted, state.cancelled, state.reused)
            for state in coordinator.states
        )
        notes: tuple[str, ...] = getattr(coordinator.executor, "notes", ())
        return cls(steps, tuple(coordinator.failures), notes)

    @property
    def quarantine(self) -> dict[object, Failure]:
        """The keys that were left out, and why (`on_error="skip_key"`)."""
        return {failure.key: failure for failure in self.failures if failure.on_error == "skip_key"}

    @property
    def table(self) -> Table:
        """The steps as a table for a console; what a journal knew and failures only where there are any."""
        failed = [sum(failure.step == index for failure in self.failures) for index in range(len(self.steps))]
        rows: list[tuple[object, ...]] = []
        for step, failures in zip(self.steps, failed, strict=True):
            rows.append((step.name, step.calls, step.kept, step.wasted, step.reused, failures, step.skipped))
        shown = [True, True, True, True, any(s.reused for s in self.steps), any(failed)]
        shown.append(any(step.skipped for step in self.steps))
        names = ("step", "done", "kept", "thrown away", "from the journal", "failed", "skipped")
        return Table(
            tuple(name for name, show in zip(names, shown, strict=True) if show),
            tuple(tuple(cell for cell, show in zip(row, shown, strict=True) if show) for row in rows),
        )

    def __str__(self) -> str:
        return "\n".join([as_text(self.table), *self.notes])

    def _repr_html_(self) -> str:
        return as_html(self.table) + "".join(f"<p>{escape(note)}</p>" for note in self.notes)
