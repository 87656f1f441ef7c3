"""Whatever the schedule, the result is that of the steps one after another.

A schedule is decided by its seed: what steps do and to which keys, what they
erase, raise and write elsewhere, what is fed, revised, taken back and promised
while they run, who begins and who ends first. `python -m tests.run.schedules
SEED` tells one, event by event.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.architecture import ROOT
from tests.examples import is_soak
from tests.run.schedules import wrong
from tests.run.sequential import random_run
from tests.run.watched import Watched
from trueline.run import Inline, Run

# `make soak` looks at half a million others.
SCHEDULES = 20_000 if is_soak() else 5_000
AT_ONCE = 2_500


@pytest.mark.contract("run:F19")
@pytest.mark.contract("run:F22")
@pytest.mark.contract("run:F26")
@pytest.mark.contract("run:F27")
@pytest.mark.contract("run:F28")
@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_every_schedule_gives_what_the_steps_give_one_after_another(first):
    assert [found for seed in range(first, first + AT_ONCE) if (found := wrong(seed))] == []


@pytest.mark.soak
def test_many_more_schedules_do_too():
    first = random.SystemRandom().randrange(SCHEDULES, 1 << 40)
    assert [found for seed in range(first, first + 500_000) if (found := wrong(seed))] == []


@pytest.mark.contract("run:F19")
def test_threads_that_change_places_all_the_time_give_the_same():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert [found for seed in range(600) if (found := wrong(seed, Watched, 1 + seed % 8))] == []
    finally:
        sys.setswitchinterval(before)


@pytest.mark.contract("run:F19")
def test_a_seed_gives_the_same_schedule_again():
    for seed in range(100):
        told = []
        for _ in range(2):
            steps, inputs = random_run(seed)
            run = Run(steps, executor=Inline(seed, workers=3))
            run.execute(inputs)
            told.append(run.report.steps)
        assert told[0] == told[1], f"seed {seed}"


HASHED = """
from tests.run.schedules import play, wrong
for seed in range(400):
    found = wrong(seed)
    assert found is None, found
coordinator, _, _ = play(38)
coordinator.run()
print([(line.calls, line.kept, line.wasted, line.generation) for line in coordinator.states])
"""


@pytest.mark.contract("run:F19")
def test_the_hashes_of_keys_decide_neither_the_result_nor_the_schedule():
    told = set()
    for hashes in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        done = subprocess.run(
            [sys.executable, "-c", HASHED], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        told.add(done.stdout)
    assert len(told) == 1
