"""The search for the newest positions that agree, against trying all of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import combinations

import pytest

from tests.workspace.snapshot.model import ModelWorkspace
from trueline.workspace.snapshot.search import NOTHING, OFF_BRANCH, Search


def found(workspace, names, bounds=None):
    histories = {name: workspace.datasets[name] for name in workspace.closure(names)}
    return Search(histories).run(dict.fromkeys(names) | (bounds or {}))


def explored(seed):
    """A random workspace and some of its datasets."""
    workspace = ModelWorkspace(seed)
    chance = random.Random(seed)
    workspace.live(chance.randint(5, 40))
    names = list(workspace.datasets)
    return workspace, chance.sample(names, chance.randint(1, min(4, len(names))))


@pytest.mark.contract("cut:P5")
def test_the_search_finds_what_trying_all_finds():
    kinds, seen = set(), Counter()
    for seed in range(600):
        workspace, names = explored(seed)
        best = workspace.newest(names)
        seen.update(kinds_of(workspace, names))
        assert found(workspace, names) == best, f"seed {seed}, {names}"
        heads = {name: workspace.datasets[name].readable() for name in best}
        kinds.add("heads" if best == heads else "nothing" if set(best.values()) == {NOTHING} else "earlier")
    assert kinds == {"heads", "earlier", "nothing"}
    dull = {kind: seen[kind] for kind in KINDS if seen[kind] < 50}
    assert not dull, "the histories have too little in them"


KINDS = ("diamond", "deep", "diverged", "redefined", "parts", "not at rest", "late", "rebuilt")


def kinds_of(workspace, names):
    """What a workspace has in it that a search may stumble over."""
    below = {name: set(workspace.closure([name])) for name in workspace.closure(names)}
    derived = {name: workspace.datasets[name] for name in below if workspace.datasets[name].is_derived}
    for name, dataset in derived.items():
        if name in workspace.late:
            yield "late"
        if name in workspace.rebuilt:
            yield "rebuilt"
        if any(block.is_data and block.is_end and not block.at_rest for block in dataset.blocks):
            yield "not at rest"
        above = [below[each] for each in dataset.inputs]
        last = dataset._event(len(dataset.blocks) - 1)
        if any(one & other for one, other in combinations(above, 2)):
            yield "diamond"
        if any(
            each in derived and any(of in derived for of in derived[each].inputs) for each in dataset.inputs
        ):
            yield "deep"
        for each, (block, _) in last.taken.items() if last is not None else ():
            if block is not None and workspace.datasets[each].number_of(block) == OFF_BRANCH:
                yield "diverged"
        if last is not None and any(
            each in derived and derived[each].blocks[derived[each].definition].hash != block
            for each, block in last.made_under.items()
        ):
            yield "redefined"
        if any(not block.is_end for block in dataset.blocks):
            yield "parts"


@pytest.mark.soak
@pytest.mark.contract("cut:P5")
def test_the_search_finds_what_trying_all_finds_for_long(soak_minutes):
    end = time.monotonic() + 60 * soak_minutes
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + 1_000_000):
        workspace, names = explored(seed)
        assert found(workspace, names) == workspace.newest(names), f"seed {seed}, {names}"
        chance = random.Random(seed)
        moment = then(workspace, chance)
        bounds = held(moment, chance, names)
        assert found(moment, names, bounds) == moment.newest(names, bounds), f"seed {seed}, {names}, {bounds}"
        if seed - first >= 10_000 and time.monotonic() > end:
            return


def held(workspace, chance, names):
    """Roots that a transaction or a cut holds back, and where."""
    roots = [name for name in workspace.closure(names) if not workspace.datasets[name].is_derived]
    some = chance.sample(roots, chance.randint(1, len(roots)))
    return {name: chance.randint(NOTHING, len(workspace.datasets[name].blocks) - 1) for name in some}


def then(workspace, chance):
    """A workspace as it was at a moment of clocks that differ."""
    whole = {name: len(dataset.blocks) for name, dataset in workspace.datasets.items()}
    return workspace.at({name: max(1, length - chance.randint(0, 4)) for name, length in whole.items()})


@pytest.mark.contract("cut:P2", "cut:P5")
def test_the_search_finds_what_trying_all_finds_where_roots_are_held_and_at_a_moment():
    seen = Counter()
    for seed in range(250):
        workspace, names = explored(seed)
        chance = random.Random(-seed - 1)
        for moment in (workspace, then(workspace, chance)):
            bounds = held(moment, chance, names)
            best = moment.newest(names, bounds)
            assert found(moment, names, bounds) == best, f"seed {seed}, {names}, {bounds}"
            seen["held" if best != moment.newest(names) else "free"] += 1
            seen["earlier" if found(moment, names) != found(workspace, names) else "the same"] += 1
    assert all(seen[kind] > 50 for kind in ("held", "free", "earlier", "the same")), seen


class WithoutDefinitions(Search):
    """A mutant: what was made under an older definition counts."""

    def _settle_definitions(self, order):
        return False


class InsideCommits:
    """A mutant: a dataset whose parts are readable."""

    def __init__(self, dataset):
        self._dataset = dataset

    def __getattr__(self, name):
        return getattr(self._dataset, name)

    def readable(self, upto=None):
        blocks, first = self._dataset.blocks, self._dataset.definition
        last = len(blocks) - 1 if upto is None else upto
        return next((i for i in range(last, first, -1) if blocks[i].is_data), NOTHING)


@pytest.mark.contract("cut:P5", "cut:P6")
def test_trying_all_finds_the_mistakes_that_a_search_can_make():
    """Heads instead of agreement, positions inside commits, origins without definitions."""
    wrong = {"heads": 0, "inside": 0, "definitions": 0}
    for seed in range(1500):
        workspace, names = explored(seed)
        histories = {name: workspace.datasets[name] for name in workspace.closure(names)}
        best, bounds = workspace.newest(names), dict.fromkeys(names)
        wrong["heads"] += {name: each.readable() for name, each in histories.items()} != best
        torn = {name: InsideCommits(each) for name, each in histories.items()}
        wrong["inside"] += Search(torn).run(bounds) != best
        wrong["definitions"] += WithoutDefinitions(histories).run(bounds) != best
        if all(wrong.values()):
            return
    assert all(wrong.values()), wrong


@pytest.mark.contract("cut:P5")
def test_a_later_search_is_never_older_unless_something_was_reset_or_redefined():
    for seed in range(200):
        workspace = ModelWorkspace(seed)
        before: dict[str, int] = {}
        names = list(workspace.datasets)
        for _ in range(12):
            workspace.random.choice((workspace.append, workspace.pull_heads, workspace.pull_all))()
            now = found(workspace, names)
            assert all(now[name] >= number for name, number in before.items()), f"seed {seed}"
            before = now


@pytest.mark.contract("cut:P8")
def test_the_search_looks_at_few_events_however_far_it_goes_back():
    def steps(length):
        workspace = ModelWorkspace(0)
        root = workspace.datasets["r0"]
        workspace.datasets = {"r0": root}
        for name in ("ahead", "behind"):
            workspace.datasets[name] = type(root)([workspace._block(NOTHING, inputs=("r0",))])
        for number in range(length):
            root.blocks.append(workspace._block(number, is_data=True))
            for name in ("ahead", "behind") if number == 0 else ("ahead",):
                taken = {"r0": (root.blocks[-1].hash, number)}
                workspace.datasets[name].blocks.append(workspace._block(number, is_data=True, taken=taken))
        search = Search({name: workspace.datasets[name] for name in ("r0", "ahead", "behind")})
        assert search.run({"ahead": None, "behind": None}) == {"r0": 1, "ahead": 1, "behind": 1}
        return search.steps

    assert steps(2000) <= steps(100) + 2 * 5
