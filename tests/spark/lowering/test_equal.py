"""A view gives the same bytes, ids and order in this process and on Spark (exchange:E1, exchange:E3)."""

from __future__ import annotations

from functools import cache, partialmethod
from itertools import combinations, count, product

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, views
from trueline.spark.lowering import lowered
from trueline.spark.lowering.deliver import delivered
from trueline.view.execute import pieces
from trueline.view.plan.join import Join
from trueline.view.plan.node import Node, OneInput, OwnSchema, SourceNode, steps
from trueline.view.plan.on_spark import OnSpark
from trueline.view.plan.sources import KnownSchema

# Partitions, adaptive execution, rows of a batch, and up to which size sides of joins are sent to all tasks:
# rows of the product in which each two values of different settings meet.
SETTINGS = [
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
# Each view with one of the settings and one of the sources.
CASES = [
    (name, SETTINGS[number % len(SETTINGS)], SOURCES[number // len(SETTINGS) % len(SOURCES)])
    for number, name in enumerate(VIEWS)
]
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
    met = {(settings, source) for _, settings, source in CASES}
    assert met == set(product(SETTINGS, SOURCES))


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
def brought(monkeypatch):
    """The columns of frames whose rows are brought to the driver."""
    from pyspark.sql.classic.dataframe import DataFrame

    found = set()
    for name in ("toArrow", "collect", "toLocalIterator", "toPandas"):

        def noted(frame, *args, real, **options):
            found.update(frame.columns)
            return real(frame, *args, **options)

        monkeypatch.setattr(DataFrame, name, partialmethod(noted, real=getattr(DataFrame, name)))
    return found


@pytest.fixture
def prepared(views_of, session_with, brought):
    """What a case is about: a view, a session, and the columns that are brought to the driver."""
    return lambda name, settings, source: (views_of[source][name], session_with(settings), brought)


def check(view, session, brought):
    found = rows_of(delivered(view.node, everything(view), session))
    assert difference(in_process(view), found, view) == ""
    # Names of files and counts, a sample of the order, how many rows there are in a range: no value, no id.
    assert brought <= {"partition", "result", "part", "rows", *(f"o{number}" for number in range(9))}
    assert "result" in brought


@pytest.mark.contract("exchange:E1", "exchange:E2", "exchange:E3", "exchange:E4", "exchange:E6")
@pytest.mark.parametrize(("name", "settings", "source"), CASES, ids=str)
def test_rows_ids_and_order_are_equal_to_the_bit(name, settings, source, prepared):
    check(*prepared(name, settings, source))


def test_rows_that_are_brought_to_the_driver_are_noticed(spark, brought):
    spark.range(3).selectExpr("id as c0").collect()
    assert brought == {"c0"}


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
