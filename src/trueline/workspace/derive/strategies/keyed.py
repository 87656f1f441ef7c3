"""Aggregates that follow by the increment: accumulators of each group are kept beside the rows.

One job makes accumulators of the rows that were lost and gained, one adds them to those that were kept for
the same groups and evaluates the canonical expressions over both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trueline.chain.checkpoint import CheckpointFile, DerivedCheckpoint, StateFile
from trueline.dataset.append.append import in_this_process
from trueline.dataset.append.merge import Terms, merge_into
from trueline.dataset.append.pieces import IncomingPiece
from trueline.dataset.state import State
from trueline.errors import CorruptionError, InputError, ObjectMissing, TruelineError
from trueline.kernel.key_encoding import KeyEncoding, encode_keys
from trueline.workspace.derive.strategies.accumulators import (
    PARTS,
    RESULT,
    ROWS,
    SIGN,
    VERSION,
    Accumulation,
    NotIncremental,
    accumulation,
    accumulation_of_text,
    parsed,
)
from trueline.workspace.derive.strategies.increment import (
    DRIVER_BYTES,
    Delta,
    DerivedTransaction,
    Impossible,
    Recorded,
    delta_of,
    increment_session,
    run_sql,
    side_of,
)
from trueline.workspace.derive.strategies.stateless import commit_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trueline.chain.store.folders import Inside
    from trueline.chain.store.scratch import Scratch

# How accumulators are laid out; state of another layout is not used.
LAYOUT: Final = 2
# In what a checkpoint says: which state of accumulators it has, if only an empty one.
KEPT: Final = "aggregates"
_OP: Final = "op"


def accumulation_of(transaction: DerivedTransaction[Any]) -> Accumulation:
    """Return the accumulators of a definition."""
    *_, text = transaction.derivation.canonical
    return accumulation_of_text(text, append_only=transaction.append_only)


def state_name(transaction: DerivedTransaction[Any]) -> str:
    """Name the state: where inputs only grow it keeps less."""
    return f"aggregates-{LAYOUT}{'-grows' if transaction.append_only else ''}"


def judged(session: Any, text: str, *, append_only: bool) -> str:
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
        frame = run_sql(session, made.partial)
        rows = _schema(frame).empty_table()
        check_accumulators(made, rows.schema)
        encode_keys(rows, made.keys, encoding=KeyEncoding.GROUP)
        for name in (SIGN, VERSION):
            rows = rows.append_column(name, pa.array([], pa.int32()))
        schema = with_whole_numbers(frame.schema, SIGN, VERSION)
        local_frame(session, rows, schema).createOrReplaceTempView(PARTS)
        found = run_sql(session, made.finish(_types(made, schema))).schema[RESULT].dataType
    except Impossible as problem:
        return problem.code
    except NotIncremental as problem:
        return problem.code
    except InputError as error:
        return "key_type" if error.code == "BadKeyType" else "opaque"
    except TruelineError:
        return "opaque"
    kinds = [field.dataType for field in run_sql(session, text).schema.fields]
    return "" if [field.dataType for field in found.fields] == kinds else "opaque"


def _types(made: Accumulation, schema: Any) -> dict[str, str]:
    return {name: schema[name].dataType.simpleString() for name in made.sums}


def follow_keyed(transaction: DerivedTransaction[Recorded], left: DerivedCheckpoint) -> Recorded:
    """Record what the change of the inputs makes of the groups that it touches."""
    name = state_name(transaction)
    if left.more.get(KEPT) != name:
        raise Impossible("no_state")
    made = accumulation_of(transaction)
    store = transaction.dataset.chain.store
    kept: dict[str, Any] = {"more": {**transaction.advance.left.more, KEPT: name}}
    try:
        state = State.open(store, CheckpointFile(left.state), name, encoding=KeyEncoding.GROUP)
        with increment_session(transaction) as session:
            delta = delta_of(transaction, session)
            if not delta.sides:
                return commit_rows(transaction, None, state=state.files, **kept)
            partials = _partials(transaction, session(), made, delta)
            touched = _touched(transaction, made, partials, state)
            found = _finished(transaction, session(), made, partials, touched)
        after = _updated(transaction, made, state, found)
    except (ObjectMissing, CorruptionError) as error:
        raise Impossible("state_missing") from error
    change = _change(made, found, transaction.tail.vocab.op)
    return commit_rows(transaction, change, state=after.files, **kept)


@dataclass(frozen=True, slots=True)
class _Partials:
    """Accumulators of rows that came and, with the sign −1, of rows that went, as Spark types them."""

    rows: pa.Table
    schema: Any


def _partials(
    transaction: DerivedTransaction[Any], session: Any, made: Accumulation, delta: Delta
) -> _Partials:
    from trueline.spark.increments import local_table, one_after_another

    frames = []
    for sign, rows in delta.sides:
        frames.append((sign, side_of(session, made.partial, rows, delta)))
    frame = one_after_another(frames, SIGN)
    if delta.is_local:
        rows = local_table(frame.coalesce(1), label="accumulating what changed")
    else:
        with transaction.dataset.chain.store.scratch() as scratch:
            pieces = spooled(frame, scratch, "accumulating what changed")
            if sum(piece.size for piece in pieces) > DRIVER_BYTES:
                raise Impossible("too_large")
            tables = [table for piece in pieces for table in piece.read(0, piece.rows)]
            rows = pa.concat_tables(tables) if tables else _schema(frame).empty_table()
    check_accumulators(made, rows.schema)
    return _Partials(transaction.carried.add(rows), frame.schema)


def check_accumulators(made: Accumulation, schema: pa.Schema) -> None:
    """Refuse sums that are not exact."""
    for name, merge in made.sums.items():
        kind = schema.field(name).type
        if merge == "sum" and not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            raise Impossible("inexact")


def _touched(
    transaction: DerivedTransaction[Any], made: Accumulation, partials: _Partials, state: State
) -> pa.Table:
    """Return what is kept of the groups that are touched."""
    columns = list(made.kept)
    if not state.generations:
        return partials.rows.select(columns).slice(0, 0)
    keys = encode_keys(partials.rows, made.keys, encoding=KeyEncoding.GROUP)
    return transaction.carried.add(state.lookup(keys.unique(), columns).select(columns))


def _finished(
    transaction: DerivedTransaction[Any],
    session: Any,
    made: Accumulation,
    partials: _Partials,
    touched: pa.Table,
) -> pa.Table:
    """Add partial accumulators to those that are kept, and evaluate the results before and after."""
    from trueline.spark.increments import columns_of, local_frame, local_table, with_whole_numbers

    columns = [*made.kept, SIGN]
    old = touched.append_column(SIGN, pa.array(np.ones(touched.num_rows, np.int32)))
    new = partials.rows.select(columns)
    old = old.cast(new.schema)
    versions = [np.zeros(old.num_rows, np.int32), np.ones(old.num_rows + new.num_rows, np.int32)]
    parts = pa.concat_tables([old, old, new]).append_column(VERSION, pa.array(np.concatenate(versions)))
    schema = with_whole_numbers(columns_of(partials.schema, columns), VERSION)
    local_frame(session, parts, schema).createOrReplaceTempView(PARTS)
    frame = run_sql(session, made.finish(_types(made, partials.schema)))
    return transaction.carried.add(local_table(frame, label="finishing groups"))


def _change(made: Accumulation, found: pa.Table, op: str) -> pa.Table:
    """Return the rows of the result that go (those before) and come (those after)."""
    there = found.filter(pc.is_valid(found[RESULT])).combine_chunks()
    result = there[RESULT].combine_chunks() if there.num_rows else found.schema.field(RESULT).type
    if isinstance(result, pa.DataType):
        arrays = [pa.array([], result.field(at).type) for at in range(result.num_fields)]
    else:
        result = result.chunk(0) if isinstance(result, pa.ChunkedArray) else result
        arrays = result.flatten()
    ops = pa.array(1 - np.asarray(there[VERSION].combine_chunks(), np.int32), pa.int32())
    return pa.Table.from_arrays([*arrays, ops], names=[*made.columns, op])


def _updated(
    transaction: DerivedTransaction[Any], made: Accumulation, state: State, found: pa.Table
) -> State:
    """Return the state with the accumulators after the change."""
    after = found.filter(pc.equal(found[VERSION], 1)).select(list(made.kept))
    counts = np.asarray(after[ROWS].combine_chunks()) if after.num_rows else np.zeros(0, np.int64)
    if (counts < 0).any():
        raise Impossible("state_disagrees")
    if state.generations:
        after = after.cast(pa.schema([state.schema.field(name) for name in after.column_names]))
    gone = np.zeros(len(counts), bool) if made.is_global else counts == 0
    after = after.append_column(_OP, pa.array(gone.astype(np.int32)))
    with transaction.dataset.chain.store.scratch() as scratch:
        pieces = [IncomingPiece.of(after)]
        return merge_into(state, made.keys, after.schema, pieces, Terms(scratch, in_this_process()))


# --- from the beginning ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """Accumulators in a file of scratch."""

    rows: int
    size: int
    place: Inside
    schema: pa.Schema

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Read the rows [start, stop), a row group at a time."""
        with self.place.open() as opened, pq.ParquetFile(opened) as file:
            first = 0
            for number in range(file.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                begin, end = max(start - first, 0), min(stop - first, count)
                if begin < end:
                    yield file.read_row_group(number).slice(begin, end - begin).cast(self.schema)
                first += count


def spooled(frame: Any, scratch: Scratch, label: str) -> list[SpooledRows]:
    """Write a frame to scratch; where that is not a folder, its rows are not many or it is not possible."""
    from trueline.spark.frames import spool

    if scratch.folder is None:
        raise Impossible("no_folder")
    found = spool(frame, scratch.folder, label=label)
    return [SpooledRows(piece.rows, piece.size, piece.place, found.schema) for piece in found.pieces]


def _schema(frame: Any) -> pa.Schema:
    from trueline.spark.types import arrow_schema_of

    return arrow_schema_of(frame.schema)


def built(
    transaction: DerivedTransaction[Any], session: Any, scratch: Scratch
) -> tuple[str, tuple[StateFile, ...]]:
    """Make the accumulators of all rows of the inputs, tables of the session; return their files."""
    made = accumulation_of(transaction)
    frame = run_sql(session, made.partial)
    schema = _schema(frame)
    check_accumulators(made, schema)
    pieces: list[Any] = list(spooled(frame, scratch, "accumulating groups"))
    name = state_name(transaction)
    state = State.open(transaction.dataset.chain.store, None, name, encoding=KeyEncoding.GROUP)
    if not pieces:
        return name, ()
    tasks = transaction.workspace._spark.tasks_for(frame)
    after = merge_into(state, made.keys, pieces[0].schema, pieces, Terms(scratch, tasks))
    return name, after.files
