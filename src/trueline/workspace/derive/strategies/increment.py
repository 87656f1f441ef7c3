"""What an increment begins with: the net change of the inputs, and where rows are handled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.checkpoint import DerivedCheckpoint
from trueline.chain.head_state import Tail
from trueline.chain.store.store import head_moved
from trueline.dataset.advance import Advance, commit_change
from trueline.dataset.append.incoming import Incoming
from trueline.dataset.append.merge import Terms
from trueline.dataset.commit import Commit
from trueline.dataset.derivation import Derivation
from trueline.dataset.remove.record import removals_of
from trueline.identity.multihash import Multihash
from trueline.view.engine import engine
from trueline.workspace.derive.input_tables import InputTable, TableKind, only_grow, tables_of
from trueline.workspace.derive.statements import statements
from trueline.workspace.derive.strategies.accumulators import PARTS

if TYPE_CHECKING:
    from trueline.view.view import View
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# Deltas and touched state up to this are handled in this process, and counted; more in tasks (derive:V26).
DRIVER_BYTES: Final = 64 << 20
# More events than these are not read here: it is sooner known than how many bytes they have.
DRIVER_EVENTS: Final = 1 << 18
# As many where they are not sent to Spark: a job takes as long as these.
DRIVER_EVENTS_HERE: Final = 1 << 20
_GONE: Final = ("delete", "update_preimage")


class Impossible(Exception):
    """Why an increment is not possible where the strategy allows it: a stable code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class DriverBytes:
    """How many bytes of rows and state went through this process."""

    size: int = 0

    @property
    def room(self) -> int:
        """How many more may go through it."""
        return max(0, DRIVER_BYTES - self.size)

    def add(self, table: pa.Table) -> pa.Table:
        """Count a table."""
        self.note(table.nbytes)
        return table

    def note(self, size: int) -> None:
        """Count bytes."""
        self.size += size


Recorded = TypeVar("Recorded")


@dataclass(frozen=True, slots=True)
class DerivedTransaction(Generic[Recorded]):
    """A derived dataset that is to take its inputs at some positions.

    `record` is what becomes of the rows that an increment loses and gains: a commit, or in a replay what one
    would hold.
    """

    workspace: Workspace
    dataset: Dataset
    derivation: Derivation
    inputs: Mapping[str, Dataset]
    tail: Tail
    advance: Advance
    record: Callable[[DerivedTransaction[Recorded], Incoming, Advance, Terms], Recorded]
    carried: DriverBytes = field(default_factory=DriverBytes)

    @property
    def append_only(self) -> bool:
        """Whether all inputs only grow."""
        return only_grow(self.tables, self.advance.positions)

    @property
    def tables(self) -> list[tuple[InputTable, Dataset]]:
        """The tables of the query, each with the dataset that it shows."""
        return [(table, self.inputs[table.alias]) for table in tables_of(self.derivation)]

    @property
    def statements(self) -> tuple[str, ...]:
        """The queries that are run: see `trueline.workspace.derive.statements`."""
        return statements(self.derivation, [table.name for table in tables_of(self.derivation)])

    def check_statements(self) -> None:
        """Refuse what no definition of ours would run, before anything else is done."""
        _ = self.statements

    def check_head(self) -> None:
        """Raise `RefCASFailed` if others have moved the head since this was planned."""
        found = self.dataset.chain.head
        if found != self.tail.head:
            raise head_moved("head", self.tail.head, found, self.dataset.chain.store.location)

    def leaving(self, **left: Any) -> Advance:
        """Return the advance with something more to leave for the next."""
        return replace(self.advance, left=replace(self.advance.left, **left))


def committed(
    transaction: DerivedTransaction[Commit], change: Incoming, advance: Advance, terms: Terms
) -> Commit:
    """Record a change in the chain of the dataset."""
    dataset = transaction.dataset
    return commit_change(
        dataset.name,
        dataset.chain,
        transaction.tail,
        transaction.derivation,
        change,
        advance=replace(advance, passing=transaction.carried.note),
        scratch=terms.scratch,
        tasks=terms.tasks,
    )


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that the inputs of a query lost and gained, by the names it uses; None for none.

    They are tables of this process, or where they are many, frames of Spark.
    """

    gone: Mapping[str, Any]
    came: Mapping[str, Any]
    empty: Mapping[str, pa.Schema]

    @property
    def is_local(self) -> bool:
        """Whether all rows are in this process."""
        return all(isinstance(rows, pa.Table) for side in (self.gone, self.came) for rows in side.values())

    @property
    def sides(self) -> list[tuple[int, Mapping[str, Any]]]:
        """What there is, each with its sign."""
        return [(sign, side) for sign, side in ((-1, self.gone), (1, self.came)) if side]


def delta_of(
    transaction: DerivedTransaction[Any], session: Callable[[], Any], columns: Collection[str] | None = None
) -> Delta:
    """Return the net change of all inputs from what the newest block has taken to the new positions.

    Where all is computed in this process it says which `columns` of the input, in small letters, are read.
    """
    most = DRIVER_EVENTS if columns is None else DRIVER_EVENTS_HERE
    gone: dict[str, Any] = {}
    came: dict[str, Any] = {}
    empty: dict[str, pa.Schema] = {}
    for table, dataset in transaction.tables:
        empty[table.name] = table.view(dataset, _block(transaction, dataset)).schema.to_arrow()
        after = transaction.advance.positions.get(dataset.id)
        taken = transaction.tail.taken.get(dataset.id)
        last = None if taken is None else taken.last_offset
        # A removal has no rows: the input is at another block then, and at the same offset.
        if taken is not None and taken.last_block is not None and removed_since(dataset, taken.last_block):
            raise Impossible("records_removed")
        if after is None or after.offset is None or last == after.offset:
            continue
        if table.kind is TableKind.OFFSETS and not table.only_grows(dataset, after):
            raise Impossible("not_append_only")
        if taken is None or taken.last_block is None or last is None:
            view, events = table.view(dataset, after.block), after.offset + 1
        else:
            view, events = table.change(dataset, taken.last_block, after.block), after.offset - last
        # Of events the operation is one of their columns.
        op = "" if table.kind.is_events else dataset.chain.tail_at(after.block).vocab.op
        read = view if columns is None else view.select(*_read_columns(view, columns, op))
        rows = _read(read, transaction.carried) if events <= most else None
        sides = _on_spark(view, op, session()) if rows is None else _here(rows, op)
        for side, found in zip((gone, came), sides, strict=True):
            if found is not None:
                side[table.name] = found
    return Delta(gone, came, empty)


def removed_since(dataset: Dataset, before: Multihash) -> bool:
    """Say whether an input lost records since a block: no event says which rows went."""
    removed = removals_of(dataset.chain).all
    return bool(removed) and removed[-1].sequence_number > dataset.chain.tail_at(before).sequence_number


def _block(transaction: DerivedTransaction[Any], dataset: Dataset) -> Any:
    at = transaction.advance.positions.get(dataset.id)
    return None if at is None else at.block


def _read_columns(view: View, columns: Collection[str], op: str) -> list[str]:
    values = [name for name in view.columns if name != op]
    # A table without columns has no rows either.
    read = [name for name in values if name.lower() in columns] or values[:1]
    return [name for name in view.columns if name == op or name in read]


def _read(view: View, carried: DriverBytes) -> pa.Table | None:
    """Read rows here, None if they are too many."""
    pieces, size = [view.schema.to_arrow().empty_table()], 0
    for batch in view.batches(list(view.columns)):
        size += batch.nbytes
        # What is computed from them needs room, too.
        if size > carried.room // 2:
            return None
        pieces.append(pa.Table.from_batches([batch]).cast(pieces[0].schema))
    return carried.add(pa.concat_tables(pieces))


def _here(rows: pa.Table, op: str) -> tuple[pa.Table | None, pa.Table | None]:
    """Return the rows that went and those that came."""
    if op not in rows.column_names:
        return None, rows if rows.num_rows else None
    is_gone = pc.is_in(rows[op], pa.array(_GONE, pa.string()))
    sides = (rows.filter(which).drop_columns([op]) for which in (is_gone, pc.invert(is_gone)))
    gone, came = (found if found.num_rows else None for found in sides)
    return gone, came


def _on_spark(view: View, op: str, session: Any) -> tuple[Any, Any]:
    frame = engine().frame(view.node, session)
    if op not in frame.columns:
        return None, frame
    gone = frame[op].isin(*_GONE)
    return frame.where(gone).drop(op), frame.where(~gone).drop(op)


@contextmanager
def increment_session(transaction: DerivedTransaction[Any]) -> Iterator[Callable[[], Any]]:
    """Give what opens a session for canonical queries over deltas, when it is first asked for one."""
    with ExitStack() as stack:
        opened: list[Any] = []

        def session() -> Any:
            if not opened:
                opened.append(stack.enter_context(transaction.workspace._spark.first.lent()))
            return opened[0]

        yield session
        for each in opened:
            _forget_tables(each, [*(table.name for table in tables_of(transaction.derivation)), PARTS])


def _forget_tables(session: Any, names: Sequence[str]) -> None:
    """Leave a session without tables: the next who is lent it must not find them, nor their rows last."""
    from trueline.spark.errors import translated

    with translated():
        for name in names:
            session.catalog.dropTempView(name)


def run_sql(session: Any, text: str, tables: Collection[str]) -> Any:
    """Return the frame of a query over some tables; what Spark says of it is an error of ours."""
    from trueline.spark.canonical import result_of

    return result_of(session, tables, {}, text)


def name_tables(session: Any, rows: Mapping[str, Any], empty: Mapping[str, pa.Schema]) -> None:
    """Let the names of the inputs mean some rows, and nothing where there are none."""
    from trueline.spark.increments import local_frame

    for alias, schema in empty.items():
        found = rows.get(alias)
        if found is None:
            found = schema.empty_table()
        frame = local_frame(session, found) if isinstance(found, pa.Table) else found
        frame.createOrReplaceTempView(f"`{alias.replace('`', '``')}`")


def is_same_definition(left: DerivedCheckpoint | None, now: DerivedCheckpoint) -> bool:
    """Say whether what was left was made by the same definition and the same versions."""
    return left is not None and (left.definition, left.engine, left.versions) == (
        now.definition,
        now.engine,
        now.versions,
    )
