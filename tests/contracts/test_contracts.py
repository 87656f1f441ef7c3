"""The check of the contracts itself: it must find gaps, strangers and stale pages."""

from __future__ import annotations

import json

import pytest

from tests.contracts.__main__ import report, state
from tests.contracts.page import PAGE, page
from tests.contracts.register import AREAS, NEEDS_NO_TEST, contracts, done, missing, unknown
from trueline.console import CapturedConsole


def test_ids_are_unique_and_belong_to_a_known_area():
    assert len(contracts()) == 377
    assert {c.area for c in contracts().values()} == set(AREAS)


def test_every_dropped_contract_gives_its_reason():
    assert [c.id for c in contracts().values() if c.strength == "dropped" and not c.why] == []


def test_every_piece_that_is_done_has_contracts():
    assert done() <= {c.piece for c in contracts().values()}


def test_a_contract_without_a_test_is_missing_only_once_its_piece_is_done():
    required = [c for c in contracts().values() if c.piece == "CHAIN" and c.strength not in NEEDS_NO_TEST]
    assert missing({}, frozenset({"CHAIN"})) == required
    assert missing({}, frozenset()) == []
    held = {c.id: ["tests/x.py::test"] for c in required[1:]}
    assert missing(held, frozenset({"CHAIN"})) == required[:1]


def test_an_unknown_id_is_reported_with_the_test_that_names_it():
    assert unknown({"chain:C1": ["a"], "chain:C99": ["tests/x.py::test_y"]}) == [
        "chain:C99 in tests/x.py::test_y"
    ]


def test_the_report_fails_and_names_each_gap():
    console = CapturedConsole()
    assert report(console, {}, whole=True) == 1
    assert "chain:C8" in console.text
    assert "have no test" in console.text


def test_the_report_passes_when_every_contract_has_a_test():
    console = CapturedConsole()
    assert report(console, {name: ["tests/x.py::test"] for name in contracts()}, whole=False) == 0
    assert [item for item in console.items if hasattr(item, "problem")] == []


def test_a_dropped_contract_stays_dropped_whatever_tests_say():
    assert [state("dropped", ["t"]), state("permits", []), state("must", []), state("must", ["t"])] == [
        "dropped",
        "permits",
        "no test",
        "tested",
    ]


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make contracts` and commit the page"


@pytest.fixture
def project(pytester, request):
    """A small project that uses the same plugin."""
    pytester.makeconftest("from tests.marks import *\n")
    pytester.makeini("[pytest]\nmarkers =\n  contract(id): x\n")
    pytester.syspathinsert(request.config.rootpath)
    return pytester


def test_marks_are_collected_from_classes_parameters_and_modules(project):
    project.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.contract("chain:C1")
        @pytest.mark.contract("chain:C2", "chain:C3")
        class TestIt:
            @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.contract("chain:C4")), 2])
            def test_x(self, x): pass
        """
    )
    out = project.path / "out.json"
    project.runpytest_inprocess("--collect-only", f"--contracts-out={out}").assert_outcomes()
    marked = json.loads(out.read_text(encoding="utf-8"))
    assert {name: len(tests) for name, tests in marked.items()} == {
        "chain:C1": 2,
        "chain:C2": 2,
        "chain:C3": 2,
        "chain:C4": 1,
    }


def test_a_skipped_or_failing_test_holds_nothing(project):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.skip(reason="x")
        @pytest.mark.contract("chain:C1")
        def test_a(): pass
        @pytest.mark.xfail(reason="x")
        @pytest.mark.contract("chain:C2")
        def test_b(): pass
        """
    )
    out = project.path / "out.json"
    project.runpytest_inprocess("--collect-only", f"--contracts-out={out}")
    assert json.loads(out.read_text(encoding="utf-8")) == {}


@pytest.mark.parametrize("mark", ['contract("chain:C99")', "contract()"])
def test_a_mark_nobody_knows_stops_every_run(project, mark):
    project.makepyfile(f"import pytest\n@pytest.mark.{mark}\ndef test_a(): pass\n")
    done = project.runpytest_inprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*contract*test_a*"])
