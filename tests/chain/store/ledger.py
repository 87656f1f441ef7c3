"""A toy chain for testing stores: a block is text that names the block before it and its data."""

from __future__ import annotations

from collections.abc import Iterator

from trueline.chain.store.store import Folder, Store
from trueline.identity.multihash import Multihash


def commit(
    store: Store, *contents: bytes, note: str = "", expected: Multihash | str | None = "now"
) -> Multihash:
    """Put data and a block that names it, and move the head from where it is (or `expected`)."""
    with store.lease():
        head = store.head() if expected == "now" else expected
        data = [store.put(Folder.DATA, content) for content in contents]
        block = store.put(Folder.BLOCKS, "\n".join([head or "-", note, *data]).encode())
        store.move_head(block, expected=head)
    return block


def walk(store: Store) -> Iterator[tuple[Multihash, str, list[Multihash]]]:
    """Yield (block, note, data) from the head back; every byte is checked against its name."""
    at = store.head()
    while at is not None:
        text = store.get(Folder.BLOCKS, at)
        assert Multihash.of(text) == at
        previous, note, *data = text.decode().split("\n")
        names = [Multihash(name) for name in data]
        for name in names:
            assert Multihash.of(store.get(Folder.DATA, name)) == name
        yield at, note, names
        at = None if previous == "-" else Multihash(previous)


def reachable(store: Store) -> dict[Folder, set[Multihash]]:
    """Everything the head leads to, read without looking at the data."""
    reached: dict[Folder, set[Multihash]] = {folder: set() for folder in Folder}
    at = store.head()
    while at is not None:
        previous, _, *data = store.get(Folder.BLOCKS, at).decode().split("\n")
        reached[Folder.BLOCKS].add(at)
        reached[Folder.DATA].update(map(Multihash, data))
        at = None if previous == "-" else Multihash(previous)
    return reached
