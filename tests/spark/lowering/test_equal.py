"""A view gives the same bytes, ids and order in this process and on Spark (exchange:E1, exchange:E3)."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, count, product
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.counting import check
from tests.spark.lowering.nasty import views
from trueline.spark.lowering import join, lowered
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.view.execute import pieces
from trueline.view.plan.join import Join
from trueline.view.plan.node import Node, OneInput, OwnSchema, SourceNode, steps
from trueline.view.plan.on_spark import OnSpark
from trueline.view.plan.sources import KnownSchema
from trueline.view.plan.window import Window

# Partitions, adaptive execution, rows of a batch, and up to which size sides of joins are sent to all tasks:
# rows of the product in which each two values of different settings meet.
Setting: TypeAlias = tuple[int, str, int, str]
Case: TypeAlias = tuple[str, Setting, str]
SETTINGS: list[Setting] = [
    (1, "true", 10_000, "-1"),
    (3, "false", 10_000, "-1"),
    (20, "true", 10_000, "10MB"),
    (1, "false", 10, "10MB"),
    (3, "true", 10, "10MB"),
    (20, "false", 10, "-1"),
]
# Where the rows of views come from: of datasets that only append Spark reads the slices itself, the current
# rows of keyed ones are read by ranges of their state.
SOURCES = ("memory", "slices", "keyed")
VIEWS = views()


def way(node: Node) -> str:
    """Return what a step does, as far as Spark moves rows in other ways for it."""
    name = type(node).__name__
    if isinstance(node, Join):
        return f"{name} {node.how if node.as_of is None else 'as of'}"
    return f"{name} by" if isinstance(node, Window) and node.by else name


WAYS = {
    name: {way(each) for each in steps(view.node) if not isinstance(each, SourceNode)}
    for name, view in VIEWS.items()
}


class Deal:
    """Deals views to settings and sources, until each way has met several of them."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.met: dict[str, set[Setting]] = {each: set() for found in WAYS.values() for each in found}
        self.used: Counter[Setting | tuple[Setting, str]] = Counter()

    def take(self, name: str, settings: Setting) -> None:
        """Take a view under some settings, with the source that they have met least."""
        source = min(SOURCES, key=lambda each: self.used[settings, each])
        self.cases.append((name, settings, source))
        self.used.update([settings, (settings, source)])
        for each in WAYS[name]:
            self.met[each].add(settings)

    def once(self) -> None:
        """Take each view once, where most of its ways are new."""
        for name, ways in WAYS.items():
            new = {each: sum(each not in self.met[one] for one in ways) for each in SETTINGS}
            self.take(name, min(SETTINGS, key=lambda each: (-new[each], self.used[each])))

    def enough(self, one: str) -> None:
        """Take views with a way again, until it has met several settings, with every value of each."""
        while not is_enough(met := self.met[one]):
            missing = [each for each in SETTINGS if each not in met]
            new = {each: sum(each[at] not in {one[at] for one in met} for at in range(3)) for each in missing}
            settings = min(missing, key=lambda each: (-new[each], self.used[each]))
            taken = Counter(name for name, *_ in self.cases)
            self.take(min((name for name in WAYS if one in WAYS[name]), key=taken.__getitem__), settings)


def is_enough(met: set[Setting]) -> bool:
    """Say whether settings are three, with each number of partitions, size of batches, and AQE on and off."""
    values = [{each[at] for each in SETTINGS} for at in range(3)]
    return len(met) >= 3 and [{each[at] for each in met} for at in range(3)] == values


def dealt() -> Deal:
    """Return each view with one of the settings and one of the sources, and each way with several of both."""
    found = Deal()
    found.once()
    for each in found.met:
        found.enough(each)
    return found


DEAL = dealt()
JOINS = [name for name, view in VIEWS.items() if any(isinstance(each, Join) for each in steps(view.node))]


def every() -> list:
    """Return all views under all settings, under names by which `make soak` takes them part by part.

    The settings change slowest: a session is made once for each. Whether small sides are sent to all tasks
    matters to joins only. Under each setting a view has another source than under the one before.
    """
    found = []
    numbers = count()
    for partitions, adaptive, batch in product((1, 3, 20), ("true", "false"), (10, 10_000)):
        kind = f"{partitions}p-{'adaptive' if adaptive == 'true' else 'fixed'}-{batch}r"
        for broadcast, names in (("-1", VIEWS), ("10MB", JOINS)):
            settings, first = (partitions, adaptive, batch, broadcast), next(numbers)
            found += [
                pytest.param(
                    name, settings, SOURCES[(first + at) % len(SOURCES)], id=f"{kind}-{broadcast}-{name}"
                )
                for at, name in enumerate(names)
            ]
    return found


def test_each_two_values_of_different_settings_meet():
    for one, other in combinations(range(4), 2):
        pairs = {(each[one], each[other]) for each in SETTINGS}
        values = [{each[at] for each in SETTINGS} for at in (one, other)]
        assert pairs == set(product(*values))
    met = {(settings, source) for _, settings, source in DEAL.cases}
    assert met == set(product(SETTINGS, SOURCES))


def test_each_way_of_moving_rows_meets_every_value_of_the_settings():
    assert {name for name, *_ in DEAL.cases} == {*VIEWS}
    assert [each for each, met in DEAL.met.items() if not is_enough(met)] == []


@pytest.fixture(scope="module")
def session_with(spark):
    """A session for each kind of settings."""

    @cache
    def made(settings):
        partitions, adaptive, batch, broadcast = settings
        found = spark.newSession()
        found.conf.set("spark.sql.shuffle.partitions", str(partitions))
        found.conf.set("spark.sql.adaptive.enabled", adaptive)
        found.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch))
        found.conf.set("spark.sql.autoBroadcastJoinThreshold", broadcast)
        return found

    return made


@pytest.fixture(scope="module")
def views_of(tmp_path_factory):
    """The views by where their rows come from."""
    with tl.open(tmp_path_factory.mktemp("equal") / "ws", create=True) as ws:

        def slices(table):
            made = ws.create(f"slices{table.num_rows}")
            for first in range(0, table.num_rows, 50):
                made.append(table.slice(first, 50))
            return made.view()

        def keyed(table):
            made = ws.create(f"keyed{table.num_rows}", merge=tl.merge.upsert("n"))
            made.append(table.set_column(0, "i", pa.array(np.arange(table.num_rows))).slice(0, 50))
            made.append(table.slice(20))
            return made.view()

        sources = {"memory": tl.View.from_arrow, "slices": slices, "keyed": keyed}
        yield {name: views(source=source) for name, source in sources.items()}


@pytest.fixture
def prepared(views_of, session_with):
    """What a case is about: a view and a session."""
    return lambda name, settings, source: (views_of[source][name], session_with(settings))


@pytest.mark.contract("exchange:E1", "exchange:E2", "exchange:E3", "exchange:E4", "exchange:E6")
@pytest.mark.parametrize(("name", "settings", "source"), DEAL.cases, ids=str)
def test_rows_ids_and_order_are_equal_to_the_bit(name, settings, source, prepared):
    check(*prepared(name, settings, source))


def test_rows_that_are_brought_to_the_driver_are_noticed(spark, monkeypatch):
    """The count above can fail."""
    ask = LoweringTarget.lower

    def asking(target, node, want):
        found = ask(target, node, want)
        found.frame.toArrow()
        return found

    monkeypatch.setattr(LoweringTarget, "lower", asking)
    with pytest.raises(AssertionError, match="rows passed the driver"):
        check(VIEWS["sort a number"], spark)


def test_sides_of_joins_that_are_brought_to_the_driver_are_noticed(session_with, monkeypatch):
    from pyspark.sql import functions as f

    monkeypatch.setattr(join, "by_shuffle", f.broadcast)
    with pytest.raises(AssertionError, match="a side of a join passed the driver"):
        check(VIEWS["join"].select("n"), session_with(SETTINGS[1]))


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "settings", "source"), every())
def test_rows_are_equal_under_all_settings(name, settings, source, prepared):
    check(*prepared(name, settings, source))


def nodes() -> list[type[Node]]:
    """Return the classes of nodes that views are made of."""
    found, waiting = [], [Node]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("trueline.") and kind not in (
            Node,
            OneInput,
            OwnSchema,
            SourceNode,
            KnownSchema,
        ):
            found.append(kind)
    return sorted(set(found), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", [each for each in nodes() if not issubclass(each, SourceNode | OnSpark)])
def test_every_verb_is_among_the_views(kind):
    assert any(isinstance(each, kind) for view in VIEWS.values() for each in steps(view.node))


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("kind", nodes(), ids=lambda kind: kind.__name__)
def test_every_node_runs_here_and_on_spark(kind):
    assert pieces.dispatch(kind) is not pieces.dispatch(object)
    # The rows of a source are read by tasks, with its own code; everything else is lowered.
    assert issubclass(kind, SourceNode) or lowered.dispatch(kind) is not lowered.dispatch(object)
