"""Positions as people give them: a commit, a hash, a time, a date, a tag, an offset.

Whatever is given, the answer is the end of a commit. Readers are never
inside one: a commit of several parts is seen whole or not at all. A derived
dataset is read where it is at rest, and elsewhere only by hash (cut:P4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from trueline.chain.chain import Chain
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.events import DatasetKind, ExecuteTransform, SetTransform
from trueline.chain.head_state import Position
from trueline.chain.index_rows import IndexEntry
from trueline.chain.instant import Instant
from trueline.dataset.commit import Commit
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

At: TypeAlias = Commit | Position | Multihash | datetime | date | str | int | None
Tags: TypeAlias = Callable[[str], Multihash | None]
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")
_DAYLIKE: Final = re.compile(r"\d{4}-\d\d?(?:-\d\d?)?(?:$|[t ])")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9._]*(?:e[+-]?[0-9]+)?")
_OFFSET: Final = re.compile(r"offset:(\d{1,19})")
_HELP: Final = "give a commit, a hash, a tag, a date (2026-11-13), a time with its zone, offset:N or head"
HEAD: Final = "head"


def resolve(chain: Chain, at: Any, tags: Tags | None = None, *, inside: bool = False) -> Position:
    """Return the commit end that `at` names; None and "head" are the newest.

    A day means its end (UTC), a moment the last commit recorded by then, a
    number the commit whose last record has that offset. A tag comes before
    a hash that is written the same. With `inside` a hash may also name a
    block that is not the end of its commit.
    """
    tail = chain.tail()
    if tail is None:
        raise InputError(f"{chain.store.location} has no commits", remedy="append something first")
    if at is None or (isinstance(at, str) and at.strip() == HEAD):
        return _standing(_readable(chain, _entry(chain, tail.head)))
    if isinstance(at, Position):
        at = at.block
    if isinstance(at, datetime):
        return _by_time(chain, Instant.of(at), at)
    if isinstance(at, date):
        return _by_time(chain, _end_of(at), at)
    if isinstance(at, int) and not isinstance(at, bool | Instant):
        return _by_offset(chain, at)
    if isinstance(at, Instant):
        return _by_time(chain, at, at)
    if isinstance(at, str) and not isinstance(at, Multihash):
        return _by_text(chain, at.strip(), tags, inside=inside)
    return _by_hash(chain, at, inside=inside)


def moment_of(at: datetime | date | str) -> Instant | None:
    """Return the moment that a time, a day (its end) or text of one names; None for other text.

    >>> str(moment_of("2026-11-13")), moment_of("ab12cd34")
    ('2026-11-13T23:59:59.999999999Z', None)
    """
    if isinstance(at, datetime):
        return Instant.of(at)
    if isinstance(at, date):
        return _end_of(at)
    text = at.strip()
    if _DAY.fullmatch(text):
        try:
            return _end_of(date.fromisoformat(text))
        except ValueError:
            raise InputError(f"{text!r} is not a date", remedy=_HELP, code="BadPosition") from None
    return Instant.parse(text) if _MOMENT.fullmatch(text) else None


def _by_text(chain: Chain, text: str, tags: Tags | None, *, inside: bool) -> Position:
    tagged = tags(text) if tags is not None else tag_of(chain, text)
    if tagged is not None:
        return _by_hash(chain, tagged, inside=inside)
    if (moment := moment_of(text)) is not None:
        return _by_time(chain, moment, text)
    if match := _OFFSET.fullmatch(text):
        return _by_offset(chain, int(match[1]))
    return _by_hash(chain, text, inside=inside)


def reads_as_position(text: str) -> str | None:
    """Say what a text is taken for after an `@` if it is not a tag: a day, a hash, a number or the head.

    >>> [reads_as_position(text) for text in ("2026-11-13", "Cafe", "1.5", "HEAD", "v1")]
    ['a day', 'a hash', 'a number', 'the head', None]
    """
    given = text.strip().lower()
    if given == HEAD:
        return "the head"
    if _NUMBER.fullmatch(given):
        return "a number"
    if _DAYLIKE.match(given):
        return "a day"
    hashes = (given, given.removeprefix(_PREFIX))
    return "a hash" if any(_HEX.fullmatch(each) for each in hashes) else None


def tag_of(chain: Chain, text: str) -> Multihash | None:
    """Return the block that a tag of a dataset names: one of its workspace, or a ref beside the head."""
    if text == HEAD:
        return None
    if chain.tags is not None and not reads_as_position(text):
        found = chain.tags().get(text)
        if found is not None:
            return found
    try:
        return chain.store.head(text)
    except InputError:
        return None  # it cannot be the name of one


def _end_of(day: date) -> Instant:
    """The last nanosecond of a day."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return Instant(Instant.of(start) + int(timedelta(days=1).total_seconds()) * 1_000_000_000 - 1)


def _by_time(chain: Chain, moment: Instant, given: object) -> Position:
    entry = chain.at_time(int(moment) // 1000)
    if entry is None:
        first = chain.entry_number(0)
        began = chain.block(first.hash).system_time if first else None
        raise InputError(
            f"the dataset in {chain.store.location} did not exist at {given}: it began at {began}",
            remedy="give a later time",
            code="BeforeTheBeginning",
        )
    return _standing(_readable(chain, entry))


def _by_hash(chain: Chain, given: Any, *, inside: bool) -> Position:
    entry = _entry(chain, position(chain, given))
    if not entry.is_end and not inside:
        end = _end_after(chain, entry)
        raise InputError(
            f"block {entry.hash.short} is inside a commit of several parts",
            remedy=f"give the end of the commit: {end.hash.short}" if end else "give a commit from the log",
            code="InsideCommit",
            block=entry.hash,
        )
    return _standing(entry)


def _by_offset(chain: Chain, offset: int) -> Position:
    found = next(chain.slices(offset, offset), None) if offset >= 0 else None
    if found is None:
        last = chain.tail()
        end = last.last_offset if last else None
        raise InputError(
            f"there is no record with offset {offset}",
            remedy="the dataset has no records" if end is None else f"the last offset is {end}",
            code="BadPosition",
        )
    entry = _entry(chain, found.block)
    if entry.is_end and found.last == offset:
        return _standing(_at_rest_from(chain, entry))
    end_after, end_before = _end_after(chain, entry), _end_before(chain, _previous(chain, entry))
    ends = [
        str(end.last_offset)
        for end in (end_before, end_after)
        if end is not None and end.last_offset is not None
    ]
    raise InputError(
        f"offset {offset} is inside a commit",
        remedy=f"give the offset a commit ends at: {' or '.join(ends)}",
        code="InsideCommit",
        offset=offset,
    )


# --- what is at rest --------------------------------------------------------------


def is_readable(chain: Chain, entry: IndexEntry) -> bool:
    """Say whether readers may stop at a block: it ends a commit, and what is derived is at rest there.

    At rest means: its checkpoint says so, and the definition in force is the one it was made with. A
    definition that nothing was computed with yet is passed over, with its key.
    """
    tail = chain.tail()
    if not entry.is_end or tail is None or tail.dataset_kind is not DatasetKind.Derivative:
        return entry.is_end
    done, defined = (chain.newest(kind, upto=entry.hash) for kind in (ExecuteTransform, SetTransform))
    if done is None or defined is None:
        return True
    assert isinstance(done.event, ExecuteTransform)
    left = derived_checkpoint(chain.store, done.event)
    return left is None or (left.at_rest and left.definition == defined.hash)


def _readable(chain: Chain, entry: IndexEntry | None) -> IndexEntry | None:
    """The nearest block at or before an entry at which readers may stop."""
    while entry is not None and not is_readable(chain, entry):
        entry = _previous(chain, entry)
    return entry


def _at_rest_from(chain: Chain, entry: IndexEntry) -> IndexEntry:
    """Return the first block from an entry on that is readable and brings no further record."""
    found: IndexEntry | None = entry
    while found is not None and found.last_offset == entry.last_offset:
        if is_readable(chain, found):
            return found
        found = chain.entry_number(found.sequence_number + 1)
    before = _readable(chain, entry)
    end = before.last_offset if before is not None else None
    raise InputError(
        f"the dataset is not at rest at offset {entry.last_offset}: not all of a cut was taken there",
        remedy="the dataset has no records at rest" if end is None else f"give offset {end}, or a hash",
        code="NotAtRest",
        offset=entry.last_offset,
    )


# --- ends of commits --------------------------------------------------------------


def _entry(chain: Chain, block: Multihash) -> IndexEntry:
    entry = chain.entry(block)
    if entry is None:
        raise InputError(
            f"block {block} is not on the present branch of {chain.store.location}",
            remedy="give a hash from the log",
            code="BadPosition",
        )
    return entry


def _standing(entry: IndexEntry | None) -> Position:
    if entry is None:
        raise InputError("no commit is complete", remedy="wait for the first one", code="BadPosition")
    return Position(entry.hash, entry.last_offset)


def _previous(chain: Chain, entry: IndexEntry) -> IndexEntry | None:
    return chain.entry_number(entry.sequence_number - 1)


def _end_before(chain: Chain, entry: IndexEntry | None) -> IndexEntry | None:
    """The nearest commit end at or before an entry."""
    while entry is not None and not entry.is_end:
        entry = _previous(chain, entry)
    return entry


def _end_after(chain: Chain, entry: IndexEntry | None) -> IndexEntry | None:
    """The nearest commit end at or after an entry."""
    while entry is not None and not entry.is_end:
        entry = chain.entry_number(entry.sequence_number + 1)
    return entry


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
        raise InputError(
            f"{text!r} does not name a commit", remedy="give a hash from the log", code="BadPosition"
        )
    given = text.strip().lower()
    if len(given) == len(_PREFIX) + 64:
        return _on_branch(chain, Multihash(given))
    part = given.removeprefix(_PREFIX)
    if not _HEX.fullmatch(part):
        raise InputError(
            f"{text[:80]!r} does not name a commit{', and is not a tag' if chain.tags is not None else ''}",
            remedy=_near_tag(chain, text) or _HELP,
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
        f"{text!r} matches {len(found)} blocks: {', '.join(name.short for name in found[:5])} …",
        remedy="give more characters of the hash",
        code="AmbiguousPosition",
        found=tuple(found),
    )


def _near_tag(chain: Chain, text: str) -> str | None:
    """Name the tag that may have been meant."""
    close = get_close_matches(text, list(chain.tags()) if chain.tags is not None else (), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _on_branch(chain: Chain, name: Multihash) -> Multihash:
    if chain.entry(name) is None:
        raise InputError(
            f"block {name} is not on the present branch of {chain.store.location}",
            remedy="give a hash from the log",
            code="BadPosition",
        )
    return name
