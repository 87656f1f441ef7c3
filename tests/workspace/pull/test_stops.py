"""Where pulls stop: after any partial pulls there is a cut at which everything can be read together.

Datasets are simulated: what a dataset holds is a function of the positions of its roots, so a list of origins
is all there is to it. The stops are those that `plan_stops` plans, for real pulls too.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from itertools import product

import pytest

from trueline.workspace.pull.stops import NOWHERE, groups_by_root, neighbours, plan_stops, related


def by_input(model):
    """The rule that is not enough: stop for those that read the same input."""
    return {
        name: frozenset(
            other for other, theirs in model.inputs.items() if other != name and set(theirs) & set(own)
        )
        for name, own in model.inputs.items()
    }


def by_root_alone(model):
    """The rule that is nearly enough: stop for those that share a root directly."""
    roots = {name: model.roots(name) for name in model.inputs}
    return {
        name: frozenset(other for other in roots if other != name and roots[other] & roots[name])
        for name in roots
    }


def by_root(model):
    return None  # what ships


class Model:
    """Roots that grow, derived datasets over them, recorded cuts, and the origins each was brought to."""

    def __init__(self, seed, rule, *, crashes=False, late=False, strangers=False, come_along=True):
        self.random = random.Random(seed)
        self.rule, self.come_along = rule, come_along
        self.crashes, self.late, self.strangers = crashes, late, strangers
        self.came_along = 0
        self.heads = {f"root-{number}": 0 for number in range(self.random.randint(1, 3) + 2 * strangers)}
        self.cuts = [dict.fromkeys(self.heads, -1)]  # the place of `NOWHERE`
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.origins: dict[str, list[dict[str, int]]] = {}
        for _ in range(self.random.randint(2, 4) + 4 * strangers):
            self.derive(most=1 if strangers else 3)

    def derive(self, most=3):
        known = [*self.heads, *self.inputs]
        joins = self.strangers and most > 1 and self.random.random() < 0.7
        inputs = (
            self.joiner()
            if joins
            else self.random.sample(known, min(len(known), self.random.randint(1, most)))
        )
        name = f"derived-{len(self.inputs)}"
        self.inputs[name] = tuple(inputs)
        self.origins[name] = []

    def joiner(self):
        """What a dataset reads that joins two groups, each through a root or a dataset."""
        under = {name: self.roots(name) for name in [*self.heads, *self.inputs]}
        groups = [sorted(each) for each in groups_by_root(under)]
        return [self.random.choice(each) for each in self.random.sample(groups, min(2, len(groups)))]

    def roots(self, name):
        if name in self.heads:
            return frozenset({name})
        return frozenset().union(*(self.roots(each) for each in self.inputs[name]))

    def origin(self, name, number):
        return {root: self.cuts[number][root] for root in self.roots(name)}

    def rests_at(self, name):
        """The first and the newest cut at which a dataset is at rest now."""
        if not self.origins[name]:
            return NOWHERE, NOWHERE
        at = [n for n in range(len(self.cuts)) if self.origin(name, n) == self.origins[name][-1]]
        return at[0], at[-1]

    def step(self):
        """New records come, and some datasets are pulled; perhaps one is new, perhaps the pull ends early."""
        for root in self.heads:
            self.heads[root] += self.random.random() < 0.6
        if self.late and self.random.random() < 0.1 and len(self.inputs) < (12 if self.strangers else 7):
            self.derive()
            if self.strangers:
                self.pull([list(self.inputs)[-1]])
        self.pull(self.random.sample(list(self.inputs), self.random.randint(1, 2)))

    def pull(self, names):
        wanted, waiting = set(), list(names)
        while waiting:
            name = waiting.pop()
            if name in self.inputs and name not in wanted:
                wanted.add(name)
                waiting += self.inputs[name]
        moved = {root: self.heads[root] for name in wanted for root in self.roots(name)}
        if {**self.cuts[-1], **moved} != self.cuts[-1]:
            self.cuts.append({**self.cuts[-1], **moved})
        target = len(self.cuts) - 1
        at = {name: self.rests_at(name)[1] for name in self.inputs}
        there = {name: self.roots(name) for name in self.inputs if self.origins[name]}
        new = {name: self.roots(name) for name in sorted(wanted) if not self.origins[name]}
        others, self.joining = neighbours(new, there, at, self.was_at)
        if not self.come_along:
            others, self.joining = related({**there, **new}), {}
        wanted = wanted.union(*self.joining.values())
        self.came_along += bool(self.joining)
        weaker = self.rule(self)
        others = others if weaker is None else weaker
        stops = plan_stops(at, others, self.inputs, sorted(wanted), target, joining=self.joining)
        left = {(name, number) for name, numbers in stops.items() for number in numbers}
        allowed = (
            self.random.randint(0, len(left)) if self.crashes and self.random.random() < 0.4 else len(left)
        )
        while left and allowed:
            # Any order that follows the graph.
            name, number = self.random.choice(sorted(node for node in left if not self.waits(node, left)))
            self.bring(name, number, target)
            left.discard((name, number))
            allowed -= 1

    def waits(self, node, left):
        name, number = node
        before = {
            (each, other) for each, other in left if each in (name, *self.inputs[name]) and other <= number
        }
        # The first of a dataset that joins groups comes after all that come along with it.
        before |= {(each, other) for each, other in left if each in self.joining.get(name, ())}
        return bool(before - {node})

    def was_at(self, name, number):
        return self.origin(name, number) in self.origins[name]

    def bring(self, name, number, target):
        origin = self.origin(name, number)
        if self.origins[name] and self.origins[name][-1] == origin:
            return
        read = [each for each in self.inputs[name] if each in self.inputs]
        if all(self.origin(each, number) in self.origins[each] for each in read):
            self.origins[name].append(origin)
        else:
            assert number != target, "an input is not where a pull brought it"

    def read(self):
        """Look for the newest cut of some datasets that have to do with each other: what was found."""
        readable = sorted(name for name in self.inputs if self.origins[name])
        if len(readable) < 2:
            return "nothing to read"
        most = 8 if self.strangers else 4
        some = self.random.sample(readable, self.random.randint(2, min(most, len(readable))))
        groups = related({name: self.roots(name) for name in some})
        together = [some[0], *groups[some[0]]]
        if len(together) < 2:
            return "nothing to read"
        # Who was interrupted is where it stopped, though it might count for later cuts too.
        laggard = min(self.rests_at(name)[0 if self.crashes else 1] for name in together)
        for number in range(len(self.cuts) - 1, 0, -1):
            if all(self.origin(name, number) in self.origins[name] for name in together):
                return "older than the laggard" if number < laggard else "fine"
        return "no common cut"


def explored(rule, seeds, steps=25, **more):
    found: Counter[str] = Counter()
    for seed in seeds:
        model = Model(seed, rule, **more)
        model.pull(list(model.inputs))
        for _ in range(steps):
            model.step()
            found[model.read()] += 1
        found["came along"] += model.came_along
    return found


def is_sound(found):
    return {name for name, times in found.items() if times} <= {"fine", "nothing to read", "came along"}


@pytest.mark.contract("cut:P1")
@pytest.mark.parametrize("crashes", [False, True])
def test_partial_pulls_always_leave_a_common_cut_that_is_not_older_than_the_laggard(crashes):
    found = explored(by_root, range(200), crashes=crashes, late=True)
    assert is_sound(found), found
    assert found["fine"] > 4_000


@pytest.mark.contract("cut:P13")
@pytest.mark.parametrize("crashes", [False, True])
def test_datasets_that_join_strangers_bring_them_to_a_common_cut(crashes):
    found = explored(by_root, range(150), crashes=crashes, late=True, strangers=True)
    assert is_sound(found), found
    assert found["fine"] > 2_000
    assert found["came along"] > 10


def test_strangers_that_stay_where_they_are_have_no_common_cut_with_who_joins_them():
    found = explored(by_root, range(60), late=True, strangers=True, come_along=False)
    assert found["no common cut"]


@pytest.mark.parametrize("rule", [by_input, by_root_alone, lambda _: {}])
def test_a_weaker_rule_does_not(rule):
    found = explored(rule, range(200), late=True)
    assert found["no common cut"]
    assert found["older than the laggard"]


@pytest.mark.soak
def test_many_more_partial_pulls():
    seed = secrets.randbits(48)
    for crashes, strangers in product((False, True), repeat=2):
        found = explored(by_root, range(seed, seed + 4000), crashes=crashes, late=True, strangers=strangers)
        assert is_sound(found), (seed, found)


def test_what_is_read_goes_through_the_stops_of_who_reads_it():
    at = {"credits": 2, "balances": 3, "daily": 7}
    others = {"balances": ["daily"]}
    stops = plan_stops(at, others, {"balances": ["credits"]}, ["credits", "balances"], 9)
    assert stops == {"credits": (7, 9), "balances": (7, 9)}
    assert plan_stops(at, others, {}, ["daily"], 9) == {"daily": (9,)}
    new = {**at, "new": NOWHERE}
    assert plan_stops(new, {"new": list(at)}, {}, ["new"], 9) == {"new": (2, 3, 7, 9)}
