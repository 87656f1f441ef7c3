"""Pushing: data before blocks before the head, only what is new, never over what others did."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving as serving_s3
from tests.workspace.transfer.serving import serving
from tests.workspace.transfer.test_clone import contents, describe
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.open import open_store
from trueline.chain.store.store import Folder
from trueline.errors import DestinationAhead, Diverged, HashMismatch, InputError, ObjectMissing, RefCASFailed
from trueline.workspace.transfer import push as pushing


@pytest.fixture(params=["folder", "s3"])
def target(request, tmp_path):
    if request.param == "folder":
        yield str(tmp_path / "out" / "trades"), {}
    else:
        with serving_s3() as s3:
            yield "s3://bucket/out/trades", s3.options


def objects_at(url, options):
    store = open_store(url, **options)
    return {
        f"{folder}/{each.hash}": store.get(folder, each.hash)
        for folder in Folder
        for each in store.list(folder)
    }


def test_what_arrives_is_the_dataset_byte_for_byte(source, target):
    url, options = target
    sent = source.push(url, **options)
    assert sent.changed
    assert objects_at(url, options) == contents(source)
    assert open_store(url, **options).head() == source.head
    assert sent.blocks == source.info.blocks
    assert sent.objects == len(contents(source)) - sent.blocks


def test_pushing_again_sends_what_is_new(source, target):
    url, options = target
    source.push(url, **options)
    again = source.push(url, **options)
    assert (again.changed, again.blocks, again.objects, again.bytes) == (False, 0, 0, 0)
    source.append(pa.table({"k": [5], "v": ["e"]}))
    more = source.push(url, **options)
    # The slice, the checkpoint, the state so far as one file, and what is new in it.
    assert (more.blocks, more.objects, more.kept) == (1, 4, 0)
    assert objects_at(url, options) == contents(source)


def test_data_goes_before_blocks_and_the_head_moves_last(source, monkeypatch):
    order: list[str] = []
    put, move = ObjectStore._put_object, ObjectStore.move_head

    def putting(self, folder, name, data):
        order.append(str(folder))
        return put(self, folder, name, data)

    def moving(self, *args, **kwargs):
        order.append("head")
        return move(self, *args, **kwargs)

    monkeypatch.setattr(ObjectStore, "_put_object", putting)
    monkeypatch.setattr(ObjectStore, "move_head", moving)
    source.push("memory://push-order/trades")
    first = order.index("blocks")
    assert set(order[:first]) == {"data", "checkpoints"}
    assert set(order[first:-1]) == {"blocks"}
    assert order[-1] == "head"


def test_any_file_server_can_serve_what_was_pushed(source, there, tmp_path):
    source.push(tmp_path / "www" / "trades")
    with serving(tmp_path / "www") as server:
        assert there.clone(f"{server.url}/trades").head == source.head
    assert there.verify().ok


def test_a_push_into_the_datasets_of_another_workspace_makes_it_there(source, there):
    source.push(Path(there.location) / "datasets" / "trades")
    assert there["trades"].head == source.head
    assert there.verify().ok


def test_an_interrupted_push_moves_nothing_and_goes_on_later(source, target, monkeypatch):
    url, options = target

    def fails(*_args, **_kwargs):
        raise tl.errors.StoreError("gone", remedy="")

    with monkeypatch.context() as broken:
        broken.setattr(pushing, "put_blocks", fails)
        with pytest.raises(tl.errors.StoreError):
            source.push(url, **options)
    assert open_store(url, **options).head() is None
    sent = source.push(url, **options)
    assert (sent.objects, sent.kept) == (0, len(contents(source)) - source.info.blocks)
    assert objects_at(url, options) == contents(source)


def test_a_target_that_is_ahead_or_went_apart_is_not_touched(source, there, target):
    url, options = target
    source.push(url, **options)
    clone = there.clone(url, **options)
    describe(clone, "clone")
    clone.push(url, **options)
    with pytest.raises(DestinationAhead) as ahead:
        source.push(url, **options)
    assert (ahead.value.common, ahead.value.ahead) == (source.head, 1)
    describe(source, "source")
    with pytest.raises(Diverged) as apart:
        source.push(url, **options)
    assert (apart.value.source, apart.value.target) == (1, 1)
    assert open_store(url, **options).head() == clone.head
    assert source.push(url, force=True, **options).blocks == 1
    assert open_store(url, **options).head() == source.head


def test_no_force_puts_one_dataset_over_another(source, there, target):
    url, options = target
    other = there.create("other")
    other.push(url, **options)
    for force in (False, True):
        with pytest.raises(InputError) as caught:
            source.push(url, force=force, **options)
        assert caught.value.code == "OtherDataset"
    assert open_store(url, **options).head() == other.head


def test_a_head_that_moves_meanwhile_is_not_overwritten(source, there, target, monkeypatch):
    url, options = target
    source.push(url, **options)
    clone = there.clone(url, **options)
    describe(clone, "faster")
    describe(source, "slower")
    original = pushing.put_blocks

    def slow(store, blocks):
        monkeypatch.setattr(pushing, "put_blocks", original)
        clone.push(url, **options)
        return original(store, blocks)

    monkeypatch.setattr(pushing, "put_blocks", slow)
    with pytest.raises(RefCASFailed):
        source.push(url, **options)
    assert open_store(url, **options).head() == clone.head


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_damaged_data_is_not_sent(source, tmp_path, damage):
    name = source.chain.block(source.head).data_event.new_data.physical_hash
    path = Path(source.chain.store.location) / "data" / name
    if damage == "flip":
        raw = bytearray(path.read_bytes())
        raw[20] ^= 1
        path.write_bytes(raw)
    else:
        path.unlink()
    with pytest.raises(HashMismatch if damage == "flip" else ObjectMissing):
        source.push(tmp_path / "out")
    assert open_store(tmp_path / "out").head() is None
    assert not (tmp_path / "out" / "data" / name).exists()


def test_a_folder_that_holds_other_things_is_left_alone(source, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters.txt").write_text("dear")
    with pytest.raises(InputError, match=r"letters\.txt"):
        source.push(tmp_path / "home")
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["letters.txt"]


def test_a_file_server_takes_nothing(source):
    with pytest.raises(InputError, match="read only"):
        source.push("https://example.org/trades")


def test_a_tag_of_a_commit_that_was_made_while_others_were_sent_goes_with_the_next_push(
    source, target, monkeypatch
):
    url, options = target
    ws, run = source.workspace, pushing._Sending.run
    ws.tag("v1", source)

    def slow(sending, name, *, force):
        done = run(sending, name, force=force)
        source.append(pa.table({"k": [5], "v": ["e"]}))
        ws.tag("v2", source)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(pushing._Sending, "run", slow)
        assert source.push(url, **options).tags == ("v1",)
    store = open_store(url, **options)
    assert (store.head("v1"), store.head("v2")) == (store.head(), None)
    assert source.push(url, **options).tags == ("v2",)
    assert store.head("v2") == store.head() == source.head


def test_a_tag_of_what_a_reset_has_cut_off_stays_here_and_is_named(source, target):
    url, options = target
    ws, first = source.workspace, source.commit()
    ws.tag("v1", source.append(pa.table({"k": [5], "v": ["e"]})))
    source.chain.reset(first.block)
    ws.tag("v2", source)
    done = source.push(url, **options)
    assert (done.tags, done.left_behind) == (("v2",), ("v1",))
    assert done.to_dict()["left_behind"] == ("v1",)
    assert open_store(url, **options).head("v1") is None
