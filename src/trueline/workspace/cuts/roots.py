"""The roots that cuts are made of: which datasets they are, and where each of them is.

A root is a dataset that this workspace does not compute: one that is appended to, or a clone, whatever it
is a clone of; and one that reads inputs at cuts of their own, since no cut says what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trueline.chain.branch import Branch
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import is_at_rest
from trueline.chain.events import DatasetKind, ExecuteTransform
from trueline.chain.head_state import Position, Tail
from trueline.chain.index_rows import IndexEntry
from trueline.chain.instant import Instant
from trueline.dataset.derivation import derivation_at
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.catalogue import CatalogueEntry
from trueline.workspace.snapshot.made_from import ChainOf, is_copy
from trueline.workspace.transfer.origin import origin_of

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RootHead:
    """A root as one look at its head found it: `end` is the newest commit that a cut can be at.

    None where it has no data yet. Metadata alone does not move a cut; an `AddData` does, also one that
    moves only the watermark.
    """

    branch: Branch
    end: IndexEntry | None

    @classmethod
    def of(cls, chain: Chain) -> RootHead:
        """Look at a root: its head is read once."""
        return cls.on(Branch.of(chain))

    @classmethod
    def on(cls, branch: Branch) -> RootHead:
        """Look at a root at the head it was seen at."""
        return cls(branch, next((end for end in branch.data_ends() if _is_readable(branch, end)), None))

    @property
    def is_copy(self) -> bool:
        """Whether it was computed elsewhere; one that reads inputs at cuts of their own counts as no copy."""
        return is_copy(self.branch.tail)

    @property
    def position(self) -> Position | None:
        """Where it is."""
        return None if self.end is None else Position(self.end.hash, self.end.last_offset)

    def number_of(self, position: Position | None) -> int | None:
        """Return which block of the present branch a position is: −1 before the first, None if not there."""
        if position is None:
            return -1
        found = self.branch.find(position.block)
        return None if found is None else found.sequence_number

    def time_of(self, block: Multihash, now: Instant) -> Instant:
        """Return when a block was recorded, or now if that is later; it is read if its clock was ahead."""
        found = self.branch.find(block)
        if found is None or (found.time_us + 1) * 1000 <= now:
            return now
        return max(now, self.branch.chain.block(block).system_time)


def _is_readable(branch: Branch, end: IndexEntry) -> bool:
    """Say whether readers may stop at a commit: derived datasets have some that are not at rest."""
    if branch.tail is None or branch.tail.dataset_kind != DatasetKind.Derivative:
        return True
    event = branch.chain.block(end.hash).event
    return not isinstance(event, ExecuteTransform) or is_at_rest(branch.chain.store, event)


def positions_of(heads: Mapping[DatasetId, RootHead]) -> dict[DatasetId, Position | None]:
    """Return where each root is: at its newest commit, None where it has no data."""
    return {name: head.position for name, head in heads.items()}


class Roots:
    """Finds the roots of a workspace; the catalogue is read again where it does not know an id."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._entries: dict[DatasetId, CatalogueEntry] = {}

    def chain_of(self, dataset: DatasetId) -> Chain | None:
        """Return the chain of a dataset by its id, None if it is not in the workspace."""
        found = self.dataset(dataset)
        return None if found is None else found.chain

    def under(self, *names: str) -> frozenset[DatasetId]:
        """Return the roots that datasets rest on: themselves where they are roots."""
        found: set[DatasetId] = set()
        waiting = [self._workspace[name] for name in names]
        seen: set[DatasetId] = set()
        while waiting:
            dataset = waiting.pop()
            if dataset.id in seen:
                continue
            seen.add(dataset.id)
            inputs = self.inputs(dataset)
            if inputs is None:
                found.add(dataset.id)
            else:
                waiting.extend(inputs)
        return frozenset(found)

    def inputs(self, dataset: Dataset, tail: Tail | None = None) -> list[Dataset] | None:
        """Return the inputs a dataset is computed from here, None if it is not computed here.

        `tail` is the state to judge by, if not that at the head.
        """
        transform = (dataset._tail if tail is None else tail).transform
        if transform is None or origin_of(self._workspace._location, dataset._folder) is not None:
            return None
        derivation = derivation_at(dataset._tail)
        if derivation is not None and derivation.nondet:
            return None  # what reads inputs at other cuts is a root of its own
        inputs = [self.dataset(DatasetId.parse(source.dataset_ref)) for source in transform.inputs]
        # Without all of its inputs nobody here can bring it further.
        return None if None in inputs else [each for each in inputs if each is not None]

    def dataset(self, dataset: DatasetId) -> Dataset | None:
        """Return a dataset by its id, None if it is not in the workspace."""
        if dataset not in self._entries:
            self._entries = self._by_id()
        entry = self._entries.get(dataset)
        return None if entry is None else self._workspace._dataset(entry)

    def _by_id(self) -> dict[DatasetId, CatalogueEntry]:
        """Return the entries by id; where there is a dataset and clones of it, that of the dataset."""
        place, found = self._workspace._location, dict[DatasetId, CatalogueEntry]()
        for entry in self._workspace._catalogue.entries():
            name = None if entry.id is None else DatasetId.parse(entry.id)
            if name is not None and (name not in found or origin_of(place, entry.folder) is None):
                found[name] = entry
        return found


def heads_of(chain_of: ChainOf, wanted: Iterable[DatasetId]) -> dict[DatasetId, RootHead]:
    """Look at the heads of roots, each once; those that are not in the workspace any more are left out."""
    chains = {dataset: chain_of(dataset) for dataset in sorted(wanted)}
    return {dataset: RootHead.of(chain) for dataset, chain in chains.items() if chain is not None}
