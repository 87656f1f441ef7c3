"""Snapshots of tags: commits that were named one by one are read together only where they agree (cut:P12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trueline.chain.branch import Branch
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.events import ExecuteTransform, SetTransform
from trueline.chain.head_state import Position, Tail
from trueline.errors import CutGone, InputError, NoCommonCut, ObjectMissing
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.roots import RootHead, Roots
from trueline.workspace.snapshot.histories import ChainHistory
from trueline.workspace.snapshot.search import NOTHING, grouped
from trueline.workspace.snapshot.snapshot import WorkspaceSnapshot, cut_off

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.tags import Tag
    from trueline.workspace.workspace import Workspace


@dataclass(slots=True)
class TaggedOrigin:
    """What a commit was made from: where each root was (None: it had no data), and the definitions."""

    roots: dict[DatasetId, Position | None] = field(default_factory=dict)
    definitions: dict[DatasetId, Multihash] = field(default_factory=dict)

    @property
    def below(self) -> set[DatasetId]:
        """All that it rests on."""
        return {*self.roots, *self.definitions}

    def add(self, other: TaggedOrigin) -> None:
        """Add what one of its inputs was made from."""
        self.roots = other.roots | self.roots
        self.definitions = other.definitions | self.definitions


def of_tag(workspace: Workspace, tag: Tag, names: Sequence[str]) -> WorkspaceSnapshot:
    """Return the datasets of a tag where it has them, whatever has been defined since.

    `NoCommonCut` if it names commits that were not made from the same records.
    """
    known = workspace._names_by_id()
    blocks = {known[each]: block for each, block in tag.positions.items() if each in known}
    for name in names:
        if name not in blocks:
            raise InputError(
                f"the tag {tag.name!r} does not name a commit of {name!r}",
                remedy=f"it names {', '.join(sorted(blocks))}",
                code="TagNotFound",
                tag=tag.name,
            )
    asked = {name: workspace[name] for name in list(dict.fromkeys(names)) or sorted(blocks)}
    commits = TaggedCommits(workspace, tag)
    made = {name: commits.made_from(dataset, blocks[name]) for name, dataset in asked.items()}
    commits.check(made)
    origin = commits.origin(made)
    read = {name: blocks[name] for name in asked} | {known[each]: at.block for each, at in origin.items()}
    return WorkspaceSnapshot(
        workspace,
        asked,
        {name: commits.position(dataset, blocks[name]) for name, dataset in asked.items()},
        {known[each]: at for each, at in origin.items()},
        {known[each]: each for each in origin} | {name: dataset.id for name, dataset in asked.items()},
        grouped({name: each.below for name, each in made.items()}),
        {
            name: behind
            for name, block in read.items()
            if (behind := _behind(workspace[name], block)) is not None
        },
    )


def _behind(dataset: Dataset, block: Multihash) -> int | None:
    """How many commits came after a block; None if a reset has cut it off."""
    entry, tip = dataset.chain.entry(block), Branch.of(dataset.chain).tip
    return None if entry is None or tip is None else tip.commits - entry.commits


class TaggedCommits:
    """The commits that a tag names, and what they were made from."""

    def __init__(self, workspace: Workspace, tag: Tag) -> None:
        self._tag = tag
        self._roots = Roots(workspace)
        self._chains: dict[tuple[DatasetId, Multihash], Chain] = {}

    def position(self, dataset: Dataset, block: Multihash) -> Position:
        """Return a block with its offset."""
        entry = self._chain(dataset, block).entry(block)
        assert entry is not None
        return Position(block, entry.last_offset)

    def _chain(self, dataset: Dataset, block: Multihash) -> Chain:
        """The chain of a dataset, or the part of it that a reset has cut off: what a tag names is kept."""
        if dataset.chain.entry(block) is not None:
            return dataset.chain
        key = dataset.id, block
        if key not in self._chains:
            self._chains[key] = cut_off(dataset, block)
        return self._chains[key]

    # --- what they were made from -------------------------------------------------------

    def made_from(self, dataset: Dataset, block: Multihash) -> TaggedOrigin:
        """Return what a commit was made from: itself where it counts as a root here; of a copy both."""
        chain = self._chain(dataset, block)
        tail = chain.tail_at(block)
        made = TaggedOrigin()
        is_root = self._roots.inputs(dataset, tail) is None
        if is_root:
            made.roots[dataset.id] = Position(block, tail.last_offset) if tail.data else None
        if tail.transform is None or (is_root and not RootHead(Branch.of(chain), None).is_copy):
            return made
        left = derived_checkpoint(chain.store, tail.data) if isinstance(tail.data, ExecuteTransform) else None
        if left is None:
            self._add_inputs(made, tail)
            return made
        made.definitions |= left.origin.definitions
        for name, at in left.origin.roots.items():
            made.roots.setdefault(name, at)
            root = self._roots.dataset(name) if name != dataset.id else None
            if root is not None and root.kind == "derived":
                made.add(self._of_copy(root, at))
        for name in self._without_data(made):
            made.roots.setdefault(name, None)
        return made

    def _of_copy(self, copy: Dataset, at: Position) -> TaggedOrigin:
        """What a root that is a copy was made from itself; nothing, if that is not kept."""
        try:
            return self.made_from(copy, at.block)
        except (CutGone, ObjectMissing):
            return TaggedOrigin()

    def _add_inputs(self, made: TaggedOrigin, tail: Tail) -> None:
        """Go by the inputs, where other software has left nothing that says more, or nobody has pulled."""
        assert tail.transform is not None
        event = tail.data
        read = (
            {each.dataset_id: each for each in event.query_inputs}
            if isinstance(event, ExecuteTransform)
            else {}
        )
        for source in tail.transform.inputs:
            name = DatasetId.parse(source.dataset_ref)
            there = self._roots.dataset(name)
            block = read[name].last_block if name in read else None
            if there is not None and block is not None:
                made.add(self.made_from(there, block))
            elif there is not None and self._roots.inputs(there) is not None:
                made.roots |= dict.fromkeys(self._roots.under(there.name))
            else:
                made.roots[name] = None if block is None else Position(block, read[name].last_offset)

    def _without_data(self, made: TaggedOrigin) -> set[DatasetId]:
        """The roots that had no data: definitions name them, positions do not."""
        found: set[DatasetId] = set()
        for name, block in made.definitions.items():
            chain = self._roots.chain_of(name)
            try:
                event = chain.block(block).event if chain is not None else None
            except ObjectMissing:
                continue
            inputs = event.inputs if isinstance(event, SetTransform) else ()
            found |= {DatasetId.parse(each.dataset_ref) for each in inputs}
        return found - set(made.definitions)

    # --- whether they agree -------------------------------------------------------------

    def check(self, made: Mapping[str, TaggedOrigin]) -> None:
        """Refuse commits that were made from other records of a root, or under other definitions."""
        seen: dict[DatasetId, tuple[str, Multihash | None]] = {}
        for name, each in made.items():
            for root, at in each.roots.items():
                self._same(seen, name, root, self._data(root, at))
        defined: dict[DatasetId, tuple[str, Multihash | None]] = {}
        for name, each in made.items():
            for source, definition in each.definitions.items():
                self._same(defined, name, source, definition)
        for each in made.values():
            for root in each.roots.keys() & self._tag.positions.keys():
                if (dataset := self._roots.dataset(root)) is not None and dataset.name not in made:
                    named = self.position(dataset, self._tag.positions[root])
                    self._same(seen, dataset.name, root, self._data(root, named))

    def _same(
        self,
        seen: dict[DatasetId, tuple[str, Multihash | None]],
        name: str,
        source: DatasetId,
        block: Multihash | None,
    ) -> None:
        other, first = seen.setdefault(source, (name, block))
        if first != block:
            dataset = self._roots.dataset(source)
            shown = str(source) if dataset is None else repr(dataset.name)
            raise NoCommonCut(
                f"the tag {self._tag.name!r} names commits of {other!r} and {name!r} that do not agree: they "
                f"are at different states of {shown}",
                remedy="tag a snapshot of them; each by itself can be read at the tag",
                dataset=name,
                source=shown if dataset is None else dataset.name,
                block=block,
            )

    def _data(self, root: DatasetId, at: Position | None) -> Multihash | None:
        """Return the newest block with data at a position: metadata alone moves nothing."""
        dataset = self._roots.dataset(root)
        if at is None or dataset is None:
            return None if at is None else at.block
        try:
            chain = self._chain(dataset, at.block)
        except CutGone:
            return at.block
        entry = chain.entry(at.block)
        assert entry is not None
        found = None if entry.data is None else chain.entry_number(entry.data)
        return None if found is None else found.hash

    def origin(self, made: Mapping[str, TaggedOrigin]) -> dict[DatasetId, Position]:
        """Return where roots are that are here: as the tag names them, or as commits were made from them."""
        found: dict[DatasetId, Position] = {}
        for root, at in [pair for each in made.values() for pair in each.roots.items()]:
            dataset = self._roots.dataset(root)
            if dataset is None or self._roots.inputs(dataset) is not None:
                continue
            if root in self._tag.positions:
                found[root] = self.position(dataset, self._tag.positions[root])
            else:
                found[root] = at or ChainHistory(dataset, Branch.of(dataset.chain), ()).position(NOTHING)
        return found
