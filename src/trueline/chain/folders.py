"""The folders of one dataset on disk: opened once, made when first written to."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

from trueline.chain.files import Files, link_refused
from trueline.chain.inside import Inside

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
