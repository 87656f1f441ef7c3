from __future__ import annotations

import threading

import pytest

from tests.chain.growing import add_rows, begin_derivative, dataset_id, derive, grow_root, info, multi_part
from trueline.chain import Block, Chain, Folder, MemoryStore
from trueline.chain.events import AddData, Seed, SetDataSchema, SetInfo
from trueline.errors import ChainError, HashMismatch, HeadMissing, InputError, OutcomeUnknown, RefCASFailed
from trueline.identity.multihash import Multihash


@pytest.fixture
def chain():
    return grow_root(Chain(MemoryStore()), 5)


def hashes(chain: Chain) -> list[Multihash]:
    """Oldest first, by following the links alone."""
    return [name for name, _ in chain.walk()][::-1]


def test_walking_follows_the_links_from_the_head_to_the_seed(chain):
    blocks = [block for _, block in chain.walk()]
    assert [block.sequence_number for block in blocks] == [6, 5, 4, 3, 2, 1, 0]
    assert isinstance(blocks[-1].event, Seed)
    assert blocks[0].hash == chain.head


def test_an_interval_is_half_open_and_oldest_first(chain):
    names = hashes(chain)
    assert [name for name, _ in chain.between(names[2], names[5])] == names[3:6]
    assert [name for name, _ in chain.between(None)] == names
    assert list(chain.between(names[4], names[4])) == []
    assert [name for name, _ in chain.walk(names[5], names[2])] == names[5:2:-1]


def test_an_interval_that_ends_before_it_begins_is_refused(chain):
    names = hashes(chain)
    with pytest.raises(InputError, match="comes after"):
        list(chain.between(names[5], names[2]))
    with pytest.raises(ChainError, match="not an interval"):
        list(chain.walk(names[2], names[5]))


def test_ancestors_are_told_without_walking(chain):
    names = hashes(chain)
    assert chain.is_ancestor(names[1], names[4])
    assert chain.is_ancestor(names[4], names[4])
    assert not chain.is_ancestor(names[4], names[1])
    assert not chain.is_ancestor(Multihash.of(b"elsewhere"), names[4])


def test_the_nth_newest_event_of_a_type_is_found(chain):
    chain.append(info(chain, "one"))
    grow_root(chain, 3)
    chain.append(info(chain, "two"))
    assert chain.newest(SetInfo).event == SetInfo("two")
    assert chain.newest(SetInfo, nth=1).event == SetInfo("one")
    assert chain.newest(SetInfo, nth=2) is None
    first = chain.newest(SetInfo, nth=1)
    assert [chain.newest(SetInfo, AddData, nth=n).event for n in (0, 4)] == [SetInfo("two"), SetInfo("one")]
    assert isinstance(chain.newest(SetInfo, AddData, nth=3).event, AddData)
    assert chain.newest(SetInfo, upto=first.hash).event == SetInfo("one")
    assert chain.newest(AddData, upto=hashes(chain)[2]).sequence_number == 2


def test_several_blocks_move_the_head_once(chain):
    moves = []
    move_head = chain.store.move_head

    def counted(*args, **kwargs):
        moves.append(args)
        move_head(*args, **kwargs)

    chain.store.move_head = counted
    blocks = multi_part(chain, 3)
    done = chain.append(*blocks)
    assert len(moves) == 1
    assert chain.head == done.head == blocks[-1].hash
    assert done.blocks == tuple(block.hash for block in blocks)


def test_commit_ends_leave_out_the_parts_of_a_commit(chain):
    before = chain.entry(chain.head)
    chain.append(*multi_part(chain, 3))
    entries = list(chain.entries(before.hash))
    assert [entry.is_end for entry in entries] == [False, False, True]
    assert [entry.commits - before.commits for entry in entries] == [0, 0, 1]


def test_one_bad_block_refuses_all_of_them_and_leaves_nothing(chain):
    blocks = multi_part(chain, 3)
    bad = Block(
        system_time=blocks[2].system_time,
        prev_block_hash=blocks[1].hash,
        sequence_number=99,
        event=blocks[2].event,
    )
    head, stored = chain.head, {item.hash for item in chain.store.list(Folder.BLOCKS)}
    with pytest.raises(ChainError) as refused:
        chain.append(blocks[0], blocks[1], bad)
    assert refused.value.rule == "chain:C4"
    assert chain.head == head
    assert {item.hash for item in chain.store.list(Folder.BLOCKS)} == stored


@pytest.mark.contract("chain:C8")
def test_a_block_planned_before_another_writer_came_first_is_told_to_retry(chain):
    other = Chain(chain.store)
    late = add_rows(chain)
    other.append(add_rows(other, 3))
    with pytest.raises(RefCASFailed) as lost:
        chain.append(late)
    assert lost.value.code == "RefCASFailed"
    assert (lost.value.expected, lost.value.actual) == (late.prev_block_hash, other.head)
    chain.append(add_rows(chain))
    assert chain.tail().last_offset == 62


@pytest.mark.contract("chain:C8")
def test_a_race_lost_at_the_last_moment_is_lost_cleanly(chain):
    """The head moves between the check and the compare-and-set."""
    other = Chain(chain.store)
    move_head = chain.store.move_head

    def interrupted(*args, **kwargs):
        chain.store.move_head = move_head
        other.append(add_rows(other, 3))
        move_head(*args, **kwargs)

    chain.store.move_head = interrupted
    with pytest.raises(RefCASFailed):
        chain.append(add_rows(chain))
    assert chain.head == other.head
    assert chain.tail() == other.tail()


def test_an_unknown_outcome_is_raised_and_the_next_look_tells(chain):
    """Visible is not durable: the caller must hear of it even where the head reads as new."""
    move_head = chain.store.move_head

    def moved_but_silent(*args, **kwargs):
        move_head(*args, **kwargs)
        raise OutcomeUnknown("the storage did not answer")

    block = add_rows(chain)
    chain.store.move_head = moved_but_silent
    with pytest.raises(OutcomeUnknown):
        chain.append(block)
    assert chain.tail().head == block.hash
    assert chain.entry(block.hash).sequence_number == block.sequence_number


@pytest.mark.contract("chain:C8")
def test_a_reset_does_not_cut_off_commits_its_caller_has_not_seen(chain):
    seen, names = chain.head, hashes(chain)
    grow_root(Chain(chain.store), 1)
    with pytest.raises(RefCASFailed):
        chain.reset(names[3], expected=seen)
    assert chain.tail().last_offset == 59


def test_an_outcome_that_stays_unknown_is_raised(chain):
    def silent(*args, **kwargs):
        raise OutcomeUnknown("the storage did not answer")

    before, chain.store.move_head = chain.head, silent
    with pytest.raises(OutcomeUnknown):
        chain.append(add_rows(chain))
    assert chain.head == before


@pytest.mark.contract("chain:C7")
def test_an_expected_hash_is_held_against_the_block(chain):
    block = add_rows(chain)
    with pytest.raises(HashMismatch) as refused:
        chain.append(block, expected_hash=Multihash.of(b"other"))
    assert refused.value.actual == block.hash
    assert refused.value.rule == "chain:C7"
    chain.append(block, expected_hash=block.hash)


@pytest.mark.contract("chain:C7")
def test_a_block_whose_bytes_changed_is_named(chain):
    name = hashes(chain)[3]
    raw = bytearray(chain.store.get(Folder.BLOCKS, name))
    raw[40] ^= 1
    chain.store.get = lambda folder, asked, limit=None: bytes(raw)
    with pytest.raises(HashMismatch) as found:
        chain.block(name)
    assert found.value.expected == name


@pytest.mark.contract("chain:C9")
def test_the_head_can_only_be_reset_to_a_block_that_exists(chain):
    names = hashes(chain)
    with pytest.raises(ChainError) as refused:
        chain.reset(Multihash.of(b"nowhere"))
    assert (refused.value.code, refused.value.rule) == ("BlockNotFound", "chain:C9")
    chain.reset(names[3])
    assert chain.head == names[3]
    assert hashes(chain) == names[:4]
    assert chain.tail().last_offset == 19
    assert chain.sequence_of(names[5]) is None
    grow_root(chain, 1, rows=7)
    assert chain.tail().last_offset == 26


def test_the_tail_at_any_block_equals_the_tail_it_had_when_it_was_the_head():
    chain = Chain(MemoryStore())
    grow_root(chain, 0)
    tails = [chain.tail()]
    for step in range(12):
        chain.append(info(chain, str(step)) if step % 4 == 3 else add_rows(chain, step + 1))
        tails.append(chain.tail())
    fresh = Chain(chain.store)
    assert [fresh.tail_at(tail.head) for tail in tails] == tails


def test_offsets_lead_to_their_slices_and_to_no_others():
    chain = Chain(MemoryStore())
    grow_root(chain, 4)
    for index in range(20):
        chain.append(info(chain, str(index)))
    grow_root(chain, 2)
    reads = []
    read, chain.block = chain.block, lambda name: reads.append(name) or read(name)

    def intervals(first, last, upto=None):
        reads.clear()
        found = [block.event.new_data.offset_interval for block in chain.slice_blocks(first, last, upto)]
        assert len(reads) == len(found)
        return [(interval.start, interval.end) for interval in found]

    assert intervals(15, 44) == [(10, 19), (20, 29), (30, 39), (40, 49)]
    assert intervals(19, 19) == [(10, 19)]
    assert intervals(60, 70) == []
    assert intervals(0, 100, chain.entry_number(3).hash) == [(0, 9), (10, 19)]


def test_a_moment_leads_to_the_last_commit_end_before_it(chain):
    chain.append(*multi_part(chain, 2))
    entries = list(chain.entries())
    assert chain.at_time(entries[3].time_us).hash == entries[3].hash
    assert chain.at_time(entries[3].time_us + 1).hash == entries[3].hash
    assert chain.at_time(entries[0].time_us - 1) is None
    assert chain.at_time(entries[-1].time_us + 10**9).hash == chain.head


def test_without_the_inputs_their_rules_are_reported_as_not_checked():
    source = grow_root(Chain(MemoryStore()), 2, number=7)
    inputs = {dataset_id(7): source}
    blind = begin_derivative(Chain(MemoryStore()), [dataset_id(7)])
    assert blind.append(derive(blind, inputs, 3)).not_checked == ("chain:R4", "chain:R5", "chain:R10")
    seeing = begin_derivative(Chain(MemoryStore(), inputs), [dataset_id(7)])
    assert seeing.append(derive(seeing, inputs, 3)).not_checked == ()


def test_a_missing_head_is_told_with_the_last_one_known(chain):
    last = chain.head
    chain.store.head = lambda ref="head": None
    with pytest.raises(HeadMissing) as missing:
        chain.tail()
    assert missing.value.last_known == last


def test_a_first_commit_that_lands_between_head_and_index_is_no_missing_head(tmp_path):
    store = MemoryStore()
    theirs = Chain(store, index=tmp_path / "index.sqlite")
    ours = Chain(store, index=tmp_path / "index.sqlite")
    look, looked = store.head, []

    def head_before_the_first_commit(ref="head"):
        found = look()
        if not looked:
            looked.append(found)
            grow_root(theirs, 2)
        return found

    store.head = head_before_the_first_commit
    assert ours.tail().head == look()
    assert looked == [None]


def test_threads_that_share_a_chain_lose_no_commit():
    chain = grow_root(Chain(MemoryStore()), 0)

    def work():
        for _ in range(25):
            while True:
                try:
                    chain.append(add_rows(chain, 1))
                    break
                except RefCASFailed:
                    continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert chain.tail().last_offset == 99
    assert Chain(chain.store).tail() == chain.tail()


def test_the_schema_in_force_is_the_newest(chain):
    assert isinstance(chain.tail().schema, SetDataSchema)
    assert chain.tail_at(hashes(chain)[0]).schema is None
