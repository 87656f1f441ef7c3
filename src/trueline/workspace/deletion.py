"""Deleting a dataset, or records of it.

A dataset is kept while something rests on it; its files stay until `gc` collects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from trueline.chain.store.store import Folder
from trueline.dataset.derivation import checks_at
from trueline.errors import CorruptionError, InputError
from trueline.workspace.names import check_name, not_found
from trueline.workspace.snapshot.lease import pinned
from trueline.workspace.transfer.origin import forget_origin

if TYPE_CHECKING:
    from trueline.dataset.at import At
    from trueline.dataset.remove.drop import Removed, Where
    from trueline.identity.multihash import Multihash
    from trueline.workspace.catalogue import CatalogueEntry
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


def delete(workspace: Workspace, name: str) -> None:
    """Take a dataset out of a workspace; `DatasetInUse` names what rests on it."""
    entry = workspace._catalogue.find(check_name(name))
    if entry is None:
        raise not_found(name, workspace, workspace.location)
    if entry.id is not None:
        _refuse_in_use(workspace, name, entry.id)
    dataset = workspace._dataset(entry)
    with dataset._writing:
        workspace._catalogue.delete(entry.folder)
        dataset._is_deleted = True
        workspace._forget(entry.folder)


def _refuse_in_use(workspace: Workspace, name: str, dataset_id: str) -> None:
    copies = [entry.name for entry in workspace._catalogue.entries() if entry.id == dataset_id]
    if copies != [name]:
        return  # what rests on it finds the other copy
    resting = _resting_on(workspace, dataset_id)
    judged = [each for each in _judged_by(workspace, name) if each not in resting]
    tags = sorted(workspace._tags.of(dataset_id))
    if not resting and not judged and not tags:
        return
    reasons = []
    if resting:
        reasons.append(f"{_listed(resting)} {'is' if len(resting) == 1 else 'are'} computed from it")
    if judged:
        reasons.append(f"checks of {_listed(judged)} refer to it")
    if tags:
        reasons.append(
            f"the tag{'s' * (len(tags) != 1)} {_listed(tags)} name{'s' * (len(tags) == 1)} its commits"
        )
    raise InputError(
        f"dataset {name!r} is in use: {'; '.join(reasons)}",
        remedy=_freed(resting, judged, tags),
        code="DatasetInUse",
        name=name,
        resting=tuple(resting),
        tags=tuple(tags),
    )


def _freed(resting: list[str], judged: list[str], tags: list[str]) -> str:
    """Say what to do before a dataset can be deleted."""
    deleting = ", then ".join(f"ws.delete({each!r})" for each in resting)
    untagging = ", ".join(f"ws.untag({each!r})" for each in tags)
    if judged:
        others = _freed(resting, [], tags) + "; and " if resting or tags else "first "
        return f"{others}define {_listed(judged)} without these checks"
    if not tags:
        return f"first delete what is computed from it: {deleting}"
    if not resting:
        return f"first remove what names its commits: {untagging}"
    return (
        f"first delete what is computed from it: {deleting}; and remove what names its commits: {untagging}"
    )


def _resting_on(workspace: Workspace, dataset_id: str) -> list[str]:
    """Return the names of the datasets computed from one, directly or not, in the order to delete them."""
    names: dict[str, str] = {}
    above: dict[str, list[str]] = {}
    for dataset in workspace.datasets():
        try:
            transform = dataset._tail.transform
        except CorruptionError:
            continue  # what it was computed from cannot be read
        names[str(dataset.id)] = dataset.name
        for source in transform.inputs if transform is not None else ():
            above.setdefault(source.dataset_ref, []).append(str(dataset.id))
    found: list[str] = []
    seen = {dataset_id}

    def visit(below: str) -> None:
        for upper in above.get(below, ()):
            if upper not in seen:
                seen.add(upper)
                visit(upper)
                found.append(names[upper])

    visit(dataset_id)
    return found


def _judged_by(workspace: Workspace, name: str) -> list[str]:
    """Return the names of the other datasets whose checks refer to one."""
    from trueline.workspace.dependencies import referred

    found, names = [], workspace._names_by_id()
    for dataset in workspace.datasets():
        with suppress(CorruptionError, InputError):
            referring = any(referred(check, names) == name for check in checks_at(dataset._tail))
            found += [dataset.name] if referring and dataset.name != name else []
    return found


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def collect_deleted(
    workspace: Workspace, before: float, skipped: dict[str, str], *, dry_run: bool
) -> tuple[str, ...]:
    """Remove the files of datasets that were deleted before a moment, unless a commit is in flight there.

    Those that an open snapshot reads, or of which a tag names what nobody else has, are `skipped`.
    """
    place = workspace._location
    there, removed = set(place.names()), []
    for entry in workspace._catalogue.deleted():
        if entry.deleted is None or entry.folder not in there or int(entry.deleted) / 1e9 >= before:
            continue
        if (reason := _kept_by(workspace, entry)) is not None:
            skipped[entry.name] = f"it was deleted, but {reason}"
        elif place.remove_deleted(entry.folder, dry_run=dry_run):
            removed.append(entry.name)
            if not dry_run:
                forget_origin(place, entry.folder)
    return tuple(removed)


def _kept_by(workspace: Workspace, entry: CatalogueEntry) -> str | None:
    """Say why the files of a deleted dataset stay, None if nothing needs them."""
    if entry.id is None:
        return None
    held = pinned(workspace._location.cuts(), entry.id)
    tagged = workspace._tags.of(entry.id)
    if not held and not tagged:
        return None
    copies = [workspace._dataset(each) for each in workspace._catalogue.entries() if each.id == entry.id]
    with closing(workspace._location.store(entry.folder, durable=True)) as store:

        def has(block: Multihash) -> bool:
            return store.size(Folder.BLOCKS, block) is not None

        if any(map(has, held)):
            return "an open snapshot reads it"
        for name, block in sorted(tagged.items()):
            if has(block) and not any(each.chain.store.size(Folder.BLOCKS, block) for each in copies):
                return f"the tag {name!r} names a commit that no copy of it has"
    return None


def drop_records(
    dataset: Dataset, upto: At, where: Where | None, reason: str, parameters: Mapping[str, object]
) -> Removed:
    """Remove records of a dataset for good, and what compaction, crashes and lost races have left of them."""
    from trueline.chain.compacted import remove_files
    from trueline.dataset.remove.drop import drop_data
    from trueline.workspace.gc import sweep_dataset
    from trueline.workspace.rollback import refuse_rollback

    chain = dataset._present
    refuse_rollback(dataset)
    with dataset._writing:
        remove_files(chain)
        done = drop_data(
            dataset.name,
            chain,
            upto=upto,
            where=where,
            reason=reason,
            parameters=parameters,
            clock=dataset.workspace.clock,
        )
    if where is not None and done.block is not None:
        sweep_dataset(dataset, 0)
    return done
