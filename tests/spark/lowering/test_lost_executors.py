"""Executors are killed in the middle of every exchange, and tasks run twice: nothing changes (exchange:E8).

One cluster and one driver (`lost_executors.py`) for all views; here what it found is looked at.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spark.cluster import cluster, tell

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
# Each exchange, and where an executor dies: as it reads what is exchanged, on the other side of the
# shuffle, where what it had ready for others dies with it, or as ranges of the order come together.
EXCHANGES = {"sort by two": "ranges", "join, full": "exchanged", "limit": "reading"}
# These exchange as one of those does: every death costs the start of a JVM, so `make soak` looks at them.
MORE = ("group", "window by a key", "shuffle", "as of, full", "row numbers", "zip", "skip")
# What Spark adds up, pairs of rows without keys, groups of tasks that read slices, joins of keys and places.
FURTHER = ("groups by sums", "join, cross", "groups by tasks", "join in order")
CHAPTERS = [f"{view}/{place}" for view, place in EXCHANGES.items()]
# Asked for; `make soak` also has it plainly, and where the session says that tasks do it.
APPENDED = ["append on Spark/ranges"]
MORE_APPENDED = ["append/reading", "append/tasks"]
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    # What is delivered comes by jobs of one task, which have no other to be compared with.
    "spark.speculation.task.duration.threshold": "2s",
}
PLACES = ("reading", "exchanged", "ranges")
EVERYWHERE = [f"{view}/{place}" for view in (*EXCHANGES, *MORE, *FURTHER) for place in PLACES]


# Two machines, as Spark sees them: a duplicate of a task runs on another machine only.
HOSTS = {"a": "127.0.0.1", "b": "127.0.0.2"}


def ran(folder, chapters):
    with cluster(folder / "workers", HOSTS) as running:
        story = "tests.spark.lowering.lost_executors"
        return tell(running, folder, chapters, story=story, conf=SPECULATION, seconds=840)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    chapters = [*CHAPTERS, *APPENDED, "speculation/sort by two"]
    return ran(tmp_path_factory.mktemp("lost"), chapters)


def check(found, place=None):
    assert "error" not in found, found["error"]
    assert found["differs"] == ""
    if place is not None:
        assert found["killed"] == [place]


@pytest.mark.contract("exchange:E8", "exchange:E1")
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_an_executor_dies_in_an_exchange(chapter, found):
    check(found[chapter], chapter.partition("/")[2])


@pytest.mark.contract("exchange:E8")
@pytest.mark.parametrize("chapter", APPENDED)
def test_an_executor_dies_while_a_view_is_appended(chapter, found):
    check(found[chapter], chapter.partition("/")[2])


@pytest.mark.contract("exchange:E8")
def test_a_speculative_duplicate_changes_nothing(found):
    check(found["speculation/sort by two"])
    assert found["speculation/sort by two"]["duplicated"]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_an_executor_dies_at_every_place_of_every_exchange(tmp_path):
    told = ran(tmp_path, [*EVERYWHERE, *MORE_APPENDED])
    for chapter in MORE_APPENDED:
        check(told[chapter], chapter.partition("/")[2])
    died = Counter()
    for chapter in EVERYWHERE:
        check(told[chapter])
        died[chapter.partition("/")[0]] += len(told[chapter]["killed"])
    # A view has one exchange or more; not every one has work of Python on both sides of it.
    assert died.total() >= 2 * len({*EXCHANGES, *MORE, *FURTHER})
    assert {*died.elements()} == {*EXCHANGES, *MORE, *FURTHER}
