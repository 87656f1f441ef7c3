"""Where datasets agree in real chains, against trying all of what the chains say."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

import trueline as tl
from tests.workspace.snapshot.real import RealWorkspace, as_model, has_diverged
from trueline.errors import Diverged, NoCommonCut
from trueline.workspace.cuts.roots import Roots
from trueline.workspace.snapshot.agree import _searched, agree
from trueline.workspace.snapshot.histories import look
from trueline.workspace.snapshot.search import NOTHING

pytestmark = pytest.mark.contract("cut:P5")


@pytest.fixture
def lived(tmp_path, monkeypatch):
    """A workspace in memory to which random things have happened, and what was found in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def live(seed):
        with tl.open(f"memory://histories/{tmp_path.name}-{seed}", create=True) as workspace:
            real = RealWorkspace(workspace, seed)
            real.live(real.random.randint(5, 30))
            return compared(workspace, real)

    return live


def compared(workspace, real):
    """Compare what is found with what trying all finds; returns what there was in it."""
    model = as_model(workspace)
    names = real.random.sample(list(model.datasets), real.random.randint(1, min(4, len(model.datasets))))
    best = model.newest(names)
    asked = {workspace[name].id: workspace[name] for name in names}
    found = _searched(asked, look(Roots(workspace), asked), {})
    called = workspace._names_by_id()
    assert {called[str(each)]: found.number(each) for each in found.histories} == best, names
    seen = set(real.seen)
    lost = [name for name in names if best[name] == NOTHING]
    has_data = {name for name in best if model.datasets[name].readable() != NOTHING}
    if any(has_data & set(model.closure([name])) for name in lost):
        with pytest.raises((NoCommonCut, Diverged)) as caught:
            agree(workspace, asked.values())
        if isinstance(caught.value, Diverged):
            assert has_diverged(model, names)
        return seen | {type(caught.value).__name__}
    with workspace.snapshot(*names) as snap:
        shown = {name: snap.positions[name].block for name in names if best[name] != NOTHING}
        assert shown == {name: model.datasets[name].blocks[best[name]].hash for name in shown}
    heads = {name: model.datasets[name].readable() for name in best}
    return seen | {"heads" if heads == best else "earlier"}


KINDS = {"heads", "earlier", "NoCommonCut", "Diverged", "reset", "rebuilt", "redefined", "late"}
KINDS |= {"parts", "parts of roots", "not at rest"}


def test_agreement_in_real_chains_is_what_trying_all_finds(lived):
    seen = Counter()
    for seed in range(60):
        try:
            seen.update(lived(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert not [kind for kind in KINDS if not seen[kind]], seen


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_agreement_in_real_chains_is_what_trying_all_finds_for_long(lived, soak_minutes):
    first = random.SystemRandom().randrange(1 << 40)
    end = time.monotonic() + 60 * soak_minutes
    for seed in range(first, first + 100_000):
        try:
            lived(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        if time.monotonic() > end and seed - first >= 2_000:
            return
