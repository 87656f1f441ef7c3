"""A dataset sent elsewhere: to a folder or an object store, from where anyone can clone it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.encode import MAX_BLOCK_BYTES
from trueline.chain.events import Seed
from trueline.chain.head_state import Tail
from trueline.chain.references import Reference, references
from trueline.chain.store.file import FileStore
from trueline.chain.store.open import open_store
from trueline.chain.store.store import Folder, Store
from trueline.dataset.remove.drop import clear
from trueline.dataset.remove.record import Removals, removals_of
from trueline.errors import InputError, RefCASFailed
from trueline.identity.multihash import Multihash
from trueline.kernel.tasks import Tasks
from trueline.workspace.transfer.copy import Copied, check_room, copy_objects, put_blocks
from trueline.workspace.transfer.remote import StoreRemote, block_bytes
from trueline.workspace.transfer.report import Comparison, Transferred, another_dataset

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)
_LAYOUT: Final = {*Folder, "refs", "info", "private"}


def push(
    dataset: Dataset, url: str | os.PathLike[str], *, force: bool = False, **options: Any
) -> Transferred:
    """Send a dataset, or what is new of it, to a folder or an object store.

    Data and checkpoints go first, then blocks, then the head moves; readers
    there see all of it or nothing. With `force` the target's own blocks are
    cut off; it has to be the same dataset all the same.
    """
    if _HTTP.match(os.fspath(url)):
        raise InputError(
            f"{url} is read only: a static file server accepts no writes",
            remedy="push to the folder or the object store behind it",
            code="NotWritable",
        )
    with closing(open_store(url, **options)) as target:
        _check_place(target)
        chain = dataset.chain
        tasks = partial(
            dataset.workspace._spark.tasks, f"push {dataset.name}", reads=[chain.store], writes=[target]
        )
        done = _Sending(chain, target, tasks).run(dataset.name, force=force)
        sent, left_behind = _send_tags(dataset, target, done.head, force=force)
        return replace(done, tags=sent, left_behind=left_behind)


def _send_tags(
    dataset: Dataset, target: Store, head: Multihash, *, force: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make the tags of what was sent, up to a head, refs of the copy; those it has stay, unless `force`.

    Returns those that were sent, and those whose commits a reset has cut off here.
    """
    chain, sent, left_behind = dataset.chain, list[str](), list[str]()
    for name, block in sorted(chain.tags().items()) if chain.tags is not None else ():
        there = target.head(name)
        if there == block:
            continue
        if chain.entry(block) is None:
            left_behind.append(name)
        elif chain.is_ancestor(block, head) and (there is None or force):
            with suppress(RefCASFailed):  # another push was faster
                target.move_head(block, expected=there, ref=name)
                sent.append(name)
    return tuple(sent), tuple(left_behind)


def _check_place(target: Store) -> None:
    """Do not spread a dataset over a folder that holds something else."""
    if not isinstance(target, FileStore) or target.head() is not None:
        return
    folder = Path(target.location)
    foreign = (
        sorted(path.name for path in folder.iterdir() if path.name not in _LAYOUT) if folder.exists() else []
    )
    if foreign:
        raise InputError(
            f"{folder} holds {foreign[0]!r}, which is not part of a dataset",
            remedy=f"push to a folder of its own, such as {folder / 'datasets' / 'NAME'}",
            code="NotADataset",
            path=str(folder),
        )


class _Sending:
    """One transfer out of a chain; `tasks` says who sends the data, None for this process."""

    def __init__(self, chain: Chain, target: Store, tasks: Callable[[], Tasks | None]) -> None:
        self._tasks = tasks
        self._chain = chain
        self._target = target
        self._source = StoreRemote(chain.store)

    def run(self, name: str, *, force: bool) -> Transferred:
        chain, target = self._chain, self._target
        tail = chain.tail()
        assert tail is not None
        before = target.head()
        removals = removals_of(chain)
        copied = Copied()
        count = 0
        if before != tail.head:
            base = self._base(tail, before, force=force)
            with target.lease():
                wanted = list(self._wanted(base, tail.head, removals))
                check_room(target, wanted)
                tasks = self._tasks() if wanted else None
                copy_objects(self._source, target, wanted, copied, label="sending data", tasks=tasks)
                names = [entry.hash for entry in chain.entries(base, tail.head)] if base != tail.head else []
                count = len(names)
                copied.bytes += put_blocks(target, (self._raw(block) for block in names))
                self._move(tail.head, before)
                if base is not None and removals:
                    since = chain.sequence_of(base)
                    clear(chain, removals, after=-1 if since is None else since, store=target)
        return Transferred(
            name,
            chain.store.location,
            target.location,
            before,
            tail.head,
            count,
            copied.objects,
            copied.bytes,
            copied.kept,
        )

    def _base(self, tail: Tail, before: Multihash | None, *, force: bool) -> Multihash | None:
        """Return the last block both have; refuse a target that is not an earlier state of this dataset."""
        name, beyond = before, 0
        seed: Block | None = None
        there = StoreRemote(self._target)
        while name is not None and self._chain.entry(name) is None:
            seed = Block.from_bytes(block_bytes(there, name), name=name)
            beyond += 1
            name = seed.prev_block_hash
        if name is None and seed is not None and isinstance(seed.event, Seed):
            ids = (str(tail.dataset_id), str(seed.event.dataset_id))
            if ids[0] != ids[1]:
                raise another_dataset(self._source.location, self._target.location, ids)
        last = self._chain.sequence_of(name) if name is not None else -1
        assert last is not None
        compared = Comparison(name, tail.sequence_number - last, beyond)
        refusal = compared.refusal(self._source.location, self._target.location)
        if refusal is not None and not force:
            raise refusal
        return name

    def _wanted(self, base: Multihash | None, head: Multihash, removals: Removals) -> Iterator[Reference]:
        seen: set[Any] = set()
        if base == head:
            return
        for _, block in self._chain.between(base, head):
            for reference in references(block, self._chain.store, seen):
                if not removals.is_gone(block, reference):
                    yield reference
                else:
                    seen.discard((reference.folder, reference.hash))

    def _raw(self, name: Multihash) -> bytes:
        raw = self._chain.store.get(Folder.BLOCKS, name, limit=MAX_BLOCK_BYTES)
        return raw if Multihash.of(raw) == name else block_bytes(self._source, name)

    def _move(self, head: Multihash, before: Multihash | None) -> None:
        try:
            self._target.move_head(head, expected=before)
        except RefCASFailed:
            if self._target.head() != head:
                raise
