"""The pytest plugin, as a user's project has it."""

from __future__ import annotations

import tomllib

import pytest

from tests.architecture import ROOT
from trueline.testing import checks, views

VIEW = """
    import pytest
    from trueline import types as t
    from trueline.testing import SimpleView
    from trueline.view import Field, Schema

    class Squares(SimpleView):
        row_count = 5

        def __init__(self):
            self.schema = Schema([Field("n", t.int64), Field("square", t.int64)])

        def rows(self, columns):
            for n in range(5):
                row = {"n": n, "square": n * n}
                yield [row[column.name] for column in columns]
"""


@pytest.fixture
def project(pytester):
    """A small project beside ours, with the plugin."""
    pytester.makeini("[pytest]\naddopts = -p trueline.testing.plugin --strict-markers\n")
    return pytester


def test_a_test_runs_once_for_each_check_and_skips_what_does_not_apply(project):
    project.makepyfile(VIEW + "\n    def test_squares(kit_check): kit_check(Squares())")
    done = project.runpytest_inprocess("-rs")
    skipped = 7  # it cannot be shuffled (3), has no vectors (2), no second member, and nothing to change
    done.assert_outcomes(passed=len(checks("view")) - skipped, skipped=skipped)
    done.stdout.fnmatch_lines(["*the set has one member*"])


def test_a_broken_view_fails_the_test_of_its_check_alone(project):
    project.makepyfile(
        VIEW.replace("row_count = 5", "row_count = 6")
        + "\n    def test_squares(kit_check): kit_check(Squares())"
    )
    done = project.runpytest_inprocess()
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["*test_squares?K4.true?*"])
    done.stdout.fnmatch_lines(["*row_count is 6, reading finds 5 rows*"])


def test_the_mark_says_what_is_checked(project):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.kit("operator")
        def test_operator(kit_check): kit_check(lambda view: view.skip(1))
        """
    )
    outcomes = project.runpytest_inprocess().parseoutcomes()
    assert outcomes["passed"] + outcomes.get("skipped", 0) == len(checks("operator"))


def test_a_mark_nobody_knows_is_refused(project):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.kit("operators")
        def test_operator(kit_check): pass
        """
    )
    done = project.runpytest_inprocess()
    assert done.ret != 0
    done.stdout.fnmatch_lines(["*no checks of kind 'operators'*"])


def test_all_checks_at_once_and_the_hard_views(project):
    project.makepyfile(
        VIEW
        + """
    def test_all(conforms): assert "K7.sticky" in conforms(Squares()).held
    def test_hard(hard_view): assert hard_view.limit(2).count() <= 2
    """
    )
    project.runpytest_inprocess().assert_outcomes(passed=1 + len(views()))


def test_it_is_found_by_pytest_wherever_trueline_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"trueline.testing.plugin": "trueline.testing.plugin"}


FLOW = """
    from trueline.flow import Flow, nondet

    def flow():
        made = Flow("pieces")
        p = made.process("p")
        p.sink("sizes", p.source("in").batch(p.tick(), nondet("pieces")).count().all_ticks())
        return made

    def whole(sim):
        sim.send("in", *range(6))
        assert sim.next("sizes") == 6
"""


def test_a_body_is_run_under_every_schedule(project):
    project.makepyfile(
        FLOW
        + """
    def test_any(simulate):
        def body(sim):
            sim.send("in", *range(6))
            assert sum(sim.collect("sizes")) == 6
        assert simulate(flow(), body).exhaustive

    def test_whole(simulate): simulate(flow(), whole)
    def test_few(simulate): simulate(flow(), whole, mode="deviations", max_deviations=0)
    def test_short(simulate):
        def body(sim):
            sim.send("in", *range(6))
            sim.quiesce()
        simulate(flow(), body, hashing=False, max_executions=3)
"""
    )
    done = project.runpytest_inprocess("-W", "ignore")
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(["*To run it again*", "*NOT every schedule (stopped after 3 executions*"])


def test_one_schedule_is_replayed(project):
    project.makepyfile(FLOW + "\n    def test_whole(simulate): simulate(flow(), whole)")
    project.runpytest_inprocess("--replay-flow", "0").assert_outcomes(passed=1)
    project.runpytest_inprocess("--replay-flow", "1").assert_outcomes(failed=1)
