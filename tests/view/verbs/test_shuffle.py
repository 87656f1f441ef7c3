"""The order of a shuffle."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import divided, serial


@pytest.mark.contract("view:C84")
@pytest.mark.contract("view:C85")
def test_a_shuffle_is_a_permutation_that_only_the_seed_decides():
    view = tl.View(divided(pa.table({"n": range(500)}), 100, 399, 1))
    once, again, other = (serial(view.shuffle(seed)) for seed in (3, 3, 4))
    assert once == again != other
    assert sorted(once, key=lambda row: row[1]) == serial(view)
    assert serial(view, seed=3) == once
    assert serial(tl.View.range(500), seed=3) == once  # a row's place depends on its id, not on its source
    moved = sum(abs(place - row[1][0]) for place, row in enumerate(once)) / 500
    assert 130 < moved < 205  # a third of the rows, on average


def test_fewer_rows_keep_their_order_among_each_other():
    few = [row[1][0] for row in serial(tl.View.range(100).shuffle(1))]
    many = [row[1][0] for row in serial(tl.View.range(1_000).shuffle(1))]
    assert [n for n in many if n < 100] == few
