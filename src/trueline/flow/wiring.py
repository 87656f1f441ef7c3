"""A laid-out flow made ready to run: functions over wires and slots, and which of them follow which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from trueline.errors import ElementFailed, TruelineError
from trueline.flow.claims import leaves_input_alone
from trueline.flow.compiled import CompiledFlow, LooseUnit, PlacedOperator, TickUnit, is_loose
from trueline.flow.graph import FlowNode
from trueline.flow.hooks import Choose, Hook
from trueline.flow.markers import ABSENT, NOTHING
from trueline.flow.operators import INCREMENTAL, Operator, first_value, pair_up
from trueline.flow.tick_operators import WHOLE, assume_ordering, merge_ordered


def eager(_: int, __: Any) -> int:
    """The choice that holds nothing back."""
    return 0


_FOLDS: Final = frozenset({"fold", "count", "reduce", "first", "last"})


class Plans(dict[int, list[Operator]]):
    """Wire → what runs when something is new there; made when it is first asked for.

    Few wires are ever written from outside, and the plans of all wires of a chain grow with its square.
    """

    def __init__(self, make: Callable[[Iterable[int]], list[Operator]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, wire: int) -> list[Operator]:
        self[wire] = plan = self._make([wire])
        return plan


class Wiring:
    """The operators of a machine as functions, and the plans in which they run."""

    def __init__(self, compiled: CompiledFlow, *, intermediates: bool, check: bool, in_place: bool) -> None:
        self.compiled = compiled
        self.intermediates = intermediates
        self.check = check
        self.in_place = in_place
        self.choose: Choose = eager
        """Decides the order of things inside a tick; set while one runs."""
        self.slots: list[Any] = [None] * compiled.slots
        self.fed: list[tuple[int, tuple[Any, ...]]] = []
        """What goes back through a forward reference: wire and values."""
        self.op_of: dict[int, PlacedOperator] = {}
        self._constants: dict[int, Any] = {}
        self._values: dict[int, Any] = {}
        self._ends: dict[tuple[int, int], list[Operator]] = {}
        self._runs_at = self._collect()
        self.plans = Plans(self.plan)
        self.unit_runs: dict[int, tuple[list[Operator], list[Operator], list[Operator]]] = {}
        """Unit → what runs in it, what ends it, what follows it outside."""
        self._wire_units()
        self.template = self._make_template()

    # --- what operators ask while they are made -----------------------------------------

    def begin(self, slot: int, value: Any) -> None:
        """Say what a slot holds at the beginning."""
        self.slots[slot] = value

    def at_end(self, op: PlacedOperator, run: Operator) -> None:
        """Do something when an execution of the operator's tick is over."""
        self._ends.setdefault((op.node.tick.id if op.node.tick else -1, op.member), []).append(run)

    def own(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """A map that an operator may change: a copy, where states are kept to go back to."""
        return state if self.in_place else dict(state)

    def function(self, node: FlowNode) -> Callable[..., Any]:
        """A node's function."""
        assert node.fn is not None
        return leaves_input_alone(node, node.fn) if self.check else node.fn

    def initial_value(self, node: FlowNode) -> Any:
        """The first version of a live value, NOTHING where a tick makes it; of a constant, its value."""
        # From the first on, so that a long chain of operators needs no deep stack.
        for each in _unknown(node, self._values, _begins_with):
            self._values[each.id] = self._initial_value(each)
        return self._values[node.id]

    def _initial_value(self, node: FlowNode) -> Any:
        if node.constant:
            return self._constant(node)
        if node.shape == "keyed singleton":
            return {}
        if node.kind in _FOLDS:
            return self.begun(node)
        if node.kind == "latest" or not node.inputs:
            return NOTHING
        first = self.initial_value(node.inputs[0])
        if first is NOTHING:
            return NOTHING
        if node.kind == "zip":
            return pair_up(first, self.initial_value(node.inputs[1]))
        if node.kind in ("map", "filter", "unwrap_or"):
            wires = [first, None]
            self._guarded(WHOLE[node.kind](PlacedOperator("tick", node, 0, (0,), 1), self), node, wires)
            return wires[1]
        return first

    def begun(self, node: FlowNode) -> Any:
        """The value of a fold before any element."""
        try:
            return first_value(node)
        except Exception as error:
            raise failed(node, error, []) from error

    def _constant(self, node: FlowNode) -> Any:
        for each in _unknown(node, self._constants, lambda at: at.inputs):
            if each.kind == "constant":
                self._constants[each.id] = each.args["value"]
            else:
                wires = [self._constants[source.id] for source in each.inputs] + [None]
                op = PlacedOperator("tick", each, 0, tuple(range(len(each.inputs))), len(each.inputs))
                self._guarded(WHOLE[each.kind](op, self), each, wires)
                self._constants[each.id] = wires[-1]
        return self._constants[node.id]

    def _guarded(self, run: Operator, node: FlowNode, wires: list[Any]) -> None:
        try:
            run(wires, self.slots)
        except TruelineError:
            raise
        except Exception as error:
            raise failed(node, error, wires[:-1]) from error

    # --- making -------------------------------------------------------------------------

    def _collect(self) -> dict[int, list[tuple[int, int, Operator, int]]]:
        """Wire of the asynchronous side → what runs when something is new there."""
        compiled, last = self.compiled, len(self.compiled.graph.nodes)
        runs_at: dict[int, list[tuple[int, int, Operator, int]]] = {}
        for op in compiled.ops.values():
            if op.zone == "async":
                run = self._async_run(op)
                for wire in dict.fromkeys(op.ins):
                    runs_at.setdefault(wire, []).append((op.node.id, op.member, run, op.out))
        for wire, hooks in compiled.hook_on.items():
            for hook in hooks:
                self.slots[hook.slot] = hook.initial
                runs_at.setdefault(wire, []).append((last, hook.slot, _putting(hook, wire), -1))
        for target, node in compiled.graph.cycles.items():
            if node.tick is None:
                for member in range(node.location.size):
                    wire = compiled.wire("async", node, member)
                    back = compiled.wire("async", compiled.graph.nodes[target], member)
                    runs_at.setdefault(wire, []).append((last, target, _feeding(self.fed, wire, back), -1))
        return runs_at

    def _wire_units(self) -> None:
        for unit in self.compiled.units:
            if isinstance(unit, TickUnit):
                runs = [self._tick_run(op) for op in unit.ops]
                ends = [run for tick in unit.ticks for run in self._ends.get((tick.id, unit.member), [])]
                self.unit_runs[id(unit)] = (runs, ends, self.plan(unit.outs))
            else:
                self._begin_loose(unit)

    def _async_run(self, op: PlacedOperator) -> Operator:
        if is_loose(op.node):
            run = _merging(op) if op.node.kind == "merge_ordered" else _collecting(op)
        else:
            run = INCREMENTAL[op.node.kind](op, self)
        self.op_of[id(run)] = op
        return run

    def _tick_run(self, op: PlacedOperator) -> Operator:
        kind = op.node.kind
        if op.zone == "region" and kind in ("assume_ordering", "merge_ordered"):
            run = {"assume_ordering": assume_ordering, "merge_ordered": merge_ordered}[kind](op, self)
        else:
            run = (INCREMENTAL if op.zone == "region" else WHOLE)[kind](op, self)
        self.op_of[id(run)] = op
        return run

    def plan(self, wires: Iterable[int]) -> list[Operator]:
        """The operators that something new on some wires reaches, each after its inputs."""
        found: dict[int, tuple[int, int, Operator]] = {}
        todo = list(wires)
        for wire in todo:
            for order, member, run, out in self._runs_at.get(wire, ()):
                if id(run) not in found:
                    found[id(run)] = (order, member, run)
                    if out >= 0:
                        todo.append(out)
        return [run for _, _, run in sorted(found.values(), key=lambda each: each[:2])]

    def _begin_loose(self, unit: LooseUnit) -> None:
        kind = unit.node.kind
        self.slots[unit.slot] = ((), ()) if kind == "merge_ordered" else ()
        keyed = unit.node.shape == "keyed singleton"
        if kind in ("fold", "reduce"):
            self.slots[unit.state] = {} if keyed else self.begun(unit.node)

    def _make_template(self) -> list[Any]:
        """What wires hold between passes: nothing, but constants in ticks."""
        template: list[Any] = [()] * len(self.compiled.wires)
        for (zone, i, _), wire in self.compiled.wires.items():
            node = self.compiled.graph.nodes[i]
            if zone == "tick" and node.constant:
                template[wire] = self._constant(node)
        return template


# --- small parts ----------------------------------------------------------------------


def _begins_with(node: FlowNode) -> tuple[FlowNode, ...]:
    """The nodes whose first version makes the first version of this one."""
    if node.constant or node.shape == "keyed singleton" or node.kind in _FOLDS or node.kind == "latest":
        return ()
    return node.inputs if node.kind == "zip" else node.inputs[:1]


def _unknown(
    node: FlowNode, known: dict[int, Any], needs: Callable[[FlowNode], tuple[FlowNode, ...]]
) -> list[FlowNode]:
    """The node and all it needs of which nothing is known, each after what it needs."""
    found: dict[int, FlowNode] = {}
    todo = [node]
    while todo:
        at = todo.pop()
        if at.id not in known and at.id not in found:
            found[at.id] = at
            todo += needs(at)
    return [found[i] for i in sorted(found)]


def _putting(hook: Hook, wire: int) -> Operator:
    def run(w: list[Any], s: list[Any]) -> None:
        if w[wire]:
            hook.put(s, w[wire])

    return run


def _feeding(fed: list[tuple[int, tuple[Any, ...]]], wire: int, back: int) -> Operator:
    def run(w: list[Any], _: list[Any]) -> None:
        if w[wire]:
            fed.append((back, w[wire]))

    return run


def _collecting(op: PlacedOperator) -> Operator:
    (i,), slot = op.ins, op.slot

    def run(w: list[Any], s: list[Any]) -> None:
        if w[i]:
            s[slot] += w[i]

    return run


def _merging(op: PlacedOperator) -> Operator:
    (i, j), slot = op.ins, op.slot

    def run(w: list[Any], s: list[Any]) -> None:
        left, right = s[slot]
        s[slot] = (left + w[i], right + w[j])

    return run


def failed(node: FlowNode, error: Exception, values: list[Any]) -> ElementFailed:
    """The error for a function of a flow that raised."""
    value = values[0] if values and values[0] is not ABSENT else None
    shown = repr(value)
    shown = shown if len(shown) <= 200 else shown[:200] + "…"
    return ElementFailed(
        f"the function of {node} on {node.location.name} raised {type(error).__name__}: {error}; "
        f"it was given {shown}",
        remedy=f"fix the function in {node.site.file}, line {node.site.line}",
        node=node,
        value=value,
    )
