"""The stores that share one suite of behaviour, and what each is known not to do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chain.store.small_s3 import SmallS3, serving
from trueline.chain.store.file import FileStore
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.store import Folder, Store
from trueline.identity.multihash import Multihash

# A gap is a behaviour a store is known not to have; its test must fail, and says so when it does not.
GAPS = {
    ("memory", "reopened"): "a memory store is one object: there is no second opener",
    ("object", "staged"): "a put to an object store is durable, and so visible, when it returns",
    ("s3", "staged"): "a put to an object store is durable, and so visible, when it returns",
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


@pytest.fixture(scope="session")
def s3() -> Iterator[SmallS3]:
    with serving() as server:
        yield server


def _s3(server: SmallS3) -> Place:
    url = f"s3://bucket/suite-{next(_numbers)}/ds"

    def make_old(folder: Folder, name: Multihash) -> None:
        key = f"{url.removeprefix('s3://bucket/')}/{folder}/{name}"
        server.objects[key] = (*server.objects[key][:2], datetime.fromtimestamp(1, UTC))

    return Place("s3", lambda: ObjectStore(url, **server.options), make_old)


@pytest.fixture(params=[*sorted(PLACES), "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made = PLACES.get(request.param)
    place = made(tmp_path) if made else _s3(request.getfixturevalue("s3"))

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
