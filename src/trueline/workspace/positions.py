"""Places in a chain as people write them: a hash, or enough of it."""

from __future__ import annotations

import re
from typing import Final

from trueline.chain.chain import Chain
from trueline.errors import InputError
from trueline.identity.multihash import Multihash
from trueline.workspace.commit import Commit

_HEX: Final = re.compile(r"[0-9a-f]{4,64}")
_PREFIX: Final = "f1620"


def position(chain: Chain, text: str | Commit) -> Multihash:
    """Return the block that a commit, a hash, or the beginning or end of one names.

    The short form people see is the end: the last eight characters. A part of
    a hash is looked for among all blocks, so that two that fit are noticed.
    """
    if isinstance(text, Commit):
        text = text.block
    if isinstance(text, Multihash):
        return _on_branch(chain, text)
    if not isinstance(text, str):
        raise InputError(f"{text!r} names no commit", remedy="give a hash from the log", code="BadPosition")
    given = text.strip().lower()
    if len(given) == len(_PREFIX) + 64:
        return _on_branch(chain, Multihash(given))
    part = given.removeprefix(_PREFIX)
    if not _HEX.fullmatch(part):
        raise InputError(
            f"{text[:80]!r} names no commit",
            remedy="give a hash from the log, or four or more of its characters",
            code="BadPosition",
        )
    # With the prefix of a whole hash in front it can only be the beginning of one.
    likely = chain.entries_like(begin=part, end=part if part == given else None)
    found = [entry.hash for entry in likely]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            f"no block of {chain.store.location} has {text!r} in its hash",
            remedy="`trueline log --blocks` shows them",
            code="BadPosition",
        )
    raise InputError(
        f"{text!r} fits {len(found)} blocks: {', '.join(name.short for name in found[:5])} …",
        remedy="give more of the hash",
        code="AmbiguousPosition",
        found=tuple(found),
    )


def _on_branch(chain: Chain, name: Multihash) -> Multihash:
    if chain.entry(name) is None:
        raise InputError(
            f"block {name} is not on the present branch of {chain.store.location}",
            remedy="give a hash from the log",
            code="BadPosition",
        )
    return name
