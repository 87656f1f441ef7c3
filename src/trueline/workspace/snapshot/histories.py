"""Chains as the search for agreement sees them: looked up by number in the index, proven by their blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from trueline.chain.branch import Branch
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.events import DatasetKind, ExecuteTransform, SetTransform
from trueline.chain.head_state import Position
from trueline.chain.index_rows import IndexEntry
from trueline.chain.instant import Instant
from trueline.errors import RetryError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.snapshot.made_from import (
    ChainOf,
    Left,
    MadeFrom,
    held_to,
    inputs_defined,
    is_copy,
    made_from,
)
from trueline.workspace.snapshot.search import NOTHING, OFF_BRANCH, History, consumers_first

if TYPE_CHECKING:
    from trueline.workspace.cuts.roots import Roots
    from trueline.workspace.dataset import Dataset

# Each time a dataset was defined anew between two instructions.
_ATTEMPTS: Final = 100


def _nowhere(_: DatasetId) -> None:
    """No other dataset is here."""


@dataclass
class ChainHistory:
    """A dataset at the head it was seen at; `inputs` are none where it counts as a root here.

    A copy that is read with others has for inputs what it is held to, which its own definition need not name.
    `reads` counts the blocks that were read.
    """

    dataset: Dataset
    branch: Branch
    inputs: tuple[DatasetId, ...]
    chain_of: ChainOf = field(default=_nowhere, repr=False)
    reads: Counter[str] = field(default_factory=Counter)
    _left: dict[int, Left] = field(default_factory=dict)
    _made: dict[int, MadeFrom] = field(default_factory=dict)

    @property
    def is_derived(self) -> bool:
        """Whether its commits are transactions over inputs, wherever they were made."""
        tail = self.branch.tail
        return tail is not None and tail.dataset_kind is DatasetKind.Derivative

    @cached_property
    def is_copy(self) -> bool:
        """Whether it was computed elsewhere, if it counts as a root here."""
        return is_copy(self.branch.tail)

    @cached_property
    def definition(self) -> int:
        """The number of the block that defines it; −1 for roots."""
        found = self.branch.newest(SetTransform) if self.is_derived else None
        return NOTHING if found is None else found.sequence_number

    @cached_property
    def definition_block(self) -> Multihash | None:
        """The block that defines it."""
        return None if self.definition == NOTHING else self.branch.at(self.definition).hash

    def readable(self, upto: int | None = None) -> int:
        """Return the newest commit that readers may stop at."""
        for entry in self._data(upto):
            if entry.is_end and (not self.is_derived or self.left(entry.sequence_number).at_rest):
                return entry.sequence_number
        return NOTHING

    def _data(self, upto: int | None) -> Iterator[IndexEntry]:
        """Iterate over the blocks with data under the present definition, newest first."""
        tip = self.branch.tip
        if tip is None:
            return
        start = tip if upto is None or upto >= tip.sequence_number else None
        if start is None and upto is not None and upto >= 0:
            start = self.branch.at(upto)
        at = start.data if start is not None else None
        while at is not None and at > self.definition:
            yield self.branch.at(at)
            at = self.branch.at(at - 1).data if at > 0 else None

    def left(self, number: int) -> Left:
        """Read what a transaction left: its block and its checkpoint."""
        if number not in self._left:
            chain = self.branch.chain
            found = chain.block(self.branch.at(number).hash).event
            event = found if isinstance(found, ExecuteTransform) else None
            self.reads["blocks"] += 1
            checkpoint = None
            if event is not None and not event.is_part:
                checkpoint = derived_checkpoint(chain.store, event)
                self.reads["checkpoints"] += 1
            self._left[number] = Left(event, checkpoint)
        return self._left[number]

    def offset(self, number: int) -> int:
        """Return the last offset after a commit."""
        return _or_nothing(self.branch.at(number).last_offset)

    def last_within(self, offset: int, upto: int) -> int:
        """Return the greatest number whose offset is not beyond one."""
        return self.branch.last_within(offset, upto)

    def read_of(self, source: DatasetId, number: int) -> tuple[Multihash | None, int]:
        """Return how far an input had been read, as the index noted it.

        Where an ancestor that is no input was, the checkpoint says.
        """
        if source not in self._named:
            at = self.made_from(number).positions.get(source)
            return (None, NOTHING) if at is None else (at.block, _or_nothing(at.offset))
        block, last = self.branch.taken(str(source), self.definition, number) or (None, None)
        return block, _or_nothing(last)

    @cached_property
    def _named(self) -> frozenset[DatasetId]:
        return frozenset(read_by(self))

    def made_from(self, number: int) -> MadeFrom:
        """Return what the newest transaction up to a number was made from, through all that is here."""
        found = self._end(number)
        if found is None:
            return MadeFrom()
        if found.sequence_number not in self._made:
            left = self.left(found.sequence_number)
            self._made[found.sequence_number] = made_from(left, self.chain_of)
        return self._made[found.sequence_number]

    def rests_on(self) -> tuple[DatasetId, ...]:
        """Return all that it was made from at its newest transaction, and what its definition names."""
        tip = self.branch.tip
        made = MadeFrom() if tip is None else self.made_from(tip.sequence_number)
        without_data = inputs_defined(made.definitions, self.chain_of) - made.definitions.keys()
        return tuple(dict.fromkeys((*read_by(self), *made.positions, *sorted(without_data))))

    def held_to(self, sources: tuple[DatasetId, ...]) -> ChainHistory:
        """Return it as one of which the search holds to what it was made from."""
        return replace(self, inputs=sources)

    def offset_of(self, block: Multihash, recorded: int) -> int:
        """Return the offset at a block of the present branch."""
        del recorded
        found = self.branch.find(block)
        return OFF_BRANCH if found is None else _or_nothing(found.last_offset)

    def number_of(self, block: Multihash) -> int:
        """Return the number of a block of the present branch."""
        found = self.branch.find(block)
        return OFF_BRANCH if found is None else found.sequence_number

    def definitions(self, number: int) -> Mapping[DatasetId, Multihash]:
        """Return the definitions of ancestors that the newest transaction up to a number was made under."""
        if self.is_copy:
            return self.made_from(number).definitions
        found = self._end(number)
        left = None if found is None else self.left(found.sequence_number).checkpoint
        return {} if left is None else left.origin.definitions

    def _end(self, number: int) -> IndexEntry | None:
        return next((each for each in self._data(number) if each.is_end), None)

    def is_proven(self, number: int) -> bool:
        """Say whether the block of a commit has read its inputs as far as the index noted."""
        if number == NOTHING or not self.inputs:
            return True
        event = self.left(number).event
        said = {taken.dataset_id: taken for taken in event.query_inputs} if event is not None else {}
        return all(
            self.read_of(source, number) == (said[source].last_block, _or_nothing(said[source].last_offset))
            for source in self.inputs
            if source in said
        )

    def before_definition(self) -> ChainHistory | None:
        """Return it as it was before it was last defined anew; None if it never was."""
        branch = self.branch.before(self.definition)
        if branch.tail is None or branch.tail.transform is None:
            return None
        return ChainHistory(self.dataset, branch, self.inputs, self.chain_of)

    def position(self, number: int) -> Position:
        """Return a commit as readers give it; before the first it is where there are no records yet."""
        if number != NOTHING:
            entry = self.branch.at(number)
            return Position(entry.hash, entry.last_offset)
        entry = self._before_data()
        return Position(entry.hash, None)

    def _before_data(self) -> IndexEntry:
        """The last block before the first with data, which the first commit of every chain has."""
        tip = self.branch.tip
        assert tip is not None
        low, high = 0, tip.sequence_number
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.branch.at(middle).data is None else (low, middle - 1)
        return self.branch.at(low)

    def commits_after(self, number: int) -> int:
        """How many commits came after one."""
        tip = self.branch.tip
        assert tip is not None
        return tip.commits - (0 if number == NOTHING else self.branch.at(number).commits)


@dataclass(frozen=True, slots=True)
class AbsentHistory:
    """A dataset that is not here, of which copies here were made: it is wherever they say that it was."""

    inputs: tuple[DatasetId, ...] = ()
    definition: int = NOTHING

    def readable(self, upto: int | None = None) -> int:
        """Any offset can be read: nobody here knows better."""
        return OFF_BRANCH - 1 if upto is None else upto

    def offset(self, number: int) -> int:
        """Numbers are offsets."""
        return number

    def last_within(self, offset: int, upto: int) -> int:
        """Numbers are offsets."""
        return min(offset, upto)

    def read_of(self, source: DatasetId, number: int) -> tuple[Multihash | None, int]:
        """It has no inputs here."""
        raise NotImplementedError

    def offset_of(self, block: Multihash, recorded: int) -> int:
        """What was recorded cannot be checked."""
        del block
        return recorded

    def number_of(self, block: Multihash) -> int:
        """It is not known where its definition was."""
        del block
        return NOTHING

    def definitions(self, number: int) -> Mapping[DatasetId, Multihash]:
        """It has no ancestors here."""
        del number
        return {}


def _or_nothing(offset: int | None) -> int:
    return NOTHING if offset is None else offset


Histories = dict[DatasetId, ChainHistory]


def look(roots: Roots, given: Mapping[DatasetId, Dataset], moment: Instant | None = None) -> Histories:
    """Look at datasets and all that they rest on, as they are or were at a moment.

    Each is looked at before those it is computed from: whoever is looked at later has at least what the
    earlier ones have read of it.
    """
    chain_of = cache(roots.chain_of)
    for _ in range(_ATTEMPTS):
        known = _inputs(roots, given, moment)
        found: Histories = {}
        for name in consumers_first({name: inputs for name, (_, inputs) in known.items()}):
            dataset, inputs = known[name]
            history = ChainHistory(dataset, _seen(dataset, moment), inputs, chain_of)
            if inputs and read_by(history) != inputs:
                break  # it was defined anew meanwhile
            found[name] = history
        else:
            return found
    raise RetryError(
        f"{', '.join(each.name for each in given.values())}: datasets were defined anew while they were "
        "looked at",
        remedy="nothing was changed; try again",
        code="DefinitionsBusy",
    )


def _inputs(
    roots: Roots, given: Mapping[DatasetId, Dataset], moment: Instant | None
) -> dict[DatasetId, tuple[Dataset, tuple[DatasetId, ...]]]:
    found: dict[DatasetId, tuple[Dataset, tuple[DatasetId, ...]]] = {}
    waiting = list(given.items())
    while waiting:
        name, dataset = waiting.pop()
        if name not in found:
            tail = None if moment is None else _seen(dataset, moment).tail
            inputs = [(each.id, each) for each in roots.inputs(dataset, tail) or ()]
            found[name] = dataset, tuple(source for source, _ in inputs)
            waiting += inputs
    return found


def _seen(dataset: Dataset, moment: Instant | None) -> Branch:
    branch = Branch.of(dataset.chain)
    if moment is None:
        return branch
    end = dataset.chain.at_time(int(moment) // 1000)
    return branch.before(0 if end is None else end.sequence_number + 1)


def read_by(history: ChainHistory) -> tuple[DatasetId, ...]:
    """Return the inputs that its definition names, here or not."""
    transform = history.branch.tail.transform if history.branch.tail is not None else None
    return () if transform is None else tuple(DatasetId.parse(each.dataset_ref) for each in transform.inputs)


def with_absent(histories: Histories) -> dict[DatasetId, History[DatasetId]]:
    """Add what copies of derived datasets were made from: what they share, here or elsewhere.

    A copy counts as a root. It is held to its ancestors where those are read as well, or where another copy
    was made from them.
    """
    found: dict[DatasetId, History[DatasetId]] = dict(histories)
    copies = {name for name, history in histories.items() if history.is_copy and not history.inputs}
    if len(histories) > 1:
        held = held_to({name: histories[name].rests_on() for name in histories if name in copies}, histories)
        for name, sources in held.items():
            found[name] = histories[name].held_to(sources)
            for source in sources:
                found.setdefault(source, AbsentHistory())
    return found
