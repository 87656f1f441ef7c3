"""Nothing depends on the order in which Python hashes text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.architecture import ROOT

SCRIPT = """
import logging
from tests.flow.oracle.programs import build, draw
from tests.flow.oracle.structure import expected
from tests.flow.oracle.traces import TooLong, all_traces, sinks
from trueline.errors import FlowError

logging.disable(logging.WARNING)
for seed in range(120):
    program = build(draw(seed))
    try:
        print(program.flow.explain())
    except FlowError as error:
        print(seed, type(error).__name__, error)
        continue
    try:
        print(len(all_traces(program, 300)), sorted(all_traces(program, 300), key=repr))
    except TooLong:
        print("long")
    for chance in range(2):
        live = program.flow.start(seed=chance)
        for source, member, element in program.plan.sent:
            live.send(source, element, member=member)
        print(live.run_until_idle(), [live.take(*end) for end in sinks(program)])

def body(sim):
    for source, member, element in program.plan.sent:
        sim.send(source, element, member=member)
    sim.quiesce()

for seed in range(12):
    program = build(draw(seed))
    if expected(program.flow) is None:
        found = program.flow.simulate(body, mode="deviations", max_deviations=2, max_executions=300)
        print(found.executions, found.states, found.pruned)
"""


@pytest.mark.contract("align:A43")
def test_the_same_words_traces_counts_and_runs_whatever_the_hash_seed():
    said = []
    for seed in ("0", "4242"):
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert len(said[0]) > 1_000
    assert said[0] == said[1]
