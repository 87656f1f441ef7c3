"""Real pulls of one or two datasets at a time, while new ones join strangers: all can be read together."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing, counted, define_by_hand

pytestmark = pytest.mark.contract("cut:P13")
COLUMNS = {"account": pa.string(), "total": pa.float64()}
ROW = pa.table({"account": ["a"], "total": [1.0]})


class Joining:
    """Roots that nothing joins at first, datasets over them, and pulls of some."""

    def __init__(self, workspace, seed):
        self.workspace, self.random = workspace, random.Random(seed)
        self.inputs = {}
        self.along = self.steps = 0
        workspace.config.set("storage.durable", "false")
        self.roots = ["x", "y", "z"]
        for root in self.roots:
            workspace.create(root).append(ROW)
        for root in (*self.roots, *self.roots):
            self.derive([root])
        workspace.pull()

    def derive(self, inputs):
        name = f"d{len(self.inputs)}"
        define_by_hand(self.workspace, name, f"select '{name}'", inputs, columns=COLUMNS)
        self.inputs[name] = inputs
        return name

    def step(self):
        for root in self.roots:
            if self.random.random() < 0.5:
                self.workspace[root].append(ROW)
        self.steps += 1
        if self.steps % 6 == 0:
            self.pull(self.derive(self.random.sample([*self.roots, *self.inputs], 2)))
        self.pull(*self.random.sample(list(self.inputs), self.random.randint(1, 2)))

    def pull(self, *names):
        planned = {stage.dataset for stage in self.workspace.plan(*names)}
        along = {stage.dataset for stage in self.workspace.plan(*names) if stage.along_with}
        self.along += bool(along)
        pulled = {each.dataset for each in self.workspace.pull(*names) if each.is_derived}
        assert pulled == planned

    def check(self):
        """Any of them can be read together, and show as many rows of the roots as the cut says."""
        some = self.random.sample(list(self.inputs), self.random.randint(2, len(self.inputs)))
        with self.workspace.snapshot(*some) as snap:
            for name in some:
                read = self.inputs[name]
                rows = sum(snap.cut[each] + 1 if each in self.roots else 1 for each in read)
                assert snap[name].to_arrow()["total"].to_pylist() == [rows], f"{name} of {some}"


def lived(place, seed, steps=12):
    with tl.open(place / str(seed), create=True) as workspace, computing(counted):
        joining = Joining(workspace, seed)
        try:
            for _ in range(steps):
                joining.step()
                joining.check()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return joining.along


# Of these histories three have strangers that come along; about one in ten has.
SEEDS = (0, 2, 3, 23)


def test_whatever_is_pulled_all_can_be_read_together(tmp_path):
    assert [lived(tmp_path, seed) > 0 for seed in SEEDS] == [False, True, True, True]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_whatever_is_pulled_all_can_be_read_together_for_long(tmp_path, soak_minutes):
    seed, end = random.SystemRandom().randrange(1 << 40), time.monotonic() + 60 * soak_minutes
    while time.monotonic() < end:
        lived(tmp_path, seed, steps=25)
        seed += 1
