"""The language against Spark SQL, function by function over nasty values: what differs is on the page.

A difference that the page does not list fails, and so does one that it lists and that is gone.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from tests.architecture import ROOT
from tests.spark.expression_calls import ROWS, answers, calls, here
from tests.spark.expression_differences import DIFFERENCES, LAST_BIT, Raises, table
from tests.spark.test_expressions import alike
from trueline.errors import InputError
from trueline.view.expressions import expression

AT_ONCE = 60


@pytest.fixture(scope="module")
def sessions(spark):
    """A session without ANSI, and one with it as Spark has it by default."""
    found = {}
    for ansi in ("false", "true"):
        own = spark.newSession()
        own.conf.set("spark.sql.ansi.enabled", ansi)
        own.conf.set("spark.sql.legacy.sizeOfNull", "false")
        own.conf.set("spark.sql.session.timeZone", "UTC")
        own.createDataFrame(ROWS).coalesce(1).createOrReplaceTempView("rows")
        found[ansi] = own
    return found


def asked(session, texts, alone=()):
    """Ask many at once; those that are known to raise one by one, or all beside them would be asked again."""
    found: dict[str, object] = {}
    with ThreadPoolExecutor(4) as pool:  # each waits more than it works
        for answer in pool.map(lambda text: answers(session, [text]), alone):
            found |= answer
    others = [text for text in texts if text not in set(alone)]
    for at in range(0, len(others), AT_ONCE):
        found |= answers(session, others[at : at + AT_ONCE])
    return found


@pytest.fixture(scope="module")
def without_ansi(sessions):
    texts = [text for each in calls().values() for text in each]
    alone = [
        text
        for name, each in calls().items()
        for text in each
        if any(isinstance(rule.spark, Raises) and name in rule.functions for rule in DIFFERENCES)
    ]
    return asked(sessions["false"], texts, alone)


def test_the_page_lists_the_differences():
    page = (ROOT / "docs" / "expressions-and-spark.md").read_text(encoding="utf-8")
    assert table() in page
    assert ", ".join(f"`{name}`" for name in LAST_BIT) in page


def test_every_listed_difference_is_one(sessions):
    examples = [each.example for each in DIFFERENCES]
    spark, ansi = (asked(sessions[key], examples, examples) for key in ("false", "true"))
    for each in DIFFERENCES:
        for found, expected in ((spark[each.example], each.spark), (ansi[each.example], each.ansi)):
            if isinstance(expected, Raises):
                assert found == str(expected), each.example
            else:
                assert not isinstance(found, str), (each.example, found)
                assert alike(found[0], expected, near=False), (each.example, found[0])
        if isinstance(each.here, str) and each.here.startswith("refused"):
            with pytest.raises(InputError, match=re.escape(each.here.split(": ")[1])):
                expression(each.example, pa.schema({}))
        else:
            assert alike(here(each.example)[0], each.here, near=False), (each.example, here(each.example)[0])
        assert not (alike(each.here, each.spark, near=False) and alike(each.here, each.ansi, near=False))


def test_every_function_differs_only_as_it_is_listed(without_ansi):
    rows, seen, unlisted = ROWS.to_pylist(), set(), []
    for name, texts in calls().items():
        rules = [rule for rule in DIFFERENCES if name in rule.functions]
        for text in texts:
            used = [word for word in re.findall(r"\w+", text) if word in ROWS.column_names]
            theirs = without_ansi[text]
            if isinstance(theirs, str):
                fitting = {rule.what for rule in rules if rule.spark == theirs}
                seen |= fitting
                unlisted += [] if fitting else [(text, theirs)]
                continue
            for row, mine, other in zip(rows, here(text), theirs, strict=True):
                if alike(mine, other, near=name in LAST_BIT):
                    continue
                values = {column: row[column] for column in used}
                fitting = {
                    rule.what
                    for rule in rules
                    if not isinstance(rule.spark, Raises) and rule.when(mine, other, values)
                }
                seen |= fitting
                unlisted += [] if fitting else [(text, values, mine, other)]
    assert unlisted == []
    gone = [rule.what for rule in DIFFERENCES if rule.functions and rule.what not in seen]
    assert gone == []


def test_what_is_null_here_and_an_error_under_ansi_is_listed(sessions, without_ansi):
    expected = {name: [rule for rule in DIFFERENCES if name in rule.raises] for name in calls()}
    texts = [text for each in calls().values() for text in each]
    alone = [text for name, each in calls().items() if expected[name] for text in each]
    found = asked(sessions["true"], texts, alone)
    seen, unlisted = set(), []
    for name, each in calls().items():
        for text in each:
            answer = found[text]
            if isinstance(answer, str):
                fitting = {rule.what for rule in expected[name] if rule.ansi == answer}
                seen |= fitting
                unlisted += [] if fitting else [(text, answer)]
            elif not all(map(alike, answer, without_ansi[text], [False] * len(answer))):
                unlisted.append((text, "another answer than without ANSI"))
    assert unlisted == []
    assert [rule.what for rule in DIFFERENCES if rule.raises and rule.what not in seen] == []
