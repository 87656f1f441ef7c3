"""Turns what a machine reports into the events of a trace."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from trueline.flow.compiled import LooseUnit, TickUnit
from trueline.flow.graph import FlowNode, Site
from trueline.flow.hooks import Choose
from trueline.flow.machine import Firing, Machine, Release
from trueline.flow.markers import ABSENT
from trueline.flow.simulator.events import (
    Execution,
    Noted,
    Received,
    Released,
    Sent,
    TraceEvent,
    clipped,
    shown,
)

_HERE = str(Path(__file__).parents[1])


class Tracer:
    """Writes down what happens in one execution."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.events: list[TraceEvent] = []
        self.executions = 0
        self._orders: dict[int, tuple[FlowNode, list[str]]] = {}

    def sent(self, source: str, values: tuple[Any, ...], member: int) -> None:
        """Note what the test sent."""
        self.events.append(Sent(_member(source, member), values, caller()))

    def received(self, sink: str, values: tuple[Any, ...]) -> None:
        """Note what the test was given."""
        self.events.append(Received(sink, values, caller()))

    def noted(self, text: str) -> None:
        """Note something else."""
        self.events.append(Noted(text, caller()))

    def choosing(self, pick: Choose) -> Choose:
        """Note the choices of operators inside a tick on the way: an order, an interleaving."""

        def choose(ways: int, what: Any) -> int:
            way = pick(ways, what)
            if isinstance(what, FlowNode):
                self._orders.setdefault(what.id, (what, []))[1].append(f"{way + 1} of {ways}")
            return way

        return choose

    def fired(self, firing: Firing) -> None:
        """Note an execution."""
        self.executions += 1
        orders = [
            Released(node.label, f"takes next: {', '.join(picked)}", _reason(node), node.site)
            for node, picked in self._orders.values()
        ]
        self._orders.clear()
        self.events.append(
            Execution(
                self.executions,
                firing.unit.name,
                (*[_release(firing, handed) for handed in firing.releases], *orders),
                self._cut(firing),
                tuple(firing.cuts),
                tuple(firing.outputs.items()),
                any(firing.choices),
            )
        )

    def _cut(self, firing: Firing) -> tuple[tuple[str, str], ...]:
        """How much of everything it reads the unit has taken so far."""
        hooks = firing.unit.hooks if isinstance(firing.unit, TickUnit) else []
        state = self.machine.peek()
        return tuple((_name(hook.source), str(hook.position(state))) for hook in hooks)


def _name(node: FlowNode) -> str:
    return node.label if node.name else str(node)


def _reason(node: FlowNode) -> str:
    return node.reason.why if node.reason is not None else ""


def _release(firing: Firing, handed: Release) -> Released:
    node = handed.node
    place, reason = node.site, _reason(node)
    if isinstance(firing.unit, LooseUnit):
        return Released(node.label, _loose(node.kind, handed), reason, place)
    if not reason and firing.unit.group is not None:
        # Where a region begins the choice is made for all reads behind it: theirs are the reasons.
        reads = [_reason(use) for use in firing.unit.group.instances]
        reason = "; ".join(dict.fromkeys(each for each in reads if each))
    return Released(node.label, _note(node.shape, handed), reason, place)


def _loose(kind: str, handed: Release) -> str:
    left = f" ({handed.waiting} still to come)" if handed.waiting else ""
    if kind in ("fold", "reduce"):
        return f"so much has arrived: {shown(handed.values)}{left}"
    return f"next: {shown(handed.values)[1:-1]}{left}"


def _note(shape: str, handed: Release) -> str:
    left = f" ({handed.waiting} held back)" if handed.waiting else ""
    if "stream" in shape:
        if not handed.values:
            return f"releasing no items{left}"
        return f"releasing items: {shown(handed.values)}{left}"
    value = handed.values
    if isinstance(value, tuple) and len(value) == 1 and handed.new:
        (value,) = value
    text = "absent" if value is ABSENT else clipped(repr(value), 60)
    older = f" ({handed.waiting} newer held back)" if handed.waiting else ""
    return f"releasing {'' if handed.new else 'unchanged '}snapshot: {text}{older}"


def _member(name: str, member: int) -> str:
    return f"{name}[{member}]" if member else name


def caller() -> Site | None:
    """The nearest line of the test."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 (the documented way to a caller's line without a traceback)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


def where(error: BaseException) -> Site | None:
    """The line of the test (or of a function of the flow) that an error comes from."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(_HERE):
            found = Site(frame.f_code.co_filename, line)
    return found
