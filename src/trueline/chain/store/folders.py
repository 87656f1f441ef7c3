"""Folders and files below one that the user named, reached without following a link; those of one dataset."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from trueline.chain.store.files import Files, link_refused, make_folders
from trueline.errors import LinkRefused

if TYPE_CHECKING:
    import sqlite3


MAX_SMALL_BYTES: Final = 16 << 20
_FILES: Final = Files()
_SQLITE: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Inside:
    """A place below a folder the user named; that folder may be a link, what is below it may not.

    Each use opens the folders on the way one by one, by descriptor, so a folder that is replaced by a
    link is either met as the link, which raises `LinkRefused`, or is still the folder it was.

    >>> place = Inside(Path("/srv/lake")) / ".trueline" / "seen" / "trades.json"
    >>> str(place), place.name, place.parent.name
    ('/srv/lake/.trueline/seen/trades.json', 'trades.json', 'seen')
    """

    root: Path
    parts: tuple[str, ...] = ()

    def __truediv__(self, name: str) -> Inside:
        return Inside(self.root, (*self.parts, name))

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """The path, to be shown or handed to others."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> Inside:
        return Inside(self.root, self.parts[:-1]) if self.parts else Inside(self.root.parent)

    def with_name(self, name: str) -> Inside:
        """Return the place beside this one that has another name."""
        return self.parent / name

    # --- looking --------------------------------------------------------------

    @contextmanager
    def folder(
        self, *, make: bool = False, mode: int = 0o777, durable: bool = False, files: Files | None = None
    ) -> Iterator[int]:
        """Open this folder for the context; with `make` it is made with `mode`, and those above it.

        What is made `durable` survives a power cut: each new folder in the one above.
        """
        files = _FILES if files is None else files
        if make:
            make_folders(self.root)
        fd = files.open_folder(str(self.root))
        try:
            for depth, name in enumerate(self.parts, 1):
                if make:
                    with suppress(FileExistsError):
                        files.make_folder(name, fd, mode if depth == len(self.parts) else 0o777)
                        if durable:
                            files.fsync(fd)
                above, fd = fd, self._entered(name, fd, depth, files)
                files.close(above)
            yield fd
        finally:
            files.close(fd)

    def _entered(self, name: str, within: int, depth: int, files: Files) -> int:
        try:
            return files.open_folder(name, within)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise link_refused(str(Inside(self.root, self.parts[:depth]))) from None
            raise

    def stat(self) -> os.stat_result | None:
        """Return what is known of it, not of what a link there points to; None if nothing is there."""
        try:
            with self.parent.folder() as above:
                return os.stat(self.name, dir_fd=above, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self) -> bool:
        """Say whether anything is there, a dangling link included."""
        return self.stat() is not None

    def check(self, *, folder: bool = False) -> None:
        """Raise `LinkRefused` if there is a link, or something else that is not a file (or a `folder`)."""
        found = self.stat()
        wanted = stat.S_ISDIR if folder else stat.S_ISREG
        if found is not None and not wanted(found.st_mode):
            raise link_refused(str(self), found)

    def listing(self) -> list[tuple[str, os.stat_result]]:
        """Return what is in this folder, by name; nothing if there is no folder."""
        found = []
        try:
            with self.folder() as fd:
                for entry in _FILES.entries(fd):
                    with suppress(FileNotFoundError):
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda pair: pair[0])

    # --- reading and writing --------------------------------------------------

    def open(self) -> BinaryIO:
        """Open a regular file for reading."""
        with self._named() as above:
            return os.fdopen(_FILES.open(self.name, above), "rb")

    def read_bytes(self, limit: int | None = None) -> bytes:
        """Return a file's bytes; EFBIG if there are more than `limit`."""
        with self._named() as above:
            return _FILES.read(self.name, above, limit)

    def read_small(self) -> bytes | None:
        """Return the bytes of a file that is small if it is ours; None if it is not there."""
        try:
            return self.read_bytes(MAX_SMALL_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return a file's text."""
        return self.read_bytes().decode(encoding)

    def create(self) -> BinaryIO:
        """Open a new file for writing; what has its name is removed, never written to."""
        with self._named(make=True) as above:
            try:
                fd = _FILES.create(self.name, above)
            except FileExistsError:
                _FILES.unlink(self.name, above)
                fd = _FILES.create(self.name, above)
            return os.fdopen(fd, "wb")

    def write(self, data: bytes, *, replace: bool, mode: int = 0o644, folder_mode: int = 0o777) -> None:
        """Write a small file whole and durably, or not at all; without `replace` an existing one stays."""
        staged = f".{self.name}.{os.getpid()}.{secrets.token_hex(4)}"
        with self._named(make=True, mode=folder_mode, durable=True) as above:
            fd = _FILES.create(staged, above, mode)
            try:
                try:
                    _FILES.write(fd, data)
                    _FILES.fsync(fd)
                finally:
                    _FILES.close(fd)
                if replace:
                    _FILES.rename(staged, above, self.name, above)
                else:
                    with suppress(FileExistsError):
                        _FILES.link(staged, above, self.name, above)
            finally:
                with suppress(FileNotFoundError):
                    _FILES.unlink(staged, above)
            _FILES.fsync(above)

    @contextmanager
    def _named(self, *, make: bool = False, mode: int = 0o777, durable: bool = False) -> Iterator[int]:
        """Open the folder above; a link in this place raises with its whole path."""
        try:
            with self.parent.folder(make=make, mode=mode, durable=durable) as above:
                yield above
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise link_refused(str(self)) from None
            if error.errno == errno.EISDIR:
                raise link_refused(str(self), self.stat()) from None
            raise

    # --- removing -------------------------------------------------------------

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file, or the link that is in its place."""
        try:
            with self.parent.folder() as above:
                _FILES.unlink(self.name, above)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove(self) -> None:
        """Remove a file durably, if it is there."""
        with suppress(FileNotFoundError), self.parent.folder() as above:
            _FILES.unlink(self.name, above)
            _FILES.fsync(above)

    def remove_tree(self) -> None:
        """Remove a folder and all that is in it, as far as that can be done; links in it are not followed."""
        with suppress(OSError), self.parent.folder() as above:
            remove_tree(self.name, above)

    def remove_own(self, is_ours: Callable[[str], bool]) -> None:
        """Remove the files whose paths below this folder are ours, and the folders that leaves empty."""
        with suppress(OSError), self.parent.folder() as above:
            for folder, folders, files, fd in os.fwalk(self.name, topdown=False, dir_fd=above):
                for name in files:
                    if is_ours(f"{folder}/{name}".partition("/")[2]):
                        with suppress(OSError):
                            _FILES.unlink(name, fd)
                for name in folders:
                    with suppress(OSError):
                        _FILES.remove_folder(name, fd)
            with suppress(OSError):
                _FILES.remove_folder(self.name, above)


def remove_tree(name: str, within: int) -> None:
    """Remove a folder inside an open one, by descriptor; a link in its place or below it is not followed."""
    shutil.rmtree(name, ignore_errors=True, dir_fd=within)


def inside(place: str | os.PathLike[str] | Inside) -> Inside:
    """Take a path the user named as a place of its own."""
    return place if isinstance(place, Inside) else Inside(Path(place).absolute())


def open_database(place: Inside | None) -> sqlite3.Connection:
    """Open a database of SQLite, made where it is missing; without a place it is in memory."""
    import sqlite3

    if place is not None:
        with place.parent.folder(make=True):
            check_database(place)
    target = ":memory:" if place is None else str(place)
    connection = sqlite3.connect(target, timeout=60, isolation_level=None, check_same_thread=False)
    if place is not None:
        try:
            # Again, now that it is open: nothing is written through what was put there in between.
            check_database(place)
        except LinkRefused:
            connection.close()
            raise
    return connection


def check_database(place: Inside) -> None:
    """Raise `LinkRefused` if SQLite, which opens by path and follows links, would meet one."""
    for suffix in _SQLITE:
        place.with_name(place.name + suffix).check()


def remove_database(place: Inside) -> None:
    """Remove a database and what SQLite keeps beside it, as far as that can be done."""
    for suffix in _SQLITE:
        with suppress(OSError):
            place.with_name(place.name + suffix).unlink()


PRIVATE = "private"


class Folders:
    """Descriptors of a dataset's folders, by their path below it (`""` is the dataset itself).

    Opening makes nothing, so a dataset that cannot be written can be read.
    What is made outside `private/` is made to last: the folder above is
    fsynced before anything goes into the new one. Each folder is opened by its
    one name inside the one above, and a link there is refused.
    """

    def __init__(self, place: Inside, files: Files, *, durable: bool) -> None:
        self.place = place
        self.path = str(place)
        self._files = files
        self._durable = durable
        self._open: dict[str, int] = {}
        self._mutex = threading.RLock()

    def find(self, name: str) -> int | None:
        """Return a folder's descriptor, None if there is no such folder."""
        found = self._open.get(name)
        if found is not None:
            return found
        with self._mutex:
            if name in self._open:
                return self._open[name]
            try:
                if name == "":
                    fd = self._open_root()
                else:
                    above, _, leaf = name.rpartition("/")
                    within = self.find(above)
                    if within is None:
                        return None
                    fd = self._files.open_folder(leaf, within)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise link_refused(self.shown(name)) from None
                raise
            self._open[name] = fd
            return fd

    def _open_root(self) -> int:
        with self.place.folder(files=self._files) as fd:
            return os.dup(fd)

    def make(self, name: str) -> int:
        """Return a folder's descriptor; make the folder, and those above it, where missing."""
        found = self.find(name)
        if found is not None:
            return found
        with self._mutex:
            if name == "":
                self._make_place()
            else:
                above, _, leaf = name.rpartition("/")
                within = self.make(above)
                with suppress(FileExistsError):
                    self._files.make_folder(leaf, within)
                if self._durable and not name.startswith(PRIVATE):
                    self._files.fsync(within)
            made = self.find(name)
        if made is None:
            raise FileNotFoundError(2, "the folder was removed while it was being made", self.shown(name))
        return made

    def _make_place(self) -> None:
        """Make the dataset's own folder, each level durable in the one above."""
        root, parts = self.place.root, self.place.parts
        self._make_root(root)
        for depth, name in enumerate(parts):
            with Inside(root, parts[:depth]).folder(files=self._files) as above, suppress(FileExistsError):
                self._files.make_folder(name, above)
                if self._durable:
                    self._files.fsync(above)

    def _make_root(self, path: Path) -> None:
        """Make the folder the user named, and those above it."""
        if path.parent != path and not path.parent.exists():
            self._make_root(path.parent)
        try:
            self._files.make_folder(str(path))
        except FileExistsError:
            return
        if self._durable:
            above = self._files.open_folder(str(path.parent))
            try:
                self._files.fsync(above)
            finally:
                self._files.close(above)

    def shown(self, name: str, leaf: str = "") -> str:
        """Return the path of a folder, or of something in it, for people."""
        return os.path.join(self.path, name, leaf).rstrip("/")  # noqa: PTH118 (text for a message)

    def close(self) -> None:
        """Close every descriptor; a later use opens them again."""
        with self._mutex:
            for fd in self._open.values():
                with suppress(OSError):
                    os.close(fd)
            self._open.clear()
