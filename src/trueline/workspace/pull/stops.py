"""Where a pull stops on its way: so that datasets that are pulled one by one can still be read together.

Whoever is pulled alone moves on while others stay behind. That all of them can be read at one cut, each that
passes the place where another is at rest has to commit there first. Which datasets count is a matter of
roots: those that share one, directly or through others. Only those that read the same inputs, or only those
that share a root directly, are too few: tests/workspace/pull/test_stops.py has histories of both that leave
readers without a common cut. Who is pulled at the same moment counts too: `going.py`.

Strangers stop nowhere for each other. A new dataset that rests on the roots of two groups makes one of them,
and there may be no cut that all have in common. Then they come along to the cut where it is computed first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Final, TypeVar

Name = TypeVar("Name", bound=Hashable)
# Where a dataset is that was never brought anywhere: before all cuts.
NOWHERE: Final = 0


def related(roots: Mapping[Name, Collection[Hashable]]) -> dict[Name, frozenset[Name]]:
    """Return for each dataset the others that share a root with it, directly or through others.

    >>> groups = related({"credits": ["transfers"], "balances": ["transfers", "fx"], "rates": ["fx"]})
    >>> sorted(groups["credits"]), related({"a": ["x"], "b": ["y"]})["a"]
    (['balances', 'rates'], frozenset())
    """
    return {name: members - {name} for members in groups_by_root(roots) for name in members}


def groups_by_root(roots: Mapping[Name, Collection[Hashable]]) -> list[frozenset[Name]]:
    """Return datasets in groups of those that share a root, directly or through others."""
    groups: list[tuple[set[Hashable], set[Name]]] = []
    for name, under in roots.items():
        shared, members = set(under), {name}
        apart = []
        for group in groups:
            if group[0] & shared:
                shared |= group[0]
                members |= group[1]
            else:
                apart.append(group)
        groups = [*apart, (shared, members)]
    return [frozenset(members) for _, members in groups]


def neighbours(
    new: Mapping[Name, Collection[Hashable]],
    there: Mapping[Name, Collection[Hashable]],
    at: Mapping[Name, int],
    was_at: Callable[[Name, int], bool],
) -> tuple[dict[Name, frozenset[Name]], dict[Name, frozenset[Name]]]:
    """Return for whom each dataset stops; and, of new ones that join strangers, who comes along with each.

    Both are given by their roots: those that are computed for the first time, and those that were before.
    Strangers come along if they have no common cut: one that has passed the place of another has to have been
    there (`was_at`). In one group rule R sees to that.

    >>> there, at = {"of_x": ["x"], "of_y": ["y"]}, {"of_x": 2, "of_y": 5}
    >>> others, along = neighbours({"joined": ["x", "y"]}, there, at, lambda name, number: False)
    >>> others["of_x"], sorted(along["joined"])
    (frozenset(), ['of_x', 'of_y'])
    >>> others, along = neighbours({"joined": ["x", "y"]}, there, at, lambda name, number: True)
    >>> sorted(others["of_x"]), sorted(others["joined"]), along
    (['of_y'], ['of_x', 'of_y'], {})
    """
    others: dict[Name, frozenset[Name]] = {}
    along: dict[Name, frozenset[Name]] = {}
    for members in groups_by_root({**there, **new}):
        known, joining = members & there.keys(), members & new.keys()
        groups = groups_by_root({name: there[name] for name in known}) if joining else [known]
        if len(groups) > 1 and _are_apart({name: at[name] for name in known}, was_at):
            along |= dict.fromkeys(joining, known)
        else:
            groups = [known]
        others |= {name: group - {name} for group in groups for name in group}
        others |= dict.fromkeys(joining, known)
    return others, along


def _are_apart(at: Mapping[Name, int], was_at: Callable[[Name, int], bool]) -> bool:
    passed = {(name, where) for where in {*at.values()} - {NOWHERE} for name in at if at[name] > where}
    return not all(was_at(name, number) for name, number in passed)


def plan_stops(
    at: Mapping[Name, int],
    others: Mapping[Name, Iterable[Name]],
    inputs: Mapping[Name, Iterable[Name]],
    wanted: Iterable[Name],
    target: int,
    *,
    joining: Collection[Name] = (),
) -> dict[Name, tuple[int, ...]]:
    """Return the numbers of the cuts that each of `wanted` is brought to, one transaction each, in order.

    `at` is the newest cut at which a dataset is at rest, `NOWHERE` for a new one; `others` those for whom it
    stops. What a dataset reads goes through the same stops, as far as it is behind them. Those that are
    `joining` groups stop for nobody: these come along to the target.

    >>> others = {"credits": ["debits"], "debits": ["credits"]}
    >>> plan_stops({"credits": 3, "debits": 5}, others, {}, ["credits"], 9)
    {'credits': (5, 9)}
    """
    chosen = list(wanted)
    found = {
        name: {at[other] for other in others.get(name, ()) if at[name] < at[other] < target}
        if name not in joining
        else set[int]()
        for name in chosen
    }
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        for above in inputs.get(name, ()):
            more = {number for number in found[name] if number > at[above]} if above in found else set()
            if above in found and not more <= found[above]:
                found[above] |= more
                waiting.append(above)
    return {name: (*sorted(found[name]), target) for name in chosen}
