"""One commit of a derived dataset again: rows read from events alone, and the first that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import CheckpointFile
from trueline.chain.events import Checkpoint, DataSlice, ExecuteTransform
from trueline.chain.head_state import Position, Tail
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.append import Order, Prepared, prepare
from trueline.dataset.append.merge import Terms
from trueline.dataset.dataset_at import ChainOfEvents, Standing
from trueline.dataset.derivation import derivation_at
from trueline.dataset.merge.result import TAKES_AWAY
from trueline.dataset.read.changes import OPERATIONS
from trueline.dataset.read.events import Events
from trueline.dataset.read.fold import folded, last
from trueline.dataset.read.slice_reader import SliceFile
from trueline.dataset.rekey import earlier_key, prepare_rekeyed
from trueline.dataset.state import KEY, OFFSET, State
from trueline.dataset.state.segment import GONE
from trueline.identity.dataset_id import DatasetId
from trueline.identity.logical import LogicalHasher
from trueline.identity.multihash import Multihash
from trueline.merge import Snapshot
from trueline.view.plan.node import NO_BOUNDS

_BATCH_ROWS: Final = 65_536
_SHOWN: Final = 3
# Rows behind the first that differs among which others are looked for, to show a few.
_LOOKED_AT: Final = 1_000


# --- commits of a derived dataset ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DerivedCommit:
    """What one commit of a derived dataset took and recorded: its data blocks, the last of them its end.

    `before` is the block in front of them, metadata of the same commit included.
    """

    before: Multihash
    blocks: tuple[Block, ...]

    @property
    def end(self) -> Block:
        """The block that takes the inputs and names the checkpoint."""
        return self.blocks[-1]

    @property
    def event(self) -> ExecuteTransform:
        """What the end says."""
        event = self.end.event
        assert isinstance(event, ExecuteTransform)
        return event

    @property
    def slices(self) -> tuple[DataSlice, ...]:
        """The records of all its parts, in order."""
        events = (block.data_event for block in self.blocks)
        return tuple(event.new_data for event in events if event is not None and event.new_data is not None)

    @property
    def positions(self) -> dict[DatasetId, Position]:
        """Where it read its inputs; one that had nothing yet is left out."""
        return {
            taken.dataset_id: Position(taken.last_block, taken.last_offset)
            for taken in self.event.query_inputs
            if taken.last_block is not None
        }


def derived_commits(chain: Chain, after: Multihash | None, upto: Multihash) -> Iterator[DerivedCommit]:
    """Yield the commits that end in (after, upto], oldest first; parts belong to their end."""
    parts: list[Block] = []
    for _, block in chain.between(_begin(chain, after), upto):
        if not isinstance(block.event, ExecuteTransform):
            continue
        parts.append(block)
        if not block.event.is_part:
            assert parts[0].prev_block_hash is not None
            yield DerivedCommit(parts[0].prev_block_hash, tuple(parts))
            parts = []


def _begin(chain: Chain, after: Multihash | None) -> Multihash | None:
    """Return the block before the parts of a commit that a position is inside of."""
    while after is not None:
        block = chain.block(after)
        if not (isinstance(block.event, ExecuteTransform) and block.event.is_part):
            break
        after = block.prev_block_hash
    return after


# --- state from events --------------------------------------------------------------------------


class FromEvents:
    """The current rows of a keyed dataset at one position after another, made from its events alone.

    State that a checkpoint names is a cache: whoever changed rows may have changed it to match. What is
    made here goes to the store of the chain, which is one beside the dataset's own.
    """

    def __init__(self, chain: ChainOfEvents) -> None:
        self._chain = chain
        self._known: tuple[Standing, State] | None = None
        chain.state_at = self._kept_at

    def standing(self, name: str, block: Multihash) -> Standing:
        """Return the dataset at a block; the checkpoint it names lists a state made from the events."""
        tail = self._chain.tail_at(block)
        standing = Standing(name, self._chain, tail, tail.position)
        if tail.data is None or not standing.is_keyed:
            return standing
        made = with_state(self._chain.store, tail, self.state_at(standing))
        return Standing(name, self._chain, made, tail.position)

    def state_at(self, standing: Standing) -> State:
        """Return the state at a position; the next one, if it is later, goes on from there."""
        before = self._before(standing)
        state = before[1] if before else State.open(self._chain.store, None, encoding=_encoding(standing))
        first = before[0].last_offset + 1 if before else 0
        if first <= standing.last_offset:
            state = state.compact_if_needed()
            # One part at a time: all of them may be more than memory holds.
            state = state.apply_parts([state.write_part(part) for part in _changed(standing, first)])
            # Tasks find only what has its name.
            self._chain.store.sync()
        self._known = standing, state
        return state

    def _kept_at(self, standing: Standing) -> State | None:
        state = self.state_at(standing)
        return state if state.generations else None

    def _before(self, standing: Standing) -> tuple[Standing, State] | None:
        """Return an earlier position from which the state can go on: columns and key are the same."""
        if self._known is None:
            return None
        older, _ = self._known
        same = older.schema == standing.schema and older.merge_key == standing.merge_key
        return self._known if same and older.last_offset <= standing.last_offset else None


def _encoding(standing: Standing) -> Any:
    return standing.merge_key.encoding


def _changed(standing: Standing, first: int) -> Iterator[pa.Table]:
    """Yield what the events from an offset on do to the state, in key order."""
    vocab = standing.vocab
    kept = [name for name in standing.schema.names if name not in vocab.names[:3]]
    needed = (*kept, vocab.offset, vocab.op)
    events = Events(standing, needed, first)
    for rows in folded(
        events.batches(needed, NO_BOUNDS),
        events.schema,
        key=standing.merge_key,
        offset=vocab.offset,
        keep=last,
    ):
        gone = np.isin(np.asarray(rows[vocab.op].combine_chunks()), TAKES_AWAY)
        # A key that is gone keeps no values.
        places = pa.array(np.arange(len(gone)), mask=gone)
        values = [rows[name].combine_chunks().take(places) for name in (*kept, vocab.offset)]
        names = [KEY, GONE, *kept, OFFSET]
        yield pa.table(dict(zip(names, [rows[KEY], pa.array(gone), *values], strict=True)))


def with_state(store: Store, tail: Tail, state: State) -> Tail:
    """Return a tail whose checkpoint lists a state."""
    assert tail.data is not None
    raw = CheckpointFile(state.files).to_bytes()
    made = Checkpoint(store.put(Folder.CHECKPOINTS, raw), len(raw))
    store.sync()
    return tail._replace(data=replace(tail.data, new_checkpoint=made))


# --- again, and compared ------------------------------------------------------------------------


def made_again(rows: Standing, defined: Tail, order: Order, system_time: Instant, terms: Terms) -> Prepared:
    """Write what makes the current rows those of a result, as it would have been recorded at a time.

    `rows` is the dataset with the rows before, under the key they have, `defined` the tail with the
    definition in force.
    """
    # Metadata of the same commit has the time of its rows, which must not move on because of it.
    before = Instant(min(defined.system_time, system_time - 1))
    order = replace(order, clock=lambda: system_time, allow_empty=True, is_replay=True)
    if isinstance(order.strategy, Snapshot) and rows.key != tuple(order.strategy.key):
        return prepare_rekeyed(
            rows.chain, defined._replace(system_time=before), (rows.tail, rows.key), order, terms
        )
    tail = rows.tail._replace(system_time=before)
    return prepare(rows.chain, tail, order, terms.scratch, terms.tasks)


def rows_before(chain: Chain, block: Multihash) -> Multihash:
    """Return the block at which the rows before a commit are read: where another key set them, if one did."""
    tail = chain.tail_at(block)
    earlier = earlier_key(chain, tail, defined) if (defined := derivation_at(tail)) is not None else None
    return block if earlier is None else earlier[0].head


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A record as it is and as the definition gives it; None where there is none."""

    offset: int
    recorded: dict[str, Any] | None
    replayed: dict[str, Any] | None

    def __str__(self) -> str:
        return f"offset {self.offset:,}: recorded {_shown(self.recorded)}, replayed {_shown(self.replayed)}"


def _shown(row: dict[str, Any] | None) -> str:
    if row is None:
        return "nothing"
    said = ", ".join(f"{name}: {value!r:.80}" for name, value in row.items() if name != "op")
    return f"{row['op']} {{{said}}}"


def differing_rows(
    standing: Standing, recorded: tuple[DataSlice, ...], again: tuple[DataSlice, ...]
) -> list[RowDifference]:
    """Return the first records that differ between those of a commit and those made again; none if all agree.

    `standing` is the dataset at the end of the commit. How records are cut into slices does not matter.
    """
    if _hashes(recorded) == _hashes(again):
        return []
    block = standing.position.block
    one, other = (
        _batches(_records(standing, slices, block), standing.schema) for slices in (recorded, again)
    )
    found: list[RowDifference] = []
    for left, right in _aligned(one, other, standing.schema):
        if _hash(left) == _hash(right) and left.num_rows == right.num_rows:
            continue
        found += _differences(standing, left, right)
        break
    return found


def _hashes(slices: tuple[DataSlice, ...]) -> list[tuple[Multihash, int, int]]:
    return [(each.logical_hash, each.offset_interval.start, each.offset_interval.end) for each in slices]


def _records(standing: Standing, slices: Iterable[DataSlice], block: Multihash) -> Iterator[pa.RecordBatch]:
    offset = standing.vocab.offset
    for data in slices:
        first, final = data.offset_interval.start, data.offset_interval.end
        file = SliceFile(standing.name, standing.chain.store, block, data, None, standing.chain.limits)
        yield from file.read(standing.schema, offset, first=first, last=final)


def _batches(records: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield records in tables of one size, whatever the sizes they come in."""
    waiting = schema.empty_table()
    for batch in records:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch.cast(schema)])])
        while waiting.num_rows >= _BATCH_ROWS:
            yield waiting.slice(0, _BATCH_ROWS)
            waiting = waiting.slice(_BATCH_ROWS)
    if waiting.num_rows:
        yield waiting


def _aligned(
    one: Iterator[pa.Table], other: Iterator[pa.Table], schema: pa.Schema
) -> Iterator[tuple[pa.Table, pa.Table]]:
    empty = schema.empty_table()
    while True:
        left, right = next(one, empty), next(other, empty)
        if not left.num_rows and not right.num_rows:
            return
        yield left, right


def _hash(table: pa.Table) -> Multihash:
    """Return what tells records apart as chains do: -0.0 from 0.0, and one NaN from no other."""
    hasher = LogicalHasher(table.schema)
    hasher.update(table)
    return hasher.finish()


def _differences(standing: Standing, one: pa.Table, other: pa.Table) -> list[RowDifference]:
    """Return the first records of two tables that differ."""
    low, high = 0, min(one.num_rows, other.num_rows)
    # The first `low` records agree; those up to `high` do not, unless one table only goes on longer.
    if _hash(one.slice(0, high)) == _hash(other.slice(0, high)):
        low = high
    while low < high:
        middle = (low + high + 1) // 2
        if _hash(one.slice(0, middle)) == _hash(other.slice(0, middle)):
            low = middle
        else:
            high = middle - 1
    found: list[RowDifference] = []
    for at in range(low, min(max(one.num_rows, other.num_rows), low + _LOOKED_AT)):
        left, right = one.slice(at, 1), other.slice(at, 1)
        if left.num_rows and right.num_rows and _hash(left) == _hash(right):
            continue
        there = left if left.num_rows else right
        offset = there[standing.vocab.offset][0].as_py()
        found.append(RowDifference(offset, _row(standing, left), _row(standing, right)))
        if len(found) == _SHOWN:
            break
    return found


def _row(standing: Standing, table: pa.Table) -> dict[str, Any] | None:
    if not table.num_rows:
        return None
    number = table[standing.vocab.op][0].as_py()
    word = OPERATIONS[number] if 0 <= number < len(OPERATIONS) else str(number)
    values = table.select(list(standing.data_columns)).to_pylist()[0]
    return {"op": word, **values}
