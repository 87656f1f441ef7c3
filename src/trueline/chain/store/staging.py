"""Objects on their way into a file store: written, then made durable, then named."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trueline.chain.store.files import Files
from trueline.chain.store.folders import Folders
from trueline.chain.store.leases import GC_LOCK, Lease, Leases
from trueline.chain.store.store import Folder
from trueline.errors import CorruptionError, StoreError
from trueline.identity.multihash import Multihash

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# From here on one syncfs is cheaper than an fsync for each file; up to here files stay open until then.
MANY: Final = 16
# Bounds what is kept in memory about staged objects (414 bytes each, so 27 MB).
STAGED_AT_MOST: Final = 65_536
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class StagedFile:
    """A file in the staging folder; it takes bytes until it is closed."""

    __slots__ = ("_fd", "_files", "_syncing", "lease", "name", "size")

    def __init__(self, files: Files, lease: Lease, name: str) -> None:
        self._files = files
        self.lease = lease
        self.name = name
        self.size = 0
        self._syncing: Future[None] | None = None
        self._fd: int | None = files.create(name, lease.staging)

    def write(self, data: bytes | memoryview) -> None:
        assert self._fd is not None
        self._files.write(self._fd, data)
        self.size += len(data)

    @property
    def modified(self) -> float:
        """When it was last written, by the file system's clock; now, if it has just got its name."""
        try:
            return self._files.modified(self.name, self.lease.staging)
        except FileNotFoundError:
            return time.time()

    def hasten(self) -> None:
        """Begin to make the bytes durable while the caller goes on; `fsync` waits for it."""
        if self._fd is not None and self._syncing is None:
            self._syncing = in_background(self._files.fsync, self._fd)

    def fsync(self) -> None:
        """Make the bytes durable."""
        if self._syncing is not None:
            self._syncing.result()
        elif self._fd is not None:
            self._files.fsync(self._fd)
        else:
            fd = self._files.open(self.name, self.lease.staging)
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)

    def close(self) -> None:
        """Take no more bytes; harmless when repeated."""
        if self._syncing is not None:
            # Its descriptor must not become another file's under it; `fsync` tells how it went.
            with suppress(OSError):
                self._syncing.result()
        fd, self._fd = self._fd, None
        if fd is not None:
            self._files.close(fd)

    def leave(self) -> None:
        """Close what a forked child has of its parent's file; who syncs it is not here to be waited for."""
        fd, self._fd, self._syncing = self._fd, None, None
        if fd is not None:
            self._files.close(fd)

    def renamed(self) -> None:
        """Note that the file has its last name: there is nothing to throw away."""
        self.close()
        self.name = ""

    def remove(self) -> None:
        """Throw the file away, as far as that can be done."""
        with suppress(OSError):
            self.close()
        if self.name:
            with suppress(OSError):
                self._files.unlink(self.name, self.lease.staging)


class Staging:
    """What one store instance has staged, and the lease it does so under.

    The lease lasts while someone holds it, while something is staged, and
    after a put outside any lease until `settle`.
    """

    def __init__(self, folders: Folders, leases: Leases, files: Files, *, durable: bool) -> None:
        self._folders = folders
        self._leases = leases
        self._files = files
        self._durable = durable
        self._mutex = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lease: Lease | None = None
        self._callers: dict[int, int] = {}
        self._lost: dict[int, OSError] = {}
        self._writers = 0
        self._implicit = False
        self._staged: dict[tuple[Folder, Multihash], StagedFile] = {}
        self._unsynced: set[Folder] = set()
        self._numbers = count()

    # --- the lease --------------------------------------------------------

    def hold(self) -> None:
        """Take the lease, or join those who hold it."""
        with self._mutex:
            self._begin()
            thread = threading.get_ident()
            self._callers[thread] = self._callers.get(thread, 0) + 1

    def let_go(self) -> None:
        """Leave it; the last one ends it, unless something waits for the next `move_head`."""
        with self._mutex:
            if self._pid == os.getpid():
                thread = threading.get_ident()
                self._callers[thread] -= 1
                if not self._callers[thread]:
                    del self._callers[thread]
                    self._lost.pop(thread, None)
                self._implicit = self._implicit or bool(self._staged)
                self._end_if_idle()

    def lease_name(self) -> str:
        """Return the name of the lease that is held, for what else it covers."""
        with self._mutex:
            return self._begin().name

    def confirm(self, *, since: float) -> None:
        """See that the lease was never lost; if it was, puts outside a lease do not hold on to it."""
        with self._mutex:
            try:
                self._leases.confirm(self._begin(), since)
            except StoreError:
                self._implicit = bool(self._staged)
                raise

    def settle(self) -> None:
        """Say that the head has moved: puts outside a lease need it no longer."""
        with self._mutex:
            self._implicit = bool(self._staged)

    def _leave_to_parent(self) -> None:
        """A forked child must not touch what its parent has staged or leased."""
        if self._pid != os.getpid():
            for file in self._staged.values():
                with suppress(OSError):
                    file.leave()
            self._forget()

    def _begin(self) -> Lease:
        self._leave_to_parent()
        if self._lease is None:
            self._lease = self._leases.begin()
        return self._lease

    def _end_if_idle(self) -> None:
        busy = self._callers or self._writers or self._implicit or self._staged
        if self._lease is not None and not busy:
            self._leases.end(self._lease)
            self._lease = None

    # --- staging ----------------------------------------------------------

    def create(self) -> StagedFile:
        """Start a file; it must come to `add` or `drop`."""
        with self._mutex:
            if len(self._staged) >= STAGED_AT_MOST:
                self.sync()
            lease = self._begin()
            self._writers += 1
            try:
                return StagedFile(self._files, lease, f"{lease.name}.{next(self._numbers)}")
            except BaseException:
                self._writers -= 1
                self._end_if_idle()
                raise

    def add(self, folder: Folder, name: Multihash, file: StagedFile) -> None:
        """Stage a file, which takes no more bytes, under its name."""
        with self._mutex:
            if not self._durable or len(self._staged) >= MANY:
                file.close()
            if file.lease is not self._lease or self._pid != os.getpid():
                raise OSError(errno.ESTALE, "the store was closed while an object was being written")
            self._writers -= 1
            self._implicit = self._implicit or not self._callers
            if (folder, name) in self._staged:
                file.remove()
                return
            self._staged[folder, name] = file

    def drop(self, file: StagedFile) -> None:
        """Throw away a file that was not added."""
        file.remove()
        with self._mutex:
            if file.lease is self._lease and self._pid == os.getpid():
                self._writers -= 1
                self._end_if_idle()

    def find(self, folder: Folder, name: Multihash) -> StagedFile | None:
        """Return a staged object's file; it may get its name, and lose this one, at any time."""
        return self._staged.get((folder, name)) if self._staged else None

    def removed(self, folder: Folder) -> None:
        """Note that a name was taken away, which lasts from the next `sync` on."""
        with self._mutex:
            self._leave_to_parent()
            self._unsynced.add(folder)

    def close(self) -> None:
        """Give up what is staged and end the lease."""
        with self._mutex:
            self._leave_to_parent()
            if self._lease is not None:
                self._discard()
                self._leases.end(self._lease)
            self._forget()

    def _discard(self) -> None:
        for file in self._staged.values():
            file.remove()
        self._staged.clear()

    # --- naming -----------------------------------------------------------

    def sync(self, head: StagedFile | None = None) -> None:
        """Make everything staged durable, then give it its names, then make those durable.

        The bytes of the next head are made durable at the same time; its name is given later, by the store.
        """
        with self._mutex:
            self._leave_to_parent()
            if lost := self._lost.get(threading.get_ident()):
                # The same refusal for all: to a disk that is full the answer is another than to a broken one.
                raise OSError(lost.errno, f"what was written could not be made durable ({lost})")
            if self._durable and (self._staged or head is not None):
                self._flush(head)
            for (folder, name), file in list(self._staged.items()):
                self._publish(folder, name, file)
                del self._staged[folder, name]
            if self._durable:
                self._sync_folders()
            self._unsynced.clear()

    def _sync_folders(self) -> None:
        """Make new names durable; the folders are synced at the same time."""
        folders = [self._folders.make(folder) for folder in sorted(self._unsynced)]
        others = [in_background(self._files.fsync, fd) for fd in folders[1:]]
        try:
            if folders:
                self._files.fsync(folders[0])
        finally:
            wait_for_all(others)

    def _flush(self, head: StagedFile | None) -> None:
        """Make the bytes of all staged objects, and of the next head, durable.

        When that fails they are all given up: the kernel reports a lost page
        once, and a second fsync would succeed without having written it.
        """
        try:
            # The dataset's own descriptor is older than anything staged, so that
            # syncfs reports every failed write since (Linux 5.8 and later).
            if len(self._staged) <= MANY or not self._files.syncfs(self._folders.make("")):
                files = list(self._staged.values())
                for file in files[:-1]:
                    file.hasten()
                if head is not None:
                    head.hasten()
                for file in reversed(files):
                    file.fsync()
            if head is not None:
                head.fsync()
        except OSError as error:
            self._discard()
            # Others staged with us: their commits must not move a head over what is gone.
            self._lost = {thread: error for thread in self._callers if thread != threading.get_ident()}
            raise

    def _publish(self, folder: Folder, name: Multihash, file: StagedFile) -> None:
        """Give a staged object its name, durable once its folder is synced."""
        within = self._folders.make(folder)
        self._unsynced.add(folder)
        file.close()
        try:
            self._files.link(file.name, file.lease.staging, name, within)
        except FileExistsError:
            self._meet(folder, name, file, within)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No hard links here: a rename replaces what is there by the same bytes.
            self._files.rename(file.name, file.lease.staging, name, within)
        else:
            file.remove()

    def _meet(self, folder: Folder, name: Multihash, file: StagedFile, within: int) -> None:
        """Rely on an object that is there already, or replace it if it is damaged.

        The lock keeps `delete` from removing it between the look and the new
        time; from then on its time says that a commit in flight needs it.
        """
        with self._leases.locked(GC_LOCK, exclusive=False):
            if self._is_intact(folder, name, file, within):
                # Another user's file may refuse the new time; ours may take its place.
                with suppress(PermissionError):
                    self._files.touch(name, within)
                    file.remove()
                    return
            self._files.rename(file.name, file.lease.staging, name, within)

    def _is_intact(self, folder: Folder, name: Multihash, file: StagedFile, within: int) -> bool:
        """Whether the object has the right size; blocks, which are small, the right bytes."""
        try:
            if folder is Folder.BLOCKS:
                return self._files.read(name, within, file.size) == self._files.read(
                    file.name, file.lease.staging
                )
            return self._files.size(name, within) == file.size
        except FileNotFoundError:
            return False
        except IsADirectoryError:
            path = self._folders.shown(folder, name)
            raise CorruptionError(
                f"{path} is in the place of an object but is not a file",
                remedy="move it away, then try again",
                path=path,
            ) from None
        except OSError as error:
            # A link is damage too; the rename puts the object in its place and leaves alone where it led.
            if error.errno in (errno.EFBIG, errno.ELOOP):
                return False
            raise


T = TypeVar("T")


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads; each is started when it is first needed."""
    from concurrent.futures import ThreadPoolExecutor  # 10 ms with logging, which only writers need

    # A commit syncs three files at once, one of them by itself; its rows are hashed meanwhile.
    return ThreadPoolExecutor(3, thread_name_prefix="trueline-background")


# A forked child has none of its parent's threads, nor what they were asked for.
os.register_at_fork(after_in_child=_pool.cache_clear)


def in_background(call: Callable[..., T], *args: object) -> Future[T]:
    """Begin a call in one of a few threads that are kept; it must not wait for another one.

    >>> in_background(sum, [1, 2]).result()
    3
    """
    try:
        return _pool().submit(call, *args)
    except RuntimeError:  # Python is ending, and starts nothing any more
        return _made_here(call, *args)


def _made_here(call: Callable[..., T], *args: object) -> Future[T]:
    from concurrent.futures import Future

    made: Future[T] = Future()
    try:
        made.set_result(call(*args))
    except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
        made.set_exception(error)
    return made


def wait_for_all(calls: Sequence[Future[Any]]) -> None:
    """Wait until every call has ended, then raise what the first that failed has raised."""
    from concurrent.futures import wait

    wait(calls)
    for call in calls:
        call.result()
