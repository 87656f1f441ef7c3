"""Files of a source that could not be read: left out, reported, and tried again when their bytes change.

What is remembered is private and never trusted: without it a bad file is only tried again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from trueline.chain.store.folders import Inside
from trueline.dataset.append.files import hash_file
from trueline.dataset.commit import Commit
from trueline.dataset.declared_source import SKIP
from trueline.dataset.definition import Addendum
from trueline.errors import InputError
from trueline.readers import Source
from trueline.workspace.pull.seen import is_settled

_VERSION: Final = 1
# Errors that are about the dataset, or about a file that is gone, and not about what is in it.
_NOT_THE_FILE: Final = ("IncompleteSnapshot", "NoSuchFile", "HasSource", "KeyReused")

Signs = tuple[int, ...] | None


class BadFile(NamedTuple):
    """A file that was left out, and why."""

    path: str
    reason: str


@dataclass
class _Remembered:
    """A bad file as it was: what changes whenever it is written, the hash of its bytes, why it is bad."""

    signs: Signs
    hash: str
    reason: str


class BadFiles:
    """The bad files of one dataset's source; with `again` all of them are tried again."""

    def __init__(self, path: Inside, addendum: Addendum, *, again: bool = False) -> None:
        self.skips = addendum.on_bad_file == SKIP
        self._path = path
        # A file that could not be read in one way may be readable in another.
        self._terms = addendum.to_text()
        self._files: dict[str, _Remembered] = {}
        self._before: dict[str, _Remembered] = {}
        if self.skips and not again:
            self._load()

    def _load(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            value = json.loads(self._path.read_text(encoding="utf-8"))
            if value["version"] == _VERSION and value["terms"] == self._terms:
                self._before = {
                    name: _Remembered(tuple(signs) if signs else None, str(of), str(why))
                    for name, (signs, of, why) in value["files"].items()
                }

    def known(self, file: Source, signs: Signs = None) -> BadFile | None:
        """Return a file that has the bytes with which it was bad; None for others, which are to be read."""
        before = self._before.get(file.path)
        if before is None:
            return None
        if signs is None or before.signs != signs:
            try:
                if str(hash_file(file)[0]) != before.hash:
                    return None
            except InputError:
                return None
            before.signs = signs if is_settled(signs) else None
        self._files[file.path] = before
        return BadFile(file.path, before.reason)

    def note(self, file: Source, error: InputError, signs: Signs = None) -> BadFile:
        """Remember a file that could not be read."""
        with suppress(InputError):
            kept = signs if is_settled(signs) else None
            self._files[file.path] = _Remembered(kept, str(hash_file(file)[0]), error.problem)
        return BadFile(file.path, error.problem)

    def save(self) -> None:
        """Write down what is remembered; without it the next pull tries them again, nothing else."""
        if not self.skips or (not self._files and not self._before):
            return
        files = {name: [each.signs, each.hash, each.reason] for name, each in self._files.items()}
        text = json.dumps({"version": _VERSION, "terms": self._terms, "files": files})
        with suppress(OSError):
            self._path.write(text.encode(), replace=True)

    def without(
        self,
        files: Sequence[Source],
        signs: Mapping[str, Signs],
        append: Callable[[Sequence[Source]], Commit],
        where: Callable[[str], str] = str,
    ) -> Iterator[Commit | BadFile]:
        """Append files in one commit, leaving out those that cannot be read, where the source says so.

        Files that are known to be bad are not read; `where` says the path by which a file is opened.
        """
        left = list(files)
        for file in files if self.skips else ():
            if (bad := self.known(file, signs.get(file.path))) is not None:
                left.remove(file)
                yield bad
        while left or not files:
            try:
                yield append(left)
                return
            except InputError as error:
                blamed = _blamed(error, left, where)
                if blamed is None or not self.skips:
                    raise
                left.remove(blamed)
                found = self.note(blamed, error, signs.get(blamed.path))
            yield found


def _blamed(error: InputError, files: Sequence[Source], where: Callable[[str], str]) -> Source | None:
    """Return the file an error is about; None if it is about something else."""
    # A known name with other bytes may be a correction: that is for people to decide.
    if error.code in _NOT_THE_FILE or (error.code == "FileChanged" and "commit" in error.fields):
        return None
    path = error.fields.get("path")
    return next((file for file in files if path in (file.path, where(file.path))), None)


def bad_files_path(private: Path, name: str) -> Path:
    """Where it is kept for a dataset."""
    return private / "bad" / f"{name}.json"
