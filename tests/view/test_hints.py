"""What users of other libraries type first: the error says what to write, and that works."""

from __future__ import annotations

import copy
import re

import pytest

import trueline as tl
from trueline.errors import TruelineError, UnknownOperation
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


def test_a_misspelt_name_is_found_and_an_unknown_one_is_an_attribute_error():
    with pytest.raises(UnknownOperation, match="did you mean filter"):
        view().fliter("x > 1")
    with pytest.raises(AttributeError, match="no 'zzzzzz'"):
        _ = view().zzzzzz
    assert not hasattr(view(), "_repr_png_")
    with pytest.raises(TruelineError, match="cannot be serialised"):
        copy.copy(view())
