"""Roots and logs for tests of cuts: small chains, and objects that count and can be interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.chain.histories import History, add_data, dataset_id, root
from trueline.chain import Chain, Instant, MemoryStore, Store
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.transaction import Transaction
from trueline.workspace.small_objects import SmallObjects

SECOND = 1_000_000_000


class HeadCounter:
    """A store that counts how often its head is read."""

    def __init__(self, inner: Store | None = None) -> None:
        self.inner = MemoryStore() if inner is None else inner
        self.heads = 0

    def head(self, ref: str = "head") -> Multihash | None:
        self.heads += 1
        return self.inner.head(ref)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Clock:
    """A time that tests set."""

    def __init__(self, text: str = "2026-06-01T00:00:00Z") -> None:
        self.now = Instant.parse(text)

    def __call__(self) -> Instant:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now = Instant(self.now + int(seconds * SECOND))


class Watched:
    """Objects that count what is asked; `before` is called with each verb and name, and may raise."""

    def __init__(self, inner: SmallObjects, before: Callable[[str, str], object] | None = None) -> None:
        self.inner = inner
        self.location = inner.location
        self.before = before
        self.counts: Counter[str] = Counter()

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self.inner, verb)

        def asked(*args: Any, **kwargs: Any) -> Any:
            self.counts[verb] += 1
            if self.before is not None:
                self.before(verb, args[0] if args else "")
            return found(*args, **kwargs)

        return asked


class Lake:
    """Roots by label, each a chain in memory, and logs over one place."""

    def __init__(self, objects: SmallObjects) -> None:
        self.objects = objects
        self.clock = Clock()
        self.roots: dict[DatasetId, History] = {}
        self.meanwhile: Callable[[DatasetId], object] | None = None

    def root(self, label: str) -> DatasetId:
        """Make a root without data."""
        self.roots[dataset_id(label)] = root(label=label, store=HeadCounter())
        return dataset_id(label)

    def append(self, name: DatasetId, rows: int = 10, **more: Any) -> Multihash:
        """Append records, or with none of them a watermark alone."""
        history = self.roots[name]
        tail = history.chain.tail()
        after = tail.last_offset
        number = tail.sequence_number
        event = add_data(
            (tail.next_offset, tail.next_offset + rows - 1) if rows else None,
            prev=after,
            watermark=number,
            **more,
        )
        return history.append(event).head

    def describe(self, name: DatasetId, text: str = "x") -> None:
        self.roots[name].append({"kind": "SetInfo", "description": text})

    def chain_of(self, name: DatasetId) -> Chain | None:
        if self.meanwhile is not None:
            self.meanwhile(name)
        history = self.roots.get(name)
        return None if history is None else history.chain

    def log(self, objects: Any = None) -> CutLog:
        """A log as another process would open it."""
        return CutLog(self.objects if objects is None else objects, self.chain_of, self.clock)

    def transaction(self, *roots: DatasetId, **more: Any) -> Transaction:
        def chain_of(name: DatasetId) -> Chain | None:
            history = self.roots.get(name)
            return None if history is None else history.chain

        return Transaction(self.objects, chain_of, *roots, clock=self.clock, **more)

    def heads_read(self) -> int:
        """How many heads were read since this was last asked."""
        found = sum(history.store.heads for history in self.roots.values())
        for history in self.roots.values():
            history.store.heads = 0
        return found


def offsets(cut: Any, *roots: DatasetId) -> list[int | None]:
    """Where a cut has roots; −1 where it has none."""
    return [cut[name].offset if name in cut else -1 for name in roots]
