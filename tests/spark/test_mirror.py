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


def mirrored(spark, folder):
    """Run the recipe, as a job that starts anew each time; the JVM of the suite has a folder of its own."""
    names = {"spark": spark}
    text = re.sub(r'"(shop|mirror|checkpoints)\b', lambda path: f'"{folder.as_posix()}/{path[1]}', RECIPE[1])
    exec(compile(text, "keyed.md", "exec"), names)
    return sorted(tuple(row) for row in spark.table("stock").select("id", "item", "n").collect())


@pytest.fixture
def stock(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as ws:
        yield ws.create("stock", merge=tl.merge.upsert("id"))


def test_the_mirror_follows_inserts_updates_deletes_and_reverts(spark, stock, tmp_path):
    def rows():
        return [tuple(row.values()) for row in stock.view().to_arrow().to_pylist()]

    first = stock.append([{"id": 1, "item": "pen", "n": 5}, {"id": 2, "item": "ink", "n": 3}])
    assert mirrored(spark, tmp_path) == rows() == [(1, "pen", 5), (2, "ink", 3)]
    stock.append(pa.table({"id": [2, 3], "n": [4, 9]}))
    stock.append([{"id": 1, "op": 1}])
    assert mirrored(spark, tmp_path) == rows() == [(2, "ink", 4), (3, None, 9)]
    stock.revert(to=first)
    assert mirrored(spark, tmp_path) == rows() == [(1, "pen", 5), (2, "ink", 3)]
    assert mirrored(spark, tmp_path) == rows(), "nothing new changes nothing"
