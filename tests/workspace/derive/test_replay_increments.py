"""Longer histories are replayed by the increment; the definition itself has the last word."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from decimal import Decimal

import pytest

import trueline as tl
from tests.examples import is_soak
from tests.forging import forge, forget, with_value
from tests.spark.cluster import PATHS
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.histories import QUERIES, SCHEMA, begin, next_commit, rows
from tests.workspace.derive.replaying_elsewhere import SPARKS
from trueline import console
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder
from trueline.workspace.derive import replay, replay_commit
from trueline.workspace.derive.strategies import increment, keyed, stateless

# Sums of doubles, a bag, what is only recomputed (ties are broken, so that there is one answer).
NAMES = ["sums", "bag", "ranked"]
RANKED = "select id, x, sum(x) over (partition by k order by i, id) as s, avg(x) over () as a from t"
# What is kept in other ways, and what makes several rows of one.
OTHERS = ["kept_values", "spread", "exploded", "both"]
PULLS = 5


def pulled(workspace, merge, names, seed, pulls=PULLS):
    """A random history, and each dataset pulled after every commit; others after the last one."""
    random_ = random.Random(seed)
    dataset = begin(workspace, merge)
    next_commit(random_, dataset)
    define(workspace, names)
    follow_all(workspace, names)
    for at in range(pulls - 1):
        next_commit(random_, dataset)
        if at == pulls - 2:
            define(workspace, OTHERS)
            names = [*names, *OTHERS]
        follow_all(workspace, names)


def define(workspace, names):
    for name in names:
        text, key = QUERIES.get(name, (RANKED, "id"))
        workspace.derive(name, text, key=key)


def grown(workspace, seed):
    """The first and the last of rows that are only appended, in two pulls."""
    random_ = random.Random(seed)
    dataset = workspace.create("g", schema=SCHEMA, merge=tl.merge.append())
    dataset.append(rows(random_, list(range(12))))
    text, key = QUERIES["ends"]
    workspace.derive("ends", text.replace(" from t ", " from g "), key=key)
    follow_all(workspace, ["ends"])
    dataset.append(rows(random_, list(range(8))))
    follow_all(workspace, ["ends"])


@pytest.fixture(scope="module")
def history(tmp_path_factory, spark):
    folder = tmp_path_factory.mktemp("increments") / "ws"
    with tl.open(folder, create=True, spark=spark) as ws:
        pulled(ws, tl.merge.changelog("id"), NAMES, 5)
        grown(ws, 5)
    return folder


@pytest.fixture
def ws(history, tmp_path, spark):
    shutil.copytree(history, tmp_path / "ws")
    with tl.open(tmp_path / "ws", spark=spark) as workspace:
        yield workspace


@pytest.fixture
def evaluated(monkeypatch):
    """The datasets whose definition was evaluated as a whole, one after another."""
    found, real = [], replay_commit.computed

    def computed(given):
        found.append(given.dataset.name)
        return real(given)

    monkeypatch.setattr(replay_commit, "computed", computed)
    return found


def ends(dataset):
    """The commits, oldest first."""
    return [commit.block for commit in dataset.log() if commit.inputs][::-1]


@pytest.mark.contract("derive:V23")
def test_all_commits_but_the_first_are_replayed_by_the_increment(ws, evaluated):
    with console.use(console.CapturedConsole()) as seen:
        report = ws.verify("sums", "bag", replay=True, workers=1)
    assert report.problems == ()
    assert report.replayed == 2 * PULLS
    # The first of each, and the last once more.
    assert sorted(evaluated) == ["bag", "bag", "sums", "sums"]
    records = ws["t"].info.events
    assert f"replay evaluates {2 * PULLS} commits over {4 * records} input records" in str(seen.items)
    # What the datasets keep for their own increments is not looked at.
    for name in ("sums", "bag"):
        store = ws[name].chain.store
        kept = {file.hash for end in ends(ws[name]) for file in _left(ws[name], end).state}
        assert kept
        for each in kept:
            store.delete(Folder.CHECKPOINTS, each)
    assert ws.verify("sums", "bag", replay=True).problems == ()


def test_intervals_are_replayed_side_by_side_each_from_a_whole_result(ws, evaluated, monkeypatch):
    monkeypatch.setattr(replay, "_COMMITS_OF_AN_INTERVAL", 1)
    inside, both = [], threading.Barrier(2, timeout=60)
    real = replay._replay_part

    def together(workspace, part, tally):
        both.wait()
        inside.append(len(part.found))
        real(workspace, part, tally)

    monkeypatch.setattr(replay, "_replay_part", together)
    report = ws.verify("sums", replay=True, workers=2)
    assert (report.problems, report.replayed) == ((), PULLS)
    assert sorted(inside) == [2, 3]
    evaluated.clear()
    one, last = ends(ws["sums"])[1], ends(ws["sums"])[3]
    monkeypatch.undo()
    assert ws["sums"].verify(after=one, upto=last, replay=True).replayed == 2


@pytest.mark.contract("derive:V4")
@pytest.mark.contract("derive:V23")
@pytest.mark.sampled
def test_cores_partitions_plans_and_batches_do_not_matter(history):
    # One core, plans as they are written and the smallest batches are furthest from the Spark of the suite.
    sparks = list(SPARKS) if is_soak() else ["one core"]
    environment = os.environ | {"PYTHONPATH": PATHS}
    done = subprocess.run(
        [sys.executable, "-m", "tests.workspace.derive.replaying_elsewhere", str(history), *sparks],
        capture_output=True,
        text=True,
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # The others were pulled to where those before them were, then to the last commit.
    commits = len(NAMES) * PULLS + 2 * len(OTHERS) + 2
    assert json.loads(done.stdout) == {name: [commits, []] for name in sparks}


def _left(dataset, block):
    left = derived_checkpoint(dataset.chain.store, dataset.chain.block(block).event)
    assert left is not None
    return left


@pytest.mark.contract("derive:V24")
def test_a_change_in_the_middle_is_found_where_it_is(ws):
    sums = ws["sums"]
    third = ends(sums)[2]
    forge(sums.chain, third, with_value("n", -1, 77))
    third = ends(sums)[2]
    assert sums.verify(replay=False).ok
    found = sums.verify(replay=True).problems
    assert {str(problem.kind) for problem in found} == {"not_reproducible"}
    assert found[0].block == third
    assert "recorded" in found[0].message
    assert "n: 77" in found[0].message
    assert ws["bag"].verify(replay=True).ok


def test_a_mistake_that_replay_would_make_too_is_found_by_the_definition(ws, monkeypatch, evaluated):
    """An increment that skips retractions, when the dataset was pulled and when it is replayed."""
    whole, sums, before = increment.delta_of, ws["sums"], len(ends(ws["sums"]))

    def forgetting(transaction, session, columns=None):
        delta = whole(transaction, session, columns)
        return increment.Delta({}, delta.came, delta.empty)

    for room in (keyed, stateless):
        monkeypatch.setattr(room, "delta_of", forgetting)
    row = {"k": "a", "x": 0.1, "i": 1, "d": Decimal("1.25")}
    ws["t"].append([{**row, "id": number, "op": 0} for number in range(500, 505)])
    follow_all(ws, ["sums"])
    for number in range(500, 503):
        ws["t"].append([{**row, "id": number, "op": 1}])
        follow_all(ws, ["sums"])
    after = ends(sums)[before - 1]
    evaluated.clear()
    report = sums.verify(after=after, replay=True)
    assert report.replayed == 4
    assert [problem.block for problem in report.problems][:1] == [ends(sums)[before + 1]]
    assert len(evaluated) > 2


@pytest.mark.contract("derive:V12")
def test_a_watermark_that_the_inputs_do_not_give_is_found(ws):
    sums = ws["sums"]
    tail = sums.chain.tail()
    block = sums.chain.block(tail.head)
    said = Instant.parse("2031-01-01T00:00:00Z")
    event = dataclasses.replace(block.event, new_watermark=said)
    block = dataclasses.replace(block, event=event)
    name = sums.chain.store.put(Folder.BLOCKS, block.to_bytes())
    sums.chain.store.move_head(name, expected=tail.head)
    forget(sums.chain)
    assert sums.verify(replay=False).ok
    (problem,) = sums.verify(after=ends(sums)[-2], replay=True).problems
    assert str(problem.kind) == "not_reproducible"
    assert f"its watermark is {said}, the watermarks of the inputs give None" in problem.message
