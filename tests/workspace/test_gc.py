"""Tidying: what is removed, and what is not."""

from __future__ import annotations

import os
import shutil
import threading
import time

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.records import column
from trueline.chain.events import DisablePollingSource
from trueline.chain.head_state import linked
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder
from trueline.errors import CorruptionError, InputError
from trueline.workspace.pull import seen


def age(folder, seconds=7200.0):
    """Make everything in a folder look old."""
    then = time.time() - seconds
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then), follow_symlinks=False)


def leftover(ds, content=b"left by a crash"):
    store = ds.chain.store
    with store.lease():
        name = store.put(Folder.DATA, content)
        store.sync()
    return name


def test_what_nothing_refers_to_is_removed_and_nothing_else(ws, ds, tmp_path):
    for n in range(3):
        ds.append(pa.table({"x": [n]}), idempotency_key=f"k{n}")
    name = leftover(ds)
    # The clock of files ticks every few milliseconds: what is put in the tick of gc's own lease is spared.
    age(tmp_path / "ws" / "datasets" / "trades" / "data")
    would = ws.gc(older_than=0, dry_run=True)
    assert ([stored.hash for stored in would.datasets["trades"].removed], would.objects) == ([name], 1)
    assert ds.chain.store.size(Folder.DATA, name) == would.bytes == 15
    swept = ws.gc(older_than=0)
    assert (swept.objects, swept.bytes) == (1, 15)
    assert ds.chain.store.size(Folder.DATA, name) is None
    assert ds.verify().ok
    assert ws.gc(older_than=0).objects == 0


def test_the_state_of_a_keyed_dataset_is_kept_with_every_commit_that_names_it(ws, tmp_path):
    people = ws.create("people", merge=tl.merge.upsert("id"))
    for n in range(4):
        people.append([{"id": m, "name": f"{n} {m}"} for m in range(n, 20)])
    store = people.chain.store
    with store.lease():
        name = store.put(Folder.CHECKPOINTS, b"left by a crash")
        store.sync()
    age(tmp_path / "ws" / "datasets" / "people" / "checkpoints")
    before = {stored.hash for stored in store.list(Folder.CHECKPOINTS)}
    assert [stored.hash for stored in ws.gc(older_than=0).datasets["people"].removed] == [name]
    assert {stored.hash for stored in store.list(Folder.CHECKPOINTS)} == before - {name}
    assert len(before) > 4
    assert people.verify().ok


def test_what_is_new_is_spared_by_default(ws, ds, tmp_path):
    leftover(ds)
    swept = ws.gc()
    assert (swept.objects, swept.kept_in_flight) == (0, 1)
    age(tmp_path / "ws" / "datasets" / "trades" / "data")
    assert ws.gc().objects == 1


def test_the_age_is_a_setting(ws, ds, tmp_path):
    ws.config.set("gc.older_than", "7d")
    leftover(ds)
    age(tmp_path / "ws" / "datasets" / "trades" / "data")
    assert ws.gc().objects == 0
    assert ws.gc(older_than="1h").objects == 1
    with pytest.raises(InputError, match="duration"):
        ws.gc(older_than="soon")


def test_a_commit_in_flight_keeps_what_it_has_put(ws, ds):
    with tl.open(ws.location) as other:
        store = other["trades"].chain.store
        with store.lease():
            name = store.put(Folder.DATA, b"in flight")
            store.sync()
            assert ws.gc(older_than=0).objects == 0
        assert store.size(Folder.DATA, name) is not None
    assert ws.gc(older_than=0).objects == 1


def test_what_a_second_ref_reaches_is_kept(ws, ds):
    first = ds.append(pa.table({"x": [1]}))
    second = ds.append(pa.table({"x": [2]}))
    store = ds.chain.store
    store.move_head(second.block, expected=None, ref="kept")
    ds.chain.reset(first.block)
    assert ws.gc(older_than=0).objects == 0
    ds.chain.reset(second.block)
    assert ds.verify().ok


def test_what_a_reset_cut_off_is_removed(ws, ds):
    first = ds.append(pa.table({"x": [1]}))
    ds.append(pa.table({"x": [2]}))
    ds.chain.reset(first.block)
    assert ws.gc(older_than=0).objects == 2
    assert ds.verify().ok
    assert ds.append(pa.table({"x": [3]})).offsets == range(1, 2)


def test_a_chain_that_cannot_be_read_loses_nothing(ws, ds, tmp_path):
    ds.append(pa.table({"x": [1]}))
    leftover(ds)
    folder = tmp_path / "ws" / "datasets" / "trades"
    seed = next(name for name, block in ds.blocks() if block.sequence_number == 0)
    (folder / "blocks" / seed).write_bytes(b"garbage")
    before = sorted((folder / "data").iterdir())
    with pytest.raises(CorruptionError):
        ws.gc(older_than=0)
    assert sorted((folder / "data").iterdir()) == before


def test_a_dataset_whose_head_is_lost_loses_nothing(ws, ds, tmp_path):
    ds.append(pa.table({"x": [1]}))
    folder = tmp_path / "ws" / "datasets" / "trades"
    (folder / "refs" / "head").unlink()
    ws.close()
    age(folder)
    before = sorted(path for path in folder.rglob("*") if path.parent.name in ("blocks", "data"))
    for _ in range(2):
        with tl.open(ws.location) as again:
            assert again.gc(older_than=0).skipped == {"trades": "its head is missing"}
        ws._index_path("trades").unlink(missing_ok=True)
    assert sorted(path for path in folder.rglob("*") if path.parent.name in ("blocks", "data")) == before


def unfinished(ws, name="half"):
    """What a creation leaves that died before its head was set."""
    store = ws._location.store(name, durable=False)
    with store.lease():
        store.put(Folder.BLOCKS, b"a seed")
        store.sync()
    store.close()
    return ws._location.folder(name)


def test_an_unfinished_dataset_is_not_there_and_is_removed_once_old(ws):
    folder = unfinished(ws)
    assert "half" not in ws
    assert ws.gc().unfinished == ()
    age(folder)
    assert ws.gc(dry_run=True).unfinished == ("half",)
    assert folder.exists()
    assert ws.gc().unfinished == ("half",)
    assert not folder.exists()
    assert sorted(path.name for path in folder.parent.iterdir()) == []


def test_an_unfinished_dataset_can_be_made(ws):
    unfinished(ws, "trades")
    assert ws.create("trades").append(pa.table({"x": [1]})).rows == 1
    assert ws["trades"].verify().ok


def test_folders_people_made_are_left_alone(ws, tmp_path):
    folder = tmp_path / "ws" / "datasets" / "notes"
    folder.mkdir()
    (folder / "readme.txt").write_text("mine")
    half = unfinished(ws)
    (half / "blocks" / "mine.txt").write_text("mine")
    for path in (folder, half):
        age(path)
    assert ws.gc(older_than=0).unfinished == ()
    assert (folder / "readme.txt").read_text() == "mine"
    assert list(ws) == []


def test_a_creation_that_begins_while_its_folder_is_removed_is_put_back(ws, monkeypatch):
    from trueline.workspace import locations as places

    folder = unfinished(ws)
    age(folder)
    answers = iter([False, True])
    monkeypatch.setattr(places, "is_busy", lambda _: next(answers))
    assert ws.gc().unfinished == ()
    assert [path.name for path in folder.parent.iterdir()] == ["half"]


def test_indexes_of_datasets_that_are_gone_are_removed(ws, ds):
    index = ws._index_path("gone")
    index.write_bytes(b"")
    os.utime(index, (1, 1))
    assert ws.gc().indexes == ("gone",)
    assert not index.exists()
    assert ws._index_path("trades").exists()


def test_tidying_beside_commits_loses_nothing(ws, ds):
    done = threading.Event()
    failures: list[BaseException] = []

    def tidy():
        try:
            with tl.open(ws.location) as other:
                while not done.is_set():
                    other.gc(older_than=0)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test fails with it)
            failures.append(error)

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        for n in range(40):
            ds.append(pa.table({"x": [n]}))
    finally:
        done.set()
        thread.join()
    assert failures == []
    assert column(ds, "x") == list(range(40))
    assert ds.verify().ok


def test_which_files_were_read_is_forgotten_with_the_dataset_and_with_its_source(ws, tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "SETTLED_NS", -(10**18))
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.csv").write_text("x\n1\n")
    for name in ("kept", "turned", "gone"):
        ws.create(name, source=tmp_path / "inbox" / "*.csv")
    ws.pull()
    folder = ws._location.private / "seen"
    turned = ws["turned"].chain
    turned.append(*linked(turned.tail(), (DisablePollingSource(),), Instant.now()))
    ws["gone"].chain.close()
    shutil.rmtree(tmp_path / "ws" / "datasets" / "gone")
    assert ws.gc().seen == ()
    age(folder)
    assert ws.gc(dry_run=True).seen == ("gone", "turned")
    assert len(list(folder.iterdir())) == 3
    assert ws.gc().seen == ("gone", "turned")
    assert [path.name for path in folder.iterdir()] == ["kept.json"]
