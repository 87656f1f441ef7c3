"""What commits of copies were made from: positions of all their ancestors, as far as that can be known here.

A copy of a dataset that was computed elsewhere counts as a root here. Its transactions say how far they had
read each input, and their checkpoints where the roots were and under which definitions all was made; roots
of theirs that are copies again, or are computed here, say more. So copies are compared by whatever they
share, however many steps below them, here or not (cut:P6, cut:P18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from trueline.chain.chain import Chain
from trueline.chain.checkpoint import DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform, SetTransform
from trueline.chain.head_state import Position, Tail
from trueline.dataset.derivation import derivation_at
from trueline.errors import ObjectMissing
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

# Finds the chain of a dataset, None of one that is not here.
ChainOf: TypeAlias = Callable[[DatasetId], Chain | None]
K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Left:
    """What the end of a transaction left, as far as agreement goes.

    `event` is None where a chain from elsewhere has something that is not a transaction.
    """

    event: ExecuteTransform | None
    checkpoint: DerivedCheckpoint | None

    @property
    def at_rest(self) -> bool:
        """Whether readers may stop there; what other software wrote counts as such."""
        return self.checkpoint is None or self.checkpoint.at_rest


@dataclass(slots=True)
class MadeFrom:
    """Where ancestors of a commit were (None: without data), and the definitions it was made under."""

    positions: dict[DatasetId, Position | None] = field(default_factory=dict)
    definitions: dict[DatasetId, Multihash] = field(default_factory=dict)

    def without(self, here: Collection[DatasetId]) -> MadeFrom:
        """Return it without the positions of what is looked at itself: the search has compared these."""
        return MadeFrom(
            {name: at for name, at in self.positions.items() if name not in here}, self.definitions
        )


def made_from(left: Left, chain_of: ChainOf) -> MadeFrom:
    """Return what a transaction was made from, through the chains that are here."""
    found, waiting = MadeFrom(), [left]
    while waiting:
        each = waiting.pop()
        said: dict[DatasetId, Position | None] = {
            taken.dataset_id: None
            if taken.last_block is None
            else Position(taken.last_block, taken.last_offset)
            for taken in (each.event.query_inputs if each.event is not None else ())
        }
        if each.checkpoint is not None:
            said |= each.checkpoint.origin.roots
            found.definitions = {**each.checkpoint.origin.definitions, **found.definitions}
        new = {source: at for source, at in said.items() if source not in found.positions}
        found.positions |= new
        for source, at in new.items():
            below = None if at is None else _left_at(chain_of(source), at.block)
            if below is not None:
                waiting.append(below)
    return found


def _left_at(chain: Chain | None, block: Multihash) -> Left | None:
    """Return what a transaction that is here left; None of what is no copy, or is not on its branch."""
    if chain is None or chain.entry(block) is None:
        return None
    tail = chain.tail_at(block)
    if not is_copy(tail) or not isinstance(tail.data, ExecuteTransform):
        return None
    return Left(tail.data, derived_checkpoint(chain.store, tail.data))


def is_copy(tail: Tail | None) -> bool:
    """Say whether a root was computed; one that reads inputs at cuts of their own counts as no copy."""
    if tail is None or tail.transform is None:
        return False
    derivation = derivation_at(tail)
    return derivation is None or not derivation.nondet


def inputs_defined(definitions: Mapping[DatasetId, Multihash], chain_of: ChainOf) -> set[DatasetId]:
    """Return the inputs that definitions name, as far as these are here.

    No position says so of a root that has no data.
    """
    found: set[DatasetId] = set()
    for name, block in definitions.items():
        chain = chain_of(name)
        try:
            event = None if chain is None else chain.block(block).event
        except ObjectMissing:
            continue
        if isinstance(event, SetTransform):
            found |= {DatasetId.parse(each.dataset_ref) for each in event.inputs}
    return found


# --- what copies share --------------------------------------------------------------------


def held_to(rests_on: Mapping[K, Iterable[K]], here: Collection[K]) -> dict[K, tuple[K, ...]]:
    """Return what copies are held to: what is read with them, or what another copy was made from as well.

    >>> held_to({"balances": ["transfers", "fx"], "credits": ["transfers"]}, {"balances", "credits"})
    {'balances': ('transfers',), 'credits': ('transfers',)}
    """
    listed = {name: dict.fromkeys(sources) for name, sources in rests_on.items()}
    times = Counter(source for sources in listed.values() for source in sources)
    return {
        name: tuple(source for source in sources if times[source] > 1 or source in here)
        for name, sources in listed.items()
    }


@dataclass(frozen=True, slots=True)
class Unlike:
    """Two copies that were made from different states of an ancestor, or under different definitions."""

    one: DatasetId
    other: DatasetId
    source: DatasetId
    is_definition: bool


def unlike(made: Mapping[DatasetId, MadeFrom]) -> Unlike | None:
    """Return two copies that do not agree, None if all do as far as they say.

    Where a root had no data its position says nothing: the search compares offsets.
    """
    for is_definition in (False, True):
        seen: dict[DatasetId, tuple[DatasetId, Multihash]] = {}
        for name, each in made.items():
            blocks = each.definitions if is_definition else _blocks(each)
            for source, block in blocks.items():
                first, other = seen.setdefault(source, (name, block))
                if other != block:
                    return Unlike(first, name, source, is_definition)
    return None


def _blocks(made: MadeFrom) -> dict[DatasetId, Multihash]:
    return {source: at.block for source, at in made.positions.items() if at is not None}
