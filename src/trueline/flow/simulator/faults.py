"""What may go wrong besides timing: elements delivered again, crashes and their replay, views that drift.

Each is a choice like any other, bounded by a limit, with 0 for "not now".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trueline.errors import InputError, SimulationError
from trueline.flow.graph import Graph
from trueline.flow.simulator.execution import Running


@dataclass(frozen=True, slots=True)
class Redelivery:
    """An element that was sent arrives once more, at any later moment."""

    sources: tuple[str, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Crash:
    """An execution dies after some of its output is out, and is run again on the same cut."""

    limit: int


@dataclass(frozen=True, slots=True)
class Drift:
    """Reads of an align point are made as if it were not there: each at its own pace."""

    points: tuple[str, ...]


Fault = Redelivery | Crash | Drift


def redelivery(*sources: str, limit: int = 1) -> Redelivery:
    """Deliver up to `limit` elements again, of all sources or of some.

    >>> redelivery("increments")
    Redelivery(sources=('increments',), limit=1)
    """
    return Redelivery(sources, _whole(limit))


def crash(limit: int = 1) -> Crash:
    """Let up to `limit` executions crash between two pieces of output, and be replayed with the same cut."""
    return Crash(_whole(limit))


def drift(*points: str) -> Drift:
    """Do not honour align points, all or some: shows what they are there for."""
    return Drift(points)


def _whole(limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError(f"limit={limit!r} is not a number of faults", remedy="give an integer of at least 1")
    return limit


class Faults:
    """The faults of one search, and how many of them are left in this execution."""

    def __init__(self, faults: Iterable[Fault], graph: Graph) -> None:
        self.faults = tuple(faults)
        for fault in self.faults:
            if not isinstance(fault, Fault):
                raise InputError(
                    f"{fault!r} is not a fault",
                    remedy="give redelivery(…), crash(…) or drift(…) of trueline.flow.simulator",
                )
        self._redeliver = next((f for f in self.faults if isinstance(f, Redelivery)), None)
        self._crash = next((f for f in self.faults if isinstance(f, Crash)), None)
        self._known(graph)
        self._counts: dict[tuple[str, int], int] = {}
        self._sent: tuple[tuple[str, Any, int], ...] = ()
        self.reset()

    def __bool__(self) -> bool:
        return self._redeliver is not None or self._crash is not None

    def _known(self, graph: Graph) -> None:
        sources = {node.name for node in graph.named("source")}
        points = {point.name for point in graph.points}
        for fault in self.faults:
            names: tuple[str, ...] = ()
            known: set[str] = set()
            if isinstance(fault, Redelivery):
                names, known = fault.sources, sources
            elif isinstance(fault, Drift):
                names, known = fault.points, points
            for name in names:
                if name not in known:
                    raise SimulationError(
                        f"{fault!r} names {name!r}, which flow {graph.name!r} does not have",
                        remedy=f"give one of: {', '.join(sorted(known)) or 'none'}",
                        code="UnknownName",
                    )

    def drifting(self, graph: Graph) -> frozenset[int]:
        """The points that are not honoured, by number."""
        names = [f.points for f in self.faults if isinstance(f, Drift)]
        return frozenset(p.id for p in graph.points for chosen in names if not chosen or p.name in chosen)

    # --- in an execution ----------------------------------------------------------------

    @property
    def state(self) -> tuple[Any, ...]:
        """What is left of them."""
        return (self._redeliveries, self._crashes, self._sent)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back."""
        self._redeliveries, self._crashes, self._sent = state

    def reset(self) -> None:
        """Start again."""
        self._redeliveries = self._redeliver.limit if self._redeliver else 0
        self._crashes = self._crash.limit if self._crash else 0
        self._sent = ()

    def sent(self, source: str, values: tuple[Any, ...], member: int) -> None:
        """Remember what may come again."""
        if self._redeliver is not None and (not self._redeliver.sources or source in self._redeliver.sources):
            self._sent += tuple((source, value, member) for value in values)

    def before(self, runner: Running) -> None:
        """Before an execution an element may arrive again."""
        self._arrives_again(runner)
        if self._crashes:
            machine = runner.machine
            self._counts = {at: len(machine.outputs(*at)) for at in runner.compiled.sinks}

    def at_rest(self, runner: Running) -> bool:
        """When nothing is left to happen an element may arrive again; says whether one did."""
        return (
            bool(self._redeliveries and self._sent)
            and runner.decide(2) == 1
            and self._arrives_again(runner, 0)
        )

    def _arrives_again(self, runner: Running, held: int = 1) -> bool:
        if not self._redeliveries or not self._sent:
            return False
        ways = len(self._sent) + held
        chosen = runner.pick(ways) if ways > 1 else 0
        if chosen < held:
            return False
        source, value, member = self._sent[chosen - held]
        self._redeliveries -= 1
        if runner.tracer is not None:
            runner.tracer.noted(f"{source!r} delivers {value!r} again")
        runner.machine.send(source, value, member=member)
        return True

    def after(self, runner: Running) -> None:
        """After an execution it may turn out that it crashed: what was out by then comes out twice."""
        if not self._crashes:
            return
        machine = runner.machine
        new = {at: machine.outputs(*at)[count:] for at, count in self._counts.items()}
        total = sum(map(len, new.values()))
        if not total or not (out := runner.pick(total + 1)):
            return
        self._crashes -= 1
        if runner.tracer is not None:
            runner.tracer.noted(
                f"a crash after {out} of {total} outputs: the execution is run again on its cut"
            )
        for at, values in new.items():
            twice = values[:out]
            out -= len(twice)
            if twice:
                before = machine.outputs(*at)[: self._counts[at]]
                machine.put_out(at[0], (*before, *twice, *values), at[1])
