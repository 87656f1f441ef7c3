"""Which files of a source were read: so that a pull looks at an inbox of known files without opening them.

Private and never trusted against the chain: it only remembers which bytes a
file had when its size, times and number were what they are now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from trueline.chain.chain import Chain
from trueline.chain.store.folders import Inside
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

# A file that changed this shortly ago may change again without its times showing it.
SETTLED_NS: Final = 2_000_000_000
_VERSION: Final = 1


def signs_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes whenever a file is written or replaced; None if there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def is_settled(signs: tuple[int, ...] | None) -> bool:
    """Say whether a file was last written so long ago that another change would show."""
    return signs is not None and max(signs[1:3]) < time.time_ns() - SETTLED_NS


class Seen:
    """The signs and the hash of each file that was appended, by name."""

    def __init__(self, path: Inside) -> None:
        self._path = path
        self._files: dict[str, tuple[tuple[int, ...], str]] = {}
        self._changed = False
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            value = json.loads(path.read_text(encoding="utf-8"))
            if value["version"] == _VERSION:
                self._files = {name: (tuple(signs), str(of)) for name, (signs, of) in value["files"].items()}

    def is_known(self, name: str, signs: tuple[int, ...] | None, chain: Chain) -> bool:
        """Say whether a file is as it was when it was appended, and the chain says that it was."""
        before = self._files.get(name)
        if before is None or signs is None or before[0] != signs:
            return False
        with suppress(InputError):
            return chain.file(Multihash.parse(before[1])) is not None
        return False

    def keep(self, names: Iterable[tuple[str, tuple[int, ...] | None]], chain: Chain) -> None:
        """Remember files that have just been appended, with the signs they had before."""
        for name, signs in names:
            taken = chain.file_named(name)
            if taken is not None and signs is not None and is_settled(signs):
                self._files[name] = (signs, str(taken[0]))
                self._changed = True

    def save(self, there: Iterable[str]) -> None:
        """Write down what is remembered of the files that are still there."""
        names = set(there)
        kept = {name: value for name, value in self._files.items() if name in names}
        if self._changed or len(kept) < len(self._files):
            text = json.dumps({"version": _VERSION, "files": kept})
            # Without it the next pull is slower, nothing else.
            with suppress(OSError):
                self._path.write(text.encode(), replace=True)


def seen_path(private: Path, name: str) -> Path:
    """Where it is kept for a dataset."""
    return private / "seen" / f"{name}.json"
