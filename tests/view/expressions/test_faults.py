"""Errors of expressions speak of the user's text, with a caret under the place."""

from __future__ import annotations

import pytest

from trueline.errors import InputError
from trueline.view.expressions.faults import Spot, pointed, unclosed
from trueline.view.expressions.parse import parse


def error_of(text):
    with pytest.raises(InputError) as caught:
        parse(text, {})
    return caught.value


@pytest.mark.parametrize(
    ("text", "problem", "under"),
    [
        ("price >", "something is missing after '>'", ">"),
        ("price + (1", "')' is missing", "("),
        ("cast(price as", "')' is missing", "("),
        ("city = 'Bern", "a quote is not closed", "'"),
        ("`price > 1", "a back-tick is not closed", "`"),
        ("price /* why", "a comment is not closed", "/*"),
        ("price > 1 group by city", "'group by' is not expected here", "group by"),
        ("price\n  and\n  )", "something is missing before ')'", ")"),
        ("price city", "'city' is not expected here", "city"),
        ("price between 1", "something is missing after '1'", "1"),
        ("t.price > 1", "`t.price` (a name with a dot", "t.price"),
        ("city in ('a', price)", "`price` in a list is not", "price"),
        ("price > 1 and city like name", "`city like name` is not", "city like name"),
        (
            "sum(price) over (partition by city)",
            "a window (over) is not",
            "sum(price) over (partition by city)",
        ),
        ("price::text", "`price::text` is not", "price::text"),
    ],
)
def test_the_place_is_under_the_caret(text, problem, under):
    error = error_of(text)
    first, line, carets = error.problem.split("\n")
    assert problem in first
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == under
    assert text.split("\n")[error.line - 1][error.column - 1 :].startswith(under)
    assert f"(line {error.line}, column {error.column})" in first


@pytest.mark.parametrize(
    "text",
    ["x >", "x > > 1", "case when x", "x -> 1", "x at time zone 'UTC'", "exists(select 1)", "x is 3", "not",
     "*", "cast(x as", "x[1:2]", "interval '1' year to month", "x !> 3", "select x", "x rlike"],
)  # fmt: skip
def test_what_the_parser_says_of_itself_is_not_shown(text):
    problem = error_of(text).problem
    for theirs in (
        "sqlglot",
        "<class",
        "Required keyword",
        "Expecting",
        "SHIFTRIGHT",
        "GET_JSON",
        "UTC_TIMESTAMP",
    ):
        assert theirs not in problem


def test_a_long_line_is_cut_around_the_place():
    error = error_of("x > 1 and " * 40 + "y b" + " and x > 1" * 40)
    _, line, carets = error.problem.split("\n")
    assert len(line) < 140
    assert line.strip().startswith("…")
    assert line.endswith("…")
    assert line[carets.index("^")] == "b"


def test_a_caret_is_under_its_place_behind_tabs_and_at_the_end():
    assert pointed("\tx\t>", Spot(1, 4)) == "\n     x >\n       ^"
    assert pointed("x", Spot(1, 2)) == "\n    x\n     ^"
    assert pointed("x", Spot(3, 1)) == ""


def test_quotes_in_comments_and_escapes_are_not_open():
    assert unclosed("x = 'a\\'' and y = 2 -- it's") is None
    assert unclosed("x = 1 /* it's */ and `a'b` = 1") is None
    assert unclosed("x = 'a' or y = 'b") == ("'", 15)
