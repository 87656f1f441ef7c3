"""Views side by side: rows, names, and what is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import Counting, agree, divided, numbers, values


@pytest.mark.parametrize("sizes", [((10, 20), (15, 15)), ((30,), (1, 2, 27)), ((7, 23), (5, 4, 3))])
def test_rows_stand_beside_those_of_the_same_number(sizes):
    first, second = (
        tl.View(divided(pa.table({name: range(sum(each))}), *each))
        for name, each in zip("ab", sizes, strict=True)
    )
    shortest = min(sum(each) for each in sizes)
    both = first.zip(second)
    assert values(both, "a", "b") == [(n, n) for n in range(shortest)]
    agree(both)
    uncounted = tl.View(Counting(pa.table({"c": range(12)})))
    assert values(both.zip(uncounted), "a", "c") == [(n, n) for n in range(12)]
    agree(uncounted.zip(both), sets=(3,))


def test_of_a_name_that_repeats_the_last_is_seen():
    view = numbers(3)
    both = view.zip(view.with_columns(n="n * 10"))
    assert values(both, "n") == [0, 10, 20]
    assert both.select(0).to_arrow()["n"].to_pylist() == [0, 1, 2]
    assert both.node.passed(0) == (0, 0)
    assert both.node.passed(2) == (1, 1)


def test_zipping_reads_only_what_is_wanted_and_stops_at_the_shortest():
    long, short = Counting(pa.table({"a": range(1_000), "b": range(1_000)})), numbers(15)
    assert values(tl.View(long).zip(short), "a", "n") == [(n, n) for n in range(15)]
    assert long.cells["a"] <= 30
    assert long.cells["b"] == 0
    assert long.open == 0
