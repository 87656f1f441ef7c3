"""Reading what the workspace itself has written: every strategy, large commits, an object store."""

from __future__ import annotations

import itertools
import shutil
import threading

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from trueline import merge
from trueline.dataset.append import pieces

_numbers = itertools.count()
BATCHES = [
    [(1, "a"), (2, "b"), (3, "c")],
    [(2, "B"), (4, "d")],
    [(1, "a"), (5, "e"), (2, "b")],
]


def table(rows) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([k for k, _ in rows], pa.int64()),
            "name": pa.array([v for _, v in rows], pa.string()),
        }
    )


def expected(strategy, batches):
    current = {}
    for batch in batches:
        if strategy.NAME == "snapshot":
            current = {}
        current |= {key: value for key, value in batch if strategy.NAME != "ledger" or key not in current}
    return current


@pytest.mark.parametrize(
    "strategy", [merge.ledger("id"), merge.snapshot("id"), merge.upsert("id")], ids=lambda s: s.NAME
)
def test_every_commit_is_read_as_it_was_with_and_without_state(tmp_path, strategy):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("people", merge=strategy)
        commits = [ds.append(table(batch)) for batch in BATCHES]
        for with_state in (True, False):
            if not with_state:
                shutil.rmtree(tmp_path / "ws" / "datasets" / "people" / "checkpoints")
            for number, commit in enumerate(commits):
                wanted = expected(strategy, BATCHES[: number + 1])
                found = {row["id"]: row["name"] for row in ds.view(commit).rows()}
                assert found == wanted
                assert {key: (ds.get(key, commit) or {}).get("name") for key in range(7)} == {
                    key: wanted.get(key) for key in range(7)
                }
            ids = ds.view().to_arrow()["id"].to_pylist()
            assert strategy.NAME == "ledger" or ids == sorted(ids)


def test_the_difference_of_a_dataset_with_a_key(tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("people", merge=merge.snapshot("id"))
        first, *_ = [ds.append(table(batch)) for batch in BATCHES]
        found = [tuple(row.values()) for row in ds.diff(first).rows()]
        assert found == [("delete", 3, "c"), ("insert", 5, "e")]


def test_a_changelog_and_its_retractions(tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("log", merge=merge.changelog("id"))
        ds.append(table([(1, "a"), (2, "b")]).add_column(0, "op", pa.array([0, 0], pa.int32())))
        ds.append(table([(1, "a"), (2, "b"), (2, "c")]).add_column(0, "op", pa.array([1, 2, 3], pa.int32())))
        assert ds.view().to_arrow().to_pylist() == [{"id": 2, "name": "c"}]
        assert ds.changes().to_arrow()["op"].to_pylist() == [
            "insert",
            "insert",
            "delete",
            "update_preimage",
            "update_postimage",
        ]


def test_a_commit_of_several_slices_is_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces.cut, "__defaults__", (100,))
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("big")
        ds.append(pa.table({"x": np.arange(7)}))
        commit = ds.append(pa.table({"x": np.arange(1050)}))
        assert len(commit.blocks) == 11
        assert ds.view().to_arrow()["x"].to_pylist() == [*range(7), *range(1050)]
        assert ds.view().skip(500).limit(3).to_arrow()["x"].to_pylist() == [493, 494, 495]
        with pytest.raises(tl.errors.InputError, match="inside a commit"):
            ds.view(at=commit.blocks[4])


def test_a_workspace_in_an_object_store_is_read_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with tl.open(f"memory://reading-{next(_numbers)}/lake", create=True) as ws:
        ds = ws.create("people", merge=merge.upsert("id"))
        for batch in BATCHES:
            ds.append(table(batch))
        assert {row["id"]: row["name"] for row in ds.view().rows()} == expected(merge.upsert("id"), BATCHES)
        # The state does not know operations: asked for them, the events are read.
        from_events = ds.view(system=True).select("id", "name", "op").to_arrow().drop_columns(["op"])
        assert ds.view().to_arrow() == from_events
        assert ds.get(5) == {"id": 5, "name": "e"}


def test_readers_beside_a_writer_see_whole_commits(tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("trades")
        ds.append(pa.table({"n": [0] * 10}))
        torn, stop = [], threading.Event()

        def read():
            while not stop.is_set():
                view = ds.view()
                values = view.to_arrow()["n"].to_pylist()
                if len(values) % 10 or values != sorted(values) or len(values) != view.count():
                    torn.append(values)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for number in range(1, 40):
            ds.append(pa.table({"n": [number] * 10}))
        stop.set()
        for reader in readers:
            reader.join()
        assert torn == []
        assert ds.view().count() == 400
