"""Following by the increment: what is recorded equals, bit for bit, what recomputing would record."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.passing import jobs_in
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.histories import QUERIES, begin, next_commit, rows
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.instant import Instant
from trueline.dataset.append import merge as merging
from trueline.dataset.derivation import derivation_at
from trueline.workspace.derive import follow, strategies
from trueline.workspace.derive.define import DerivationRequest, derive
from trueline.workspace.derive.strategies import increment, keyed
from trueline.workspace.derive.strategies.classify import StrategyVerdict

TWIN = "_again"


class Followed:
    """Datasets that follow by the increment, and each a second time by recomputing."""

    def __init__(self, workspace, monkeypatch, names, queries=QUERIES):
        self.workspace, self.names = workspace, names
        self.now = 1_800_000_000_000_000_000
        workspace.clock = lambda: Instant(self.now)
        self.done = {}
        advance = strategies.advance_by
        monkeypatch.setattr(follow, "advance_by", lambda given: self._noted(given, advance(given)))
        for name in names:
            text, key = queries[name]
            derive(workspace, DerivationRequest(name, text, key=key))
            with monkeypatch.context() as patch:
                patch.setattr(strategies, "classify", lambda *_, **__: StrategyVerdict("recompute", "asked"))
                derive(workspace, DerivationRequest(name + TWIN, text, key=key))

    def _noted(self, given, advanced):
        self.done[given.dataset.name] = advanced
        return advanced

    def pull(self):
        """Bring all to the newest cut; return by which strategy each came there."""
        self.now += 1_000_000_000_000
        self.done.clear()
        follow_all(self.workspace, [name + end for name in self.names for end in ("", TWIN)])
        return {name: self.done[name].strategy for name in self.names if name in self.done}

    def differences(self):
        """Return which datasets are not what recomputing made, in rows or in what was recorded."""
        found = []
        for name in self.names:
            one, other = self.workspace[name], self.workspace[name + TWIN]
            slices = [
                [
                    block.event.new_data.logical_hash
                    for _, block in dataset.blocks()
                    if getattr(block.event, "new_data", None) is not None
                ]
                for dataset in (one, other)
            ]
            tables = [str(d.view(system=True).to_arrow().to_pylist()) for d in (one, other)]
            if slices[0] != slices[1] or tables[0] != tables[1]:
                found.append(name)
        return found


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V2")
@pytest.mark.contract("derive:V3")
@pytest.mark.contract("derive:V8")
@pytest.mark.contract("derive:V9")
@pytest.mark.parametrize(
    ("merge", "names"),
    [
        (tl.merge.upsert("id"), ["sums", "kept_values", "bag"]),
        (tl.merge.changelog("id"), ["whole", "by_number", "mapped"]),
        (tl.merge.append(), ["kept_values", "whole"]),
        (tl.merge.append(), ["ends", "last"]),
        (tl.merge.upsert("id"), ["spread", "exploded", "both"]),
    ],
    ids=lambda given: str(given) if not isinstance(given, list) else "",
)
def test_increments_record_what_recomputing_would(spark_workspace, monkeypatch, merge, names):
    check(spark_workspace, monkeypatch, merge, names, seed=str(merge), pulls=2)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_increments_record_what_recomputing_would_for_longer(spark, tmp_path, monkeypatch, soak_minutes):
    end = time.monotonic() + soak_minutes * 60
    seed = random.randrange(2**31)
    while time.monotonic() < end:
        random_ = random.Random(seed)
        merge = random_.choice([tl.merge.upsert("id"), tl.merge.changelog("id"), tl.merge.append()])
        # Of rows that are only appended an id is not a key.
        grows = merge == tl.merge.append()
        names = [name for name in QUERIES if name not in (("mapped",) if grows else ("ends", "last"))]
        with (
            tl.open(tmp_path / str(seed), create=True, spark=spark) as workspace,
            monkeypatch.context() as patch,
        ):
            check(workspace, patch, merge, random_.sample(names, 2), seed=seed, pulls=8)
        seed += 1


def check(workspace, monkeypatch, merge, names, *, seed, pulls):
    """Follow a random history by the increment, and compare after every pull."""
    random_ = random.Random(seed)
    dataset = begin(workspace, merge)
    followed = Followed(workspace, monkeypatch, names)
    next_commit(random_, dataset)
    followed.pull()
    for _ in range(pulls):
        for _ in range(random_.randint(1, 3)):
            next_commit(random_, dataset)
        used = followed.pull()
        assert followed.differences() == [], (seed, merge, names)
        reasons = {name: each.reason for name, each in followed.done.items()}
        assert set(used.values()) <= {"keyed", "stateless"}, (seed, merge, names, reasons)


@pytest.mark.contract("derive:V26")
@pytest.mark.parametrize(
    ("merge", "used"),
    [
        (tl.merge.upsert("id"), {"mapped": "stateless", "whole": "keyed"}),
        (tl.merge.append(), {"whole": "keyed"}),
    ],
    ids=["upsert", "append"],
)
def test_changes_that_are_large_stay_in_tasks(spark_workspace, monkeypatch, merge, used):
    random_ = random.Random(11)
    dataset = begin(spark_workspace, merge)
    dataset.append(rows(random_, list(range(12))))
    followed = Followed(spark_workspace, monkeypatch, list(used))
    followed.pull()
    # Nothing is few enough to be read here.
    monkeypatch.setattr(increment, "DRIVER_EVENTS", -1)
    monkeypatch.setattr(increment, "DRIVER_EVENTS_HERE", -1)
    monkeypatch.setattr(merging, "FEW_ROWS", 0)
    next_commit(random_, dataset)
    assert followed.pull() == used
    assert followed.differences() == []
    assert "mapped" not in used or followed.done["mapped"].driver_bytes == 0
    assert 0 < followed.done["whole"].driver_bytes < 10_000


@pytest.mark.contract("derive:V17")
@pytest.mark.parametrize("harm", ["removed", "damaged"])
def test_state_that_is_gone_is_made_again(spark_workspace, tmp_path, monkeypatch, harm):
    random_ = random.Random(7)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    followed = Followed(spark_workspace, monkeypatch, ["sums"])
    followed.pull()
    sums = spark_workspace["sums"]
    store = sums.chain.store
    left = derived_checkpoint(store, sums.chain.tail().data)
    (file,) = [file for file in left.state if file.notes["state"].startswith("aggregates")]
    path = next(path for path in tmp_path.rglob("*") if str(file.hash) in path.name)
    if harm == "removed":
        path.unlink()
    else:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
        path.chmod(0o600)
        path.write_bytes(raw)
    next_commit(random_, dataset)
    assert followed.pull() == {"sums": "recompute"}
    assert followed.done["sums"].reason == "state_missing"
    next_commit(random_, dataset)
    assert followed.pull() == {"sums": "keyed"}
    assert followed.differences() == []


def test_mistakes_are_found(spark_workspace, monkeypatch):
    """Each of these would go unnoticed if the comparison were weaker than it is."""
    random_ = random.Random(3)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    followed = Followed(spark_workspace, monkeypatch, ["sums"])
    followed.pull()
    whole = increment.delta_of
    found = {}

    def forgetting(transaction, session, columns=None):
        delta = whole(transaction, session, columns)
        return increment.Delta({}, delta.came, delta.empty)

    def twice(transaction, session, columns=None):
        delta = whole(transaction, session, columns)
        came = {alias: pa.concat_tables([table, table]) for alias, table in delta.came.items()}
        return increment.Delta(delta.gone, came, delta.empty)

    for name, mistake in (("a retraction skipped", forgetting), ("rows counted twice", twice)):
        with monkeypatch.context() as patch:
            patch.setattr(keyed, "delta_of", mistake)
            dataset.append(rows(random_, [1, 2, 3]))
            followed.pull()
            found[name] = followed.differences()
        # What is recomputed afterwards is right again.
        assert spark_workspace["sums"].chain.tail() is not None
    assert found == {"a retraction skipped": ["sums"], "rows counted twice": ["sums"]}


# Of text that is no number both fail, unless it was corrected before they see it.
CASTS = {
    "numbers": ("select id, cast(k as int) as n from t", "id"),
    "counted": ("select cast(k as int) as n, count(*) as c, sum(x) as s from t group by cast(k as int)", "n"),
}


@pytest.mark.contract("derive:V8")
def test_a_row_that_was_corrected_before_the_pull_cannot_fail_it(spark_workspace, monkeypatch):
    """Strategies see the net change: of raw events, the mistake that is planted at the end, both fail."""
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    columns = ("id", "k", "x")
    values = pa.table([[1, 2, 3], ["7", "7", "8"], [0.5, 0.1, 2.0]], columns)
    dataset.append(values)
    followed = Followed(spark_workspace, monkeypatch, list(CASTS), CASTS)
    followed.pull()

    def wrong_then_right(number):
        dataset.append(
            pa.table([[3, number, number + 1], ["none", "bad", "worse"], [2.0, 1.0, 4.0]], columns)
        )
        dataset.append(pa.table([[3, number], ["7", "9"], [2.0, 1.0]], columns))
        gone = pa.table([[number + 1], ["worse"], [4.0], pa.array([1], pa.int32())], [*columns, "op"])
        dataset.append(gone)

    wrong_then_right(10)
    assert followed.pull() == {"numbers": "stateless", "counted": "keyed"}
    assert followed.differences() == []

    def raw(_, source, before, after):
        return source.changes(before, after).select(*source.diff(before, after).columns)

    wrong_then_right(20)
    with monkeypatch.context() as patch:
        patch.setattr(increment.InputTable, "change", raw)
        for name in CASTS:
            with pytest.raises(tl.errors.TruelineError, match=r"(?i)cast"):
                follow_all(spark_workspace, [name])
    assert followed.pull() == {"numbers": "stateless", "counted": "keyed"}
    assert followed.differences() == []


WIDE = {"summed": ("select k, sum(x) as s from t group by k", "k")}


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V4")
@pytest.mark.parametrize("where", ["here", pytest.param("in tasks", marks=pytest.mark.soak)])
def test_numbers_out_of_range_are_recomputed_until_they_are_retracted(spark_workspace, monkeypatch, where):
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    followed = Followed(spark_workspace, monkeypatch, list(WIDE), WIDE)

    def pulled(*found, gone=()):
        ids = [*gone, *(number for number, _ in found)]
        groups = ["wide" if number < 100 else "other" for number in ids]
        values = pa.array([*(None for _ in gone), *(value for _, value in found)], pa.float64())
        ops = pa.array([1] * len(gone) + [0] * len(found), pa.int32())
        dataset.append(pa.table([ids, groups, values, ops], ["id", "k", "x", "op"]))
        followed.pull()
        assert followed.differences() == []
        done = followed.done["summed"]
        return done.strategy, done.reason, spark_workspace["summed"].get("wide")["s"]

    assert pulled((1, 0.5), (2, 0.25), (100, 1.0))[2] == 0.75
    if where == "in tasks":
        monkeypatch.setattr(increment, "DRIVER_EVENTS", -1)
        monkeypatch.setattr(increment, "DRIVER_EVENTS_HERE", -1)
    assert pulled((3, 1e308), (4, 5e-324)) == ("recompute", "wide_numbers", 1e308)
    # Groups that have none of them are followed as ever.
    assert pulled((101, 2.0)) == ("keyed", "", 1e308)
    assert pulled((5, 1.0), gone=[3]) == ("recompute", "wide_numbers", 1.75)
    assert pulled(gone=[4]) == ("recompute", "wide_numbers", 1.75)
    assert pulled((6, 1.0), gone=[1]) == ("keyed", "", 2.25)


def test_tiny_increments_take_two_jobs_and_empty_ones_none(spark_workspace, monkeypatch, spark):
    random_ = random.Random(3)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    names = ["sums", "kept_values", "mapped", "bag"]
    for name in names:
        text, key = QUERIES[name]
        derive(spark_workspace, DerivationRequest(name, text, key=key))
    follow_all(spark_workspace, names)
    dataset.append(rows(random_, [1, 2, 50]))
    for name, most in zip(names, (2, 2, 1, 1), strict=True):
        with jobs_in(spark) as jobs:
            follow_all(spark_workspace, [name])
        assert len(jobs) <= most, (name, jobs)
    dataset.append(dataset.view().to_arrow(), watermark="2030-01-01T00:00:00Z")
    with jobs_in(spark) as jobs:
        follow_all(spark_workspace, names)
    assert jobs == []


def test_the_strategy_is_recorded_with_the_definition(spark_workspace):
    begin(spark_workspace, tl.merge.upsert("id"))
    derive(spark_workspace, DerivationRequest("sums", *QUERIES["sums"][:1], key="k"))
    derive(spark_workspace, DerivationRequest("top", "select id from t order by id limit 3", key="id"))
    said = {name: derivation_at(spark_workspace[name].chain.tail()) for name in ("sums", "top")}
    assert (said["sums"].strategy, said["sums"].reason) == ("keyed", "")
    assert (said["top"].strategy, said["top"].reason) == ("recompute", "limit")


@pytest.mark.contract("derive:V5")
def test_first_and_last_go_by_the_offset_of_an_input_that_only_grows(spark_workspace):
    grows = spark_workspace.create("g", merge=tl.merge.append())
    upsert = spark_workspace.create("u", merge=tl.merge.upsert("id"))
    for dataset in (grows, upsert):
        dataset.append(pa.table({"id": [3, 1, 2], "x": [None, 5.0, -0.0]}))
    made = spark_workspace.derive(
        "ends",
        "select first(x) as f, last(x) as l, first(id) as i, first(x, true) as s, count(*) as n from g",
    )
    assert derivation_at(made.chain.tail()).strategy == "keyed"
    of_events = spark_workspace.derive("of_events", "select first(id) as f, last(op) as l from changes('u')")
    follow_all(spark_workspace, ["ends", "of_events"])
    assert made.view().to_arrow().to_pylist() == [{"f": None, "l": 0.0, "i": 3, "s": 5.0, "n": 3}]
    for dataset in (grows, upsert):
        dataset.append(pa.table({"id": [1], "x": [7.0]}))
    follow_all(spark_workspace, ["ends", "of_events"])
    assert made.view().to_arrow().to_pylist() == [{"f": None, "l": 7.0, "i": 3, "s": 5.0, "n": 4}]
    assert of_events.view().to_arrow().to_pylist() == [{"f": 1, "l": "update_postimage"}]
    # One row of each order is kept, however long the history is.
    (state,) = [
        file
        for file in derived_checkpoint(made.chain.store, made.chain.tail().data).state
        if file.notes["state"].startswith("aggregates")
    ][-1:]
    assert state.notes["state"] == "aggregates-2-grows"
    assert spark_workspace.verify("ends", "of_events", replay=True).ok
    for text in (
        "select first(x) as f from u",
        "select any_value(x) as f from g",
        "select first(g.x) as f from g join u on g.id = u.id",
        "select first(x) as f from (select * from g order by x)",
        "with g as (select x from u) select first(x) as f from g",
        "select first(struct(*)) as f from g",
    ):
        with pytest.raises(tl.errors.IrreproducibleQuery, match="order in which rows arrive"):
            spark_workspace.derive("other", text)


def test_a_session_is_lent_again_without_tables_and_not_after_a_failure(spark_workspace):
    data = spark_workspace.create("t")
    data.append(pa.table({"k": ["a"], "x": [0.5]}))
    derive(spark_workspace, DerivationRequest("sums", "select k, sum(x) s from t group by k", key="k"))
    for number in range(2):
        follow_all(spark_workspace, ["sums"])
        data.append(pa.table({"k": ["a", "b"], "x": [0.1, float(number)]}))
        follow_all(spark_workspace, ["sums"])
    room = spark_workspace._spark.first
    with room.lent() as first:
        assert [table for table in first.catalog.listTables() if table.isTemporary] == []
        with room.lent() as beside:
            assert beside is not first
    with pytest.raises(ZeroDivisionError), room.lent() as again:
        assert again is first
        raise ZeroDivisionError
    with room.lent() as other:
        assert other is beside
