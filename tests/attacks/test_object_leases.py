"""A commit without its data: collections whose clock is wrong, leases that ended, writers that slept."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest

from tests.chain.store.ledger import commit, reachable, walk
from tests.chain.store.small_s3 import SmallS3, serving
from trueline.chain.references import Reference
from trueline.chain.store import object_leases, object_turn
from trueline.chain.store.file import FileStore
from trueline.chain.store.gc import Collected, collect
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.store import Folder, Store
from trueline.errors import RefCASFailed, RetryError, StoreError
from trueline.identity.multihash import Multihash
from trueline.workspace.transfer.copy import Copied, copy_objects
from trueline.workspace.transfer.remote import StoreRemote
from trueline.workspace.url_location import UrlPlace

pytestmark = pytest.mark.contract("guard:G5")

DAY = 86_400.0
REQUESTS = ("get", "head", "put", "delete", "list")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def s3() -> Iterator[SmallS3]:
    with serving() as server:
        yield server


@pytest.fixture(params=["memory", "s3"])
def opened(request: pytest.FixtureRequest) -> Callable[..., ObjectStore]:
    """Opens one dataset in an object store, as often as wanted; `lease_seconds=-1` gives every other up."""
    number = next(_numbers)
    if request.param == "memory":
        return lambda **how: ObjectStore(f"memory://attacks-{number}/lake/ds", **how)
    server: SmallS3 = request.getfixturevalue("s3")
    return lambda **how: ObjectStore(f"s3://bucket/attacks-{number}/ds", **server.options, **how)


@contextmanager
def clock_ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    """As on a machine whose clock is wrong; the store's is not."""
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + seconds)
        yield


def collected(store: Store) -> Collected:
    return collect(store, lambda: reachable(store), older_than=0)


def block_text(before: Multihash, note: str, data: Multihash) -> bytes:
    return f"{before}\n{note}\n{data}".encode()


def whole(store: Store) -> list[str]:
    """The notes of all commits; fails if an object of any is gone."""
    return [note for _, note, _ in walk(store)]


@pytest.mark.parametrize("ahead", [2 * DAY, 400 * DAY, -2 * DAY])
def test_a_collection_by_a_wrong_clock_spares_what_is_in_flight(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    writer = opened()
    first = commit(writer, b"first")
    with writer.lease():
        data = writer.put(Folder.DATA, b"in flight")
        with clock_ahead(monkeypatch, ahead):
            assert collected(opened()).removed == []
        block = writer.put(Folder.BLOCKS, block_text(first, "", data))
        with clock_ahead(monkeypatch, ahead):
            collected(opened())
        writer.move_head(block, expected=first)
    assert len(whole(writer)) == 2


def test_what_is_young_is_young_by_the_stores_clock(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    commit(store, b"first")
    with store.lease():
        store.put(Folder.DATA, b"left over")
    with clock_ahead(monkeypatch, 2 * DAY):
        done = collect(store, lambda: reachable(store), older_than=3600)
    assert (done.removed, done.kept_in_flight) == ([], 1)


@pytest.mark.parametrize("writer_ahead", [-2 * DAY, 0.0, 2 * DAY])
def test_a_commit_whose_lease_was_given_up_is_refused_and_can_be_done_again(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch, writer_ahead: float
) -> None:
    writer, collector = opened(), opened(lease_seconds=-1)
    with clock_ahead(monkeypatch, writer_ahead):
        first = commit(writer, b"first")
        with writer.lease():
            data = writer.put(Folder.DATA, b"slice")
            block = writer.put(Folder.BLOCKS, block_text(first, "late", data))
            collected(collector)
            with pytest.raises(RetryError, match="lease") as caught:
                writer.move_head(block, expected=first)
            with pytest.raises(RetryError):
                writer.move_head(block, expected=first)
        assert caught.value.code == "LeaseLost"
        assert writer.head() == first
        commit(writer, b"slice", note="again")
    assert whole(collector) == ["again", ""]
    assert writer.oldest_lease() is None


def test_a_block_of_a_lost_lease_is_not_moved_to_without_being_put_again(
    opened: Callable[..., ObjectStore],
) -> None:
    writer = opened()
    first = commit(writer, b"first")
    data = writer.put(Folder.DATA, b"slice")
    block = writer.put(Folder.BLOCKS, block_text(first, "", data))
    opened(lease_seconds=-1).fence()
    writer.delete(Folder.DATA, data)
    with pytest.raises(StoreError, match="lease"):
        writer.move_head(block, expected=first)
    with pytest.raises(LookupError):
        writer.move_head(block, expected=first)
    assert writer.head() == first


def test_a_lease_that_a_stranger_removed_stops_the_commit(opened: Callable[..., ObjectStore]) -> None:
    writer = opened()
    first = commit(writer, b"first")
    with writer.lease():
        data = writer.put(Folder.DATA, b"slice")
        block = writer.put(Folder.BLOCKS, block_text(first, "", data))
        for meta in writer._list("private/leases"):
            obstore.delete(writer._client, meta["path"])
        collected(opened())
        with pytest.raises(RetryError, match="lease"):
            writer.move_head(block, expected=first)
    assert whole(writer) == [""]


class Asleep:
    """Stops a writer before a request that a test chooses, and does something else meanwhile."""

    def __init__(
        self, patch: pytest.MonkeyPatch, name: str, where: str, meanwhile: Callable[[], Any]
    ) -> None:
        self.done = False
        real = getattr(obstore, name)

        def request(client: Any, key: Any, *args: Any, **options: Any) -> Any:
            if where in key and not self.done:
                self.done = True
                meanwhile()
            return real(client, key, *args, **options)

        patch.setattr(obstore, name, request)


def test_a_writer_that_slept_after_it_confirmed_its_lease_cannot_move_the_head(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, collector = opened(), opened(lease_seconds=-1)
    first = commit(writer, b"first")
    asleep = Asleep(monkeypatch, "put", "refs/head", lambda: collected(collector))
    with pytest.raises(RetryError, match="lease"):
        commit(writer, b"slice", note="slept")
    assert asleep.done
    assert writer.head() == first
    commit(writer, b"slice", note="awake")
    assert whole(collector) == ["awake", ""]


def test_many_collections_while_a_writer_sleeps_do_not_give_it_its_head_back(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is spelled anew by each; a spelling that came again would let the writer through."""
    writer, collector = opened(), opened(lease_seconds=-1)
    first = commit(writer, b"first")

    def collections() -> None:
        for number in range(6):
            collected(collector)
            opened().put(Folder.DATA, b"of one who died %d" % number)

    Asleep(monkeypatch, "put", "refs/head", collections)
    with pytest.raises(RetryError):
        commit(writer, b"slice")
    assert writer.head() == first
    commit(writer, b"slice")
    assert len(whole(writer)) == 2


def test_a_creation_that_slept_is_not_born_without_its_blocks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = f"memory://attacks-{next(_numbers)}/lake"
    place = UrlPlace(url, {})
    writer = place.store("trades", durable=True)

    def remove() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(UrlPlace, "store", lambda *_a, **_k: ObjectStore(writer.location, lease_seconds=-1))
            assert place.remove_unfinished("trades", time.time() + DAY, dry_run=False)

    asleep = Asleep(monkeypatch, "put", "refs/head", remove)
    with pytest.raises(RetryError):
        commit(writer, b"first")
    assert asleep.done
    assert writer.head() is None
    assert commit(writer, b"first", note="born") == writer.head()
    assert whole(writer) == ["born"]


def test_an_unfinished_creation_is_not_removed_by_a_clock_that_is_ahead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = UrlPlace(f"memory://attacks-{next(_numbers)}/lake", {})
    writer = place.store("trades", durable=True)
    with writer.lease():
        writer.put(Folder.BLOCKS, b"seed")
        with clock_ahead(monkeypatch, 9 * DAY):
            assert not place.remove_unfinished("trades", time.time() - DAY, dry_run=False)
    with clock_ahead(monkeypatch, 9 * DAY):
        assert not place.remove_unfinished("trades", time.time() - DAY, dry_run=False)
    assert place.remove_unfinished("trades", time.time() + DAY, dry_run=False)


def test_an_object_that_is_about_to_be_removed_is_not_relied_on(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector has looked and sleeps; the same object is put again; the collector removes it."""
    writer, collector = opened(), opened()
    first = commit(writer, b"first")
    with writer.lease():
        litter = writer.put(Folder.DATA, b"slice")
    refused: list[str] = []

    def put_again() -> None:
        with pytest.raises(RetryError) as caught:
            commit(writer, b"slice")
        refused.append(caught.value.code)

    Asleep(monkeypatch, "delete", litter, put_again)
    assert collector.delete(Folder.DATA, litter)
    assert refused == ["BeingCollected"]
    assert writer.head() == first
    commit(writer, b"slice", note="again")
    assert whole(collector) == ["again", ""]


def test_an_announcement_of_a_collector_that_died_is_forgotten_by_the_stores_clock(
    s3: SmallS3,
) -> None:
    path = f"attacks-{next(_numbers)}/ds"
    store = ObjectStore(f"s3://bucket/{path}", **s3.options)
    commit(store, b"first")
    with store.lease():
        store.put(Folder.DATA, b"slice")
    key = f"{path}/private/collecting/died"
    s3.store(key, b"")
    with pytest.raises(RetryError, match="being removed"):
        commit(store, b"slice")
    data, etag, stamp = s3.objects[key]
    s3.objects[key] = (data, etag, stamp - timedelta(hours=1))
    commit(store, b"slice")
    assert len(whole(store)) == 2


def test_a_machine_that_was_suspended_renews_its_lease_or_learns_that_it_is_lost(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock that can be set, nor one that stops with the machine, says when to renew."""
    store = opened()
    first = commit(store, b"first")
    slept, real = 0.0, object_leases.elapsed
    monkeypatch.setattr(object_leases, "elapsed", lambda: real() + slept)
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)

    def lease() -> bytes:
        (meta,) = store._list("private/leases")
        return obstore.get(store._client, meta["path"]).bytes().to_bytes()

    with store.lease():
        before = lease()
        store.put(Folder.DATA, b"a")
        assert lease() == before
        slept = 3 * DAY
        store.put(Folder.DATA, b"b")
        assert lease() != before, "renewed by the first write after it woke"
        slept = 6 * DAY
        opened(lease_seconds=-1).fence()
        with pytest.raises(RetryError, match="lease"):
            store.put(Folder.DATA, b"c")
    assert store.head() == first
    commit(store, b"c")


def test_a_turn_is_forgotten_by_the_stores_clock(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(), opened()
    with one.turn(alone=True), clock_ahead(monkeypatch, DAY):
        assert not other._turns._is_old(obstore.head(other._client, other._key("private/turn")))


@pytest.mark.parametrize("alone", [False, True])
def test_a_turn_is_renewed_for_as_long_as_it_is_held(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """A pull computes for hours under its turn; it would be deleted, and the same computed beside it."""
    monkeypatch.setattr(object_turn, "TURN_SECONDS", 0.03)
    renewed, real = threading.Event(), obstore.put

    def put(client: Any, key: str, *content: Any, **how: Any) -> Any:
        done = real(client, key, *content, **how)
        if key.endswith("private/turn") and "mode" not in how:
            renewed.set()
        return done

    monkeypatch.setattr(obstore, "put", put)
    store = opened()
    with store.turn(alone=alone):
        assert renewed.wait(30)
        renewed.clear()
        assert renewed.wait(30), "and again"
    with pytest.raises(FileNotFoundError):
        obstore.head(store._client, store._key("private/turn"))


# --- every interleaving of a commit and a collection ---------------------------


class Interleaved:
    """A commit that stops before its k-th request until a collection is at its j-th, which then waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str, k: int, j: int) -> None:
        self.url, self.k, self.j = url, k, j
        self.counts: dict[str, int] = {}
        self.collector_waits, self.commit_ended = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.problems: list[BaseException] = []
        for name in REQUESTS:
            monkeypatch.setattr(obstore, name, self._watched(getattr(obstore, name)))

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def request(*args: Any, **options: Any) -> Any:
            who = threading.current_thread().name
            self.counts[who] = number = self.counts.get(who, 0) + 1
            if who == "writer" and number == self.k:
                self.thread = threading.Thread(target=self._collect, name="collector")
                self.thread.start()
                assert self.collector_waits.wait(3)
            if who == "collector" and number == self.j:
                self.collector_waits.set()
                assert self.commit_ended.wait(3)
            return real(*args, **options)

        return request

    def _collect(self) -> None:
        try:
            collected(ObjectStore(self.url, lease_seconds=-1))
        except BaseException as error:  # noqa: BLE001 (shown by the test)
            self.problems.append(error)
        finally:
            self.collector_waits.set()

    def run(self) -> None:
        threading.current_thread().name, before = "writer", threading.current_thread().name
        self.counts.clear()
        try:
            commit(ObjectStore(self.url), b"relied on", b"new", note="in between")
        finally:
            threading.current_thread().name = before
            self.commit_ended.set()
            if self.thread is not None:
                self.thread.join()


def test_every_interleaving_of_a_commit_and_a_collection_keeps_or_refuses_it() -> None:
    """The collector holds every lease for dead; a part of what is committed lies about already."""
    kept = refused = 0
    for k in itertools.count(1):
        reached_k = False
        for j in itertools.count(1):
            url = f"memory://attacks-{next(_numbers)}/ds"
            store = ObjectStore(url)
            first = commit(store, b"first")
            with store.lease():
                store.put(Folder.DATA, b"relied on")
            with pytest.MonkeyPatch.context() as patch:
                race = Interleaved(patch, url, k, j)
                try:
                    race.run()
                    kept += 1
                except RetryError:
                    refused += 1
                    assert store.head() == first, (k, j)
            assert race.problems == [], (k, j)
            notes = whole(store)
            assert notes in ([""], ["in between", ""]), (k, j)
            if notes == [""]:
                commit(store, b"relied on", b"new", note="again")
                assert whole(store) == ["again", ""], (k, j)
            reached_k = race.counts["writer"] >= k
            if not reached_k or race.counts.get("collector", 0) < j:
                break
        if not reached_k:
            break
    assert kept > 20
    assert refused > 20


# --- transfers ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "file", "object", "s3"])
def test_a_transfer_does_not_rely_on_what_a_collection_is_about_to_remove(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What an interrupted transfer left is old and unreferenced; the next one finds it there and keeps it."""
    number = next(_numbers)
    target: Store
    if kind == "s3":
        server: SmallS3 = request.getfixturevalue("s3")
        target = ObjectStore(f"s3://bucket/attacks-{number}/ds", **server.options)
    elif kind == "object":
        target = ObjectStore(f"memory://attacks-{number}/ds")
    else:
        target = MemoryStore() if kind == "memory" else FileStore(tmp_path / "ds")
    source = MemoryStore()
    data = source.put(Folder.DATA, b"slice")
    source.sync()
    first = commit(target, b"first")
    with target.lease():
        target.put(Folder.DATA, b"slice")
        target.sync()
    if isinstance(target, ObjectStore) and kind == "s3":
        key = f"attacks-{number}/ds/data/{data}"
        server.objects[key] = (*server.objects[key][:2], server.objects[key][2] - timedelta(days=9))
    copied = Copied()
    with target.lease():
        wanted = [Reference(Folder.DATA, data, len(b"slice"), "slice")]
        copy_objects(StoreRemote(source), target, wanted, copied, label="sending")
        collected(target)
        block = target.put(Folder.BLOCKS, block_text(first, "sent", data))
        target.move_head(block, expected=first)
    assert (copied.kept, copied.objects) == (1, 0)
    assert whole(target) == ["sent", ""]


def test_a_race_that_was_lost_is_still_told_as_one(opened: Callable[..., ObjectStore]) -> None:
    store = opened()
    first = commit(store, b"first")
    commit(store, b"second")
    with pytest.raises(RefCASFailed):
        commit(store, b"third", expected=first)
