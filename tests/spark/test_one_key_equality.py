"""Keys are equal by one rule in views here and on Spark, in SQL and in datasets that merge (exchange:E5).

Null is a group and never a partner, NaN equals NaN whatever its bits, 0.0 equals -0.0, text compares by code
point: no case, no composition, no collation.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trueline as tl
from trueline.errors import InputError

pytestmark = pytest.mark.contract("exchange:E5")
NANS = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000123], np.uint64).view(np.float64)
# Of two texts in one line neither collation nor composition nor UTF-16 may make one, or change the order.
TEXTS = ["a", "A", "é", "e\u0301", "", " ", "a\x00", "\uffff", "😀", "ß", "ss", None, "a", "e\u0301", None]
KEYS = {
    "float64": pa.array([0.0, -0.0, *NANS, None, 1.0, math.inf, -math.inf, None, 5e-324, -0.0], pa.float64()),
    "float32": pa.array(
        np.array([0, 1 << 31, 0x7FC00000, 0x7FC00001, 0xFFC00123, 0x3F800000], np.uint32).view(np.float32)
    ),
    "text": pa.array(TEXTS),
    "int64": pa.array([0, -1, 2**63 - 1, None, -(2**63), 0, None]),
}


def same(value):
    """What a key is the same as."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def table(kind: str) -> pa.Table:
    keys = KEYS[kind]
    return pa.table({"k": keys, "n": np.arange(len(keys))})


def values(kind: str) -> list[object]:
    return list(map(same, KEYS[kind].to_pylist()))


def groups(kind: str) -> dict[object, list[int]]:
    """The rows of each key, by a dictionary."""
    found: dict[object, list[int]] = {}
    for number, value in enumerate(values(kind)):
        found.setdefault(value, []).append(number)
    return found


def pairs(kind: str) -> set[tuple[int, int]]:
    """The rows that are partners of each other."""
    keys = list(enumerate(values(kind)))
    return {(x, y) for x, one in keys for y, other in keys if one == other and one is not None}


@pytest.fixture
def workspace(spark, tmp_path):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        yield ws


@pytest.fixture(params=["here", "on Spark"])
def engine(request, spark):
    """Where views are computed."""
    return (lambda view: view) if request.param == "here" else lambda view: view.on_spark(spark)


@pytest.mark.parametrize("kind", KEYS)
def test_groups_of_views(kind, engine):
    view = engine(tl.View.from_arrow(table(kind)))
    found = view.group_by("k").agg(rows="collect(n)").to_arrow()["rows"].to_pylist()
    assert found == list(groups(kind).values())
    firsts = view.distinct("k").to_arrow()["n"].to_pylist()
    assert firsts == [rows[0] for rows in groups(kind).values()]
    numbers = view.window(by="k", count="row_number()").to_arrow()["count"].to_pylist()
    assert Counter(numbers) == Counter(p + 1 for rows in groups(kind).values() for p in range(len(rows)))


@pytest.mark.parametrize("kind", KEYS)
def test_joins_of_views(kind, engine):
    view = engine(tl.View.from_arrow(table(kind)))
    other = tl.View.from_arrow(table(kind)).rename(m="n")
    found = view.join(other, on="k").to_arrow()
    assert set(zip(found["n"].to_pylist(), found["m"].to_pylist(), strict=True)) == pairs(kind)
    assert found.num_rows == len(pairs(kind))
    alone = view.join(other, on="k", how="anti").to_arrow()["n"].to_pylist()
    assert alone == [number for number, value in enumerate(values(kind)) if value is None]


@pytest.mark.parametrize("kind", KEYS)
def test_queries(kind, workspace):
    workspace.create("x").append(table(kind))
    grouped = workspace.sql("select sort_array(collect_list(n)) r from x group by k").to_arrow()
    assert sorted(grouped["r"].to_pylist()) == sorted(groups(kind).values())
    assert workspace.sql("select count(*) c from (select distinct k from x)").to_arrow()["c"][
        0
    ].as_py() == len(groups(kind))
    joined = workspace.sql("select a.n, b.n m from x a join x b on a.k = b.k").to_arrow()
    assert set(zip(joined["n"].to_pylist(), joined["m"].to_pylist(), strict=True)) == pairs(kind)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("given", ["a table", "a frame"])
def test_keys_that_datasets_merge_by(kind, given, workspace, spark):
    """The last row of each key counts; a key that is null is refused."""
    ds = workspace.create("x", merge=tl.merge.upsert("k"))
    rows = table(kind)
    if rows["k"].null_count:
        with pytest.raises(InputError, match="null in the key"):
            ds.append(rows)
        rows = rows.filter(pc.field("k").is_valid())
    ds.append(rows if given == "a table" else spark.createDataFrame(rows))
    found = {same(row["k"]): row["n"] for row in ds.view().to_arrow().to_pylist()}
    assert found == {key: numbers[-1] for key, numbers in groups(kind).items() if key is not None}
    assert ds.view().count() == len(found)


def test_text_is_ordered_by_code_points_everywhere(workspace, spark):
    texts = [text for text in TEXTS if text is not None]
    expected = sorted(texts)
    assert expected.index("\uffff") < expected.index("😀"), "by UTF-16 it is the other way round"
    view = tl.View.from_arrow(pa.table({"k": texts})).sort("k")
    assert view.to_arrow()["k"].to_pylist() == expected
    assert view.on_spark(spark).to_arrow()["k"].to_pylist() == expected
    workspace.create("x").append(pa.table({"k": texts}))
    assert workspace.sql("select k from x order by k").to_arrow()["k"].to_pylist() == expected


@pytest.mark.parametrize("strategy", [tl.merge.upsert("k"), tl.merge.snapshot("k")], ids=str)
def test_that_a_value_changed_is_seen_bit_by_bit(strategy, workspace):
    """A key of the other zero is the same row; a value of the other zero is another value."""
    ds = workspace.create("x", merge=strategy)
    ds.append(pa.table({"k": [0.0, 1.0], "v": [0.0, 2.0]}))
    before = ds.changes().count()
    ds.append(pa.table({"k": [-0.0, 1.0], "v": [-0.0, 2.0]}))
    assert ds.view().count() == 2
    assert ds.changes().count() - before == 2, "one row before and after, the other is as it was"
