"""Going back to an earlier commit: a commit whose events turn the present rows into those there were."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain as chained
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.append import Order, commit, typed_errors
from trueline.dataset.append.incoming import Incoming, schema_of
from trueline.dataset.append.stream import take_stream
from trueline.dataset.at import resolve
from trueline.dataset.commit import Commit
from trueline.dataset.dataset_at import Standing
from trueline.dataset.definition import check_appendable, strategy_of
from trueline.dataset.merge.result import Op
from trueline.dataset.read.changes import OPERATIONS
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.diff import Difference
from trueline.dataset.remove.record import removals_of
from trueline.errors import InputError
from trueline.kernel.sorted_keys import as_array, unified
from trueline.kernel.tasks import InlineTasks
from trueline.merge import Changelog, Snapshot, Strategy, Upsert
from trueline.view.plan.node import NO_BOUNDS

_INSERT, _DELETE, _BEFORE, _AFTER = OPERATIONS
# What undoes a change: what was inserted goes, what was deleted comes back, pairs are turned round.
_UNDONE: Final = {_INSERT: Op.RETRACT, _DELETE: Op.APPEND, _BEFORE: Op.CORRECT_TO, _AFTER: Op.CORRECT_FROM}


def revert_rows(name: str, chain: Chain, to: object, *, clock: Callable[[], Instant] | None = None) -> Commit:
    """Restore the current rows of a commit, whatever other writers do meanwhile.

    What differs is found key by key in bounded memory, and merged as any other changes are.
    """
    tail = chain.tail()
    assert tail is not None
    check_appendable(name, tail, nothing=True)
    strategy = strategy_of(tail)
    if not isinstance(strategy, Snapshot | Upsert | Changelog):
        raise _not_keyed(name, strategy, to)
    target = resolve(chain, to)
    way = _Way(name, chain, target, strategy, bool(removals_of(chain)))
    with typed_errors(chain.store.location), chain.store.scratch() as scratch:
        order = Order(
            name,
            way.strategy,
            way.take(scratch),
            clock=clock,
            allow_empty=True,
            reverts_to=target.block,
        )
        return commit(chain, order, scratch, InlineTasks())


def _not_keyed(name: str, strategy: Strategy, to: object) -> InputError:
    own, at = shlex.quote(name), shlex.quote(f"{name}@{to}")
    keyed = "".join(f" --key {shlex.quote(column)}" for column in getattr(strategy, "key", ()))
    return InputError(
        f"dataset {name!r} keeps every row it was given ({strategy}): none was replaced that could come back",
        remedy=f"ws[{name!r}].view(at=...) reads it as it was, and "
        f"ws.create(another_name, merge=...).append(ws[{name!r}].view(at=...)) goes on from there",
        in_shell=f"`trueline show {at}` shows it as it was; to go on from there: "
        f"`trueline export {at} rows.parquet`, `trueline create {own}-again --merge {strategy.NAME}{keyed}`, "
        f"`trueline ingest {own}-again rows.parquet`",
        code="NotRevertible",
        name=name,
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """How a dataset gets back to a commit: by undoing the net changes since.

    Events that were removed cannot be undone. Where some were, all rows of the commit that are left are
    merged as a snapshot instead.
    """

    name: str
    chain: Chain
    target: Position
    keyed: Snapshot | Upsert | Changelog
    removed: bool

    @property
    def strategy(self) -> Snapshot | Changelog:
        """By what strategy the rows of `take` are merged."""
        return Snapshot(self.keyed.key) if self.removed else Changelog(self.keyed.key)

    def take(self, scratch: Scratch) -> Incoming:
        """Return what is to be merged at the present head; at another it is taken again."""
        tail = self.chain.tail()
        assert tail is not None
        before, after = (Standing.of(self.name, self.chain, at) for at in (self.target, tail.position))
        if tail.schema is None:
            return Incoming((), schema_of(tail), tail.vocab)
        if bool(after.removals) != self.removed:
            raise InputError(
                f"records of {self.name!r} were removed meanwhile", remedy="revert again", code="Removed"
            )
        difference = Difference(before, after, after.data_columns)
        tables = _rows_of(before, after) if self.removed else undone(difference)
        taken = take_stream(tables, tail, scratch, with_op=not self.removed)
        return replace(taken, taken_at=tail, pinned=True, retake=lambda: self.take(scratch))


def _rows_of(before: Standing, after: Standing) -> Iterator[pa.Table]:
    """Yield the rows of a commit with the columns there are now; a table without rows comes first."""
    schema = pa.schema([after.schema.field(name) for name in after.data_columns])
    yield schema.empty_table()
    for batch in CurrentRows(before, before.data_columns).batches(before.data_columns, NO_BOUNDS):
        yield unified(pa.Table.from_batches([batch]), schema)


def undone(difference: Difference) -> Iterator[pa.Table]:
    """Yield the changes that undo a difference, as a changelog has them."""
    op: Any = difference.after.vocab.op
    columns = [op, *difference.columns]
    waiting = difference.schema.empty_table()
    for batch in chained(difference.batches(columns, NO_BOUNDS), [None]):
        rows = waiting if batch is None else pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        words = as_array(rows[op]).to_pylist()
        # The two halves of a pair may come in two batches.
        cut = len(words) - (batch is not None and bool(words) and words[-1] == _BEFORE)
        waiting = rows.slice(cut)
        if cut:
            yield _turned(rows.slice(0, cut), words[:cut], op)


def _turned(rows: pa.Table, words: list[str], op: str) -> pa.Table:
    """Turn changes round, each pair with what is there now before what comes back."""
    order = np.arange(len(words))
    first = np.flatnonzero(np.array([word == _BEFORE for word in words], dtype=bool))
    order[first], order[first + 1] = first + 1, first
    ops = pa.array([int(_UNDONE[word]) for word in words], pa.int32())
    place = rows.schema.get_field_index(op)
    return rows.set_column(place, pa.field(op, pa.int32()), ops).take(pa.array(order))
