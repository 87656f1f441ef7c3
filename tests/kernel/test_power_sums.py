"""Sums and moments from limbs equal those of fractions, bit for bit, for every double."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from trueline import types as t
from trueline.kernel.aggregates import Spans
from trueline.kernel.moments import deviation, variance
from trueline.kernel.power_sums import (
    ESCAPED,
    KINDS,
    exact_product,
    exact_square,
    from_limbs,
    from_values,
    limb_count,
    limbs_of,
    sums_from_limbs,
)


def numbers(seed, ordinary):
    """Return doubles that cancel, of all sizes or of those that moments have limbs for."""
    random = np.random.default_rng(seed)
    many = int(random.integers(1, 40))
    low, high = (-50, 50) if ordinary else (-1074, 971)
    whole = random.integers(0, 1 << 53, many) * random.choice([-1, 1], many)
    found = [
        math.ldexp(float(each), int(random.integers(low, high)) - (52 if ordinary else 0)) for each in whole
    ]
    found = [each if not ordinary or 2**-64 <= abs(each) < 2**63 else 0.5 for each in found]
    return np.array([*found, *[-each for each in found[::3]], 0.0, -0.0])


def added(kind, x, y):
    """Return what is left of rows when their limbs are added in an order of its own."""
    rows = limbs_of(kind, x, y)
    assert rows.shape[1] == limb_count(kind) + 2
    one, two, *limbs = rows[np.random.default_rng(1).permutation(len(x))].sum(axis=0).tolist()
    return from_limbs(kind, len(x), one, two, limbs)


def nearest(fraction):
    try:
        return float(fraction)
    except OverflowError:
        return math.inf if fraction > 0 else -math.inf


def oracle(kind, x, y):
    """Return the same by fractions; roots are compared by their squares."""
    n = len(x)
    a, b = ([Fraction(each) for each in some] for some in (x, y))
    if kind == "sum":
        return nearest(sum(a))
    b = b if KINDS[kind][0] == 2 else a
    above = n * sum(p * q for p, q in zip(a, b, strict=True)) - sum(a) * sum(b)
    return nearest(above / (n * (n - 1) if kind.endswith("samp") else n * n))


@pytest.mark.parametrize("kind", ["var_pop", "var_samp", "covar_pop", "covar_samp"])
def test_moments_are_rounded_once(kind):
    for seed in range(60):
        x, y = numbers(seed, True), numbers(seed, True)[::-1].copy()
        assert added(kind, x, y) == oracle(kind, x, y)
        assert from_values(kind, zip(x.tolist(), y.tolist(), strict=True)) == oracle(kind, x, y)


def test_sums_have_room_for_every_double():
    for seed in range(200):
        x = numbers(seed, False)
        assert added("sum", x, x) == oracle("sum", x, x)
        assert from_values("sum", zip(x.tolist(), x.tolist(), strict=True)) == oracle("sum", x, x)


def test_variances_equal_those_of_views():
    for seed in range(30):
        x = numbers(seed, True)
        spans = Spans(len(x), np.array([0]), np.array([len(x)]))
        for kind, function in (("var_samp", variance), ("stddev_samp", deviation)):
            [theirs] = function(pa.array(x), spans, t.float64, 0).to_pylist()
            assert added(kind, x, x) == theirs


def test_a_correlation_is_within_its_bounds():
    x = numbers(3, True)
    assert added("corr", x, x) == 1.0
    assert added("corr", x, -x) == -1.0
    assert added("corr", x, np.ones(len(x))) is None


def test_what_is_not_finite_and_what_is_too_few():
    x = np.array([1.0, math.inf])
    assert math.isnan(added("var_pop", x, x))
    assert added("sum", x, x) == math.inf
    assert math.isnan(added("sum", np.array([math.inf, -math.inf]), x))
    assert added("var_samp", x[:1], x[:1]) is None
    assert from_limbs("sum", 0, None, None, [None] * 5) is None


def test_numbers_without_room_are_noticed():
    x = np.array([1.0, 1e300])
    with pytest.raises(OverflowError, match=ESCAPED):
        added("var_pop", x, x)


@pytest.mark.parametrize("width", [5, 66])
def test_many_sums_at_once_equal_each_by_itself(width):
    random = np.random.default_rng(11)
    many = 2_000
    limbs = np.where(
        random.random((many, width)) < 0.6, 0, random.integers(-(1 << 40), 1 << 40, (many, width))
    )
    count = random.integers(0, 3, many)
    one = np.where(random.random(many) < 0.2, random.choice([1, 1 << 32, 3 + (2 << 32)], many), 0)
    two = np.where(random.random(many) < 0.2, 2, 0)
    found, none = sums_from_limbs(count, one, two, limbs)
    rows = zip(count.tolist(), one.tolist(), two.tolist(), limbs.tolist(), strict=True)
    alone = [from_limbs("sum", *row) for row in rows]
    assert none.tolist() == [each is None for each in alone]
    wanted = np.array([math.nan if each is None else each for each in alone])
    assert np.where(none, math.nan, found).tobytes() == np.where(np.isnan(wanted), math.nan, wanted).tobytes()


def test_one_of_many_sums_without_room_is_noticed_unless_it_is_not_a_number():
    escaped, limbs = np.array([0, 1 << 32]), np.zeros((2, 5), np.int64)
    with pytest.raises(OverflowError, match=ESCAPED):
        sums_from_limbs(np.array([1, 1]), np.array([0, 0]), escaped, limbs)
    found, _ = sums_from_limbs(np.array([1, 2]), np.array([0, 1]), escaped, limbs)
    assert math.isnan(found[1])


def test_squares_are_products_of_numbers_and_themselves():
    random = np.random.default_rng(9)
    numbers = random.normal(size=2_000) * 10.0 ** random.integers(-100, 100, 2_000)
    for square, product in zip(exact_square(numbers), exact_product(numbers, numbers), strict=True):
        assert np.array_equal(square, product)
    nearest, rest = (each.tolist() for each in exact_square(numbers))
    assert all(
        Fraction(a) ** 2 == Fraction(b) + Fraction(c) for a, b, c in zip(numbers, nearest, rest, strict=True)
    )
