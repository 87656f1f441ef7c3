from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chain.histories import digest, moment
from tests.chain.random_histories import Model, random_derivative, random_root
from tests.examples import examples
from trueline.chain import Block, Chain, Instant
from trueline.chain.head_state import Tail, follow
from trueline.chain.verify import verify_blocks
from trueline.errors import InputError, RefCASFailed, TruelineError

SEEDS = st.integers(0, (1 << 32) - 1)
LENGTHS = st.integers(0, 25)


def folded(chain: Chain) -> dict[str, Tail]:
    """The state at every block, by folding them oldest first."""
    tail: Tail | None = None
    states = {}
    for name, block in reversed(list(chain.walk())):
        tail = follow(tail, Block.from_bytes(block.to_bytes()))
        states[name] = tail
    return states


def check_states(model: Model) -> None:
    """Folding, the live chain, and a chain whose index is made anew agree at every block."""
    chain = model.history.chain
    states = folded(chain)
    fresh = Chain(model.history.store, chain.inputs)
    assert [str(name) for name in states][-len(model.positions) :] == [block for block, _ in model.positions]
    for name, expected in states.items():
        assert chain.tail_at(name) == expected
        assert fresh.tail_at(name) == expected
    for block, offset in model.positions:
        assert states[block].last_offset == offset
    report = verify_blocks(fresh)
    assert report.ok
    assert report.findings == ()
    assert report.blocks == len(states)


@settings(max_examples=examples(40))
@given(SEEDS, LENGTHS)
def test_a_random_valid_root_is_accepted_and_known_alike_at_every_block(seed, length):
    check_states(random_root(Random(seed), length))


@settings(max_examples=examples(40))
@given(SEEDS, LENGTHS, st.integers(1, 3))
def test_a_random_valid_derivative_is_accepted_and_known_alike_at_every_block(seed, length, inputs):
    model = random_derivative(Random(seed), length, inputs)
    check_states(model)
    for _, source in model.inputs:
        check_states(source)


# --- one thing wrong ------------------------------------------------------------

Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def others(value: Any, random: Random) -> Any:
    """Some other value for a leaf."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        wild = [value + 1, value - 1, 0, 1 << 40, (1 << 64) - 1, -1, str(value), None]
        return random.choice([item for item in wild if item != value])
    wild = [digest("something else"), moment(-1), moment(1e6), "", value[:-1], value + "0", 7, None]
    return random.choice(wild)


CARRIED = {
    "prevBlockHash",
    "sequenceNumber",
    "prevOffset",
    "prevCheckpoint",
    "start",
    "datasetId",
    "newOffset",
}


def determined(path: Path, now: Any, tail: Tail) -> bool:
    """Whether the chain leaves no choice about a leaf of the next block, or not this one."""
    if path[-1] == "newBlockHash":
        return now is not None
    if path == ("systemTime",):
        return Instant.parse(now) < tail.system_time
    if path == ("event", "newWatermark"):
        return tail.watermark is not None and (now is None or Instant.parse(now) < tail.watermark)
    return path[-1] in CARRIED


@settings(max_examples=examples(50))
@given(SEEDS, st.integers(1, 12), st.integers(0, 2))
def test_one_thing_changed_in_a_valid_block_is_the_same_block_or_refused_or_the_senders_to_say(
    seed, length, inputs
):
    random = Random(seed)
    model = random_derivative(random, length, inputs) if inputs else random_root(random, length)
    history = model.history
    history.chain.reset(history.chain.block(history.head).prev_block_hash)
    valid = history.block(model.events[-1])
    value = valid.to_dict()
    path = random.choice(list(leaves(value)))
    changed = copy.deepcopy(value)
    at(changed, path[:-1])[path[-1]] = others(at(value, path), random)

    tail, visible = history.chain.tail(), history.visible()
    refusal = None
    try:
        block = Block.from_dict(changed)
        if block.to_bytes() == valid.to_bytes():
            return
        history.chain.append(block)
    except TruelineError as error:
        refusal = error
    if refusal is None:
        was, now = at(value, path), at(changed, path)
        assert not determined(path, now, tail), f"{path} was {was}, is {now}, and was accepted"
    else:
        assert isinstance(refusal, InputError | RefCASFailed)
        assert refusal.remedy
        assert (history.head, history.visible()) == (tail.head, visible)
        history.chain.append(valid)
