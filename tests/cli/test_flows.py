"""Flows on the command line: found, simulated, replayed, drawn."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET

import pytest

MODULE = """
from trueline.flow import Flow, nondet

def counter(aligned):
    flow = Flow("counter")
    p = flow.process("server")
    increments, tick, point = p.source("increments"), p.tick("answering"), p.local_align_point("count")
    why = nondet("any recent count")
    count = increments.count()
    p.sink("acks", increments.release_aligned(point) if aligned else increments)
    seen = count.snapshot_aligned(tick, point, why) if aligned else count.snapshot(tick, why)
    p.sink("answers", p.source("queries").batch(tick, why).cross_singleton(seen).all_ticks())
    return flow

naive = counter(False)

def aligned():
    return counter(True)

def simulate_reads(sim):
    sim.send("increments", 1)
    sim.next("acks")
    sim.send("queries", "q")
    assert sim.next("answers") == ("q", 1)

def many(sim):
    sim.send("increments", *range(9))
    sim.send("queries", *range(9))
    sim.quiesce()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "counted.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("target", ["counted:aligned", "counted.py:aligned"])
def test_a_sound_flow_passes_under_every_schedule(run, module, target):
    done = run("flow", "simulate", target, "--json")
    assert done.code == 0, done.err
    assert done.json["bodies"]["simulate_reads"]["exhaustive"] is True
    shown = run("flow", "simulate", target)
    assert "simulate_reads: exhaustive: 1 execution, 2 states: every schedule" in shown.out


def test_a_broken_one_fails_with_its_trace_and_its_picture(run, module):
    done = run("flow", "simulate", "counted:naive", "--svg", module / "failure.svg")
    assert done.code == 1
    assert "simulate_reads fails" in done.out
    assert 'replay="1"' in done.out
    assert ET.parse(module / "failure.svg").getroot().tag.endswith("svg")
    document = run("flow", "simulate", "counted:naive", "--json", "--mode", "deviations").json
    assert (document["ok"], document["choices"]) == (False, [1])


def test_a_line_is_replayed(run, module):
    assert run("flow", "simulate", "counted:naive", "--body", "simulate_reads", "--replay", "1").code == 1
    assert run("flow", "simulate", "counted:naive", "--body", "simulate_reads", "--replay", "0").code == 0


def test_a_search_that_stopped_early_is_no_success(run, module):
    done = run("flow", "simulate", "counted:naive", "--body", "many", "--max-executions", "5")
    assert done.code == 4
    assert "NOT every schedule (stopped after 5" in done.out


@pytest.mark.parametrize(
    "words",
    [
        ["counted"],
        ["nowhere:flow"],
        ["nowhere.py:flow"],
        ["counted:nothing"],
        ["counted:simulate_reads"],
        ["counted:naive", "--body", "nothing"],
        ["counted:naive", "--mode", "guess"],
        ["counted:naive", "--replay", "x"],
    ],
)
def test_what_cannot_be_found_or_done_is_misuse(run, module, words):
    done = run("flow", "simulate", *words)
    assert (done.code, done.out) == (2, ""), done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise RuntimeError('not now')", "RuntimeError: not now (broken.py, line 1)"),
        ("import sys; sys.exit(7)", "SystemExit: 7"),
        ("def (", "SyntaxError"),
        ("import not_to_be_found", "No module named 'not_to_be_found'"),
        ("def flow():\n    return {}['none']", "KeyError: 'none' (broken.py, line 2)"),
    ],
)
@pytest.mark.parametrize("target", ["broken:flow", "broken.py:flow"])
def test_a_module_that_fails_is_misuse_told_with_its_line(run, module, text, words, target):
    (module / "broken.py").write_text(text, encoding="utf-8")
    sys.modules.pop("broken", None)
    done = run("flow", "simulate", target)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize(
    "target", [".counted:naive", "a..b:flow", "counted:nothing", "counted:simulate_reads"]
)
def test_what_names_no_flow_is_misuse(run, module, target):
    assert run("flow", "simulate", target).code == 2
