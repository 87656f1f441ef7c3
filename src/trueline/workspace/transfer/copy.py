"""Copying objects side by side; each is bounded by its size and proven by its hash while it passes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from trueline import console
from trueline.chain.references import Reference
from trueline.chain.store.file import FileStore
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.store import Folder, Store
from trueline.errors import CorruptionError, HashMismatch, ObjectMissing, StorageFull, StoreError
from trueline.identity.multihash import HashingWriter, physical_hash
from trueline.kernel.tasks import Tasks
from trueline.workspace.http import Interrupted
from trueline.workspace.transfer.remote import Remote

WORKERS: Final = 8
# What has arrived is made durable in between, so that an interruption costs no more than this.
_SYNC_BYTES: Final = 64 << 20
_SYNC_OBJECTS: Final = 256
_SHARE_BYTES: Final = 32 << 20
_SHARE_OBJECTS: Final = 32
_ATTEMPTS: Final = 3
_DAMAGED: Final = "the source is damaged: verify it there, or take another copy"


@dataclass(slots=True)
class Copied:
    """How much went over, and how many objects were there already."""

    objects: int = 0
    bytes: int = 0
    kept: int = 0


def copy_objects(
    source: Remote,
    target: Store,
    wanted: Iterable[Reference],
    copied: Copied,
    *,
    label: str,
    tasks: Tasks | None = None,
) -> None:
    """Bring objects from a source to a store; those that are there, whole and right, are kept.

    The caller holds a lease on the target and moves its head afterwards. With `tasks` these bring them.
    """
    if tasks is not None:
        _copy_by_tasks(source, target, wanted, copied, label=label, tasks=tasks)
        return
    waiting = iter(wanted)
    under_way: set[Future[int | None]] = set()
    unsynced = _Unsynced(target)
    stop = threading.Event()
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="trueline-transfer")
    try:
        with console.current().progress(label) as bar:
            while True:
                under_way |= {
                    pool.submit(_copy, source, target, reference, stop)
                    for reference in islice(waiting, 2 * WORKERS - len(under_way))
                }
                if not under_way:
                    break
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    size = future.result()
                    bar.advance()
                    if size is None:
                        copied.kept += 1
                    else:
                        copied.objects += 1
                        copied.bytes += size
                        unsynced.add(size)
                        bar.describe(f"{label}, {copied.bytes:,} bytes")
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        # What did arrive is kept, whatever stopped the rest.
        with suppress(StoreError):
            target.sync()
    target.sync()


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Some objects to be brought from a source to a store, small enough for one task."""

    source: Remote
    target: Store
    references: tuple[Reference, ...]


def copy_some(task: CopyTask) -> list[int | None]:
    """Copy objects; they are durable under their names when this returns. Doing it twice does no harm."""
    with task.target.lease():
        done = [_copy(task.source, task.target, each, threading.Event()) for each in task.references]
        task.target.sync()
    return done


def _copy_by_tasks(
    source: Remote,
    target: Store,
    wanted: Iterable[Reference],
    copied: Copied,
    *,
    label: str,
    tasks: Tasks,
) -> None:
    work = [CopyTask(source, target, each) for each in _shares(wanted)]
    for _, sizes in tasks.map(copy_some, work, label=label):
        for size in sizes:
            copied.kept += size is None
            copied.objects += size is not None
            copied.bytes += size or 0


def _shares(wanted: Iterable[Reference]) -> Iterator[tuple[Reference, ...]]:
    """Cut objects into shares for a task each: by bytes, and small ones by their number."""
    share: list[Reference] = []
    size = 0
    for reference in wanted:
        if share and (size + (reference.size or 0) > _SHARE_BYTES or len(share) >= _SHARE_OBJECTS):
            yield tuple(share)
            share, size = [], 0
        share.append(reference)
        size += reference.size or 0
    if share:
        yield tuple(share)


class _Unsynced:
    """Makes a store durable every so often."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bytes = self._objects = 0

    def add(self, size: int) -> None:
        self._bytes += size
        self._objects += 1
        if self._bytes >= _SYNC_BYTES or self._objects >= _SYNC_OBJECTS:
            self._store.sync()
            self._bytes = self._objects = 0


def _copy(source: Remote, target: Store, reference: Reference, stop: threading.Event) -> int | None:
    """Copy one object, again if the connection broke; None if it was there.

    One that an interrupted transfer left is old, and unreferenced as yet: without a new time `gc`
    might remove it before the head moves.
    """
    if _is_there(target, reference) and target.renew(reference.folder, reference.hash):
        return None
    for attempt in range(_ATTEMPTS):
        try:
            return _copy_once(source, target, reference, stop)
        except Interrupted:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _copy_once(source: Remote, target: Store, reference: Reference, stop: threading.Event) -> int:
    folder, name = reference.folder, reference.hash
    shown = f"{folder}/{name} of {source.location}"
    size, expected = 0, reference.size or 0
    writer = target.writer(folder)
    try:
        with source.chunks(folder, name) as chunks:
            for chunk in chunks:
                if stop.is_set():
                    raise StoreError("the transfer was stopped", remedy="start it again")
                size += len(chunk)
                if size > expected:
                    raise CorruptionError(
                        f"{shown} has more than the {expected:,} bytes its block says", remedy=_DAMAGED
                    )
                writer.write(chunk)
        if size < expected:
            raise Interrupted(
                f"{shown} ended after {size:,} of {expected:,} bytes",
                remedy="try again: what has arrived is kept; if it stays so, the source is damaged",
            )
        assert isinstance(writer, HashingWriter)
        if (actual := writer.hash()) != name:
            raise HashMismatch(f"{shown} hashes to {actual}", remedy=_DAMAGED, expected=name, actual=actual)
        writer.finish()
    finally:
        writer.abandon()
    return size


def _is_there(target: Store, reference: Reference) -> bool:
    """See whether the target has an object; a damaged one is cleared away.

    An object store shows whole objects only, and hashing one means fetching
    it, so there the size has to do.
    """
    folder, name = reference.folder, reference.hash
    size = target.size(folder, name)
    if size is None:
        return False
    if size == reference.size:
        if isinstance(target, ObjectStore):
            return True
        with suppress(ObjectMissing), target.open(folder, name) as file:
            if physical_hash(file) == name:
                return True
    target.delete(folder, name)
    return False


def check_room(target: Store, wanted: Iterable[Reference]) -> None:
    """Refuse before the first byte what cannot fit on the disk."""
    if not isinstance(target, FileStore):
        return
    needed = sum(reference.size or 0 for reference in wanted)
    folder = next(path for path in (Path(target.location), *Path(target.location).parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageFull(
            f"{needed:,} bytes are needed, {folder} has {free:,} bytes free",
            remedy="free some space there, or choose another place",
            path=str(folder),
        )


def put_blocks(target: Store, blocks: Iterator[bytes]) -> int:
    """Stage blocks as they are; returns how many bytes. Object stores take several at a time."""
    if not isinstance(target, ObjectStore):
        return sum(len(raw) for raw in blocks if target.put(Folder.BLOCKS, raw))
    size = 0
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="trueline-transfer") as pool:
        while page := list(islice(blocks, 1024)):
            list(pool.map(lambda raw: target.put(Folder.BLOCKS, raw), page))
            size += sum(map(len, page))
    return size
