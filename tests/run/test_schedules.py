"""Whatever the schedule, the result is that of the steps one after another."""

from __future__ import annotations

import sys

import pytest

from tests.run.sequential import random_run, sequential
from trueline.run import Inline, Run, Threads


@pytest.mark.contract("run:F19")
@pytest.mark.contract("run:F28")
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_every_schedule_gives_what_the_steps_give_one_after_another(first):
    for seed in range(first, first + 1_000):
        steps, inputs = random_run(seed)
        found = Run(steps, executor=Inline(seed, workers=1 + seed % 5)).execute(inputs)
        assert found == sequential(steps, inputs), f"seed {seed}"


@pytest.mark.contract("run:F19")
def test_threads_give_the_same():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for seed in range(200):
            steps, inputs = random_run(seed)
            assert Run(steps, executor=Threads(4)).execute(inputs) == sequential(steps, inputs), (
                f"seed {seed}"
            )
    finally:
        sys.setswitchinterval(before)
