from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chain.histories import (
    History,
    add_data,
    data_slice,
    dataset_id,
    derivative,
    digest,
    execute,
    moment,
    root,
    set_transform,
    source_state,
    taken,
)
from tests.chain.random_histories import Model, random_derivative, random_root
from tests.chain.stores import CountingStore
from tests.examples import examples
from trueline.chain import Chain, Instant, Position
from trueline.chain.events import Checkpoint, DataSlice, OffsetInterval, SetInfo
from trueline.chain.head_state import next_add_data, next_block, next_execute_transform, next_inputs
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

NOW = Instant.parse("2027-01-01T00:00:00Z")


def rows(start: int, end: int) -> DataSlice:
    return DataSlice(Multihash(digest("l")), Multihash(digest("p")), OffsetInterval(start, end), 10)


# --- blocks -----------------------------------------------------------------------


def test_the_first_block_follows_nothing():
    block = next_block(None, SetInfo("x"), NOW)
    assert (block.prev_block_hash, block.sequence_number, block.system_time) == (None, 0, NOW)


def test_a_block_is_linked_to_the_tail():
    history = root()
    block = next_block(history.chain.tail(), SetInfo("x"), NOW)
    assert (block.prev_block_hash, block.sequence_number) == (history.head, 2)
    history.chain.append(block)


@pytest.mark.contract("chain:C6")
def test_a_clock_that_went_back_is_held_at_the_time_of_the_block_before():
    history = root()
    tail = history.chain.tail()
    block = next_block(tail, SetInfo("x"), Instant.parse("1999-01-01T00:00:00Z"))
    assert block.system_time == tail.system_time
    assert type(block.system_time) is Instant
    history.chain.append(block)


# --- roots ------------------------------------------------------------------------


def test_the_first_event_carries_nothing():
    event = next_add_data(root().chain.tail(), new_data=rows(0, 9))
    assert (event.prev_offset, event.prev_checkpoint, event.new_watermark) == (None, None, None)


@pytest.mark.contract("chain:D3", "chain:D4", "chain:D7", "chain:R8")
def test_what_an_event_does_not_mention_stays_in_force():
    history = root(add_data((0, 9), watermark=5, leaves="c1", state="s1"))
    event = next_add_data(history.chain.tail(), new_data=rows(10, 19))
    assert event.prev_offset == 9
    assert event.prev_checkpoint == digest("c1")
    assert event.new_checkpoint.physical_hash == digest("c1")
    assert str(event.new_watermark) == moment(5)
    assert event.new_source_state.value == "s1"
    history.chain.append(next_block(history.chain.tail(), event, NOW))


def test_what_an_event_mentions_replaces_what_was():
    history = root(add_data((0, 9), watermark=5, leaves="c1", state="s1"))
    later = Instant.parse(moment(6))
    event = next_add_data(
        history.chain.tail(), new_watermark=later, new_checkpoint=Checkpoint(Multihash(digest("c2")), 1)
    )
    assert (event.new_watermark, event.prev_checkpoint) == (later, digest("c1"))
    assert event.new_checkpoint.physical_hash == digest("c2")
    assert event.new_data is None
    history.chain.append(next_block(history.chain.tail(), event, NOW))


# --- derivatives ------------------------------------------------------------------


def at(name: object, offset: int | None) -> Position:
    return Position(Multihash(digest(name)), offset)


def test_without_a_transform_nothing_can_be_planned():
    with pytest.raises(InputError):
        next_inputs(History("Derivative").chain.tail(), {})


def test_the_first_step_takes_its_inputs_from_their_beginning_in_declared_order():
    history = derivative("b", "a", "c")
    positions = {dataset_id("a"): at("a1", 9), dataset_id("b"): at("b1", None)}
    event = next_execute_transform(history.chain.tail(), positions, new_watermark=Instant.parse(moment(1)))
    assert [taken_input.dataset_id for taken_input in event.query_inputs] == [
        dataset_id(label) for label in "bac"
    ]
    b, a, c = event.query_inputs
    assert (a.prev_block_hash, a.new_block_hash, a.prev_offset, a.new_offset) == (None, digest("a1"), None, 9)
    assert (b.new_block_hash, b.new_offset) == (digest("b1"), None)
    assert (c.last_block, c.last_offset) == (None, None)
    history.chain.append(next_block(history.chain.tail(), event, NOW))


@pytest.mark.contract("chain:T4", "chain:T5", "chain:T6", "chain:T7", "chain:T8")
def test_the_next_step_goes_on_where_each_input_stood():
    first = execute(
        taken("a", None, "a1", None, 9), taken("b", None, "b1", None, 4), taken("c", None, "c1"), watermark=1
    )
    history = derivative("a", "b", "c", events=(first,))
    positions = {
        dataset_id("a"): at("a2", 19),  # new blocks with records
        dataset_id("b"): at("b2", 4),  # new blocks, no new record
        dataset_id("c"): at("c1", None),  # nothing new
    }
    event = next_execute_transform(history.chain.tail(), positions, new_watermark=Instant.parse(moment(2)))
    a, b, c = event.query_inputs
    assert (a.prev_block_hash, a.new_block_hash, a.prev_offset, a.new_offset) == (
        digest("a1"),
        digest("a2"),
        9,
        19,
    )
    assert (b.prev_block_hash, b.new_block_hash, b.prev_offset, b.new_offset) == (
        digest("b1"),
        digest("b2"),
        4,
        None,
    )
    assert (c.prev_block_hash, c.new_block_hash, c.prev_offset, c.new_offset) == (
        digest("c1"),
        None,
        None,
        None,
    )
    history.chain.append(next_block(history.chain.tail(), event, NOW))


@pytest.mark.contract("chain:R7")
def test_after_a_new_transform_known_inputs_go_on_and_new_ones_begin():
    first = execute(taken("a", None, "a1", None, 9), taken("b", None, "b1", None, 4), watermark=1)
    history = derivative("a", "b", events=(first, set_transform("c", "b")))
    positions = {dataset_id("b"): at("b2", 8), dataset_id("c"): at("c1", 3)}
    event = next_execute_transform(history.chain.tail(), positions, new_watermark=Instant.parse(moment(2)))
    c, b = event.query_inputs
    assert (c.prev_block_hash, c.prev_offset, c.new_offset) == (None, None, 3)
    assert (b.prev_block_hash, b.prev_offset, b.new_offset) == (digest("b1"), 4, 8)
    history.chain.append(next_block(history.chain.tail(), event, NOW))


@settings(max_examples=examples(40))
@given(st.integers(0, (1 << 32) - 1), st.integers(0, 15), st.integers(0, 3))
def test_what_is_planned_after_any_valid_history_is_accepted(seed, length, inputs):
    random = Random(seed)
    if inputs:
        model = random_derivative(random, length, inputs)
        if model.columns is None:
            model.history.append(model.schema())
        plan_step(model)
    else:
        model = random_root(random, length)
        if model.columns is None:
            model.history.append(model.schema())
        chain = model.history.chain
        start = chain.tail().next_offset
        done = chain.append(
            next_block(chain.tail(), next_add_data(chain.tail(), new_data=rows(start, start + 2)), NOW)
        )
        assert done.findings == ()
        assert chain.tail().last_offset == start + 2


def plan_step(model: Model) -> None:
    chain = model.history.chain
    model.inputs[0][1].advance()  # records need an input that moved (R9)
    heads = {dataset_id(label): source.history.chain.position for label, source in model.inputs}
    start = chain.tail().next_offset
    event = next_execute_transform(chain.tail(), heads, new_data=rows(start, start))
    done = chain.append(next_block(chain.tail(), event, NOW))
    assert done.findings == ()
    assert done.not_checked == ()
    for label, source in model.inputs:
        last = chain.tail().taken[dataset_id(label)]
        assert (last.last_block, last.last_offset) == source.history.chain.position


# --- cost: block reads, whatever the length -----------------------------------------

LENGTHS = (10, 100, 1_000)


def planned_root(length: int) -> CountingStore:
    store = CountingStore()
    history = root(store=store)
    grow(history, length)
    return store


def grow(history: History, commits: int) -> None:
    """Commits of ten rows each, planned like any other."""
    chain = history.chain
    for _ in range(commits):
        tail = chain.tail()
        event = next_add_data(
            tail,
            new_data=rows(tail.next_offset, tail.next_offset + 9),
            new_source_state=None if tail.data else record(source_state("s")),
        )
        chain.append(next_block(tail, event, NOW))


def record(value: dict[str, Any]) -> Any:
    from trueline.chain.events import SourceState

    return SourceState(value["sourceName"], value["kind"], value["value"])


def reads_of_next(chain: Chain, store: CountingStore) -> int:
    """How many blocks are read to plan, check and append the next AddData."""
    store.reset()
    tail = chain.tail()
    event = next_add_data(tail, new_data=rows(tail.next_offset, tail.next_offset + 9))
    chain.append(next_block(tail, event, NOW))
    return store.block_reads


def test_planning_an_append_reads_no_block_once_the_tail_is_known():
    for length in LENGTHS[:2]:
        store = planned_root(length)
        chain = Chain(store)
        chain.tail()
        assert reads_of_next(chain, store) == 0
        assert store.moves == 1


def test_planning_an_append_with_an_index_at_hand_reads_as_many_blocks_at_any_length(tmp_path):
    counts = []
    for length in LENGTHS:
        store = planned_root(length)
        path = tmp_path / f"{length}.sqlite"
        indexed = Chain(store, index=path)
        indexed.tail()
        indexed._index.close()
        counts.append(reads_of_next(Chain(store, index=path), store))
    assert len(set(counts)) == 1
    # Head, seed, last data event and schema.
    assert counts[0] <= 4


def two_inputs(steps: int) -> tuple[CountingStore, dict[Any, CountingStore], dict[Any, Chain]]:
    """A derivative over a fast input and one that moved once, long ago."""
    stores = {label: CountingStore() for label in ("fast", "slow")}
    sources = {label: root(label=label, store=store) for label, store in stores.items()}
    grow(sources["slow"], 1)
    chains = {dataset_id(label): source.chain for label, source in sources.items()}
    store = CountingStore()
    history = derivative("fast", "slow", inputs=chains, store=store)
    for number in range(steps):
        grow(sources["fast"], 1)
        step(history.chain, chains, rows(0, 4) if number == 2 else None)
    return store, {dataset_id(label): stores[label] for label in stores}, chains


def step(chain: Chain, chains: dict[Any, Chain], data: DataSlice | None = None) -> None:
    tail = chain.tail()
    new: dict[str, Any] = {"new_checkpoint": Checkpoint(Multihash.of(str(tail.head).encode()), 1)}
    if data is not None:
        new["new_data"] = data
    heads = {name: source.position for name, source in chains.items()}
    chain.append(next_block(tail, next_execute_transform(tail, heads, **new), NOW))


@pytest.mark.parametrize("fresh", [False, True], ids=["known", "indexed"])
def test_planning_a_transform_over_inputs_of_different_rates_reads_as_many_blocks_at_any_length(
    fresh, tmp_path
):
    counts = []
    for length in LENGTHS:
        store, input_stores, chains = two_inputs(length)
        grow_one(chains[dataset_id("fast")])
        if fresh:
            chains = {
                name: reopened(input_stores[name], None, tmp_path / name[-8:] / str(length))
                for name in chains
            }
            chain = reopened(store, chains, tmp_path / "own" / str(length))
        else:
            chain = Chain(store, chains)
            chain.tail()
        for counted in (store, *input_stores.values()):
            counted.reset()
        step(chain, chains)
        counts.append((store.block_reads, sorted(counted.block_reads for counted in input_stores.values())))
    assert len({str(count) for count in counts}) == 1, counts
    own, of_inputs = counts[0]
    assert own <= 5
    assert max(of_inputs) <= 4


def grow_one(chain: Chain) -> None:
    tail = chain.tail()
    chain.append(
        next_block(tail, next_add_data(tail, new_data=rows(tail.next_offset, tail.next_offset)), NOW)
    )


def reopened(store: CountingStore, inputs: Any, path: Any) -> Chain:
    """A chain as a new process finds it: the index is on disk, nothing is in memory."""
    Chain(store, inputs, index=path).tail()
    return Chain(store, inputs, index=path)


def test_thousands_of_steps_without_data_do_not_hide_the_few_that_have_some(tmp_path):
    """The case of RFC-014: the last offset is carried, so none of the empty blocks is read to find it."""
    counts = []
    for steps in (50, 2_000):
        store, _, chains = two_inputs(steps)
        chain = reopened(store, chains, tmp_path / str(steps))
        store.reset()
        tail = chain.tail()
        assert (tail.last_offset, tail.next_offset) == (4, 5)
        assert tail.data.new_data is None
        assert {name: taken_input.last_offset for name, taken_input in tail.taken.items()} == {
            dataset_id("fast"): 10 * steps - 1,
            dataset_id("slow"): 9,
        }
        grow_one(chains[dataset_id("fast")])
        step(chain, chains, rows(5, 9))
        counts.append(store.block_reads)
    assert len(set(counts)) == 1
    assert counts[0] <= 5


def test_finding_the_blocks_with_data_among_thousands_without_reads_only_them():
    store, _, chains = two_inputs(500)
    chain = Chain(store, chains)
    chain.tail()
    store.reset()
    assert [block.event.new_data.offset_interval.end for block in chain.slice_blocks(0, 100)] == [4]
    assert store.block_reads == 1


def test_an_append_writes_one_block_and_moves_the_head_once():
    history = root(store=CountingStore())
    store = history.store
    store.reset()
    history.append(add_data((0, 9)))
    assert (sum(store.puts.values()), store.moves) == (1, 1)
    assert data_slice(0, 9)["physicalHash"] == history.chain.tail().data.new_data.physical_hash
