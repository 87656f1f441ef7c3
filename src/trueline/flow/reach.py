"""Which ticks can ever run: one that waits for what only it makes does not, and that is known beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trueline.flow.graph import ALIGNED, YIELDS, Node
from trueline.flow.hooks import ValueHook
from trueline.flow.regions import Remark

if TYPE_CHECKING:
    from trueline.flow.compiled import CompiledFlow, TickUnit

_ALWAYS: Final = frozenset({"source", "constant", "fold", "count", "reduce", "first", "last"})
"""They have something from the beginning, or get it from outside."""


def never_run(compiled: CompiledFlow, units: list[TickUnit]) -> list[Remark]:
    """A warning for each tick that nothing can start: it reads nothing, or a value that comes from itself."""
    reach = _Reach(compiled, [unit for unit in units if unit.member == 0])
    return [_remark(unit, reach.fed) for unit in reach.units if id(unit) not in reach.running]


class _Reach:
    """The nodes that may ever have something, and the ticks that may run: the least such sets.

    Nodes are looked at in the order of writing, so one pass is enough but for what is fed back.
    """

    def __init__(self, compiled: CompiledFlow, units: list[TickUnit]) -> None:
        self.units = units
        self.fed: set[int] = set()
        self.running: set[int] = set()
        self._cycles = compiled.graph.cycles
        self._of_tick = {tick.id: unit for unit in units for tick in unit.ticks}
        self._of_point = {
            a.point.id: unit for unit in units if unit.group is not None for a in unit.group.alignments
        }
        before = -1
        while before < len(self.fed):
            before = len(self.fed)
            for node in compiled.graph.nodes:
                if node.id not in self.fed and self._has(node):
                    self.fed.add(node.id)
        for unit in units:
            self._runs(unit)

    def _has(self, node: Node) -> bool:
        if node.kind in _ALWAYS or node.constant or node.shape == "keyed singleton":
            return True
        tick = node.inputs[0].tick if node.kind in YIELDS else node.tick
        if tick is not None:
            return self._runs(self._of_tick.get(tick.id))
        if node.kind in ALIGNED and node.point is not None and node.point.id in self._of_point:
            return self._runs(self._of_point[node.point.id])
        if node.id in self._cycles:
            return self._cycles[node.id].id in self.fed
        needs = all if node.kind == "zip" else any
        return needs(source.id in self.fed for source in node.inputs)

    def _runs(self, unit: TickUnit | None) -> bool:
        if unit is None:
            return False
        if id(unit) not in self.running:
            waits = any(isinstance(h, ValueHook) and h.source.id not in self.fed for h in unit.hooks)
            if not waits and any(hook.source.id in self.fed for hook in unit.hooks):
                self.running.add(id(unit))
        return id(unit) in self.running


def _remark(unit: TickUnit, fed: set[int]) -> Remark:
    missing = [hook.source for hook in unit.hooks if hook.source.id not in fed]
    if missing:
        why = f"it waits for {missing[0]}, which nothing makes before it has run"
        remedy = "begin with a value: tick.state(init) comes round without waiting"
    else:
        why = "it reads nothing that could start it"
        remedy = "read a stream or a live value in it"
    text = f"tick {unit.name} ({unit.ticks[0].site}) never runs: {why}; {remedy}"
    return Remark("warning", "never runs", text)
