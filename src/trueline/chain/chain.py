"""The record of what happened to one dataset: blocks linked by hash, and a head."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from trueline.chain import rules
from trueline.chain.block import Block, check_commit_end
from trueline.chain.encode import MAX_BLOCK_BYTES
from trueline.chain.events import (
    AddData,
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    Event,
    ExecuteTransform,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
    SetVocab,
)
from trueline.chain.head_state import NO_PUSH, Position, Tail
from trueline.chain.index import Index, Spot
from trueline.chain.index_rows import Damaged, IndexEntry, SeenHead, SliceEntry, Unusable
from trueline.chain.rule import Finding, InputChain
from trueline.chain.store.store import Folder, Store
from trueline.errors import (
    ChainError,
    CorruptionError,
    HashMismatch,
    HeadMissing,
    InputError,
    StoreError,
)
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.limits import DEFAULT

T = TypeVar("T")
_DATA = (AddData, ExecuteTransform)


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did: the new head, stricter rules broken (foreign chains only), rules not checked."""

    head: Multihash
    blocks: tuple[Multihash, ...]
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()


class Chain:
    """Append, look up and walk the blocks of one dataset.

    Appending checks every rule against the tail, which takes a few block
    reads whatever the length of the chain; several blocks move the head once.

    >>> from trueline.chain import MemoryStore
    >>> chain = Chain(MemoryStore())
    >>> chain.append(
    ...     Block.from_dict(
    ...         {"systemTime": "2026-01-01T00:00:00Z", "sequenceNumber": 0, "event": {"kind": "SetInfo"}}
    ...     )
    ... )
    Traceback (most recent call last):
    trueline.errors.ChainError: the first block has to be a Seed, ...
    """

    def __init__(
        self, store: Store, inputs: Mapping[DatasetId, InputChain] | None = None, *, index: Spot | None = None
    ) -> None:
        self.store = store
        self.inputs = inputs
        self.limits = DEFAULT  # the workspace it is in may have others
        self.tags: Callable[[], Mapping[str, Multihash]] | None = None  # those of the workspace it is in
        self._index = Index(index)
        self._lock = threading.RLock()
        self._tail: Tail | None = None

    # --- where it is now --------------------------------------------------------

    @property
    def head(self) -> Multihash | None:
        """The newest block, None if the chain is empty."""
        return self.store.head()

    def tail(self) -> Tail | None:
        """Return the state at the head, None if the chain is empty."""
        with self._lock:
            head = self.store.head()
            if self._tail is None or self._tail.head != head:
                self._tail = self._guarded(lambda: self._load(head))
            return self._tail

    def tail_at(self, block: Multihash) -> Tail:
        """Return the state at a block of the chain, by a few block reads."""
        entry = self._required(block)
        return self._guarded(lambda: self._tail_from_index(entry))

    @property
    def position(self) -> Position | None:
        """The head and the last offset, None if the chain is empty."""
        return tail.position if (tail := self.tail()) else None

    # --- blocks -----------------------------------------------------------------

    def block(self, name: Multihash) -> Block:
        """Read a block and prove it by its hash."""
        raw = self.store.get(Folder.BLOCKS, name, limit=MAX_BLOCK_BYTES)
        actual = Multihash.of(raw)
        if actual != name:
            raise HashMismatch(
                f"block {name} in {self.store.location} hashes to {actual}",
                remedy="restore the file from a copy of the dataset",
                expected=name,
                actual=actual,
            )
        return Block.from_bytes(raw, name=actual)

    def walk(
        self, start: Multihash | None = None, stop: Multihash | None = None
    ) -> Iterator[tuple[Multihash, Block]]:
        """Follow the links from the newest block (or `start`) back to `stop`, which is not included."""
        name = start if start is not None else self.head
        while name is not None and name != stop:
            block = self.block(name)
            yield name, block
            name = block.prev_block_hash
        if name is None and stop is not None:
            raise ChainError(
                f"({stop}, {start or 'head'}] is not an interval of the chain",
                remedy="name a block that precedes the end",
                code="InvalidInterval",
                rule="chain:R4",
            )

    def entries(self, after: Multihash | None = None, upto: Multihash | None = None) -> Iterator[IndexEntry]:
        """Iterate over what the index knows of the blocks in (after, upto], oldest first."""
        tail = self.tail()
        if tail is None:
            return
        first = -1 if after is None else self._required(after).sequence_number
        last = tail.sequence_number if upto is None else self._required(upto).sequence_number
        if first > last:
            raise InputError(f"block {after} comes after block {upto}", remedy="swap them")
        while first < last:
            page = self._guarded(lambda after=first: self._index.page(after, last))  # type: ignore[misc]
            yield from page
            first = page[-1].sequence_number

    def between(
        self, after: Multihash | None, upto: Multihash | None = None
    ) -> Iterator[tuple[Multihash, Block]]:
        """Iterate over the blocks in the half-open interval (after, upto], oldest first."""
        for entry in self.entries(after, upto):
            yield entry.hash, self.block(entry.hash)

    def newest(self, *events: type[Event], nth: int = 0, upto: Multihash | None = None) -> Block | None:
        """Return the n-th newest block with one of these events (0 is the newest), without walking."""
        tail = self.tail()
        if tail is None:
            return None
        end = tail.sequence_number if upto is None else self._required(upto).sequence_number
        entry = self._guarded(lambda: self._index.newest(*events, upto=end, nth=nth))
        return self.block(entry.hash) if entry else None

    def entry(self, block: Multihash) -> IndexEntry | None:
        """Return what the index knows of a block, None if it is not on the present branch."""
        if self.tail() is None:
            return None
        return self._guarded(lambda: self._index.find(block))

    def entry_number(self, sequence_number: int) -> IndexEntry | None:
        """Return what the index knows of the block with a sequence number."""
        if self.tail() is None:
            return None
        return self._guarded(lambda: self._index.at(sequence_number))

    def entries_like(self, *, begin: str | None = None, end: str | None = None) -> list[IndexEntry]:
        """Return what the index knows of the blocks whose hash begins or ends with hexadecimal digits."""
        if self.tail() is None:
            return []
        found = self._guarded(lambda: self._index.beginning(begin)) if begin else []
        found += self._guarded(lambda: self._index.ending(end)) if end else []
        return sorted(set(found), key=lambda entry: entry.sequence_number)

    def sequence_of(self, block: Multihash) -> int | None:
        """Return the sequence number of a block of the present branch, None for others."""
        return entry.sequence_number if (entry := self.entry(block)) else None

    def last_offset_at(self, block: Multihash) -> int | None:
        """Return the last offset of the dataset at a block."""
        return self._required(block).last_offset

    def positions(self, after: int, upto: int) -> list[tuple[bytes, int, int | None, int]]:
        """Return digest, number, last offset and whether a commit ends of a page of blocks, as hints."""
        return self._guarded(lambda: self._index.positions(after, upto))

    def is_ancestor(self, older: Multihash, newer: Multihash) -> bool:
        """Say whether both blocks are on the present branch, the first not after the second."""
        first, second = self.sequence_of(older), self.sequence_of(newer)
        return first is not None and second is not None and first <= second

    def slice_blocks(self, first: int, last: int, upto: Multihash | None = None) -> Iterator[Block]:
        """Iterate over the blocks whose slices hold the offsets [first, last], and over no others."""
        tail = self.tail()
        if tail is None:
            return
        end = tail.sequence_number if upto is None else self._required(upto).sequence_number
        for number in self._guarded(lambda: self._index.slices(first, last, end)):
            entry = self.entry_number(number)
            assert entry is not None
            yield self.block(entry.hash)

    def slices(self, first: int, last: int, upto: Multihash | None = None) -> Iterator[SliceEntry]:
        """Iterate over what the index knows of the slices that hold the offsets [first, last]."""
        tail = self.tail()
        if tail is None:
            return
        end = tail.sequence_number if upto is None else self._required(upto).sequence_number
        while page := self._guarded(lambda after=first: self._index.slice_page(after, last, end)):  # type: ignore[misc]
            yield from page
            first = page[-1].last + 1

    def keep_times(self, times: Mapping[Multihash, tuple[int | None, int | None]]) -> None:
        """Remember between which event times the slices of blocks lie; forgetting it costs only time."""
        with suppress(Damaged, Unusable):
            self._index.keep_times(times)

    def token(self, key: str) -> Block | None:
        """Return the block that carries an idempotency key."""
        if self.tail() is None:
            return None
        number = self._guarded(lambda: self._index.token(key))
        entry = self.entry_number(number) if number is not None else None
        return self.block(entry.hash) if entry else None

    def file(self, content: Multihash) -> IndexEntry | None:
        """Return the newest block that appended a file with these bytes."""
        if self.tail() is None:
            return None
        number = self._guarded(lambda: self._index.file(content))
        return self.entry_number(number) if number is not None else None

    def file_named(self, name: str) -> tuple[Multihash, IndexEntry] | None:
        """Return the hash of the newest file of a name that was appended, and the block that did."""
        if self.tail() is None:
            return None
        found = self._guarded(lambda: self._index.file_named(name))
        entry = self.entry_number(found[1]) if found is not None else None
        return (Multihash(found[0]), entry) if found is not None and entry is not None else None

    def at_time(self, time_us: int) -> IndexEntry | None:
        """Return the last commit end recorded at or before a time (microseconds from 1970)."""
        if self.tail() is None:
            return None
        return self._guarded(lambda: self._index.at_time(time_us))

    # --- moving on --------------------------------------------------------------

    def append(self, *blocks: Block, expected_hash: Multihash | None = None, strict: bool = True) -> Appended:
        """Check blocks against every rule, write them, and move the head once over all of them.

        `strict=False` is for chains that came from elsewhere: rules that go
        beyond other implementations become findings. Raises `ChainError`, and
        `RefCASFailed` if another writer moved the head first.
        """
        if not blocks:
            raise InputError("no block to append", remedy="pass at least one")
        with self._lock:
            # Blocks that follow the head as it was last seen need no look: the move compares it.
            known = self._tail
            before = known if known and blocks[0].prev_block_hash == known.head else self.tail()
            tail, findings, unchecked = rules.checked(self.store, before, blocks, self.inputs, strict=strict)
            if expected_hash is not None and tail.head != expected_hash:
                raise HashMismatch(
                    f"the block hashes to {tail.head}, not to {expected_hash}",
                    remedy="fetch it again from where it came from",
                    expected=expected_hash,
                    actual=tail.head,
                )
            self._publish(blocks, before, tail)
            names = tuple(block.hash for block in blocks)
            return Appended(tail.head, names, findings, unchecked)

    def reset(self, block: Multihash, *, expected: Multihash | None = None) -> None:
        """Move the head to a commit end that exists (C9), normally an older one of this chain.

        `expected` is the head as the caller last saw it; if others have moved
        it since, their commits are not cut off but `RefCASFailed` is raised.
        """
        with self._lock:
            if self.store.size(Folder.BLOCKS, block) is None:
                raise ChainError(
                    f"block {block} does not exist in {self.store.location}",
                    remedy="name a block of the chain (see the log)",
                    code="BlockNotFound",
                    rule="chain:C9",
                )
            check_commit_end(self.block(block))
            self.store.move_head(block, expected=self.store.head() if expected is None else expected)
            self._tail = None
            self.forget_heads()  # it was meant

    def seen_heads(self) -> list[SeenHead]:
        """Return heads the chain had here and that are not on the present branch (guard:G6)."""
        if self.tail() is None:
            return []
        return self._guarded(lambda: self._index.seen())  # noqa: PLW0108 (the index may be another then)

    def forget_heads(self, *heads: Multihash) -> None:
        """Forget heads the chain had here, all if none is named: where the head is now was meant."""
        _ = self.tail()
        self._guarded(lambda: self._index.forget_seen(*heads))

    def rebuild_index(self) -> int:
        """Delete the index and rebuild it; returns how many blocks it holds."""
        with self._lock:
            self._index.discard()
            self._tail = None
            tail = self.tail()
            if tail is not None:
                self.forget_heads(tail.head)
            return tail.sequence_number + 1 if tail else 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens index and store for itself."""
        return partial(Chain, index=self._index.place), (self.store, self.inputs)

    def close(self) -> None:
        """Close index and store."""
        self._index.close()
        self.store.close()

    # --- inside -----------------------------------------------------------------

    def _publish(self, blocks: tuple[Block, ...], before: Tail | None, after: Tail) -> None:
        expected = before.head if before else None
        with self.store.lease():
            for block in blocks:
                self.store.put(Folder.BLOCKS, block.to_bytes())
            # If the storage does not say whether the head moved, the next look at it will.
            self._tail = None
            # An index that knows a head says that there was one, so a first one has to be durable before.
            note = partial(self._note, blocks, expected)
            self.store.move_head(after.head, expected=expected, meanwhile=note if expected else None)
            if not expected:
                note()
        self._tail = after

    def _note(self, blocks: tuple[Block, ...], after: Multihash | None) -> None:
        """Add blocks that the head has moved over to the index; if that fails it catches up when asked."""
        try:
            self._index.extend(blocks, after=after)
        except (Damaged, Unusable):
            self._index.discard()

    def _required(self, block: Multihash) -> IndexEntry:
        if (entry := self.entry(block)) is None:
            raise ChainError(
                f"block {block} is not on the present branch of {self.store.location}",
                remedy="name a block of the log; it may have been cut off by a reset",
                code="BlockNotFound",
                rule="chain:C9",
            )
        return entry

    def _guarded(self, ask: Callable[[], T]) -> T:
        """Ask the index; if it is damaged rebuild it, if its folder is unusable keep it in memory."""
        problem: Exception | None = None
        for _ in range(4):
            try:
                if problem is not None and (head := self.store.head()) is not None:
                    self._catch_up(head)
                return ask()
            except Damaged as error:
                problem = error
                self._index.discard()
            except Unusable as error:
                problem, self._index = error, self._index.in_memory()
        remedy = "check that its folder is writable and has free space, then try again"
        raise StoreError(f"the index of {self.store.location} cannot be kept: {problem}", remedy=remedy)

    def _load(self, head: Multihash | None) -> Tail | None:
        if head is None:
            known = self._index.tip()
            # Another process may have made the first commit since the head was looked for.
            head = self.store.head() if known is not None else None
            if known is not None and head is None:
                raise HeadMissing(
                    f"{self.store.location} has blocks but its head is missing; it was last at {known.hash}",
                    remedy=f"if nothing was deleted on purpose, write that hash to refs/head ({known.hash})",
                    last_known=known.hash,
                )
            if head is None:
                return None
        return self._tail_from_index(self._catch_up(head))

    def _catch_up(self, head: Multihash) -> IndexEntry:
        """Bring the index to a head by reading only the blocks it does not know."""
        for _ in range(100):
            known, tip = self._index.find(head), self._index.tip()
            if known is not None and tip is not None and tip.sequence_number > known.sequence_number:
                if self.store.head() != head:
                    return known  # others have moved on; what was asked for is there
                self._index.truncate(known.sequence_number, if_still=lambda: self.store.head() == head)
            elif known is not None:
                return known
            else:
                self._extend_to(head)
        raise Damaged("other processes keep changing it")

    def _extend_to(self, head: Multihash) -> None:
        """Walk back to what the index knows, then add what is new, oldest first."""
        new: list[Multihash] = []
        name: Multihash | None = head
        fork: IndexEntry | None = None
        while name is not None and fork is None:
            new.append(name)
            name = self.block(name).prev_block_hash
            fork = self._index.find(name) if name is not None else None
        tip = self._index.tip()
        if tip is not None and (fork is None or tip.sequence_number > fork.sequence_number):
            cut = fork.sequence_number if fork else -1
            self._index.truncate(cut, if_still=lambda: self._index.find(head) is None)
        self._extend_in_pages(new[::-1], fork)

    def _extend_in_pages(self, names: list[Multihash], fork: IndexEntry | None) -> None:
        """Add blocks a thousand at a time, so that a rebuild needs little memory."""
        number, after = (fork.sequence_number, fork.hash) if fork else (-1, None)
        for start in range(0, len(names), 1000):
            page = [self.block(name) for name in names[start : start + 1000]]
            for block in page:
                number += 1
                if block.sequence_number != number:
                    raise CorruptionError(
                        f"block {block.hash} has sequence number {block.sequence_number}, not {number}",
                        remedy="verify the dataset and restore it from a copy",
                    )
            self._index.extend(page, after=after)
            after = page[-1].hash

    def _tail_from_index(self, entry: IndexEntry) -> Tail:
        """Read the events in force at a block; the index says where they are."""
        number = entry.sequence_number
        block = self.block(entry.hash)
        seed = self._event(Seed, number)
        if block.sequence_number != number or seed is None:
            raise Damaged(f"row {number} does not fit its block")
        data = self._event(_DATA, number)
        polling = self._event((SetPollingSource, DisablePollingSource), number)
        transform = self._event(SetTransform, number)
        return Tail(
            head=entry.hash,
            sequence_number=number,
            system_time=block.system_time,
            dataset_id=seed.dataset_id,
            dataset_kind=seed.dataset_kind,
            data=data,
            schema=self._event(SetDataSchema, number),
            vocab=self._event(SetVocab, number) or SetVocab(),
            transform=transform,
            polling=polling if isinstance(polling, SetPollingSource) else None,
            push=self._push_sources(number),
            attachments=self._event(SetAttachments, number),
            redefined=transform is not None and self._redefined(number),
        )

    def _redefined(self, number: int) -> bool:
        """Say whether the newest SetTransform at a block follows the last commit of the transform."""
        defined = self._index.newest(SetTransform, upto=number)
        ended = self._index.newest(ExecuteTransform, upto=number)
        # Only inside a commit of several parts are there any to pass over.
        while ended is not None and not ended.is_end:
            ended = self._index.required(ended.before) if ended.before is not None else None
        assert defined is not None
        return ended is None or ended.sequence_number < defined.sequence_number

    def _event(self, kinds: type | tuple[type, ...], upto: int) -> Any:
        entry = self._index.newest(*(kinds if isinstance(kinds, tuple) else (kinds,)), upto=upto)
        return self.block(entry.hash).event if entry else None

    def _push_sources(self, upto: int) -> Mapping[str, AddPushSource]:
        active: dict[str, AddPushSource] = {}
        for entry in self._index.every(AddPushSource, DisablePushSource, upto=upto):
            event = self.block(entry.hash).event
            if isinstance(event, AddPushSource):
                active[event.source_name] = event
            elif isinstance(event, DisablePushSource):
                active.pop(event.source_name, None)
        return active or NO_PUSH
