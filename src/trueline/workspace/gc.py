"""Tidying a workspace: objects nothing refers to, creations that never finished, maps of nothing."""

from __future__ import annotations

import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from trueline.chain.compacted import compact_files
from trueline.chain.references import references
from trueline.chain.sources import FetchFilesGlob
from trueline.chain.store.folders import Inside, remove_database
from trueline.chain.store.gc import Collected, collect
from trueline.chain.store.store import Folder
from trueline.dataset.remove.record import removals_of
from trueline.errors import CorruptionError
from trueline.identity.multihash import Multihash
from trueline.workspace.deletion import collect_deleted
from trueline.workspace.names import is_name
from trueline.workspace.pull.seen import seen_path
from trueline.workspace.rollback import refuse_rollback
from trueline.workspace.snapshot.lease import pinned

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Swept:
    """What was removed (or would be): objects by dataset, unfinished datasets, stale indexes.

    `seen` are datasets of which it was still remembered which files had been read, though they are gone
    or poll no folder any more; `deleted` are datasets whose files went because they had been deleted, and
    `skipped` says why those of others stay.
    """

    datasets: Mapping[str, Collected] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    deleted: tuple[str, ...] = ()

    @property
    def objects(self) -> int:
        """How many objects were removed."""
        return sum(len(found.removed) for found in self.datasets.values())

    @property
    def bytes(self) -> int:
        """How much room they took."""
        return sum(found.bytes for found in self.datasets.values())

    @property
    def kept_in_flight(self) -> int:
        """How many unreferenced objects are too new to be sure."""
        return sum(found.kept_in_flight for found in self.datasets.values())


def sweep(workspace: Workspace, older_than: float, dry_run: bool) -> Swept:
    """Tidy every dataset; one whose head is lost loses nothing, and one rolled back stops all of it."""
    datasets = workspace.datasets()
    for dataset in datasets:
        if dataset.chain.store.head() is not None:
            refuse_rollback(dataset)
    now = time.time()
    collected: dict[str, Collected] = {}
    skipped: dict[str, str] = {}
    for dataset in datasets:
        if dataset.chain.store.head() is None:
            skipped[dataset.name] = "its head is missing"
            continue
        collected[dataset.name] = sweep_dataset(dataset, older_than, dry_run=dry_run)
    deleted = collect_deleted(workspace, now - older_than, skipped, dry_run=dry_run)
    unfinished = _unfinished(workspace, now - older_than, dry_run)
    if not dry_run:
        workspace._catalogue.sweep(now - older_than)
    indexes = _stale_indexes(workspace, now - older_than, dry_run)
    seen = _stale_seen(workspace, now - older_than, dry_run)
    return Swept(collected, unfinished, indexes, seen, skipped, dry_run, deleted)


def sweep_dataset(dataset: Dataset, older_than: float, *, dry_run: bool = False) -> Collected:
    """Tidy one dataset."""
    reached = partial(_reached, dataset.workspace, dataset)
    return collect(dataset.chain.store, reached, older_than=older_than, dry_run=dry_run)


def _reached(workspace: Workspace, dataset: Dataset) -> dict[Folder, set[Multihash]]:
    """Everything that is reached from any ref, by reading the blocks themselves.

    What was removed on purpose is not: a removal that was cut short ends here.
    """
    refuse_rollback(dataset)
    store = dataset.chain.store
    removals = removals_of(dataset.chain)
    reached: dict[Folder, set[Multihash]] = {folder: set() for folder in Folder}
    seen: set[Multihash] = set()
    heads = [store.head(ref) for ref in workspace._location.refs(dataset._folder)]
    for head in (*heads, *_kept(workspace, dataset)):
        if head is None:
            continue
        for name, block in dataset.chain.walk(head):
            if name in reached[Folder.BLOCKS]:
                break
            reached[Folder.BLOCKS].add(name)
            for reference in references(block, store, seen):
                if not removals.is_gone(block, reference):
                    reached[reference.folder].add(reference.hash)
    if not removals:
        reached[Folder.DATA] |= {file.hash for file in compact_files(dataset.chain)}
    return reached


def _kept(workspace: Workspace, dataset: Dataset) -> list[Multihash]:
    """The blocks that tags name or open snapshots read and that are here: a clone may be behind a tag."""
    held = pinned(workspace._location.cuts(), str(dataset.id))
    named = (*workspace._tags.of(str(dataset.id)).values(), *held)
    return [block for block in named if dataset.chain.store.size(Folder.BLOCKS, block) is not None]


def _unfinished(workspace: Workspace, before: float, dry_run: bool) -> tuple[str, ...]:
    """Remove folders in which a creation died before its head was set."""
    place, present = workspace._location, _by_folder(workspace)
    found = [folder for folder in place.names() if folder not in present]
    return tuple(folder for folder in found if place.remove_unfinished(folder, before, dry_run=dry_run))


def _by_folder(workspace: Workspace) -> dict[str, Dataset]:
    return {dataset._folder: dataset for dataset in workspace.datasets()}


def _stale_indexes(workspace: Workspace, before: float, dry_run: bool) -> tuple[str, ...]:
    """Remove indexes of datasets that are no longer there."""
    removed = []
    names = set(workspace._location.names())
    folder = workspace._location.inside(workspace._index_path("x").parent)
    for name in _stems(folder, ".sqlite", before):
        if name not in names:
            removed.append(name)
            if not dry_run:
                remove_database(folder / f"{name}.sqlite")
    return tuple(removed)


def _stems(folder: Inside, suffix: str, before: float) -> list[str]:
    """Return the names of datasets of which a folder holds an old file; what is not ours is left out."""
    return [
        name.removesuffix(suffix)
        for name, found in folder.listing()
        if name.endswith(suffix)
        and is_name(name.removesuffix(suffix))
        and stat.S_ISREG(found.st_mode)
        and found.st_mtime < before
    ]


def _stale_seen(workspace: Workspace, before: float, dry_run: bool) -> tuple[str, ...]:
    """Remove what is remembered of files read for datasets that are gone, or poll no folder any more."""
    removed = []
    datasets = _by_folder(workspace)
    folder = workspace._location.inside(seen_path(workspace._location.private, "x").parent)
    for name in _stems(folder, ".json", before):
        if not _polls_files(datasets.get(name)):
            removed.append(name)
            if not dry_run:
                (folder / f"{name}.json").unlink(missing_ok=True)
    return tuple(removed)


def _polls_files(dataset: Dataset | None) -> bool:
    if dataset is None:
        return False
    try:
        tail = dataset.chain.tail()
    except CorruptionError:
        return True  # not to be judged now
    return tail is not None and tail.polling is not None and isinstance(tail.polling.fetch, FetchFilesGlob)
