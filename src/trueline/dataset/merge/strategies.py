"""The five merge strategies as functions of new rows and current rows: pure, and free of any store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.events import SetVocab
from trueline.dataset.merge.differences import rows_differ
from trueline.dataset.merge.keyed_rows import (
    KeyedRows,
    NullKeys,
    current,
    data_columns,
    in_source_order,
    keyed,
    no_ops,
    shown_keys,
    two_rows,
)
from trueline.dataset.merge.partial_rows import WHOLE, Partial, folded
from trueline.dataset.merge.result import IGNORED, MergeCounts, Merged, Op
from trueline.dataset.state.segment import GONE
from trueline.errors import InputError, SchemaError
from trueline.kernel.key_encoding import KEY, RANK, MergeKey
from trueline.kernel.sorted_keys import Bools, Ints, as_array, find, sorting
from trueline.merge import (
    Append,
    Changelog,
    Keyed,
    KeyEquality,
    Ledger,
    NetChange,
    Snapshot,
    Upsert,
)

_VOCAB = SetVocab()
# The current rows in key order, and their keys.
Current = tuple[pa.Table, pa.BinaryArray]


def merge_batch(
    strategy: Append | Keyed,
    new: pa.Table,
    old: pa.Table | None = None,
    *,
    vocab: SetVocab = _VOCAB,
    null_keys: NullKeys = "refuse",
    source_time: pa.Scalar | None = None,
    equality: KeyEquality = KeyEquality.BITWISE,
    partial: Partial = WHOLE,
) -> Merged:
    """Merge new rows into current ones.

    `new` has the dataset's columns, `_rank` (the row's number in the source;
    taken from the order of the rows if it is not there) and, for changelog and
    upsert, operations. `old` holds the current rows of the keys of `new`, for a
    snapshot all current rows. `source_time` is the event time of rows that have none;
    `equality` says which keys are equal, `partial` which columns some rows of an upsert or a snapshot lack.
    Merging ranges of keys one by one and joining with `Merged.concat` gives the same.

    >>> import trueline.merge as merge
    >>> new = pa.table({"city": ["oslo", "kyiv"], "people": [2, 3]})
    >>> old = pa.table({"city": ["oslo"], "people": [1]})
    >>> merge_batch(merge.upsert("city"), new, old).events.to_pydict()
    {'op': [0, 2, 3], 'city': ['kyiv', 'oslo', 'oslo'], 'people': [3, 1, 2]}
    """
    if isinstance(strategy, Append):
        return _append(new, vocab, source_time)
    _check_columns(strategy, new, vocab)
    if isinstance(strategy, Ledger | Snapshot):
        no_ops(new, vocab, strategy.NAME)
    key = MergeKey(strategy.key, equality)
    rows = keyed(new, key, vocab, null_keys)
    if isinstance(strategy, Changelog):
        return _changelog(rows, _keys_of(old, key), vocab, source_time)
    there = current(old, rows.rows, key)
    match strategy:
        case Ledger():
            held = () if old is None else old.column_names
            return _ledger(strategy, rows, there, held, vocab=vocab, source_time=source_time)
        case Snapshot():
            return _snapshot(strategy, rows, there, partial, vocab=vocab, source_time=source_time)
        case Upsert():
            return _upsert(strategy, rows, there, partial, vocab=vocab, source_time=source_time)
        case NetChange():
            return _net_change(strategy, rows, there, vocab=vocab)


def _check_columns(strategy: Keyed, new: pa.Table, vocab: SetVocab) -> None:
    names = data_columns(new, vocab)
    wanted = [(name, "primary key", "MissingKeyColumn") for name in strategy.key]
    if isinstance(strategy, Snapshot):
        wanted += [(name, "compare", "MissingCompareColumn") for name in strategy.compare or ()]
    for name, what, code in wanted:
        if name not in names:
            raise SchemaError(
                f"missing {what} column {name!r}: the columns are {', '.join(names)}",
                remedy=f"give the column, or create the dataset with another {strategy.NAME}(…)",
                code=code,
                column=name,
            )


def _append(new: pa.Table, vocab: SetVocab, source_time: pa.Scalar | None) -> Merged:
    no_ops(new, vocab, "append")
    new = in_source_order(new)
    rows = _timed(new.select(data_columns(new, vocab)), vocab, source_time)
    ops = np.zeros(new.num_rows, dtype=np.int32)
    events = _events(rows, ops, vocab).append_column(RANK, new[RANK])
    return Merged(events, None, None, dict.fromkeys(IGNORED, 0), new.slice(0, 0))


def _ledger(
    strategy: Ledger,
    new: KeyedRows,
    there: Current,
    columns_there: Sequence[str],
    *,
    vocab: SetVocab,
    source_time: pa.Scalar | None,
) -> Merged:
    """The first row of a key counts; others are the same again (duplicate) or say otherwise (conflicting)."""
    kept, kept_keys = there
    first = new.first_of_key
    places, known = find(kept_keys, new.keys)
    taken = first & ~known
    differs = np.zeros(len(known), dtype=bool)
    columns = [name for name in new.rows.column_names if name not in strategy.key]
    # A state may keep the keys of a ledger alone: what it does not have cannot conflict with a row.
    held = [name for name in columns if name in columns_there]
    differs[known] = rows_differ(
        kept.take(pa.array(places[known])), new.rows.filter(pa.array(known)), held, vocab.event_time
    )
    again = np.flatnonzero(~first & ~known)
    leaders = np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))[again]
    differs[again] = rows_differ(
        new.rows.take(pa.array(leaders)), new.rows.take(pa.array(again)), columns, vocab.event_time
    )
    counts = {"duplicate": int((~taken & ~differs).sum()), "conflicting": int((~taken & differs).sum())}
    winners = new.take(taken)
    rows = _timed(winners.rows, vocab, source_time)
    order = np.argsort(winners.ranks, kind="stable")
    events = _events(rows.take(pa.array(order)), np.zeros(len(order), dtype=np.int32), vocab)
    events = events.append_column(RANK, pa.array(winners.ranks[order]))
    set_by = np.empty(len(order), dtype=np.int64)
    set_by[order] = np.arange(len(order))
    gone = np.zeros(len(order), dtype=bool)
    return Merged(
        events,
        _delta(winners.keys, gone, rows),
        pa.array(set_by),
        _ignored(counts),
        new.quarantined,
        MergeCounts.of(inserts=len(order)),
    )


def _snapshot(
    strategy: Snapshot,
    new: KeyedRows,
    there: Current,
    partial: Partial,
    *,
    vocab: SetVocab,
    source_time: pa.Scalar | None,
) -> Merged:
    """What is only in the dump is appended, what it lacks retracted, what differs corrected."""
    if not new.first_of_key.all():
        twice = new.take(~new.first_of_key & new.last_of_key)
        shown = shown_keys(twice.rows, strategy.key)
        raise InputError(
            f"{len(twice.keys):,} keys occur more than once in the snapshot: {shown}",
            remedy="give one row for each key, or choose a key that identifies the rows",
            code="DuplicateKeys",
            keys=shown,
            count=len(twice.keys),
            rows=two_rows(new.rows.slice(int(np.argmin(new.first_of_key)) - 1, 2)),
        )
    kept, kept_keys = there
    if partial:
        new, _ = folded(new, kept, kept_keys, partial, strategy.key)
    compare = strategy.compare or tuple(name for name in new.rows.column_names if name not in strategy.key)
    places, known, differs = _compared(new, kept, kept_keys, compare, _filled_in(vocab, source_time))
    missing = np.ones(len(kept_keys), dtype=bool)
    missing[places[known]] = False
    acts = known & differs
    kinds = np.where(known, Change.CORRECT, Change.ADD)[acts | ~known]
    changed = np.flatnonzero(acts | ~known)
    gone = np.flatnonzero(missing)
    made = changes(
        keys=pa.concat_arrays([new.keys.take(pa.array(changed)), kept_keys.take(pa.array(gone))]),
        kinds=np.concatenate([kinds, np.full(len(gone), Change.RETRACT)]),
        new_rows=np.concatenate([changed, np.full(len(gone), -1)]),
        old_rows=np.concatenate([np.where(known, places, -1)[changed], gone]),
    )
    counts = {"unchanged": int((known & ~differs).sum())}
    return _changed(made, kept, new, counts, vocab=vocab, source_time=source_time)


def _upsert(
    strategy: Upsert,
    new: KeyedRows,
    there: Current,
    partial: Partial,
    *,
    vocab: SetVocab,
    source_time: pa.Scalar | None,
) -> Merged:
    """The last row of a key counts; it adds, corrects or (operation 1) retracts, if that changes anything."""
    kept, kept_keys = there
    if partial:
        winners, used = folded(new, kept, kept_keys, partial, strategy.key)
    else:
        used = new.last_of_key
        winners = new.take(used)
    compare = tuple(name for name in new.rows.column_names if name not in strategy.key)
    places, known, differs = _compared(winners, kept, kept_keys, compare, vocab.event_time)
    retracts = np.zeros(len(known), dtype=bool) if winners.ops is None else winners.ops == Op.RETRACT
    acts = np.where(known, retracts | differs, ~retracts)
    kinds = np.where(retracts, Change.RETRACT, np.where(known, Change.CORRECT, Change.ADD))
    made = changes(
        keys=winners.keys.filter(pa.array(acts)),
        kinds=kinds[acts],
        new_rows=np.where(retracts, -1, np.arange(len(known)))[acts],
        old_rows=np.where(known, places, -1)[acts],
    )
    counts = {
        "superseded": int((~used).sum()),
        "unknown": int((retracts & ~known).sum()),
        "unchanged": int((known & ~retracts & ~differs).sum()),
    }
    return _changed(made, kept, winners, counts, vocab=vocab, source_time=source_time)


def _net_change(strategy: NetChange, new: KeyedRows, there: Current, *, vocab: SetVocab) -> Merged:
    """What came and did not go is appended, what only went is retracted, what differs is corrected.

    What goes has to be what is there: otherwise whoever computed the change had another state before him.
    """
    kept, kept_keys = there
    comes = np.ones(len(new.keys), dtype=bool) if new.ops is None else new.ops != Op.RETRACT
    first = new.first_of_key
    number = np.cumsum(first) - 1
    keys = new.keys.filter(pa.array(first))
    came, went = (np.bincount(number[which], minlength=len(keys)) for which in (comes, ~comes))
    places, known = find(kept_keys, keys)
    stays = known & (went == 0)
    if (twice := (came > 1) | ((came == 1) & stays)).any():
        at = int(np.argmax(twice))
        there_now = kept.take(pa.array(places[[at]])) if stays[at] else None
        rows = two_rows(new.rows.filter(pa.array(comes & (number == at))), there_now)
        raise _second_rows(strategy, new.rows.filter(pa.array(first)).filter(pa.array(twice)), rows)
    arrives, leaves = np.full((2, len(keys)), -1)
    arrives[number[comes]] = np.flatnonzero(comes)
    leaves[number[~comes]] = np.flatnonzero(~comes)
    compare = tuple(name for name in new.rows.column_names if name not in strategy.key)
    gone = leaves >= 0
    same = _same(compare, vocab)
    if ((went > 1) | (gone & ~known)).any() or not same(
        kept.take(pa.array(places[gone])), new.rows.take(pa.array(leaves[gone]))
    ).all():
        raise InputError(
            "rows that are to go are not those that are there",
            remedy="rebuild the state from the dataset",
            code="RowsDisagree",
        )
    both = known & (came == 1)
    acts = came + went > 0
    acts[both] = ~same(kept.take(pa.array(places[both])), new.rows.take(pa.array(arrives[both])))
    kinds = np.where(came == 0, Change.RETRACT, np.where(known, Change.CORRECT, Change.ADD))
    made = changes(
        keys=keys.filter(pa.array(acts)),
        kinds=kinds[acts],
        new_rows=arrives[acts],
        old_rows=np.where(known, places, -1)[acts],
    )
    counts = {"unchanged": int((both & ~acts).sum())}
    return _changed(made, kept, new, counts, vocab=vocab, source_time=None)


def _second_rows(strategy: NetChange, twice: pa.Table, rows: list[dict[str, object]]) -> InputError:
    """The error of a second row of a key, as a snapshot has it."""
    shown = shown_keys(twice, strategy.key)
    return InputError(
        f"{twice.num_rows:,} keys occur more than once in the result: {shown}",
        remedy="give one row for each key, or choose a key that identifies the rows",
        code="DuplicateKeys",
        keys=shown,
        count=twice.num_rows,
        rows=rows,
    )


def _same(compare: Sequence[str], vocab: SetVocab) -> Callable[[pa.Table, pa.Table], Bools]:
    """Return what says of pairs of rows whether they are equal."""
    return lambda old, new: ~rows_differ(old, new, compare, _filled_in(vocab, None))


def _filled_in(vocab: SetVocab, source_time: pa.Scalar | None) -> str | None:
    """Return the event time where null means that none was given: in a whole dump a column may hold it."""
    return None if vocab.event_time_column is not None and source_time is None else vocab.event_time


def _keys_of(old: pa.Table | None, key: MergeKey) -> pa.BinaryArray:
    """Return the keys of current rows, in order."""
    if old is None:
        return pa.array([], type=pa.binary())
    keys = as_array(old[KEY]) if KEY in old.column_names else key.encode(old)
    order = sorting(keys)
    return keys if order is None else keys.take(pa.array(order))


def _changelog(
    new: KeyedRows, kept_keys: pa.BinaryArray, vocab: SetVocab, source_time: pa.Scalar | None
) -> Merged:
    """Rows pass as they are, in key order, those of one key in the order of the source."""
    if new.ops is None:
        raise SchemaError(
            f"a changelog needs the column {vocab.op!r}",
            remedy="add it: 0 append, 1 retract, 2 correct from, 3 correct to",
            code="MissingOp",
            column=vocab.op,
        )
    _check_pairs(new)
    rows = _timed(new.rows, vocab, source_time)
    last = new.last_of_key
    gone = (new.ops == Op.RETRACT)[last]
    keys = new.keys.filter(pa.array(last))
    delta = _delta(keys, gone, rows.filter(pa.array(last)))
    set_by = pa.array(np.flatnonzero(last), mask=gone)
    _, known = find(kept_keys, keys)
    inserts, updates, deletes = (int((new.ops == op).sum()) for op in (Op.APPEND, Op.CORRECT_TO, Op.RETRACT))
    growth = int((~gone & ~known).sum()) - int((gone & known).sum())
    tally = MergeCounts(inserts, updates, deletes, growth)
    return Merged(_events(rows, new.ops, vocab), delta, set_by, _ignored({}), new.quarantined, tally)


def _check_pairs(new: KeyedRows) -> None:
    """Refuse unknown operations, and corrections of which one half is missing."""
    assert new.ops is not None
    bad = ~np.isin(new.ops, [int(op) for op in Op])
    same = ~new.last_of_key
    after = np.append(new.ops[1:], -1)
    before = np.append(-1, new.ops[:-1])
    alone = (new.ops == Op.CORRECT_FROM) & ~(same & (after == Op.CORRECT_TO))
    alone |= (new.ops == Op.CORRECT_TO) & ~(~new.first_of_key & (before == Op.CORRECT_FROM))
    for wrong, what, code in (
        (bad, "unknown operations", "BadOp"),
        (alone, "unpaired corrections", "BrokenPair"),
    ):
        if wrong.any():
            ranks = sorted(int(rank) for rank in new.ranks[wrong])
            raise InputError(
                f"{len(ranks):,} rows of the changelog have {what}: rows {ranks[:20]}",
                remedy="op is 0, 1, 2 or 3, and each 2 is directly followed by a 3 of the same key",
                code=code,
                rows=ranks[:20],
                count=len(ranks),
            )


# --- parts they share -----------------------------------------------------------


def _compared(
    new: KeyedRows,
    kept: pa.Table,
    kept_keys: pa.BinaryArray,
    compare: Sequence[str],
    filled_in: str | None,
) -> tuple[Ints, Bools, Bools]:
    """For rows with one key each: where their current rows are, whether there is one, whether it differs."""
    places, known = find(kept_keys, new.keys)
    differs = np.zeros(len(known), dtype=bool)
    differs[known] = rows_differ(
        kept.take(pa.array(places[known])), new.rows.filter(pa.array(known)), compare, filled_in
    )
    return places, known, differs


def _changed(
    made: KeyChanges,
    kept: pa.Table,
    new: KeyedRows,
    counts: dict[str, int],
    *,
    vocab: SetVocab,
    source_time: pa.Scalar | None,
) -> Merged:
    """Lay out changes as events and as an update of the state."""
    rows = _timed(new.rows, vocab, source_time)
    both = pa.concat_tables([kept, rows]).combine_chunks()
    events = _events(both.take(pa.array(made.event_rows(kept.num_rows))), made.ops, vocab)
    gone = made.kinds == Change.RETRACT
    payload = rows.take(pa.array(made.new_rows, mask=gone))
    return Merged(
        events,
        _delta(made.keys, gone, payload),
        pa.array(made.set_by, mask=gone),
        _ignored(counts),
        new.quarantined,
        MergeCounts.of(
            *(int((made.kinds == kind).sum()) for kind in (Change.ADD, Change.CORRECT, Change.RETRACT))
        ),
    )


def _timed(rows: pa.Table, vocab: SetVocab, source_time: pa.Scalar | None) -> pa.Table:
    """Give rows without an event time that of their source."""
    name = vocab.event_time
    if source_time is None or name not in rows.column_names or not rows[name].null_count:
        return rows
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), pc.fill_null(rows[name], source_time))


def _events(rows: pa.Table, ops: Any, vocab: SetVocab) -> pa.Table:
    field = pa.field(vocab.op, pa.int32(), nullable=False)
    return rows.add_column(0, field, pa.array(np.asarray(ops, dtype=np.int32)))


def _delta(keys: pa.BinaryArray, gone: Bools, rows: pa.Table) -> pa.Table:
    if gone.any():
        # A key that is gone keeps no values.
        rows = rows.take(pa.array(np.arange(len(gone)), mask=gone))
    schema = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    table = pa.Table.from_arrays(rows.columns, schema=schema)
    return table.add_column(0, GONE, pa.array(gone)).add_column(0, KEY, keys)


def _ignored(counts: dict[str, int]) -> dict[str, int]:
    return {why: counts.get(why, 0) for why in IGNORED}


class Change(IntEnum):
    """What happens to a key."""

    ADD = 0
    RETRACT = 1
    CORRECT = 2


@dataclass(frozen=True)
class KeyChanges:
    """One change for each key, in key order; a correction is two events, the others one."""

    keys: pa.BinaryArray
    kinds: Ints
    new_rows: Ints
    old_rows: Ints

    @property
    def _starts(self) -> Ints:
        """Where each change's first event is."""
        sizes = np.where(self.kinds == Change.CORRECT, 2, 1)
        return np.asarray(np.cumsum(sizes) - sizes, dtype=np.int64)

    @property
    def _count(self) -> int:
        return len(self.kinds) + int((self.kinds == Change.CORRECT).sum())

    @property
    def set_by(self) -> Ints:
        """The event that says what the key's row is afterwards."""
        return np.asarray(self._starts + (self.kinds == Change.CORRECT), dtype=np.int64)

    @property
    def ops(self) -> Ints:
        """The operation of each event; a correction is from, directly followed by to."""
        ops = np.empty(self._count, dtype=np.int64)
        first = np.array([Op.APPEND, Op.RETRACT, Op.CORRECT_FROM])
        ops[self._starts] = first[self.kinds]
        ops[self._starts[self.kinds == Change.CORRECT] + 1] = Op.CORRECT_TO
        return ops

    def event_rows(self, old_count: int) -> Ints:
        """The row each event shows, among the old rows followed by the new ones: what it cancels, or sets."""
        rows = np.empty(self._count, dtype=np.int64)
        correct = self.kinds == Change.CORRECT
        rows[self._starts] = np.where(self.kinds == Change.ADD, old_count + self.new_rows, self.old_rows)
        rows[self._starts[correct] + 1] = old_count + self.new_rows[correct]
        return rows


def changes(keys: pa.BinaryArray, kinds: Ints, new_rows: Ints, old_rows: Ints) -> KeyChanges:
    """Put changes in key order."""
    order = sorting(keys)
    if order is not None:
        keys = keys.take(pa.array(order))
        kinds, new_rows, old_rows = kinds[order], new_rows[order], old_rows[order]
    return KeyChanges(keys, *(np.asarray(each, dtype=np.int64) for each in (kinds, new_rows, old_rows)))
