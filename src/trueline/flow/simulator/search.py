"""The searches: all schedules, those with few deviations, random ones; and how what they find is shrunk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from trueline.errors import EnvironmentMissing
from trueline.flow.simulator.choices import Draw, Follow, Line, Picker, Walk, children, deviations, trimmed

Outcome = Literal["passed", "pruned", "discarded", "failed"]
LOOK_AT_THE_CLOCK_EVERY = 64


@dataclass(frozen=True, slots=True)
class Ending:
    """How one execution ended; `failure` is the same for failures of the same kind at the same place."""

    outcome: Outcome
    error: BaseException | None = None
    failure: tuple[Any, ...] = ()


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


class Searchable(Protocol):
    """A test that a search can run as often as it likes."""

    states: set[Any] | None
    """The states seen, for searches that leave out what was seen; None: nothing is left out."""

    resumes: bool
    """Whether an execution goes on from the last state it shares with the one before, for `Walk` only."""

    def execute(self, picker: Picker) -> Ending:
        """Run it."""

    def rewind(self, length: int) -> None:
        """Forget what was kept of the execution behind a choice; with -1, all of it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a search may cost; it says so when that was not enough."""

    executions: int = 200_000
    seconds: float | None = None
    deviations: int | None = None


class FailingLine(Exception):
    """A line that fails."""

    def __init__(self, line: Sequence[int], ending: Ending) -> None:
        super().__init__()
        self.line = trimmed(line)
        self.ending = ending


@dataclass
class Tally:
    """Counts executions and says when the budget is used up."""

    mode: str
    budget: Budget
    started: float = field(default_factory=time.monotonic)
    passed: int = 0
    pruned: int = 0
    discarded: int = 0
    stopped: str = ""

    def count(self, ending: Ending, picker: Picker) -> None:
        """Count one; a failure ends the search."""
        if ending.outcome == "passed":
            self.passed += 1
        elif ending.outcome == "pruned":
            self.pruned += 1
        elif ending.outcome == "discarded":
            self.discarded += 1
        else:
            raise FailingLine(picker.values, ending)

    def over(self) -> bool:
        """Whether the search must stop here."""
        runs = self.passed + self.pruned + self.discarded
        if runs >= self.budget.executions:
            self.stopped = f"stopped after {runs:,} executions, the budget"
        elif (
            self.budget.seconds is not None
            and runs % LOOK_AT_THE_CLOCK_EVERY == 0
            and time.monotonic() - self.started > self.budget.seconds
        ):
            self.stopped = f"stopped after {self.budget.seconds:g} seconds, the budget"
        return bool(self.stopped)

    def close(self, runner: Searchable, *, exhaustive: bool, reached: int | None = None) -> Exploration:
        """Say what was seen."""
        return Exploration(
            self.mode,
            self.passed,
            len(runner.states) if runner.states is not None else 0,
            exhaustive and not self.stopped,
            self.pruned,
            self.discarded,
            reached,
            self.stopped,
            time.monotonic() - self.started,
        )


def exhaustive(runner: Searchable, budget: Budget) -> Exploration:
    """Look at every schedule, depth first."""
    tally = Tally("exhaustive", budget)
    walk = Walk()
    runner.resumes = True
    try:
        while True:
            tally.count(runner.execute(walk), walk)
            if not walk.advance():
                return tally.close(runner, exhaustive=True)
            if tally.over():
                return tally.close(runner, exhaustive=False)
            runner.rewind(len(walk.values) - 1)
    finally:
        runner.resumes = False
        runner.rewind(-1)


def bounded(runner: Searchable, budget: Budget) -> Exploration:
    """Look at the eager schedule, then at all with one deviation, with two …: the first failure is smallest.

    A line with n + 1 deviations is made from the one line with n that it shares everything before its last
    deviation with, so each is run once. Leaving out states that were seen is sound here too: they were first
    seen with no more deviations than now.
    """
    tally = Tally("deviations", budget)
    waiting: deque[tuple[Line, Line]] = deque([((), ())])
    bound = 0
    left_out = False
    while waiting:
        line, ways = waiting.popleft()
        bound = deviations(line)
        follow = Follow(line, ways)
        tally.count(runner.execute(follow), follow)
        more = children(follow.values, follow.arities, len(line) - 1)
        if budget.deviations is not None and bound >= budget.deviations:
            left_out = left_out or any(True for _ in more)
        elif (
            len(waiting) <= budget.executions
        ):  # more than that is never run: the budget ends the search first
            waiting.extend(more)
        if waiting and tally.over():
            return tally.close(runner, exhaustive=False, reached=bound - 1)
    if left_out:
        tally.stopped = f"all with at most {bound} deviations"
    return tally.close(runner, exhaustive=not left_out, reached=bound)


def fuzz(runner: Searchable, budget: Budget, seed: int | None) -> Exploration:
    """Look at random schedules, drawn by Hypothesis, which tries short and eager ones too."""
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError as error:
        raise EnvironmentMissing(
            "mode='fuzz' draws its schedules with Hypothesis, which is not installed",
            remedy="pip install hypothesis, or use mode='deviations'",
        ) from error
    tally = Tally("fuzz", budget)
    whole = {arity: strategies.integers(0, arity - 1) for arity in range(2, 10)}

    @hypothesis.settings(
        max_examples=budget.executions,
        database=None,
        deadline=None,
        derandomize=seed is None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(strategies.data())
    def one(data: Any) -> None:
        if tally.stopped or tally.over():
            return
        draw = Draw(
            lambda arity: data.draw(whole[arity] if arity in whole else strategies.integers(0, arity - 1))
        )
        tally.count(runner.execute(draw), draw)

    (hypothesis.seed(seed)(one) if seed is not None else one)()
    if not tally.stopped:
        tally.stopped = f"{tally.passed + tally.discarded:,} random schedules"
    return tally.close(runner, exhaustive=False)


def smallest(runner: Searchable, found: FailingLine, limit: int = 2_000) -> tuple[int, ...]:
    """Make a failing line as plain as can be: shrink it, then look for one with fewer deviations."""
    runner.states = None

    def fails(line: Sequence[int]) -> tuple[int, ...] | None:
        follow = Follow(line, lenient=True)
        ending = runner.execute(follow)
        return tuple(follow.values) if ending.failure == found.ending.failure else None

    line = shrink(found.line, fails, limit)
    if deviations(line) > 1:
        try:
            bounded(runner, Budget(limit, deviations=deviations(line) - 1))
        except FailingLine as smaller:
            if smaller.ending.failure == found.ending.failure:
                line = shrink(smaller.line, fails, limit)
    return line


# --- shrinking ------------------------------------------------------------------------

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
