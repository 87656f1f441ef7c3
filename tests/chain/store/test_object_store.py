"""What is particular to object stores: answers that get lost, conditions, leases by age."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, PreconditionError

from tests.chain.store.ledger import commit, walk
from trueline.chain.store import object_leases
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.store import Folder
from trueline.errors import (
    CorruptionError,
    InputError,
    OutcomeUnknown,
    RefCASFailed,
    StorageReadOnly,
    StoreError,
)
from trueline.identity.multihash import Multihash

_numbers = itertools.count()
Put = Callable[..., Any]


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(f"memory://faults-{next(_numbers)}/ds")


class HeadPuts:
    """Stands between the store and `obstore.put` for heads: each script entry serves one request.

    "done": it is done and answered; "lost": done, the answer is lost; "dropped":
    not done, no answer; a callable: called, then the request goes on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: str | Callable[[], object]) -> None:
        self.script = list(script)
        self.requests = 0
        self.real: Put = obstore.put
        monkeypatch.setattr(obstore, "put", self.put)

    def put(self, client: Any, key: str, data: Any, **options: Any) -> Any:
        if "/refs/" not in key:
            return self.real(client, key, data, **options)
        self.requests += 1
        act = self.script.pop(0) if self.script else "done"
        if act == "dropped":
            raise GenericError("request timed out")
        if callable(act):
            act()
        answer = self.real(client, key, data, **options)
        if act == "lost":
            raise GenericError("connection reset before the answer")
        return answer


def test_a_move_whose_answer_is_lost_has_happened(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, b"a")
    puts = HeadPuts(monkeypatch, "lost")
    second = commit(store, b"b")
    assert store.head() == second
    assert puts.requests == 1


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
def test_a_move_that_did_not_arrive_is_sent_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    if not first:
        commit(store, b"a")
    puts = HeadPuts(monkeypatch, "dropped", "dropped")
    assert commit(store, b"b") == store.head()
    assert puts.requests == 3


def test_a_move_that_never_arrives_is_unknown_after_a_bounded_number_of_times(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = commit(store, b"a")
    puts = HeadPuts(monkeypatch, *["dropped"] * 50)
    with pytest.raises(OutcomeUnknown, match="timed out") as caught:
        commit(store, b"b")
    assert puts.requests == 3
    assert store.head() == first
    assert caught.value.remedy


def test_a_move_after_which_someone_else_moved_is_unknown(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, b"a")
    other, real = ObjectStore(store.location), obstore.put

    def put(client: Any, key: str, data: Any, **options: Any) -> Any:
        answer = real(client, key, data, **options)
        if "/refs/" not in key:
            return answer
        monkeypatch.setattr(obstore, "put", real)
        commit(other, b"c", note="moved on")
        raise GenericError("connection reset before the answer")

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(OutcomeUnknown):
        commit(store, b"b")
    assert [note for _, note, _ in walk(store)] == ["moved on", "", ""]


@pytest.mark.contract("chain:C8")
def test_a_head_moved_between_the_look_and_the_request_is_a_lost_race(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = commit(store, b"a")
    other = ObjectStore(store.location)
    winners = []
    HeadPuts(monkeypatch, lambda: winners.append(commit(other, b"winner")))
    with pytest.raises(RefCASFailed) as caught:
        commit(store, b"loser")
    assert (caught.value.expected, caught.value.actual) == (first, winners[0])
    assert store.head() == winners[0]


def test_a_first_head_set_between_the_look_and_the_request_is_a_lost_race(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ObjectStore(store.location)
    HeadPuts(monkeypatch, lambda: commit(other, b"winner", note="winner"))
    with pytest.raises(RefCASFailed):
        commit(store, b"loser")
    assert [note for _, note, _ in walk(store)] == ["winner"]


def test_a_request_the_library_sent_twice_has_happened(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was done and its answer lost; the second fails its condition because of the first."""
    commit(store, b"a")
    puts = HeadPuts(monkeypatch)

    def twice(client: Any, key: str, data: Any, **options: Any) -> Any:
        answer = puts.real(client, key, data, **options)
        if "/refs/" in key:
            raise PreconditionError("412")
        return answer

    monkeypatch.setattr(obstore, "put", twice)
    second = commit(store, b"b")
    assert store.head() == second


def test_a_store_that_refuses_writes_says_so(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(store, b"a")

    def refused(*_args: Any, **_options: Any) -> Any:
        raise PermissionDeniedError("403 Forbidden\n\nDebug source:\n…")

    block = store.put(Folder.BLOCKS, b"block")
    monkeypatch.setattr(obstore, "put", refused)
    for act in (
        lambda: store.put(Folder.DATA, b"b"),
        lambda: store.move_head(block, expected=first),
    ):
        with pytest.raises(StorageReadOnly, match="403 Forbidden") as caught:
            act()
        assert store.location in str(caught.value)
        assert "Debug" not in str(caught.value)
    assert store.head() == first


def test_a_store_out_of_reach_can_be_tried_again(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    block = commit(store, b"a")

    def unreachable(*_args: Any, **_options: Any) -> Any:
        raise GenericError("no route to host")

    with monkeypatch.context() as patch:
        for name in ("get", "head", "put", "delete", "list", "get_range"):
            patch.setattr(obstore, name, unreachable)
        for act in (
            store.head,
            lambda: store.get(Folder.BLOCKS, block),
            lambda: store.size(Folder.BLOCKS, block),
            lambda: store.put(Folder.BLOCKS, b"x"),
            lambda: list(store.list(Folder.BLOCKS)),
            lambda: store.delete(Folder.BLOCKS, block),
            store.oldest_lease,
        ):
            with pytest.raises(StoreError, match="no route"):
                act()
    assert store.get(Folder.BLOCKS, block)
    commit(store, b"b")
    assert len(list(walk(store))) == 2


def test_an_object_collected_while_it_was_relied_on_stops_the_commit(store: ObjectStore) -> None:
    commit(store, b"a")
    head = store.head()
    with store.lease():
        name = store.put(Folder.DATA, b"a")
        block = store.put(Folder.BLOCKS, b"block")
        ObjectStore(store.location).delete(Folder.DATA, name)
        with pytest.raises(StoreError, match="put the objects of the commit again"):
            store.move_head(block, expected=head)
    assert store.head() == head


def test_a_commit_costs_few_requests(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store, b"a")
    requests: list[str] = []

    def counting(name: str, real: Put) -> Put:
        def call(*args: Any, **options: Any) -> Any:
            requests.append(name)
            return real(*args, **options)

        return call

    for name in ("get", "head", "put", "delete", "list"):
        monkeypatch.setattr(obstore, name, counting(name, getattr(obstore, name)))
    commit(store, b"b")
    # The lease (put, head, put again before the move, delete), the head twice (once by the test), two
    # objects, the move, and a look whether another writer is alone.
    assert sorted(requests) == ["delete", "get", "get", "get", "head", "put", "put", "put", "put", "put"]
    requests.clear()
    with store.turn():
        begun = len(requests)
        commit(store, b"c")
        assert requests[begun:].count("get") == 2, "whose turn it is need not look"


def test_a_lease_that_was_not_renewed_is_cleared_by_age() -> None:
    url = f"memory://leases-{next(_numbers)}/ds"
    dead, patient, impatient = ObjectStore(url), ObjectStore(url), ObjectStore(url, lease_seconds=-1)
    dead.put(Folder.DATA, b"of one who died")
    started = patient.oldest_lease()
    assert started is not None
    assert impatient.oldest_lease() is None
    assert patient.oldest_lease() == started, "a question changes nothing"
    assert impatient.fence() is None
    assert patient.oldest_lease() is None


def test_a_lease_is_renewed_by_writes_and_keeps_its_beginning(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_leases, "RENEW_SECONDS", -1.0)
    with store.lease():
        started = store.oldest_lease()
        (first,) = store._list("private/leases")
        store.put(Folder.DATA, b"data")
        (second,) = store._list("private/leases")
        assert second["last_modified"] > first["last_modified"]
        assert store.oldest_lease() == started


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"\xff", b"x" * 5000])
def test_a_head_with_garbage_is_corruption_that_names_the_key(store: ObjectStore, garbage: bytes) -> None:
    obstore.put(store._client, store._key("refs", "head"), garbage)
    with pytest.raises(CorruptionError, match=f"{store.location}/refs/head"):
        store.head()


def test_foreign_keys_are_passed_over(store: ObjectStore) -> None:
    commit(store, b"a")
    for key in ("README", "sub/" + Multihash.of(b"below"), Multihash.of(b"x").upper()):
        obstore.put(store._client, store._key("data", key), b"foreign")
    obstore.put(store._client, store._key("database", Multihash.of(b"x")), b"beside")
    obstore.put(store._client, store._key("private/leases", "foreign"), b"not a time")
    assert [stored.hash for stored in store.list(Folder.DATA)] == [Multihash.of(b"a")]
    assert store.oldest_lease() is not None


@pytest.mark.parametrize("url", ["file:///lake", "/lake", "lake"])
def test_a_folder_is_refused_and_the_right_store_named(url: str) -> None:
    with pytest.raises(InputError, match="FileStore"):
        ObjectStore(url)


@pytest.mark.parametrize("url", ["nosuch://bucket/x", "s3://"])
def test_a_url_that_cannot_be_opened_is_input(url: str) -> None:
    with pytest.raises(InputError) as caught:
        ObjectStore(url)
    assert caught.value.code == "BadStoreUrl"
