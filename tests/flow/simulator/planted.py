"""Bugs planted by hand in the alignment compiler and in what it is run by: the oracle must find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trueline.flow import compiled, operators, regions, semantics
from trueline.flow.compiled import CompiledFlow, TickUnit
from trueline.flow.graph import ALIGNED_READS
from trueline.flow.regions import Group

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTED: dict[str, Plant] = {}


def planted(text: str) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        PLANTED[text] = plant
        return plant

    return keep


@planted("the region leaves out what lies between the boundary and the uses (A5)")
def _(patch):
    patch.setattr(regions, "_between", lambda boundary, instances, above: list(boundary))


@planted("only the first node of the boundary is agreed on (A36)")
def _(patch):
    right = regions._implicit
    patch.setattr(regions, "_implicit", lambda *args: right(*args)[:1])


@planted("the ticks of the reads are not merged (A6)")
def _(patch):
    right = regions._groups

    def wrong(*args: Any) -> list[Group]:
        groups = right(*args)
        for group in groups:
            del group.ticks[1:]
        return groups

    patch.setattr(compiled, "find_regions", _finding(wrong))


def _finding(groups: Callable[..., list[Group]]) -> Callable[..., Any]:
    right = regions.find_regions

    def find(flow: Any, ignoring: Any = frozenset()) -> Any:
        before = regions._groups
        regions._groups = groups  # type: ignore[assignment]
        try:
            return right(flow, ignoring)
        finally:
            regions._groups = before

    return find


def _only(patch: pytest.MonkeyPatch, kinds: Any) -> None:
    """Let some kinds of uses be no part of their group, so that they are as if they were not aligned."""
    right = Group.instances.fget  # type: ignore[attr-defined]
    patch.setattr(Group, "instances", property(lambda self: [n for n in right(self) if n.kind in kinds]))


@planted("a release does not wait (A9)")
def _(patch):
    _only(patch, ALIGNED_READS)


@planted("an aligned snapshot is a plain one (A8)")
def _(patch):
    _only(patch, {"batch_aligned", "release_aligned"})


@planted("an aligned batch is a plain one (A8)")
def _(patch):
    _only(patch, {"snapshot_aligned", "release_aligned"})


@planted("the side of the cut is forgotten (A27)")
def _(patch):
    right = operators.INCREMENTAL["snapshot_aligned"]

    def wrong(op: Any, wiring: Any) -> Any:
        args = dict(op.node.args)
        object.__setattr__(op.node, "args", {**args, "side": "after"})
        try:
            return right(op, wiring)
        finally:
            object.__setattr__(op.node, "args", args)

    patch.setitem(operators.INCREMENTAL, "snapshot_aligned", wrong)


@planted("the uses run before the region they rest on (A7)")
def _(patch):
    right = CompiledFlow._lay_region

    def wrong(self: CompiledFlow, unit: TickUnit, group: Group, member: int) -> None:
        right(self, unit, group, member)
        unit.ops.reverse()

    patch.setattr(CompiledFlow, "_lay_region", wrong)


@planted("a fold in a region begins anew in every execution (A8)")
def _(patch):
    right = operators.INCREMENTAL["fold"]

    def wrong(op: Any, wiring: Any) -> Any:
        run = right(op, wiring)
        if op.zone != "region":
            return run
        first = wiring.slots[op.slot]

        def anew(w: list[Any], s: list[Any]) -> None:
            s[op.slot] = first
            run(w, s)

        return anew

    patch.setitem(operators.INCREMENTAL, "fold", wrong)


@planted("a tick waits until everything it reads has something new (A38)")
def _(patch):
    right = semantics.Machine.ready

    def wrong(self: Any) -> Any:
        state = self.peek()
        return [
            u for u in right(self) if not isinstance(u, TickUnit) or all(h.active(state) for h in u.hooks)
        ]

    patch.setattr(semantics.Machine, "ready", wrong)


@planted("constants count as shared (A34)")
def _(patch):
    patch.setattr(
        regions,
        "_users",
        lambda instances, above: {
            n.id: (n, [i.id for i in instances if n.id in above[i.id]])
            for one in instances
            for n in above[one.id].values()
        },
    )


@planted("the network is walked through (A3)")
def _(patch):
    right = regions.upstream
    patch.setattr(
        regions, "upstream", lambda graph, node, **how: right(graph, node, **{**how, "network": True})
    )
