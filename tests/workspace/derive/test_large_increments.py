"""Increments whose groups are too many for one process: tasks do them, and what is recorded is the same."""

from __future__ import annotations

import random
from contextlib import contextmanager

import pyarrow as pa
import pytest

import trueline as tl
from tests.examples import is_soak
from tests.spark.passing import ROWS, passing
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.histories import QUERIES, begin, next_commit, rows
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.instant import Instant
from trueline.dataset.append import merge as merging
from trueline.workspace.derive import follow, replay, replay_commit, strategies
from trueline.workspace.derive.define import DerivationRequest, derive
from trueline.workspace.derive.strategies import bags, increment, keyed, keyed_tasks
from trueline.workspace.derive.strategies.classify import StrategyVerdict

# Among the keys that rows are grouped by are null, NaN and both zeros.
MORE = {
    "odd_keys": (
        "select x, k, count(*) as n, sum(i) as s, max(d) as m from t group by x, k having count(*) < 5",
        ["x", "k"],
    ),
    "distinct": ("select distinct k, x from t", None),
    # The groups are not in the rows, which nothing identifies.
    "anonymous": ("select count(*) as n, min(i) as m from t group by k", None),
}
WAYS = ("large", "small", "recompute")


@contextmanager
def way(which):
    """Nothing is few enough to be handled in this process, or all of it; or all is computed each time."""
    with pytest.MonkeyPatch.context() as patch:
        if which == "large":
            force_tasks(patch)
        elif which == "recompute":
            patch.setattr(strategies, "classify", lambda *_, **__: StrategyVerdict("recompute", "asked"))
        yield


def force_tasks(patch):
    patch.setattr(increment, "DRIVER_BYTES", 1)
    patch.setattr(merging, "FEW_ROWS", 0)
    patch.setattr(keyed_tasks, "_ROWS_OF_A_RANGE", 8)
    patch.setattr(keyed_tasks, "_ROWS_OF_A_LOOKUP", 2)
    patch.setattr(keyed_tasks, "_BYTES_OF_A_RANGE", 100)
    patch.setattr(bags, "_ROWS_OF_A_RANGE", 8)


@pytest.fixture
def advanced(monkeypatch):
    """What was done for each dataset, by name."""
    found, advance = {}, strategies.advance_by

    def noted(given):
        found[given.dataset.name] = done = advance(given)
        return done

    monkeypatch.setattr(follow, "advance_by", noted)
    return found


def recorded(dataset):
    """The logical hashes of all slices, the rows, and what increments have written of the state of groups."""
    slices = [
        block.event.new_data.logical_hash
        for _, block in dataset.blocks()
        if getattr(block.event, "new_data", None) is not None
    ]
    # The first generation is made of all rows, whose values come in any order.
    state = [(file.notes, file.hash if file.notes["generation"] else None) for file in state_files(dataset)]
    return slices, str(dataset.view(system=True).to_arrow().to_pylist()), state


def state_files(dataset):
    left = derived_checkpoint(dataset.chain.store, dataset.chain.tail().data)
    return [file for file in left.state if file.notes["state"].startswith(keyed.KEPT)]


def pulled(workspace, merge, names, seed, pulls=1):
    """Follow a random history; yield after every pull."""
    random_, now = random.Random(seed), 1_800_000_000_000_000_000
    workspace.clock = lambda: Instant(now)
    dataset = begin(workspace, merge)
    for name in names:
        text, key = (QUERIES | MORE)[name]
        derive(workspace, DerivationRequest(name, text, key=key))
    for number in range(pulls + 1):
        for _ in range(2 if number else 4):
            next_commit(random_, dataset)
        now += 1_000_000_000_000
        follow_all(workspace, names)
        yield number


@pytest.mark.sampled
@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V26")
@pytest.mark.parametrize(
    ("merge", "names"),
    [
        (tl.merge.upsert("id"), ["sums", "kept_values", "odd_keys", "spread"]),
        (tl.merge.changelog("id"), ["whole", "by_number", "anonymous", "bag"]),
        (tl.merge.append(), ["ends", "distinct"]),
    ],
    ids=["upsert", "changelog", "append"],
)
def test_tasks_record_what_this_process_and_recomputing_would(tmp_path, spark, advanced, merge, names):
    found = {}
    for which in WAYS:
        # Of the others test_strategies says that increments record what recomputing would.
        some = names if which != "recompute" or is_soak() else [name for name in names if name in MORE]
        with way(which), tl.open(tmp_path / which, create=True, spark=spark) as workspace:
            for number in pulled(workspace, merge, some, "large"):
                for name in some if number else ():
                    done = advanced[name]
                    assert (done.strategy == "recompute") == (which == "recompute"), (name, done.reason)
                    assert which != "large" or done.driver_bytes == 0
            found[which] = {name: recorded(workspace[name]) for name in some}
            if which == "large" and merge == tl.merge.changelog("id"):
                replayed(workspace, names)
    for name in names:
        large, small, again = (found[which].get(name) for which in WAYS)
        assert large[:2] == small[:2], name
        assert again is None or again[:2] == large[:2], name
        assert large[2] == small[2], name
        # What replaces all that was kept is the first generation again.
        assert name in ("bag", "whole") or any(made for _, made in large[2]), name


def replayed(workspace, names):
    """Replay all commits, in tasks too; all but the first of each by the increment."""
    whole, computed = [], replay_commit.computed

    def noted(given):
        whole.append(given.dataset.name)
        return computed(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_commit, "computed", noted)
        patch.setattr(replay, "_WORTH_INCREMENTS", 1)
        report = workspace.verify(*names, replay=True)
    assert report.ok, report.problems
    # The first commit of each, and the rows after the last.
    assert sorted(whole) == sorted(2 * names)


@pytest.mark.parametrize("size", [2_000, 30_000])
def test_groups_are_finished_in_tasks_where_only_they_are_large(spark_workspace, advanced, monkeypatch, size):
    """The change itself is small, and the state of what it touches is not."""
    schema = pa.schema({"k": pa.string(), "v": pa.int64()})
    data = spark_workspace.create("t", schema=schema, merge=tl.merge.append())
    text = "select k, count(distinct v) as n, sum(v) as s from t group by k"
    derive(spark_workspace, DerivationRequest("counts", text, key="k"))
    many = 10_000
    data.append(pa.table({"k": ["a"] * many + ["b"], "v": pa.array([*range(many), 0], pa.int64())}))
    follow_all(spark_workspace, ["counts"])
    monkeypatch.setattr(increment, "DRIVER_BYTES", size)
    data.append(pa.table({"k": ["a", "c"], "v": pa.array([many, 1], pa.int64())}))
    follow_all(spark_workspace, ["counts"])
    done = advanced["counts"]
    assert (done.strategy, done.reason) == ("keyed", "")
    assert 0 < done.driver_bytes < size
    found = {
        row["k"]: (row["n"], row["s"]) for row in spark_workspace["counts"].view().to_arrow().to_pylist()
    }
    assert found == {"a": (many + 1, many * (many + 1) // 2), "b": (1, 0), "c": (1, 1)}


def test_no_row_of_a_large_increment_passes_this_process(spark_workspace, advanced, monkeypatch):
    random_ = random.Random(2)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    for name in ("kept_values", "anonymous"):
        text, key = (QUERIES | MORE)[name]
        derive(spark_workspace, DerivationRequest(name, text, key=key))
    follow_all(spark_workspace, ["kept_values", "anonymous"])
    force_tasks(monkeypatch)
    dataset.append(rows(random_, list(range(6, 18))))
    with passing() as passed:
        follow_all(spark_workspace, ["kept_values", "anonymous"])
    assert {done.strategy for done in advanced.values()} == {"keyed"}
    assert passed[ROWS] == 0


@pytest.mark.contract("derive:V17")
def test_state_that_tasks_do_not_find_is_made_again(spark_workspace, tmp_path, advanced, monkeypatch):
    random_ = random.Random(7)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    text, key = QUERIES["sums"]
    derive(spark_workspace, DerivationRequest("sums", text, key=key))
    follow_all(spark_workspace, ["sums"])
    force_tasks(monkeypatch)
    for harm, reason in ((True, "state_missing"), (False, "")):
        if harm:
            for file in state_files(spark_workspace["sums"]):
                next(path for path in tmp_path.rglob("*") if str(file.hash) in path.name).unlink()
        dataset.append(rows(random_, [1, 2, 3, 20]))
        follow_all(spark_workspace, ["sums"])
        assert advanced["sums"].reason == reason


def test_groups_that_lost_more_rows_than_they_had_are_computed_again(spark_workspace, advanced, monkeypatch):
    random_ = random.Random(7)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    text, key = QUERIES["sums"]
    derive(spark_workspace, DerivationRequest("sums", text, key=key))
    follow_all(spark_workspace, ["sums"])
    whole = increment.delta_of

    def forgetting(transaction, session, columns=None):
        delta = whole(transaction, session, columns)
        return increment.Delta(delta.gone, {}, delta.empty)

    force_tasks(monkeypatch)
    for mistake in (forgetting, whole):
        monkeypatch.setattr(keyed, "delta_of", mistake)
        dataset.append(rows(random_, list(range(12))))
        follow_all(spark_workspace, ["sums"])
    assert advanced["sums"].reason == "state_disagrees"
    assert spark_workspace.verify("sums", replay="head").ok
