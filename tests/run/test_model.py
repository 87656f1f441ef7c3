"""The rules hold by themselves: a model of them gives what the steps give one after another.

The seeds are those of `test_schedules`, which runs the engine.
"""

from __future__ import annotations

import pytest

from tests.run.model import Model, wrong_in_model
from tests.run.test_schedules import AT_ONCE, SCHEDULES


@pytest.mark.contract("run:F19")
@pytest.mark.contract("run:F22")
@pytest.mark.contract("run:F27")
@pytest.mark.contract("run:F28")
@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_whatever_order_things_happen_in_the_newest_generations_are_right(first):
    assert [found for seed in range(first, first + AT_ONCE) if (found := wrong_in_model(seed))] == []


class Forgetful(Model):
    """Tells a key it no longer writes to nobody."""

    def emit(self, place, dst):
        place.owned.discard(dst)
        super().emit(place, dst)


class Hasty(Model):
    """Ends a step whose outgoing queue is full."""

    def finish(self):
        kept = [(place, place.outgoing) for place in self.places]
        for place in self.places:
            place.outgoing = []
        moved = super().finish()
        for place, outgoing in kept:
            place.outgoing += outgoing
        return moved


@pytest.mark.contract("run:F12")
@pytest.mark.parametrize("broken", [Forgetful, Hasty])
def test_without_each_rule_some_schedule_goes_wrong(broken):
    # What the rules guard against: keys that never go away (B5 to B7) and values that come too late (B1).
    wrong = 0
    for seed in range(1, 2_000):
        model = broken(seed)
        try:
            found = model.run()
        except AssertionError:  # delivered to a step that was final
            wrong += 1
        else:
            wrong += model.failed is None and found != model.oracle.result
    assert wrong > 20
