"""Partial sums: exact in any order and cut, taken back exactly, one form for equal sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.errors import CorruptionError
from trueline.kernel import limbs as partial_sums
from trueline.kernel.limbs import LIMB, TYPE, PartialSums

NASTY = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2e-308,
    1e-300,
    1e16,
    -1e16,
    1.0,
    0.1,
    1e308,
    -1e308,
    1.7e308,
    2.0**-1022,
]
floats = st.floats(width=64) | st.sampled_from(NASTY)


def whole(sums):
    """Totals of whole numbers, however large."""
    totals, unit = sums.in_units()
    return [total << unit for total in totals]


def expected(values):
    if any(map(math.isnan, values)) or {math.inf, -math.inf} <= set(values):
        return math.nan
    for infinity in (math.inf, -math.inf):
        if infinity in values:
            return infinity
    total = sum((Fraction(value) for value in values), Fraction(0))
    try:
        return float(total) + 0.0
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def of(rows, groups=4):
    return PartialSums.of_floats(
        np.array([value for _, value in rows], np.float64), np.array([g for g, _ in rows], np.int64), groups
    )


def same(found, wanted):
    assert [x.hex() if not math.isnan(x) else "nan" for x in found] == [
        x.hex() if not math.isnan(x) else "nan" for x in wanted
    ]


rows = st.lists(st.tuples(st.integers(0, 3), floats), max_size=40)


@given(rows)
def test_totals_are_the_exact_sums_rounded_once(given_rows):
    same(of(given_rows).as_floats(), [expected([v for g, v in given_rows if g == k]) for k in range(4)])


@given(rows, rows, rows)
def test_cutting_merging_and_taking_back_change_no_bit(one, two, gone):
    whole = of(one + two)
    assert (of(one) + of(two)).to_arrow().equals(whole.to_arrow())
    assert (of(two + gone) + of(one) - of(gone)).to_arrow().equals(whole.to_arrow())
    assert (of(gone) + whole - of(gone)).to_arrow().equals(whole.to_arrow())


@given(rows)
def test_arrow_carries_them_and_equal_sums_have_equal_bytes(given_rows):
    found = of(given_rows).to_arrow()
    found.validate(full=True)
    assert found.type.equals(TYPE)
    again = PartialSums.from_arrow(found)
    assert again.to_arrow().equals(found)
    same(again.as_floats(), of(given_rows).as_floats())
    assert of(given_rows[::-1]).to_arrow().equals(found)


@given(rows, st.permutations(range(4)))
def test_groups_may_have_other_numbers_in_each_part(given_rows, numbers):
    moved = PartialSums.combined([(of(given_rows), np.array(numbers), 1)], 6)
    totals = of(given_rows).as_floats()
    same(moved.as_floats()[np.array(numbers)], totals)
    assert moved.groups == 6


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**63), 2**63 - 1)), max_size=30))
def test_whole_numbers_are_added_without_a_bound(given_rows):
    values = np.array([v for _, v in given_rows], np.int64)
    found = PartialSums.of_integers(values, np.array([g for g, _ in given_rows], np.int64), 3)
    wanted = [sum(v for g, v in given_rows if g == k) for k in range(3)]
    assert whole(found) == wanted
    assert whole(found + found - found) == wanted
    assert whole(PartialSums.from_arrow(found.to_arrow())) == wanted


@pytest.mark.parametrize("kind", ["u8", "i4", "u4", "i1"])
def test_every_width_of_whole_numbers_is_taken(kind):
    info = np.iinfo(kind)
    values = np.array([info.max, info.max, info.min, 1], kind)
    found = PartialSums.of_integers(values, np.array([0, 0, 0, 1]), 2)
    assert whole(found) == [2 * info.max + info.min, 1]


def test_limbs_are_carried_before_they_overflow(monkeypatch):
    monkeypatch.setattr(partial_sums, "ROWS_BEFORE_CARRY", 64)
    biggest = np.full(63, math.nextafter(2.0**53, 0) * 2.0**-40)
    part = PartialSums.of_floats(biggest, np.zeros(63, np.int64), 1)
    total = PartialSums.nothing(1)
    for _ in range(50):
        total = total + part
        assert np.abs(total.limb).max(initial=0) < 130 * 2**33
    same(total.as_floats(), [expected([biggest[0]] * 63 * 50)])


def test_many_groups_are_summed_sparsely():
    values = np.random.default_rng(1).normal(size=1000)
    group = np.arange(1000) * 1000
    found = PartialSums.of_floats(values, group, 1_000_000)
    assert len(found.limb) <= 3000
    assert found.as_floats()[group].tolist() == values.tolist()
    assert found.carried().as_floats()[group].tolist() == values.tolist()


def one(place=0, limb=1, **counts):
    row = {"count": 1, "nan": 0, "up": 0, "down": 0, "limbs": [{"place": place, "limb": limb}]} | counts
    return pa.array([row], TYPE)


@pytest.mark.parametrize(
    "array",
    [
        one(place=34),
        one(place=-35),
        one(limb=0),
        one(limb=2**32),
        one(limb=-(2**62)),
        one(limbs=[{"place": 1, "limb": 1}, {"place": 0, "limb": 1}]),
        one(limbs=[{"place": 0, "limb": 1}, {"place": 0, "limb": 1}]),
        pa.array([1, 2]),
        pa.array([None], TYPE),
        pa.array([{"place": 0, "limb": 1}], LIMB),
    ],
    ids=lambda array: str(array.type)[:12],
)
def test_what_is_no_partial_sum_is_refused(array):
    with pytest.raises(CorruptionError):
        PartialSums.from_arrow(array)
