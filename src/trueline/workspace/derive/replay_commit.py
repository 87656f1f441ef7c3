"""One commit of a derived dataset again: by the increment where that will do, else as a whole.

All work is done beside the workspace, which stays as it is. Rows are read from events: a state is a cache,
which whoever changed rows may have changed too. So a copy without state gives the same answer. What an
increment goes on from was made by the increment before it, here, in the same replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from trueline.chain.chain import Chain
from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin, derived_checkpoint
from trueline.chain.events import ExecuteTransform, SetTransform
from trueline.chain.head_state import Position, Tail
from trueline.chain.sources import ENGINE
from trueline.chain.store.overlay import overlay
from trueline.chain.store.store import Folder
from trueline.chain.verify import Problem, ProblemKind
from trueline.dataset.advance import Advance
from trueline.dataset.append.append import Order, Prepared
from trueline.dataset.append.merge import Terms
from trueline.dataset.dataset_at import ChainOfEvents, Standing
from trueline.dataset.derivation import Derivation, derivation_at
from trueline.dataset.verify.files import DataProblem
from trueline.dataset.verify.replay import (
    DerivedCommit,
    FromEvents,
    RowDifference,
    differing_rows,
    made_again,
    rows_before,
)
from trueline.errors import (
    CorruptionError,
    InputError,
    ObjectMissing,
    QueryError,
    SchemaError,
    TruelineError,
    UnsupportedVersion,
)
from trueline.identity.dataset_id import DatasetId
from trueline.merge import NetChange, Snapshot
from trueline.workspace.derive.evaluate import engine_versions
from trueline.workspace.derive.follow import before_data, watermark_after
from trueline.workspace.derive.judged_again import StatementVerdict, judged_again
from trueline.workspace.derive.rest import left_at
from trueline.workspace.derive.strategies import computed, kept_after
from trueline.workspace.derive.strategies.classify import KEYED, STATELESS
from trueline.workspace.derive.strategies.increment import DerivedTransaction, Impossible
from trueline.workspace.derive.strategies.keyed import follow_keyed
from trueline.workspace.derive.strategies.stateless import follow_stateless

if TYPE_CHECKING:
    from trueline.dataset.append.incoming import Incoming
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

_OTHER: Final = "replay it with the versions that it was computed with"
_WRONG: Final = "compare with a copy of the dataset; rebuild it from its inputs if they are right"
# What an evaluation says of the recorded rows. Anything else says something of where it was to run.
_CONTRADICTS: Final = frozenset(
    {
        *("DuplicateKeys", "KeyViolated", "NullKey", "RowsDisagree", "NotReproducible", "BadFunction"),
        # Of the judge.
        *("NotCanonical", "Opaque", "BadQuery"),
    }
)
_NOT_RUN: Final = frozenset({"FunctionNotConfirmed", "FunctionMissing"})


class NotReplayed(Exception):
    """Why a commit cannot be evaluated here, which says nothing of its rows."""


def contradicts(error: InputError) -> bool:
    """Say whether an evaluation that fails like this shows that the recorded rows are not its own."""
    return isinstance(error, QueryError | SchemaError) or error.code in _CONTRADICTS


def follows_by_increment(derivation: Derivation) -> bool:
    """Say whether commits of a definition are replayed by the increment, all but the first."""
    return derivation.strategy in (STATELESS, KEYED)


def keeps_rows(chain: Chain, tail: Tail) -> bool:
    """Say whether the next commit at a tail leaves the rows of earlier definitions as they are."""
    derivation = derivation_at(tail)
    return derivation is not None and derivation.from_here and left_at(chain, tail) is not None


_Made = tuple[Prepared, DerivedCheckpoint]
_Given = DerivedTransaction[_Made]


@dataclass(frozen=True, slots=True)
class _Again:
    """A commit, the dataset in front of it with the definition in force, and what it took and left."""

    commit: DerivedCommit
    tail: Tail
    derivation: Derivation
    left: DerivedCheckpoint | None
    inputs: Mapping[str, Dataset]
    positions: Mapping[DatasetId, Position]


@dataclass
class Replaying:
    """A derived dataset and its inputs, each as a dataset of its own with a store beside that of the other.

    `left` is what the last increment leaves for the next, None where that has to begin anew. `by_increment`
    are the commits replayed so that no whole result has confirmed yet, `suspect` those that one contradicts;
    `verdicts` are those on the definitions that were met.
    """

    workspace: Workspace
    dataset: Dataset
    own: FromEvents
    inputs: Mapping[DatasetId, Dataset]
    left: DerivedCheckpoint | None = None
    by_increment: list[DerivedCommit] = field(default_factory=list)
    suspect: list[DerivedCommit] = field(default_factory=list)
    verdicts: dict[object, StatementVerdict] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def of(cls, workspace: Workspace, dataset: Dataset) -> Iterator[Replaying]:
        """Look at a dataset; what is made is gone at the end."""
        names = workspace._names_by_id()
        found: dict[DatasetId, Dataset] = {}
        with ExitStack() as stack:
            for transform in _transforms(dataset.chain):
                for each in transform.inputs:
                    name = names.get(each.dataset_ref)
                    key = DatasetId.parse(each.dataset_ref)
                    if name is not None and key not in found:
                        found[key], _ = _beside(stack, workspace[name])
            made, own = _beside(stack, dataset)
            yield cls(workspace, made, own, found)

    @property
    def chain(self) -> Chain:
        """The chain of the dataset, with what is made beside it."""
        return self.dataset.chain

    def problems(self, commit: DerivedCommit, *, goes_on: bool = False, whole: bool = False) -> list[Problem]:
        """Replay one commit; where the increment gives other records, and if asked to, as a `whole`.

        With `goes_on` what the next increment needs is kept.
        """
        return self._found(commit, lambda again: self._commit_problems(again, goes_on=goes_on, whole=whole))

    def head_problems(self, commit: DerivedCommit) -> list[Problem]:
        """Compare the current rows after a commit with the whole result."""
        return self._found(commit, self._current_problems)

    def settle(self) -> None:
        """Compare the rows after the commits that were replayed by the increment with the whole result.

        Increments could be wrong in the same way as when the dataset was pulled.
        """
        done, self.by_increment = self.by_increment, []
        if done and self._found(done[-1], self._current_problems, rows_only=True):
            self.suspect += done

    def _found(
        self, commit: DerivedCommit, rows: Callable[[_Again], list[Problem]], *, rows_only: bool = False
    ) -> list[Problem]:
        try:
            tail = self.chain.tail_at(commit.before)
            derivation = derivation_at(tail)
            assert derivation is not None
            left = derived_checkpoint(self.chain.store, commit.event)
            found = [] if left is None or rows_only else self._origin_problems(commit, left)
            taken = self._taken(commit, derivation)
            if isinstance(taken, Problem):
                return [*found, taken]
            again = _Again(commit, tail, derivation, left, *taken)
            if rows_only:
                return rows(again)
            found += self._watermark_problems(again)
            # Of queries that are not those of the definition the rows would prove nothing.
            forged = self._definition_problems(again)
            return [*found, *(forged or rows(again))]
        except UnsupportedVersion as error:
            return [_problem(commit, ProblemKind.OTHER_ENGINE, error.problem, _OTHER)]
        except InputError as error:
            if error.code in _NOT_RUN:
                raise NotReplayed(f"{error.problem}; {error.remedy}") from None
            if error.code != "OtherFunction":
                raise
            return [_problem(commit, ProblemKind.OTHER_ENGINE, error.problem, error.remedy)]
        except ObjectMissing as error:
            return [_problem(commit, ProblemKind.MISSING, error.problem, error.remedy)]
        except CorruptionError as error:
            return [_problem(commit, ProblemKind.CORRUPT, error.problem, error.remedy)]

    def _taken(
        self, commit: DerivedCommit, derivation: Derivation
    ) -> tuple[dict[str, Dataset], dict[DatasetId, Position]] | Problem:
        """Return the inputs by the names they have in queries, and where the commit took them."""
        inputs: dict[str, Dataset] = {}
        positions: dict[DatasetId, Position] = {}
        for each in derivation.inputs:
            key = DatasetId.parse(each.dataset_ref)
            source = self.inputs.get(key)
            if source is None:
                what = f"its input {each.alias} is not in this workspace"
                return _problem(commit, ProblemKind.MISSING, what, "clone it here")
            at = commit.positions.get(key) or before_data(source)
            if source.chain.entry(at.block) is None:
                what = f"it took {each.alias} at block {at.block.short}, which is not in its chain any more"
                remedy = f"reset {self.dataset.name} and rebuild it, or restore {each.alias} from a copy"
                return _problem(commit, ProblemKind.MISSING, what, remedy)
            inputs[each.alias or source.name] = source
            positions[key] = at
        return inputs, positions

    # --- rows -------------------------------------------------------------------------------------

    def _commit_problems(self, again: _Again, *, goes_on: bool, whole: bool) -> list[Problem]:
        if keeps_rows(self.chain, again.tail):
            self.settle()
            return self._from_here_problems(again)
        if not whole and self._agrees_by_increment(again):
            self.by_increment.append(again.commit)
            return []
        # A whole result may correct what was wrong before it, so that it confirms nothing.
        self.settle()
        return self._whole_problems(again, goes_on=goes_on)

    def _agrees_by_increment(self, again: _Again) -> bool:
        """Say whether the increment gives the records of a commit; where it cannot be done, no."""
        if self.left is None or again.tail.redefined or not follows_by_increment(again.derivation):
            return False
        before = self.own.standing(self.dataset.name, again.commit.before)
        given = self._transaction(again, before, before.tail, self.left)
        try:
            made, self.left = (
                follow_keyed(given, self.left)
                if again.derivation.strategy == KEYED
                else follow_stateless(given)
            )
        except (Impossible, TruelineError):
            # Such as rows that are to go and are not there. The whole result says what is wrong.
            self.left = None
            return False
        return not self._differing(again.commit, made)

    def _from_here_problems(self, again: _Again) -> list[Problem]:
        """Replay a commit before which rows of an earlier definition stay: by the increment, as it was."""
        self.left = None
        commit = again.commit
        before = self.own.standing(self.dataset.name, commit.before)
        try:
            made, _ = follow_stateless(self._transaction(again, before, before.tail, _nothing_left(commit)))
        except (Impossible, InputError) as error:
            if isinstance(error, InputError) and not contradicts(error):
                raise
            what = f"its definition cannot be evaluated again over what was new: {error}"
            return [self._wrong(again, what)]
        rows = self._differing(commit, made)
        what = "the commit does not record what the definition gives over what was new in the inputs"
        return [self._wrong(again, what, rows)] if rows else []

    def _whole_problems(self, again: _Again, *, goes_on: bool, head: bool = False) -> list[Problem]:
        """Evaluate the definition; with `head` the rows are compared with those after the commit."""
        commit, derivation = again.commit, again.derivation
        block = commit.end.hash if head else rows_before(self.chain, commit.before)
        before = self.own.standing(self.dataset.name, block)
        given = self._transaction(again, before, again.tail, _nothing_left(commit))
        try:
            with computed(given) as (session, result, scratch, tasks):
                order = Order(self.dataset.name, Snapshot(derivation.key), result)
                time, terms = commit.end.system_time, Terms(scratch, tasks)
                made = made_again(before, again.tail, order, time, terms)
                if goes_on:
                    self.left = kept_after(given, session, scratch)
        except InputError as error:
            if not contradicts(error):
                raise
            what = f"its definition cannot be evaluated again: {error.problem}"
            return [self._wrong(again, what)]
        rows = self._differing(commit, made, head=head)
        if not rows:
            return []
        what = (
            "the current rows are not those of the definition over the inputs"
            if head
            else "the commit does not record what the definition gives over the inputs"
        )
        return [self._wrong(again, what, rows)]

    def _current_problems(self, again: _Again) -> list[Problem]:
        return self._whole_problems(again, goes_on=False, head=True)

    def _wrong(self, again: _Again, what: str, rows: Sequence[RowDifference] = ()) -> Problem:
        """Say that a result differs; where other versions computed it, that need not be anybody's doing."""
        shown = "".join(f"\n    {row}" for row in rows)
        others = _other_versions(again.left, engine_versions(self.workspace))
        kind, remedy = ProblemKind.NOT_REPRODUCIBLE, _WRONG
        if others:
            kind, remedy = ProblemKind.OTHER_ENGINE, _OTHER
            what = f"{what}, which was computed with {others}"
        made = _problem(again.commit, kind, f"{what}{shown}", remedy)
        if not rows:
            return made
        return replace(made, expected=str(rows[0].replayed), actual=str(rows[0].recorded))

    def _transaction(self, again: _Again, before: Standing, tail: Tail, left: DerivedCheckpoint) -> _Given:
        """Return the transaction of a commit; what it would record is written beside the dataset."""
        time = again.commit.end.system_time
        advance = Advance(again.positions, left, clock=lambda: time)

        def record(given: _Given, change: Incoming, leaving: Advance, terms: Terms) -> _Made:
            order = Order(given.dataset.name, NetChange(given.derivation.key), change)
            return made_again(before, again.tail, order, time, terms), leaving.all_left()

        return DerivedTransaction(
            self.workspace, self.dataset, again.derivation, again.inputs, tail, advance, record
        )

    def _differing(self, commit: DerivedCommit, made: Prepared, *, head: bool = False) -> list[RowDifference]:
        """Return the first records that differ from those of a commit; with `head`, from none at all."""
        store = self.chain.store
        store.sync()
        slices = tuple(written.slice for written in made.written)
        tail = self.chain.tail_at(commit.end.hash)
        standing = Standing(self.dataset.name, self.chain, tail, tail.position)
        found = differing_rows(standing, () if head else commit.slices, slices)
        for each in slices:
            store.delete(Folder.DATA, each.physical_hash)
        return found

    # --- definition, watermark and origin -------------------------------------------------------------

    def _definition_problems(self, again: _Again) -> list[Problem]:
        """Check that the queries that are run are those of the definition."""
        derivation = again.derivation
        about = derivation.queries, derivation.canonical, derivation.function
        if about not in self.verdicts:
            try:
                verdict = judged_again(self.workspace, derivation, again.inputs, again.positions)
            except InputError as error:
                if not contradicts(error):
                    raise
                verdict = StatementVerdict(f"its definition cannot be evaluated again: {error.problem}")
            self.verdicts[about] = verdict
        wrong = self.verdicts[about].wrong
        return [self._wrong(again, wrong)] if wrong else []

    def _watermark_problems(self, again: _Again) -> list[Problem]:
        """Check that the watermark is the one that the inputs give."""
        recorded = again.commit.event.new_watermark
        given = watermark_after(again.tail.watermark, again.inputs.values(), again.positions)
        if recorded == given:
            return []
        what = f"its watermark is {recorded}, the watermarks of the inputs give {given}"
        return [_problem(again.commit, ProblemKind.NOT_REPRODUCIBLE, what, _WRONG)]

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


def _above(source: Dataset, position: Position, left: DerivedCheckpoint) -> Iterator[str]:
    """Say what of the origin of a derived input is not in that of the dataset above it."""
    name = source.name
    tail = source.chain.tail_at(position.block)
    if tail.data is None:
        return  # nothing was there yet, so that nothing rests on it
    if not isinstance(tail.data, ExecuteTransform):
        yield f"{name} is not among its roots"
        return
    below = derived_checkpoint(source.chain.store, tail.data)
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


def _beside(stack: ExitStack, dataset: Dataset) -> tuple[Dataset, FromEvents]:
    """Return a dataset whose writes go beside those of another; its index is made anew, in memory."""
    chain = ChainOfEvents(stack.enter_context(overlay(dataset.chain.store)), dataset.chain.inputs)
    chain.limits = dataset.chain.limits
    made = type(dataset)(dataset.workspace, dataset.name, chain, dataset._index, dataset._folder)
    return made, FromEvents(chain)


def _nothing_left(commit: DerivedCommit) -> DerivedCheckpoint:
    """Return what is left before the first increment: nothing that counts."""
    return DerivedCheckpoint(DerivedOrigin(), True, commit.before, ENGINE)


# --- what was found --------------------------------------------------------------------------------


def _problem(transaction: DerivedCommit, kind: ProblemKind, what: str, remedy: str) -> DataProblem:
    return DataProblem(kind, what, remedy, transaction.end.hash, transaction.end.sequence_number)


def _other_versions(left: DerivedCheckpoint | None, here: Mapping[str, str]) -> str:
    """Name the versions that were recorded and are others here; none if all are the same."""
    if left is None:
        return ""
    other = {name: text for name, text in left.versions.items() if here.get(name, text) != text}
    return ", ".join(f"{name} {text} (here {here[name]})" for name, text in sorted(other.items()))
