"""Work in the tasks of a cluster, an executor killed in the middle of each: the blocks of this process.

One cluster and one driver go through all chapters (`tasks_story.py`); here their findings are looked at.
"""

from __future__ import annotations

import pytest

from tests.spark.deaths import APPENDS, FRAMES, STREAMS
from tests.spark.passing import FILES, OPENED, ROWS, WRITTEN

pytestmark = [pytest.mark.jvm, pytest.mark.sampled, pytest.mark.timeout(900)]


@pytest.fixture
def told(deaths):
    """What the chapters found."""
    return deaths["tasks"]


@pytest.mark.contract("exchange:E8")
@pytest.mark.parametrize("name", [*APPENDS, *STREAMS])
def test_an_executor_dies_while_rows_come_in(name, told):
    found = told[name]
    assert "error" not in found, found["error"]
    assert found["killed"], "it was to lose an executor"
    here, there = found["heads"]
    assert here == there
    assert found["ok"]
    assert [found["passed"].get(what, 0) for what in (FILES, ROWS, WRITTEN)] == [0, 0, 0]


@pytest.mark.contract("exchange:E2")
@pytest.mark.contract("exchange:E8")
@pytest.mark.parametrize("name", FRAMES)
def test_an_executor_dies_while_a_view_of_a_frame_comes_in(name, told):
    found = told[name]
    assert "error" not in found, found["error"]
    assert found["killed"]
    assert found["hashes"] == found["expected"]
    assert found["ok"]
    assert [found["passed"].get(what, 0) for what in (FILES, ROWS, WRITTEN)] == [0, 0, 0]
    assert found["rows"] > 50_000
    # A number for each row would be more than what tasks told the driver.
    assert found["sent"] < 8 * found["rows"]


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V26")
@pytest.mark.contract("exchange:E8")
def test_an_executor_dies_while_a_derived_dataset_follows(told):
    found = told["derived"]
    assert "error" not in found, found["error"]
    assert found["killed"]
    assert found["strategies"] == 2 * [["recompute", "first"], ["keyed", ""]]
    few, many = found["heads"]
    assert few == many
    assert found["ok"], "replayed by other tasks than it was computed by"
    assert found["rows"] == [41, 60_000]
    assert found["driver bytes"] == 0
    assert found["passed"].get(ROWS, 0) == 0


@pytest.mark.contract("exchange:E8")
def test_an_executor_dies_while_files_are_verified(told):
    found = told["verify"]
    assert "error" not in found, found["error"]
    assert found["killed"]
    assert found["same"]
    assert found["passed"].get(OPENED, 0) == 0


@pytest.mark.contract("exchange:E8")
def test_executors_die_while_data_is_sent_and_fetched(told):
    found = told["clone_and_push"]
    assert "error" not in found, found["error"]
    assert found["killed"]
    assert found["killed too"]
    here, there = found["heads"]
    assert here == there
    assert found["ok"]
    assert found["objects"] == 3
    assert [found["passed"].get(what, 0) for what in (OPENED, WRITTEN)] == [0, 0]


def test_every_one_of_them_was_another_executor(told):
    killed = [found["killed"] for found in told.values()] + [told["clone_and_push"]["killed too"]]
    assert len(set(killed)) == len(killed)
