"""The recipe of docs/keyed.md that mirrors a keyed dataset, run as it is written there."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT

RECIPE = re.search(
    r"^## Mirror it.*?^```text\n(.*?)^```$",
    (ROOT / "docs" / "keyed.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def mirrored(spark):
    """Run the recipe, as a job that starts anew each time."""
    names = {"spark": spark}
    exec(compile(RECIPE[1], "keyed.md", "exec"), names)
    return sorted(tuple(row) for row in spark.table("stock").select("id", "item", "n").collect())


@pytest.fixture
def stock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tl.open("shop", create=True) as ws:
        yield ws.create("stock", merge=tl.merge.upsert("id"))


def test_the_mirror_follows_inserts_updates_deletes_and_reverts(spark, stock):
    def rows():
        return [tuple(row.values()) for row in stock.view().to_arrow().to_pylist()]

    first = stock.append([{"id": 1, "item": "pen", "n": 5}, {"id": 2, "item": "ink", "n": 3}])
    assert mirrored(spark) == rows() == [(1, "pen", 5), (2, "ink", 3)]
    stock.append(pa.table({"id": [2, 3], "n": [4, 9]}))
    stock.append([{"id": 1, "op": 1}])
    assert mirrored(spark) == rows() == [(2, "ink", 4), (3, None, 9)]
    stock.revert(to=first)
    assert mirrored(spark) == rows() == [(1, "pen", 5), (2, "ink", 3)]
    assert mirrored(spark) == rows(), "nothing new changes nothing"
