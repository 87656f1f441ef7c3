"""Positions as people give them; whatever they give, a reader stands at the end of a commit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from tests.dataset.read.histories import START, History
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.dataset.at import resolve
from trueline.errors import InputError

DATA = pa.schema({"x": pa.int64()})


def rows(count: int) -> pa.Table:
    return pa.table({"x": range(count)})


@pytest.fixture
def history():
    """Commits that end at the offsets 1, 4 (in three parts) and 5, then one without rows; one a second."""
    history = History(DATA)
    history.add(rows(2))
    history.add(rows(3), parts=3)
    history.add(rows(1))
    history.describe("words")
    return history


def offset(history, at):
    return resolve(history.chain, at).offset


def test_nothing_given_is_the_newest_commit(history):
    assert resolve(history.chain, None) == Position(history.chain.head, 5)


def test_a_hash_its_beginning_or_its_end_name_a_commit(history):
    block = history.ends[1]
    for given in (block, str(block), block.short, block[5:17], Position(block, 1)):
        assert resolve(history.chain, given) == Position(block, 1)


def test_a_tag_is_a_ref_of_the_dataset_beside_its_head(ws):
    ds = ws.create("sales")
    first = ds.append([{"x": 1}])
    ds.append([{"x": 2}])
    store = ds.chain.store
    for tag in ("release-1", "2026-01-01", "abcd"):
        store.move_head(first.block, expected=None, ref=tag)
        assert resolve(ds.chain, tag) == Position(first.block, 0)
        assert ds.view(tag).count() == 1
        assert ds.changes(tag).count() == 1
    with pytest.raises(InputError, match="does not name a commit"):
        ds.view("release-2")
    assert ds.view("head").count() == 2
    ws.gc(older_than=0)
    assert ds.view("release-1").to_arrow()["x"].to_pylist() == [1]


def test_a_moment_is_the_last_commit_recorded_by_then(history):
    second = history.chain.block(history.ends[1]).system_time
    assert offset(history, second.datetime) == 1
    assert offset(history, second.datetime + timedelta(microseconds=999_999)) == 1
    assert offset(history, second.datetime + timedelta(seconds=1)) == 4
    assert offset(history, str(second)) == 1
    assert offset(history, second) == 1
    assert offset(history, "2026-01-01T01:00:02+01:00") == 1


def test_a_day_is_its_end_in_utc(history):
    assert offset(history, "2026-01-01") == offset(history, date(2026, 1, 1)) == 5
    history.system_time = Instant(START + 86_400 * 10**9 - 2 * 10**9)
    history.add(rows(1))
    history.add(rows(1))
    assert offset(history, "2026-01-01") == 6
    assert offset(history, "2026-01-02") == 7


def test_a_moment_before_the_beginning_says_when_it_began(history):
    with pytest.raises(InputError, match="2026-01-01T00:00:01Z") as caught:
        resolve(history.chain, "2025-12-31")
    assert caught.value.code == "BeforeTheBeginning"


def test_a_naive_time_is_refused(history):
    with pytest.raises(InputError, match="time zone"):
        resolve(history.chain, datetime(2026, 1, 1))


@pytest.mark.parametrize("given", [1, 4, 5])
def test_an_offset_names_the_commit_that_ends_there(history, given):
    assert offset(history, given) == given
    assert offset(history, f"offset:{given}") == given


@pytest.mark.parametrize(("given", "ends"), [(0, ["1"]), (2, ["1", "4"]), (3, ["1", "4"])])
def test_an_offset_inside_a_commit_is_refused_and_the_ends_are_named(history, given, ends):
    with pytest.raises(InputError) as caught:
        resolve(history.chain, given)
    assert caught.value.code == "InsideCommit"
    assert caught.value.remedy.endswith(" or ".join(ends))


def test_a_block_inside_a_commit_is_refused_and_its_end_is_named(history):
    inside = history.chain.entry_number(history.chain.entry(history.ends[2]).sequence_number - 1)
    with pytest.raises(InputError) as caught:
        resolve(history.chain, inside.hash)
    assert caught.value.code == "InsideCommit"
    assert history.ends[2].short in caught.value.remedy


def test_a_head_inside_a_commit_shows_the_commit_before_it(history):
    inside = history.chain.entry_number(history.chain.entry(history.ends[2]).sequence_number - 1)
    # Nobody resets there; a copy made while a head moved may have it.
    history.chain.store.move_head(inside.hash, expected=history.chain.store.head())
    assert resolve(history.chain, None) == Position(history.ends[1], 1)
    assert resolve(history.chain, datetime(2027, 1, 1, tzinfo=UTC)).block == history.ends[1]


def test_a_tag_comes_before_a_hash_that_is_written_the_same(history):
    tags = {"abcd": history.ends[1], history.ends[2].short: history.ends[3]}
    assert resolve(history.chain, "abcd", tags.get).offset == 1
    assert resolve(history.chain, history.ends[2].short, tags.get).offset == 5


@pytest.mark.parametrize(
    "given",
    ["", "yesterday", "2026-02-30", "offset:x", "abcd" * 16, -1, 6, 1 << 70, True, 1.5, object(), "f1620"],
)
def test_anything_else_is_refused_with_what_to_do(history, given):
    with pytest.raises(InputError) as caught:
        resolve(history.chain, given)
    assert caught.value.remedy
