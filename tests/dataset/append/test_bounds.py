"""What an ingest may cost: memory for a part of the rows, no work for the history, few syncs, no litter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT
from tests.dataset.append.test_faults import check_state, leftovers, write
from tests.examples import examples, some
from tests.faults import WatchedFiles
from tests.workspace.records import records
from trueline.chain.store import file as file_store
from trueline.dataset.append import files

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src"), "ARROW_DEFAULT_MEMORY_POOL": "system"}

# Writes a CSV file of so many rows, ingests it, and says how much memory Arrow held at most.
INGEST = """
import json, resource, sys
from pathlib import Path
path, merge, rows, limit, shrunk = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit << 20, limit << 20))
import pyarrow as pa, trueline as tl
from trueline.dataset.append import append as committing, merge as merging, pieces
from trueline.kernel import sorted_runs
if shrunk:
    committing.ROWS_OF_A_SLICE = merging.ROWS_AT_ONCE = shrunk
    pieces.cut.__defaults__ = (shrunk,)
    sorted_runs.ROWS_OF_A_GROUP = shrunk // 64  # as it is to the rows of a run that is not shrunk
with open(path / "a.csv", "w") as file:
    file.write("id,city,price,note\\n")
    for start in range(0, rows, 10_000):
        file.writelines(
            f"{n * 7919 % 1_000_003},city {n % 1000},{n / 7},some text that takes place {n}\\n"
            for n in range(start, start + 10_000)
        )
with tl.open(path / "ws", create=True) as ws:
    ws.config.set("storage.durable", False)
    key = () if merge == "append" else ("id",)
    ds = ws.create("x", merge=getattr(tl.merge, merge)(*key))
    commit = ds.append(path / "a.csv")
    size = (path / "a.csv").stat().st_size
    print(json.dumps([commit.rows, len(commit.blocks), pa.default_memory_pool().max_memory(), size]))
"""


def ingested(path, merge, rows, limit=0, shrunk=0):
    path.mkdir()
    command = [sys.executable, "-c", INGEST, str(path), merge, str(rows), str(limit), str(shrunk)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.sampled
@pytest.mark.parametrize("merge", some(["append", "ledger", "snapshot", "upsert"], 2))
def test_memory_does_not_grow_with_the_file(tmp_path, merge):
    """Twice the rows, through slices and sorted runs of 20,000."""
    shrunk, slices = 20_000, 20
    _, _, small, _ = ingested(tmp_path / "small", merge, shrunk * slices // 2, shrunk=shrunk)
    rows, blocks, large, _ = ingested(tmp_path / "large", merge, shrunk * slices, shrunk=shrunk)
    assert (rows, blocks) == (shrunk * slices, slices + 1)
    assert large < 1.25 * small


@pytest.mark.soak
@pytest.mark.parametrize("merge", ["append", "upsert", "ledger"])
def test_300_megabytes_go_through_a_process_that_may_have_1500_of_address_space(tmp_path, merge):
    *_, size = ingested(tmp_path / "x", merge, 5_000_000, limit=1500)
    assert size > 300_000_000


# --- the history does not matter --------------------------------------------------------


def operations(path, monkeypatch, table):
    """What a small append does to the disk, in a workspace that was just opened."""
    with monkeypatch.context() as patched:
        watched = WatchedFiles()
        patched.setattr(file_store, "Files", lambda: watched)
        with tl.open(path) as ws:
            ds = ws["x"]
            ds.append(table.slice(0, 1))
            watched.forget()
            ds.append(table.slice(1))
            return watched.counts


@pytest.mark.parametrize("merge", ["append", "upsert", "ledger"])
def test_a_small_append_reads_the_same_at_ten_commits_and_at_many(tmp_path, monkeypatch, merge):
    count = examples(80)
    key = () if merge == "append" else ("id",)
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.config.set("storage.durable", False)
        ds = ws.create("x", merge=getattr(tl.merge, merge)(*key))
        ds.append(pa.table({"id": range(1000), "n": [0] * 1000}))

        def grow(until):
            while ds.info.commits < until:
                n = ds.info.commits
                ds.append(pa.table({"id": [n % 1000, n + 1000], "n": [n, n]}))

        grow(10)
        few = operations(tmp_path / "ws", monkeypatch, pa.table({"id": [5001, 5002, 7], "n": [1, 1, 1]}))
        grow(count)
        many = operations(tmp_path / "ws", monkeypatch, pa.table({"id": [6001, 6002, 7], "n": [2, 2, 2]}))
        assert ds.info.commits >= count
        if merge == "upsert":
            check_state(ds)
    if merge == "append":
        assert many == few
    else:
        # The state has at most 32 generations and the base.
        assert many["open"] + many["read"] <= few["open"] + few["read"] + 2 * 33
        assert many["create"] <= few["create"] + 2


@pytest.mark.parametrize(("merge", "most"), [("append", 6), ("upsert", 9), ("ledger", 9)])
def test_a_small_append_syncs_at_most_so_often(tmp_path, monkeypatch, merge, most):
    """Slice, block, head and three folders; with a key the checkpoint, the state's file and their folder."""
    key = () if merge == "append" else ("id",)
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("x", merge=getattr(tl.merge, merge)(*key))
        ds.append(pa.table({"id": range(20_000)}))
    counts = operations(tmp_path / "ws", monkeypatch, pa.table({"id": [1, 20_001, 20_002]}))
    assert 0 < counts["fsync"] + counts["syncfs"] <= most


# --- nothing is left over ---------------------------------------------------------------


@pytest.mark.parametrize("merge", ["append", "upsert", "ledger", "snapshot"])
def test_an_ingest_leaves_only_what_its_commit_names(ws, tmp_path, small, merge):
    key = () if merge == "append" else ("id",)
    ds = ws.create("x", merge=getattr(tl.merge, merge)(*key))
    for number in range(3):
        ids = range(number * 10, number * 10 + 60)
        path = write(tmp_path / f"{number}.csv", "id,n\n" + "".join(f"{n},{number}\n" for n in ids))
        ds.append(path)
    assert leftovers(Path(ws.location), "x") == []
    folder = Path(ws.location) / "datasets" / "x"
    assert ws.gc(older_than=0, dry_run=True).objects == 0
    assert {file.name for file in folder.iterdir()} <= {"blocks", "data", "checkpoints", "refs", "private"}
    assert ds.verify().ok


def test_many_small_files_are_one_commit_and_open_few_files_at_once(ws, tmp_path, small):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    paths = [write(tmp_path / f"{n:04}.csv", f"id,n\n{n},{n}\n") for n in range(400)]
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 100, before[1]))
    try:
        commit = ds.append(paths)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (commit.rows, len(commit.files)) == (400, 400)
    assert records(ds)["id"].to_pylist() == list(range(400))
    listed = ds.chain.block(commit.block).to_bytes()
    assert len(listed) < 400 * (len(str(paths[0])) + files.BYTES_OF_A_NOTE), (
        "the estimate is on the safe side"
    )
    assert ds.append(paths).rows == 0
