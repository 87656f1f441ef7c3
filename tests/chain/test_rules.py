from __future__ import annotations

from typing import Any

import pytest

from tests.chain.broken_rules import INFO, STORIES, Story, blocks_of, read_input
from tests.chain.histories import (
    ABSENT,
    History,
    add_data,
    dataset_id,
    derivative,
    digest,
    execute,
    moment,
    polling_source,
    push_source,
    root,
    seed,
    set_data_schema,
    set_transform,
    sql,
    taken,
)
from tests.contracts.register import contracts
from trueline.chain import Block, Chain, Folder, MemoryStore
from trueline.chain.head_state import follow, next_inputs
from trueline.chain.verify import verify_blocks
from trueline.errors import ChainError, HashMismatch, InputError, RefCASFailed
from trueline.identity.multihash import Multihash

STRICTER = {
    f"chain:{name}" for name in ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "H3", "S7")
}
HELD_BELOW = {"chain:C7", "chain:C8", "chain:C9"}


def stories(*, only: set[str] | None = None) -> pytest.MarkDecorator:
    chosen = [story for story in STORIES if only is None or story.rule in only]
    return pytest.mark.parametrize(
        "story",
        [
            pytest.param(
                story,
                id=f"{story.rule.removeprefix('chain:')}-{story.name}",
                marks=pytest.mark.contract(story.rule),
            )
            for story in chosen
        ],
    )


def test_every_rule_of_the_chain_has_a_story():
    wanted = {
        name
        for name, contract in contracts().items()
        if contract.area == "chain" and contract.piece == "CHAIN" and contract.strength != "dropped"
    }
    assert {story.rule for story in STORIES} | HELD_BELOW == wanted


@stories()
def test_what_breaks_a_rule_is_refused_and_the_same_mended_is_accepted(story: Story):
    broken = story.tell()
    history = broken.history
    history.refuses(history.block(broken.bad, **broken.bad_header), story.rule, holds=broken.holds)
    done = history.append(broken.good)
    assert history.head == done.head
    assert done.findings == ()


@stories(only=STRICTER)
def test_a_stricter_rule_is_a_finding_in_a_chain_from_elsewhere(story: Story):
    broken = story.tell()
    history = broken.history
    done = history.append(broken.bad, strict=False, **broken.bad_header)
    assert history.head == done.head
    assert {finding.rule for finding in done.findings} == {story.rule}
    for finding in done.findings:
        assert finding.code == contracts()[story.rule].error
        assert finding.remedy
    problems = " ".join(finding.problem for finding in done.findings)
    assert all(str(value) in problems for value in broken.holds)


@stories(only={story.rule for story in STORIES} - STRICTER)
def test_every_other_rule_refuses_what_comes_from_elsewhere_too(story: Story):
    broken = story.tell()
    history = broken.history
    block = history.block(broken.bad, **broken.bad_header)
    history.refuses(block, story.rule, holds=broken.holds, strict=False)


# --- rules of the head ----------------------------------------------------------


@pytest.mark.contract("chain:C7")
def test_a_block_that_hashes_to_something_else_than_was_announced_is_refused():
    history = root()
    block = history.block(INFO)
    head, visible, other = history.head, history.visible(), Multihash.of(b"other")
    with pytest.raises(HashMismatch) as caught:
        history.chain.append(block, expected_hash=other)
    assert (caught.value.rule, caught.value.code) == ("chain:C7", "HashMismatch")
    assert str(other) in caught.value.problem
    assert str(block.hash) in caught.value.problem
    assert caught.value.remedy
    assert (history.head, history.visible()) == (head, visible)
    assert history.chain.append(block, expected_hash=block.hash).head == block.hash


@pytest.mark.contract("chain:C7")
def test_a_stored_block_whose_bytes_changed_is_never_handed_out():
    class Lying(MemoryStore):
        def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
            raw = super().get(folder, name, limit=limit)
            return raw[:-1] + bytes([raw[-1] ^ 1]) if name == changed else raw

    changed = None
    store = Lying()
    history = History("Root", INFO, store=store)
    changed = history.head
    with pytest.raises(HashMismatch) as caught:
        Chain(store).tail()
    assert caught.value.rule == "chain:C7"
    assert str(changed) in caught.value.problem


@pytest.mark.contract("chain:C8")
def test_a_block_that_continues_an_older_head_comes_too_late():
    history = root()
    late = history.block({"kind": "SetInfo", "description": "late"})
    expected = history.head
    history.append(INFO)
    error = history.refuses(late, "chain:C8", holds=(expected, history.head))
    assert isinstance(error, RefCASFailed)
    history.append({"kind": "SetInfo", "description": "late"})


@pytest.mark.contract("chain:C8")
def test_of_two_writers_who_plan_from_one_head_the_second_is_refused_at_the_move():
    store = MemoryStore()
    ours = History(store=store)
    theirs = Chain(store)
    block = ours.block({"kind": "SetInfo", "description": "ours"})

    class Racing(MemoryStore):
        """Another commit lands after the rules were checked, just before the head moves."""

        def move_head(self, new, **how):
            if new == block.hash:
                theirs.append(ours.block({"kind": "SetInfo", "description": "theirs"}))
            super().move_head(new, **how)

    store.__class__ = Racing
    with pytest.raises(RefCASFailed) as caught:
        ours.chain.append(block)
    assert (caught.value.rule, caught.value.code) == ("chain:C8", "RefCASFailed")
    assert caught.value.remedy
    assert ours.chain.block(ours.head).event.description == "theirs"
    assert ours.chain.tail().head == ours.head
    ours.append({"kind": "SetInfo", "description": "ours"})


@pytest.mark.contract("chain:C9")
def test_the_head_moves_only_to_a_block_that_exists():
    history = root(INFO)
    head, nowhere = history.head, Multihash.of(b"nowhere")
    with pytest.raises(ChainError) as caught:
        history.chain.reset(nowhere)
    assert (caught.value.rule, caught.value.code) == ("chain:C9", "BlockNotFound")
    assert str(nowhere) in caught.value.problem
    assert caught.value.remedy
    assert history.head == head
    older = history.chain.block(head).prev_block_hash
    history.chain.reset(older)
    assert history.head == older
    assert history.chain.tail().sequence_number == 1


@pytest.mark.contract("chain:C9")
def test_the_state_at_a_block_that_was_cut_off_is_not_told():
    history = root(INFO)
    cut = history.head
    history.chain.reset(history.chain.block(cut).prev_block_hash)
    with pytest.raises(ChainError) as caught:
        history.chain.tail_at(cut)
    assert (caught.value.rule, caught.value.code) == ("chain:C9", "BlockNotFound")


# --- several rules at once ------------------------------------------------------

PRECEDENCE = {
    "C1 before C3": (root, INFO, {"prevBlockHash": ABSENT, "sequenceNumber": 5}, "C1"),
    "C1 before D8": (root, add_data(), {"prevBlockHash": ABSENT, "sequenceNumber": 0}, "C1"),
    "C2 before C4": (root, seed(), {"sequenceNumber": 9}, "C2"),
    "C1 before C3 and D1": (root, add_data((5, 9)), {"prevBlockHash": ABSENT, "sequenceNumber": 4}, "C1"),
    "D8 before C4": (root, add_data(), {"sequenceNumber": 9}, "D8"),
    "D8 before C6": (root, add_data(), {"systemTime": moment(-1)}, "D8"),
    "D1 before C4": (root, add_data((5, 9)), {"sequenceNumber": 9}, "D1"),
    "D1 before D2": (root, add_data((5, 3)), {}, "D1"),
    "D2 before C6": (root, add_data((0, 1 << 63)), {"systemTime": moment(-1)}, "D2"),
    "C4 before C6": (root, INFO, {"sequenceNumber": 9, "systemTime": moment(-1)}, "C4"),
    "C4 before H1": (root, set_data_schema(), {"sequenceNumber": 9}, "C4"),
    "C6 before D4": (
        lambda: root(add_data((0, 9), watermark=1)),
        add_data((10, 19), prev=9),
        {"systemTime": moment(-1)},
        "C6",
    ),
    "D4 before D3": (lambda: root(add_data((0, 9), watermark=1)), add_data((9, 19), prev=8), {}, "D4"),
    "D5 before D3": (
        lambda: root(add_data((0, 9), watermark=1)),
        add_data((9, 19), prev=8, watermark=0),
        {},
        "D5",
    ),
    "D3 before D6": (
        lambda: History("Root", add_data(watermark=1)),
        add_data((4, 9), prev=3, watermark=1),
        {},
        "D3",
    ),
    "D3 before D7": (
        lambda: root(add_data((0, 9), leaves="c")),
        add_data((9, 19), prev=8, leaves="d"),
        {},
        "D3",
    ),
    "T10 before D4": (
        lambda: derivative("a", events=(execute(taken("a", None, "a1", None, 9), watermark=1),)),
        execute(taken("a", "a1", "a2", 9, 19)),
        {},
        "T10",
    ),
    "D5 before T2": (
        lambda: derivative("a", events=(execute(taken("a", None, "a1", None, 9), watermark=1),)),
        execute(taken("b", None, "b1", None, 9), watermark=0),
        {},
        "D5",
    ),
    "X1 before C4": (
        lambda: History("Derivative"),
        set_transform("a", transform=sql(query="select 1")),
        {"sequenceNumber": 9},
        "X1",
    ),
    "X5 before C6": (lambda: History("Derivative"), set_transform(), {"systemTime": moment(-1)}, "X5"),
    "S5 before S2": (
        lambda: root(polling_source()),
        push_source(read={"kind": "Csv", "ddlSchema": ["a INT"], "schema": {"fields": []}}),
        {},
        "S5",
    ),
    "S5 before C4": (
        root,
        push_source(read={"kind": "Csv", "ddlSchema": ["a INT"], "schema": {"fields": []}}),
        {"sequenceNumber": 9},
        "S5",
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in PRECEDENCE.items()])
def test_of_several_broken_rules_the_first_in_order_is_reported(case):
    make, made, header, rule = case
    history = make()
    history.refuses(history.block(made, **header), f"chain:{rule}")


# --- what may be --------------------------------------------------------------


@pytest.mark.contract("chain:C6")
def test_two_blocks_may_have_the_same_time():
    history = root()
    history.append(INFO, systemTime=moment(1))


@pytest.mark.contract("chain:D9")
@pytest.mark.parametrize(
    "moved",
    [{"watermark": 11}, {"leaves": "c2"}, {"state": "s2"}, {"data": (10, 19)}],
    ids=["watermark", "checkpoint", "source state", "data"],
)
def test_an_event_may_advance_one_thing_only(moved):
    history = root(add_data((0, 9), watermark=10, leaves="c1", state="s1"))
    carried = {"prev": 9, "watermark": 10, "was": "c1", "leaves": "c1", "state": "s1"}
    history.append(add_data(**(carried | moved)))


@pytest.mark.contract("chain:T10", "chain:T11")
def test_a_transform_may_advance_its_inputs_alone_when_it_leaves_a_checkpoint():
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), leaves="c1"),))
    history.append(execute(taken("a", "a1", "a2", 9), was="c1", leaves="c1"))


@pytest.mark.contract("chain:S7")
def test_a_source_that_was_ended_may_be_set_again_or_make_room_for_the_other_kind():
    history = root(polling_source(), {"kind": "DisablePollingSource"}, polling_source())
    history.append({"kind": "DisablePollingSource"})
    history.append(push_source("one"))
    history.append(push_source("two"))
    history.append({"kind": "DisablePushSource", "sourceName": "one"})
    history.refuses(history.block(polling_source()), "chain:S4", holds=("two",))
    history.append(push_source("one"))
    for name in ("one", "two"):
        history.append({"kind": "DisablePushSource", "sourceName": name})
    history.append(polling_source())


@pytest.mark.contract("chain:S5")
def test_a_source_may_have_either_schema():
    for read in ({"ddlSchema": ["a INT"]}, {"schema": {"fields": [{"name": "a", "type": "Int32"}]}}, {}):
        root(push_source(read={"kind": "Csv", **read}))


@pytest.mark.contract("chain:S6")
def test_an_ethereum_source_may_have_either_origin():
    for origin in ({"chainId": 1}, {"nodeUrl": "wss://example.org"}, {"chainId": 0}):
        root(polling_source(fetch={"kind": "EthereumLogs", **origin}))


@pytest.mark.contract("chain:R7")
def test_after_a_new_transform_inputs_are_found_by_their_id():
    first = execute(
        taken("a", None, "a1", None, 9), taken("b", None, "b1", None, 4), taken("c", None, "c1"), watermark=1
    )
    history = derivative("a", "b", "c", events=(first, set_transform("c", "a")))
    swapped = execute(taken("c", "a1", None, 9), taken("a", "c1"), watermark=2)
    with pytest.raises(ChainError) as caught:
        history.append(swapped)
    assert caught.value.rule == "chain:T6"
    history.append(execute(taken("c", "c1", "c2", None, 3), taken("a", "a1", None, 9), watermark=2))


@pytest.mark.contract("chain:R8")
def test_an_event_with_data_may_leave_its_checkpoint_and_state_behind():
    history = root(add_data((0, 9), watermark=10, leaves="c1", state="s1"))
    history.append(add_data((10, 19), prev=9, watermark=10, was="c1"))
    history.append(add_data((20, 29), prev=19, watermark=10))


@pytest.mark.contract("chain:R8")
def test_to_drop_the_source_state_is_a_change_but_a_loss():
    history = root(add_data((0, 9), watermark=10, state="s1"))
    dropped = add_data(prev=9, watermark=10)
    history.refuses(history.block(dropped), "chain:R8", holds=("default",))
    done = history.append(dropped, strict=False)
    assert [finding.rule for finding in done.findings] == ["chain:R8"]


@pytest.mark.contract("chain:T3", "chain:T2")
def test_inputs_follow_the_transform_in_force_not_the_last_step():
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), watermark=1),))
    history.append(set_transform("a", "b"))
    only = execute(taken("a", "a1", "a2", 9, 19), watermark=2)
    history.refuses(history.block(only), "chain:T2", holds=(dataset_id("b"),))
    history.append(execute(taken("a", "a1", "a2", 9, 19), taken("b"), watermark=2))


# --- inputs at hand or not ----------------------------------------------------


@pytest.mark.contract("chain:R4", "chain:R5")
def test_without_the_chains_of_its_inputs_a_step_is_accepted_and_says_what_was_not_checked():
    step = execute(taken("a", None, "anywhere", None, 7), watermark=1)
    done = derivative("a").append(step)
    assert done.not_checked == ("chain:R4", "chain:R5", "chain:R10")
    assert done.findings == ()
    assert derivative("a").append(INFO).not_checked == ()


@pytest.mark.contract("chain:R4", "chain:R5")
def test_with_the_chains_of_all_inputs_nothing_is_left_unchecked():
    source, history = read_input()
    done = history.append(execute(taken("a", None, source.head, None, 29), watermark=1))
    assert done.not_checked == ()


@pytest.mark.contract("chain:R4", "chain:R5")
def test_one_input_that_is_not_at_hand_is_told_and_the_other_still_checked():
    source, _ = read_input()
    first = blocks_of(source)[0]
    history = derivative("a", "b", inputs={dataset_id("a"): source.chain})
    other = taken("b", None, "b1", None, 4)
    bad = execute(taken("a", None, first, None, 4), other, watermark=1)
    history.refuses(history.block(bad), "chain:R5", holds=(4, 9))
    done = history.append(execute(taken("a", None, first, None, 9), other, watermark=1))
    assert done.not_checked == ("chain:R4", "chain:R5", "chain:R10")


@pytest.mark.contract("chain:R4")
def test_an_input_without_a_block_has_no_interval():
    empty = Chain(MemoryStore())
    history = derivative("a", inputs={dataset_id("a"): empty})
    history.refuses(
        history.block(execute(taken("a", None, "a1"), watermark=1)), "chain:R4", holds=(digest("a1"),)
    )
    history.append(execute(taken("a"), watermark=1))


def test_a_hash_of_another_function_names_no_block_although_its_digest_is_one():
    source, history = read_input()
    first = blocks_of(source)[0]
    other = Multihash("f1220" + first.digest.hex())
    assert source.chain.sequence_of(other) is None
    bad = execute(taken("a", None, other, None, 9), watermark=1)
    history.refuses(history.block(bad), "chain:R4", holds=(other,))


# --- parts of a commit of a derivative ---------------------------------------


def following(history: History, *events: dict[str, Any]) -> list[Block]:
    """Blocks that continue a history, one after the other."""
    blocks: list[Block] = []
    for made in events:
        more = {"prevBlockHash": str(blocks[-1].hash)} if blocks else {}
        number = history.chain.tail().sequence_number + 1 + len(blocks)
        blocks.append(history.block(made, sequenceNumber=number, systemTime=moment(50), **more))
    return blocks


def part(first: int, *, watermark: float | None = None) -> dict[str, Any]:
    """Ten records of a commit over input a that goes on; c1 is the checkpoint before it."""
    return execute(
        taken("a", "a1", None, 9),
        data=(first, first + 9),
        prev=first - 1,
        was="c1",
        leaves="c1",
        watermark=watermark,
    )


def end(first: int, **inputs: Any) -> dict[str, Any]:
    step = taken("a", **({"prev_block": "a1", "prev_offset": 9} | inputs))
    return execute(step, data=(first, first + 9), prev=first - 1, was="c1", leaves="c2")


def ten_records() -> History:
    first = execute(taken("a", None, "a1", None, 9), data=(0, 9), leaves="c1")
    return derivative("a", events=(first,))


@pytest.mark.contract("chain:R9")
@pytest.mark.parametrize("redefined", [False, True], ids=["inputs moved", "a rebuild"])
def test_a_commit_of_parts_is_accepted_where_it_ends_and_known_alike_at_every_block(redefined):
    history = ten_records()
    moved = {} if redefined else {"new_block": "a2", "new_offset": 19}
    again = (set_transform("a"),) if redefined else ()
    blocks = following(history, *again, part(10), part(20), end(30, **moved))
    done = history.chain.append(*blocks)
    assert done.findings == ()
    assert verify_blocks(history.chain).findings == ()
    ends = [history.chain.entry(block.hash).is_end for block in blocks]
    assert ends == [True] * len(again) + [False, False, True]
    tail, fresh = None, Chain(history.store)
    for name, block in reversed(list(fresh.walk())):
        tail = follow(tail, block)
        assert fresh.tail_at(name) == tail


@pytest.mark.contract("chain:R9")
def test_parts_are_ended_by_the_move_of_the_head_that_brings_them():
    history = ten_records()
    blocks = following(history, part(10), part(20))
    with pytest.raises(ChainError) as caught:
        history.chain.append(*blocks)
    assert (caught.value.rule, caught.value.code) == ("chain:R9", "InvalidEvent")
    assert str(blocks[-1].hash) in caught.value.problem
    done = history.chain.append(*blocks, strict=False)
    assert [finding.rule for finding in done.findings] == ["chain:R9"]
    assert [(name, found.rule) for name, found in verify_blocks(history.chain).findings] == [
        (done.head, "chain:R9")
    ]


@pytest.mark.contract("chain:R9")
def test_nothing_but_a_transform_comes_between_the_parts_of_a_commit():
    history = ten_records()
    blocks = following(history, part(10), INFO, end(20, new_block="a2", new_offset=19))
    with pytest.raises(ChainError) as caught:
        history.chain.append(*blocks)
    assert caught.value.rule == "chain:R9"
    assert "SetInfo" in caught.value.problem
    assert len(history.chain.append(*blocks, strict=False).findings) == 1


@pytest.mark.contract("chain:R9")
def test_a_part_of_a_commit_does_not_move_the_watermark():
    history = ten_records()
    ended = execute(taken("a", "a1", "a2", 9, 19), data=(20, 29), prev=19, was="c1", leaves="c2", watermark=5)
    with pytest.raises(ChainError) as caught:
        history.chain.append(*following(history, part(10, watermark=5), ended))
    assert caught.value.rule == "chain:R9"
    assert moment(5) in caught.value.problem
    assert history.chain.append(*following(history, part(10), ended)).findings == ()


@pytest.mark.contract("chain:R7", "chain:R9")
def test_an_input_that_was_dropped_begins_anew_and_one_that_only_left_the_definition_goes_on():
    both = execute(taken("a", None, "a1", None, 9), taken("b", None, "b1", None, 4), watermark=1)
    history = derivative("a", "b", events=(both, set_transform("a"), set_transform("a", "b")))
    assert [taken.last_offset for taken in next_inputs(history.chain.tail(), {})] == [9, 4]
    history.append(set_transform("a"))
    history.append(execute(taken("a", "a1", "a2", 9, 19), watermark=2))
    history.append(set_transform("a", "b"))
    assert [taken.last_offset for taken in next_inputs(history.chain.tail(), {})] == [19, None]


# --- commits of several blocks ------------------------------------------------


def test_a_commit_of_several_blocks_is_refused_as_a_whole():
    history = History()
    schema = history.block(set_data_schema())
    made = {"systemTime": moment(2), "prevBlockHash": str(schema.hash), "sequenceNumber": 2}
    bad = Block.from_dict({**made, "event": add_data((1, 9))})
    good = Block.from_dict({**made, "event": add_data((0, 9))})
    head, visible = history.head, history.visible()
    with pytest.raises(ChainError) as caught:
        history.chain.append(schema, bad)
    assert caught.value.rule == "chain:D1"
    assert (history.head, history.visible()) == (head, visible)
    done = history.chain.append(schema, good)
    assert done.blocks == (schema.hash, good.hash)
    assert history.head == good.hash


def test_a_commit_whose_blocks_do_not_follow_each_other_is_refused():
    history = root()
    blocks = (history.block(INFO), history.block({"kind": "SetInfo", "description": "other"}))
    head = history.head
    with pytest.raises((ChainError, RefCASFailed)):
        history.chain.append(*blocks)
    assert history.head == head


def test_an_append_of_nothing_is_refused():
    with pytest.raises(InputError):
        root().chain.append()
