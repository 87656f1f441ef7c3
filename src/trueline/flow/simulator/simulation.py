"""What a test body is given: it sends, reads, and says what it takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trueline.errors import SimulationError
from trueline.flow.simulator.execution import Discarded, Driven, ExecutionEnded
from trueline.flow.simulator.script import ScriptedOperator
from trueline.flow.values import copied, is_fixed

_NOTHING: Any = object()


class Scriptable(Driven, Protocol):
    """An execution whose decisions a test may also prescribe."""

    def scripted(self, what: str) -> ScriptedOperator:
        """Take over the decisions of one operator."""


class Simulation:
    """One execution of a flow, driven by a test body.

    Waiting for an element is always sound. Seeing that none comes is not: whatever was still on its way had
    to be let through first. So a check of absence splits the execution in two (`fork`), one that checks and
    ends and one that goes on without; and an answer that rests on absence (`try_next`, `collect` of all)
    taints it: sending after that and reading again is refused, unless `quiesce` says that a phase is over.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("echo")
    >>> p = flow.process("p")
    >>> p.sink("out", p.source("in").batch(p.tick(), nondet("any piece")).all_ticks())
    >>> def test(sim):
    ...     sim.send("in", "a", "b", "c")
    ...     assert sim.next("out") == "a"
    ...     assert sim.try_next("out", default=None) == "b"
    ...     assert sim.collect("out", 1) == ["c"]
    ...     sim.quiesce()
    ...     assert sim.settle()
    ...     sim.assume(True)
    ...     sim.fork(lambda: sim.assert_no_more("out"))
    ...     sim.send("in", "d")
    ...     sim.at("any piece").release("d")
    ...     sim.assert_yields("out", "d")
    >>> flow.simulate(test).exhaustive
    True
    """

    __slots__ = ("_runner",)

    def __init__(self, runner: Scriptable) -> None:
        self._runner = runner

    # --- in -----------------------------------------------------------------------------

    def send(self, source: str, *values: Any, member: int = 0) -> None:
        """Let values arrive at a source, in this order."""
        runner = self._runner
        known, _ = runner.recall("send", source)
        if known:
            return
        if runner.tainted:
            runner.poisoned = True
        if runner.tracer is not None:
            runner.tracer.sent(source, values, member)
        runner.machine.send(source, *map(_own, values), member=member)
        runner.sent(source, values, member)
        runner.record("send", source, values)

    # --- out ----------------------------------------------------------------------------

    def next(self, sink: str, member: int = 0) -> Any:
        """Wait for the next element of a sink; where order is not promised, any that is there may be it."""
        runner = self._runner
        known, answer = runner.recall("next", sink)
        if known:
            return _own(answer)
        self._receiving("next", sink)
        machine = runner.machine
        while not (there := machine.outputs(sink, member)):
            if not runner.step():
                raise AssertionError(f"nothing more comes out of {sink!r}: the flow has come to rest")
        at = 0 if runner.is_ordered(sink) else runner.decide(len(there))
        answer = machine.take_one(sink, at, member)
        return _own(self._answered("next", sink, answer, (answer,)))

    def try_next(self, sink: str, default: Any = None, member: int = 0) -> Any:
        """Give the next element, or `default` where the flow comes to rest without one."""
        runner = self._runner
        known, answer = runner.recall("try_next", sink)
        if not known:
            self._receiving("try_next", sink)
            free = runner.idle
            while not (there := runner.machine.outputs(sink, member)) and runner.step():
                free = False
            if there:
                answer = runner.machine.take_one(sink, 0, member)
            else:
                answer = _NOTHING
                runner.tainted = runner.tainted or not free
            self._answered("try_next", sink, answer, (answer,) if there else ())
        return default if answer is _NOTHING else _own(answer)

    def collect(self, sink: str, n: int | None = None, member: int = 0) -> list[Any]:
        """Wait for `n` elements of a sink, or take all there are once the flow has come to rest.

        Where order is not promised, "the first n" means nothing: there must be exactly n; they come sorted.
        """
        runner = self._runner
        known, answer = runner.recall("collect", sink)
        if known:
            return [_own(each) for each in answer]
        self._receiving("collect", sink)
        machine, ordered = runner.machine, runner.is_ordered(sink)
        if n is None or not ordered:
            free = runner.idle
            while runner.step():
                free = False
            runner.tainted = runner.tainted or not free
        else:
            while len(machine.outputs(sink, member)) < n and runner.step():
                pass
        there = machine.outputs(sink, member)
        if n is not None and (len(there) < n or (len(there) > n and not ordered)):
            raise AssertionError(f"{sink!r} gives {len(there)} elements, not {n}: {list(there)!r}")
        taken = machine.take(sink, member) if n is None or not ordered else _first(machine, sink, n, member)
        taken = taken if ordered else tuple(sorted(taken, key=_by_value))
        self._answered("collect", sink, taken, taken)
        return [_own(each) for each in taken]

    def quiesce(self) -> None:
        """Let everything happen that still can: a phase of the test is over, and this says so."""
        runner = self._runner
        known, _ = runner.recall("quiesce", "")
        if known:
            return
        runner.reads += 1
        while runner.step() or runner.disturb():
            pass
        runner.tainted = runner.poisoned = False
        if runner.tracer is not None:
            runner.tracer.noted("the test waits until nothing more can happen")
        runner.record("quiesce", "", None)

    def settle(self) -> bool:
        """Do what needs no choice, and say whether that is all there is: then absence costs nothing."""
        runner = self._runner
        known, answer = runner.recall("settle", "")
        if not known:
            answer = runner.idle
            runner.record("settle", "", answer)
        return bool(answer)

    # --- checks -------------------------------------------------------------------------

    def fork(self, check: Callable[[], object]) -> None:
        """Check something that forces the flow along: in an execution of its own, which ends with it.

        The other goes on as if nothing had been asked. Where the flow is at rest, one execution does both.
        """
        runner = self._runner
        if self.settle():
            check()
            return
        known, goes_on = runner.recall("fork", "")
        if not known:
            goes_on = runner.decide(2) == 1
            if runner.tracer is not None:
                runner.tracer.noted(
                    "the test goes on without the check" if goes_on else "the test checks, and ends"
                )
            runner.record("fork", "", goes_on)
        if not goes_on:
            check()
            raise ExecutionEnded

    def assert_no_more(self, sink: str, member: int = 0) -> None:
        """Nothing more comes out of a sink, whatever happens to what is under way."""

        def check() -> None:
            found = self.collect(sink, member=member)
            assert not found, f"{sink!r} gives {found!r}, where nothing more was expected"

        self.fork(check)

    def assert_yields(self, sink: str, *expected: Any, member: int = 0) -> None:
        """The next elements of a sink are these (as a set with repeats, where order is not promised)."""
        found = self.collect(sink, len(expected), member=member)
        wanted = list(expected) if self._runner.is_ordered(sink) else sorted(expected, key=_by_value)
        assert found == wanted, f"{sink!r} gives {found!r}, not {wanted!r}"

    def assume(self, condition: object) -> None:
        """Go on only where this holds; other executions are set aside, and counted."""
        if not condition:
            raise Discarded

    # --- scripts ------------------------------------------------------------------------

    def at(self, what: str) -> ScriptedOperator:
        """Take over the decisions of one operator, named by words of its reason, kind or source line."""
        return self._runner.scripted(what)

    # --- inside -------------------------------------------------------------------------

    def _receiving(self, call: str, sink: str) -> None:
        runner = self._runner
        runner.reads += 1
        if runner.poisoned:
            raise SimulationError(
                f"{call}({sink!r}) comes after the test saw that something was absent and then sent more: "
                "seeing it forced the flow along, so schedules are missing from here on",
                remedy="check absence with sim.assert_no_more(…) or sim.fork(…), which explore both, or say "
                "with sim.quiesce() that a phase is over",
                code="Poisoned",
            )

    def _answered(self, call: str, sink: str, answer: Any, values: tuple[Any, ...]) -> Any:
        runner = self._runner
        if runner.tracer is not None:
            runner.tracer.received(sink, values)
        runner.record(call, sink, answer)
        return answer


def _own(value: Any) -> Any:
    """A value as it crosses between test and flow: a copy, where one could change it under the other."""
    return value if is_fixed(value) else copied(value)


def _first(machine: Any, sink: str, n: int, member: int) -> tuple[Any, ...]:
    return tuple([machine.take_one(sink, 0, member) for _ in range(n)])


def _by_value(value: Any) -> tuple[str, Any]:
    """Sort values of one type by themselves where that is possible, by their text otherwise."""
    if isinstance(value, int | float):
        return ("", _Number(value))
    return (type(value).__name__, repr(value))


class _Number(float):
    """Numbers before everything else, in their own order."""
