"""Samples, splits and folds: disjoint, complete, stable under new rows, the same however rows are read."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import factorial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.view.verbs.reading import agree, divided, ids, values
from tests.view.verbs.test_table import written_hash
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId
from trueline.view.plan.sample import HashChoice
from trueline.view.plan.sample import _poisson as poisson

ROWS = 2_000


@pytest.fixture
def view():
    return tl.View(
        divided(pa.table({"n": range(ROWS), "k": [f"key {n % 50}" for n in range(ROWS)]}), 700, 1_300)
    )


@pytest.mark.parametrize("fractions", [(0.8, 0.2), (0.1, 0.0, 0.9), (1 / 3, 1 / 3, 1 / 3), (1.0,)])
@pytest.mark.parametrize("by", [None, "k", ["k", "n"]])
def test_parts_are_disjoint_and_complete(view, fractions, by):
    parts = [values(part, "n") for part in view.split(fractions, seed=3, by=by)]
    assert sorted(n for part in parts for n in part) == list(range(ROWS))
    assert all(part == sorted(part) for part in parts)
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) / ROWS - fraction) < (0.05 if by != "k" else 0.25)


@given(st.lists(st.integers(0, 10), min_size=1, max_size=6).filter(any), st.integers(0, 2**64 - 1))
def test_every_hash_is_in_exactly_one_part(weights, word):
    shares = [weight / sum(weights) for weight in weights]
    parts = tl.View.range(1).split(shares)
    choices = [part.node.choice for part in parts]
    edges = {word, 0, 2**64 - 1} | {edge for each in choices for edge in (each.low, each.high - 1, each.high)}
    hashes = np.array([edge for edge in edges if 0 <= edge < 2**64], np.uint64)
    assert sum(choice.times(hashes) for choice in choices).tolist() == [1] * len(hashes)


def test_equal_keys_stay_together_whatever_the_width_of_their_type():
    whole = pa.array([n % 20 for n in range(100)], pa.int64())
    parts = {}
    for kind in (pa.int64(), pa.int8(), pa.uint16()):
        for place, part in enumerate(tl.View.from_arrow(pa.table({"k": whole.cast(kind)})).split(by="k")):
            for key in values(part, "k"):
                assert parts.setdefault(key, place) == place
    assert set(parts.values()) == {0, 1}


def test_a_row_stays_in_its_part_when_rows_are_added(view):
    fewer, more = tl.View.range(500), tl.View.range(5_000)
    for old, new in zip(fewer.split(), more.split(), strict=True):
        assert values(old, "n") == [n for n in values(new, "n") if n < 500]
    for (_, old), (_, new) in zip(fewer.folds(4), more.folds(4), strict=True):
        assert values(old, "n") == [n for n in values(new, "n") if n < 500]


def test_each_row_is_in_the_test_part_of_one_fold(view):
    tests = []
    for train, test in view.folds(5, seed=2):
        assert sorted(values(train, "n") + values(test, "n")) == list(range(ROWS))
        tests += values(test, "n")
    assert sorted(tests) == list(range(ROWS))
    for train, test in view.folds(3, by="k"):
        assert not set(values(train, "k")) & set(values(test, "k"))


@pytest.mark.contract("view:C27")
def test_rows_are_chosen_by_the_hash_that_is_written_down():
    view = tl.View.range(300)
    chosen = [n for n in range(300) if written_hash("sample/0", 9, n) < round(0.25 * 2**64)]
    assert values(view.sample(0.25, seed=9), "n") == chosen
    test = [n for n in range(300) if written_hash("split/0", 1, n) >= round((1 - 0.5) * 2**64)]
    assert values(view.split((0.5, 0.5), seed=1)[1], "n") == test


def test_a_choice_among_chosen_rows_is_one(view):
    again = view.split()[0].split()[1]
    assert 0.1 < again.count() / ROWS < 0.22
    twice = view.sample(0.5).sample(0.5)
    assert 0.2 < twice.count() / ROWS < 0.3
    through = view.sample(0.5).sort("n").with_columns(y="n + 1").sample(0.5)
    assert values(through, "n") == values(twice, "n")


def test_names_give_parts_by_name(view):
    parts = view.split({"train": 0.5, "test": 0.5})
    assert list(parts) == ["train", "test"]
    assert ids(parts["train"]) == ids(view.split((0.5, 0.5))[0])


def test_drawing_with_replacement_gives_each_draw_an_id(view):
    drawn = view.sample(2.0, seed=4, replace=True)
    rows = agree(drawn, sets=(3,))
    assert abs(len(rows) / ROWS - 2) < 0.15
    assert {row[0] for row in rows[:1]} <= {RowId(n).combine(RowId(0)) for n in range(9)}
    agree(drawn.sample(1.5, replace=True).limit(500), sets=(2,))


def test_the_limits_of_poisson_are_exact_and_the_same_everywhere():
    for mean in (Fraction(1), Fraction(5, 2)):
        none = sum((-mean) ** n / Fraction(factorial(n)) for n in range(120))  # e to the power of -mean
        below = accumulate(none * mean**k / factorial(k) for k in range(12))
        assert poisson(mean)[:12] == tuple(int(share * 2**64) for share in below)
    assert poisson(Fraction(0)) == ()
    assert len(poisson(Fraction(1_000))) < 1_500
    assert list(poisson(Fraction(7))) == sorted(poisson(Fraction(7)))


def test_nothing_is_read_where_nothing_can_be_chosen():
    source = divided(pa.table({"n": range(10)}), 10)
    assert tl.View(source).sample(0).to_arrow().num_rows == 0
    assert source.opened == 0
    assert HashChoice.is_none.fget(tl.View(source).split((1.0, 0.0))[1].node.choice)


def test_what_is_no_fraction_is_refused(view):
    for wrong in (1.5, -0.1, float("nan"), float("inf"), "half", True, None):
        with pytest.raises(InputError):
            view.sample(wrong)
    with pytest.raises(InputError):
        view.sample(2_000, replace=True)
    for wrong in ((0.5, 0.4), (), (1.5, -0.5), {"a": 0.9}):
        with pytest.raises(InputError, match="add up to 1"):
            view.split(wrong)
    for wrong in (1, 2.0, True):
        with pytest.raises(InputError):
            view.folds(wrong)
    for seed in (1.5, True, "a"):
        with pytest.raises(InputError, match="whole number"):
            view.split(seed=seed)
        with pytest.raises(InputError, match="whole number"):
            view.shuffle(seed)
    with pytest.raises(SchemaError, match="no column 'q'"):
        view.split(by="q")
