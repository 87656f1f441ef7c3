"""The commits of a chain: blocks that moved its head together, found by block and by idempotency key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trueline.chain.block import Block, commit_record, is_commit_end
from trueline.chain.chain import Chain
from trueline.chain.events import Event
from trueline.chain.head_state import Tail, follow, next_block
from trueline.chain.instant import Instant
from trueline.dataset.commit import Commit, Linked
from trueline.errors import InputError
from trueline.identity.multihash import Multihash


def linked(tail: Tail | None, events: Iterable[Event], system_time: Instant) -> list[Block]:
    """Link the events of one commit to a tail; all have the same time."""
    blocks: list[Block] = []
    for event in events:
        blocks.append(next_block(tail, event, system_time))
        tail = follow(tail, blocks[-1])
    return blocks


def joined(older: Block, newer: Block) -> bool:
    """Say whether two neighbours belong to one commit (decision 10).

    Metadata is recorded in one move with what follows it at the very same
    time; a commit of several parts goes on until its last.
    """
    if older.data_event is not None:
        return not is_commit_end(older)
    return older.system_time == newer.system_time


def commits(dataset: str, newest_first: Iterable[Linked], chain: Chain | None = None) -> Iterator[Commit]:
    """Group blocks into commits, newest first, reading no further than asked."""
    group: list[Linked] = []
    for name, block in newest_first:
        if group and not joined(block, group[-1][1]):
            yield Commit.of(dataset, reversed(group), chain)
            group = []
        group.append((name, block))
    if group:
        yield Commit.of(dataset, reversed(group), chain)


def commit_at(dataset: str, chain: Chain, block: Multihash) -> Commit:
    """Return the commit a block belongs to."""
    end, found = block, chain.block(block)
    while (following := chain.entry_number(found.sequence_number + 1)) is not None:
        newer = chain.block(following.hash)
        if not joined(found, newer):
            break
        end, found = following.hash, newer
    return next(commits(dataset, chain.walk(end), chain))


def keyed_commit(dataset: str, chain: Chain, key: str) -> Commit:
    """Return the commit that was appended with an idempotency key."""
    block = chain.token(key)
    if block is None:
        raise InputError(
            f"no commit of {dataset!r} has the idempotency key {key!r:.80}",
            remedy="append the data with it; nothing was committed under it",
            code="KeyNotFound",
            key=key,
        )
    return commit_at(dataset, chain, block.hash)


MAX_KEY = 512
RESERVED = "trueline/"


def is_text(value: str) -> bool:
    """Say whether a value can be stored as text: names of files may hold bytes that are not text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_key(key: object) -> None:
    """Refuse what cannot be a key."""
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not is_text(key)):
        raise InputError(
            f"the idempotency key is {key!r:.80}",
            remedy=f"give text of 1 to {MAX_KEY} characters",
            code="BadKey",
        )
    if key is not None and key.startswith(RESERVED):
        raise InputError(
            f"keys that begin with {RESERVED!r} are used for removals", remedy="choose another", code="BadKey"
        )


def earlier(name: str, chain: Chain, key: str | None, is_same_as: Callable[[str], bool]) -> Commit | None:
    """Return the commit that carries a key already; other data under the same key is an error.

    What is the same is said of the recorded digest, which may be one that earlier versions wrote.
    """
    block = chain.token(key) if key is not None else None
    if block is None:
        return None
    commit = commit_at(name, chain, block.hash)
    before = (commit_record(block).notes or {}).get("digest")
    if before is not None and not is_same_as(before):
        raise InputError(
            f"the idempotency key {key!r} belongs to commit {commit.short}, which added other data",
            remedy="use a new key for new data",
            code="KeyReused",
            key=key,
            commit=commit.block,
        )
    return commit
