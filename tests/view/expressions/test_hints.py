"""What people write who know another language: the error says how it is written here, and that works."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import trueline as tl
from trueline.errors import InputError
from trueline.view.expressions.functions.registry import ALIASES, functions
from trueline.view.expressions.hints import FUNCTIONS

ROWS = [{"s": "O'Hare", "x": 2, "y": 3.0, "v": [1.0], "day": "01.02.2026", "c": True, "a": 1, "b": 2}]


def view():
    table = pa.Table.from_pylist(ROWS)
    return (
        tl.View.from_arrow(table)
        .with_columns(
            t="timestamp'2026-11-13 09:30:00'", n="5", end="date'2026-11-13'", start="date'2026-11-12'"
        )
        .rename({"x": "x"})
    )


def refused(text):
    with pytest.raises(InputError) as caught:
        view().with_columns(z=text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("len(s)", "length(s)"),
        ("x::text", "cast(x as text)"),
        ("x::decimal(9, 2) + 1", "cast(x as decimal(9, 2))"),
        ("'O''Hare'", "'O\\'Hare'"),
        ("s = 'O'Hare'", "'O\\'Hare'"),
        ("x && c", "instead of && write and"),
        ("(x > 1) & (y > 1)", "write and"),
        ("(x > 1) | (y > 1)", "write or"),
        ("x ** 2", "power(x, 2)"),
        ("x ^ 2", "power(x, 2)"),
        ("x // 2", "x div 2"),
        ("s ~ 'a'", "rlike"),
        ("s =~ 'a'", "instead of =~ write x rlike"),
        ("s -> 'a'", "a view has plain columns"),
        ("y is nan", "isnan(x)"),
        ("s.lower()", "lower(s)"),
        ("'a' + s", "||"),
        ("row_number() over (order by x)", "view.window"),
        ("count_distinct(x)", "group_by"),
        ("to_date(day, 'dd.MM.yyyy')", "write '%d.%m.%Y'"),
        ("to_timestamp(day, 'dd.MM.yyyy HH:mm:ss')", "write '%d.%m.%Y %H:%M:%S'"),
        ("date_format(t, 'yyyy-MM-dd')", "write '%Y-%m-%d'"),
        ("date_format(t, '%Q')", "use %Y"),
        ("regexp_extract(s, 'a')", "0 for all that fits"),
        ("regexp_extract(s, '(a', 1)", "RE2"),
        ("regexp_replace(s, '(?=a)', '')", "RE2"),
        ("regexp_replace(s, 'a', '$1')", "write $1 for a group"),
        ("regexp_replace(s, '(a)', '\\\\1')", "write $1 for a group"),
    ],
)
def test_what_is_spelt_otherwise_says_how(text, remedy):
    assert remedy in refused(text).remedy


def test_the_remedies_work():
    for text, value in (
        ("length(s)", 6),
        ("cast(x as text)", "2"),
        ("'O\\'Hare'", "O'Hare"),
        ("power(x, 2)", 4.0),
        ("x div 2", 1),
        ("array(1, 2)[0]", 1),
        ("array(x, 7)[1]", 7),
        ("to_date(day, '%d.%m.%Y') = date'2026-02-01'", True),
        ("date_format(t, '%Y-%m-%d')", "2026-11-13"),
        ("s || 'a'", "O'Harea"),
        ("regexp_replace(s, '(a)', '<$1>')", "O'H<a>re"),
    ):
        assert view().with_columns(z=text).to_arrow()["z"].to_pylist() == [value], text
    assert view().filter("s = :name", name="O'Hare").count() == 1


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_of_another_language_says_what_to_write_and_that_works(name):
    assert name not in functions()
    assert name not in ALIASES
    remedy = refused(f"{name}(x, 1, 2)" if name not in ("date", "timestamp") else f"{name}(x, 1)").remedy
    assert remedy == f"write {FUNCTIONS[name]}"
    for call in re.findall(
        r"[a-z_]+\((?:[^()\"]|\([^()]*\))*\)|x is (?:not )?null|x in \(1, 2\)", FUNCTIONS[name]
    ):
        assert view().with_columns(z=call).count() == 1


def test_hostile_patterns_take_no_time():
    long = tl.View.from_arrow(pa.table({"s": ["a" * 30_000 + "b"] * 3}))
    for text in (
        "s rlike '(a+)+$'",
        "regexp_replace(s, '(a|a)*$', 'x') = s",
        "regexp_extract(s, '(a*)*c', 1) = ''",
        "regexp_extract(s, '^(([a-z])+.)+[A-Z]([a-z])+$', 1) = ''",
    ):
        # Backtracking would take longer than the age of the universe.
        assert long.filter(text).count() in (0, 3)
    with pytest.raises(InputError, match="not a regular expression"):
        long.filter("s rlike '((a{1000}){1000}){1000}'")
