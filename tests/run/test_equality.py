"""Values that compare equal and are not the same, and values that do not compare."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from trueline.run import Inline, Run, Step
from trueline.run.equality import same

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Pair = namedtuple("Pair", "left right")  # noqa: PYI024 (a tuple of one's own)


@dataclass
class Item:
    """Holds anything."""

    price: object


@dataclass
class Reference:
    """Is known by its digest."""

    digest: str
    place: object = field(compare=False)


@pytest.mark.contract("run:F10")
@pytest.mark.parametrize(
    ("value", "made"),
    [
        (NOON, NOON.astimezone(ZoneInfo("Europe/Zurich"))),
        (time(12, tzinfo=UTC), time(13, tzinfo=timezone(timedelta(hours=1)))),
        (Decimal("1.0"), Decimal("1.00")),
        (complex(0, 0), complex(-0.0, 0)),
        ({1, 2.0}, {1.0, 2}),
        (frozenset({0.0}), frozenset({-0.0})),
        (Pair(1, 2), Pair(1, 2.0)),
        (Item(1), Item(1.0)),
        ([Item([1])], [Item([True])]),
        (np.array([1]), np.array([1.0])),
        (np.array([1]), np.array([[1]])),
        (np.float64(0.0), np.float64(-0.0)),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.table({"a": [1]}), pa.table({"a": [1]}).replace_schema_metadata({"unit": "m"})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_step_that_makes_another_value_of_an_equal_one_is_heard(value, made):
    found = Run([Step(map=lambda key, value: made)], executor=Inline()).execute({"a": value})
    assert found["a"] is made


@pytest.mark.contract("run:F11")
@pytest.mark.parametrize(
    "make",
    [
        lambda: [10**30, "a" * 5, {"b": (None, 1.5)}],
        lambda: {1, 2.0, "c"},
        lambda: Decimal("1.50"),
        lambda: datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Zurich")),
        lambda: Item([1, Decimal("2.0")]),
        lambda: Reference("d", object()),
        lambda: np.float32(1.5),
        lambda: pa.table({"a": [1, None], "b": ["x", "y"]}),
    ],
)
def test_what_is_made_again_is_the_same(make):
    assert same(Step(map=lambda key, value: value), make(), make())


@pytest.mark.parametrize(
    "make",
    [lambda: float("nan"), lambda: np.array([1, 2]), lambda: np.array([]), lambda: pa.array([float("nan")])],
)
def test_values_that_equal_nothing_end_where_one_step_after_another_does(make):
    steps = [Step(map=lambda key, value: make()), Step(map=lambda key, value: [value])]
    ((found,),) = Run(steps, workers=2).execute({"a": make()}).values()
    assert type(found) is type(make())
