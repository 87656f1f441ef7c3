"""Clones: the same bytes, all or nothing, and later only what is new."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.events import (
    AddData,
    DatasetKind,
    Seed,
    SetDataSchema,
    SetInfo,
    SetTransform,
    SetVocab,
    TransformInput,
)
from trueline.chain.head_state import Position, next_add_data, next_block, next_execute_transform
from trueline.chain.instant import Instant
from trueline.chain.references import references
from trueline.chain.schema import from_arrow
from trueline.chain.sources import SqlQueryStep, TransformSql
from trueline.chain.store.file import FileStore
from trueline.chain.store.store import Folder
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.append.slices import SliceLayout, write_slice
from trueline.errors import DatasetExists, DestinationAhead, Diverged, InputError, StorageFull
from trueline.identity.dataset_id import DatasetKey
from trueline.identity.multihash import Multihash
from trueline.workspace.transfer import copy as copying
from trueline.workspace.transfer.clone import name_of, update


def contents(dataset) -> dict[str, bytes]:
    """Every object that a dataset refers to, by its place."""
    store = dataset.chain.store
    found: dict[str, bytes] = {}
    for name, block in dataset.blocks():
        found[f"blocks/{name}"] = store.get(Folder.BLOCKS, name)
        for each in references(block, store):
            found[f"{each.folder}/{each.hash}"] = store.get(each.folder, each.hash)
    return found


def held(dataset) -> set[str]:
    """The places of all objects in the store of a dataset."""
    store = dataset.chain.store
    return {f"{folder}/{stored.hash}" for folder in Folder for stored in store.list(folder)}


def describe(dataset, text: str) -> None:
    chain = dataset.chain
    chain.append(next_block(chain.tail(), SetInfo(description=text)))


# --- the same bytes -----------------------------------------------------------------


def test_a_clone_has_the_same_bytes_and_the_same_rows(source, there, place):
    url, options = place
    clone = there.clone(url, **options)
    assert clone.name == "trades"
    assert (clone.head, clone.id) == (source.head, source.id)
    assert contents(clone) == contents(source)
    assert held(clone) == set(contents(source))
    assert there.verify().ok
    assert clone.view().to_arrow() == source.view().to_arrow()
    assert clone.origin.url == url
    assert clone.origin.head == source.head


def test_a_clone_follows_its_source_and_only_new_things_go_over(source, there, server, url):
    clone = there.clone(url)
    asked = len(server.asked)
    assert asked == len(set(server.asked)), "nothing is asked for twice"
    server.asked.clear()
    assert update(clone).changed is False
    assert server.asked == ["/trades/refs/head"]
    server.asked.clear()
    source.append(pa.table({"k": [5], "v": ["e"]}))
    done = update(clone)
    assert (done.blocks, done.objects, done.changed) == (1, 4, True)
    assert len(server.asked) == 1 + done.blocks + done.objects
    assert clone.view().to_arrow() == source.view().to_arrow()
    assert clone.origin.head == source.head
    assert there.verify().ok


def test_cloning_again_brings_what_is_new(source, there, server, url):
    there.clone(url, "copy")
    server.asked.clear()
    assert there.clone(url, "copy").head == source.head
    assert server.asked == ["/trades/refs/head"]
    describe(source, "more")
    assert there.clone(url, "copy").info.description == "more"


def test_a_dataset_can_be_cloned_beside_itself(source):
    copy = source.workspace.clone(source.chain.store.location, "copy")
    assert copy.id == source.id
    assert list(source.workspace) == ["copy", "trades"]


def test_many_blocks_of_an_object_store_are_fetched_together(source, there):
    for number in range(80):
        describe(source, str(number))
    source.push("memory://many-blocks/trades")
    clone = there.clone("memory://many-blocks/trades", "copy")
    assert contents(clone) == contents(source)


def test_a_store_that_lists_more_blocks_than_it_can_have_is_read_by_its_links(source, there):
    from trueline.chain.store.object import ObjectStore

    for number in range(70):
        describe(source, str(number))
    source.push("memory://liar/trades")
    store = ObjectStore("memory://liar/trades")
    for number in range(600):
        store.put(Folder.BLOCKS, b"junk %d" % number)
    clone = there.clone("memory://liar/trades", "copy")
    assert contents(clone) == contents(source)


# --- all or nothing -----------------------------------------------------------------


def break_off(server, number: int):
    """Let the server fail from the n-th object on."""
    count = 0

    def trick(handler) -> bool:
        nonlocal count
        if "/data/" not in handler.path and "/checkpoints/" not in handler.path:
            return False
        count += 1
        return handler.answer(500) if count > number else False

    server.trick = trick


def test_an_interrupted_clone_is_not_there_and_goes_on_where_it_stopped(
    source, there, server, url, monkeypatch
):
    monkeypatch.setattr(copying, "WORKERS", 1)
    break_off(server, 3)
    with pytest.raises(tl.errors.StoreError, match="500"):
        there.clone(url)
    assert "trades" not in there
    assert list(there) == []
    assert there.verify().ok
    server.trick = lambda _: False
    had = len([path for path in server.asked if "/blocks/" in path])
    assert had == source.info.blocks
    server.asked.clear()
    there.clone(url)
    assert not any("/blocks/" in path for path in server.asked), "blocks were kept"
    objects = [path for path in server.asked if "/refs/" not in path]
    assert len(objects) == len(contents(source)) - source.info.blocks - 3
    assert there.verify().ok
    assert not (there._location.private / "incoming").exists() or not list(
        (there._location.private / "incoming").iterdir()
    )


def test_an_interrupted_update_leaves_the_clone_as_it_was(source, there, server, url):
    clone = there.clone(url)
    before = clone.head
    source.append(pa.table({"k": [5], "v": ["e"]}))
    break_off(server, 1)
    with pytest.raises(tl.errors.StoreError):
        update(clone)
    assert clone.head == before
    assert there.verify().ok
    server.trick = lambda _: False
    assert update(clone).head == source.head
    assert there.verify().ok


def test_a_clone_that_is_killed_goes_on_where_it_stopped(source, there, server, url):
    reached, free = threading.Event(), threading.Event()

    def trick(handler) -> bool:
        if "/data/" in handler.path:
            reached.set()
            free.wait(60)
        return False

    server.trick = trick
    script = f"import trueline as tl; tl.open({there.location!r}).clone({url!r})"
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "NO_PROXY": "*"})
    assert reached.wait(60)
    child.send_signal(signal.SIGKILL)
    child.wait()
    free.set()
    server.trick = lambda _: False
    assert list(there) == []
    assert there.clone(url).head == source.head
    assert there.verify().ok


def test_what_was_begun_does_not_stand_in_the_way_of_a_new_dataset(there, server, url):
    break_off(server, 2)
    with pytest.raises(tl.errors.StoreError):
        there.clone(url)
    made = there.create("trades")
    made.append(pa.table({"x": [1]}))
    assert made.origin is None
    assert there.verify().ok
    server.trick = lambda _: False
    with pytest.raises(DatasetExists, match="another"):
        there.clone(url)


def test_gc_removes_what_a_dead_clone_left(there, server, url):
    break_off(server, 2)
    with pytest.raises(tl.errors.StoreError):
        there.clone(url)
    assert there.gc(older_than=0).unfinished == ("trades",)
    assert not there._location.exists("trades")


def test_damaged_leftovers_are_fetched_again(source, there, url, server):
    clone = there._unborn("trades")
    data = source.chain.block(source.head).data_event.new_data
    with clone.chain.store.lease():
        clone.chain.store.put(Folder.DATA, b"x")
        clone.chain.store.sync()
    path = Path(clone.chain.store.location) / "data" / data.physical_hash
    path.write_bytes(b"y" * data.size)
    assert there.clone(url).head == source.head
    assert there.verify().ok


def test_a_clone_that_cannot_fit_is_refused_before_the_first_byte(there, url, server, monkeypatch):
    monkeypatch.setattr(copying.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(StorageFull, match="1,000"):
        there.clone(url)
    assert not any("/data/" in path for path in server.asked)


# --- copies that went apart ---------------------------------------------------------


def test_a_clone_with_commits_of_its_own_is_ahead(source, there, url):
    clone = there.clone(url)
    describe(clone, "mine")
    with pytest.raises(DestinationAhead) as caught:
        update(clone)
    assert (caught.value.common, caught.value.ahead) == (source.head, 1)
    assert update(clone, force=True).head == source.head
    assert clone.head == source.head
    assert there.verify().ok


def test_copies_that_went_apart_are_told_with_where_and_by_how_much(source, there, url):
    clone = there.clone(url)
    common = source.head
    describe(clone, "mine")
    for text in ("theirs", "more"):
        describe(source, text)
    with pytest.raises(Diverged) as caught:
        update(clone)
    error = caught.value
    assert (error.common, error.source, error.target) == (common, 2, 1)
    assert "2 blocks there, 1 block here" in error.problem
    assert clone.info.description == "mine"
    assert update(clone, force=True).blocks == 2
    assert clone.info.description == "more"
    assert there.verify().ok


def test_no_force_changes_who_a_dataset_is(there, url):
    mine = there.create("trades")
    for force in (False, True):
        with pytest.raises(DatasetExists, match="another"):
            there.clone(url, force=force)
    assert there["trades"].id == mine.id


def test_a_dataset_that_is_no_clone_has_nothing_to_follow(there):
    with pytest.raises(InputError, match="not a clone"):
        update(there.create("mine"))


def test_two_clones_at_once_end_in_one_dataset(source, there, url):
    failed: list[Exception] = []

    def work() -> None:
        try:
            with tl.open(there.location) as ws:
                ws.clone(url)
        except Exception as error:  # noqa: BLE001 (told by the test)
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert there["trades"].head == source.head
    assert there.verify().ok


# --- foreign chains and names -------------------------------------------------------


def test_a_chain_whose_head_is_inside_a_derived_commit_is_taken_and_read_at_the_commit_before(
    tmp_path, there
):
    chain = Chain(FileStore(tmp_path / "derived"))
    schema = whole_schema(from_arrow(pa.schema({"x": pa.int64()})), SetVocab())
    transform = TransformSql(engine="spark", queries=(SqlQueryStep(query="select 1"),))
    source = DatasetKey.generate().id
    for event in (
        Seed(DatasetKey.generate().id, DatasetKind.Derivative),
        SetTransform(inputs=(TransformInput(str(source), "source"),), transform=transform),
        SetDataSchema(schema=schema),
    ):
        chain.append(next_block(chain.tail(), event))
    # The second takes no further block of its input and leaves no checkpoint: a part.
    for number in (1, 2):
        tail = chain.tail()
        time = Instant(int(tail.system_time) + 1)
        rows = pa.table({"event_time": pa.array([None], pa.timestamp("ms", "UTC")), "x": [number]})
        written = write_slice(chain.store, [rows], SliceLayout(schema, SetVocab(), time), number - 1)
        event = next_execute_transform(
            tail, {source: Position(Multihash.of(b"block"), 7)}, new_data=written.slice
        )
        chain.append(next_block(tail, event, time), strict=False)
    chain.close()
    clone = there.clone(tmp_path / "derived")
    assert [told.split()[1] for told in clone.origin.findings if "R9" in told] == ["chain:R9:"]
    assert clone.chain.tail().last_offset == 1
    assert clone.view().to_arrow()["x"].to_pylist() == [1]
    assert [commit.rows for commit in clone.log() if commit.rows] == [1, 1]


def test_a_foreign_chain_is_taken_with_its_findings(source, there):
    chain = source.chain
    tail = chain.tail()
    # R8: an AddData without data drops the checkpoint, which other software does.
    new = AddData(
        prev_checkpoint=tail.checkpoint,
        prev_offset=tail.last_offset,
        new_watermark=tail.system_time,
    )
    done = chain.append(next_block(tail, new), strict=False)
    assert [finding.rule for finding in done.findings] == ["chain:R8"]
    clone = there.clone(source.chain.store.location)
    (told,) = clone.origin.findings
    assert "chain:R8" in told


def test_a_chain_that_breaks_the_rules_is_refused_before_anything_is_here(source, there):
    chain = source.chain
    tail = chain.tail()
    before = tail.data
    again = next_add_data(tail, new_data=before.new_data)
    bad = next_block(tail, again)
    chain.store.put(Folder.BLOCKS, bad.to_bytes())
    chain.store.move_head(bad.hash, expected=tail.head)
    with pytest.raises(tl.errors.CorruptionError) as caught:
        there.clone(chain.store.location)
    assert caught.value.rule == "chain:D1"
    assert "trades" not in there
    assert not Path(there._unborn("trades").chain.store.location, "data").exists()


def test_a_chain_whose_numbers_jump_is_refused(source, there):
    chain = source.chain
    tail = chain.tail()
    jump = Block(
        system_time=tail.system_time,
        prev_block_hash=tail.head,
        sequence_number=tail.sequence_number + 9,
        event=SetInfo(description="x"),
    )
    chain.store.put(Folder.BLOCKS, jump.to_bytes())
    chain.store.move_head(jump.hash, expected=tail.head)
    with pytest.raises(tl.errors.CorruptionError, match="number"):
        there.clone(chain.store.location)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/data/datasets/trades/", "trades"),
        ("s3://lake/main/trades", "trades"),
        ("https://example.org/x/my%2Dtrades?version=2", "my-trades"),
    ],
)
def test_a_clone_is_called_as_it_is_there(url, name):
    assert name_of(url) == name


@pytest.mark.parametrize("url", ["https://example.org", "s3://lake/%2E", "https://example.org/%2e%2e"])
def test_an_address_without_a_name_asks_for_one(url):
    with pytest.raises(InputError, match="give a name"):
        name_of(url)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "Trades"])
def test_bad_names_and_names_too_like_others_are_refused(there, url, name):
    there.create("tRades")
    with pytest.raises(tl.errors.BadName):
        there.clone(url, name)
    assert list(there) == ["tRades"]


def test_a_place_without_a_dataset_says_so(there, tmp_path, server):
    for url in (tmp_path / "nowhere", tmp_path, f"{server.url}/nothing", "memory://nothing-here/x"):
        with pytest.raises(InputError) as caught:
            there.clone(url, "x")
        assert caught.value.code == "NotADataset"
    assert list(there) == []


def test_a_clone_of_a_workspace_below_a_url_works_too(source, url, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with tl.open("memory://clone-target/lake", create=True) as ws:
        clone = ws.clone(url)
        assert ws.verify().ok
        assert clone.view().to_arrow() == source.view().to_arrow()
        assert clone.origin.url == url
