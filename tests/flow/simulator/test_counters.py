"""The seed's counter in all its versions: which of them keep the promise of an acknowledgement."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flow.simulator import counters
from trueline.errors import Counterexample

MODES = ("exhaustive", "deviations", "fuzz")


@pytest.mark.contract("align:A9")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", counters.BROKEN)
def test_an_acknowledged_increment_may_be_missing(version, mode):
    flow = counters.BROKEN[version]()
    with pytest.raises(Counterexample) as found:
        flow.simulate(counters.write_twice_then_read, mode=mode)
    assert sum(value != 0 for value in found.value.choices) == 1, (
        "one deviation from the eager schedule shows it"
    )


@pytest.mark.contract("align:A9")
@pytest.mark.parametrize("hashing", [True, False])
@pytest.mark.parametrize("version", counters.SOUND)
def test_an_acknowledged_increment_is_in_every_later_answer(version, hashing):
    flow = counters.SOUND[version]()
    for body in (counters.write_then_read, counters.write_twice_then_read, counters.write_and_read):
        assert flow.simulate(body, hashing=hashing).exhaustive


@pytest.mark.contract("align:A9")
def test_an_increment_may_show_before_it_is_acknowledged():
    """The converse is not promised."""
    early = []

    def body(sim):
        sim.send("increments", "one")
        sim.send("queries", "how many?")
        answer = sim.next("answers")
        early.append(answer[1] == 1)

    counters.aligned().simulate(body)
    assert set(early) == {True, False}


BOTH = {
    "keyed": (counters.keyed, counters.keyed_write_then_read),
    "over the network": (counters.over_the_network, counters.clients_write_then_read),
}


@pytest.mark.contract("align:A9", "align:A35")
@pytest.mark.parametrize("program", BOTH)
def test_the_keyed_program_and_its_clients_keep_the_promise(program):
    make, body = BOTH[program]
    assert make().simulate(body).exhaustive


@pytest.mark.contract("align:A9", "align:A35")
@pytest.mark.parametrize("missing", ["acks", "read"])
@pytest.mark.parametrize("program", BOTH)
def test_the_keyed_program_and_its_clients_break_it_without_one_of_the_uses(program, missing):
    make, body = BOTH[program]
    with pytest.raises(Counterexample) as found:
        make(**{missing: "as it comes"}).simulate(body)
    assert "snapshot" in str(found.value)


@pytest.mark.contract("align:A19")
def test_clients_on_other_machines_are_served_alike_by_the_interpreter():
    for seed in range(20):
        live = counters.over_the_network(clients=3).start(seed)
        for client in range(3):
            live.send("increments", "one", member=client)
        live.run_until_idle()
        for client in range(3):
            assert live.take("acks", client) == ((client, "one"),)
            (answer,) = live.take("answers", client)
            assert 1 <= answer <= 3


@pytest.mark.contract("align:A22")
def test_naming_what_is_shared_changes_nothing():
    for body in (counters.write_then_look, counters.write_and_read):
        found = [
            make().simulate(body, hashing=False).executions
            for make in (counters.aligned, counters.aligned_at)
        ]
        assert found[0] == found[1]


@pytest.mark.contract("align:A43")
def test_what_is_found_does_not_depend_on_the_hash_seed():
    code = """
from tests.flow.simulator import counters
from tests.flow.simulator.programs import PROGRAMS
from trueline.errors import Counterexample
for version, make in counters.BROKEN.items():
    for mode in ("exhaustive", "deviations"):
        try:
            make().simulate(counters.write_twice_then_read, mode=mode)
        except Counterexample as error:
            print(error)
for name, (make, body) in PROGRAMS.items():
    print(name, str(make().simulate(body)))
"""
    root = Path(__file__).parents[3]
    said = []
    for seed in ("0", "1", "4242"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=root
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0].count("To run it again") == 2 * len(counters.BROKEN)
    assert said[0] == said[1] == said[2]
