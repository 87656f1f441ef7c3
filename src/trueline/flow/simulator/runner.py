"""Runs a test once, as a picker says, and remembers enough to run the next schedule from where it differs.

The body is an ordinary function, so every execution calls it again. But what it does is a function of the
answers it was given: up to the last choice two schedules share, its calls are answered from the log of the
execution before, and the machine is put back to the state it had there. So a search
pays only for what is new.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trueline.errors import (
    ClaimBroken,
    ElementFailed,
    EndlessLoop,
    InputError,
    SimulationError,
)
from trueline.flow.compiled import CompiledFlow
from trueline.flow.machine import Machine
from trueline.flow.simulator.choices import Picker, Walk
from trueline.flow.simulator.execution import ExecutionEnded, Pruned
from trueline.flow.simulator.faults import Faults
from trueline.flow.simulator.script import Script, ScriptedOperator
from trueline.flow.simulator.search import Ending
from trueline.flow.simulator.simulation import Simulation
from trueline.flow.simulator.tracer import Tracer, where
from trueline.flow.values import frozen

Body = Callable[[Simulation], object]
FINDINGS = (ElementFailed, ClaimBroken, EndlessLoop)  # of a flow, not of how it is tested


@dataclass(frozen=True, slots=True)
class Mark:
    """Where an execution can be taken up again."""

    position: int
    calls: int
    doing: tuple[str, str]
    state: Any
    steps: int
    clean: tuple[bool, bool]
    faults: tuple[Any, ...]


class Runner:
    """One flow and one body, run as often as a search likes."""

    def __init__(
        self, compiled: CompiledFlow, body: Body, faults: Faults, *, steps: int, check: bool
    ) -> None:
        self.compiled = compiled
        self.machine = Machine(compiled, check=check)
        self.body = body
        self.faults = faults
        self.limit = steps
        self.states: set[Any] | None = None
        self.resumes = False
        self.picker: Picker = Walk()
        self.pick = self.picker.pick
        self.script: Script | None = None
        self.tracer: Tracer | None = None
        self.reads = 0
        self._log: list[tuple[str, str, Any, int]] = []
        self._known = 0
        self._call = 0
        self._doing = ("", "")
        self._expected: tuple[str, str] | None = None
        self._marks: list[Mark] = []
        self._histories: dict[Any, int] = {}
        self._steps = 0
        self.tainted = False
        self.poisoned = False
        sinks = compiled.graph.named("sink")
        self._ordered = {node.name: node.ordered and node.shape == "stream" for node in sinks}

    # --- one execution ------------------------------------------------------------------

    def execute(self, picker: Picker) -> Ending:
        """Run the body once."""
        self.picker, self.pick = picker, picker.pick
        self._begin(picker)
        try:
            self.body(Simulation(self))
            self._finish()
        except ExecutionEnded as end:
            return _ENDINGS[end.outcome]
        except FINDINGS as error:
            return _failure(error)
        except InputError:  # of how the flow is tested, so not a finding
            raise
        except Exception as error:  # noqa: BLE001 (whatever the test raises is what it found)
            return _failure(error)
        except BaseException as error:
            if not _is_failed_test(error):
                raise
            return _failure(error)
        return _ENDINGS["passed"]

    def _finish(self) -> None:
        if self._call < self._known or self._expected is not None:
            raise _other_calls(self._expected or self._log[self._call][:2], "nothing more")
        if self.script is not None:
            self.script.finish()

    def _begin(self, picker: Picker) -> None:
        self._call = 0
        self._expected = None
        self.script = None
        if self.resumes and self._marks and isinstance(picker, Walk):
            mark = self._marks.pop()
            self.machine.restore(mark.state)
            picker.position = mark.position
            self._known = mark.calls
            self._expected = mark.doing
            self._steps = mark.steps
            self.tainted, self.poisoned = mark.clean
            self.faults.restore(mark.faults)
            del self._log[mark.calls :]
            return
        self.machine.reset()
        if isinstance(picker, Walk):
            picker.position = 0
        self._known = self._steps = 0
        self.tainted = self.poisoned = False
        self.faults.reset()
        self._log.clear()
        self._marks.clear()

    def rewind(self, length: int) -> None:
        """Forget the marks behind a choice."""
        marks = self._marks
        while marks and marks[-1].position > length:
            marks.pop()

    # --- the body's calls ---------------------------------------------------------------

    def recall(self, name: str, target: str) -> tuple[bool, Any]:
        """Answer a call from the log, if it was made before the last choice that changed."""
        if self._call >= self._known:
            self._doing = (name, target)
            if self._expected is not None and self._expected != self._doing:
                raise _other_calls(self._expected, f"{name}({target!r})")
            self._expected = None
            return False, None
        was, at, answer, _ = self._log[self._call]
        if was != name or at != target:
            raise _other_calls((was, at), f"{name}({target!r})")
        self._call += 1
        return True, answer

    def record(self, name: str, target: str, answer: Any) -> None:
        """Note what a call was answered."""
        history = 0
        if self.states is not None:
            before = self._log[-1][3] if self._log else 0
            # A number for each history, so that a state holds one however long it is.
            history = self._histories.setdefault(
                (before, name, target, frozen(answer)), len(self._histories) + 1
            )
        self._log.append((name, target, answer, history))
        self._call += 1
        self._known = self._call

    # --- moving on ----------------------------------------------------------------------

    def step(self) -> bool:
        """Let one unit of the flow fire, as the picker says; False where nothing is left to happen."""
        machine = self.machine
        units = machine.ready()
        if self.script is not None:
            units = self.script.allowed(units, machine)
        if not units:
            return False
        self._count()
        if self.states is not None and self.picker.fresh:
            self._prune()
        self.mark()
        if self.faults:
            self.faults.before(self)
        if self.script is not None:
            self.script.fire(self, units)
        else:
            machine.fire(self.pick if self.tracer is None else self.tracer.choosing(self.pick))
        if self.faults:
            self.faults.after(self)
        return True

    def _count(self) -> None:
        self._steps += 1
        if self._steps > self.limit:
            raise EndlessLoop(
                f"the flow still has work to do after {self.limit:,} steps",
                remedy="look for a loop that feeds itself, or allow more with max_steps=",
                steps=self.limit,
            )

    def _prune(self) -> None:
        assert self.states is not None
        history = self._log[-1][3] if self._log else 0
        scripted = self.script.state if self.script is not None else ()
        key = (history, self.machine.key(), self.tainted, self.poisoned, frozen(self.faults.state), scripted)
        if key in self.states:
            raise Pruned
        self.states.add(key)

    def decide(self, ways: int) -> int:
        """Make a choice of the test itself."""
        if ways == 1:
            return 0
        self.mark()
        return self.pick(ways)

    def mark(self) -> None:
        """Make this a place to go on from."""
        if self.resumes and self.script is None and isinstance(self.picker, Walk):
            self._marks.append(
                Mark(
                    self.picker.position,
                    len(self._log),
                    self._doing,
                    self.machine.snapshot(),
                    self._steps,
                    (self.tainted, self.poisoned),
                    self.faults.state,
                )
            )

    @property
    def idle(self) -> bool:
        """Whether nothing can happen before something is sent."""
        units = self.machine.ready()
        return not (self.script.allowed(units, self.machine) if self.script is not None else units)

    def is_ordered(self, sink: str) -> bool:
        """Whether the order of a sink's elements is promised."""
        return self._ordered.get(sink, True)

    def sent(self, source: str, values: tuple[Any, ...], member: int) -> None:
        """Let faults know what may be delivered again."""
        if self.faults:
            self.faults.sent(source, values, member)

    def disturb(self) -> bool:
        """At rest, let a fault happen; says whether one did."""
        return bool(self.faults) and self.faults.at_rest(self)

    def scripted(self, what: str) -> ScriptedOperator:
        """Let the body prescribe decisions; what it prescribes is not part of the states that are kept."""
        if self.script is None:
            self.resumes = False
            self._marks.clear()
            self.script = Script(self.compiled)
        return self.script.handle(what)


_ENDINGS = {
    "passed": Ending("passed"),
    "discarded": Ending("discarded"),
    "pruned": Ending("pruned"),
}


def _other_calls(before: tuple[str, str], now: str) -> SimulationError:
    return SimulationError(
        f"given the same answers, the body called {before[0]}({before[1]!r}) the first time and {now} now",
        remedy="let the body depend on what the simulation answers only: no clock, no random numbers, "
        "nothing kept from one execution to the next",
        code="NotRepeatable",
    )


def _is_failed_test(error: BaseException) -> bool:
    """Whether it is what pytest.fail and pytest.raises raise, which is not an Exception."""
    outcomes = sys.modules.get("_pytest.outcomes")
    return outcomes is not None and isinstance(error, outcomes.fail.Exception)


def _failure(error: BaseException) -> Ending:
    place = where(error)
    return Ending("failed", error, (type(error), place.file, place.line) if place else (type(error),))
