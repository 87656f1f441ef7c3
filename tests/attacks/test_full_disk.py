"""A disk that is full when the index is to be written: the commit is done, later calls say what is wrong."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trueline as tl
from trueline.chain import index
from trueline.chain.store.files import Files
from trueline.errors import StorageFull
from trueline.workspace import Workspace

pytestmark = pytest.mark.contract("guard:G12")


def asked(workspace: Workspace, known: int) -> None:
    """What reads answers; what writes says that there is no room."""
    dataset = workspace["t"]
    assert dataset.info.rows == known
    assert dataset.view().to_arrow().num_rows == known
    assert dataset.verify().ok
    with pytest.raises(StorageFull):
        dataset.append([{"x": 9}])
    assert dataset.info.rows == known


@pytest.mark.parametrize("pages", [1, 2, 5, 9])
def test_an_index_that_finds_no_room_is_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """SQLite says that the disk is full at any page of the index, and the store as soon as it writes."""
    with tl.open(tmp_path / "ws", create=True) as workspace:
        workspace.create("t").append([{"x": 1}])
        real = sqlite3.connect

        def connect(target: str, **options: Any) -> sqlite3.Connection:
            connection = real(target, **options)
            if target == str(workspace._index_path("t")):
                connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        def full(*_args: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            workspace.close()
            workspace._index_path("t").unlink()
            patch.setattr(index.sqlite3, "connect", connect)
            workspace["t"].append([{"x": 2}])
            patch.setattr(Files, "write", full)
            asked(workspace, 2)
            with tl.open(tmp_path / "ws") as another:
                asked(another, 2)
        workspace["t"].append([{"x": 3}])
        with tl.open(tmp_path / "ws") as another:
            another["t"].append([{"x": 4}])
            assert another["t"].info.rows == 4
            assert another.verify().ok


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(tmp_path)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("this user may not mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_disk_that_is_full_at_any_kilobyte_is_told_as_full(small: Path) -> None:
    ballast = small / "ballast"

    def room(left: int) -> None:
        found = os.statvfs(small)
        ballast.write_bytes(b"x" * max(0, found.f_bavail * found.f_frsize - left))

    with tl.open(small / "ws", create=True) as workspace:
        workspace.create("t").append([{"x": 1}])
    refused = 0
    for left in range(0, 96 << 10, 4 << 10):
        with tl.open(small / "ws") as workspace:
            known = workspace["t"].info.rows
            room(left)
            for write in _writers(workspace, small):
                try:
                    write()
                    known += 1
                except StorageFull:
                    refused += 1
                assert workspace["t"].info.rows == known
            ballast.unlink()
            assert workspace["t"].append([{"x": 3}]).rows == 1
            assert workspace.verify().ok
    assert refused > 10


def _writers(workspace: Workspace, small: Path) -> list[Callable[[], object]]:
    def anew() -> None:
        with tl.open(small / "ws") as another:
            another["t"].append([{"x": 2}])

    return [lambda: workspace["t"].append([{"x": 2}]), anew, lambda: workspace["t"].append([{"x": 2}]), anew]
