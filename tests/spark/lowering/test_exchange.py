"""Into how many ranges rows are cut, where, and what of them is looked at for it."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.lowering.conftest import BYTES_OF_A_RANGE
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of
from trueline.spark.lowering import exchange
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget

NAN = math.nan


@pytest.fixture(scope="module")
def session(spark):
    """As a cluster has it: in two hundred parts."""
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "200")
    return found


NUMBERS = tl.View.range(1_000_000)
WIDE = NUMBERS.with_columns(s="'a'")
KEYED = tl.View.range(500_000).with_columns(k="n % 100")
FIVE = KEYED.sort("k").with_columns(v="array(n, n, n, n, n)").select("v")


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (NUMBERS.with_columns(m="n % 7"), 1),
        (NUMBERS.with_columns(m="n % 7").sort("m"), 1),
        (tl.View.range(10_000_000).with_columns(m="n % 7").sort("m"), 8),
        # A text is as long as it likes to be; of few rows there are few ranges whatever they are.
        (WIDE, 200),
        (WIDE.sort("s"), 200),
        (NUMBERS.with_columns(v="array(n)"), 200),
        (tl.View.range(1_000).with_columns(s="'a'"), 1),
        # Of these nobody knows how many there are: a guess may be too low, but all cores have work.
        (KEYED.join(KEYED.rename(m="n"), on="k"), 8),
        (KEYED.join(KEYED.rename(m="n"), on="k").filter("n > m").sort("m"), 8),
        (FIVE.explode("v"), 8),
        (KEYED.sort("k").sample(100.0, seed=1, replace=True), 8),
        (tl.View.range(40_000_000).with_columns(k="n % 7").join(KEYED.rename(m="n"), on="k"), 34),
        # No more than there were.
        (KEYED.join(KEYED.filter("n < 9"), on="k", how="semi"), 1),
        (KEYED.sort("k").sample(0.5, seed=1), 1),
    ],
)
def test_wide_rows_and_rows_that_nobody_counted_are_not_put_in_order_by_one_task(
    view, expected, session, monkeypatch
):
    monkeypatch.setattr(exchange, "_BYTES_OF_A_RANGE", BYTES_OF_A_RANGE)
    target = LoweringTarget(session)
    assert exchange.parts_of(target.lower(view.node, everything(view)), target) == expected


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ([(1, 5), (2, 5)], [(1,), (2,)]),
        ([(1, 5), (1, 6)], [(1, 5), (1, 6)]),
        ([(NAN, 1), (math.inf - math.inf, 2)], [(NAN, 1), (NAN, 2)]),
        ([(1.0, 1), (NAN, 2)], [(1.0,), (NAN,)]),
        ([(1, None), (1, None), (2, 3)], [(1, None), (2, 3)]),
        ([(NAN, 1), (float("nan"), 1)], [(NAN, 1)]),
        ([], []),
    ],
)
def test_cuts_are_told_apart_by_their_values(cuts, expected):
    assert list(map(repr, exchange.told_apart(cuts))) == list(map(repr, expected))


def written(folder, groups):
    """Return the same rows in so many pieces, with keys that begin alike and are long."""
    rows = 6_400
    keys = np.random.default_rng(3).permutation(rows)
    made = pa.table({"s": [f"{key:06}" * 400 for key in keys], "n": range(rows)})
    pq.write_table(made, folder / f"{groups}.parquet", row_group_size=rows // groups)
    return tl.View.read_parquet(str(folder / f"{groups}.parquet"))


@pytest.mark.contract("exchange:E2")
def test_what_is_looked_at_passes_the_driver_in_few_bytes_whatever_the_pieces(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "_BYTES_OF_SAMPLES", 64 << 10)
    run, seen = exchange.run, []

    def noted(engine, action, *, label):
        found = run(engine, action, label=label)
        seen.append((label, found.num_rows, found.nbytes))
        return found

    monkeypatch.setattr(exchange, "run", noted)
    for groups in (4, 64):
        view = written(tmp_path, groups).sort("s")
        found = rows_of(delivered(view.node, everything(view), spark))
        assert difference(in_process(view), found, view) == ""
    assert [label for label, _, _ in seen] == ["choosing ranges"] * 2
    assert seen[0] == seen[1]
    assert seen[0][2] < 80 << 10
