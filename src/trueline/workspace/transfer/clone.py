"""A dataset brought here from elsewhere, and brought up to date later."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from trueline.chain.chain import Chain
from trueline.chain.events import Seed
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.references import Reference, direct, references
from trueline.chain.rule import removal_beyond
from trueline.chain.store.store import Folder
from trueline.credentials import masked
from trueline.dataset.remove.drop import clear
from trueline.dataset.remove.record import Removals, recorded, removals_of
from trueline.errors import DatasetExists, InputError, RefCASFailed, RolledBack
from trueline.identity.multihash import Multihash
from trueline.kernel.tasks import Tasks
from trueline.workspace.names import check_name, is_name
from trueline.workspace.rollback import given_head
from trueline.workspace.transfer.arrive import Arriving, Findings
from trueline.workspace.transfer.copy import Copied, check_room, copy_objects, put_blocks
from trueline.workspace.transfer.origin import CopyOrigin, keep_origin, origin_of
from trueline.workspace.transfer.remote import Remote, StoreRemote, open_remote, required_head
from trueline.workspace.transfer.report import Comparison, Transferred, another_dataset

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


def clone(
    workspace: Workspace,
    url: str | os.PathLike[str],
    name: str | None = None,
    *,
    force: bool = False,
    expected_head: object = None,
    **options: Any,
) -> Transferred:
    """Bring a dataset from a folder, an object store or a static file server into a workspace.

    Done again it brings what is new. Nothing is visible before everything is
    here and proven; what an interrupted transfer had brought is kept. A source
    that does not have the block `expected_head` is refused.
    """
    expected = None if expected_head is None else given_head(expected_head)
    called = check_name(name) if name is not None else name_of(url)
    with closing(open_remote(url, **options)) as remote:
        head = required_head(remote)
        if called in workspace:
            dataset = workspace[called]
        else:
            dataset = workspace._unborn(called)
            keep_origin(
                workspace._location, dataset._folder, CopyOrigin(remote.location, None, Instant.now())
            )
        try:
            return _brought(workspace, dataset, remote, head, force=force, expected=expected)
        except InputError as error:
            if error.code != "OtherDataset":
                raise
            raise DatasetExists(
                f"dataset {called!r} exists and is another: {error.problem}",
                remedy="give the clone another name",
                name=called,
            ) from None


def update(
    dataset: Dataset, url: str | os.PathLike[str] | None = None, *, force: bool = False, **options: Any
) -> Transferred:
    """Bring a clone up to what its source has now; `url` where that has moved, or has a secret in it."""
    workspace = dataset.workspace
    if url is None:
        origin = origin_of(workspace._location, dataset._folder)
        if origin is None:
            raise InputError(
                f"dataset {dataset.name!r} is not a clone, or its origin was not recorded",
                remedy="give the location to update it from",
                code="NotAClone",
                name=dataset.name,
            )
        url = origin.url
    with closing(open_remote(url, **options)) as remote:
        return _brought(workspace, dataset, remote, required_head(remote), force=force)


def name_of(url: str | os.PathLike[str]) -> str:
    """Return what a dataset is called where it is.

    >>> name_of("https://example.org/lake/datasets/trades/?version=2")
    'trades'
    """
    text = os.fspath(url)
    try:
        path = unquote(urlsplit(text).path) if "://" in text else str(Path(text).absolute())
    except ValueError:
        path = ""
    found = path.rstrip("/").rpartition("/")[2]
    if not is_name(found):
        raise InputError(
            f"{found!r}, the last part of {masked(text)!r}, cannot name a dataset",
            remedy="give a name for the clone",
            code="BadName",
        )
    return found


def _brought(
    workspace: Workspace,
    dataset: Dataset,
    remote: Remote,
    head: Multihash,
    *,
    force: bool,
    expected: Multihash | None = None,
) -> Transferred:
    aside = workspace._location.inside(workspace._location.private / "incoming" / dataset._folder)
    tasks = partial(_tasks_for, workspace, dataset, remote)
    bringing = _Bringing(dataset.chain, remote, Arriving(remote, aside), tasks, expected)
    done = bringing.run(dataset.name, head, force=force)
    workspace._catalogue.confirm(dataset._folder, str(dataset.id))
    found = {name: block for name, block in remote.tags().items() if dataset.chain.entry(block) is not None}
    done = replace(done, tags=workspace._tags.bring(str(dataset.id), found))
    if force and done.changed:
        dataset.chain.forget_heads()  # what was cut off was meant to be
    told = tuple(f"{block.short} {found.rule}: {found.problem}" for block, found in done.findings)
    before = origin_of(workspace._location, dataset._folder)
    findings = (*(before.findings if before else ()), *told)
    keep_origin(
        workspace._location,
        dataset._folder,
        CopyOrigin(remote.location, done.head, Instant.now(), findings, str(dataset.id)),
    )
    return done


def _tasks_for(workspace: Workspace, dataset: Dataset, remote: Remote) -> Tasks | None:
    """Return what fetches data in tasks; what only this machine may reach, a file server, is read by it."""
    if not isinstance(remote, StoreRemote):
        return None
    about = f"clone {dataset.name}"
    return workspace._spark.tasks(about, reads=[remote.store], writes=[dataset.chain.store])


@dataclass(frozen=True, slots=True)
class _Bringing:
    """One transfer into a chain; `tasks` says who fetches the data, None for this process."""

    chain: Chain
    remote: Remote
    arriving: Arriving
    tasks: Callable[[], Tasks | None]
    expected: Multihash | None = None

    def run(self, name: str, head: Multihash, *, force: bool) -> Transferred:
        chain, arriving = self.chain, self.arriving
        tail = chain.tail()
        result = Transferred(
            name, self.remote.location, chain.store.location, tail.head if tail else None, head
        )
        if tail is not None and tail.head == head:
            self._check_expected([], head)
            return result
        with chain.store.lease():
            try:
                new, common = arriving.walk(head, lambda block: self._is_known(tail, block))
                self._check_expected(new, common)
                self._compare(tail, new, common, force=force)
                base = chain.tail_at(common) if common is not None else None
                findings: Findings = []
                copied = Copied()
                removals = self._objects(new, base, findings, copied)
                copied.bytes += put_blocks(chain.store, (arriving.raw(block) for block in new))
                self._move(tail, head)
            except BaseException:
                arriving.close()
                raise
            arriving.discard()
            if tail is not None and removals:
                clear(chain, removals, after=base.sequence_number if base else -1)
        return replace(
            result,
            blocks=len(new),
            objects=copied.objects,
            bytes=copied.bytes,
            kept=copied.kept,
            findings=tuple(findings),
        )

    def _is_known(self, tail: Tail | None, block: Multihash) -> bool:
        return tail is not None and self.chain.entry(block) is not None

    def _check_expected(self, new: list[Multihash], common: Multihash | None) -> None:
        """Refuse a source whose chain does not have the head that somebody kept."""
        expected = self.expected
        if expected is None or expected in new:
            return
        if common is not None and self.chain.is_ancestor(expected, common):
            return
        raise RolledBack(
            f"the chain of {self.remote.location} does not have the expected head {expected}",
            remedy="it was rolled back or replaced, or that head is of another dataset: ask its owner; "
            "without an expected head it is taken as it is",
            expected=expected,
            source=self.remote.location,
        )

    def _compare(
        self, tail: Tail | None, new: list[Multihash], common: Multihash | None, *, force: bool
    ) -> None:
        """Refuse a source that this dataset is not an earlier state of."""
        if tail is None:
            return
        here, there = self.chain.store.location, self.remote.location
        if common is None:
            seed = self.arriving.block(new[0]).event
            if isinstance(seed, Seed) and seed.dataset_id != tail.dataset_id:
                raise another_dataset(there, here, (str(seed.dataset_id), str(tail.dataset_id)))
        last = self.chain.sequence_of(common) if common is not None else -1
        assert last is not None
        refusal = Comparison(common, len(new), tail.sequence_number - last).refusal(there, here)
        if refusal is not None and not force:
            raise refusal

    def _objects(
        self, new: list[Multihash], base: Tail | None, findings: Findings, copied: Copied
    ) -> Removals:
        """Prove the blocks, then bring what they refer to.

        Checkpoints come first: they say what else there is, and what was removed.
        """
        store = self.chain.store
        first: dict[Reference, None] = {}
        without_rows: list[Multihash] = []
        for block in self.arriving.proven(new, base, findings):
            first |= {each: None for each in direct(block) if each.folder is Folder.CHECKPOINTS}
            if block.data_event is not None and block.data_event.new_data is None:
                without_rows.append(block.hash)
        copy_objects(self.remote, store, first, copied, label="fetching checkpoints")
        before = removals_of(self.chain).all if base is not None else ()
        kept = [each for each in before if base is not None and each.sequence_number <= base.sequence_number]
        for block in map(self.arriving.block, without_rows):
            if (forged := removal_beyond(store, block)) is not None:
                findings.append((block.hash, forged))
        found = (recorded(store, self.arriving.block(name)) for name in without_rows)
        removals = Removals.joined([*kept, *(removal for removal in found if removal is not None)])
        rest = [each for each in self._wanted(new, removals) if each not in first]
        check_room(store, rest)
        tasks = self.tasks() if rest else None
        copy_objects(self.remote, store, rest, copied, label="fetching data", tasks=tasks)
        return removals

    def _wanted(self, new: list[Multihash], removals: Removals) -> Iterator[Reference]:
        seen: set[Any] = set()
        for block in map(self.arriving.block, new):
            for reference in references(block, self.chain.store, seen):
                if not removals.is_gone(block, reference):
                    yield reference
                else:
                    # A later block may name the same bytes again, which are then there.
                    seen.discard((reference.folder, reference.hash))

    def _move(self, tail: Tail | None, head: Multihash) -> None:
        store = self.chain.store
        try:
            store.move_head(head, expected=tail.head if tail else None)
        except RefCASFailed:
            # Someone brought the same at the same time.
            if store.head() != head:
                raise
