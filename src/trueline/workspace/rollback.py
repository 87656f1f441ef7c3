"""Heads that went back: where a dataset's head is, compared with what was seen of it here (guard:G6).

The index remembers the heads it had to leave, an origin the head a clone was
brought up to. Neither is believed for what a dataset holds; that a newer head
was seen is reason enough to say so, and to delete nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.events import Seed
from trueline.chain.head_state import Tail
from trueline.chain.verify import Problem, ProblemKind
from trueline.errors import InputError, RolledBack, TruelineError
from trueline.identity.multihash import Multihash
from trueline.workspace.transfer.origin import forget_origin, keep_origin, origin_of

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

RULE: Final = "guard:G6"


@dataclass(frozen=True, slots=True)
class HeadProblem(Problem):
    """A head that is not at or after one that was seen: `expected` is that one, `actual` the present one."""

    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A head somebody knows of: who `says` so, and whose chain it was, as far as that is known."""

    head: Multihash
    says: str
    sequence_number: int | None = None
    seed: Multihash | None = None
    id: str | None = None
    kept_here: bool = True


@dataclass(frozen=True, slots=True)
class _Way:
    """The way from a seen head back to the present branch: their last `common` block, and what is `beyond`.

    It is not `whole` where blocks are missing. `oldest` is the last block that could be read.
    """

    common: Multihash | None
    beyond: int
    whole: bool
    newest: Block | None
    oldest: Block | None


def head_problems(dataset: Dataset, expected: Multihash | None = None) -> tuple[HeadProblem, ...]:
    """Compare the head and the id of a dataset with what was seen here, and with a head kept elsewhere."""
    tail = dataset.chain.tail()
    if tail is None:
        return ()
    seen: dict[Multihash, _Seen] = {}
    for each in _not_in_the_past(dataset, expected):
        seen.setdefault(each.head, each)
    return tuple(_problem(dataset, tail, each) for each in seen.values())


def refuse_rollback(dataset: Dataset) -> None:
    """Raise `RolledBack` if a newer head was seen here: what it refers to must not be deleted."""
    found = head_problems(dataset)
    if found:
        raise RolledBack(
            f"dataset {dataset.name!r}: {found[0].message}; nothing is removed",
            remedy=found[0].remedy,
            name=dataset.name,
            seen=found[0].expected,
            head=found[0].actual,
        )


def accept_head(dataset: Dataset) -> None:
    """Take the present head as meant: what was seen before is forgotten, here and in the origin."""
    dataset.chain.forget_heads()
    place, name = dataset.workspace._location, dataset._folder
    dataset.workspace._catalogue.confirm(name, str(dataset.id))
    origin = origin_of(place, name)
    if origin is None or origin.head is None or dataset.chain.entry(origin.head) is not None:
        return
    if origin.id not in (None, str(dataset.id)):
        forget_origin(place, name)  # this is a copy of something else
    else:
        keep_origin(place, name, replace(origin, head=dataset.head, id=str(dataset.id)))


def restore_head(dataset: Dataset, block: Multihash) -> None:
    """Put the head back to a block; every block before it has to be here."""
    chain, former = dataset.chain, dataset.chain.head
    *_, (_, first) = chain.walk(block)
    if not isinstance(first.event, Seed):
        raise InputError(
            f"block {block} does not lead back to the first of a chain",
            remedy="name a head that was seen: `trueline verify` says which",
            code="BadHead",
        )
    chain.store.move_head(block, expected=former)
    if former is not None:
        chain.forget_heads(former)


def given_head(head: object) -> Multihash:
    """Read a head that was kept elsewhere: a whole hash, or a commit."""
    named = getattr(head, "block", head)
    if not isinstance(named, str):
        raise InputError(f"{head!r:.80} is not a head", remedy="give the whole hash of a block")
    return Multihash.parse(named)


def _not_in_the_past(dataset: Dataset, expected: Multihash | None) -> Iterator[_Seen]:
    chain = dataset.chain
    for each in chain.seen_heads():
        yield _Seen(each.head, "this workspace has seen", each.sequence_number, each.seed)
    origin = origin_of(dataset.workspace._location, dataset._folder)
    if origin is not None and origin.head is not None and chain.entry(origin.head) is None:
        yield _Seen(origin.head, f"the transfer from {origin.url} brought", id=origin.id)
    if expected is not None and chain.entry(expected) is None:
        yield _Seen(expected, "what was expected is", kept_here=False)


def _way(chain: Chain, head: Multihash) -> _Way:
    """Follow the links of a seen head until they meet the present branch."""
    name: Multihash | None = head
    newest: Block | None = None
    oldest: Block | None = None
    count = 0
    while name is not None and chain.entry(name) is None:
        try:
            oldest = chain.block(name)
        except TruelineError:
            return _Way(None, count, False, newest, oldest)
        newest = newest or oldest
        name, count = oldest.prev_block_hash, count + 1
    return _Way(name, count, True, newest, oldest)


def _problem(dataset: Dataset, tail: Tail, seen: _Seen) -> HeadProblem:
    chain = dataset.chain
    way = _way(chain, seen.head)
    number = way.newest.sequence_number if way.newest is not None else seen.sequence_number
    known = f"block {seen.head}" if number is None else f"block {number} ({seen.head})"
    what = f"the head is block {tail.sequence_number} ({tail.head}), but {seen.says} {known}"
    first = chain.entry_number(0)
    kind = ProblemKind.ROLLED_BACK
    if _is_another(tail, seen, way, first.hash if first is not None else None):
        kind = ProblemKind.REPLACED
        what += f" of {_whose(seen, way)}; this is the dataset {tail.dataset_id}"
    elif not way.whole:
        what += ", which is not in its past; not all of the blocks between are here"
    elif way.common == tail.head:
        what += f", {_blocks(way.beyond)} further on"
    elif way.common is not None:
        what += f" on another branch: they differ after block {chain.sequence_of(way.common)} ({way.common})"
    remedy = _remedy(dataset.name, seen, way)
    return HeadProblem(kind, what, remedy, seen.head, number, RULE, str(seen.head), str(tail.head))


def _is_another(tail: Tail, seen: _Seen, way: _Way, first: Multihash | None) -> bool:
    """Say whether a seen head is of another dataset than the one that is here now."""
    if seen.id is not None:
        return seen.id != str(tail.dataset_id)
    if seen.seed is not None:
        return seen.seed != first
    return way.whole and way.common is None


def _whose(seen: _Seen, way: _Way) -> str:
    """Name the dataset a seen head is of, as far as that is known."""
    event = way.oldest.event if way.oldest is not None else None
    if isinstance(event, Seed):
        return f"the dataset {event.dataset_id}"
    if seen.id is not None:
        return f"the dataset {seen.id}"
    return f"the dataset that begins with block {seen.seed}"


def _remedy(name: str, seen: _Seen, way: _Way) -> str:
    back = "bring the dataset back from a copy: its newer blocks are not all here"
    if way.whole:
        again = f"ws[{name!r}].restore_head({str(seen.head)!r})"
        back = f"put it back: `trueline verify {name} --restore-head {seen.head}`, {again}"
    meant = f"; if it was meant: `trueline verify {name} --accept-head`, ws[{name!r}].accept_head()"
    return back + (meant if seen.kept_here else "; or ask who recorded that head")


def _blocks(count: int) -> str:
    return f"{count:,} block{'s' * (count != 1)}"
