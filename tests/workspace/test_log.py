"""The log: commits as people made them, and the ways to name one."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline.chain.block import Block, CommitRecord
from trueline.chain.events import DataSlice, OffsetInterval, SetInfo
from trueline.chain.head_state import linked, next_add_data, next_block
from trueline.chain.instant import Instant
from trueline.errors import InputError
from trueline.identity.multihash import Multihash


def test_a_commit_is_one_move_of_the_head_newest_first(ds):
    made = [ds.append(pa.table({"x": [n]})) for n in range(3)]
    assert list(ds.log())[:3] == made[::-1]
    assert [commit.events for commit in ds.log()] == [
        ("AddData",), ("AddData",), ("SetDataSchema", "AddData"), ("Seed", "AddPushSource"),
    ]  # fmt: skip
    assert [name for commit in list(ds.log())[::-1] for name in commit.blocks] == [
        name for name, _ in list(ds.blocks())[::-1]
    ]


def metadata(ds, text, time=None):
    tail = ds.chain.tail()
    ds.chain.append(next_block(tail, SetInfo(description=text), time or Instant(tail.system_time + 1)))


def test_metadata_of_its_own_is_a_commit_of_its_own(ds):
    ds.append(pa.table({"x": [1]}))
    metadata(ds, "a")
    metadata(ds, "b")
    ds.append(pa.table({"x": [2]}))
    assert [commit.events for commit in ds.log()][:4] == [
        ("AddData",), ("SetInfo",), ("SetInfo",), ("SetDataSchema", "AddData"),
    ]  # fmt: skip
    assert ds.info.commits == len(list(ds.log())) == 5


def test_a_clock_that_stands_still_does_not_join_commits(ds, monkeypatch):
    still = ds.info.updated
    monkeypatch.setattr(Instant, "now", classmethod(lambda cls: still))
    for n in range(3):
        ds.append(pa.table({"x": [n]}))
    assert [commit.rows for commit in ds.log()] == [1, 1, 1, 0]
    assert ds.info.commits == 4


def add_data(tail, first, last, record):
    name = Multihash.of(f"{first}-{last}".encode())
    told = DataSlice(Multihash.arrow0_sha3_256(name.digest), name, OffsetInterval(first, last), 10)
    return next_add_data(tail, new_data=told, extra=record.to_extra())


def test_the_parts_of_a_commit_belong_together(ds):
    ds.append(pa.table({"x": [1]}))
    tail = ds.chain.tail()
    blocks: list[Block] = []
    for part in (1, 2, 3):
        blocks += linked(
            tail, [add_data(tail, part, part, CommitRecord(part, 3))], Instant(tail.system_time + 1)
        )
        tail = tail.after(blocks[-1])
    ds.chain.append(*blocks)
    newest, before = list(ds.log())[:2]
    assert (newest.rows, newest.offsets, newest.events) == (3, range(1, 4), ("AddData",) * 3)
    assert before.rows == 1
    assert ds.info.commits == 3
    for block in blocks:
        assert ds.commit(block.hash) == newest


@pytest.mark.parametrize("many", [3, 80])
def test_the_number_of_commits_is_that_of_the_log_however_much_metadata_there_is(ds, many):
    ds.append(pa.table({"x": [1]}))
    for number in range(many):
        metadata(ds, str(number))
    assert ds.info.commits == len(list(ds.log())) == many + 2


def test_a_commit_is_named_by_its_hash_or_by_enough_of_it(ds):
    commits = [ds.append(pa.table({"x": [n]})) for n in range(4)]
    for commit in commits:
        for name in (
            commit.block,
            str(commit.block),
            commit.short,
            commit.block[:20],
            commit.block[5:20],
        ):
            assert ds.commit(name) == commit
    seed = next(block for block in commits[0].blocks)
    assert ds.commit(seed) == commits[0], "a block inside a commit names the commit"


@pytest.mark.parametrize("name", ["", "abc", "zzzz", "f1620", "0" * 64, "f1620" + "0" * 64, 7, 1.5])
def test_what_names_no_commit_is_refused(ds, name):
    with pytest.raises(InputError, match=r"hash|block|does not name a commit|matches|no record"):
        ds.commit(name)


def test_a_name_that_fits_several_blocks_is_refused(ds, monkeypatch):
    ds.append(pa.table({"x": [1]}))
    # Two hashes of which four characters are equal would take 256 blocks, on average.
    monkeypatch.setattr(ds.chain, "entries_like", lambda **_: list(ds.chain.entries()))
    with pytest.raises(InputError, match="matches 4 blocks") as caught:
        ds.commit("abcd")
    assert caught.value.code == "AmbiguousPosition"


def test_verifying_can_be_bounded_by_commits(ds):
    commits = [ds.append(pa.table({"x": [n]})) for n in range(4)]
    report = ds.verify(after=commits[0], upto=commits[2])
    assert (report.blocks, report.objects, report.ok) == (2, 2, True)
    assert ds.verify(after=commits[0].short).blocks == 3


def test_reading_the_newest_commits_reads_only_their_blocks(ws, ds):
    for n in range(30):
        ds.append(pa.table({"x": [n]}))
    ws.close()
    with tl.open(ws.location) as again:
        dataset = again["trades"]
        head = dataset.head
        read: list[Multihash] = []
        block = dataset.chain.block
        dataset.chain.block = lambda name: (read.append(name), block(name))[1]
        assert next(dataset.log()).block == head
        assert len(read) == 2


def test_info_costs_a_few_block_reads_whatever_the_length(ws, ds):
    def reads():
        with tl.open(ws.location) as again:
            dataset = again["trades"]
            count = 0
            block = dataset.chain.block

            def counted(name):
                nonlocal count
                count += 1
                return block(name)

            dataset.chain.block = counted
            assert dataset.info.rows
            return count

    ds.append(pa.table({"x": [1]}))
    few = reads()
    for n in range(40):
        ds.append(pa.table({"x": [n]}))
    assert reads() <= few


def test_the_clock_of_a_workspace_stamps_what_makes_and_changes_a_dataset(ws):
    noon = Instant.parse("2020-01-01T12:00:00Z")
    ws.clock = lambda: noon
    ds = ws.create("sales", schema=pa.schema({"x": pa.int64()}), description="all")
    assert {block.system_time for _, block in ds.blocks()} == {noon}
    later = Instant.parse("2020-01-02T12:00:00Z")
    ws.clock = lambda: later
    ws.create("sales", schema=pa.schema({"x": pa.int64()}), description="some", on_change="from_here")
    assert ds.commit().system_time == later
    manifest = "kind: DatasetSnapshot\nversion: 1\ncontent:\n  name: trades\n  kind: Root\n  metadata: []\n"
    assert ws.create_from_manifest(manifest).commit().system_time == later
    ds.append([{"x": 1}])
    much_later = Instant.parse("2020-01-03T12:00:00Z")
    ws.clock = lambda: much_later
    ds.drop_data(where="x = 1", reason="asked for")
    assert ds.commit().system_time == much_later
