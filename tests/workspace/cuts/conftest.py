from __future__ import annotations

import itertools

import pytest

from tests.chain.store.small_s3 import serving
from tests.workspace.cuts.lake import Lake
from trueline.workspace.locations import place_of

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3():
    with serving() as server:
        yield server


@pytest.fixture(params=["folder", "memory", "s3"])
def objects(request, tmp_path, monkeypatch):
    """Where a log of cuts is: in a folder, in an object store in memory, in one behind HTTP."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if request.param == "folder":
        return place_of(tmp_path / "ws").cuts()
    if request.param == "memory":
        return place_of(f"memory://cuts-{next(_numbers)}/lake").cuts()
    return place_of(f"s3://bucket/cuts-{next(_numbers)}", **request.getfixturevalue("s3").options).cuts()


@pytest.fixture
def lake(objects):
    return Lake(objects)


@pytest.fixture
def quick():
    """A lake whose log is in memory, for tests of what is decided and not of where it is kept."""
    return Lake(place_of(f"memory://cuts-{next(_numbers)}/lake").cuts())
