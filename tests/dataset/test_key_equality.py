"""Which merge keys are equal: both zeros are one key of a new dataset, two of an earlier one, as recorded."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT
from trueline.chain.events import SetAttachments
from trueline.dataset.append import merge as merging
from trueline.dataset.definition import Addendum, addendum_of, key_equality_at
from trueline.errors import UnsupportedVersion
from trueline.merge import KeyEquality

# Written before datasets recorded a rule: `readings` is upsert("x"), `typed` snapshot("x") with
# a schema, `facts` ledger(["x", "n"]), `plain` append(), each with both zeros. Keys and indexes are left out.
GOLDEN = ROOT / "tests" / "golden" / "workspace-bitwise-keys"
NAN = math.nan
pytestmark = pytest.mark.contract("exchange:E5")


def rows(*pairs: tuple[float, str]) -> pa.Table:
    return pa.table({"x": pa.array([x for x, _ in pairs], pa.float64()), "v": [v for _, v in pairs]})


def current(ds) -> list[tuple[str, str]]:
    """The current rows in key order; texts keep the sign of a zero."""
    return [(str(row["x"]), row["v"]) for row in ds.view().to_arrow().to_pylist()]


def without_state(ds) -> None:
    """Remove every file of state: what is read is then folded from the events."""
    for file in (Path(ds.chain.store.location) / "checkpoints").iterdir():
        if file.read_bytes().startswith(b"PAR1"):
            file.unlink()


# --- what is recorded -------------------------------------------------------------------


def test_a_dataset_whose_key_may_hold_floats_records_the_rule(ws):
    made = ws.create("free", merge=tl.merge.upsert("x"))
    typed = ws.create("typed", pa.schema([("x", pa.float32())]), merge=tl.merge.ledger("x"))
    later = ws.create("later", pa.schema([("n", pa.int64())]), merge=tl.merge.snapshot(["n", "x"]))
    for ds in (made, typed, later):
        assert key_equality_at(ds.chain.tail()) is KeyEquality.NUMERIC
    (item,) = made.chain.tail().attachments.attachments.items
    assert item.content == '{"format":"trueline/definition","key_equality":"numeric","version":1}'


def test_other_datasets_keep_the_blocks_they_had(ws):
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    made = [ws.create("a"), ws.create("b", schema), ws.create("c", schema, merge=tl.merge.upsert("n"))]
    for ds in made:
        assert not any(isinstance(block.event, SetAttachments) for _, block in ds.blocks())
        assert key_equality_at(ds.chain.tail()) is KeyEquality.BITWISE


def test_a_rule_that_is_not_known_is_refused_by_whoever_needs_it(ws):
    text = Addendum(key_equality="numeric").to_text().replace("numeric", "collated")
    with pytest.raises(UnsupportedVersion, match="key_equality 'collated'"):
        Addendum.from_text(text)
    ds = ws.create_from_manifest(
        f"""
kind: DatasetSnapshot
version: 1
content:
  name: x
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {{kind: Parquet}}
      merge: {{kind: UpsertStream, primaryKey: [x]}}
    - kind: SetAttachments
      attachments:
        kind: Embedded
        items:
          - {{path: trueline.json, content: '{text}'}}
"""
    )
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        ds.append(rows((1.0, "a")))
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        key_equality_at(ds.chain.tail())


# --- new datasets -----------------------------------------------------------------------


@pytest.fixture(params=["at once", "in ranges"])
def way(request, monkeypatch):
    """Merged in memory, or sorted through runs and merged by tasks."""
    if request.param == "in ranges":
        monkeypatch.setattr(merging, "ROWS_AT_ONCE", 2)
    return request.param


def test_an_upsert_of_one_zero_corrects_the_row_of_the_other(ws, way):
    ds = ws.create("x", merge=tl.merge.upsert("x"))
    first = ds.append(rows((-0.0, "minus"), (1.5, "more"), (NAN, "nan")))
    second = ds.append(rows((0.0, "plus"), (2.5, "new"), (NAN, "nan")))
    assert second.ignored == {"unchanged": 1}
    expected = [("0.0", "plus"), ("1.5", "more"), ("2.5", "new"), ("nan", "nan")]
    assert current(ds) == expected
    assert ds.get(-0.0) == ds.get(0.0) == {"x": 0.0, "v": "plus"}
    changed = [(row["op"], str(row["x"]), row["v"]) for row in ds.diff(first.block).to_arrow().to_pylist()]
    assert [change for change in changed if change[2] != "new"] == [
        ("update_preimage", "-0.0", "minus"),
        ("update_postimage", "0.0", "plus"),
    ]
    assert ds.verify().ok
    without_state(ds)
    assert current(ds) == expected
    assert ds.get(-0.0) == {"x": 0.0, "v": "plus"}
    again = ds.append(rows((-0.0, "last"), (3.5, "x"), (4.5, "y")))
    assert again.rows == 4  # two of the correction, two new ones: the state was made again from the events
    assert current(ds)[0] == ("-0.0", "last")


def test_the_sign_of_a_zero_alone_is_no_change(ws, way):
    ds = ws.create("x", merge=tl.merge.upsert("x"))
    ds.append(rows((0.0, "a"), (1.0, "b"), (2.0, "c")))
    again = ds.append(rows((-0.0, "a"), (1.0, "b"), (2.0, "c")))
    assert (again.rows, again.ignored) == (0, {"unchanged": 3})


def test_a_ledger_a_snapshot_and_a_changelog_take_both_zeros_for_one(ws, way):
    ledger = ws.create("ledger", merge=tl.merge.ledger("x"))
    ledger.append(rows((0.0, "a"), (1.0, "b"), (2.0, "c")))
    assert ledger.append(rows((-0.0, "a"), (-0.0, "a"), (5.0, "d"))).ignored == {"duplicate": 2}
    assert ledger.get(-0.0)["v"] == "a"
    snapshot = ws.create("snapshot", merge=tl.merge.snapshot("x"))
    snapshot.append(rows((0.0, "a"), (1.0, "b"), (2.0, "c")))
    snapshot.append(rows((-0.0, "z"), (1.0, "b"), (2.0, "c")))
    assert current(snapshot) == [("-0.0", "z"), ("1.0", "b"), ("2.0", "c")]
    changelog = ws.create("changelog", merge=tl.merge.changelog("x"))
    events = rows((0.0, "a"), (-0.0, "a"), (1.0, "b")).append_column("op", pa.array([0, 1, 0], pa.int32()))
    changelog.append(events)
    assert current(changelog) == [("1.0", "b")]


def test_a_batch_with_both_zeros_has_one_row_for_them(ws, way):
    ds = ws.create("x", merge=tl.merge.upsert("x"))
    made = ds.append(rows((0.0, "first"), (-0.0, "last"), (1.0, "b")))
    assert made.ignored == {"superseded": 1}
    assert current(ds) == [("-0.0", "last"), ("1.0", "b")]


def test_removing_a_row_takes_the_earlier_ones_of_the_other_zero_along(ws):
    ds = ws.create("x", merge=tl.merge.upsert("x"))
    ds.append(rows((-0.0, "secret"), (1.0, "b")))
    ds.append(rows((0.0, "plus")))
    # The addition of the one zero, and both halves of its correction to the other.
    assert ds.drop_data(where="v = 'plus'", reason="asked for").rows == 3
    assert current(ds) == [("1.0", "b")]
    assert {str(problem.kind) for problem in ds.verify().problems} == {"removed"}


def test_a_clone_has_the_rule_too(ws, tmp_path):
    ds = ws.create("x", merge=tl.merge.upsert("x"))
    ds.append(rows((-0.0, "minus")))
    ds.push(tmp_path / "copy")
    with tl.open(tmp_path / "other", create=True) as other:
        clone = other.clone(str(tmp_path / "copy"), "x")
        assert clone.get(0.0)["v"] == "minus"
        assert key_equality_at(clone.chain.tail()) is KeyEquality.NUMERIC


# --- earlier datasets -------------------------------------------------------------------


@pytest.fixture
def earlier(tmp_path):
    """A copy of a workspace that an earlier version wrote."""
    shutil.copytree(GOLDEN, tmp_path / "earlier")
    with tl.open(tmp_path / "earlier") as ws:
        yield ws


def test_an_earlier_workspace_reads_verifies_and_is_what_it_was(earlier):
    assert sorted(earlier) == ["facts", "plain", "readings", "typed"]
    assert all(earlier[name].verify().ok for name in earlier)
    readings = [("-0.0", "minus again"), ("0.0", "plus"), ("1.5", "more"), ("2.5", "new"), ("nan", "nan")]
    assert current(earlier["readings"]) == readings
    assert current(earlier["typed"]) == [("-0.0", 2), ("0.0", 1)]
    assert current(earlier["facts"]) == [("0.0", "plus"), ("-0.0", "minus")]
    assert earlier["readings"].get(-0.0)["v"] == "minus again"
    assert earlier["readings"].get(0.0)["v"] == "plus"
    without_state(earlier["readings"])
    assert current(earlier["readings"]) == readings


def test_an_earlier_dataset_goes_on_by_its_own_rule(earlier, way):
    ds = earlier["readings"]
    made = ds.append(rows((-0.0, "minus, third"), (1.5, "more"), (0.0, "plus")))
    assert (made.rows, made.ignored) == (2, {"unchanged": 2})
    assert current(ds)[:2] == [("-0.0", "minus, third"), ("0.0", "plus")]
    typed = earlier["typed"]
    typed.append(pa.table({"x": pa.array([-0.0], pa.float32()), "v": [2]}))
    assert current(typed) == [("-0.0", 2)]
    facts = earlier["facts"]
    again = pa.table({"x": [-0.0, 0.0, 1.0], "n": [1, 1, 1], "v": ["minus", "plus", "one"]})
    assert facts.append(again).ignored == {"duplicate": 2}
    earlier["plain"].append(pa.table({"n": [4], "x": [-0.0]}))
    assert all(earlier[name].verify().ok for name in earlier)


def test_creating_an_earlier_dataset_again_returns_it_as_it_is(earlier):
    heads = {name: earlier[name].head for name in earlier}
    earlier.create("readings", merge=tl.merge.upsert("x"))
    earlier.create("facts", merge=tl.merge.ledger(["x", "n"]))
    earlier.create("typed", pa.schema([("x", pa.float32()), ("v", pa.int64())]), merge=tl.merge.snapshot("x"))
    earlier.create("plain")
    assert {name: earlier[name].head for name in earlier} == heads
    assert all(addendum_of(earlier[name].chain) == Addendum() for name in earlier)


def test_tasks_of_spark_follow_the_rule_of_the_dataset(ws, earlier, spark, monkeypatch):
    """A frame is merged by tasks in ranges of keys, each with its part of the state."""
    monkeypatch.setattr(merging, "FEW_ROWS", 2)
    new = ws.create("x", merge=tl.merge.upsert("x"))
    new.append(rows((-0.0, "minus"), (1.5, "more")))
    sent = [(0.0, "zero"), (1.5, "more"), (2.5, "new"), (7.5, "last")]
    frame = spark.createDataFrame(sent, "x double, v string").repartition(2)
    assert new.append(frame).ignored == {"unchanged": 1}
    assert current(new) == [("0.0", "zero"), ("1.5", "more"), ("2.5", "new"), ("7.5", "last")]
    old = earlier["readings"]
    old.append(frame)
    assert current(old)[:2] == [("-0.0", "minus again"), ("0.0", "zero")]
    assert new.verify().ok
    assert old.verify().ok
