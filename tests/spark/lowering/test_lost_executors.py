"""Executors are killed in the middle of every exchange, and tasks run twice: nothing changes (exchange:E8).

One cluster and one driver for all views (`lost_executors.py`); here what it found is looked at.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spark.deaths import APPENDED, DUPLICATED, DYING, EXCHANGES, told

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
# These exchange as one of those does: every death costs the start of a JVM, so `make soak` looks at them.
MORE = ("group", "window by a key", "shuffle", "as of, full", "row numbers", "zip", "skip")
# What Spark adds up, pairs of rows without keys, groups of tasks that read slices, joins of keys and places.
FURTHER = ("groups by sums", "join, cross", "groups by tasks", "join in order")
MORE_APPENDED = ["append/reading", "append/tasks"]
PLACES = ("reading", "exchanged", "ranges")
EVERYWHERE = [f"{view}/{place}" for view in (*EXCHANGES, *MORE, *FURTHER) for place in PLACES]


@pytest.fixture
def found(deaths):
    return deaths["views"]


def check(found, place=None):
    assert "error" not in found, found["error"]
    assert found["differs"] == ""
    if place is not None:
        assert found["killed"] == [place]


@pytest.mark.contract("exchange:E8", "exchange:E1")
@pytest.mark.parametrize("chapter", DYING)
def test_an_executor_dies_in_an_exchange(chapter, found):
    check(found[chapter], chapter.partition("/")[2])


@pytest.mark.contract("exchange:E8")
@pytest.mark.parametrize("chapter", APPENDED)
def test_an_executor_dies_while_a_view_is_appended(chapter, found):
    check(found[chapter], chapter.partition("/")[2])


@pytest.mark.contract("exchange:E8")
def test_a_speculative_duplicate_changes_nothing(found):
    check(found[DUPLICATED])
    assert found[DUPLICATED]["duplicated"]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_an_executor_dies_at_every_place_of_every_exchange(tmp_path):
    found = told(tmp_path, views=[*EVERYWHERE, *MORE_APPENDED])["views"]
    for chapter in MORE_APPENDED:
        check(found[chapter], chapter.partition("/")[2])
    died = Counter()
    for chapter in EVERYWHERE:
        check(found[chapter])
        died[chapter.partition("/")[0]] += len(found[chapter]["killed"])
    # A view has one exchange or more; not every one has work of Python on both sides of it.
    assert died.total() >= 2 * len({*EXCHANGES, *MORE, *FURTHER})
    assert {*died.elements()} == {*EXCHANGES, *MORE, *FURTHER}
