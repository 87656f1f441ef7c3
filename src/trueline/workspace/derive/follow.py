"""Derived datasets follow their inputs: one transaction takes all of them at one cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin
from trueline.chain.events import SetTransform
from trueline.chain.head_state import Position, Tail, linked
from trueline.chain.instant import Instant
from trueline.chain.sources import ENGINE
from trueline.dataset.advance import Advance
from trueline.dataset.append.append import Order, prepare
from trueline.dataset.commit import Commit
from trueline.dataset.derivation import CANONICAL, Derivation, derivation_at
from trueline.errors import ChainError, InputError, InputReset, RefCASFailed, RetryError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.merge import Snapshot
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.dependencies import DatasetNode, Dependencies
from trueline.workspace.derive.checks import RelatedColumns
from trueline.workspace.derive.define import defined_again
from trueline.workspace.derive.evaluate import engine_versions
from trueline.workspace.derive.redefine import events_of_version, refuse_replaced
from trueline.workspace.derive.rest import Origins, left_at
from trueline.workspace.derive.strategies import Advanced, advance_by, computed
from trueline.workspace.derive.strategies.increment import DerivedTransaction, committed

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# Where checks read other datasets, in the checkpoint: blocks by dataset id.
JUDGED_AT: Final = "judged_at"
# Each attempt that fails means that somebody else's succeeded.
_ATTEMPTS: Final = 8


def input_missing(alias: str, reference: str) -> InputError:
    """The error of an input that is not in the workspace (any more)."""
    return InputError(
        f"the input {alias} ({reference}) is not in the workspace",
        remedy="clone it here",
        code="InputMissing",
    )


def follow_to(
    workspace: Workspace,
    dataset: Dataset,
    cut: Cut,
    *,
    known: Dependencies | None = None,
    clock: Callable[[], Instant] | None = None,
) -> Advanced | None:
    """Bring one dataset to a cut at which its inputs are; None if it is there already, or was passed it.

    `known` is how the datasets of the workspace rest on each other, if somebody has looked. Others that would
    do the same wait, so that one of them computes it; who comes too late finds it done.
    """
    found = known if known is not None else Dependencies.of(workspace)
    with dataset._writing, dataset.chain.store.turn():
        for _ in range(_ATTEMPTS):
            try:
                found = _as_defined(workspace, found, dataset)
                return _followed(workspace, dataset, Origins(found, cut), clock or workspace.clock)
            except RefCASFailed:
                continue  # somebody who takes no turns; perhaps it is there now
    raise RetryError(
        f"the head of {dataset.name!r} was moved by others {_ATTEMPTS} times in a row",
        remedy="nothing was changed; pull it again",
        code="HeadBusy",
        dataset=dataset.name,
    )


def _as_defined(workspace: Workspace, known: Dependencies, dataset: Dataset) -> Dependencies:
    """Look at the datasets again if one was defined anew since, or is not known.

    A definition whose canonical queries are of an earlier version is recorded again, and computed anew.
    """
    derivation = derivation_at(dataset._tail)
    if derivation is not None and derivation.version != CANONICAL:
        _record_version(workspace, dataset)
    defined = dataset.chain.newest(SetTransform)
    node = known.nodes.get(dataset.name)
    if node is not None and defined is not None and node.definition == defined.hash:
        return known
    return Dependencies.of(workspace)


def _record_version(workspace: Workspace, dataset: Dataset) -> None:
    events = events_of_version(dataset, *defined_again(workspace, dataset))
    tail = dataset._tail
    now = (workspace.clock or Instant.now)()
    dataset.chain.append(*linked(tail, events, Instant(max(now, tail.system_time + 1))))


def _followed(
    workspace: Workspace, dataset: Dataset, origins: Origins, clock: Callable[[], Instant] | None
) -> Advanced | None:
    """Compute one transaction and commit it; None if there is nothing to do."""
    node = origins.known[dataset.name]
    tail = dataset.chain.tail()
    assert tail is not None
    derivation = derivation_at(tail)
    assert derivation is not None
    check_inputs(origins.known, node, tail)
    origin = origins.of(dataset.name)
    left = left_at(dataset.chain, tail)
    if left is not None:
        if left.at_rest and left.origin == origin:
            return None
        if not origins.order.is_within(left.origin.roots, origin.roots):
            return None  # it is further, or was there before
    inputs = {alias: origins.known[name].dataset for alias, name in node.inputs.items()}
    taken = positions_at(origins, node)
    judged_at = checked_at(origins, node)
    return Evaluation(workspace, dataset, tail, derivation, inputs, taken, judged_at).commit(origin, clock)


def positions_at(origins: Origins, node: DatasetNode) -> dict[DatasetId, Position]:
    """Return where a dataset reads its inputs at a cut: all of them at rest there."""
    found: dict[DatasetId, Position] = {}
    for name in origins.known.inputs(node.name):
        read = origins.known[name]
        assert read.id is not None
        found[read.id] = origins.position(node, read) or before_data(read.dataset)
    return found


def checked_at(origins: Origins, node: DatasetNode) -> dict[str, Multihash | None]:
    """Return where checks read other datasets at a cut, by their ids; None where these have nothing yet."""
    found: dict[str, Multihash | None] = {}
    for name in node.checks:
        other = origins.known[name]
        at = origins.position(node, other)
        found[str(other.id)] = None if at is None else at.block
    return found


def before_data(dataset: Dataset) -> Position:
    """Return where a root is that a cut does not have: at the commit before its first record."""
    chain = dataset.chain
    first = next(chain.slices(0, 0), None)
    tail = chain.tail()
    assert tail is not None
    number = tail.sequence_number if first is None else first.sequence_number - 1
    entry = chain.entry_number(number)
    while entry is not None and not entry.is_end:
        entry = chain.entry_number(entry.sequence_number - 1)
    assert entry is not None
    return Position(entry.hash, None)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a definition: over which inputs, where each of them is taken.

    `judged_at` are the blocks of the cut at which checks read other datasets, by their ids.
    """

    workspace: Workspace
    dataset: Dataset
    tail: Tail
    derivation: Derivation
    inputs: Mapping[str, Dataset]
    taken: Mapping[DatasetId, Position]
    judged_at: Mapping[str, Multihash | None]

    def commit(self, origin: DerivedOrigin, clock: Callable[[], Instant] | None) -> Advanced:
        """Evaluate, and record what that changes."""
        versions = engine_versions(self.workspace)
        more = {JUDGED_AT: {each: at and str(at) for each, at in self.judged_at.items()}}
        left = DerivedCheckpoint(origin, True, origin.definitions[self.dataset.id], ENGINE, versions)
        left = replace(left, more=more) if self.judged_at else left
        transaction = self._transaction(left, clock)
        try:
            return advance_by(transaction)
        except ChainError:
            transaction.check_head()
            raise

    def differs(self) -> bool:
        """Evaluate, and say whether that gives other rows than there are."""
        left = left_at(self.dataset.chain, self.tail)
        assert left is not None
        with computed(self._transaction(left)) as (_, result, scratch, tasks):
            # Checks are judged by the commit, if there is one.
            order = Order(
                self.dataset.name,
                Snapshot(self.derivation.key),
                result,
                allow_empty=True,
                is_replay=True,
            )
            return bool(prepare(self.dataset.chain, self.tail, order, scratch, tasks).written)

    def _transaction(
        self, left: DerivedCheckpoint, clock: Callable[[], Instant] | None = None
    ) -> DerivedTransaction[Commit]:
        taken = {str(each): at.block for each, at in self.taken.items()}
        columns = RelatedColumns(self.workspace, {**taken, **self.judged_at})
        advance = Advance(self.taken, left, self.watermark, clock, columns)
        return DerivedTransaction(
            self.workspace, self.dataset, self.derivation, self.inputs, self.tail, advance, committed
        )

    @property
    def watermark(self) -> Instant | None:
        """The watermark after it."""
        return watermark_after(self.tail.watermark, self.inputs.values(), self.taken)


def watermark_after(
    before: Instant | None, inputs: Iterable[Dataset], taken: Mapping[DatasetId, Position]
) -> Instant | None:
    """Return max(before, min over the inputs of their watermark at the block taken) (derive:V12).

    An input without an event time does not hold it back; one that has none yet does.
    """
    marks = []
    for dataset in inputs:
        at = dataset.chain.tail_at(taken[dataset.id].block)
        if at.vocab.event_time_column is None and at.watermark is None:
            continue
        if at.watermark is None:
            return before
        marks.append(at.watermark)
    found = min(marks) if marks else None
    return before if found is None or (before is not None and before > found) else found


def refresh(
    workspace: Workspace, dataset: Dataset, *, clock: Callable[[], Instant] | None = None
) -> Advanced | None:
    """Compute a dataset again where it is, and record what differs; None if nothing does (derive:V29).

    Records over inputs that did not move need a definition before them (chain:R9), so that it is recorded
    again. What rests on the dataset then follows, since origins name definitions.
    """
    with dataset._writing, dataset.chain.store.turn():
        known = Dependencies.of(workspace)
        evaluation, left = _again(workspace, known, dataset)
        if not evaluation.differs():
            return None
        tail, derivation = evaluation.tail, evaluation.derivation
        now = (clock or workspace.clock or Instant.now)()
        blocks = linked(tail, [derivation.transform], Instant(max(now, tail.system_time + 1)))
        dataset.chain.append(*blocks)
        evaluation, _ = _again(workspace, known, dataset)
        definitions = {**left.origin.definitions, dataset.id: blocks[-1].hash}
        return evaluation.commit(DerivedOrigin(left.origin.roots, definitions), clock)


def _again(
    workspace: Workspace, known: Dependencies, dataset: Dataset
) -> tuple[Evaluation, DerivedCheckpoint]:
    """Return the newest transaction of a dataset, to be done once more, and what it left."""
    tail, node = dataset.chain.tail(), known[dataset.name]
    assert tail is not None
    derivation, left = derivation_at(tail), left_at(dataset.chain, tail)
    assert derivation is not None
    assert left is not None
    check_inputs(known, node, tail)
    taken = {
        name: Position(each.last_block, each.last_offset)
        for name, each in tail.taken.items()
        if each.last_block is not None
    }
    inputs = {alias: known[name].dataset for alias, name in node.inputs.items()}
    return Evaluation(workspace, dataset, tail, derivation, inputs, taken, _judged_at(left)), left


def _judged_at(left: DerivedCheckpoint) -> dict[str, Multihash | None]:
    """Return where the checks of a transaction read other datasets, as it left it."""
    said = left.more.get(JUDGED_AT)
    if not isinstance(said, Mapping):
        return {}
    return {str(each): None if at is None else Multihash.parse(str(at)) for each, at in said.items()}


# --- what is checked before anything is written -----------------------------------------------------


def check_inputs(known: Dependencies, node: DatasetNode, tail: Tail) -> None:
    """Refuse to go on where an input, or a root behind it, is not the one that was read (derive:V16)."""
    refuse_replaced(known, node, tail)
    if node.missing:
        raise input_missing("", node.missing[0])
    left = left_at(node.dataset.chain, tail)
    read = {name: taken.last_block for name, taken in tail.taken.items() if taken.last_block is not None}
    if left is not None:
        read |= {root: at.block for root, at in left.origin.roots.items() if root not in read}
    # What an earlier definition has read may be reset as it likes.
    resting_on = known.upstream(node.name)
    for dataset, block in read.items():
        other = known.by_id(dataset)
        if (
            other is None
            or other.name not in resting_on
            or other.dataset.chain.sequence_of(block) is not None
        ):
            continue
        now = other.dataset.head
        raise InputReset(
            f"{node.name!r} was computed from {other.name!r} up to block {block}, which is not in its chain"
            f" any more: it was reset or replaced, and is at block {now} now",
            remedy=f"compute it again from what is there now: `trueline reset {node.name} --rebuild`",
            dataset=node.name,
            input=other.name,
            taken=block,
            now=now,
        )
