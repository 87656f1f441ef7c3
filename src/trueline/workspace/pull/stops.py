"""Where a pull stops on its way: so that datasets that are pulled one by one can still be read together.

Whoever is pulled alone moves on while others stay behind. That all of them can be read at one cut, each that
passes the place where another is at rest has to commit there first. Which datasets count is a matter of
roots: those that share one, directly or through others. Only those that read the same inputs, or only those
that share a root directly, are too few: tests/workspace/pull/test_stops.py has histories of both that leave
readers without a common cut. Who is pulled at the same moment counts too: `going.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
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
    return {name: frozenset(members - {name}) for _, members in groups for name in members}


def plan_stops(
    at: Mapping[Name, int],
    others: Mapping[Name, Iterable[Name]],
    inputs: Mapping[Name, Iterable[Name]],
    wanted: Iterable[Name],
    target: int,
) -> dict[Name, tuple[int, ...]]:
    """Return the numbers of the cuts that each of `wanted` is brought to, one transaction each, in order.

    `at` is the newest cut at which a dataset is at rest, `NOWHERE` for a new one; `others` those for whom it
    stops. What a dataset reads goes through the same stops, as far as it is behind them.

    >>> others = {"credits": ["debits"], "debits": ["credits"]}
    >>> plan_stops({"credits": 3, "debits": 5}, others, {}, ["credits"], 9)
    {'credits': (5, 9)}
    """
    chosen = list(wanted)
    found = {
        name: {at[other] for other in others.get(name, ()) if at[name] < at[other] < target}
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
