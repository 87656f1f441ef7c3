"""Decisions that a test prescribes, for some operators or for all; the rest is explored.

Decisions on different operators of one tick make one execution; the next on the same operator begins another.
A decision names values, so it checks itself. An operator that is scripted never goes on by itself: one that
holds something without a decision is an error, unless it is paused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from trueline.errors import SimulationError
from trueline.flow.compiled import CompiledFlow, TickUnit, Unit
from trueline.flow.graph import Site
from trueline.flow.hooks import Hook, KeyedHook, KeyedValueHook, PrefixHook, SubsetHook, ValueHook
from trueline.flow.machine import Machine
from trueline.flow.simulator.execution import Discarded, Running
from trueline.flow.simulator.tracer import caller


@dataclass(frozen=True)
class Decision:
    """What one operator is to let through in one execution."""

    kind: Literal["release", "reveal", "hold"]
    values: tuple[Any, ...]
    place: Site | None

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.values))}) at {self.place}"


@dataclass
class Plan:
    """What is prescribed for one tick: one entry for each execution."""

    executions: list[dict[int, Decision]] = field(default_factory=list)


class ScriptedOperator:
    """One operator whose decisions the test makes."""

    def __init__(self, script: Script, hook: Hook) -> None:
        self._script = script
        self._hook = hook

    def release(self, *values: Any) -> ScriptedOperator:
        """Let these elements through in the next execution."""
        return self._decide("release", values)

    def reveal(self, value: Any) -> ScriptedOperator:
        """Show this version in the next execution."""
        return self._decide("reveal", (value,))

    def hold(self) -> ScriptedOperator:
        """Let nothing new through in the next execution."""
        return self._decide("hold", ())

    def pause(self) -> ScriptedOperator:
        """Let nothing new through until `resume`."""
        self._script.paused.add(self._hook.slot)
        return self

    def resume(self) -> ScriptedOperator:
        """Go on after `pause`."""
        self._script.paused.discard(self._hook.slot)
        return self

    def _decide(
        self, kind: Literal["release", "reveal", "hold"], values: tuple[Any, ...]
    ) -> ScriptedOperator:
        self._script.add(self._hook, Decision(kind, values, caller()))
        return self


class Script:
    """All that a test prescribes in one execution."""

    def __init__(self, compiled: CompiledFlow) -> None:
        self._compiled = compiled
        self._plans: dict[int, Plan] = {}
        self._unit_of: dict[int, TickUnit] = {}
        self._hooks: dict[int, Hook] = {}
        self.paused: set[int] = set()
        for unit in compiled.units:
            if isinstance(unit, TickUnit):
                self._unit_of |= {hook.slot: unit for hook in unit.hooks}

    @property
    def state(self) -> tuple[Any, ...]:
        """What is still to be done, so that states can be compared."""
        left = tuple((key, len(plan.executions)) for key, plan in sorted(self._plans.items()))
        return (left, tuple(sorted(self.paused)))

    def handle(self, what: str) -> ScriptedOperator:
        """Find the one operator that words name."""
        found = [hook for hook in self._compiled.hooks if what in _words(hook)]
        exact = [hook for hook in found if hook.node.reason is not None and hook.node.reason.why == what]
        found = exact or found
        if len(found) != 1:
            known = (
                "; ".join(f"{hook.node} ({_reason(hook)})" for hook in found or self._compiled.hooks)
                or "none"
            )
            raise SimulationError(
                f"{what!r} matches {len(found)} of the operators at which this flow chooses, not one",
                remedy="use words of its nondet reason or its source line; "
                f"{'these' if found else 'there'} are: {known}",
                code="UnknownName",
            )
        self._hooks[found[0].slot] = found[0]
        return ScriptedOperator(self, found[0])

    def add(self, hook: Hook, decision: Decision) -> None:
        """Prescribe one more decision."""
        plan = self._plans.setdefault(id(self._unit_of[hook.slot]), Plan())
        if not plan.executions or hook.slot in plan.executions[-1]:
            plan.executions.append({})
        plan.executions[-1][hook.slot] = decision

    # --- when the flow moves on ---------------------------------------------------------

    def allowed(self, units: list[Unit], machine: Machine) -> list[Unit]:
        """The units that may fire: those whose scripted operators have a decision that can be kept now."""
        return [unit for unit in units if not isinstance(unit, TickUnit) or self._may(unit, machine)]

    def _may(self, unit: TickUnit, machine: Machine) -> bool:
        state = machine.peek()
        scripted = [hook for hook in unit.hooks if hook.slot in self._hooks]
        plan = self._plans.get(id(unit))
        if plan is not None and plan.executions:
            now = plan.executions[0]
            return all(
                _number(hook, now[hook.slot], state) is not None for hook in scripted if hook.slot in now
            )
        for hook in scripted:
            if hook.active(state) and hook.slot not in self.paused:
                raise SimulationError(
                    f"{hook.node} holds {list(hook.waiting(state))!r}, and the script has no decision for it",
                    remedy="prescribe a decision, or .pause() it",
                    code="NoDecision",
                    node=hook.node,
                )
        return any(hook.active(state) and hook.slot not in self.paused for hook in unit.hooks)

    def fire(self, runner: Running, units: list[Unit]) -> None:
        """Let one of the units fire as prescribed."""
        machine = runner.machine
        unit = units[runner.pick(len(units)) if len(units) > 1 else 0]
        plan = self._plans.get(id(unit))
        now = plan.executions.pop(0) if plan is not None and plan.executions else {}

        def choose(ways: int, what: Any) -> int:
            if isinstance(what, list):
                return next(at for at, each in enumerate(what) if each is unit)
            if isinstance(what, Hook) and what.slot in self._hooks:
                return self._prescribed(what, now.get(what.slot), ways, machine)
            return runner.pick(ways)

        machine.fire(choose)

    def _prescribed(self, hook: Hook, decision: Decision | None, ways: int, machine: Machine) -> int:
        state = machine.peek()
        wanted = decision or Decision("hold", (), None)
        number = _number(hook, wanted, state)
        if decision is None and number is not None and number >= ways:
            # What was explored held everything back, and so does this operator: no such execution.
            raise Discarded
        if number is None or number >= ways:
            raise self._cannot(hook, wanted, state)
        return number

    def finish(self) -> None:
        """At the end of the test everything that was prescribed must have happened."""
        for plan in self._plans.values():
            for execution in plan.executions:
                for slot, decision in execution.items():
                    raise self._cannot(self._hooks[slot], decision, None)

    def _cannot(self, hook: Hook, decision: Decision, state: Any) -> SimulationError:
        holds = f"; it holds {list(hook.waiting(state))!r}" if state is not None else ""
        return SimulationError(
            f"{hook.node} cannot do what the script says, {decision}{holds}",
            remedy="prescribe what can happen, in the order in which it can",
            code="CannotBeHonoured",
            node=hook.node,
        )


def _number(hook: Hook, decision: Decision, state: list[Any]) -> int | None:
    """The choice that a decision means, None where it cannot be kept now."""
    waiting = hook.waiting(state)
    if isinstance(hook, PrefixHook):
        size = len(decision.values)
        return (
            len(waiting) - size if decision.kind != "reveal" and waiting[:size] == decision.values else None
        )
    if isinstance(hook, ValueHook):
        if decision.kind == "hold":
            return len(waiting)
        at = _last(waiting, decision.values[0]) if len(decision.values) == 1 else None
        return None if at is None else len(waiting) - 1 - at
    if isinstance(hook, SubsetHook):
        return _subset(waiting, decision.values)
    assert isinstance(hook, KeyedHook | KeyedValueHook)
    return _per_key(waiting, decision, by_version=isinstance(hook, KeyedValueHook))


def _last(waiting: tuple[Any, ...], value: Any) -> int | None:
    found = [at for at, each in enumerate(waiting) if each == value]
    return found[-1] if found else None


def _subset(waiting: tuple[Any, ...], values: tuple[Any, ...]) -> int | None:
    left = list(values)
    code = 0
    for at, item in enumerate(waiting):
        if item in left:
            left.remove(item)
        else:
            code += 1 << at
    return None if left else code


def _per_key(waiting: tuple[Any, ...], decision: Decision, *, by_version: bool) -> int | None:
    """Values are pairs: of every key its next elements, or the version it is to show."""
    items: dict[Any, list[Any]] = {}
    for key, value in waiting:
        items.setdefault(key, []).append(value)
    wanted: dict[Any, list[Any]] = {}
    for key, value in decision.values:
        wanted.setdefault(key, []).append(value)
    if not set(wanted) <= set(items):
        return None
    code, weight = 0, 1
    for key, there in items.items():
        take = wanted.get(key, [])
        count = len(take)
        if by_version and take:
            at = _last(tuple(there), take[-1])
            count = -1 if at is None else at + 1
        elif there[:count] != take:
            count = -1
        if count < 0:
            return None
        code += (len(there) - count) * weight
        weight *= len(there) + 1
    return code


def _words(hook: Hook) -> str:
    return f"{hook.node.label} {hook.node.site} {hook.node.site.text} {_reason(hook)} {hook.source.label}"


def _reason(hook: Hook) -> str:
    return hook.node.reason.why if hook.node.reason is not None else "where a region begins"
