"""What every store does, whatever it is made of."""

from __future__ import annotations

import io
import pickle
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chain.store.conftest import Place
from tests.chain.store.ledger import commit, walk
from trueline.chain.store.store import Folder, Store
from trueline.errors import CorruptionError, InputError, ObjectMissing, RefCASFailed
from trueline.identity.multihash import Multihash

NOTHING = Multihash.of(b"never put")


def names(store: Store, folder: Folder) -> set[str]:
    return {stored.hash for stored in store.list(folder)}


# --- objects -----------------------------------------------------------------


@pytest.mark.parametrize("folder", list(Folder))
@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000])
def test_an_object_is_found_under_the_hash_of_its_bytes(store: Store, folder: Folder, data: bytes) -> None:
    name = store.put(folder, data)
    store.sync()
    assert name == Multihash.of(data)
    assert store.get(folder, name) == data
    assert store.size(folder, name) == len(data)
    assert [(s.hash, s.size) for s in store.list(folder)] == [(name, len(data))]
    assert all(names(store, other) == set() for other in Folder if other is not folder)


def test_an_object_that_was_never_put_is_missing(store: Store) -> None:
    assert store.size(Folder.DATA, NOTHING) is None
    assert list(store.list(Folder.DATA)) == []
    assert not store.delete(Folder.DATA, NOTHING)
    for read in (store.get, store.open):
        with pytest.raises(ObjectMissing) as caught:
            read(Folder.DATA, NOTHING)
        assert (caught.value.folder, caught.value.hash) == (Folder.DATA, NOTHING)
    store.put(Folder.DATA, b"another")
    store.sync()
    with pytest.raises(ObjectMissing):
        store.get(Folder.DATA, NOTHING)


def test_who_staged_an_object_can_read_it_at_once(store: Store) -> None:
    name = store.put(Folder.BLOCKS, b"staged")
    assert store.get(Folder.BLOCKS, name) == b"staged"
    assert store.size(Folder.BLOCKS, name) == 6
    with store.open(Folder.BLOCKS, name) as file:
        assert file.read() == b"staged"


def test_an_object_has_no_name_before_it_is_durable(place: Place, store: Store) -> None:
    place.needs("staged")
    name = store.put(Folder.BLOCKS, b"staged")
    assert names(store, Folder.BLOCKS) == set()
    store.sync()
    assert names(store, Folder.BLOCKS) == {name}


def test_a_second_opener_sees_what_was_synced(place: Place, store: Store) -> None:
    place.needs("reopened")
    other = place.open()
    assert other is not store
    name = store.put(Folder.BLOCKS, b"block")
    store.sync()
    assert other.get(Folder.BLOCKS, name) == b"block"
    other.close()


def test_putting_an_object_again_renews_its_time_only(place: Place, store: Store) -> None:
    name = store.put(Folder.DATA, b"again")
    store.sync()
    place.make_old(Folder.DATA, name)
    (before,) = store.list(Folder.DATA)
    assert store.put(Folder.DATA, b"again") == name
    store.sync()
    (after,) = store.list(Folder.DATA)
    assert after.modified > before.modified
    assert (after.hash, after.size) == (before.hash, before.size)


def test_an_object_larger_than_expected_is_not_read(store: Store) -> None:
    name = store.put(Folder.BLOCKS, b"12345")
    for _ in range(2):
        assert store.get(Folder.BLOCKS, name, limit=5) == b"12345"
        with pytest.raises(CorruptionError, match="5 bytes, at most 4"):
            store.get(Folder.BLOCKS, name, limit=4)
        store.sync()


def test_an_object_can_be_read_from_any_place(store: Store) -> None:
    data = bytes(range(256)) * 4096
    name = store.put(Folder.DATA, data)
    store.sync()
    with store.open(Folder.DATA, name) as file:
        assert file.seekable()
        assert file.seek(-10, io.SEEK_END) == len(data) - 10
        assert file.read() == data[-10:]
        file.seek(70_000)
        assert file.read(5) == data[70_000:70_005]
        assert file.tell() == 70_005
        file.seek(0)
        assert file.read() == data


def test_deleting_spares_what_was_put_at_the_limit_or_later(store: Store) -> None:
    name = store.put(Folder.DATA, b"data")
    store.sync()
    (stored,) = store.list(Folder.DATA)
    assert not store.delete(Folder.DATA, name, unless_after=stored.modified - 1)
    assert not store.delete(Folder.DATA, name, unless_after=stored.modified)
    assert store.get(Folder.DATA, name) == b"data"
    assert store.delete(Folder.DATA, name, unless_after=stored.modified + 1)
    assert store.size(Folder.DATA, name) is None
    assert not store.delete(Folder.DATA, name)


# --- writers -----------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_a_writer_names_what_was_written(store: Store, chunk: int) -> None:
    data = b"some bytes of a slice" * 10
    writer = store.writer(Folder.DATA)
    for at in range(0, len(data), chunk):
        assert writer.write(memoryview(data)[at : at + chunk]) == len(data[at : at + chunk])
    stored = writer.finish()
    assert (stored.hash, stored.size) == (Multihash.of(data), len(data))
    assert abs(stored.modified - time.time()) < 60
    assert writer.finish() == stored
    writer.abandon()
    store.sync()
    assert store.get(Folder.DATA, stored.hash) == data


def test_a_writer_takes_more_than_one_request_may_carry(store: Store) -> None:
    writer = store.writer(Folder.DATA)
    for part in range(18):
        writer.write(bytes([part]) * (1 << 20))
    stored = writer.finish()
    store.sync()
    assert stored.size == store.size(Folder.DATA, stored.hash) == 18 << 20
    assert Multihash.of(store.get(Folder.DATA, stored.hash)) == stored.hash


def test_an_abandoned_object_leaves_nothing(store: Store) -> None:
    writer = store.writer(Folder.DATA)
    writer.write(b"half")
    writer.abandon()
    writer.abandon()
    store.sync()
    assert names(store, Folder.DATA) == set()
    assert store.size(Folder.DATA, Multihash.of(b"half")) is None
    for use in (writer.finish, lambda: writer.write(b"more")):
        with pytest.raises(InputError) as caught:
            use()
        assert caught.value.code == "WriterClosed"


def test_parquet_can_be_written_straight_into_a_store(store: Store) -> None:
    table = pa.table({"x": list(range(1000)), "y": [str(i) for i in range(1000)]})
    writer = store.writer(Folder.DATA)
    pq.write_table(table, pa.PythonFile(writer, mode="w"))
    stored = writer.finish()
    store.sync()
    with store.open(Folder.DATA, stored.hash) as file:
        assert pq.read_table(file).equals(table)


# --- the head ----------------------------------------------------------------


def test_the_head_is_unset_until_it_is_moved(store: Store) -> None:
    assert store.head() is None
    block = store.put(Folder.BLOCKS, b"first")
    assert store.head() is None
    store.move_head(block, expected=None)
    assert store.head() == block
    assert isinstance(store.head(), Multihash)
    assert names(store, Folder.BLOCKS) == {block}


@pytest.mark.contract("chain:C8")
def test_the_head_moves_only_from_where_it_is_expected(store: Store) -> None:
    first, second, third = (store.put(Folder.BLOCKS, text) for text in (b"1", b"2", b"3"))
    with pytest.raises(RefCASFailed):
        store.move_head(first, expected=second)
    assert store.head() is None
    store.move_head(first, expected=None)
    for expected in (None, third):
        with pytest.raises(RefCASFailed) as caught:
            store.move_head(second, expected=expected)
        assert (caught.value.expected, caught.value.actual) == (expected, first)
        assert caught.value.rule == "chain:C8"
        assert store.head() == first
    store.move_head(second, expected=first)
    store.move_head(first, expected=second)
    assert store.head() == first


def test_what_is_done_meanwhile_is_done_once_the_head_has_moved_and_only_then(store: Store) -> None:
    first, second = store.put(Folder.BLOCKS, b"1"), store.put(Folder.BLOCKS, b"2")
    seen: list[Multihash | None] = []
    store.move_head(first, expected=None, meanwhile=lambda: seen.append(store.head()))
    with pytest.raises(RefCASFailed):
        store.move_head(second, expected=None, meanwhile=lambda: seen.append(store.head()))
    assert seen == [first]


def test_a_second_opener_cannot_move_a_head_it_has_not_seen_move(place: Place, store: Store) -> None:
    place.needs("reopened")
    other = place.open()
    assert other is not store
    first = commit(store, b"a")
    with pytest.raises(RefCASFailed):
        commit(other, b"b", expected=None)
    second = commit(other, b"b")
    assert store.head() == second
    with pytest.raises(RefCASFailed):
        commit(store, b"c", expected=first)
    other.close()


def test_refs_are_apart_and_cannot_lead_elsewhere(store: Store) -> None:
    first, second = store.put(Folder.BLOCKS, b"1"), store.put(Folder.BLOCKS, b"2")
    store.move_head(first, expected=None)
    store.move_head(second, expected=None, ref="draft")
    store.move_head(second, expected=None, ref="v1.0")
    assert (store.head(), store.head("draft"), store.head("other")) == (first, second, None)
    assert sorted(store.refs()) == ["draft", "head", "v1.0"]
    for ref in ("", ".", "..", "../head", "a/b", "a\0", ".hidden", "x" * 200, "a..b", "x."):
        with pytest.raises(InputError):
            store.head(ref)
        with pytest.raises(InputError):
            store.move_head(first, expected=None, ref=ref)


def test_the_head_cannot_point_at_a_block_that_is_not_there(store: Store) -> None:
    first = commit(store, b"a")
    with pytest.raises(ObjectMissing):
        store.move_head(NOTHING, expected=first)
    assert store.head() == first


def test_threads_that_race_lose_no_commit(store: Store) -> None:
    def work(who: int) -> None:
        for number in range(15):
            while True:
                try:
                    commit(store, f"data {who}.{number}".encode(), note=f"{who}.{number}")
                    break
                except RefCASFailed:
                    continue

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes = [note for _, note, _ in walk(store)]
    assert sorted(notes) == sorted(f"{who}.{number}" for who in range(4) for number in range(15))
    assert store.oldest_lease() is None


# --- leases ------------------------------------------------------------------


def test_a_lease_lasts_while_it_is_held(store: Store) -> None:
    assert store.oldest_lease() is None
    with store.lease():
        outer = store.oldest_lease()
        assert outer is not None
        assert abs(outer - time.time()) < 60
        with store.lease():
            assert store.oldest_lease() == outer
        assert store.oldest_lease() == outer
        name = store.put(Folder.DATA, b"under the lease")
        store.sync()
        (stored,) = store.list(Folder.DATA)
        assert stored.hash == name
        assert stored.modified >= outer
    assert store.oldest_lease() is None


def test_a_lease_ends_with_the_error_that_left_it(store: Store) -> None:
    with pytest.raises(RuntimeError), store.lease():
        raise RuntimeError
    assert store.oldest_lease() is None


def test_a_put_outside_a_lease_is_protected_until_the_head_moves(store: Store) -> None:
    block = store.put(Folder.BLOCKS, b"block")
    store.sync()
    assert store.oldest_lease() is not None
    with pytest.raises(RefCASFailed):
        store.move_head(block, expected=NOTHING)
    assert store.oldest_lease() is not None
    store.move_head(block, expected=None)
    assert store.oldest_lease() is None


def test_what_was_put_under_a_lease_can_be_committed_after_it(store: Store) -> None:
    with store.lease():
        block = store.put(Folder.BLOCKS, b"block")
    store.move_head(block, expected=None)
    assert store.get(Folder.BLOCKS, block) == b"block"
    assert store.oldest_lease() is None


def test_closing_gives_up_what_is_staged(place: Place, store: Store) -> None:
    place.needs("staged")
    name = store.put(Folder.BLOCKS, b"given up")
    store.close()
    again = place.open()
    again.sync()
    assert again.size(Folder.BLOCKS, name) is None
    assert again.oldest_lease() is None
    again.close()


def test_a_closed_store_can_be_used_again(store: Store) -> None:
    first = commit(store, b"a")
    store.close()
    assert store.head() == first
    commit(store, b"b")
    assert len(list(walk(store))) == 2


def test_a_store_can_be_sent_to_another_process(place: Place, store: Store) -> None:
    if place.kind == "memory":
        with pytest.raises(TypeError):
            pickle.dumps(store)
        return
    first = commit(store, b"a")
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.head(), copy.location) == (first, store.location)
    copy.close()
