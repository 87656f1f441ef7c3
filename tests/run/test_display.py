"""A run shows how far it is, on whatever console is in use, and costs nothing where nobody looks."""

from __future__ import annotations

import io
import sys
import types

import pytest

from tests.run.sequential import random_run
from trueline import console as consoles
from trueline.console import CapturedConsole, NotebookConsole, TerminalConsole
from trueline.errors import RunFailed
from trueline.run import Display, Event, Inline, Run, Step, watching


class Screen(io.StringIO):
    """A terminal, as far as rich can tell."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_the_bar_ends_where_the_work_does(first):
    for seed in range(first, first + 100):
        steps, inputs = random_run(seed)
        console = CapturedConsole()
        display = Display("prepare", console)
        Run(steps, executor=Inline(seed, workers=1 + seed % 5), observers=[display]).execute(inputs)
        (work,) = console.work
        assert work.closed
        assert work.done == (work.total or 0) == display.total, f"seed {seed}"


def test_work_that_is_revised_is_taken_back_and_counted_as_thrown_away():
    console = CapturedConsole()
    display = Display("prepare", console)
    steps = [
        Step(map=lambda key, value: value + 1, name="add"),
        Step(map=lambda key, value: value, name="check"),
    ]
    run = Run(steps, executor=Inline(1, workers=8), observers=[display])
    run.execute(dict.fromkeys(range(8), 1))
    assert display.thrown == sum(step.wasted for step in run.report.steps) > 0
    assert console.work[0].label.startswith("prepare: done")
    assert f"{display.thrown} thrown away" in console.work[0].label


def test_the_words_say_which_step_and_how_far_ahead():
    display = Display("prepare", CapturedConsole())
    display.begin(["parse", "check", "mask"])
    display.done[2].add("a")
    assert display._words() == "prepare: parse, ahead to mask"
    display.finals = 2
    assert display._words() == "prepare: mask"


def test_a_key_that_comes_again_is_not_through_any_more():
    display = Display("prepare", CapturedConsole())
    display.begin(["parse", "check"])
    told = [("accepted", 1), ("unchanged", 1), ("accepted", 1)]
    assert [(display.event(Event(what, step, "a")), display.through)[1] for what, step in told] == [0, 1, 0]


def test_the_bar_is_gone_when_a_run_fails():
    def fails(key, value):
        raise ValueError(key)

    console = CapturedConsole()
    display = Display("prepare", console)
    with pytest.raises(RunFailed):
        Run([Step(map=fails)], observers=[display]).execute({"a": 1})
    assert console.work[0].closed
    assert display._bar is None


def test_of_runs_inside_a_run_only_the_outer_is_shown():
    console = CapturedConsole()
    display = Display("prepare", console)

    def outer(key, value):
        with watching(display):
            return Run([Step(map=lambda key, value: value)], executor=Inline()).execute({key: value})[key]

    with watching(display):
        Run([Step(map=outer, name="outer")], executor=Inline()).execute({"a": 1, "b": 2})
    assert [(work.label, work.done) for work in console.work] == [("prepare: done", 2)]


def test_a_terminal_shows_a_bar_and_a_file_nothing():
    for stream, shown in ((Screen(), True), (io.StringIO(), False)):
        with consoles.use(TerminalConsole(stream, stream)), watching(Display("prepare")):
            Run([Step(map=lambda key, value: value, name="parse")]).execute({"a": 1})
        assert ("prepare" in stream.getvalue()) is shown


def test_a_notebook_shows_a_bar(monkeypatch):
    shown: list[str] = []

    class Handle:
        def update(self, bundle, raw):
            shown.append(bundle["text/html"])

    module = types.ModuleType("IPython.display")
    module.display = lambda *_, **__: Handle()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    display = Display("prepare", NotebookConsole())
    Run([Step(map=lambda key, value: value, name="parse")], observers=[display]).execute({"a": 1, "b": 2})
    assert any('max="2" value="2"' in html and "prepare: done" in html for html in shown)
    assert shown[-1] == ""
