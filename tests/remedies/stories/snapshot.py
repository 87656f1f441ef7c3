"""Remedies of snapshots and of waiting for commits."""

from __future__ import annotations

import pickle

from tests.remedies.story import Scene, done, piece, story
from tests.workspace.snapshot.bank import Bank


@story(
    "workspace.snapshot.snapshot", "name it too: ws.snapshot({', '.join(map(repr, (*self.datasets, name)))})"
)
@story("workspace.snapshot.find", "read them without together=True: each group is then at its newest state")
def datasets_that_a_snapshot_does_not_have(scene: Scene) -> None:
    bank = Bank(scene.ws)
    bank.transfer(2)
    bank.pull("credits", "debits")
    snap = scene.ws.snapshot("credits")
    remedy = scene.refused(lambda: snap["debits"])
    more = done(piece(remedy, r"ws\.snapshot\(.*\)"), ws=scene.ws)
    assert more["debits"].count() == 2
    scene.ws.create("weather").append([{"t": 1.5}])
    remedy = scene.refused(lambda: scene.ws.snapshot("credits", "weather", together=True))
    assert "together=True" in remedy
    assert len(scene.ws.snapshot("credits", "weather").groups) == 2


@story("dataset.commit", "take it from its dataset: ws[{self.dataset!r}].commit({self.short!r})")
def a_commit_from_another_process(scene: Scene) -> None:
    bank = Bank(scene.ws)
    commit = bank.transfer(1)
    bank.pull("credits")
    remedy = scene.refused(lambda: pickle.loads(pickle.dumps(commit)).wait("credits"))
    found = done(piece(remedy, r"ws\[.*"), ws=scene.ws)
    assert found.wait("credits", timeout=0).cut == {"transfers": 0}
