"""Columns that come together: what is refused, and that the remedies work as they are written."""

from __future__ import annotations

import itertools
import re

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import values
from trueline.errors import SchemaError
from trueline.view.annotations import about
from trueline.view.schema import Field, Schema

KINDS = [
    *("int32", "int64", "uint64", "float32", "float64", "decimal(9,2)", "text", "bytes", "boolean", "date"),
    *(
        "timestamp(ms,UTC)",
        "timestamp(us)",
        "time(ms)",
        "duration(us)",
        "rowid",
        "category(3)",
        "category(5)",
    ),
]


def column(name, kind, data=(None,), meant=None):
    """A view of one column, and the number of its row."""
    field = Field(name, kind, about(category_values=meant) if meant else about())
    arrays = [pa.array(data, kind.arrow), pa.array(range(len(data)), pa.int64())]
    return tl.View.from_arrow(pa.table(arrays, Schema([field, Field("n", tl.types.int64)]).to_arrow()))


def converted(views, remedy):
    """Do what a remedy says, word by word."""
    left, right = views
    both = re.fullmatch(r"convert both columns: (.*)", remedy)
    if both:
        return eval(f"left.{both[1]}"), eval(f"right.{both[1]}")
    place = "on the left|on the right|in view 1|in view 2"
    found = re.fullmatch(rf"convert the column ({place}): (.*?)(?:, and the column ({place}): (.*))?", remedy)
    assert found, remedy
    for side, call in ((found[1], found[2]), (found[3], found[4])):
        if side in ("on the left", "in view 1"):
            left = eval(f"left.{call}")
        elif side is not None:
            right = eval(f"right.{call}")
    return left, right


@pytest.mark.parametrize("one", KINDS)
def test_the_conversion_that_an_error_suggests_makes_a_join_and_a_concat_work(one):
    for other, name in zip(KINDS, itertools.cycle(["k", "unit `price`", "class"])):
        if other == one:
            continue
        views = column(name, tl.types.parse(one)), column(name, tl.types.parse(other))
        for bring in (lambda a, b: a.join(b, name), lambda a, b: a.concat(b)):  # noqa: B023
            with pytest.raises(SchemaError, match="is of type") as caught:
                bring(*views)
            assert bring(*converted(views, caught.value.remedy)).schema[name].type


def test_keys_of_other_names_are_converted_by_their_own():
    left, right = column("a", tl.types.int32, [1, 2]), column("b", tl.types.int64, [2, 3])
    with pytest.raises(
        SchemaError, match="'a' is of type int32 on the left and int64 on the right, as 'b'"
    ) as caught:
        left.join(right, {"a": "b"})
    left, right = converted((left, right), caught.value.remedy)
    assert values(left.join(right, {"a": "b"}), "n", "n_right") == [(1, 0)]


def test_a_conversion_for_a_join_finds_partners_and_one_for_a_concat_loses_nothing():
    views = column("k", tl.types.int64, [7, 8]), column("k", tl.types.text, ["8", "x"])
    with pytest.raises(SchemaError) as caught:
        views[0].join(views[1], "k")
    left, right = converted(views, caught.value.remedy)
    assert values(left.join(right, "k"), "k") == [8]
    with pytest.raises(SchemaError) as caught:
        views[0].concat(views[1])
    left, right = converted(views, caught.value.remedy)
    assert values(left.concat(right), "k") == ["7", "8", "8", "x"]


# --- categories ---------------------------------------------------------------------------------

RED, BLUE = ["red", "green"], ["blue", "red"]
KIND = tl.types.category(2)


@pytest.mark.contract("view:C20")
def test_categories_that_are_annotated_on_one_side_go_together_by_their_codes():
    said, silent = column("k", KIND, [1, 0, None], RED), column("k", KIND, [0, 1])
    for one, other in ((said, silent), (silent, said)):
        assert values(one.join(other, "k").sort("n"), "n", "n_right") in ([(0, 1), (1, 0)], [(0, 1), (1, 0)])
        assert values(one.concat(other), "k") == values(one, "k") + values(other, "k")
    assert values(said.join(silent, "k", how="left", as_of="n").drop("n"), "k") == [1, 0, None]
    assert said.concat(silent).schema["k"].annotations == {}
    assert "category_values" in said.join(silent, "k").schema["k"].annotations


def test_categories_of_other_values_are_refused_and_compared_by_value_when_they_are_decoded():
    red, blue = column("k", KIND, [0, 1, None], RED), column("k", KIND, [0, 1], BLUE)
    for bring in (lambda a, b: a.join(b, "k"), lambda a, b: a.concat(b)):
        with pytest.raises(SchemaError, match="mean different values") as caught:
            bring(red, blue)
        assert caught.value.remedy == "convert both columns: decode('k')"
    left, right = converted((red, blue), caught.value.remedy)
    assert values(left.join(right, "k"), "k", "n", "n_right") == [("red", 0, 1)]
    assert values(left.concat(right), "k") == ["red", "green", None, "blue", "red"]
    # The second of three says nothing: the others still differ.
    with pytest.raises(SchemaError, match="in view 1 mean different values than those of 'k' in view 3"):
        red.concat(column("k", KIND, [0]), blue)


def test_categories_of_other_counts_are_compared_by_value_and_with_text():
    many = column("k", tl.types.category(3), [2, 0], ["a", "b", "red"])
    red = column("k", KIND, [0, 1], RED)
    text = column("k", tl.types.text, ["green", "red"])
    for other, expected in ((many, [("red", 0)]), (text, [("red", 1), ("green", 0)])):
        with pytest.raises(SchemaError) as caught:
            red.join(other, "k")
        left, right = converted((red, other), caught.value.remedy)
        assert values(left.join(right, "k"), "k", "n_right") == expected


def test_only_categories_with_values_are_decoded():
    for view, why in (
        (column("k", KIND, [0]), "does not say what its codes mean"),
        (column("k", tl.types.int64), "is not a category"),
    ):
        with pytest.raises(SchemaError, match=why):
            view.decode("k")
    numbers = column("k", KIND, [1, None], [10, 20]).decode("k")
    assert numbers.schema["k"].type == tl.types.int64
    assert values(numbers, "k") == [20, None]
    assert numbers.explain().startswith("with k = its values")
