"""Random workspaces in memory: roots, derived datasets over them, and everything that can happen to those.

A dataset is a list of blocks; nothing is computed, only how far each one has read is recorded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import count

from trueline.workspace.snapshot.search import NOTHING, OFF_BRANCH


@dataclass(frozen=True)
class ModelBlock:
    """A block: `taken` are block and offset of each input, `made_under` the definitions of ancestors.

    `origin` are block and offset of each root that it was made from.
    """

    hash: int
    offset: int
    is_data: bool = False
    is_end: bool = True
    at_rest: bool = True
    inputs: tuple[str, ...] | None = None  # of a definition
    taken: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)
    made_under: Mapping[str, int] = field(default_factory=dict)
    origin: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)


class ModelDataset:
    """A chain of model blocks, which is also a history as the search wants it."""

    def __init__(self, blocks: list[ModelBlock]) -> None:
        self.blocks = blocks

    @property
    def definition(self) -> int:
        return max((i for i, block in enumerate(self.blocks) if block.inputs is not None), default=NOTHING)

    @property
    def inputs(self) -> tuple[str, ...]:
        defined = self.definition
        return () if defined == NOTHING else self.blocks[defined].inputs

    @property
    def is_derived(self) -> bool:
        return self.definition != NOTHING

    def is_readable(self, number: int) -> bool:
        block = self.blocks[number]
        rests = block.at_rest or not self.is_derived
        return block.is_data and block.is_end and rests and number > self.definition

    def readable(self, upto: int | None = None) -> int:
        last = len(self.blocks) - 1 if upto is None else upto
        return next((i for i in range(last, -1, -1) if self.is_readable(i)), NOTHING)

    def offset(self, number: int) -> int:
        return self.blocks[number].offset

    def last_within(self, offset: int, upto: int) -> int:
        return next((i for i in range(upto, -1, -1) if self.blocks[i].offset <= offset), NOTHING)

    def _event(self, number: int) -> ModelBlock | None:
        numbers = range(number, self.definition, -1)
        return next((self.blocks[i] for i in numbers if self.blocks[i].is_data), None)

    def read_of(self, source: str, number: int) -> tuple[int | None, int]:
        event = self._event(number)
        return (None, NOTHING) if event is None else event.taken[source]

    def offset_of(self, block: int, recorded: int) -> int:
        number = self.number_of(block)
        return OFF_BRANCH if number == OFF_BRANCH else self.blocks[number].offset

    def number_of(self, block: int) -> int:
        return next((i for i, each in enumerate(self.blocks) if each.hash == block), OFF_BRANCH)

    def definitions(self, number: int) -> Mapping[str, int]:
        event = self._event(number)
        return {} if event is None else event.made_under


class ModelWorkspace:
    """A workspace to which random things happen."""

    def __init__(self, seed: int, *, tears: bool = True) -> None:
        self.random = random.Random(seed)
        self.tears = tears  # whether readers may stop at what was made from inputs that do not agree
        self.late: set[str] = set()
        self.rebuilt: set[str] = set()
        self.datasets: dict[str, ModelDataset] = {}
        self._hashes = count()
        for i in range(self.random.randint(1, 3)):
            self.datasets[f"r{i}"] = ModelDataset([self._block(NOTHING)])
        self.most_derived = self.random.randint(2, 8)
        for _ in range(self.random.randint(1, self.most_derived)):
            self.create()

    def _block(self, offset: int, **what: object) -> ModelBlock:
        return ModelBlock(next(self._hashes), offset, **what)

    def live(self, steps: int) -> None:
        """Let some things happen."""
        things = (
            [self.append] * 6
            + [self.pull_heads] * 4
            + [self.pull_all] * 4
            + [self.reset, self.rebuild, self.redefine, self.create, self.describe]
        )
        for _ in range(steps):
            there = set(self.datasets)
            self.random.choice(things)()
            self.late |= set(self.datasets) - there

    @property
    def derived(self) -> list[str]:
        return [name for name, dataset in self.datasets.items() if dataset.is_derived]

    def create(self) -> None:
        """Derive a dataset from some that are there."""
        if len(self.derived) < self.most_derived:
            inputs = self._some(list(self.datasets))
            name = f"d{len(self.datasets):02}"
            self.datasets[name] = ModelDataset([self._block(NOTHING, inputs=inputs)])

    def _some(self, names: list[str]) -> tuple[str, ...]:
        return tuple(self.random.sample(names, min(len(names), self.random.randint(1, 3))))

    def append(self) -> None:
        """Commit to a root: in one block or several, with rows or only a watermark."""
        root = self.random.choice([name for name in self.datasets if name not in self.derived])
        self._commit(self.datasets[root])

    def _commit(self, dataset: ModelDataset, **what: object) -> None:
        offset, parts = dataset.blocks[-1].offset, self.random.choice((1, 1, 1, 2, 3))
        before = dataset._event(len(dataset.blocks) - 1) if dataset.is_derived else None
        for part in range(1, parts + 1):
            offset += self.random.choice((0, 1, 1, 2)) if part == parts else 1
            # A part repeats what the commit before it says.
            said = (
                what
                if part == parts or before is None
                else {
                    "taken": before.taken,
                    "made_under": before.made_under,
                    "origin": before.origin,
                    "at_rest": False,
                }
            )
            if part < parts and before is None and what:
                nothing = dict.fromkeys(dataset.inputs, (None, NOTHING))
                said = {"taken": nothing, "at_rest": False}
            dataset.blocks.append(self._block(offset, is_data=True, is_end=part == parts, **said))

    def describe(self) -> None:
        """Add metadata alone."""
        dataset = self.datasets[self.random.choice(list(self.datasets))]
        dataset.blocks.append(self._block(dataset.blocks[-1].offset))

    def pull_heads(self) -> None:
        """Bring one dataset to wherever its inputs are: it may tear."""
        if self.derived:
            self.pull(self.random.choice(self.derived))

    def pull_all(self) -> None:
        """Bring some datasets and all they rest on to one state."""
        wanted, waiting = set(), list(self._some(self.derived))
        while waiting:
            name = waiting.pop()
            wanted.add(name)
            waiting += [each for each in self.datasets[name].inputs if each in self.derived]
        for name in sorted(wanted):
            self.pull(name, rest=True)

    def pull(self, name: str, *, rest: bool = False) -> None:
        dataset = self.datasets[name]
        before = dataset._event(len(dataset.blocks) - 1)
        taken: dict[str, tuple[int | None, int]] = {}
        made_under = {name: dataset.blocks[dataset.definition].hash}
        origin: dict[str, tuple[int | None, int]] = {}
        is_torn = False
        for source in dataset.inputs:
            there = self.datasets[source]
            at = there.readable()
            block = there.blocks[at] if at != NOTHING else None
            was = before.taken.get(source, (None, NOTHING)) if before is not None else (None, NOTHING)
            if was[0] is not None:
                number = there.number_of(was[0])
                if number == OFF_BRANCH:
                    return  # it has diverged: a pull refuses
                if at < number:
                    at, block = number, there.blocks[number]
            taken[source] = (None, NOTHING) if block is None else (block.hash, block.offset)
            under = self._definitions(source) if block is None else block.made_under
            of = self._origin(source, block)
            is_torn |= any(made_under.get(each, at) != at for each, at in under.items())
            is_torn |= any(origin.get(each, at) != at for each, at in of.items())
            made_under |= under
            origin |= of
        at_rest = (rest or self.random.random() < 0.8) and (self.tears or not is_torn)
        self._commit(dataset, taken=taken, made_under=made_under, origin=origin, at_rest=at_rest)

    def _origin(self, name: str, block: ModelBlock | None) -> Mapping[str, tuple[int | None, int]]:
        """The roots that a block of a dataset, or a dataset without data, was made from."""
        if block is None:
            return {each: (None, NOTHING) for each in self.closure([name]) if each not in self.derived}
        return block.origin if name in self.derived else {name: (block.hash, block.offset)}

    def _definitions(self, name: str) -> dict[str, int]:
        """The definitions of a dataset without data, and of what it is made from: they count all the same."""
        below = ((each, self.datasets[each]) for each in self.closure([name]))
        return {each: found.blocks[found.definition].hash for each, found in below if found.is_derived}

    def reset(self) -> None:
        """Cut off the end of a chain, at the end of a commit; what follows has other hashes."""
        dataset = self.datasets[self.random.choice(list(self.datasets))]
        ends = [i for i, block in enumerate(dataset.blocks) if block.is_end]
        del dataset.blocks[self.random.choice(ends[-4:]) + 1 :]

    def rebuild(self) -> None:
        """Cut a derived dataset off where all it had read is still there."""
        for name in self.derived:
            dataset = self.datasets[name]
            while (event := dataset._event(len(dataset.blocks) - 1)) is not None and any(
                block is not None and self.datasets[source].number_of(block) == OFF_BRANCH
                for source, (block, _) in event.taken.items()
            ):
                del dataset.blocks[-1]
                self.rebuilt.add(name)

    def redefine(self) -> None:
        """Define a derived dataset anew, over the same inputs or others."""
        if self.derived:
            name = self.random.choice(self.derived)
            dataset = self.datasets[name]
            others = [each for each in self.datasets if each not in self.derived or each < name]
            inputs = dataset.inputs if self.random.random() < 0.6 else self._some(others)
            dataset.blocks.append(self._block(dataset.blocks[-1].offset, inputs=inputs))

    def at(self, lengths: Mapping[str, int]) -> ModelWorkspace:
        """The same when each dataset had so many blocks; of clocks that differ any lengths may be."""
        then = copy(self)
        then.datasets = {
            name: ModelDataset(dataset.blocks[: lengths[name]]) for name, dataset in self.datasets.items()
        }
        return then

    # --- what is true -------------------------------------------------------------------

    def closure(self, names: list[str]) -> list[str]:
        """Return datasets and all they rest on, inputs before those that read them."""
        found: list[str] = []

        def visit(name: str) -> None:
            if name not in found:
                for source in self.datasets[name].inputs:
                    visit(source)
                found.append(name)

        for name in names:
            visit(name)
        return found

    def consistent(self, names: list[str]) -> Iterator[dict[str, int]]:
        """Yield every choice of events that agrees, found by trying all."""
        order = self.closure(names)

        def extend(chosen: dict[str, int]) -> Iterator[dict[str, int]]:
            if len(chosen) == len(order):
                yield dict(chosen)
                return
            name = order[len(chosen)]
            dataset = self.datasets[name]
            numbers = [i for i in range(len(dataset.blocks)) if dataset.is_readable(i)]
            for number in (NOTHING, *numbers):
                if self._fits(name, number, chosen, order):
                    yield from extend(chosen | {name: number})

        return extend({})

    def _fits(self, name: str, number: int, chosen: Mapping[str, int], order: list[str]) -> bool:
        dataset = self.datasets[name]
        for source in dataset.inputs:
            there = self.datasets[source]
            has = NOTHING if chosen[source] == NOTHING else there.blocks[chosen[source]].offset
            block = dataset.blocks[number].taken[source][0] if number != NOTHING else None
            blocks = [each for each in there.blocks if each.hash == block]
            if block is not None and not blocks:
                return False
            if (blocks[0].offset if blocks else NOTHING) != has:
                return False
        made_under = dataset.blocks[number].made_under if number != NOTHING else {}
        return all(
            self.datasets[each].blocks[self.datasets[each].definition].hash == block
            for each, block in made_under.items()
            if each in order
        )

    def newest(self, names: list[str], bounds: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the newest choice: the later event of each dataset over all that agree, which agrees too."""
        held = bounds or {}
        every = [
            each
            for each in self.consistent(names)
            if all(each[name] <= bound for name, bound in held.items())
        ]
        best = {name: max(each[name] for each in every) for name in every[0]}
        assert best in every
        return best
