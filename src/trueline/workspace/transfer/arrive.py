"""Blocks on their way in: kept apart until all of them are proven, so that nothing false gets a name here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Final

from trueline.chain import rules
from trueline.chain.block import Block
from trueline.chain.encode import MAX_BLOCK_BYTES
from trueline.chain.head_state import Tail, follow
from trueline.chain.rule import Finding, unended
from trueline.chain.store.file import FileStore
from trueline.chain.store.folders import Inside
from trueline.chain.store.store import Folder
from trueline.errors import CorruptionError, InputError, LinkRefused, StoreError
from trueline.identity.multihash import Multihash
from trueline.workspace.locations import is_ours
from trueline.workspace.transfer.copy import WORKERS
from trueline.workspace.transfer.remote import Remote, block_bytes

_SYNC_BLOCKS: Final = 256
# Each block names the one before it, so a chain is read one request after another, unless it can be listed.
_LISTED_FROM: Final = 64

Findings = list[tuple[Multihash, Finding]]


class Arriving:
    """The new blocks of a source. What was fetched is kept in a folder of its own until `discard`."""

    def __init__(self, remote: Remote, folder: Inside) -> None:
        self._remote = remote
        self._folder = folder
        self._kept = FileStore(folder, durable=False)
        self._unsynced = 0

    def raw(self, name: Multihash) -> bytes:
        """Return the bytes of a block, proven by its name."""
        # Another transfer of the same dataset may end, and clear the folder, at any time.
        try:
            raw = self._kept.get(Folder.BLOCKS, name, limit=MAX_BLOCK_BYTES)
            if Multihash.of(raw) == name:
                return raw
        except LinkRefused:
            raise
        except (CorruptionError, StoreError):
            pass
        raw = block_bytes(self._remote, name)
        with suppress(StoreError):
            self._kept.put(Folder.BLOCKS, raw)
            self._unsynced += 1
            if self._unsynced >= _SYNC_BLOCKS:
                self._kept.sync()
                self._unsynced = 0
        return raw

    def block(self, name: Multihash) -> Block:
        """Return a block; other bytes raise `MalformedBlock` or `UnsupportedVersion`."""
        return Block.from_bytes(self.raw(name), name=name)

    def walk(
        self, head: Multihash, is_known: Callable[[Multihash], bool]
    ) -> tuple[list[Multihash], Multihash | None]:
        """Follow the links back to a block that is known; returns the others, oldest first, and that one."""
        new: list[Multihash] = []
        name: Multihash | None = head
        number: int | None = None
        while name is not None and not is_known(name):
            block = self.block(name)
            if number is None:
                self._fetch_listed(block.sequence_number, is_known)
            elif block.sequence_number != number - 1:
                raise CorruptionError(
                    f"block {name} of {self._remote.location} has the number {block.sequence_number}, "
                    f"but block {number} follows it",
                    remedy="the source is damaged: verify it there, or take another copy",
                    code="SequenceIntegrity",
                )
            number = block.sequence_number
            new.append(name)
            name = block.prev_block_hash
        return new[::-1], name

    def _fetch_listed(self, number: int, is_known: Callable[[Multihash], bool]) -> None:
        """Fetch many blocks at a time where the source can say which there are."""
        listed = self._remote.names() if number >= _LISTED_FROM else None
        if listed is None:
            return
        # A source may list what it likes; twice as many as the chain can have are not believed.
        most = 2 * (number + 1) + 100
        found = list(islice((name for name in listed if not is_known(name)), most + 1))
        if len(found) > most:
            return
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="trueline-transfer") as pool:
            for _ in pool.map(self._fetched, found):
                pass
        with suppress(StoreError):
            self._kept.sync()

    def _fetched(self, name: Multihash) -> None:
        # What is listed and is not a block of this chain is left alone.
        try:
            if self._kept.size(Folder.BLOCKS, name) is None:
                self._kept.put(Folder.BLOCKS, block_bytes(self._remote, name))
        except (CorruptionError, InputError, StoreError):
            return

    def proven(self, names: Sequence[Multihash], tail: Tail | None, findings: Findings) -> Iterator[Block]:
        """Yield the blocks, oldest first, each checked against every rule (decision 11).

        Rules that go beyond other implementations become findings; any other
        that is broken raises.
        """
        for name in names:
            block = self.block(name)
            for finding in rules.check(tail, block, None):
                if not finding.strict:
                    raise CorruptionError(
                        f"block {block.sequence_number} ({name.short}) of {self._remote.location} "
                        f"breaks {finding.rule}: {finding.problem}",
                        remedy="the source is damaged: verify it there, or take another copy",
                        code=finding.code,
                        rule=finding.rule,
                        block=name,
                    )
                findings.append((name, finding))
            tail = follow(tail, block)
            yield block
        # A head inside a commit is mirrored as it is; readers stop at the commit before.
        if names and (open_end := unended(tail)) is not None:
            findings.append((names[-1], open_end))

    def close(self) -> None:
        """Keep what was fetched for another time."""
        with suppress(StoreError):
            self._kept.sync()
        self._kept.close()

    def discard(self) -> None:
        """Throw away what was fetched: it has arrived."""
        self._kept.close()
        self._folder.remove_own(is_ours)
