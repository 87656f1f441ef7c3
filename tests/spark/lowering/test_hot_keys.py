"""One key has nearly all rows: it is split where that is exact, else its task spills (exchange:E10)."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.lowering.counting import check
from tests.spark.lowering.hot_once import LEFT, asked
from tests.spark.lowering.spilling import note_runs, runs_of
from trueline.kernel.exchange import MEMORY_VARIABLE

pytestmark = pytest.mark.contract("exchange:E10")
ROWS, GROUPS = 200_000, 8
# Of a hundred rows so many have the hot key, each of two numbers.
HOT, BYTES_OF_A_ROW = 95, 16
# How many megabytes of rows a task may hold.
MEMORY = 1


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows in a file of many pieces, nearly all of one key."""
    random = np.random.default_rng(3)
    is_hot = random.random(ROWS) < HOT / 100
    made = pa.table(
        {
            "k": np.where(is_hot, 0, random.integers(0, GROUPS, ROWS)),
            "x": random.normal(size=ROWS) * 10.0 ** random.integers(-5, 5, ROWS),
            "n": np.arange(ROWS),
        }
    )
    path = tmp_path_factory.mktemp("hot") / "rows.parquet"
    pq.write_table(made, path, row_group_size=ROWS // 8)
    return tl.View.read_parquet([path])


@pytest.fixture
def session(spark):
    """Tasks of Python that may hold 1 MB of rows, and joins that may hold a few."""
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "4")
    # Rows of a key meet in one task: neither side is sent to all of them.
    found.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    found.conf.set("spark.sql.sortMergeJoinExec.buffer.in.memory.threshold", "1000")
    found.conf.set("spark.sql.sortMergeJoinExec.buffer.spill.threshold", "20000")
    environment = spark.sparkContext.environment
    environment[MEMORY_VARIABLE] = str(MEMORY)
    yield found
    del environment[MEMORY_VARIABLE]


@contextmanager
def stages_of(session):
    """Yield a list that has, afterwards, what Spark measured of each stage that ran inside."""
    before = {each.stageId() for each in _stages(session)}
    found: list = []
    yield found
    found += [each for each in _stages(session) if each.stageId() not in before]


def _stages(session) -> list:
    context = session.sparkContext
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = java.statusStore().stageList(None, False, False, quantiles, None)
    return [stages.apply(at) for at in range(stages.size())]


def test_what_is_exact_and_mergeable_is_split(rows, session):
    """No task gets the rows of the hot key: what is shuffled are sums of parts, not rows."""
    view = rows.group_by("k").agg(s="sum(x)", a="avg(x)", c="count(*)", low="min(x)", high="max(n)")
    with stages_of(session) as stages:
        check(view, session)
    assert sum(stage.shuffleReadRecords() for stage in stages) < ROWS // 100


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows.group_by("k").agg(f="first(x)", l="last(x)", m="median(x)", d="count(distinct n)"),
        lambda rows: rows.window(2, 1, by="k", s="sum(x)", r="row_number()"),
    ],
    ids=["a group that has to see its rows in order", "a window"],
)
def test_rows_of_the_hot_key_are_written_as_runs(make, rows, session, monkeypatch, tmp_path):
    """They are more than a task may hold: it writes them as they come, in several runs."""
    note_runs(monkeypatch, tmp_path)
    check(make(rows), session)
    sizes = runs_of(tmp_path)
    assert len(sizes) > 2
    assert sum(sizes) > ROWS * HOT // 100 * BYTES_OF_A_ROW > 2 * MEMORY << 20


def test_rows_that_a_task_may_hold_are_not_written(rows, session, monkeypatch, tmp_path):
    """What is noted above are runs, and nothing else."""
    note_runs(monkeypatch, tmp_path)
    check(rows.filter("n < 5000").group_by("k").agg(m="median(x)"), session)
    assert [*tmp_path.glob("*.json")]
    assert runs_of(tmp_path) == []


def test_a_join_of_the_hot_key_spills(rows, session):
    """Both sides have it: the right's rows of one key are more than a task may hold."""
    left = rows.filter("n % 50000 = 7")
    right = rows.select("k", "n").rename(m="n").filter("m % 4 = 3")
    with stages_of(session) as stages:
        check(left.join(right, on="k"), session)
    assert sum(stage.memoryBytesSpilled() + stage.diskBytesSpilled() for stage in stages) > 0


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_other_joins_of_the_hot_key(how, rows, session):
    right = rows.select("k", "n").rename(m="n").filter("m % 100000 = 3")
    check(rows.select("k", "n").join(right, on="k", how=how), session)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_memory_does_not_grow_with_the_rows_of_a_key():
    """Of 100 and 400 MB that one key has on one side, each is written three times."""
    few, many = asked(1_000_000), asked(4_000_000)
    assert (few["rows"], many["rows"]) == (LEFT * 1_000_000, LEFT * 4_000_000)
    for process in ("python", "driver"):
        assert many[process] < 300 << 20
        assert many[process] < 1.2 * few[process]
    assert many["jvm"] < 1.2 * few["jvm"]
