"""Proof by replay: every commit of a derived dataset again, from its recorded inputs and definition.

All work is done beside the workspace, which stays as it is. Rows are read from events: a state is a cache,
which whoever changed rows may have changed too. So a copy without state gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal

from trueline import console
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform, SetTransform
from trueline.chain.head_state import Position, Tail
from trueline.chain.store.overlay import Overlay, overlay
from trueline.chain.verify import Problem, ProblemKind, Progress, VerificationReport
from trueline.dataset.append.append import Order
from trueline.dataset.append.merge import Terms
from trueline.dataset.dataset_at import Standing
from trueline.dataset.derivation import Derivation, derivation_at
from trueline.dataset.read.changes import Changes
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.events import Events
from trueline.dataset.read.views import changed_columns
from trueline.dataset.remove.record import removals_of
from trueline.dataset.verify.files import DataProblem
from trueline.dataset.verify.replay import (
    DerivedCommit,
    FromEvents,
    RowDifference,
    derived_commits,
    differing_rows,
    made_again,
    rows_before,
)
from trueline.errors import CorruptionError, InputError, ObjectMissing, UnsupportedVersion
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.merge import Snapshot
from trueline.view.view import View
from trueline.workspace.derive.checks import columns_of
from trueline.workspace.derive.evaluate import engine_versions, query_session, taken
from trueline.workspace.derive.function import permitted
from trueline.workspace.derive.input_tables import TableKind, tables_of

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

Replay = bool | Literal["head"]
HEAD: Final = "head"
# An interval begins by reading all events before it, so that short ones are not worth it.
_COMMITS_OF_AN_INTERVAL: Final = 16
_OTHER: Final = "replay it with the versions that it was computed with"
_WRONG: Final = "compare with a copy of the dataset; rebuild it from its inputs if they are right"


@dataclass(frozen=True, slots=True)
class ReplayEstimate:
    """How much a replay evaluates: commits, and the records of the inputs that all of them read together.

    Each commit reads its inputs from their beginning, so that the records grow with the square of history;
    `head` are those that `replay="head"` would read.

    >>> str(ReplayEstimate(120, 4_300_000, 70_000))
    'replay evaluates 120 commits over 4,300,000 input records (the newest alone: 70,000)'
    """

    commits: int = 0
    records: int = 0
    head: int = 0

    def __str__(self) -> str:
        many = "commit" if self.commits == 1 else "commits"
        said = f"replay evaluates {self.commits:,} {many} over {self.records:,} input records"
        return said if self.records == self.head else f"{said} (the newest alone: {self.head:,})"

    def __add__(self, other: ReplayEstimate) -> ReplayEstimate:
        return ReplayEstimate(
            self.commits + other.commits, self.records + other.records, self.head + other.head
        )


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """What one worker replays: some commits of one dataset that follow each other, or its head."""

    dataset: Dataset
    found: tuple[DerivedCommit, ...]
    head_only: bool = False

    @property
    def estimate(self) -> ReplayEstimate:
        """How much there is to evaluate."""
        sizes = [
            sum(at.offset + 1 for at in each.positions.values() if at.offset is not None)
            for each in self.found
        ]
        newest = sizes[-1:] if sizes else []
        taken = newest if self.head_only else sizes
        return ReplayEstimate(len(taken), sum(taken), sum(newest))


def replay_datasets(
    workspace: Workspace,
    datasets: Sequence[Dataset],
    mode: Replay,
    *,
    after: Multihash | None = None,
    upto: Multihash | None = None,
    progress: Progress | None = None,
    workers: int = 1,
) -> VerificationReport:
    """Replay the derived ones among some datasets; `after` and `upto` are for one of them.

    `workers` intervals are replayed side by side. Whoever interrupts it sees how far each dataset came.
    """
    report = VerificationReport()
    parts: list[ReplayPart] = []
    for dataset in datasets:
        why = _not_replayed(workspace, dataset)
        if why is not None:
            report += VerificationReport(not_checked=(f"replay of {dataset.name}: {why}",) if why else ())
            continue
        parts += _parts(dataset, mode, after, upto, workers)
    if not parts:
        return report
    estimate = sum((part.estimate for part in parts), ReplayEstimate())
    console.current().say(str(estimate))
    return report + _replay_parts(workspace, parts, progress, workers)


def _parts(
    dataset: Dataset, mode: Replay, after: Multihash | None, upto: Multihash | None, workers: int
) -> Iterator[ReplayPart]:
    found = list(derived_commits(dataset.chain, after, dataset.head if upto is None else upto))
    if mode == HEAD:
        if found:
            yield ReplayPart(dataset, tuple(found[-1:]), head_only=True)
        return
    most = max(_COMMITS_OF_AN_INTERVAL, -(-len(found) // workers))
    for start in range(0, len(found), most):
        yield ReplayPart(dataset, tuple(found[start : start + most]))


def _replay_parts(
    workspace: Workspace, parts: Sequence[ReplayPart], progress: Progress | None, workers: int
) -> VerificationReport:
    tally = _Tally(progress)
    pool = ThreadPoolExecutor(min(workers, len(parts)))
    try:
        for done in [pool.submit(_replay_part, workspace, part, tally) for part in parts]:
            done.result()
    except KeyboardInterrupt:
        for name, block in tally.reached(parts).items():
            console.current().say(
                f"{name} was replayed up to {block.short}; `trueline verify {name} --replay --after"
                f" {block.short}` goes on from there"
            )
        raise
    finally:
        # What is under way ends with its commit.
        tally.stopped = True
        pool.shutdown(cancel_futures=True)
    return tally.report(parts)


class _Tally:
    """What was found, and how far each dataset came."""

    def __init__(self, progress: Progress | None) -> None:
        self._lock = Lock()
        self._progress = progress
        self._problems: dict[tuple[str, int], list[Problem]] = {}
        self.replayed = 0
        self.stopped = False

    def add(self, dataset: Dataset, transaction: DerivedCommit, problems: Sequence[Problem]) -> None:
        with self._lock:
            self.replayed += 1
            number = transaction.end.sequence_number
            named = [replace(each, message=f"{dataset.name}: {each.message}") for each in problems]
            self._problems.setdefault((dataset.name, number), []).extend(named)
            if self._progress is not None:
                self._progress(self.replayed)

    def reached(self, parts: Sequence[ReplayPart]) -> dict[str, Multihash]:
        """Return the commit of each dataset up to which all were replayed."""
        found: dict[str, Multihash] = {}
        ended: set[str] = set()
        for part in parts:
            name = part.dataset.name
            for each in part.found:
                if (name, each.end.sequence_number) not in self._problems:
                    ended.add(name)
                if name not in ended:
                    found[name] = each.end.hash
        return found

    def report(self, parts: Sequence[ReplayPart]) -> VerificationReport:
        order = {part.dataset.name: number for number, part in enumerate(parts)}
        keys = sorted(self._problems, key=lambda key: (order[key[0]], key[1]))
        return VerificationReport(
            problems=tuple(problem for key in keys for problem in self._problems[key]),
            replayed=self.replayed,
        )


def _not_replayed(workspace: Workspace, dataset: Dataset) -> str | None:
    """Say why a dataset cannot be replayed; nothing ("") of what is not derived, None if it can be."""
    tail = dataset.chain.tail()
    if tail is None or tail.transform is None:
        return ""
    if not tail.transform.transform.is_ours:
        return f"it was derived by {tail.transform.transform.engine}"
    derivation = derivation_at(tail)
    if derivation is not None and derivation.from_here:
        return "its definition applies from one of its commits on, and what was there before stays"
    names = workspace._names_by_id()
    missing = [each for each in tail.transform.inputs if each.dataset_ref not in names]
    if missing:
        shown = ", ".join(each.alias or each.dataset_ref for each in missing)
        return f"its inputs are not in this workspace: {shown}"
    for name in (dataset.name, *(names[each.dataset_ref] for each in tail.transform.inputs)):
        if removals_of(workspace[name].chain):
            return f"records were removed from {name}"
    return None


# --- one dataset ----------------------------------------------------------------------------------


def _replay_part(workspace: Workspace, part: ReplayPart, tally: _Tally) -> None:
    with _Replaying.of(workspace, part.dataset) as replaying:
        for transaction in part.found:
            if tally.stopped:
                return
            tally.add(part.dataset, transaction, replaying.problems(transaction, head=part.head_only))


@dataclass(frozen=True, slots=True)
class _Input:
    """An input beside the workspace: its events, and the state that is made from them."""

    dataset: Dataset
    chain: Chain
    rows: FromEvents

    def view(self, kind: TableKind, position: Position) -> View:
        """Return the current rows at a position, or the events up to it."""
        tail = self.dataset.chain.tail_at(position.block)
        standing = Standing(self.dataset.name, self.dataset.chain, tail, position)
        columns = standing.data_columns
        # From the slices that blocks name, not from larger files that none does.
        if kind is TableKind.EVENTS:
            return View(Changes(Events(standing, changed_columns(standing), apart=True)))
        if kind is TableKind.OFFSETS and not standing.is_keyed:
            return View(Events(standing, (standing.vocab.offset, *columns), apart=True))
        if not standing.is_keyed:
            return View(Events(standing, columns, apart=True))
        kept = self.rows.standing(self.dataset.name, position.block)
        columns = kept.data_columns if kind is TableKind.ROWS else (kept.vocab.offset, *kept.data_columns)
        return View(CurrentRows(kept, columns))


@dataclass(frozen=True)
class _Replaying:
    """A derived dataset and its inputs, each with a store beside it."""

    workspace: Workspace
    dataset: Dataset
    chain: Chain
    own: FromEvents
    inputs: Mapping[DatasetId, _Input]

    @classmethod
    @contextmanager
    def of(cls, workspace: Workspace, dataset: Dataset) -> Iterator[_Replaying]:
        """Look at a dataset; what is made is gone at the end."""
        names = workspace._names_by_id()
        found: dict[DatasetId, _Input] = {}
        with ExitStack() as stack:
            for transform in _transforms(dataset.chain):
                for each in transform.inputs:
                    name = names.get(each.dataset_ref)
                    key = DatasetId.parse(each.dataset_ref)
                    if name is not None and key not in found:
                        source = workspace[name]
                        chain = _beside(stack, source.chain)
                        found[key] = _Input(source, chain, FromEvents(chain))
            chain = _beside(stack, dataset.chain)
            yield cls(workspace, dataset, chain, FromEvents(chain), found)

    def problems(self, transaction: DerivedCommit, *, head: bool = False) -> list[Problem]:
        """Replay one commit; with `head`, compare the current rows after it with the whole result."""
        try:
            left = derived_checkpoint(self.chain.store, transaction.event)
            tail = self._tail(transaction)
            derivation = derivation_at(tail)
            assert derivation is not None
            origin = [] if left is None else self._origin_problems(transaction, left)
            return origin + self._row_problems(transaction, derivation, left, head=head)
        except UnsupportedVersion as error:
            return [_problem(transaction, ProblemKind.OTHER_ENGINE, error.problem, _OTHER)]
        except InputError as error:
            if error.code != "OtherFunction":
                raise
            return [_problem(transaction, ProblemKind.OTHER_ENGINE, error.problem, error.remedy)]
        except ObjectMissing as error:
            return [_problem(transaction, ProblemKind.MISSING, error.problem, error.remedy)]
        except CorruptionError as error:
            return [_problem(transaction, ProblemKind.CORRUPT, error.problem, error.remedy)]

    def _tail(self, transaction: DerivedCommit) -> Tail:
        """Return the definitions in force where the commit records rows."""
        return self.chain.tail_at(transaction.before)

    # --- rows -------------------------------------------------------------------------------------

    def _row_problems(
        self,
        transaction: DerivedCommit,
        derivation: Derivation,
        left: DerivedCheckpoint | None,
        *,
        head: bool,
    ) -> list[Problem]:
        name = self.dataset.name
        views: dict[str, View] = {}
        for each in derivation.inputs:
            key = DatasetId.parse(each.dataset_ref)
            source, position = self.inputs.get(key), transaction.positions.get(key)
            if source is None:
                what = f"its input {each.alias} is not in this workspace"
                return [_problem(transaction, ProblemKind.MISSING, what, "clone it here")]
            at = position if position is not None else _beginning(source.dataset.chain)
            if source.dataset.chain.entry(at.block) is None:
                what = f"it took {each.alias} at block {at.block.short}, which is not in its chain any more"
                remedy = f"reset {self.dataset.name} and rebuild it, or restore {each.alias} from a copy"
                return [_problem(transaction, ProblemKind.MISSING, what, remedy)]
            for table in tables_of(derivation):
                if table.alias == (each.alias or ""):
                    views[table.name] = source.view(table.kind, at)
        function = permitted(self.workspace, self.dataset, derivation)
        with (
            query_session(self.workspace, views, function) as session,
            self.chain.store.scratch() as scratch,
        ):
            here = engine_versions(self.workspace)
            try:
                block = transaction.end.hash if head else rows_before(self.chain, transaction.before)
                before = self.own.standing(name, block)
                defined = self.chain.tail_at(transaction.before)
                result, tasks = taken(self.workspace, session, derivation, defined, scratch)
                positions = {**(left.origin.roots if left is not None else {}), **transaction.positions}
                columns = columns_of(self.workspace, positions)
                order = Order(name, Snapshot(derivation.key), result, column_of=columns)
                time, terms = transaction.end.system_time, Terms(scratch, tasks)
                again = made_again(before, defined, order, time, terms)
            except InputError as error:
                what = f"its definition cannot be evaluated again: {error.problem}"
                return [_wrong(transaction, what, left, here)]
        self.chain.store.sync()
        slices = tuple(written.slice for written in again.written)
        tail = self.chain.tail_at(transaction.end.hash)
        standing = Standing(name, self.chain, tail, tail.position)
        rows = differing_rows(standing, () if head else transaction.slices, slices)
        if not rows:
            return []
        what = (
            "the current rows are not those of the definition over the inputs"
            if head
            else "the commit does not record what the definition gives over the inputs"
        )
        return [_wrong(transaction, what, left, here, rows)]

    # --- origin -------------------------------------------------------------------------------------

    def _origin_problems(self, transaction: DerivedCommit, left: DerivedCheckpoint) -> list[Problem]:
        """Check that a checkpoint names what its block took, and the definitions in force."""
        defined = self.chain.newest(SetTransform, upto=transaction.end.hash)
        assert defined is not None
        found: list[str] = []
        own = {left.definition, left.origin.definitions.get(self.dataset.id)}
        if own != {defined.hash}:
            found.append(f"its definition is {defined.hash.short}, the checkpoint names another or none")
        for key, position in transaction.positions.items():
            source = self.inputs.get(key)
            if key in left.origin.roots:
                if left.origin.roots[key] != position:
                    found.append(f"it took {key} at {position.block.short}, the checkpoint says otherwise")
            elif source is not None:
                found += _above(source, position, left)
        if not found:
            return []
        what = f"its checkpoint does not say what it was made from: {'; '.join(found)}"
        return [_problem(transaction, ProblemKind.NOT_REPRODUCIBLE, what, _WRONG)]


def _above(source: _Input, position: Position, left: DerivedCheckpoint) -> Iterator[str]:
    """Say what of the origin of a derived input is not in that of the dataset above it."""
    name = source.dataset.name
    tail = source.dataset.chain.tail_at(position.block)
    if not isinstance(tail.data, ExecuteTransform):
        yield f"{name} is not among its roots"
        return
    below = derived_checkpoint(source.dataset.chain.store, tail.data)
    if below is None:
        yield f"{name} is not among its roots"
        return
    for root, at in below.origin.roots.items():
        if left.origin.roots.get(root) != at:
            yield f"{name} rests on {root} at {at.block.short}, the checkpoint says otherwise"
    for dataset, block in below.origin.definitions.items():
        if left.origin.definitions.get(dataset) != block:
            yield f"{name} was made with definition {block.short}, the checkpoint does not name it"


def _transforms(chain: Chain) -> Iterator[SetTransform]:
    """Yield all definitions a chain has had, the newest first."""
    number = 0
    while (block := chain.newest(SetTransform, nth=number)) is not None:
        assert isinstance(block.event, SetTransform)
        yield block.event
        number += 1


def _beside(stack: ExitStack, chain: Chain) -> Chain:
    """Return a chain whose writes go beside the dataset's; its index is made anew, in memory."""
    store: Overlay = stack.enter_context(overlay(chain.store))
    made = Chain(store, chain.inputs)
    made.limits = chain.limits
    return made


def _beginning(chain: Chain) -> Position:
    first = chain.entry_number(0)
    assert first is not None
    return Position(first.hash, None)


# --- what was found --------------------------------------------------------------------------------


def _problem(transaction: DerivedCommit, kind: ProblemKind, what: str, remedy: str) -> DataProblem:
    return DataProblem(kind, what, remedy, transaction.end.hash, transaction.end.sequence_number)


def _wrong(
    transaction: DerivedCommit,
    what: str,
    left: DerivedCheckpoint | None,
    here: Mapping[str, str],
    rows: Sequence[RowDifference] = (),
) -> DataProblem:
    """Say that a result differs; where other versions computed it, that need not be anybody's doing."""
    shown = "".join(f"\n    {row}" for row in rows)
    others = _other_versions(left, here)
    kind, remedy = ProblemKind.NOT_REPRODUCIBLE, _WRONG
    if others:
        kind, remedy = ProblemKind.OTHER_ENGINE, _OTHER
        what = f"{what}, which was computed with {others}"
    made = _problem(transaction, kind, f"{what}{shown}", remedy)
    if not rows:
        return made
    return replace(made, expected=str(rows[0].replayed), actual=str(rows[0].recorded))


def _other_versions(left: DerivedCheckpoint | None, here: Mapping[str, str]) -> str:
    """Name the versions that were recorded and are others here; none if all are the same."""
    if left is None:
        return ""
    other = {name: text for name, text in left.versions.items() if here.get(name, text) != text}
    return ", ".join(f"{name} {text} (here {here[name]})" for name, text in sorted(other.items()))
