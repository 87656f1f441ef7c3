"""What users of other libraries type first: the error says what to write, and that works."""

from __future__ import annotations

import copy
import inspect
import re

import pytest

import trueline as tl
from trueline.errors import InputError, SchemaError, TruelineError, UnknownOperation
from trueline.view.hints import GROUPS, VIEW

CALL = re.compile(r"view(?:\.\w+\(.*?\)(?=$|[.,;\s)])|\.columns|\.schema)(?:\.\w+\([^()]*\))*")


def view():
    return tl.View.from_rows([{"x": 1, "y": 2, "z": 3, "t": 1, "old": 0}, {"x": 1, "y": 4, "z": 5, "t": 2}])


def test_rows_are_iterated_over():
    assert [row["y"] for row in view()] == [2, 4]
    assert list(tl.View.range(2)) == [{"n": 0}, {"n": 1}]
    assert next(iter(tl.View.range(0)), None) is None


def test_a_view_is_true_and_has_no_length():
    assert view()
    assert tl.View.range(0)
    with pytest.raises(UnknownOperation, match="no length") as caught:
        len(view())
    assert isinstance(caught.value, TypeError)
    assert "view.count()" in caught.value.remedy


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("x", "view.select('x') is a view of it, view.to_arrow()['x'] are its values"),
        (["x", "y"], "view.select('x', 'y')"),
        (("x", "y"), "view.select('x', 'y')"),
        (0, "view.skip(5).limit(3)"),
        (slice(2), "view.skip(5).limit(3)"),
        (None, 'view.filter("x > 1")'),
    ],
    ids=str,
)
def test_a_view_is_not_a_mapping(key, remedy):
    with pytest.raises(UnknownOperation, match="not a mapping") as caught:
        view()[key]
    assert remedy in caught.value.remedy
    works(caught.value.remedy)


def works(remedy):
    """Type every call that a remedy names."""
    known = {"view": view(), "other": view(), "path": None, "len": len}
    calls = [call for call in CALL.findall(remedy) if "…" not in call and "path" not in call]
    for call in calls:
        eval(call, known)
    return calls


@pytest.mark.parametrize("name", sorted(VIEW))
def test_a_name_of_another_library_says_what_to_write_and_that_works(name):
    with pytest.raises(UnknownOperation) as caught:
        getattr(view(), name)
    assert caught.value.remedy == f"write {VIEW[name]}"
    assert not hasattr(tl.View, name)
    if "view." in VIEW[name] and "path" not in VIEW[name] and name not in ("apply", "map", "to_numpy"):
        assert works(VIEW[name])


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_a_name_on_groups_says_what_to_write_and_that_works(name):
    with pytest.raises(UnknownOperation) as caught:
        getattr(view().group_by("x"), name)
    assert caught.value.remedy == f"write {GROUPS[name]}"
    assert works(GROUPS[name])


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ('view.select(w="x + 1")', 'write view.with_columns(w="x + 1").select("w")'),
        (
            """view.select("y", w="x + 1", v="concat('a', 'b')")""",
            """write view.with_columns(w="x + 1", v="concat('a', 'b')").select("y", "w", "v")""",
        ),
        ("view.select(w=1)", 'write view.with_columns(w="1").select("w")'),
        ('view.sort("x", ascending=False)', 'write view.sort("x", descending=True)'),
        (
            'view.sort("x", "y", ascending=[True, False])',
            'write view.sort("x", "y", descending=[False, True])',
        ),
        ('view.sort(by=["x", "y"])', 'write view.sort("x", "y")'),
        ('view.sort(by="x", reverse=True)', 'write view.sort("x", descending=True)'),
    ],
)
def test_keywords_of_other_libraries_are_answered_with_the_names_that_were_typed(wrong, remedy):
    with pytest.raises(UnknownOperation) as caught:
        eval(wrong, {"view": view()})
    assert caught.value.remedy == remedy
    assert isinstance(caught.value, TypeError)
    assert eval(remedy.removeprefix("write "), {"view": view()}).count() == 2


def test_other_keywords_are_errors_of_python():
    with pytest.raises(TypeError, match="'colour'"):
        view().sort("x", colour="red")
    assert list(inspect.signature(tl.View.sort).parameters) == ["self", "columns", "descending"]


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (["-x"], "sort('x', descending=True)"),
        (["+x"], "sort('x')"),
        (["x", "-y"], "sort('x', 'y', descending=[False, True])"),
        (["-x", "- y"], "sort('x', 'y', descending=True)"),
        (["x desc"], "sort('x', descending=True)"),
        (["x DESC", "y asc"], "sort('x', 'y', descending=[True, False])"),
    ],
)
def test_a_direction_in_the_name_of_a_column_is_answered_with_how_it_is_given(given, remedy):
    with pytest.raises(InputError, match="not a part of a name") as caught:
        view().sort(*given)
    assert caught.value.remedy == f"write {remedy}"
    assert eval(f"view.{remedy}", {"view": view()}).count() == 2


def test_a_column_whose_name_begins_with_a_sign_is_sorted_by():
    signed = tl.View.from_rows([{"-x": 2, "x": 1, "x desc": 3}, {"-x": 1, "x": 2, "x desc": 4}])
    assert [row["-x"] for row in signed.sort("-x")] == [1, 2]
    assert [row["-x"] for row in signed.sort("x desc")] == [2, 1]
    with pytest.raises(SchemaError, match="no column '-z'"):
        signed.sort("-z")


def test_a_misspelt_name_is_found_and_an_unknown_one_is_an_attribute_error():
    with pytest.raises(UnknownOperation, match="did you mean filter"):
        view().fliter("x > 1")
    with pytest.raises(AttributeError, match="no 'zzzzzz'"):
        _ = view().zzzzzz
    assert not hasattr(view(), "_repr_png_")
    with pytest.raises(TruelineError, match="cannot be serialised"):
        copy.copy(view())
