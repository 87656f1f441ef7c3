"""Exactly once: a key makes an append that is sent again find the commit of the first time."""

from __future__ import annotations

from trueline.chain.chain import Chain
from trueline.chain.commits import commit_record
from trueline.errors import InputError
from trueline.workspace.commit import Commit, commit_at

MAX_KEY = 512
RESERVED = "trueline/"


def is_text(value: str) -> bool:
    """Say whether a value can be stored as text: names of files may hold bytes that are none."""
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


def earlier(name: str, chain: Chain, key: str | None, digest: str | None) -> Commit | None:
    """Return the commit that carries a key already; other data under the same key is an error."""
    block = chain.token(key) if key is not None else None
    if block is None:
        return None
    commit = commit_at(name, chain, block.hash)
    before = (commit_record(block).notes or {}).get("digest")
    if digest is not None and before is not None and before != digest:
        raise InputError(
            f"the idempotency key {key!r} belongs to commit {commit.short}, which added other data",
            remedy="use a new key for new data",
            code="KeyReused",
            key=key,
            commit=commit.block,
        )
    return commit
