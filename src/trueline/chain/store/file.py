"""A dataset in a folder of a local file system."""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO, Final

from trueline.chain.store.files import Files, refusal
from trueline.chain.store.folders import Folders, Inside, inside
from trueline.chain.store.leases import GC_LOCK, HEAD_LOCK, SCRATCH, STAGING, TURN_LOCK, Leases
from trueline.chain.store.scratch import FolderScratch
from trueline.chain.store.staging import StagedFile, Staging, in_background
from trueline.chain.store.store import (
    Folder,
    NamingWriter,
    Stored,
    check_ref,
    head_moved,
    is_ref,
    object_missing,
)
from trueline.errors import CorruptionError, InputError, OutcomeUnknown, StoreError, TruelineError
from trueline.identity.multihash import Multihash

REFS: Final = "refs"
_REF_BYTES: Final = 4096
_OBJECT_NAME: Final = re.compile(r"f[0-9a-f]{68,74}")
# Writing a file through to the disk takes as long as hashing 100 kB, so the two are done at once.
_HASTENED_BYTES: Final = 4096
_NOT_AN_OBJECT: Final = {errno.EFBIG, errno.EISDIR}


class FileStore:
    """Objects and head of one dataset as files, in the Open Data Fabric layout.

    `blocks/ data/ checkpoints/` hold objects under their hashes, `refs/head`
    the hash of the newest block; what is ours alone is under `private/`.
    Bytes are durable before they get their name, and everything is durable
    before the head moves. `durable=False` leaves out the syncing only.
    The path may be a link, nothing below it: see `Inside`, which may be given as well.

    One store may be used from several threads; those that commit at the same
    time each hold a `lease()`. A forked child starts with nothing staged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FileStore(folder)
    ...     block = store.put(Folder.BLOCKS, b"first")
    ...     store.move_head(block, expected=None)
    ...     again = FileStore(folder)
    ...     again.get(Folder.BLOCKS, again.head())
    b'first'
    """

    def __init__(
        self, path: str | os.PathLike[str] | Inside, *, files: Files | None = None, durable: bool = True
    ) -> None:
        self.place = inside(path)
        self.location = str(self.place)
        self._files = files or Files()
        self._durable = durable
        self._folders = Folders(self.place, self._files, durable=durable)
        self._leases = Leases(self._folders, self._files)
        self._alone: int | None = None
        self._staging = Staging(self._folders, self._leases, self._files, durable=durable)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.place, self._durable))

    def __repr__(self) -> str:
        return f"FileStore({self.location!r})"

    def __del__(self) -> None:
        # While the interpreter ends, modules it needs may be gone.
        with suppress(AttributeError, OSError, TypeError):
            self.close()

    # --- reading ----------------------------------------------------------

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        try:
            if staged := self._staging.find(folder, name):
                with suppress(FileNotFoundError):
                    return self._files.read(staged.name, staged.lease.staging, limit)
            return self._files.read(name, self._existing(folder), limit)
        except OSError as error:
            raise self._unreadable(error, folder, name) from None

    def open(self, folder: Folder, name: Multihash) -> BinaryIO:
        try:
            if staged := self._staging.find(folder, name):
                with suppress(FileNotFoundError):
                    return os.fdopen(self._files.open(staged.name, staged.lease.staging), "rb")
            return os.fdopen(self._files.open(name, self._existing(folder)), "rb")
        except OSError as error:
            raise self._unreadable(error, folder, name) from None

    def size(self, folder: Folder, name: Multihash) -> int | None:
        if staged := self._staging.find(folder, name):
            return staged.size
        try:
            return self._files.size(name, self._existing(folder))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error, folder, name) from None

    def list(self, folder: Folder) -> Iterator[Stored]:
        with self._refusing("list", folder):
            within = self._folders.find(folder)
            if within is None:
                return
            for entry in self._files.entries(within):
                if not (_OBJECT_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)):
                    continue
                try:
                    name, found = Multihash(entry.name), entry.stat(follow_symlinks=False)
                except (InputError, FileNotFoundError):
                    continue
                yield Stored(name, found.st_size, found.st_mtime)

    def _existing(self, folder: str) -> int:
        found = self._folders.find(folder)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
        return found

    def _unreadable(self, error: OSError, folder: Folder, name: Multihash) -> TruelineError:
        if error.errno == errno.ENOENT:
            return object_missing(folder, name, self.location)
        path = self._folders.shown(folder, name)
        if error.errno in _NOT_AN_OBJECT:
            return CorruptionError(
                f"{path} is not the object its name says: {error.strerror}",
                remedy="move it away and restore the object from a copy of the dataset",
                path=path,
            )
        return refusal(error, "read", path)

    # --- writing objects --------------------------------------------------

    def put(self, folder: Folder, data: bytes) -> Multihash:
        with self._refusing("write to", folder):
            file = self._staging.create()
            try:
                file.write(data)
                if self._durable and len(data) >= _HASTENED_BYTES:
                    file.hasten()
                name = Multihash.of(data)
                self._staging.add(folder, name, file)
            except BaseException:
                self._staging.drop(file)
                raise
        return name

    def writer(self, folder: Folder) -> NamingWriter:
        with self._refusing("write to", folder):
            file = self._staging.create()

        def keep(name: Multihash, size: int) -> Stored:
            with self._refusing("write to", folder):
                self._staging.add(folder, name, file)
                return Stored(name, size, file.modified)

        return NamingWriter(_Refusing(self, folder, file), keep, lambda: self._staging.drop(file))

    def renew(self, folder: Folder, name: Multihash) -> bool:
        with self._refusing("write to", folder):
            within = self._folders.find(folder)
            if self._staging.find(folder, name) is not None or within is None:
                return within is not None
            # `delete` looks and removes under the same lock.
            with self._leases.locked(GC_LOCK, exclusive=False), suppress(FileNotFoundError, PermissionError):
                self._files.touch(name, within)
                return True
        return False

    def sync(self) -> None:
        with self._refusing("make durable", ""):
            self._staging.sync()

    def delete(self, folder: Folder, name: Multihash, *, unless_after: float | None = None) -> bool:
        with self._refusing("remove from", folder):
            within = self._folders.find(folder)
            if within is None:
                return False
            with self._leases.locked(GC_LOCK, exclusive=True):
                try:
                    # Not earlier counts as after: a file system's clock does not advance within a tick.
                    if unless_after is not None and self._files.modified(name, within) >= unless_after:
                        return False
                    self._files.unlink(name, within)
                except FileNotFoundError:
                    return False
            self._staging.removed(folder)
            return True

    # --- the head ---------------------------------------------------------

    def head(self, ref: str = "head") -> Multihash | None:
        check_ref(ref)
        path = self._folders.shown(REFS, ref)
        try:
            text = self._files.read(ref, self._existing(REFS), _REF_BYTES)
            return Multihash(text.decode("ascii").strip())
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _NOT_AN_OBJECT:
                raise refusal(error, "read", path) from error
            found = error.strerror
        except ValueError:
            found = f"it holds {text[:80]!r}"
        raise CorruptionError(
            f"{path} does not name a block: {found}",
            remedy="write into it the hash of the newest block, as another copy of the dataset has it",
            path=path,
        )

    def refs(self) -> Iterator[str]:
        with self._refusing("list", REFS):
            within = self._folders.find(REFS)
            entries = () if within is None else self._files.entries(within)
            yield from [
                entry.name for entry in entries if is_ref(entry.name) and entry.is_file(follow_symlinks=False)
            ]

    def move_head(
        self,
        new: Multihash,
        *,
        expected: Multihash | None,
        ref: str = "head",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        check_ref(ref)
        with self.lease():
            file = self._head_file(new, ref)
            try:
                with self._refusing("make durable", ""):
                    self._staging.sync(head=file)
                if self.size(Folder.BLOCKS, new) is None:
                    self._staging.confirm(since=file.modified)
                    raise object_missing(Folder.BLOCKS, new, self.location)
                with self._refusing("move", REFS, ref):
                    refs = self._folders.make(REFS)
                    with self._moving():
                        found = self.head(ref)
                        if found != expected:
                            raise head_moved(ref, expected, found, self.location)
                        self._staging.confirm(since=file.modified)
                        self._replace(ref, file, new, expected, refs)
                        self._confirm(ref, new, refs, meanwhile)
            finally:
                self._staging.drop(file)
            self._staging.settle()

    def _head_file(self, new: Multihash, ref: str) -> StagedFile:
        """Write the next head beside everything else, so that one wait makes all of it durable."""
        with self._refusing("move", REFS, ref):
            file = self._staging.create()
            try:
                file.write(new.encode("ascii"))
            except BaseException:
                self._staging.drop(file)
                raise
            return file

    def _replace(
        self, ref: str, file: StagedFile, new: Multihash, expected: Multihash | None, refs: int
    ) -> None:
        """Put a file whose bytes are durable in the place of the head."""
        try:
            self._files.rename(file.name, file.lease.staging, ref, refs)
        except OSError as error:
            # Over a network a rename may have been done although it failed.
            if self._is_still(ref, expected):
                raise
            raise self._unknown(error, ref, new) from error
        file.renamed()

    def _confirm(self, ref: str, new: Multihash, refs: int, meanwhile: Callable[[], None] | None) -> None:
        """Make the new head last; the caller's work, if there is any, is done while the disk writes."""
        syncing = in_background(self._files.fsync, refs) if self._durable and meanwhile is not None else None
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            try:
                if syncing is not None:
                    syncing.result()
                elif self._durable:
                    self._files.fsync(refs)
            except OSError as error:
                raise self._unknown(error, ref, new) from error

    def _is_still(self, ref: str, expected: Multihash | None) -> bool:
        try:
            return self.head(ref) == expected
        except TruelineError:
            return False

    def _unknown(self, error: OSError, ref: str, new: Multihash) -> OutcomeUnknown:
        path = self._folders.shown(REFS, ref)
        return OutcomeUnknown(
            f"{path} was set to {new.short}, but the disk did not confirm it: {error.strerror}",
            remedy="check the disk; then see whether the head is the commit's before trying again",
            path=path,
            new=new,
        )

    # --- leases -----------------------------------------------------------

    @contextmanager
    def lease(self) -> Iterator[None]:
        with self._refusing("write to", ""):
            self._staging.hold()
        try:
            yield
        finally:
            self._staging.let_go()

    def oldest_lease(self) -> float | None:
        with self._refusing("look for leases in", "private"):
            return self._leases.oldest()

    def clock(self) -> float:
        with self._refusing("write to", "private"):
            return self._leases.clock()

    def fence(self) -> float | None:
        # A commit looks at its lease and moves the head under the same lock: it is seen here, or sees us.
        with self._refusing("clear leases in", "private"), self._moving():
            oldest = self._leases.oldest(clear=True)
        # What dead writers had staged may be rows that somebody wants gone.
        with self._refusing("clear leases in", "private"):
            for name in (STAGING, SCRATCH) if self._durable else ():
                if (folder := self._folders.find(name)) is not None:
                    self._files.fsync(folder)
        return oldest

    @contextmanager
    def turn(self, *, alone: bool = False) -> Iterator[None]:
        with self._refusing("wait to write to", "private"), self._leases.locked(TURN_LOCK, exclusive=True):
            if not alone:
                yield
                return
            with self._leases.locked(HEAD_LOCK, exclusive=True):
                self._alone = threading.get_ident()
                try:
                    yield
                finally:
                    self._alone = None

    def _moving(self) -> AbstractContextManager[None]:
        """Keep others from moving a head; a writer whose turn is `alone` does so already."""
        if self._alone == threading.get_ident():
            return nullcontext()
        return self._leases.locked(HEAD_LOCK, exclusive=True)

    @contextmanager
    def scratch(self) -> Iterator[FolderScratch]:
        with self.lease():
            name = f"{self._staging.lease_name()}.{secrets.token_hex(4)}"
            place = FolderScratch(Inside(self.place.root, (*self.place.parts, *SCRATCH.split("/"), name)))
            try:
                yield place
            finally:
                place.clear()

    def close(self) -> None:
        self._staging.close()
        self._leases.close()
        self._folders.close()

    @contextmanager
    def _refusing(self, doing: str, folder: str, name: str = "") -> Iterator[None]:
        """Turn errors of the operating system into ours."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            raise refusal(error, doing, self._folders.shown(folder, name)) from error


class _Refusing:
    """A staged file whose errors name the folder it is for."""

    def __init__(self, store: FileStore, folder: Folder, file: StagedFile) -> None:
        self._path = f"{store.location}/{folder}"
        self._file = file

    def write(self, data: bytes | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise refusal(error, "write to", self._path) from error


def _reopen(place: Inside, durable: bool) -> FileStore:
    return FileStore(place, durable=durable)
