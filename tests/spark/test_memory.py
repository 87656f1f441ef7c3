"""A frame ten times as large as its driver's memory, on a cluster; test_cluster.py has a smaller one."""

from __future__ import annotations

import pytest

from tests.spark.cluster import cluster, tell


def check_that_nothing_passed(found, times):
    """Rows that this process read, wrote or fetched were counted: only what tasks said they had done."""
    assert "error" not in found, found["error"]
    assert found["bytes"] > 0.99 * times * found["driver"]
    assert found["seen"].pop("fetched rows") <= 2 * (found["blocks"] + 8), "one row of each task"
    assert found["seen"].pop("fetched bytes") < 64 << 10
    assert found["seen"] == {}


@pytest.mark.soak
def test_a_frame_ten_times_the_drivers_memory_is_ingested(tmp_path):
    with cluster(tmp_path / "workers") as running:
        chapter = "a_frame_larger_than_the_driver"
        found = tell(running, tmp_path, [chapter], times=10, seconds=1800)
    check_that_nothing_passed(found[chapter], times=10)
