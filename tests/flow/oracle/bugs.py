"""Mistakes a compiler of align points could make, planted by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from unittest import mock

from trueline.flow import compiled, machine, operators, regions
from trueline.flow.compiled import TickUnit
from trueline.flow.regions import Group


@contextmanager
def planted(name: str):
    """Run with one mistake in the compiler."""
    with BUGS[name]():
        yield


def _patched(where: object, name: str, make: Callable):
    """Replace a step of the compiler with what `make` makes of it."""
    return lambda: mock.patch.object(where, name, make(getattr(where, name)))


def _misses_a_reader(users):
    """The last use is not counted among those that share."""
    return lambda instances, above: users(instances[:-1], above)


def _one_node_short(between):
    """The last node before a use stays outside the region."""

    def short(boundary, instances, above):
        region = between(boundary, instances, above)
        ends = {source.id for i in instances for source in i.inputs} - {n.id for n in boundary}
        return [n for n in region if n.id not in ends]

    return short


def _ticks_stay_apart(groups):
    """Only the first tick of a point is made one with it."""

    def apart(flow, alignments):
        return [Group(each.alignments, each.ticks[:1]) for each in groups(flow, alignments)]

    return apart


def _points_stay_apart(groups):
    """Points that overlap are laid out each for itself."""
    return lambda flow, alignments: [group for each in alignments for group in groups(flow, [each])]


def _other_side(make):
    """Before is taken for after."""

    def swapped(op, wiring):
        side = op.node.args["side"]
        op.node.args["side"] = "after" if side == "before" else "before"
        try:
            return make(op, wiring)
        finally:
            op.node.args["side"] = side

    return swapped


def _does_not_wait(instances):
    """A release lets elements go as they come."""
    return property(lambda self: [n for n in instances.fget(self) if n.kind != "release_aligned"])


def _through_the_network(upstream):
    """What is shared behind the network counts."""
    return lambda graph, node, *, network=False, feedback=False: upstream(
        graph, node, network=True, feedback=feedback
    )


def _constants_are_shared(users):
    """A constant counts as something to agree on."""

    def counted(instances, above):
        found = users(instances, above)
        for instance in instances:
            for node in above[instance.id].values():
                if node.constant:
                    found.setdefault(node.id, (node, []))[1].append(instance.id)
        return found

    return counted


def _lets_everything_pass(_):
    """A check that checks nothing."""
    return lambda *_, **__: None


def _past_the_boundary(_):
    """What goes past the last shared node has a cut of its own."""
    return lambda graph, boundary, instances, above: boundary


def _forgets_the_side(entries):
    """Only the boundary is handed to a region, not what else comes in."""

    def few(self, group):
        bounds = {n.id for n in group.boundary}
        return [n for n in entries(self, group) if n.id in bounds]

    return few


def _cut_for_every_use(interior):
    """Every use takes its own piece: nothing runs in the tick but the uses."""
    return lambda self, group: []


def _first_of_several(implicit):
    """Only the first node of the boundary is agreed on."""
    return lambda *args: implicit(*args)[:1]


def _plain(*kinds):
    """Some kinds of uses are as if they were not aligned."""
    return lambda instances: property(lambda self: [n for n in instances.fget(self) if n.kind not in kinds])


def _uses_first(lay_region):
    """The uses run before the region they rest on."""

    def wrong(self, unit, group, member):
        lay_region(self, unit, group, member)
        unit.ops.reverse()

    return wrong


def _begins_anew(make):
    """A fold in a region forgets what it had."""

    def wrong(op, wiring):
        run = make(op, wiring)
        if op.zone != "region":
            return run
        first = wiring.slots[op.slot]

        def anew(w, s):
            s[op.slot] = first
            run(w, s)

        return anew

    return wrong


def _waits_for_all(ready):
    """A tick waits until everything it reads has something new."""

    def wrong(self):
        slots = self.peek()
        return [
            u
            for u in ready(self)
            if not isinstance(u, TickUnit) or all(hook.active(slots) for hook in u.hooks)
        ]

    return wrong


BUGS = {
    "a reader is missing among those that share": _patched(regions, "_users", _misses_a_reader),
    "the region is one node short": _patched(regions, "_between", _one_node_short),
    "the ticks of a point are not merged": _patched(regions, "_groups", _ticks_stay_apart),
    "points that overlap are not merged": _patched(regions, "_groups", _points_stay_apart),
    "before is taken for after": lambda: mock.patch.dict(
        operators.INCREMENTAL,
        {"snapshot_aligned": _other_side(operators.INCREMENTAL["snapshot_aligned"])},
    ),
    "a release does not wait": _patched(Group, "instances", _does_not_wait),
    "a boundary behind the network is accepted": _patched(regions, "upstream", _through_the_network),
    "a constant counts as shared": _patched(regions, "_users", _constants_are_shared),
    "an asynchronous edge in a region is accepted": _patched(
        regions, "_refuse_asynchrony", _lets_everything_pass
    ),
    "a use behind another is accepted": _patched(regions, "_refuse_reentrance", _lets_everything_pass),
    "what goes past the boundary has its own cut": _patched(regions, "_whole", _past_the_boundary),
    "what comes in from the side is forgotten": _patched(compiled.CompiledFlow, "entries", _forgets_the_side),
    "every use has a cut of its own": _patched(compiled.CompiledFlow, "interior", _cut_for_every_use),
    "only the first node of a boundary is agreed on": _patched(regions, "_implicit", _first_of_several),
    "an aligned snapshot is a plain one": _patched(Group, "instances", _plain("snapshot_aligned")),
    "an aligned batch is a plain one": _patched(Group, "instances", _plain("batch_aligned")),
    "the uses run before their region": _patched(compiled.CompiledFlow, "_lay_region", _uses_first),
    "a fold in a region begins anew": lambda: mock.patch.dict(
        operators.INCREMENTAL, {"fold": _begins_anew(operators.INCREMENTAL["fold"])}
    ),
    "a tick waits for everything it reads": _patched(machine.Machine, "ready", _waits_for_all),
}
