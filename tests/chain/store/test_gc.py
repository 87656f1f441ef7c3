"""Collecting what nothing refers to."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from tests.chain.store.conftest import Place
from tests.chain.store.ledger import commit, reachable
from trueline.chain.store.gc import collect
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder, Store
from trueline.errors import InputError
from trueline.identity.multihash import Multihash


def litter(store: Store, *contents: bytes) -> list[Multihash]:
    """Leave objects behind that nothing refers to, as a failed commit does."""
    with store.lease():
        names = [store.put(Folder.DATA, content) for content in contents]
        store.sync()
    return names


def grown_old(place: Place, store: Store) -> None:
    for folder in Folder:
        for stored in list(store.list(folder)):
            place.make_old(folder, stored.hash)


def everything(store: Store) -> set[str]:
    return {stored.hash for folder in Folder for stored in store.list(folder)}


def test_what_nothing_refers_to_is_removed(place: Place, store: Store) -> None:
    commit(store, b"kept")
    kept = everything(store)
    lost = litter(store, b"lost", b"also lost")
    grown_old(place, store)
    seen = collect(store, lambda: reachable(store), older_than=0, dry_run=True)
    assert sorted(s.hash for s in seen.removed) == sorted(lost)
    assert everything(store) == kept | set(lost)
    done = collect(store, lambda: reachable(store), older_than=0)
    assert sorted(s.hash for s in done.removed) == sorted(lost)
    assert (done.bytes, done.kept_in_flight) == (len(b"lost" + b"also lost"), 0)
    assert everything(store) == kept
    assert store.oldest_lease() is None


def test_what_is_reached_may_be_told_as_pairs(place: Place, store: Store) -> None:
    commit(store, b"kept")
    kept = everything(store)
    litter(store, b"lost")
    grown_old(place, store)

    def pairs() -> Iterable[tuple[Folder, Multihash]]:
        for folder, names in reachable(store).items():
            for name in names:
                yield folder, name

    assert len(collect(store, pairs, older_than=0).removed) == 1
    assert everything(store) == kept


def test_an_object_younger_than_the_limit_stays(store: Store) -> None:
    commit(store, b"kept")
    litter(store, b"young")
    done = collect(store, lambda: reachable(store), older_than=3600)
    assert (done.removed, done.kept_in_flight) == ([], 1)
    # Seen from an hour later it is old; but nothing is younger than our own lease, whatever `now` says.
    later = collect(store, lambda: reachable(store), older_than=3600, now=time.time() + 7200)
    assert len(later.removed) + later.kept_in_flight == 1


def test_a_lease_spares_what_is_put_under_it(place: Place, store: Store) -> None:
    commit(store, b"kept")
    (old,) = litter(store, b"old")
    grown_old(place, store)
    with store.lease():
        store.put(Folder.DATA, b"in flight")
        store.sync()
        done = collect(store, lambda: reachable(store), older_than=0, now=time.time() + 7200)
        assert [s.hash for s in done.removed] == [old]
        assert done.kept_in_flight == 1
        assert store.size(Folder.DATA, Multihash.of(b"in flight")) is not None


def test_an_old_object_put_again_by_a_commit_in_flight_stays(place: Place, store: Store) -> None:
    commit(store, b"kept")
    (name,) = litter(store, b"left over")
    grown_old(place, store)
    with store.lease():
        assert store.put(Folder.DATA, b"left over") == name
        store.sync()
        done = collect(store, lambda: reachable(store), older_than=0, now=time.time() + 7200)
    assert (done.removed, done.kept_in_flight) == ([], 1)


def test_the_limit_is_fixed_before_the_head_is_read() -> None:
    """A commit that ends between the two is reached; the other order would lose it."""
    store = MemoryStore()
    commit(store, b"kept")

    def commit_meanwhile() -> dict[Folder, set[Multihash]]:
        # Everything this commit makes is younger than the limit; and it is reached too.
        before = reachable(store)
        commit(store, b"meanwhile")
        return before

    done = collect(store, commit_meanwhile, older_than=0)
    assert (done.removed, done.kept_in_flight) == ([], 2)
    assert store.get(Folder.DATA, Multihash.of(b"meanwhile")) == b"meanwhile"


def test_a_store_without_a_head_loses_nothing(place: Place, store: Store) -> None:
    with store.lease():
        store.put(Folder.BLOCKS, b"of the first commit")
        store.sync()
    grown_old(place, store)

    def never() -> dict[Folder, set[Multihash]]:
        raise AssertionError

    assert collect(store, never, older_than=0, now=time.time() + 7200).removed == []
    assert len(everything(store)) == 1


def test_a_folder_that_is_not_told_of_is_not_emptied(store: Store) -> None:
    commit(store, b"kept")
    with pytest.raises(InputError, match="data, checkpoints"):
        collect(store, lambda: {Folder.BLOCKS: set()}, older_than=0)
    assert len(everything(store)) == 2


@pytest.mark.parametrize("age", [-1.0, float("nan")])
def test_an_age_that_is_none_is_refused(store: Store, age: float) -> None:
    with pytest.raises(InputError):
        collect(store, dict, older_than=age)
