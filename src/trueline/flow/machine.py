"""What a flow may do next, and what happens then: one firing rule for interpreter and simulator (A38).

A machine holds a flow's state. Deterministic work is done as data arrives; what is left are *units*, each a
place where timing decides: a tick (with all it was merged with), or a choice of order outside ticks. A unit
is ready when every value it reads exists and at least one of its hooks has something new. Firing it makes
the choices, one number each with 0 for the eager one, runs the whole tick, and then hands its output on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trueline.errors import EndlessLoop, InputError, TruelineError
from trueline.flow.claims import order_makes_no_difference
from trueline.flow.compiled import CompiledFlow, LooseUnit, TickUnit, Unit
from trueline.flow.graph import FlowNode
from trueline.flow.hooks import Choose, Hook, ValueHook, take_parts
from trueline.flow.markers import NOTHING
from trueline.flow.operators import Operator, check_keyed, first_value, step
from trueline.flow.values import frozen
from trueline.flow.wiring import Wiring, eager, failed

ROUNDS: Final = 10_000
"""How often data may be fed back through a forward reference before a flow is called endless."""

State = tuple[Any, ...]


@dataclass(frozen=True)
class Release:
    """What one hook handed over in a firing."""

    node: FlowNode
    member: int
    values: Any
    new: bool
    waiting: int
    """How much of what has arrived it kept back."""


@dataclass(frozen=True)
class Firing:
    """One firing, for traces: which unit, what was handed over, the cuts, and what came out."""

    number: int
    unit: Unit
    releases: tuple[Release, ...]
    cuts: dict[str, dict[str, Any]]
    """Align point → node where a region begins → how much of it all its reads have seen."""
    outputs: dict[str, tuple[Any, ...]]
    choices: tuple[int, ...]


class Machine:
    """The state of a flow and its transitions.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("pieces")
    >>> p = flow.process("p")
    >>> p.sink("out", p.source("in").batch(p.tick(), nondet("shown")).count().all_ticks())
    >>> machine = Machine(flow.compile())
    >>> machine.send("in", "a", "b")
    >>> machine.choices()
    [(0,), (1,)]
    >>> machine.fire((1,))
    >>> machine.fire()
    >>> machine.outputs("out"), machine.choices()
    ((1, 1), [])

    >>> machine.idle, machine.ready(), machine.take_one("out"), machine.take("out")
    (True, [], 1, (1,))
    >>> state = machine.snapshot()
    >>> machine.send("in", "c")
    >>> changed = machine.key()
    >>> machine.restore(state)
    >>> machine.key() == changed
    False
    >>> machine.put_out("out", (7,))
    >>> machine.outputs("out"), machine.cuts(), len(list(machine.kept())) > 0, len(machine.peek()) > 0
    ((7,), {}, True, True)
    >>> machine.reset()
    """

    def __init__(
        self,
        compiled: CompiledFlow,
        *,
        intermediates: bool = True,
        check: bool = False,
        in_place: bool = False,
    ) -> None:
        self.compiled = compiled
        self.intermediates = intermediates
        """Whether every version is shown and orders are made one by one, so that all can be explored."""
        self.check = check
        """Whether claims about functions are tested as they run."""
        self.in_place = in_place
        """Whether operators change their state where it is: no copying, and no going back."""
        self.observer: Callable[[Firing], None] | None = None
        self._wiring = wiring = Wiring(compiled, intermediates=intermediates, check=check, in_place=in_place)
        self._plans, self._template, self._fed = wiring.plans, wiring.template, wiring.fed
        self._slots = wiring.slots
        self._wires = list(self._template)
        self._units = sorted(compiled.units, key=lambda unit: isinstance(unit, TickUnit))
        self._fires = 0
        self._begin()
        self._initial = tuple(self._slots)

    # --- what callers do ----------------------------------------------------------------

    def send(self, source: str, *values: Any, member: int = 0) -> None:
        """Let values arrive at a source; all that follows without a choice happens at once."""
        wire = self.compiled.sources.get((source, member))
        if wire is None:
            self._refuse_source(source, member)
            return
        if values:
            self._wires[wire] = values
            self._pass(self._plans[wire])

    def ready(self) -> list[Unit]:
        """The units that may fire, in a fixed order: loose choices first, then ticks as written."""
        s = self._slots
        found: list[Unit] = []
        for unit in self._units:
            if isinstance(unit, LooseUnit):
                waiting = s[unit.slot]
                if waiting and (unit.node.kind != "merge_ordered" or waiting[0] or waiting[1]):
                    found.append(unit)
                continue
            new = False
            for hook in unit.hooks:
                if hook.active(s):
                    new = True
                elif not hook.ready(s):
                    new = False
                    break
            if new:
                found.append(unit)
        return found

    def fire(self, choices: Choose | Sequence[int] = ()) -> None:
        """Fire one ready unit; `choices` are asked for, or taken from a list that ends in eager ones."""
        units = self.ready()
        if not units:
            raise InputError("nothing is ready to fire", remedy="send something first, or ask ready()")
        made: list[int] = []
        choose = choices if callable(choices) else _listed(choices)
        if self.observer is not None:
            choose = _noted(choose, made)
        self._wiring.choose = choose
        unit = units[choose(len(units), units)] if len(units) > 1 else units[0]
        before = tuple(self._slots)
        try:
            releases = self._fire_tick(unit) if isinstance(unit, TickUnit) else self._fire_loose(unit)
        except BaseException:
            self.restore(before)
            raise
        finally:
            self._wiring.choose = eager
        self._fires += 1
        if self.observer is not None:
            self.observer(self._firing(unit, releases, before, made))

    def choices(self) -> list[tuple[int, ...]]:
        """Every way the next firing can go, the eager one first; each is a list for `fire`."""
        found: list[tuple[int, ...]] = []
        if not self.ready():
            return found
        before, observer, self.observer = self.snapshot(), self.observer, None
        prefix: list[int] = []
        while True:
            asked: list[tuple[int, int]] = []
            self.fire(_exploring(prefix, asked))
            self.restore(before)
            found.append(tuple(choice for choice, _ in asked))
            while asked and asked[-1][0] == asked[-1][1] - 1:
                asked.pop()
            if not asked:
                self.observer = observer
                return found
            prefix = [choice for choice, _ in asked[:-1]] + [asked[-1][0] + 1]

    def snapshot(self) -> State:
        """The whole state; `restore` brings it back."""
        return tuple(self._slots)

    def restore(self, state: State) -> None:
        """Go back to a state."""
        self._slots[:] = state
        self._wires[:] = self._template
        self._fed.clear()

    def reset(self) -> None:
        """Go back to the beginning."""
        self.restore(self._initial)
        self._fires = 0

    def key(self) -> Any:
        """The state as a hashable value: equal where nothing distinguishes two states."""
        return frozen(tuple(self._slots))

    def outputs(self, sink: str, member: int = 0) -> tuple[Any, ...]:
        """What has come out of a sink and was not taken."""
        return tuple(self._slots[self._sink(sink, member)])

    def take(self, sink: str, member: int = 0) -> tuple[Any, ...]:
        """What has come out of a sink; it is forgotten here."""
        slot = self._sink(sink, member)
        values: tuple[Any, ...] = self._slots[slot]
        self._slots[slot] = ()
        return values

    def take_one(self, sink: str, at: int = 0, member: int = 0) -> Any:
        """One of the elements that have come out of a sink; the others stay."""
        slot = self._sink(sink, member)
        values: tuple[Any, ...] = self._slots[slot]
        self._slots[slot] = values[:at] + values[at + 1 :]
        return values[at]

    def put_out(self, sink: str, values: tuple[Any, ...], member: int = 0) -> None:
        """Say what has come out of a sink: faults deliver an output again."""
        self._slots[self._sink(sink, member)] = values

    def peek(self) -> list[Any]:
        """The slots as they are, for hooks; not to be changed."""
        return self._slots

    @property
    def idle(self) -> bool:
        """Whether nothing can happen before something is sent."""
        return not self.ready()

    def cuts(self) -> dict[str, dict[str, Any]]:
        """Align point → node where its region begins → how much of it the reads have seen."""
        found: dict[str, dict[str, Any]] = {}
        for unit in self._units:
            if isinstance(unit, TickUnit) and unit.group is not None:
                cut = {_place(hook): hook.position(self._slots) for hook in unit.hooks if hook.entry}
                for alignment in unit.group.alignments:
                    found.setdefault(alignment.point.name, {}).update(cut)
        return found

    def kept(self) -> Iterator[tuple[FlowNode, Any]]:
        """What every operator and hook holds now."""
        for op in self.compiled.ops.values():
            if op.slot >= 0:
                yield op.node, self._slots[op.slot]
        for hook in self.compiled.hooks:
            yield hook.node, self._slots[hook.slot]
        for unit in self._units:
            if isinstance(unit, LooseUnit):
                yield unit.node, self._slots[unit.state]

    def _begin(self) -> None:
        """Let first versions and constant streams arrive."""
        for (zone, i, _), wire in self.compiled.wires.items():
            node = self.compiled.graph.nodes[i]
            if zone != "async":
                continue
            if node.constant and "stream" in node.shape:
                self._wires[wire] = self._wiring.initial_value(node)
                self._pass(self._plans[wire])
            for hook in self.compiled.hook_on.get(wire, ()):
                if isinstance(hook, ValueHook) and (value := self._wiring.initial_value(node)) is not NOTHING:
                    hook.put(self._slots, (value,))

    # --- running ------------------------------------------------------------------------

    def _run(self, runs: list[Operator]) -> None:
        w, s = self._wires, self._slots
        run: Operator | None = None
        try:
            for run in runs:
                run(w, s)
        except TruelineError:
            raise
        except Exception as error:
            op = self._wiring.op_of.get(id(run))
            if op is None:
                raise
            raise failed(op.node, error, [w[i] for i in op.ins]) from error

    def _pass(self, runs: list[Operator]) -> None:
        """Deterministic work, until it rests."""
        try:
            self._run(runs)
        finally:
            self._wires[:] = self._template
        rounds = 0
        while self._fed:
            wire, values = self._fed.pop(0)
            rounds += 1
            if rounds > ROUNDS:
                self._fed.clear()
                self._refuse_endless(wire)
            self._wires[wire] = values
            try:
                self._run(self._plans[wire])
            finally:
                self._wires[:] = self._template

    def _fire_tick(self, unit: TickUnit) -> list[Release]:
        s, w = self._slots, self._wires
        runs, ends, after = self._wiring.unit_runs[id(unit)]
        last = None
        for hook in unit.hooks:
            if hook.active(s):
                last = hook
        moved = False
        releases: list[Release] = []
        for hook in unit.hooks:
            new = hook.active(s)
            if new:
                new = hook.take(s, w, self._wiring.choose, hook is last and not moved)
                moved = moved or new
            else:
                hook.hold(s, w)
            if self.observer is not None:
                releases.append(Release(hook.node, hook.member, w[hook.out], new, len(hook.waiting(s))))
        self._run(runs)
        for end in ends:
            end(w, s)
        self._pass(after)
        return releases

    def _fire_loose(self, unit: LooseUnit) -> list[Release]:
        s, kind = self._slots, unit.node.kind
        waiting = s[unit.slot]
        if kind == "merge_ordered":
            side = self._wiring.choose(2, unit) if waiting[0] and waiting[1] else int(not waiting[0])
            new = waiting[side][: 1 if self.intermediates else None]
            rest = waiting[side][len(new) :]
            waiting = (rest, waiting[1]) if side == 0 else (waiting[0], rest)
            left = len(waiting[0]) + len(waiting[1])
        elif kind == "assume_ordering":
            at = self._wiring.choose(len(waiting), unit) if len(waiting) > 1 else 0
            new = (waiting[at],) if self.intermediates else waiting[at:] + waiting[:at]
            waiting = waiting[:at] + waiting[at + 1 :] if self.intermediates else ()
            left = len(waiting)
        else:
            picked = take_parts([1] * len(waiting), self._wiring.choose, unit, True)
            taken = tuple([x for x, yes in zip(waiting, picked, strict=True) if yes])
            waiting = tuple([x for x, yes in zip(waiting, picked, strict=True) if not yes])
            left = len(waiting)
            new = self._arrived(unit, taken)
        s[unit.slot] = waiting
        self._wires[unit.out] = new
        self._pass(self._plans[unit.out])
        return [Release(unit.node, unit.member, new, True, left)]

    def _arrived(self, unit: LooseUnit, taken: tuple[Any, ...]) -> tuple[Any, ...]:
        """Fold what has arrived, in the order of arrival: the order is claimed to make no difference."""
        node, s = unit.node, self._slots
        into = step(node, self._wiring.function(node))
        keyed = node.shape == "keyed singleton"
        try:
            if not keyed:
                if self.check:
                    order_makes_no_difference(node, into, s[unit.state], taken, lambda: first_value(node))
                for x in taken:
                    s[unit.state] = into(s[unit.state], x)
                return (s[unit.state],)
            if self.check:
                check_keyed(node, into, s[unit.state], taken)
            values = self._wiring.own(s[unit.state])
            for key, x in taken:
                values[key] = into(values[key] if key in values else first_value(node), x)
        except TruelineError:
            raise
        except Exception as error:
            raise failed(node, error, [taken]) from error
        s[unit.state] = values
        return tuple([(key, values[key]) for key in dict.fromkeys([key for key, _ in taken])])

    def _firing(self, unit: Unit, releases: list[Release], before: State, made: list[int]) -> Firing:
        outputs = {}
        for (name, member), slot in self.compiled.sinks.items():
            new = self._slots[slot][len(before[slot]) :]
            if new:
                outputs[name if member == 0 else f"{name}[{member}]"] = new
        cuts: dict[str, dict[str, Any]] = {}
        if isinstance(unit, TickUnit) and unit.group is not None:
            cut = {_place(hook): hook.position(self._slots) for hook in unit.hooks if hook.entry}
            cuts = {a.point.name: cut for a in unit.group.alignments}
        return Firing(self._fires, unit, tuple(releases), cuts, outputs, tuple(made))

    # --- refusals -----------------------------------------------------------------------

    def _sink(self, sink: str, member: int) -> int:
        slot = self.compiled.sinks.get((sink, member))
        if slot is None:
            known = ", ".join(sorted({name for name, _ in self.compiled.sinks})) or "none"
            raise InputError(
                f"no sink {sink!r} (member {member})", remedy=f"give one of the flow's sinks: {known}"
            )
        return slot

    def _refuse_source(self, source: str, member: int) -> None:
        """Refuse a source that is not there; one that nothing reads takes what it is sent."""
        nodes = list(self.compiled.graph.named("source"))
        for node in nodes:
            if node.name == source and 0 <= member < node.location.size:
                return
        known = ", ".join(node.name for node in nodes) or "none"
        raise InputError(
            f"no source {source!r} (member {member})", remedy=f"give one of the flow's sources: {known}"
        )

    def _refuse_endless(self, wire: int) -> None:
        i = next(i for (zone, i, _), each in self.compiled.wires.items() if each == wire and zone == "async")
        node = self.compiled.graph.nodes[i]
        raise EndlessLoop(
            f"elements are fed back through {node} without end: {ROUNDS} times so far",
            remedy="feed back fewer: filter what is done, or drop repeats with .unique()",
            node=node,
        )


# --- small parts ----------------------------------------------------------------------


def _listed(choices: Sequence[int]) -> Choose:
    left = iter(choices)

    def choose(ways: int, _: Any) -> int:
        choice = next(left, 0)
        if not 0 <= choice < ways:
            raise InputError(
                f"choice {choice} where there are {ways} ways to go on",
                remedy="replay it on the flow and the inputs that the choices were made with",
            )
        return choice

    return choose


def _noted(choose: Choose, made: list[int]) -> Choose:
    def noting(ways: int, what: Any) -> int:
        made.append(choose(ways, what))
        return made[-1]

    return noting


def _exploring(prefix: list[int], asked: list[tuple[int, int]]) -> Choose:
    def choose(ways: int, _: Any) -> int:
        choice = prefix[len(asked)] if len(asked) < len(prefix) else 0
        asked.append((choice, ways))
        return choice

    return choose


def _place(hook: Hook) -> str:
    return f"{hook.source}"
