"""A derived dataset moves on: a whole result becomes the change it makes, recorded in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import STRATEGY, DerivedCheckpoint
from trueline.chain.counts import noted_counts
from trueline.chain.events import Checkpoint
from trueline.chain.head_state import Position, Tail, follow, next_block, next_execute_transform
from trueline.chain.instant import Instant
from trueline.chain.store.scratch import Scratch
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.append import Order, Prepared, definitions_of, prepare
from trueline.dataset.append.incoming import Incoming
from trueline.dataset.commit import Commit
from trueline.dataset.derivation import Derivation
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId
from trueline.kernel.tasks import Tasks
from trueline.merge import Snapshot


@dataclass(frozen=True, slots=True)
class Advance:
    """Where a transaction takes its inputs, what it leaves for the next, and the watermark after it.

    `clock` says what time it is, if not the system's clock.
    """

    positions: Mapping[DatasetId, Position]
    left: DerivedCheckpoint
    watermark: Instant | None = None
    clock: Callable[[], Instant] | None = None


def commit_result(
    name: str,
    chain: Chain,
    derivation: Derivation,
    result: Incoming,
    advance: Advance,
    *,
    scratch: Scratch,
    tasks: Tasks,
) -> Commit:
    """Record what makes the current rows those of `result`, in one commit; rows that stay are not recorded.

    Whoever loses the race for the head gets `RefCASFailed` and plans again.
    """
    tail = chain.tail()
    assert tail is not None
    order = Order(name, Snapshot(derivation.key), result, clock=advance.clock, allow_empty=True)
    advance = replace(advance, left=replace(advance.left, more={STRATEGY: "recompute", **advance.left.more}))
    try:
        prepared = prepare(chain, tail, order, scratch, tasks)
    except InputError as error:
        if error.code != "DuplicateKeys":
            raise
        raise _violated(name, derivation, error) from None
    prepared = replace(prepared, watermark=advance.watermark)
    blocks = _blocks(chain.store, prepared, advance)
    chain.append(*blocks)
    return Commit.of(name, [(block.hash, block) for block in blocks], chain)


def _blocks(store: Store, prepared: Prepared, advance: Advance) -> list[Block]:
    """Definitions first, then a block for each slice; the last takes the inputs, with a new checkpoint."""
    tail = prepared.tail
    blocks: list[Block] = []

    def add(event: Any) -> Tail:
        blocks.append(next_block(blocks_tail, event, prepared.system_time))
        return follow(blocks_tail, blocks[-1])

    blocks_tail = tail
    for event in definitions_of(prepared):
        blocks_tail = add(event)
    slices = [written.slice for written in prepared.written]
    for piece in slices[:-1]:
        # A part: no input moves and the checkpoint is the one before, so no reader stops here.
        blocks_tail = add(next_execute_transform(blocks_tail, {}, new_data=piece))
    last: dict[str, Any] = {
        "new_watermark": advance.watermark,
        "new_checkpoint": _checkpoint(store, prepared, advance.left),
    }
    if slices:
        last["new_data"] = slices[-1]
    add(next_execute_transform(blocks_tail, advance.positions, **last))
    return blocks


def _checkpoint(store: Store, prepared: Prepared, left: DerivedCheckpoint) -> Checkpoint:
    state = prepared.outcome.state
    tally = prepared.outcome.tally
    counted = noted_counts(tally.inserts, tally.updates, tally.deletes, prepared.current_rows)
    made = replace(left, state=state.files if state is not None else (), more={**left.more, **counted})
    raw = made.to_file().to_bytes()
    return Checkpoint(store.put(Folder.CHECKPOINTS, raw), len(raw))


def _violated(name: str, derivation: Derivation, error: InputError) -> InputError:
    """Say that the result has several rows of one key (derive:V7)."""
    shown = ", ".join(derivation.key)
    return InputError(
        f"the result of {name!r} has {error.fields['count']:,} keys ({shown}) more than once:"
        f" {error.fields['keys']}",
        remedy="aggregate by the key in the query, or derive it with a key that identifies the rows",
        code="KeyViolated",
        keys=error.fields["keys"],
        count=error.fields["count"],
    )
