"""A real cluster, one master and two workers: workers are killed in the middle, nothing is lost.

One driver goes through all chapters (`cluster_story.py`); here its findings are looked at.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import trueline as tl
from tests.chain.store.small_s3 import KEY, SECRET, serving
from tests.spark import cluster_story
from tests.spark.cluster import Cluster, cluster, tell
from tests.spark.stalling import heard, prepare
from tests.spark.test_memory import check_that_nothing_passed

# A minute where nothing else runs; everything waits for JVMs to start.
pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
KILLED = ("spooling", "writing", "bucket")
# While the large frame goes through, another worker takes the place of the one that died before.
CHAPTERS = (
    "killed_while_spooling",
    "a_frame_larger_than_the_driver",
    "killed_while_writing",
    "killed_while_writing_to_a_bucket",
    "delivered_where_a_folder_is_shared",
    "delivered_where_nothing_is_shared",
)
# No task brings more than a share of its rows to the driver, which takes no more.
RESULTS = {"spark.driver.maxResultSize": "20m"}


@contextmanager
def killing(running: Cluster, folders: list[Path]):
    """Kill the worker of each stalled task in turn; another takes its place, but not that of the last."""
    killed: list[str] = []

    def work() -> None:
        for number, folder in enumerate(folders):
            name = heard(folder)
            if not name:
                return
            if number + 1 < len(folders):
                running.start_worker(f"next-{number}")
            running.kill(name)
            killed.append(name)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        for folder in folders:
            try:
                os.close(os.open(folder / "where", os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                continue
        thread.join(60)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the chapters found, and the folder with everything that was written."""
    folder = tmp_path_factory.mktemp("cluster")
    folders = [prepare(folder / name) for name in KILLED]
    with serving() as server, cluster(folder / "workers") as running, killing(running, folders) as killed:
        bucket = {"bucket": "s3://bucket/lake", "options": server.options}
        found = tell(running, folder, CHAPTERS, conf=RESULTS, times=1.4, **bucket)
        objects = {key: value[0] for key, value in server.objects.items()}
    (folder / "daemons.log").write_text("".join(line for d in running.all for line in d.lines))
    return {"folder": folder, "objects": objects, "killed": killed} | found


@pytest.fixture(scope="module")
def local(spark, tmp_path_factory):
    """The hashes of the same rows, ingested on this machine alone."""
    with (
        pytest.MonkeyPatch.context() as patched,
        tl.open(tmp_path_factory.mktemp("local"), create=True) as ws,
    ):
        cluster_story.same_size_everywhere(patched.setattr)
        return cluster_story.ingest(ws, "x", cluster_story.frame(spark, partitions=3))


def chapter(told, name):
    found = told[name]
    assert "error" not in found, found["error"]
    return found


def test_a_worker_dies_while_a_frame_is_spooled(told, local):
    found = chapter(told, "killed_while_spooling")
    assert found["hashes"] == local
    assert len(local) == 5


def test_a_worker_dies_while_a_slice_is_half_written(told, local):
    found = chapter(told, "killed_while_writing")
    assert found["hashes"] == local
    assert found["ok"]


def test_a_worker_dies_while_a_slice_is_half_sent(told, local):
    found = chapter(told, "killed_while_writing_to_a_bucket")
    assert found["hashes"] == local
    assert found["ok"]
    rows = cluster_story.ROWS
    assert found["rows"] == 0, "the answer is read from the bucket, which all machines see"
    assert found["sql"] == [{"n": rows, "s": rows * (rows - 1) // 2}]


def test_every_one_of_them_was_killed(told):
    assert len(set(told["killed"])) == len(KILLED)


def test_what_the_dead_had_half_done_is_cleared(told):
    """By gc, in a folder; what was half sent to a bucket never was an object."""
    datasets = told["folder"] / "ws" / "datasets"
    assert chapter(told, "killed_while_writing")["left"] == [1, 0]
    assert len(list((datasets / "writing" / "data").iterdir())) == 5
    assert len([key for key in told["objects"] if "/writing/data/" in key]) == 5


def test_a_frame_larger_than_its_memory_goes_past_the_driver(told):
    found = chapter(told, "a_frame_larger_than_the_driver")
    check_that_nothing_passed(found, times=1.4)


@pytest.mark.contract("exchange:E1", "exchange:E2")
def test_rows_are_delivered_in_files_where_a_folder_is_shared(told):
    found = chapter(told, "delivered_where_a_folder_is_shared")
    assert found["differs"] == ""
    assert found["seen"].get("iterated rows", 0) == 0
    # Of 300,000 rows, which have 35 MB: names, counts, and a sample of the order.
    assert 0 < found["bytes"] < 1_000_000
    assert found["read"] == [300_000, 0, 4]
    assert found["written"] == 300_000
    assert found["same file"]
    assert found["bad"] == [4, {"n": 2}, 2]


@pytest.mark.contract("exchange:E1", "exchange:E2")
def test_rows_are_fetched_in_bounded_shares_where_nothing_is_shared(told):
    found = chapter(told, "delivered_where_nothing_is_shared")
    assert found["differs"] == ""
    assert found["seen"]["iterated rows"] > 5
    assert found["bytes"] > 300_000 * 100


def test_keys_are_in_no_log_of_the_cluster(told):
    """Neither driver nor executors nor daemons nor the event log have them, nor anything in the bucket."""
    folder = told["folder"]
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any("stderr" in name for name in texts)
    assert any("events" in name for name in texts)
    texts |= told["objects"]
    for secret in (KEY, SECRET):
        assert [name for name, text in texts.items() if secret.encode() in text] == []
