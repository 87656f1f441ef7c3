"""Processes that record cuts: some are killed at an operation, some race for numbers.

`python -m tests.workspace.cuts.actors race WHERE FOLDER WHO TIMES` records until it was given so many
numbers. `python -m tests.workspace.cuts.actors serve` reads lines `WHERE FOLDER` and does a deed for each, in
a fork that says its process id and waits for a line before it begins.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chain.histories import History, add_data, dataset_id, moment, seed, set_data_schema
from trueline.chain import Chain, Instant
from trueline.chain.store.file import FileStore
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts import log as log_module
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.transaction import Transaction
from trueline.workspace.locations import place_of
from trueline.workspace.small_objects import SmallObjects

LABELS = ("a", "b")
A, B = (dataset_id(label) for label in LABELS)
LATE = Instant.parse("2100-01-01T00:00:00Z")


class Roots:
    """Roots in a folder, by label; the log over them may be elsewhere."""

    def __init__(self, folder: str | Path, labels: tuple[str, ...] = LABELS) -> None:
        self.histories = {dataset_id(label): self._opened(Path(folder, label), label) for label in labels}

    @staticmethod
    def _opened(path: Path, label: str) -> History:
        history = History(store=FileStore(path, durable=False), empty=True)
        if history.chain.head is None:
            history.append(seed("Root", label))
            history.append(set_data_schema())
        return history

    def chain_of(self, name: DatasetId) -> Chain | None:
        history = self.histories.get(name)
        return None if history is None else history.chain

    def append(self, name: DatasetId) -> None:
        history = self.histories[name]
        tail = history.chain.tail()
        end = tail.next_offset
        # A watermark that moves too, so that every block is another.
        event = add_data((end, end), prev=tail.last_offset, watermark=tail.sequence_number)
        history.append(event, systemTime=moment(tail.sequence_number))

    def log(self, objects: SmallObjects, **more: Any) -> CutLog:
        return CutLog(objects, self.chain_of, **more)

    def close(self) -> None:
        for history in self.histories.values():
            history.chain.close()


def objects_at(where: str) -> SmallObjects:
    """The objects of a log: of a folder, or `URL OPTIONS` of an object store."""
    url, _, options = where.partition("|")
    return place_of(url, **(json.loads(options) if options else {})).cuts()


def prepare(folder: Path, objects: SmallObjects) -> None:
    """Two roots with a record each, at cut 1."""
    roots = Roots(folder)
    for name in (A, B):
        roots.append(name)
    assert roots.log(objects).record([A, B]).number == 1
    roots.close()


def act(objects: SmallObjects, folder: str | Path) -> Callable[[], object]:
    """What is killed or refused: a transaction over both roots, and a cut after it."""
    roots = Roots(folder)
    log = roots.log(objects)

    def doing() -> None:
        with Transaction(objects, roots.chain_of, A, B):
            roots.append(A)
            roots.append(B)
        log.record([A])

    return doing


def deed(path: str, what: str) -> Callable[[], object]:
    """Return what is killed in a folder (see tests/faults.py)."""
    objects = place_of(path).cuts()
    if what == "transaction":
        return act(objects, f"{path}/roots")
    log_module.FOLD = 10
    roots = Roots(f"{path}/roots")
    log = roots.log(objects)
    log.newest()
    roots.append(A)
    return lambda: log.record([A])


def race(where: str, folder: str, who: str, times: str) -> None:
    """Record until so many numbers were given to this process; say which."""
    log_module.FOLD = 50
    roots, objects = Roots(folder, (who, "shared")), objects_at(where)
    given: list[int] = []
    put: list[int] = []
    put_new = objects.put_new

    def noting(name: str, data: bytes, **more: Any) -> bool:
        done = put_new(name, data, **more)
        if done and name.startswith("cut/"):
            put.append(int(name.removeprefix("cut/")))
        return done

    objects.put_new = noting  # type: ignore[method-assign]
    log = roots.log(objects)
    while len(given) < int(times):
        roots.append(dataset_id(who))
        cut = log.record([dataset_id(who), dataset_id("shared")])
        # What was put too late, under a number that is folded, is taken back and was never given.
        if put and put[-1] == cut.number:
            given.append(put.pop())
    sys.stdout.write(json.dumps(given))


def _line() -> str:
    """Read a line and nothing beyond it: the fork reads the next."""
    read = b""
    while (byte := os.read(0, 1)) and byte != b"\n":
        read += byte
    return read.decode()


def serve() -> None:
    """Do a deed for each line, in a fork."""
    while line := _line():
        where, _, folder = line.rpartition(" ")
        child = os.fork()
        if child == 0:
            doing = act(objects_at(where), folder)
            os.write(1, f"{os.getpid()}\n".encode())
            _line()
            doing()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, f"{'killed' if os.WIFSIGNALED(status) else status}\n".encode())


if __name__ == "__main__":
    {"race": race, "serve": serve}[sys.argv[1]](*sys.argv[2:])
