"""Watermarks: behind the newest event time by the lateness, never back; late is decided once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from trueline.chain import Chain, MemoryStore
from trueline.chain.events import AddData
from trueline.chain.instant import Instant
from trueline.dataset.append.append import append_rows
from trueline.dataset.append.intake import AppendRequest
from trueline.dataset.definition import Definition
from trueline.identity.dataset_id import DatasetKey

DAY = datetime(2026, 11, 13, tzinfo=UTC)


def at(*hours):
    return pa.table({"day": pa.array([DAY + timedelta(hours=h) for h in hours], pa.timestamp("ms", "UTC"))})


@pytest.mark.parametrize("lateness", ["2h", "120m", 7200, timedelta(hours=2)])
def test_the_watermark_stays_behind_the_newest_event_time(ws, lateness):
    ds = ws.create("sales", event_time="day", lateness=lateness)
    assert str(ds.append(at(5, 9, 7)).watermark) == "2026-11-13T07:00:00Z"
    assert ws.create("sales", event_time="day", lateness="2h") is ds


def test_it_never_goes_back(ws):
    ds = ws.create("sales", event_time="day", lateness="2h")
    ds.append(at(9))
    assert str(ds.append(at(3)).watermark) == "2026-11-13T07:00:00Z"
    assert str(ds.append(at(10)).watermark) == "2026-11-13T08:00:00Z"


def test_a_record_is_late_if_it_was_before_the_watermark_of_the_commits_before(ws):
    ds = ws.create("sales", event_time="day", lateness="2h")
    assert ds.append(at(1, 9)).late == 0  # nothing was said before
    commit = ds.append(at(6, 7, 8, 30))
    assert commit.late == 1  # 6 o'clock; the watermark itself is not late, nor what its own commit moves
    assert ds.append(at(27)).late == 1
    shown = ds.changes(system=True).to_arrow()
    assert shown["late"].to_pylist() == [False, False, True, False, False, False, True]


def test_only_new_rows_are_late_not_the_old_ones_they_correct_or_take_away(ws):
    ds = ws.create("sales", merge=tl.merge.upsert("id"), event_time="day")
    ds.append([{"id": n, "day": DAY + timedelta(hours=n), "op": 0} for n in (1, 2, 9)])
    changes = [
        {"id": 0, "day": DAY, "op": 0},  # new and late
        {"id": 1, "day": DAY + timedelta(hours=3), "op": 0},  # corrected by a late row
        {"id": 2, "day": None, "op": 1},  # taken away
        {"id": 9, "day": DAY + timedelta(hours=10), "op": 0},  # corrected by a row in time
    ]
    commit = ds.append(changes)
    shown = ds.changes(system=True).to_arrow().slice(3)
    assert shown["op"].to_pylist() == [
        "insert",
        "update_preimage",
        "update_postimage",
        "delete",
        "update_preimage",
        "update_postimage",
    ]
    assert shown["late"].to_pylist() == [True, False, True, False, False, False]
    assert commit.late == 2


def test_a_watermark_within_a_millisecond_makes_that_millisecond_late(ws):
    ds = ws.create("sales", event_time="day")
    ds.append(at(1), watermark="2026-11-13T05:00:00.000500Z")
    assert ds.append(at(5)).late == 1
    assert ds.changes(system=True).to_arrow()["late"].to_pylist() == [False, True]


def test_without_lateness_the_watermark_is_the_newest_event_time(ws):
    ds = ws.create("sales", event_time="day")
    assert str(ds.append(at(9)).watermark) == "2026-11-13T09:00:00Z"


def test_a_watermark_that_is_given_is_taken_as_it_is(ws):
    ds = ws.create("sales", event_time="day", lateness="2h")
    assert str(ds.append(at(9), watermark="2026-11-13T08:30:00Z").watermark) == "2026-11-13T08:30:00Z"


def test_a_watermark_does_not_leave_the_calendar(ws):
    ds = ws.create("sales", event_time="day", lateness="36500d")
    early = pa.table({"day": pa.array([datetime(5, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC"))})
    assert str(ds.append(early).watermark) == "0001-01-01T00:00:00Z"


@pytest.mark.contract("chain:R8")
def test_a_commit_of_a_watermark_alone_keeps_checkpoint_and_source_state(ws, server):
    url = server.serve("/a.csv", b"id,day\n1,2026-11-13T09:00:00Z\n", etag='"v1"')
    ds = ws.create("sales", source=url, merge=tl.merge.upsert("id"), event_time="day", lateness="2h")
    ws.pull()
    before = ds.chain.tail().data
    assert before.new_checkpoint is not None
    assert before.new_source_state.value == '"v1"'
    moved = ds.append([], watermark="2026-11-13T12:00:00Z")
    after = ds.chain.tail().data
    assert isinstance(after, AddData)
    assert (moved.rows, str(after.new_watermark)) == (0, "2026-11-13T12:00:00Z")
    assert (after.new_checkpoint, after.new_source_state) == (before.new_checkpoint, before.new_source_state)
    assert ws.pull()["sales"].skipped == (url,)
    assert server.asked[-1][1]["if-none-match"] == '"v1"'
    server.serve("/a.csv", b"id,day\n1,2026-11-13T11:00:00Z\n2,2026-11-14T00:00:00Z\n", etag='"v2"')
    commit = ws.pull()["sales"].commit
    assert ds.chain.tail().data.new_source_state.value == '"v2"'
    assert (commit.rows, commit.late) == (3, 1)  # of the correction its new row, the old one is not new
    assert ds.get(1)["day"] == datetime(2026, 11, 13, 11, tzinfo=UTC)
    assert ds.verify().ok


@settings(max_examples=examples(40))
@given(
    lateness=st.integers(0, 20),
    batches=st.lists(st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=1, max_size=5), max_size=6),
)
def test_watermark_and_late_follow_the_rule_for_any_history(lateness, batches):
    chain = Chain(MemoryStore())
    column = pa.timestamp("ms", "UTC")
    definition = Definition.of(
        pa.schema({"day": column}), tl.merge.append(), "day", None, lateness=f"{lateness}h"
    )
    chain.append(*definition.blocks(DatasetKey.generate().id, Instant.now()))
    watermark = None
    for hours in batches:
        rows = [None if hour is None else DAY + timedelta(hours=hour) for hour in hours]
        late = sum(row is not None and watermark is not None and row < watermark for row in rows)
        there = [row for row in rows if row is not None]
        if there:
            found = max(there) - timedelta(hours=lateness)
            watermark = found if watermark is None else max(watermark, found)
        request = AppendRequest(pa.table({"day": pa.array(rows, column)}))
        commit = append_rows("x", chain, chain.tail(), request)
        assert (commit.late, commit.watermark and commit.watermark.datetime) == (late, watermark)
