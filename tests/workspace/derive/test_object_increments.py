"""Datasets derived in an object store follow by the increment: what is kept goes through its scratch."""

from __future__ import annotations

import random

import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from tests.spark.passing import ROWS, passing
from tests.workspace.derive.histories import QUERIES, begin, rows
from tests.workspace.derive.test_large_increments import advanced  # noqa: F401 (a fixture)
from trueline.dataset.append import merge as merging
from trueline.workspace.derive.strategies import increment

NAME = "kept_values"


@pytest.fixture
def lake(tmp_path, spark, monkeypatch):
    for name in ("CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    with serving() as server, tl.open("s3://bucket/lake", create=True, spark=spark, **server.options) as ws:
        ws.server = server
        yield ws


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V26")
def test_it_follows_there_in_this_process_and_in_tasks(lake, advanced, monkeypatch):  # noqa: F811
    random_ = random.Random(5)
    dataset = begin(lake, tl.merge.upsert("id"))
    text, key = QUERIES[NAME]
    lake.derive(NAME, sql=text, key=key)
    for number, expected in enumerate([("recompute", "first"), ("keyed", ""), ("keyed", "")]):
        dataset.append(rows(random_, list(range(6 * number, 6 * number + 12))))
        if number == 2:
            monkeypatch.setattr(increment, "DRIVER_BYTES", 1)
            monkeypatch.setattr(merging, "FEW_ROWS", 0)
        with passing() as passed:
            lake.pull()
        done = advanced[NAME]
        assert (done.strategy, done.reason) == expected
    assert done.driver_bytes == passed[ROWS] == 0
    # Computed from the beginning it is the same, bit for bit.
    assert lake.verify(NAME, replay="head").ok
    assert [name for name in lake.server.objects if "/private/scratch/" in name] == []
