"""Where derived datasets are at rest, now and at earlier cuts: found by what their checkpoints say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.chain.branch import Branch
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin, derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.chain.head_state import Position, Tail
from trueline.chain.index_rows import IndexEntry
from trueline.errors import RetryError
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import RootHead
from trueline.workspace.dependencies import DatasetNode, Dependencies

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# Of an input that is not where a cut would have it.
NOT_AT_REST: Final = "InputNotAtRest"
# After a reset the order of cuts is not that of positions: so many of the newest are looked through then.
_MOST_LOOKED_AT: Final = 1000


def left_at(chain: Chain, tail: Tail) -> DerivedCheckpoint | None:
    """Return what the newest transaction at a tail left, None if there was none of ours."""
    return derived_checkpoint(chain.store, tail.data) if isinstance(tail.data, ExecuteTransform) else None


@dataclass(frozen=True)
class Origins:
    """What datasets would be made from at a cut, under the definitions in force."""

    known: Dependencies
    cut: Cut

    def of(self, name: str) -> DerivedOrigin:
        """Return the roots and definitions that a dataset rests on when it is at rest at the cut.

        An input that is read at a cut of its own counts as a root: it is where it is now.
        """
        node = self.known[name]
        assert node.id is not None
        assert node.definition is not None
        roots: dict[DatasetId, Position] = {}
        definitions = {node.id: node.definition}
        for each in self.known.inputs(name):
            other = self.known[each]
            if each in node.own_cuts or other.is_root:
                at = self.position(node, other)
                if at is not None and other.id is not None:
                    roots[other.id] = at
                continue
            above = self.of(each)
            roots |= above.roots
            definitions |= above.definitions
        return DerivedOrigin(roots, definitions)

    def position(self, reader: DatasetNode, read: DatasetNode) -> Position | None:
        """Return where an input is read; None for a root that has no record at the cut."""
        if read.name in reader.own_cuts:
            return RootHead.of(read.dataset.chain).position
        if read.is_root:
            return None if read.id is None else self.cut.positions.get(read.id)
        found = rest_at(read.dataset, self.of(read.name), self.order)
        if found is None:
            raise RetryError(
                f"{read.name!r} is not at rest where {reader.name!r} would read it ({self.cut})",
                remedy="pull it again",
                code=NOT_AT_REST,
                dataset=read.name,
            )
        return found

    @property
    def order(self) -> RootOrder:
        """The order of positions of roots."""
        return RootOrder({node.id: node.dataset.chain for node in self.known.nodes.values() if node.id})


@dataclass(frozen=True, slots=True)
class RootOrder:
    """Compares positions of roots by where they are on the present branches."""

    chains: Mapping[DatasetId, Chain]

    def number(self, root: DatasetId, at: Position | None) -> int | None:
        """Return which block of its chain a position is: −1 before the first, None if it is not on it."""
        if at is None:
            return -1
        chain = self.chains.get(root)
        return None if chain is None else chain.sequence_of(at.block)

    def is_within(self, one: Mapping[DatasetId, Position], other: Mapping[DatasetId, Position]) -> bool:
        """Say whether no root of `other` is further in `one`; a position that was cut off is further."""
        for root, at in other.items():
            if one.get(root) == at:
                continue
            number, limit = self.number(root, one.get(root)), self.number(root, at)
            if number is None or limit is None or number > limit:
                return False
        return True


def rest_at(dataset: Dataset, origin: DerivedOrigin, order: RootOrder) -> Position | None:
    """Return where a dataset was at rest with an origin, None if it never was; logarithmic in its history."""
    branch = Branch.of(dataset.chain)
    newest = next(branch.data_ends(), None)
    if newest is None:
        return None
    low, high, found = 0, newest.sequence_number, newest
    if (left := _left(dataset.chain, newest)) is not None and not _is_at(left, origin):
        # The last commit that is not further than the origin: `low` is not, what follows `high` is.
        if order.is_within(left.origin.roots, origin.roots):
            return None
        last: IndexEntry | None = None
        while low < high:
            middle = (low + high) // 2
            end = _end_before(branch, middle)
            at = None if end is None else _left(dataset.chain, end)
            if end is None or (at is not None and order.is_within(at.origin.roots, origin.roots)):
                last, low = end or last, middle + 1
            else:
                high = middle
        if last is None or (left := _left(dataset.chain, last)) is None or not _is_at(left, origin):
            return None
        found = last
    elif left is None:
        return None
    return Position(found.hash, found.last_offset)


def _is_at(left: DerivedCheckpoint, origin: DerivedOrigin) -> bool:
    return left.at_rest and left.origin == origin


def _left(chain: Chain, end: IndexEntry) -> DerivedCheckpoint | None:
    event = chain.block(end.hash).event
    return derived_checkpoint(chain.store, event) if isinstance(event, ExecuteTransform) else None


def _end_before(branch: Branch, number: int) -> IndexEntry | None:
    """Return the newest end of a commit with data at or before a block."""
    at = branch.at(number).data
    while at is not None:
        entry = branch.at(at)
        if entry.is_end:
            return entry
        at = None if at == 0 else branch.at(at - 1).data
    return None


def newest_cut_at(log: CutLog, roots: Mapping[DatasetId, Position], order: RootOrder, newest: int) -> int:
    """Return the newest cut, up to a number, that has roots where they are given; 0 if there is none.

    Positions follow the order of cuts, so that a few are read; after a reset they may not, and then more are.
    """

    def has(cut: Cut) -> bool:
        return all(cut.positions.get(root) == at for root, at in roots.items())

    if newest > 0 and has(log.cut(newest)):
        return newest
    low, high = 0, newest - 1
    while low < high:
        middle = (low + high + 1) // 2
        if order.is_within(log.cut(middle).positions, roots):
            low = middle
        else:
            high = middle - 1
    if low and has(log.cut(low)):
        return low
    looked = list(log.cuts(max(newest - _MOST_LOOKED_AT, 0), newest))
    if not any(cut.reset & roots.keys() for cut in looked):
        return 0
    return next((cut.number for cut in reversed(looked) if has(cut)), 0)
