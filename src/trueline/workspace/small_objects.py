"""Small objects beside the datasets of a workspace: put once, or changed by compare-and-set, in any place.

A folder serves by links and renames under fsync, an object store by puts under a condition.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from trueline.chain.store.files import Files, refusal
from trueline.chain.store.folders import MAX_SMALL_BYTES, Inside
from trueline.errors import CorruptionError, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

T = TypeVar("T")
# Of the name and the path of an object that cannot be relied on, and how that shows: the error.
Damaged = Callable[[str, str, str], CorruptionError]
_FILES: Final = Files()
# File systems without links say one of these.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_LOCK: Final = ".lock"
_STAGED: Final = re.compile(r"\..+\.[0-9]+\.[0-9a-f]{8}")
_DAY: Final = 86_400.0
# How often a put that met others, all of which were refused, is tried.
_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class CatalogueBytes:
    """The bytes of a document (None if there is none), and what a store tells their version by."""

    raw: bytes | None
    version: Any = None


class SmallObjects(Protocol):
    """Objects of at most 16 MiB by name; a name may have folders in it, `reached/7/x`."""

    location: str

    def read(self, name: str) -> CatalogueBytes:
        """Return an object as it is; one that cannot be ours raises the error of damage."""

    def put_new(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """Put an object durably, unless there is one: False. Of several who put at once, one does.

        What others have put is durable too when this returns.
        """

    def put(self, name: str, data: bytes) -> None:
        """Put a hint, in place of what is there; a power cut may lose it or leave part of it."""

    def swap(self, name: str, kept: CatalogueBytes, data: bytes) -> bool:
        """Replace an object durably if it is still what was `kept`; False if it is not."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects below a folder, from there on, in order."""

    def remove(self, *names: str) -> None:
        """Remove objects, those that are there, in the given order."""

    def settle(self, folder: str) -> None:
        """Make what others have put directly in a folder durable, before somebody relies on it."""

    def tidy(self, folder: str) -> None:
        """Remove what processes that died a day ago were putting into a folder."""


@contextmanager
def refusing(doing: str, path: Path) -> Iterator[None]:
    """Turn errors of the operating system into ours."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise refusal(error, doing, str(path)) from error


class FolderObjects:
    """Objects in a folder; a link on the way to one is refused."""

    def __init__(self, folder: Inside, damaged: Damaged) -> None:
        self._folder = folder
        self._damaged = damaged
        self.location = str(folder)

    def _at(self, name: str) -> Inside:
        return Inside(self._folder.root, (*self._folder.parts, *name.split("/"))) if name else self._folder

    def read(self, name: str) -> CatalogueBytes:
        place = self._at(name)
        with refusing("read", place.path):
            try:
                return CatalogueBytes(place.read_small())
            except OSError as error:
                if error.errno in (errno.EFBIG, errno.EISDIR):
                    raise self._damaged(name, str(place.path), str(error.strerror)) from None
                raise

    def put_new(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        place = self._at(name)
        staged = _staged(place.name)
        with refusing("write", place.path), place.parent.folder(make=True, durable=durable) as within:
            try:
                _write(staged, within, data, durable=durable)
                put = _linked(staged, place.name, within)
            finally:
                with suppress(FileNotFoundError):
                    _FILES.unlink(staged, within)
            if durable:
                _settled(within, place.path, put=put)
            return put

    def put(self, name: str, data: bytes) -> None:
        place = self._at(name)
        staged = _staged(place.name)
        with refusing("write", place.path), place.parent.folder(make=True) as within:
            try:
                _write(staged, within, data, durable=False)
                _FILES.rename(staged, within, place.name, within)
            except BaseException:
                with suppress(OSError):
                    _FILES.unlink(staged, within)
                raise

    def swap(self, name: str, kept: CatalogueBytes, data: bytes) -> bool:
        place = self._at(name)
        staged = f"{place.name}.new"
        with (
            refusing("write", place.path),
            place.parent.folder(make=True, durable=True) as within,
            locked(f"{place.name}.lock", within),
        ):
            if self.read(name) != kept:
                return False
            # The one name of what is on its way: what a killed process left is replaced by the next.
            with suppress(FileNotFoundError):
                _FILES.unlink(staged, within)
            _write(staged, within, data, durable=True)
            _FILES.rename(staged, within, place.name, within)
            _FILES.fsync(within)
            return True

    def names(self, folder: str) -> list[str]:
        place = self._at(folder)
        found: list[str] = []
        with refusing("list", place.path), suppress(FileNotFoundError), place.parent.folder() as above:
            for path, _, files, _ in os.fwalk(place.name, dir_fd=above, onerror=_raise_unless_gone):
                within = path.partition("/")[2]
                found += [f"{within}/{file}" if within else file for file in files]
        return sorted(name for name in found if not name.rpartition("/")[2].startswith("."))

    def remove(self, *names: str) -> None:
        for name in names:
            place = self._at(name)
            with refusing("remove", place.path):
                place.unlink(missing_ok=True)
            # A folder that was made for one thing goes with its last object.
            if name.count("/") > 1:
                with suppress(OSError), place.parent.parent.folder() as above:
                    _FILES.remove_folder(place.parent.name, above)

    def settle(self, folder: str) -> None:
        place = self._at(folder)
        with refusing("sync", place.path), suppress(FileNotFoundError), place.folder() as within:
            _FILES.fsync(within)

    def tidy(self, folder: str) -> None:
        place = self._at(folder)
        with refusing("list", place.path):
            found = place.listing()
        for name, of in found:
            if _STAGED.fullmatch(name) and of.st_mtime < time.time() - _DAY:
                with suppress(OSError):
                    (place / name).unlink()


def _staged(name: str) -> str:
    return f".{name}.{os.getpid()}.{secrets.token_hex(4)}"


def _write(name: str, within: int, data: bytes, *, durable: bool) -> None:
    fd = _FILES.create(name, within)
    try:
        _FILES.write(fd, data)
        if durable:
            _FILES.fsync(fd)
    finally:
        _FILES.close(fd)


def _linked(staged: str, name: str, within: int) -> bool:
    """Give a staged file its name; False if the name is taken."""
    try:
        _FILES.link(staged, within, name, within)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with locked(_LOCK, within):
            try:
                os.stat(name, dir_fd=within, follow_symlinks=False)
            except FileNotFoundError:
                _FILES.rename(staged, within, name, within)
                return True
            return False
    return True


@contextmanager
def locked(name: str, within: int) -> Iterator[None]:
    """Let one process after another change what is in a folder; a file of it is the lock."""
    lock = _FILES.open_lock(name, within)
    try:
        _FILES.lock(lock, exclusive=True)
        yield
    finally:
        _FILES.close(lock)


def _settled(within: int, path: Path, *, put: bool) -> None:
    try:
        _FILES.fsync(within)
    except OSError as error:
        if not put:
            raise
        raise OutcomeUnknown(
            f"{path} was written, but the disk did not confirm it: {error.strerror or error}",
            remedy="check the disk, then do it again: what was written is found, or is written again",
            path=str(path),
        ) from error


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class UrlObjects:
    """Objects below a key of an object store; `refused` makes errors of the store ours."""

    def __init__(
        self,
        client: Client,
        prefix: str,
        location: str,
        damaged: Damaged,
        refused: Callable[[str, Exception], StoreError],
    ) -> None:
        self._client = client
        self._prefix = prefix
        self.location = location
        self._damaged = damaged
        self._refused = refused

    def _asked(self, doing: str, ask: Callable[[], T]) -> T:
        from obstore.exceptions import BaseError

        try:
            return ask()
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            raise self._refused(doing, error) from error

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if name else self._prefix

    def read(self, name: str) -> CatalogueBytes:
        import obstore

        try:
            found = self._asked("read", lambda: obstore.get(self._client, self._key(name)))
            if found.meta["size"] > MAX_SMALL_BYTES:
                path = f"{self.location}/{name}"
                raise self._damaged(name, path, f"it has {found.meta['size']:,} bytes")
            return CatalogueBytes(self._asked("read", lambda: found.bytes().to_bytes()), found.meta)
        except FileNotFoundError:
            return CatalogueBytes(None)

    def put_new(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                obstore.put(self._client, self._key(name), data, mode="create")
            except (BaseError, OSError) as error:
                found = self.read(name).raw
                if found is not None:
                    # The library may have sent a request again that had been done.
                    return found == data
                # S3 may refuse all of several writes that meet; then nothing is there yet.
                met = isinstance(error, AlreadyExistsError | PreconditionError)
                if not met or attempt == _ATTEMPTS:
                    raise self._refused("write to", error) from error
            else:
                return True
        raise AssertionError("the last attempt returns or raises")

    def put(self, name: str, data: bytes) -> None:
        import obstore

        self._asked("write to", lambda: obstore.put(self._client, self._key(name), data))

    def swap(self, name: str, kept: CatalogueBytes, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        from trueline.chain.store.object_client import condition

        try:
            obstore.put(self._client, self._key(name), data, mode=condition(kept.version))
        except (BaseError, OSError) as error:
            # The library may have sent a request again that had been done.
            if self.read(name).raw == data:
                return True
            if isinstance(error, AlreadyExistsError | PreconditionError | FileNotFoundError):
                return False
            raise self._refused("write to", error) from error
        return True

    def names(self, folder: str) -> list[str]:
        import obstore

        within = self._key(folder)
        pages = self._asked("list", lambda: list(obstore.list(self._client, within)))
        return sorted(meta["path"].removeprefix(f"{within}/") for page in pages for meta in page)

    def remove(self, *names: str) -> None:
        import obstore

        keys = [self._key(name) for name in names]
        if not keys:
            return
        try:
            self._asked("remove from", lambda: obstore.delete(self._client, keys))
        except FileNotFoundError:
            # Some stores refuse to remove what is not there, and stop at the first.
            for key in keys:
                with suppress(FileNotFoundError):
                    self._asked("remove from", lambda key=key: obstore.delete(self._client, key))  # type: ignore[misc]

    def settle(self, folder: str) -> None:
        """Do nothing: an object store answers when what was put is durable."""

    def tidy(self, folder: str) -> None:
        """Do nothing: an object is there whole or not at all."""
