"""The newest positions at which several datasets agree: a greatest fixpoint over what they record.

Every transaction of a derived dataset records how far it has read each of its inputs, and under which
definitions. Positions agree if, on every edge from a dataset to an input, the input is exactly as far as the
dataset had read it, and if everything was made under the definitions that are in force. Both only ever move
forward along a chain, so of two choices that agree the later one of each dataset agrees too: there is one
newest choice. It is found from above. Whatever is ahead of what it has to fit is taken back to the newest
event that may still fit, until nothing is ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Final, Generic, Protocol, TypeVar

from trueline.identity.multihash import Multihash

K = TypeVar("K", bound=Hashable)
# Before the first event, and before the first record.
NOTHING: Final = -1
# What was read is not on the present branch of the input.
OFF_BRANCH: Final = 1 << 64


class History(Protocol[K]):
    """What the search asks of a dataset as it was when its head was seen.

    Events have numbers that grow along the chain. Those a reader may stop at are *readable*: ends of commits
    and, of a derived dataset, at rest and made under its own present definition. An offset is that of the
    last record after an event.
    """

    @property
    def inputs(self) -> tuple[K, ...]:
        """The datasets it is computed from; none where it counts as a root."""

    @property
    def definition(self) -> int:
        """The number of the event that defines it; nothing before that is readable."""

    def readable(self, upto: int | None = None) -> int:
        """Return the newest readable event, at or before a number if one is given; `NOTHING` if none is."""

    def offset(self, number: int) -> int:
        """Return the offset after an event."""

    def last_within(self, offset: int, upto: int) -> int:
        """Return the greatest number up to `upto` whose offset is not beyond `offset`."""

    def read_of(self, source: K, number: int) -> tuple[Multihash | None, int]:
        """Return how far an input had been read up to a number, under the present definition.

        The block and the offset there; (None, NOTHING) if nothing was.
        """

    def offset_of(self, block: Multihash, recorded: int) -> int:
        """Return the offset at a block that others recorded, `OFF_BRANCH` if it is not on the branch."""

    def number_of(self, block: Multihash) -> int:
        """Return the number of a block, `OFF_BRANCH` if it is not on the branch."""

    def definitions(self, number: int) -> Mapping[K, Multihash]:
        """Return the definitions of derived ancestors that the newest event up to a number was made under."""


class Cause(StrEnum):
    """Why a dataset was taken back."""

    AHEAD = "ahead"  # it has read more of an input than the others have
    DIVERGED = "diverged"  # it has read what is not on the input's branch any more
    REDEFINED = "redefined"  # an ancestor was defined anew, and it has not followed


@dataclass(frozen=True, slots=True)
class Conflict(Generic[K]):
    """What took a dataset back: the dataset it did not fit, and the block it had read or was made under."""

    cause: Cause
    source: K
    block: Multihash | None = None


@dataclass(slots=True)
class Search(Generic[K]):
    """One search: `at` holds the event of each dataset, `conflicts` the last reason to take it back.

    `steps` counts what was looked at; it grows with the logarithm of how far datasets are taken back.
    """

    histories: Mapping[K, History[K]]
    at: dict[K, int] = field(default_factory=dict)
    conflicts: dict[K, Conflict[K]] = field(default_factory=dict)
    steps: int = 0

    def run(self, bounds: Mapping[K, int | None]) -> dict[K, int]:
        """Find the newest events that agree, of some datasets and all they rest on.

        `bounds` are the datasets that are asked for, each with the newest number it may be at (None: any).
        """
        order = consumers_first({name: history.inputs for name, history in self.histories.items()})
        self.at = {name: self.histories[name].readable(bound) for name, bound in bounds.items()}
        while self._settle_edges(order) or self._settle_definitions(order):
            pass
        return self.at

    # --- how far inputs were read -------------------------------------------------------

    def _settle_edges(self, order: list[K]) -> bool:
        moved = False
        for name in order:
            if name in self.at:
                for source in self.histories[name].inputs:
                    while self._settle_edge(name, source):
                        moved = True
        return moved

    def _settle_edge(self, name: K, source: K) -> bool:
        """Take one end of an edge back if the ends do not fit; say whether something moved."""
        read = self._read(name, source, self.at[name])
        there = self.histories[source]
        if source not in self.at:
            if read == OFF_BRANCH:
                return self._take_back(name, source, OFF_BRANCH - 1)
            self.at[source] = there.readable(there.last_within(read, self._top(source)))
            return True
        has = self._offset(source)
        if read > has:
            return self._take_back(name, source, has)
        if read < has:
            self.steps += 1
            self.at[source] = there.readable(there.last_within(read, self.at[source]))
            self.conflicts.setdefault(source, Conflict(Cause.AHEAD, name))
            return True
        return False

    def _top(self, name: K) -> int:
        return self.histories[name].readable()

    def _offset(self, name: K) -> int:
        number = self.at[name]
        return NOTHING if number == NOTHING else self.histories[name].offset(number)

    def _read(self, name: K, source: K, number: int) -> int:
        """Return the offset up to which a dataset had read an input, `OFF_BRANCH` if that is gone."""
        self.steps += 1
        if number == NOTHING:
            return NOTHING
        block, recorded = self.histories[name].read_of(source, number)
        return NOTHING if block is None else self.histories[source].offset_of(block, recorded)

    def _take_back(self, name: K, source: K, limit: int) -> bool:
        """Take a dataset back to its newest event that has read no more of an input than `limit`."""
        history, last = self.histories[name], self.at[name]
        block, recorded = history.read_of(source, last)
        gone = block is not None and self.histories[source].offset_of(block, recorded) == OFF_BRANCH
        number = self._newest(name, last, lambda at: self._read(name, source, at) <= limit)
        self.conflicts[name] = Conflict(Cause.DIVERGED if gone else Cause.AHEAD, source, block)
        self.at[name] = history.readable(number) if number != NOTHING else NOTHING
        return True

    # --- under which definitions it was made --------------------------------------------

    def _settle_definitions(self, order: list[K]) -> bool:
        for name in order:
            number = self.at.get(name, NOTHING)
            if number == NOTHING or not self.histories[name].inputs:
                continue
            for source, block in self.histories[name].definitions(number).items():
                present = self.histories[source].definition if source in self.histories else None
                if present is None or source == name or self._defined(name, source, number) == present:
                    continue
                self._redefine(name, source, present)
                self.conflicts[name] = Conflict(Cause.REDEFINED, source, block)
                return True
        return False

    def _redefine(self, name: K, source: K, present: int) -> None:
        """Take a dataset back to where it was made under a definition that is not later than the present one.

        That is only of use where the ancestor was reset; whoever has not followed a new definition yet was
        never at rest under it.
        """
        history, number = self.histories[name], self.at[name]
        if self._defined(name, source, number) > present:
            number = self._newest(name, number, lambda at: self._defined(name, source, at) <= present)
            number = history.readable(number) if number != NOTHING else NOTHING
        fits = number != NOTHING and self._defined(name, source, number) == present
        self.at[name] = number if fits else NOTHING

    def _defined(self, name: K, source: K, number: int) -> int:
        self.steps += 1
        block = self.histories[name].definitions(number).get(source)
        return NOTHING if block is None else self.histories[source].number_of(block)

    # --- looking ------------------------------------------------------------------------

    def _newest(self, name: K, last: int, fits: Callable[[int], bool]) -> int:
        """Return the greatest number below `last` that fits: what fits later fits earlier too.

        The steps down double, then the last one is halved: what is near costs little.
        """
        floor, step, high = self.histories[name].definition, 1, last
        low = max(high - step, floor)
        while low > floor and not fits(low):
            high, step = low, step * 2
            low = max(high - step, floor)
        if not fits(low):
            return NOTHING
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def consumers_first(inputs: Mapping[K, Iterable[K]]) -> list[K]:
    """Order datasets so that each comes before those it is computed from."""
    return list(TopologicalSorter({name: tuple(of) for name, of in inputs.items()}).static_order())[::-1]


def grouped(below: Mapping[str, set[K]]) -> tuple[tuple[str, ...], ...]:
    """Return names of datasets, together with those that rest on something common, in their order.

    >>> grouped({"credits": {1}, "weather": {2}, "debits": {1, 3}})
    (('credits', 'debits'), ('weather',))
    """
    groups: list[tuple[set[K], list[str]]] = []
    for name, of in below.items():
        shared, names = set(of), [name]
        for group in [each for each in groups if each[0] & shared]:
            groups.remove(group)
            shared, names = shared | group[0], group[1] + names
        groups.append((shared, names))
    order = list(below)
    return tuple(sorted((tuple(names) for _, names in groups), key=lambda names: order.index(names[0])))
