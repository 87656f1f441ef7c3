"""A derived dataset moves on: a result, whole or what changed of it, is recorded in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import STRATEGY, DerivedCheckpoint, StateFile
from trueline.chain.counts import noted_counts
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import Checkpoint
from trueline.chain.head_state import Position, Tail, follow, next_block, next_execute_transform
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of, to_arrow
from trueline.chain.store.scratch import Scratch
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.append import Order, Prepared, definitions_of, prepare
from trueline.dataset.append.incoming import Incoming
from trueline.dataset.append.intake import ColumnOf
from trueline.dataset.append.merge import Terms
from trueline.dataset.checks import advice_of, shown_row
from trueline.dataset.commit import Commit
from trueline.dataset.dataset_at import Standing
from trueline.dataset.derivation import COPY, Derivation
from trueline.dataset.merge.result import Op
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.rekey import earlier_key, prepare_rekeyed
from trueline.dataset.remove.record import carried_removals
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId
from trueline.kernel.key_encoding import KEY, KeyEncoding, encode_keys
from trueline.kernel.sorted_keys import as_array, find, sorting
from trueline.kernel.tasks import Tasks
from trueline.merge import NetChange, Snapshot


@dataclass(frozen=True, slots=True)
class Advance:
    """Where a transaction takes its inputs, what it leaves for the next, and the watermark after it.

    `left.state` are files beside those of the rows, which the commit adds; `beside` waits for those that are
    written meanwhile. `clock` says what time it is, if not the system's clock; `column_of` reads what
    checks refer to; `passing` is told how many bytes of rows and state are read in this process.
    """

    positions: Mapping[DatasetId, Position]
    left: DerivedCheckpoint
    watermark: Instant | None = None
    clock: Callable[[], Instant] | None = None
    column_of: ColumnOf | None = None
    beside: Callable[[], tuple[StateFile, ...]] | None = None
    passing: Callable[[int], object] | None = None

    def all_left(self) -> DerivedCheckpoint:
        """What it leaves, with what was written meanwhile."""
        return self.left if self.beside is None else replace(self.left, state=self.beside())


def commit_result(
    name: str,
    chain: Chain,
    derivation: Derivation,
    result: Incoming,
    advance: Advance,
    *,
    scratch: Scratch,
    tasks: Tasks,
    tail: Tail | None = None,
) -> Commit:
    """Record what makes the current rows those of `result`, in one commit; rows that stay are not recorded.

    It follows the tail it was planned from, the newest one if none is given: whoever loses the race for the
    head gets `RefCASFailed` and plans again.
    """
    tail = tail or chain.tail()
    assert tail is not None
    advance = _noting("recompute", advance)
    order = _order(name, Snapshot(derivation.key), result, advance)
    prepared = _prepared(chain, tail, order, derivation, Terms(scratch, tasks))
    return _published(chain, replace(prepared, watermark=advance.watermark), order.name, advance)


def commit_change(
    name: str,
    chain: Chain,
    tail: Tail,
    derivation: Derivation,
    change: Incoming,
    *,
    advance: Advance,
    scratch: Scratch,
    tasks: Tasks,
) -> Commit:
    """Record what a result lost (`op` 1) and gained since a tail, in one commit that follows this tail.

    What is recorded equals what `commit_result` of the whole result would record. Where the rows that are
    lost are not there, `InputError` with the code RowsDisagree says so: then only a whole result helps.
    """
    advance = _noting(derivation.strategy, advance)
    order = _order(name, NetChange(derivation.key), change, advance)
    prepared = _prepared(chain, tail, order, derivation, Terms(scratch, tasks))
    return _published(chain, replace(prepared, watermark=advance.watermark), order.name, advance)


def _noting(strategy: str, advance: Advance) -> Advance:
    """Note how a commit was computed."""
    return replace(advance, left=replace(advance.left, more={STRATEGY: strategy, **advance.left.more}))


def _order(name: str, strategy: Snapshot | NetChange, rows: Incoming, advance: Advance) -> Order:
    return Order(name, strategy, rows, clock=advance.clock, allow_empty=True, column_of=advance.column_of)


def _prepared(chain: Chain, tail: Tail, order: Order, derivation: Derivation, terms: Terms) -> Prepared:
    try:
        before = earlier_key(chain, tail, derivation)
        if before is None:
            return prepare(chain, tail, order, terms.scratch, terms.tasks)
        return prepare_rekeyed(chain, tail, before, order, terms)
    except InputError as error:
        if error.code != "DuplicateKeys":
            raise
        raise _violated(order.name, derivation, error) from None


def _published(chain: Chain, prepared: Prepared, name: str, advance: Advance) -> Commit:
    if advance.passing is not None:
        advance.passing(prepared.outcome.passed)
    blocks = _blocks(chain.store, prepared, advance)
    chain.append(*blocks)
    made = Commit.of(name, [(block.hash, block) for block in blocks], chain)
    return replace(made, advice=advice_of(prepared.checks))


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
        "new_checkpoint": _checkpoint(store, prepared, advance.all_left()),
    }
    if slices:
        last["new_data"] = slices[-1]
    add(next_execute_transform(blocks_tail, advance.positions, **last))
    return blocks


def _checkpoint(store: Store, prepared: Prepared, left: DerivedCheckpoint) -> Checkpoint:
    state = prepared.outcome.state
    tally = prepared.outcome.tally
    counted = noted_counts(tally.inserts, tally.updates, tally.deletes, prepared.current_rows)
    checks = {"checks": dict(prepared.checks)} if prepared.checks else {}
    # Beside the rows: what the strategy keeps for the next increment.
    files = (*(state.files if state is not None else ()), *left.state)
    notes = {**left.notes, **carried_removals(store, prepared.tail.checkpoint)}
    made = replace(left, state=files, more={**left.more, **counted, **checks}, notes=notes)
    raw = made.to_file().to_bytes()
    return Checkpoint(store.put(Folder.CHECKPOINTS, raw), len(raw))


def _violated(name: str, derivation: Derivation, error: InputError) -> InputError:
    """Say that the result has several rows of one key (derive:V7)."""
    shown = ", ".join(derivation.key)
    rows: Any = error.fields.get("rows", [])
    lines = "".join(f"\n    {shown_row(row)}" for row in rows)
    return InputError(
        f"the result of {name!r} has {error.fields['count']:,} keys ({shown}) more than once:"
        f" {error.fields['keys']}{lines}",
        remedy="aggregate by the key in the query, or derive it with a key that identifies the rows",
        code="KeyViolated",
        keys=error.fields["keys"],
        count=error.fields["count"],
        rows=rows,
    )


# --- rows that nothing identifies ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bag:
    """Rows that nothing identifies but their values and a number in the column `copy`.

    `current` finds which keys are there, in a column of encoded keys; None where no row is.
    """

    key: tuple[str, ...]
    copy: pa.Field
    op: str
    current: Callable[[pa.BinaryArray], pa.Table] | None

    @classmethod
    def of(
        cls, tail: Tail, derivation: Derivation, current: Callable[[pa.BinaryArray], pa.Table] | None
    ) -> Bag:
        """Describe the rows of a derived dataset."""
        assert tail.schema is not None
        copy = to_arrow(DataSchema(fields_of(tail.schema))).field(COPY)
        return cls(tuple(derivation.key), copy, tail.vocab.op, None if tail.last_offset is None else current)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of values."""
        return self.key[:-1]

    def schema(self, change: pa.Schema) -> pa.Schema:
        """Return the columns of a change whose copies are numbered."""
        others = [field for field in change if field.name != self.op]
        return pa.schema([*others, self.copy, pa.field(self.op, pa.int32())])


def with_copies(chain: Chain, tail: Tail, derivation: Derivation, change: pa.Table) -> pa.Table:
    """Number the rows of a bag that are lost and gained since a tail."""
    rows = CurrentRows(Standing("", chain, tail, tail.position), ())
    return numbered_copies(Bag.of(tail, derivation, lambda keys: rows.lookup(keys, ())), change)


def numbered_copies(bag: Bag, change: pa.Table) -> pa.Table:
    """Number the rows of a bag that are lost and gained, so that those there have the numbers 1, 2, 3 …

    Rows that are lost and gained again are left out. All changes of equal rows have to be there.
    """
    columns, copy, op = bag.columns, bag.copy, bag.op
    keys = encode_keys(change, columns, encoding=KeyEncoding.GROUP)
    signs = np.where(np.asarray(as_array(change[op])) == Op.RETRACT, -1, 1)
    coded = keys.dictionary_encode()
    codes = np.asarray(coded.indices)
    _, firsts = np.unique(codes, return_index=True)
    net = np.bincount(codes, weights=signs, minlength=len(coded.dictionary)).astype(np.int64)
    rows = change.select([name for name in change.column_names if name != op]).take(pa.array(firsts))
    rows, net = rows.filter(pa.array(net != 0)), net[net != 0]
    counts = _copies(bag, rows)
    if (counts + net < 0).any():
        raise InputError(
            "rows that are to go are not there",
            remedy="rebuild the state from the dataset",
            code="RowsDisagree",
        )
    # Of n rows the numbers n + 1 … are added, or the last ones go.
    low, size = np.minimum(counts, counts + net), np.abs(net)
    places = np.repeat(np.arange(len(net)), size)
    within = np.arange(len(places)) - np.repeat(np.cumsum(size) - size, size)
    made = rows.take(pa.array(places))
    made = made.append_column(copy, pa.array(low[places] + within + 1).cast(copy.type))
    gone = np.where(net[places] < 0, int(Op.RETRACT), int(Op.APPEND))
    return made.append_column(op, pa.array(gone, pa.int32()))


def _copies(bag: Bag, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Say how many copies of rows there are: found by asking for single numbers, twice as high each time."""
    low = np.zeros(rows.num_rows, np.int64)
    high = low + 1
    if bag.current is None or not rows.num_rows:
        return low
    growing = np.ones(rows.num_rows, dtype=bool)
    while (open_ := np.flatnonzero(growing | (high - low > 1))).size:
        asked = np.where(growing, high, (low + high) // 2)[open_]
        some = rows.take(pa.array(open_)).append_column(bag.copy, pa.array(asked).cast(bag.copy.type))
        keys = encode_keys(some, bag.key, encoding=KeyEncoding.GROUP)
        order = sorting(keys)
        found = bag.current(keys if order is None else keys.take(pa.array(order)))
        _, there = find(as_array(found[KEY]), keys)
        low[open_[there]] = asked[there]
        high[open_[~there]] = asked[~there]
        growing[open_[~there]] = False
        doubled = open_[there & growing[open_]]
        high[doubled] = 2 * low[doubled]
    return low
