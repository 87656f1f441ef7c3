from __future__ import annotations

from typing import Any

import pytest

from tests.chain.histories import History, add_data, data_slice, derivative, execute, root, taken
from tests.chain.stores import CountingStore
from trueline.chain import Block, Folder, MemoryStore
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile, StateFile
from trueline.chain.references import Reference, references
from trueline.chain.verify import verify_objects
from trueline.errors import InputError
from trueline.identity.multihash import Multihash


def put(store: Any, folder: Folder, content: bytes) -> dict[str, Any]:
    return {"physicalHash": str(store.put(folder, content)), "size": len(content)}


def checkpoint_over(store: Any, *states: bytes, **notes: Any) -> dict[str, Any]:
    files = tuple(StateFile(store.put(Folder.CHECKPOINTS, state), len(state)) for state in states)
    return put(store, Folder.CHECKPOINTS, CheckpointFile(files, notes).to_bytes())


def found(history: History, *, seen: set[Any] | None = None) -> list[Reference]:
    return list(references(history.chain.block(history.head), history.store, seen))


def names(*contents: bytes) -> set[Multihash]:
    return {Multihash.of(content) for content in contents}


def event_with(kind: str, **fields: Any) -> History:
    if kind == "AddData":
        return root(add_data(**fields))
    return derivative("a", events=(execute(taken("a", None, "a1", None, 9), **fields),))


@pytest.mark.parametrize("kind", ["AddData", "ExecuteTransform"])
def test_an_event_refers_to_its_slice_its_checkpoint_and_what_that_lists(kind):
    store = MemoryStore()
    part = data_slice(0, 9) | put(store, Folder.DATA, b"rows")
    history = event_with(
        kind, newData=part, newCheckpoint=checkpoint_over(store, b"one", b"two"), newWatermark=None
    )
    history.store.sync()
    references_found = list(references(history.chain.block(history.head), store))
    assert {(item.folder, item.role) for item in references_found} == {
        (Folder.DATA, "slice"),
        (Folder.CHECKPOINTS, "checkpoint"),
        (Folder.CHECKPOINTS, "state"),
    }
    assert names(b"rows", b"one", b"two") < {item.hash for item in references_found}
    assert len(references_found) == 4
    for item in references_found:
        assert item.size == store.size(item.folder, item.hash)


def test_events_without_objects_refer_to_nothing():
    history = root(add_data(watermark=1), {"kind": "SetInfo", "description": "x"})
    for _, block in history.chain.walk():
        assert list(references(block, history.store)) == []


def test_what_a_block_carries_on_is_not_its_own():
    store = MemoryStore()
    kept = checkpoint_over(store)
    history = root(add_data((0, 9), newCheckpoint=kept), store=store)
    history.append(add_data((10, 19), prev=9, prevCheckpoint=kept["physicalHash"]))
    assert {item.role for item in found(history)} == {"slice"}


def test_each_object_is_told_once_over_a_whole_chain():
    store = MemoryStore()
    first = checkpoint_over(store, b"base", b"one")
    second = checkpoint_over(store, b"base", b"two")
    history = root(add_data(newCheckpoint=first), store=store)
    history.append(add_data(prevCheckpoint=first["physicalHash"], newCheckpoint=second))
    history.append(add_data(prevCheckpoint=second["physicalHash"], newCheckpoint=second, watermark=1))
    seen: set[Any] = set()
    told = [item for _, block in history.chain.walk() for item in references(block, store, seen)]
    assert len(told) == len({item.hash for item in told}) == 5
    assert names(b"base", b"one", b"two") < {item.hash for item in told}


def test_a_checkpoint_that_many_blocks_repeat_is_opened_once():
    store = CountingStore()
    kept = checkpoint_over(store, b"base")
    history = root(add_data(newCheckpoint=kept), store=store)
    for minute in range(1, 20):
        history.append(add_data(prevCheckpoint=kept["physicalHash"], newCheckpoint=kept, watermark=minute))
    store.reset()
    seen: set[Any] = set()
    for _, block in history.chain.walk():
        list(references(block, store, seen))
    assert store.gets[Folder.CHECKPOINTS] == 1


def test_the_same_bytes_in_two_folders_are_two_objects():
    store = MemoryStore()
    part = data_slice(0, 9) | put(store, Folder.DATA, b"same")
    history = root(add_data(newData=part, newCheckpoint=put(store, Folder.CHECKPOINTS, b"same")), store=store)
    assert {item.folder for item in found(history)} == {Folder.DATA, Folder.CHECKPOINTS}


def test_a_state_file_that_is_a_checkpoint_elsewhere_is_followed_there():
    store = MemoryStore()
    inner = checkpoint_over(store, b"deep")
    raw = store.get(Folder.CHECKPOINTS, Multihash(inner["physicalHash"]))
    outer = checkpoint_over(store, raw)
    history = root(add_data(newCheckpoint=inner), store=store)
    history.append(add_data(prevCheckpoint=inner["physicalHash"], newCheckpoint=outer))
    seen: set[Any] = set()
    told = [item for _, block in history.chain.walk() for item in references(block, store, seen)]
    assert names(b"deep", raw) < {item.hash for item in told}
    assert len(told) == 3


def test_a_checkpoint_of_another_engine_is_named_and_not_opened_up():
    store = MemoryStore()
    history = root(add_data(newCheckpoint=put(store, Folder.CHECKPOINTS, b"PK\x03\x04 opaque")), store=store)
    (only,) = found(history)
    assert (only.folder, only.role) == (Folder.CHECKPOINTS, "checkpoint")


def test_an_object_that_is_missing_is_named_and_not_followed():
    history = root(add_data((0, 9), leaves="gone"))
    assert {item.role for item in found(history)} == {"slice", "checkpoint"}


class Damaged(MemoryStore):
    """A store whose checkpoints are not what their names say."""

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        raw = super().get(folder, name, limit=limit)
        return raw.replace(b'"size":3', b'"size":4') if folder is Folder.CHECKPOINTS else raw


def test_a_damaged_checkpoint_is_named_and_what_it_now_lists_is_not_believed():
    store = Damaged()
    history = root(add_data(newCheckpoint=checkpoint_over(store, b"one")), store=store)
    (only,) = found(history)
    assert only.role == "checkpoint"


def test_a_checkpoint_larger_than_it_says_is_named_and_not_read():
    store = MemoryStore()
    content = b" " * (MAX_CHECKPOINT_BYTES + 1)
    lying = put(store, Folder.CHECKPOINTS, content) | {"size": 10}
    history = root(add_data(newCheckpoint=lying), store=store)
    assert [item.role for item in found(history)] == ["checkpoint"]


def test_a_checkpoint_that_says_it_is_huge_is_not_opened():
    store = CountingStore()
    kept = checkpoint_over(store, b"one") | {"size": MAX_CHECKPOINT_BYTES + 1}
    history = root(add_data(newCheckpoint=kept), store=store)
    block = history.chain.block(history.head)
    store.reset()
    assert len(list(references(block, store))) == 1
    assert store.gets[Folder.CHECKPOINTS] == 0


def test_a_checkpoint_of_a_later_version_is_not_taken_for_one_that_lists_nothing():
    store = MemoryStore()
    later = CheckpointFile().to_bytes().replace(b'"version":1', b'"version":3')
    kept = put(store, Folder.CHECKPOINTS, later)
    history = root(add_data(newCheckpoint=kept), store=store)
    with pytest.raises(InputError) as caught:
        found(history)
    assert kept["physicalHash"] in caught.value.problem
    assert "upgrade" in caught.value.remedy


def test_a_checkpoint_that_is_not_understood_is_reported_by_verification():
    store = MemoryStore()
    later = CheckpointFile().to_bytes().replace(b'"version":1', b'"version":3')
    history = root(add_data(newCheckpoint=put(store, Folder.CHECKPOINTS, later)), store=store)
    (problem,) = verify_objects(history.chain).problems
    assert "version" in problem.message


def test_a_block_read_from_bytes_refers_to_the_same():
    store = MemoryStore()
    history = root(add_data((0, 9), newCheckpoint=checkpoint_over(store, b"one")), store=store)
    block = history.chain.block(history.head)
    again = Block.from_bytes(block.to_bytes())
    assert list(references(again, store)) == list(references(block, store))
