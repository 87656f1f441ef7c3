"""Aggregates that follow by the increment: accumulators of each group are kept beside the rows.

A change that is small is followed in this process, where its expressions are known there. Otherwise one job
makes accumulators of the rows that were lost and gained; a second one, if need be, adds them to those that
were kept for the same groups and evaluates the canonical expressions over both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.checkpoint import CheckpointFile, DerivedCheckpoint, StateFile
from trueline.chain.schema import to_arrow
from trueline.dataset.append.append import in_this_process
from trueline.dataset.append.incoming import schema_of
from trueline.dataset.append.merge import Terms, merge_into, put_into
from trueline.dataset.state import State
from trueline.errors import CorruptionError, InputError, ObjectMissing, TruelineError
from trueline.kernel.key_encoding import KeyEncoding, encode_keys
from trueline.workspace.derive.strategies.accumulators import (
    PARTS,
    RESULT,
    SIGN,
    VERSION,
    Accumulation,
    NotIncremental,
    accumulation,
    accumulation_of_text,
    parsed,
)
from trueline.workspace.derive.strategies.expressions_here import Elsewhere
from trueline.workspace.derive.strategies.finish_here import (
    Accumulating,
    accumulating,
    finished_here,
)
from trueline.workspace.derive.strategies.groups import (
    OP,
    Partials,
    change_of,
    disagrees,
    types_of,
    update_of,
)
from trueline.workspace.derive.strategies.increment import (
    Delta,
    DerivedTransaction,
    Impossible,
    Recorded,
    delta_of,
    increment_session,
    run_sql,
)
from trueline.workspace.derive.strategies.keyed_tasks import finished_in_tasks
from trueline.workspace.derive.strategies.spooled import read_within, side_of, spooled
from trueline.workspace.derive.strategies.stateless import commit_rows, rows_of_change

if TYPE_CHECKING:
    from trueline.chain.store.scratch import Scratch

# How accumulators are laid out; state of another layout is not used.
LAYOUT: Final = 2
# In what a checkpoint says: which state of accumulators it has, if only an empty one.
KEPT: Final = "aggregates"
# What is read here is sent to Spark and comes back, so that so much of the room is for it.
_PARTS_OF_ROOM: Final = 3
# Of fewer the state is made sooner than another thread begins; then all that is written has one order.
_MANY_GROUPS: Final = 1 << 14


def accumulation_of(transaction: DerivedTransaction[Any]) -> Accumulation:
    """Return the accumulators of a definition."""
    *_, text = transaction.statements
    try:
        return accumulation_of_text(text, append_only=transaction.append_only)
    except NotIncremental as problem:
        # Judged when it was defined; what a chain says may be somebody else's word.
        raise Impossible(problem.code) from None


def state_name(*, append_only: bool) -> str:
    """Name the state: where inputs only grow it keeps less."""
    return f"aggregates-{LAYOUT}{'-grows' if append_only else ''}"


def judged(session: Any, text: str, tables: Collection[str], *, append_only: bool) -> str:
    """Let Spark judge what a query was taken apart into, over no rows; return why not, or nothing.

    Sums have to be exact, groups have to have keys, and the result the columns of the query.
    """
    from trueline.spark.canonical import same_meaning
    from trueline.spark.increments import local_frame, with_whole_numbers

    try:
        query = parsed(text)
        if not same_meaning(session, text, query.sql("spark")):
            return "opaque"
        made = accumulation(query, append_only=append_only)
        frame = run_sql(session, made.partial, tables)
        rows = _schema(frame).empty_table()
        check_accumulators(made, rows.schema)
        encode_keys(rows, made.keys, encoding=KeyEncoding.GROUP)
        for name in (SIGN, VERSION):
            rows = rows.append_column(name, pa.array([], pa.int32()))
        schema = with_whole_numbers(frame.schema, SIGN, VERSION)
        local_frame(session, rows, schema).createOrReplaceTempView(PARTS)
        found = run_sql(session, made.finish(types_of(made, schema)), [PARTS]).schema[RESULT].dataType
    except Impossible as problem:
        return problem.code
    except NotIncremental as problem:
        return problem.code
    except InputError as error:
        return "key_type" if error.code == "BadKeyType" else "opaque"
    except TruelineError:
        return "opaque"
    kinds = [field.dataType for field in run_sql(session, text, tables).schema.fields]
    return "" if [field.dataType for field in found.fields] == kinds else "opaque"


def follow_keyed(transaction: DerivedTransaction[Recorded], left: DerivedCheckpoint) -> Recorded:
    """Record what the change of the inputs makes of the groups that it touches."""
    name = state_name(append_only=transaction.append_only)
    if left.more.get(KEPT) != name:
        raise Impossible("no_state")
    made = accumulation_of(transaction)
    store = transaction.dataset.chain.store
    kept: dict[str, Any] = {"more": {**transaction.advance.left.more, KEPT: name}}
    with increment_session(transaction) as opened, store.scratch() as scratch:
        with _needing_state():
            state = State.open(store, CheckpointFile(left.state), name, encoding=KeyEncoding.GROUP)
            here = accumulating(made)
            delta = delta_of(transaction, opened, None if here is None else here.columns)
            if not delta.sides:
                return commit_rows(transaction, None, state=state.files, **kept)
            found = None if here is None else _followed_here(transaction, made, here, delta, state)
            terms = Terms(scratch, in_this_process())
            if found is None:
                session = opened()
                partials = _partials(transaction, session, made, delta, scratch)
                touched = _touched(transaction, made, partials.rows, state)
                if touched is None:
                    terms = Terms(scratch, transaction.workspace._spark.tasks_for(session.range(0)))
                    after, rows = finished_in_tasks(transaction, session, partials, state, terms)
                else:
                    found = _finished(transaction, session, partials, touched)
        if found is None:
            advance = transaction.leaving(state=after.files, **kept)
            return transaction.record(transaction, rows, advance, terms)
        with _meanwhile(partial(_updated, made, state, found), groups=found.num_rows) as updated:
            rows = rows_of_change(transaction, change_of(made, found, transaction.tail.vocab.op))
            advance = replace(transaction.leaving(**kept), beside=lambda: updated().files)
            return transaction.record(transaction, rows, advance, terms)


@contextmanager
def _meanwhile(call: Callable[[], State], *, groups: int) -> Iterator[Callable[[], State]]:
    """Make a state while something else is done if it is large; what it raises comes before all else."""

    def made() -> State:
        with _needing_state():
            return call()

    if groups < _MANY_GROUPS:
        state = made()
        yield lambda: state
        return
    with ThreadPoolExecutor(1, thread_name_prefix="trueline-state") as pool:
        waited = pool.submit(made)
        try:
            yield waited.result
        except Exception:
            waited.result()
            raise


@contextmanager
def _needing_state() -> Iterator[None]:
    """Say of state that is gone or damaged that it has to be made again."""
    try:
        yield
    except (ObjectMissing, CorruptionError) as error:
        raise Impossible("state_missing") from error


def _partials(
    transaction: DerivedTransaction[Any], session: Any, made: Accumulation, delta: Delta, scratch: Scratch
) -> Partials:
    """Make accumulators of what came and went, here if they are few."""
    from trueline.spark.increments import local_table, one_after_another

    frames = []
    for sign, rows in delta.sides:
        frames.append((sign, side_of(session, made.partial, rows, delta, scratch)))
    frame = one_after_another(frames, SIGN)
    schema, carried = _schema(frame), transaction.carried
    check_accumulators(made, schema)
    if delta.is_local and _most_bytes(delta, schema) <= carried.room:
        found = local_table(frame.coalesce(1), label="accumulating what changed")
        return Partials(made, frame.schema, carried.add(found))
    pieces = spooled(frame, scratch, "accumulating what changed")
    few = read_within(pieces, schema, carried.room // _PARTS_OF_ROOM)
    return Partials(made, frame.schema, None if few is None else carried.add(few), tuple(pieces))


def _most_bytes(delta: Delta, schema: pa.Schema) -> int:
    """Return about how many bytes the accumulators of a change have if every row is a group of its own."""
    tables = [rows for _, side in delta.sides for rows in side.values()]
    width = sum(_width(field.type) for field in schema)
    return sum(table.num_rows * width + table.nbytes for table in tables)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value, or of a list of one; of text, what says where it ends."""
    if pa.types.is_nested(kind):
        return 4 + sum(_width(kind.field(at).type) for at in range(kind.num_fields))
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return 4


def check_accumulators(made: Accumulation, schema: pa.Schema) -> None:
    """Refuse sums that are not exact."""
    for name, merge in made.sums.items():
        kind = schema.field(name).type
        if merge == "sum" and not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            raise Impossible("inexact")


def _followed_here(
    transaction: DerivedTransaction[Any], made: Accumulation, here: Accumulating, delta: Delta, state: State
) -> pa.Table | None:
    """Follow a small change in this process; None where that is not possible."""
    if not delta.is_local or not state.generations:
        return None
    carried = transaction.carried
    before = carried.size
    try:
        parts = []
        for sign, tables in delta.sides:
            (rows,) = tables.values()
            part = here.of(rows, state.schema, carried.room)
            signs = pa.array(np.full(part.num_rows, sign, np.int32))
            parts.append(carried.add(part.append_column(SIGN, signs)))
        new = pa.concat_tables(parts)
        touched = _touched(transaction, made, new, state)
        if touched is not None:
            return carried.add(finished_here(made, touched, new, _result_types(transaction)))
    except Elsewhere:
        pass
    carried.size = before  # nothing of this is held any longer
    return None


def _touched(
    transaction: DerivedTransaction[Any], made: Accumulation, partials: pa.Table | None, state: State
) -> pa.Table | None:
    """Return what is kept of the groups that are touched; None where this process has no room for it."""
    if partials is None:
        return None
    columns = list(made.kept)
    if not state.generations:
        return partials.select(columns).slice(0, 0)
    # It goes through here once more on its way to Spark, and comes back twice: before and after the change.
    room = (transaction.carried.room - partials.nbytes) // _PARTS_OF_ROOM
    if room <= 0:
        return None
    keys = encode_keys(partials, made.keys, encoding=KeyEncoding.GROUP)
    found = state.lookup_within(keys.unique(), room, columns)
    return None if found is None else transaction.carried.add(found.select(columns))


def _finished(
    transaction: DerivedTransaction[Any], session: Any, partials: Partials, touched: pa.Table
) -> pa.Table:
    """Add partial accumulators to those that are kept, and evaluate the results before and after."""
    from trueline.spark.increments import columns_of, local_frame, local_table, with_whole_numbers

    made = partials.made
    columns = [*made.kept, SIGN]
    assert partials.rows is not None
    try:
        found = finished_here(made, touched, partials.rows, _result_types(transaction))
    except Elsewhere:
        pass
    else:
        return transaction.carried.add(found)
    old = touched.append_column(SIGN, pa.array(np.ones(touched.num_rows, np.int32)))
    new = partials.rows.select(columns)
    old = old.cast(new.schema)
    versions = [np.zeros(old.num_rows, np.int32), np.ones(old.num_rows + new.num_rows, np.int32)]
    parts = pa.concat_tables([old, old, new]).append_column(VERSION, pa.array(np.concatenate(versions)))
    schema = with_whole_numbers(columns_of(partials.schema, columns), VERSION)
    local_frame(session, parts, schema).createOrReplaceTempView(PARTS)
    frame = run_sql(session, made.finish(types_of(made, partials.schema)), [PARTS])
    return transaction.carried.add(local_table(frame, label="finishing groups"))


def _result_types(transaction: DerivedTransaction[Any]) -> list[pa.DataType]:
    """Return the types of the columns of the query, as they were recorded."""
    schema = to_arrow(schema_of(transaction.tail))
    return [schema.field(name).type for name in accumulation_of(transaction).columns]


def _updated(made: Accumulation, state: State, found: pa.Table) -> State:
    """Return the state with the accumulators after the change."""
    after = update_of(made, found, state.schema if state.generations else None)
    if disagrees(after):
        raise Impossible("state_disagrees")
    before = found.filter(pc.equal(found[VERSION], 0)).select(list(made.kept))
    return put_into(state, made.keys, before.cast(after.drop_columns([OP]).schema), after, OP)


# --- from the beginning ---------------------------------------------------------------------


def _schema(frame: Any) -> pa.Schema:
    from trueline.spark.types import arrow_schema_of

    return arrow_schema_of(frame.schema)


def built(
    transaction: DerivedTransaction[Any], session: Any, scratch: Scratch
) -> tuple[str, tuple[StateFile, ...]]:
    """Make the accumulators of all rows of the inputs, tables of the session; return their files."""
    made = accumulation_of(transaction)
    frame = run_sql(session, made.partial, [table.name for table, _ in transaction.tables])
    schema = _schema(frame)
    check_accumulators(made, schema)
    pieces: list[Any] = list(spooled(frame, scratch, "accumulating groups"))
    name = state_name(append_only=transaction.append_only)
    state = State.open(transaction.dataset.chain.store, None, name, encoding=KeyEncoding.GROUP)
    if not pieces:
        return name, ()
    tasks = transaction.workspace._spark.tasks_for(frame)
    after = merge_into(state, made.keys, schema, pieces, Terms(scratch, tasks))
    return name, after.files
