"""The stores that share one suite of behaviour, and what each is known not to do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trueline.chain.file_store import FileStore
from trueline.chain.memory_store import MemoryStore
from trueline.chain.object_store import ObjectStore
from trueline.chain.store import Folder, Store
from trueline.identity.multihash import Multihash

# A gap is a behaviour a store is known not to have; its test must fail, and says so when it does not.
GAPS = {
    ("memory", "reopened"): "a memory store is one object: there is no second opener",
    ("object", "staged"): "a put to an object store is durable, and so visible, when it returns",
}

_numbers = itertools.count()


@dataclass
class Place:
    """One place to keep a dataset, and how to open it."""

    kind: str
    open: Callable[[], Store]
    make_old: Callable[[Folder, Multihash], None]
    needs: Callable[[str], None] = print


def _memory(_path: Path) -> Place:
    store = MemoryStore()

    def make_old(folder: Folder, name: Multihash) -> None:
        store._objects[folder][name] = (store._objects[folder][name][0], 1.0)

    return Place("memory", lambda: store, make_old)


def _file(path: Path) -> Place:
    def make_old(folder: Folder, name: Multihash) -> None:
        os.utime(path / "ds" / folder / name, (1, 1))

    return Place("file", lambda: FileStore(path / "ds"), make_old)


def _object(_path: Path) -> Place:
    url = f"memory://suite-{next(_numbers)}/lake/ds"

    def make_old(_folder: Folder, _name: Multihash) -> None:
        """The store stamps objects itself; tests take a later limit instead."""

    return Place("object", lambda: ObjectStore(url), make_old)


PLACES = {"memory": _memory, "file": _file, "object": _object}


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    place = PLACES[request.param](tmp_path)

    def needs(behaviour: str) -> None:
        if reason := GAPS.get((place.kind, behaviour)):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    place.needs = needs
    return place


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = place.open()
    yield opened
    opened.close()
