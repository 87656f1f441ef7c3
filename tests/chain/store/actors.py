"""Processes that commit and collect: `python -m tests.chain.store.actors VERB PATH ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.chain.store.ledger import commit, reachable
from trueline.chain.store.file import FileStore
from trueline.chain.store.gc import collect
from trueline.errors import RefCASFailed
from trueline.identity.multihash import Multihash

CONTENTS = (b"slice " * 500, b"checkpoint " * 50)
NOTE = "the commit that dies"


def deed(path: str, _what: str) -> Callable[[], object]:
    """Return the commit that is killed (see tests/faults.py)."""
    store = FileStore(path)
    return lambda: commit(store, *CONTENTS, note=NOTE)


def append(path: str, who: str, times: str) -> None:
    """Commit that many times, against whoever else does."""
    store = FileStore(path, durable=False)
    for number in range(int(times)):
        while True:
            try:
                commit(store, note=f"{who}.{number}")
                break
            except RefCASFailed:
                continue


def rely(path: str, times: str) -> None:
    """Commit data of which a half lies about already, old and unreferenced."""
    store = FileStore(path, durable=False)
    for number in range(int(times)):
        for part in range(4):
            content = b"leftover %d %d" % (number, part)
            hidden = Path(path, "data", "hidden")
            hidden.write_bytes(content)
            os.utime(hidden, (1, 1))
            hidden.rename(Path(path, "data", Multihash.of(content)))
        contents = [b"%s %d %d" % (word, number, part) for word in (b"leftover", b"new") for part in range(4)]
        commit(store, *contents, note=str(number))


def sweep(path: str, stop: str) -> None:
    """Collect again and again until the file `stop` exists; says how often and how much."""
    store = FileStore(path, durable=False)
    rounds = removed = 0
    while not Path(stop).exists():
        removed += len(collect(store, lambda: reachable(store), older_than=0).removed)
        rounds += 1
    sys.stdout.write(f"{rounds} {removed}")


if __name__ == "__main__":
    {"append": append, "rely": rely, "sweep": sweep}[sys.argv[1]](*sys.argv[2:])
