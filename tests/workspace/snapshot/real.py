"""Random histories in real chains: the same things happen as in `model.py`, as blocks and checkpoints.

Rows are only spoken of: where datasets agree is decided by blocks, checkpoints and indexes alone. `as_model`
reads a workspace back, block by block, so that trying all of it is independent of how the search looks it up.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa

from tests.workspace.derive.computed_here import define_by_hand
from tests.workspace.snapshot.model import ModelBlock, ModelDataset, ModelWorkspace
from trueline.chain.block import CommitRecord, is_commit_end
from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin, derived_checkpoint
from trueline.chain.events import (
    AddData,
    Checkpoint,
    DataSlice,
    ExecuteTransform,
    OffsetInterval,
    SetInfo,
    SetTransform,
    TransformInput,
)
from trueline.chain.head_state import Position, follow, next_add_data, next_block, next_execute_transform
from trueline.chain.instant import Instant
from trueline.chain.sources import ENGINE
from trueline.chain.store.store import Folder
from trueline.identity import Multihash
from trueline.workspace.derive.follow import before_data
from trueline.workspace.snapshot.search import NOTHING, OFF_BRANCH

COLUMNS = {"account": pa.string(), "total": pa.float64()}


class RealWorkspace:
    """A workspace to which random things happen."""

    def __init__(self, workspace, seed):
        self.workspace, self.random = workspace, random.Random(seed)
        self.made = 0
        self.seen = set()
        self.roots = [f"r{number}" for number in range(self.random.randint(1, 3))]
        self.derived = []
        for name in self.roots:
            workspace.create(name, schema=pa.schema(COLUMNS))
        self.most_derived = self.random.randint(2, 6)
        for _ in range(self.random.randint(1, self.most_derived)):
            self.create()

    def live(self, steps):
        """Let some things happen."""
        things = [self.append] * 6 + [self.pull_heads] * 4 + [self.pull_some] * 4
        things += [self.reset, self.rebuild, self.redefine, self.create, self.describe]
        for _ in range(steps):
            self.random.choice(things)()

    def chain(self, name):
        return self.workspace[name].chain

    def some(self, names):
        return self.random.sample(names, min(len(names), self.random.randint(1, 3)))

    def create(self):
        if len(self.derived) < self.most_derived:
            inputs = self.some([*self.roots, *self.derived])
            name = f"d{len(self.derived)}"
            define_by_hand(self.workspace, name, f"select '{name}'", inputs, columns=COLUMNS)
            self.derived.append(name)
            self.seen |= {"late"} if self.made else set()

    def append(self):
        """Commit to a root: in one block or several, the last of which may have only a watermark."""
        chain = self.chain(self.random.choice(self.roots))
        tail, parts = chain.tail(), self.random.choice((1, 1, 1, 2, 3))
        blocks = []
        for part in range(1, parts + 1):
            new = {"extra": CommitRecord(part, parts).to_extra()}
            if part < parts or self.random.random() < 0.8 or tail.data is None:
                new["new_data"] = self.slice(tail.next_offset)
            else:
                new["new_watermark"] = Instant(
                    max(tail.watermark or 0, int(tail.system_time)) + self.number()
                )
            blocks.append(next_block(tail, next_add_data(tail, **new)))
            tail = follow(tail, blocks[-1])
        self.seen |= {"parts of roots"} if parts > 1 else set()
        chain.append(*blocks)

    def number(self):
        self.made += 1
        return self.made

    def slice(self, start):
        name = Multihash.of(b"slice %d" % self.number())
        last = start + self.random.choice((0, 0, 1))
        return DataSlice(name, name, OffsetInterval(start, last), 100)

    def describe(self):
        chain = self.chain(self.random.choice([*self.roots, *self.derived]))
        chain.append(next_block(chain.tail(), SetInfo(f"number {self.number()}")))

    def inputs(self, name):
        names = self.workspace._names_by_id()
        return [names[each.dataset_ref] for each in self.chain(name).tail().transform.inputs]

    def pull_heads(self):
        """Bring one dataset to wherever its inputs are: it may tear."""
        self.pull(self.random.choice(self.derived))

    def pull_some(self):
        """Bring some datasets, and all they rest on, to one state."""
        wanted, waiting = set(), self.some(self.derived)
        while waiting:
            name = waiting.pop()
            wanted |= {name} & set(self.derived)
            waiting += self.inputs(name) if name in self.derived else []
        for name in sorted(wanted, key=lambda name: len(self.below(name))):
            self.pull(name, rest=True)

    def below(self, name):
        above = self.inputs(name) if name in self.derived else []
        return {name}.union(*(self.below(each) for each in above))

    def pull(self, name, *, rest=False):
        dataset, chain = self.workspace[name], self.chain(name)
        tail = chain.tail()
        definition = chain.newest(SetTransform).hash
        positions, roots, definitions = {}, {}, {dataset.id: definition}
        for each in self.inputs(name):
            there = self.workspace[each]
            at = self.newest_readable(each) or before_data(there)
            before = tail.taken.get(there.id)
            if before is not None and before.last_block is not None:
                passed = there.chain.sequence_of(before.last_block)
                if passed is None:
                    return  # it has diverged: a pull refuses
                if passed > there.chain.sequence_of(at.block):
                    at = Position(before.last_block, before.last_offset)
            positions[there.id] = at
            roots, definitions = self.joined(each, at, roots, definitions)
        at_rest = rest or self.random.random() < 0.8
        self.seen |= set() if at_rest else {"not at rest"}
        self.commit(name, positions, DerivedOrigin(roots, definitions), at_rest=at_rest)

    def newest_readable(self, name):
        model = model_of(self.workspace, name, self.workspace._names_by_id())
        number = model.readable()
        if number == NOTHING:
            return None
        entry = self.chain(name).entry_number(number)
        return Position(entry.hash, entry.last_offset)

    def joined(self, name, at, roots, definitions):
        """The origin with what an input adds at a position."""
        there = self.workspace[name]
        if name in self.roots:
            return roots | ({there.id: at} if at.offset is not None else {}), definitions
        event = there.chain.block(at.block).event
        left = derived_checkpoint(there.chain.store, event) if isinstance(event, ExecuteTransform) else None
        if left is None:  # it has no data; its definitions count all the same
            below = [each for each in self.below(name) if each in self.derived]
            ids = {self.workspace[each].id: self.chain(each).newest(SetTransform).hash for each in below}
            return roots, definitions | ids
        return roots | left.origin.roots, definitions | left.origin.definitions

    def commit(self, name, positions, origin, *, at_rest):
        chain = self.chain(name)
        tail, store = chain.tail(), chain.store
        takes = next_execute_transform(tail, positions).takes_blocks or tail.redefined
        parts = self.random.choice((1, 1, 1, 2)) if takes else 1
        blocks = []
        for _ in range(parts - 1):
            blocks.append(
                next_block(tail, next_execute_transform(tail, {}, new_data=self.slice(tail.next_offset)))
            )
            tail = follow(tail, blocks[-1])
        definition = origin.definitions[self.workspace[name].id]
        left = DerivedCheckpoint(origin, at_rest, definition, ENGINE, more={"number": self.number()})
        raw = left.to_file().to_bytes()
        last = {"new_checkpoint": Checkpoint(store.put(Folder.CHECKPOINTS, raw), len(raw))}
        if takes and self.random.random() < 0.8:
            last["new_data"] = self.slice(tail.next_offset)
        blocks.append(next_block(tail, next_execute_transform(tail, positions, **last)))
        self.seen |= {"parts"} if parts > 1 else set()
        chain.append(*blocks)

    def reset(self):
        """Cut off the end of a chain, at the end of a commit, but not its first definition."""
        name = self.random.choice([*self.roots, *self.derived])
        chain = self.chain(name)
        ends = [entry for entry in chain.entries() if entry.is_end][-4:]
        first = before_data(self.workspace[name]).block
        ends = [entry for entry in ends if entry.sequence_number >= chain.sequence_of(first)]
        if ends:
            chain.reset(self.random.choice(ends).hash)
            self.seen.add("reset")

    def rebuild(self):
        """Cut derived datasets off where all that they had read is still there."""
        for name in self.derived:
            chain = self.chain(name)
            while self.is_beside(chain):
                tail = chain.tail()
                ends = [entry for entry in chain.entries() if entry.is_end]
                data = [entry for entry in ends if entry.data == entry.sequence_number]
                chain.reset(ends[ends.index(data[-1]) - 1].hash)
                assert chain.tail().sequence_number < tail.sequence_number
                self.seen.add("rebuilt")

    def is_beside(self, chain):
        names = self.workspace._names_by_id()
        taken = chain.tail().taken
        return any(
            each.last_block is not None
            and self.chain(names[str(source)]).sequence_of(each.last_block) is None
            for source, each in taken.items()
        )

    def redefine(self):
        """Define a derived dataset anew, over the same inputs or others."""
        name = self.random.choice(self.derived)
        chain = self.chain(name)
        transform = chain.tail().transform
        if self.random.random() < 0.4:
            others = [each for each in self.derived if name not in self.below(each)]
            chosen = self.some([*self.roots, *others])
            refs = tuple(TransformInput(str(self.workspace[each].id), each) for each in chosen)
            transform = replace(transform, inputs=refs)
        chain.append(next_block(chain.tail(), transform))
        self.seen.add("redefined")


def as_model(workspace):
    """Read a workspace as it is, for trying all: a number is that of a block of the chain."""
    model = ModelWorkspace(0)
    names = workspace._names_by_id()
    model.datasets = {name: model_of(workspace, name, names) for name in sorted(names.values())}
    return model


def model_of(workspace, name, names):
    chain = workspace[name].chain
    blocks = [chain.block(entry.hash) for entry in chain.entries()]
    found, offset, taken = [], NOTHING, {}
    for block in blocks:
        event = block.event
        what = {"is_end": is_commit_end(block)}
        if isinstance(event, SetTransform):
            what["inputs"] = tuple(names[each.dataset_ref] for each in event.inputs)
        if isinstance(event, AddData | ExecuteTransform):
            what["is_data"] = True
            offset = offset if event.last_offset is None else event.last_offset
        if isinstance(event, ExecuteTransform):
            said = ((names[str(each.dataset_id)], each) for each in event.query_inputs)
            taken = {each: (of.last_block, _or_nothing(of.last_offset)) for each, of in said}
            left = None if event.is_part else derived_checkpoint(chain.store, event)
            what |= {"taken": taken, "at_rest": left is not None and left.at_rest}
            if left is not None:
                what["made_under"] = {names[str(of)]: at for of, at in left.origin.definitions.items()}
        found.append(ModelBlock(block.hash, offset, **what))
    return ModelDataset(found)


def _or_nothing(offset):
    return NOTHING if offset is None else offset


def has_diverged(model, names):
    """Whether something was read that is not there any more."""
    return any(
        block is not None and model.datasets[source].number_of(block) == OFF_BRANCH
        for name in model.closure(names)
        for each in model.datasets[name].blocks
        for source, (block, _) in each.taken.items()
    )
