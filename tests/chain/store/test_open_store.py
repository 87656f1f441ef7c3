"""From a location to a store and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chain.store.ledger import commit
from trueline.chain.store.file import FileStore
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.open import below, open_store
from trueline.errors import BadName, InputError


def test_a_folder_is_opened_by_path_or_by_url(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "ds"
    store = open_store(path)
    assert isinstance(store, FileStore)
    block = commit(store, b"data")
    for location in (str(path), f"file://{tmp_path}/a%20b/ds", f"FILE://localhost{tmp_path}/a%20b/ds"):
        again = open_store(location)
        assert isinstance(again, FileStore)
        assert (again.head(), again.location) == (block, str(path))
        again.close()


def test_a_location_does_not_depend_on_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("ds")
    assert store.location == str(tmp_path / "ds")
    monkeypatch.chdir("/")
    commit(store, b"data")
    assert (tmp_path / "ds" / "refs" / "head").exists()


def test_an_object_store_is_opened_by_url() -> None:
    store = open_store("memory://opened/lake/ds/")
    assert isinstance(store, ObjectStore)
    block = commit(store, b"data")
    assert open_store(store.location).head() == block
    assert open_store("memory://opened/lake/other").head() is None
    assert open_store("memory://elsewhere/lake/ds").head() is None


def test_opening_makes_nothing(tmp_path: Path) -> None:
    open_store(tmp_path / "ds").head()
    assert list(tmp_path.iterdir()) == []


def test_options_reach_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ds", durable=False)
    assert isinstance(store, FileStore)
    assert not store._durable


def test_another_machines_folder_is_refused() -> None:
    with pytest.raises(InputError, match="'server'"):
        open_store("file://server/lake")


@pytest.mark.parametrize(
    ("location", "names", "result"),
    [
        ("/lake", ("datasets", "trades"), "/lake/datasets/trades"),
        ("/lake/", ("a b",), "/lake/a b"),
        ("s3://bucket/lake/", ("datasets", "trades"), "s3://bucket/lake/datasets/trades"),
        ("s3://bucket", ("a b",), "s3://bucket/a%20b"),
    ],
)
def test_a_dataset_lies_below_its_workspace(location: str, names: tuple[str, ...], result: str) -> None:
    assert below(location, *names) == result


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "..\\x", "a\0b", "/etc"])
@pytest.mark.parametrize("location", ["/lake", "s3://bucket"])
def test_nothing_leads_out_of_a_workspace(location: str, name: str) -> None:
    with pytest.raises(BadName):
        below(location, "datasets", name)
