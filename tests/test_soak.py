"""`make soak` has a part for every test that looks at more than `make test` does."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from _pytest.mark.expression import Expression

from tests.architecture import ROOT
from tools.soak import Part, parts

# What a long exploration is known by; properties are given their values by hypothesis.
MARKS = {"soak", "sampled"}


def marked(text: str) -> dict[str, set[str]]:
    """Return the tests of a module that have one of the marks, or that hypothesis gives values to."""
    tree = ast.parse(text)
    everywhere: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and "pytestmark" in {getattr(to, "id", "") for to in node.targets}:
            everywhere |= _named(node.value)
    return {
        name: found
        for name, decorators in _tests(tree)
        if (found := everywhere.union(*map(_named, decorators)) & {*MARKS, "hypothesis"})
    }


def _tests(node: ast.AST, above: tuple[ast.expr, ...] = ()) -> Iterator[tuple[str, tuple[ast.expr, ...]]]:
    """Yield the names of tests with their decorators, those of classes too."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef):
            yield from _tests(each, (*above, *each.decorator_list))
        elif isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            yield each.name, (*above, *each.decorator_list)


def _named(expression: ast.expr) -> set[str]:
    """Return the marks that an expression speaks of."""
    found = {each.attr for each in ast.walk(expression) if isinstance(each, ast.Attribute)} & MARKS
    calls = [each.func for each in ast.walk(expression) if isinstance(each, ast.Call)]
    given = any(isinstance(call, ast.Name) and call.id == "given" for call in calls)
    return found | ({"hypothesis"} if given else set())


def chooses(part: Part, place: str, marks: set[str]) -> bool:
    """Say whether a part chooses a test of a file that has these marks, whatever its name is."""
    if any(_is_inside(place, other) for other in part.without):
        return False
    inside = any(_is_inside(place, other) for other in part.places)
    return inside and Expression.compile(part.marks).evaluate(lambda name, **_: name in marks)


def _is_inside(place: str, other: str) -> bool:
    return place == other or place.startswith(f"{other}/")


@cache
def every() -> dict[tuple[str, str], set[str]]:
    """Return the marks of all tests that are explored for longer, by file and name."""
    found = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        for name, marks in marked(path.read_text(encoding="utf-8")).items():
            found[path.relative_to(ROOT).as_posix(), name] = marks
    return found


def test_every_longer_exploration_is_in_a_part():
    found = every()
    assert {mark for marks in found.values() for mark in marks} == {*MARKS, "hypothesis"}
    lonely = [
        f"{place}::{name} ({mark})"
        for (place, name), marks in found.items()
        for mark in marks
        if not any(chooses(part, place, marks) and mark in part.marks for part in parts())
    ]
    assert lonely == []


def test_every_part_chooses_some_test():
    found = every()
    assert [
        part.name
        for part in parts()
        if not any(chooses(part, place, marks) for (place, _), marks in found.items())
    ] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@pytest.mark.soak\ndef test_a(): ...", {"test_a": {"soak"}}),
        ("@given(CHAINS)\n@settings(max_examples=6)\ndef test_a(x): ...", {"test_a": {"hypothesis"}}),
        ("pytestmark = [pytest.mark.jvm, pytest.mark.sampled]\ndef test_a(): ...", {"test_a": {"sampled"}}),
        ("@pytest.mark.soak\nclass TestA:\n    def test_b(self): ...", {"test_b": {"soak"}}),
        ("def test_a(): ...\ndef soak(): ...", {}),
    ],
)
def test_marks_are_seen(text, expected):
    assert marked(text) == expected


def test_settings_of_a_part_choose_among_the_views():
    """What a part is told beside marks and places is in the names of tests, here by those of the views."""
    from tests.spark.lowering.test_equal import every as cases

    words = {part.words for part in parts() if part.words}
    assert all(any(word in case.id for word in words) for case in cases())
    assert all(any(word in case.id for case in cases()) for word in words)


def test_pytest_chooses_what_a_part_says():
    part = next(each for each in parts() if each.name == "properties of views on Spark")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *part.chosen],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    chosen = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    expected = {f"{place}::{name}" for (place, name), marks in every().items() if chooses(part, place, marks)}
    assert chosen == expected != set()
