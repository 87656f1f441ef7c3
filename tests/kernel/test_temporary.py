"""Folders of rows that do not fit in memory: who removes them, and when."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
import tempfile

import pytest

import trueline as tl
from trueline.kernel import temporary
from trueline.kernel.temporary import Temporary, remove_leftovers

HOLDS_ROWS = """
import sys, trueline as tl
kept = tl.View.range(400_000).with_columns(x="n * 0.5").cache()
assert kept.to_arrow().num_rows == 400_000
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place for temporary folders where nobody has looked yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_looked", set())
    return tmp_path


@pytest.fixture
def start(place):
    """Start a process that holds rows in files, and return it with its folder."""
    running = []

    def begin():
        before = set(place.iterdir())
        settings = {**os.environ, "TMPDIR": str(place), "TRUELINE_VIEW_MEMORY_MB": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDS_ROWS], env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        running.append(process)
        assert process.stdout.readline() == b"ready\n"
        (folder,) = set(place.iterdir()) - before
        return process, folder

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def test_what_a_killed_process_left_is_removed_by_the_next_and_a_live_ones_is_not(place, start, monkeypatch):
    alive, kept = start()
    killed, left = start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert list(left.glob("*.arrow"))
    monkeypatch.setenv("TRUELINE_VIEW_MEMORY_MB", "1")
    view = tl.View.range(400_000).cache()
    view.to_arrow()
    assert not left.exists()
    assert list(kept.glob("*.arrow"))
    assert len(list(place.glob("trueline-view-*"))) == 2
    alive.communicate()
    assert alive.returncode == 0
    del view
    gc.collect()
    assert not list(place.iterdir())


def test_a_process_looks_once_for_what_others_left(place, monkeypatch):
    looked = []
    monkeypatch.setattr(temporary, "remove_leftovers", looked.append)
    Temporary("view").remove()
    Temporary("frame").remove()
    assert looked == [str(place)]


def test_a_folder_is_left_alone_while_its_owner_lives_or_is_not_known(place):
    mine = Temporary("view")
    strange = place / "trueline-view-strange"
    strange.mkdir()
    (strange / "rows.arrow").touch()
    foreign = place / "other-view-1"
    foreign.mkdir()
    (foreign / "owner.lock").touch()
    (place / "trueline-view-link").symlink_to(foreign)
    (place / "trueline-view-file").touch()
    assert remove_leftovers(str(place)) == []
    assert (foreign / "owner.lock").exists()
    assert (strange / "rows.arrow").exists()
    assert mine.path.exists()
    mine.remove()
    mine.remove()
    assert not mine.path.exists()


def test_a_folder_that_is_taken_for_a_leftover_before_it_is_locked_is_made_again(place, monkeypatch):
    lock, taken = fcntl.flock, []

    def late(file, how):
        if not taken:
            taken.append("others come first")
            taken.extend(remove_leftovers(str(place)))
        return lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    folder = Temporary("view")
    assert len(taken) == 2
    assert folder.path.exists()
    assert taken[1] != folder.path
    assert remove_leftovers(str(place)) == []
    folder.remove()


def test_where_nothing_can_be_locked_rows_still_find_a_place(place, monkeypatch):
    def no_locks(*_):
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    folder = Temporary("view")
    assert list(folder.path.iterdir()) == []
    assert remove_leftovers(str(place)) == []
    folder.remove()
    assert not list(place.iterdir())
