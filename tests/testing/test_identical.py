"""Two views are the same where no reader can tell them apart, and every difference is found and named."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

import trueline as tl
from tests.testing.honest import Honest
from trueline import types as t
from trueline.errors import InputError
from trueline.identity import RowId
from trueline.testing import ViewComparison, identical, views
from trueline.testing.comparison import bits
from trueline.testing.generate import mixed

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
PLAIN = pa.table({"x": [0.0, 1.5, None], "s": ["a", "", None], "v": [[1.0, 0.0], [], None]})


def view(**changed):
    return tl.View.from_arrow(pa.table({**{name: PLAIN[name] for name in PLAIN.column_names}, **changed}))


@pytest.mark.contract("view:C95")
@pytest.mark.parametrize("name", list(views()))
def test_a_view_is_identical_to_itself_and_to_what_reads_the_same(name):
    one = views()[name]
    for other in (one, one.filter("true"), one.skip(0), one.select(*one.schema)):
        found = identical(one, other)
        assert found, found
        assert (str(found), found.difference) == ("identical", "")


@pytest.mark.contract("view:C95")
def test_what_was_written_and_read_back_is_identical(tmp_path):
    one = mixed().select(*mixed().columns).annotate(0, {"test/unit": "m"})
    one.write_parquet(tmp_path / "one.parquet")
    found = identical(one, tl.View.read_parquet(tmp_path / "one.parquet"))
    assert found, found


class Other(Honest):
    """An honest view with one thing changed."""

    def __init__(self, **changed):
        for name, value in changed.items():
            setattr(self, name, value)
        super().__init__()


def by_offset(seed_offset):
    class Shuffled(Honest):
        def shuffled(self, rows, seed):
            return super().shuffled(rows, seed + seed_offset)

    return Shuffled()


PLACES = {
    "a value": (view(), view(x=pa.array([0.0, 2.5, None])), ("x", 1), "1.5 and 2.5"),
    "the sign of zero": (view(), view(x=pa.array([-0.0, 1.5, None])), ("x", 0), "0.0 and -0.0"),
    "a null": (view(), view(s=pa.array(["a", None, None])), ("s", 1), "'' and None"),
    "another NaN": (
        view(x=pa.array([NAN] * 3)),
        view(x=pa.array([float("nan")] * 3)),
        ("x", 0),
        "nan and nan",
    ),
    "a value in a vector": (view(), view(v=pa.array([[1.0, -0.0], [], None])), ("v", 0), " and "),
    "the length of a vector": (view(), view(v=pa.array([[1.0], [], None])), ("v", 0), " and "),
    "a type": (view(), view(x=pa.array([0.0, 1.5, None], pa.float32())), ("x", None), "float64 and float32"),
    "a name": (view(), view().rename(y="x"), (None, None), "x, s, v and y, s, v"),
    "an order of columns": (view(), view().select("s", "x", "v"), (None, None), "s, x, v"),
    "a hidden column": (view(), view().with_columns(x="x"), (None, None), "x (hidden)"),
    "an annotation": (
        view(),
        view().annotate("x", {"a/b": 1}),
        ("x", None),
        "annotation a/b is 'absent' and 1",
    ),
    "the type of an annotation": (
        view().annotate("x", {"a/b": tl.view.annotations.Annotation(t.int8, 1)}),
        view().annotate("x", {"a/b": 1}),
        ("x", None),
        "annotation a/b",
    ),
    "fewer rows": (view(), view().limit(2), (None, None), "there are 3 and 2 rows"),
    "fewer rows, uncounted": (
        view().filter("true"),
        view().filter("s is not null"),
        (None, None),
        "has 2 rows",
    ),
    "an order of rows": (
        view().limit(2),
        view().limit(2).sort("x", descending=True),
        (None, 0),
        "the ids are",
    ),
    "ids": (view(), view().concat(view().limit(0)), (None, 0), "the ids are"),
    "whether it can be shuffled": (
        Other(),
        Other(can_shuffle=False),
        (None, None),
        "only the first can be shuffled",
    ),
    "what may be null": (
        tl.View.range(2),
        tl.View.from_arrow(pa.table({"n": [0, 1]})),
        ("n", None),
        "only in the second it may be null",
    ),
    "the order a seed gives": (Honest(), by_offset(1), (None, 0), "the ids with seed 7919 are"),
    "a count that is not true": (
        Other(row_count=3),
        Other(row_count=None),
        (None, None),
        "says that it has 3 rows",
    ),
}


@pytest.mark.contract("view:C95")
@pytest.mark.parametrize("name", list(PLACES))
def test_every_difference_is_found_and_named(name):
    one, other, (column, row), told = PLACES[name]
    for first, second in ((one, other), (other, one)):
        found = identical(first, second)
        assert not found
        assert (found.column, found.row) == (column, row), found
    found = identical(one, other)
    assert told in found.difference, found
    assert repr(found).startswith("<not identical: ")
    assert isinstance(found, ViewComparison)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", b"1"),
        (Decimal("1.0"), Decimal("1.00")),
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1)),
        (RowId(1), RowId(2)),
        ({"a": 0.0}, {"a": -0.0}),
    ],
)
def test_values_are_compared_by_type_and_bits(one, other):
    assert bits(one) == bits(one)
    assert bits(one) != bits(other)


def test_what_is_not_a_view_is_refused():
    with pytest.raises(InputError, match="is not a view"):
        identical(view(), PLAIN)
