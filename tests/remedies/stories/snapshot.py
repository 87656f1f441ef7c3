"""Remedies of snapshots and of waiting for commits."""

from __future__ import annotations

import pickle

import trueline as tl
from tests.remedies.story import Scene, done, piece, story
from tests.workspace.snapshot.bank import AMOUNTS, VIEWS, Bank
from trueline.chain import Instant


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


@story(
    "workspace.snapshot.agree",
    "pull {other!r} if it is a copy; else ws[{called!r}].reset(rebuild=True), and pull: it is computed again "
    "from what is there",
    "pull {quote(other)} if it is a copy; else trueline reset {quote(called)} --rebuild, and pull: it is "
    "computed again from what is there",
)
def a_dataset_that_has_read_what_was_reset(scene: Scene) -> None:
    bank = Bank(scene.ws)
    for number in range(2):
        begun = scene.ws["transfers"].head
        bank.transfer(1)
        bank.pull("credits")
        scene.ws["transfers"].chain.reset(begun)
        if number:
            scene.typed(scene.run_refused("snapshot", "credits"), "--yes")
        else:
            remedy = scene.refused(lambda: scene.ws.snapshot("credits"))
            done(piece(remedy, r"ws\[.*?\)"), ws=scene.ws)
    bank.transfer(1)
    bank.pull("credits")
    assert scene.ws.snapshot("credits").cut == {"transfers": 0}


@story(
    "workspace.snapshot.agree",
    "ws.pull({called!r}), then try again",
    "trueline pull {quote(called)}, then try again",
    "ws.pull({', '.join(map(repr, names))}), then try again",
    "trueline pull {' '.join(map(quote, names))}, then try again",
)
def datasets_that_were_never_together(scene: Scene) -> None:
    bank = Bank(scene.ws)
    bank.transfer(1)
    with bank.computing():
        bank.pull("credits")
        scene.typed(scene.run_refused("snapshot", "credits", "debits"))
        remedy = scene.refused(lambda: scene.ws.snapshot("credits", "total"))
        done(piece(remedy, r"ws\.pull\(.*?\)"), ws=scene.ws)
        for number in range(2):
            bank.redefine("credits", bank.functions["credits"])
            bank.pull("credits")
            if number:
                scene.typed(scene.run_refused("snapshot", "credits", "total"))
            else:
                remedy = scene.refused(lambda: scene.ws.snapshot("credits", "total"))
                done(piece(remedy, r"ws\.pull\(.*?\)"), ws=scene.ws)
            assert scene.ws.snapshot("credits", "total").cut == {"transfers": 0}


@story(
    "workspace.snapshot.agree",
    "give a later time: ws.snapshot({', '.join(map(repr, names))}, at={str(later)!r})",
    "give a later time: trueline snapshot {' '.join(map(quote, names))} --at {later}",
)
def clocks_that_differ(scene: Scene) -> None:
    bank = Bank(scene.ws)
    scene.ws.clock = lambda: Instant.parse("2099-01-01T10:00:05Z")
    bank.transfer(2)
    cut = bank.record("credits")
    scene.ws.clock = lambda: Instant.parse("2099-01-01T10:00:00Z")
    bank.follow("credits", cut)
    remedy = scene.refused(lambda: scene.ws.snapshot("credits", at="2099-01-01T10:00:02Z"))
    assert done(piece(remedy, r"ws\.snapshot\(.*\)"), ws=scene.ws).cut == {"transfers": 1}
    scene.typed(scene.run_refused("snapshot", "credits", "--at", "2099-01-01T10:00:02Z"))


@story(
    "workspace.snapshot.agree",
    "ws.pull({one!r}, {other!r}) brings both copies up to date; else clone that dataset here",
    "trueline pull {quote(one)} {quote(other)}, or clone that dataset here",
)
def copies_of_what_is_not_here(scene: Scene) -> None:
    with tl.open(scene.folder / "far", create=True) as far:
        bank = Bank(far)
        bank.derive("audit", ("credits",), lambda **read: read["credits"], AMOUNTS)
        for number in range(2):
            bank.transfer(1)
            bank.pull(*VIEWS, "audit")
            far["total"].push(scene.folder / "total")
            bank.redefine("credits", bank.functions["credits"])
            bank.pull("credits", "audit")
            far["audit"].push(scene.folder / "audit")
            for name in ("audit", "total"):
                if number:
                    scene.ws.pull(name)
                else:
                    scene.ws.clone(scene.folder / name, name)
            refusal = (
                scene.run_refused("snapshot", "audit", "total")
                if number
                else scene.refused(lambda: scene.ws.snapshot("audit", "total"))
            )
            bank.pull(*VIEWS)
            far["total"].push(scene.folder / "total")
            if number:
                scene.typed(refusal)
            else:
                done(piece(refusal, r"ws\.pull\(.*?\)"), ws=scene.ws)
            assert list(scene.ws.snapshot("audit", "total")) == ["audit", "total"]
