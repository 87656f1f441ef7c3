"""How rows are prepared: the steps people gave, as a run over files or a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from typing import Any

from trueline import console
from trueline.dataset.prepare.parse import Parse, parse
from trueline.dataset.prepare.rows import on_rows
from trueline.errors import InputError, RunFailed, TruelineError
from trueline.run import Event, Executor, Failure, Observer, Run, Step
from trueline.run.failure import said

WORKERS = 8


@dataclass(frozen=True)
class Preparation:
    """How files are prepared: the steps people gave, who watches, and where it runs.

    >>> from trueline.dataset.prepare import mask
    >>> preparation = Preparation.of([mask("name", how="stars")])
    >>> sorted(preparation.hides), Preparation.of([])
    (['name'], None)
    >>> preparation.run({}).values
    {}
    """

    steps: tuple[Step, ...]
    observers: tuple[Observer, ...] = ()
    executor: Executor | None = None
    deliberate: bool = False
    parse: Parse = field(default_factory=parse)

    @classmethod
    def of(
        cls,
        steps: Sequence[Step],
        observers: Sequence[Observer] = (),
        executor: Executor | None = None,
        *,
        deliberate: bool = False,
    ) -> Preparation | None:
        """Return the preparation that was asked for, None if there are no steps."""
        given = list(steps)
        for step in given:
            if not isinstance(step, Step):
                raise InputError(
                    f"{step!r:.80} is not a step",
                    remedy="give trueline.run.Step(map=…), or a subclass of Step",
                )
        if not given:
            return None
        first = given.pop(0) if isinstance(given[0], Parse) else parse()
        assert isinstance(first, Parse)
        if any(isinstance(step, Parse) for step in given):
            raise InputError("parse(…) is not the first step", remedy="put it first: files are parsed once")
        return cls(tuple(given), tuple(observers), executor, deliberate, first)

    def allowing(self, max_bad: float | None) -> Preparation:
        """Let the append that says how many bad cells are allowed decide it over all files, after the run.

        >>> from trueline.dataset.prepare import mask
        >>> Preparation.of([mask("name", how="stars")]).allowing(5).parse.max_bad
        inf
        """
        if max_bad is None or self.parse.max_bad is not None:
            return self
        return replace(self, parse=Parse(self.parse.reader, inf, self.parse.on_error))

    def run(self, values: Mapping[str, Any]) -> PreparationResult:
        """Run the steps; failures that a step does not let pass are raised."""
        steps = [self.parse, *(on_rows(step) for step in self.steps)]
        parsed = _ParsedKeys()
        observers = (*self.observers, parsed)
        run = Run(steps, WORKERS, executor=self.executor, deliberate=self.deliberate, observers=observers)
        try:
            found = run.execute(values)
        except RunFailed as error:
            if run.failures[-1].step == 0:
                self._parse_before(run.failures[-1].key, values, parsed.keys)
            # An error of ours says what to do by itself.
            if isinstance(error.__cause__, TruelineError):
                raise error.__cause__ from None
            raise
        unknown = [key for key in found if key not in values]
        if unknown:
            raise InputError(
                f"a step wrote {unknown[0]!r}, which is not one of the files",
                remedy="yield the key of a file: its rows go where the file's go",
                code="UnknownFile",
            )
        undone = {failure.step for failure in run.failures if steps[failure.step].on_error == "skip_step"}
        for failure in run.failures:
            if failure.step in undone:
                console.current().warn(
                    f"step {failure.name} was left out: it failed on {failure.key}: {_said(failure)}",
                    remedy="fix the step, or the file",
                    code="StepSkipped",
                )
        return PreparationResult(
            dict(found),
            {str(f.key): f for f in run.failures if f.step not in undone},
            tuple(step.name for number, step in enumerate(steps) if number not in undone),
        )

    def _parse_before(self, key: object, values: Mapping[str, Any], parsed: set[object]) -> None:
        """Parse what comes before a file that failed and was not done yet: of several the first is named."""
        for earlier in takewhile(lambda each: each != key, values):
            if earlier not in parsed:
                self.parse.map(earlier, values[earlier])

    @property
    def hides(self) -> frozenset[str]:
        """The columns whose unreadable cells must not be listed."""
        return frozenset().union(*(getattr(step, "hides", ()) for step in self.steps))


class _ParsedKeys:
    """Watches which files were parsed."""

    def __init__(self) -> None:
        self.keys: set[object] = set()

    def event(self, event: Event) -> None:
        if event.step == 0 and event.what == "changed":
            self.keys.add(event.key)


@dataclass(frozen=True)
class PreparationResult:
    """What came of a preparation: rows by key, the keys left out, and the names of the steps."""

    values: dict[str, Any]
    failures: dict[str, Failure]
    steps: tuple[str, ...]

    @property
    def left_out(self) -> dict[str, str]:
        """The files left out, and why."""
        return {key: f"{failure.name}: {_said(failure)}" for key, failure in self.failures.items()}


def _said(failure: Failure) -> str:
    cause = failure.cause
    return cause.problem if isinstance(cause, TruelineError) else said(cause)
