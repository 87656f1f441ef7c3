"""A view gives the same bytes, ids and order in this process and on Spark (exchange:E1, exchange:E3)."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, views
from trueline.spark.lowering import lowered
from trueline.spark.lowering.deliver import delivered
from trueline.view.execute import pieces
from trueline.view.plan.join import Join
from trueline.view.plan.node import Node, OneInput, OwnSchema, SourceNode, steps
from trueline.view.plan.on_spark import OnSpark
from trueline.view.plan.sources import KnownSchema

# Each with other partitions, with and without adaptive execution, in large and small batches, and with and
# without small sides of joins that are sent to all tasks.
SETTINGS = [(1, "true", 10_000, "-1"), (3, "false", 10, "10MB"), (7, "true", 10, "-1")]
VIEWS = views()


PAIRS = [(name, SETTINGS[number % len(SETTINGS)]) for number, name in enumerate(VIEWS)]
JOINS = [name for name, view in VIEWS.items() if any(isinstance(each, Join) for each in steps(view.node))]


def every() -> list:
    """Return all views under all settings, under names by which `make soak` takes them part by part.

    The settings change slowest: a session is made once for each. Whether small sides are sent to all tasks
    matters to joins only.
    """
    found = []
    for partitions, adaptive, batch in product((1, 3, 20), ("true", "false"), (10, 10_000)):
        kind = f"{partitions}p-{'adaptive' if adaptive == 'true' else 'fixed'}-{batch}r"
        for broadcast, names in (("-1", VIEWS), ("10MB", JOINS)):
            settings = (partitions, adaptive, batch, broadcast)
            found += [pytest.param(name, settings, id=f"{kind}-{broadcast}-{name}") for name in names]
    return found


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


def check(name, session):
    view = VIEWS[name]
    found = rows_of(delivered(view.node, everything(view), session))
    assert difference(in_process(view), found, view) == ""


@pytest.mark.contract("exchange:E1", "exchange:E3", "exchange:E4", "exchange:E6")
@pytest.mark.parametrize(("name", "settings"), PAIRS, ids=str)
def test_rows_ids_and_order_are_equal_to_the_bit(name, settings, session_with):
    check(name, session_with(settings))


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "settings"), every())
def test_rows_are_equal_under_all_settings(name, settings, session_with):
    check(name, session_with(settings))


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
