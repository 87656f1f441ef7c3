"""Chains prepared in bulk: many blocks, one sync, one move of the head, every rule checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha3_256
from itertools import count
from pathlib import Path

from bench import rows
from trueline.chain import Block, Chain, Folder, Instant, Position, Tail
from trueline.chain.events import (
    AddPushSource,
    Checkpoint,
    DatasetKind,
    DataSlice,
    Event,
    OffsetInterval,
    Seed,
    SetDataSchema,
    SetTransform,
    TransformInput,
)
from trueline.chain.head_state import next_add_data, next_block, next_execute_transform
from trueline.chain.schema import from_arrow
from trueline.chain.sources import MergeAppend, ReadParquet, SqlQueryStep, TransformSql
from trueline.chain.store.file import FileStore
from trueline.identity import DatasetId, DatasetKey, Multihash

BATCH = 10_000
SLICES = 12
SLOW_INPUT = 100  # the slow input of a pair advances once in so many transactions

Make = Callable[[Tail, int], Event]


@dataclass(frozen=True)
class Place:
    """Where one chain is kept: the dataset's folder, its index and its id."""

    folder: Path
    index: Path
    id: DatasetId
    inputs: tuple[Place, ...] = ()

    def open(self, *, durable: bool = True) -> Chain:
        """Open the chain, with the chains of its inputs, as a new process would."""
        inputs = {place.id: place.open() for place in self.inputs} if self.inputs else None
        return Chain(FileStore(self.folder, durable=durable), inputs, index=self.index)

    def next_transaction(self, chain: Chain) -> Block:
        """Plan the next transaction: what it carries, what it takes from each input, and its link."""
        tail = chain.tail()
        assert tail is not None
        if tail.dataset_kind is DatasetKind.Root:
            start = tail.next_offset
            return next_block(tail, next_add_data(tail, new_data=_slice(start, start + rows.ROWS - 1)))
        positions = {name: source.position for name, source in opened_inputs(chain)}
        known = {name: position for name, position in positions.items() if position is not None}
        return next_block(tail, next_execute_transform(tail, known, new_checkpoint=_checkpoint(b"next")))


def opened_inputs(chain: Chain) -> list[tuple[DatasetId, Chain]]:
    """Return the chains a derivative was opened with."""
    return [(name, one) for name, one in (chain.inputs or {}).items() if isinstance(one, Chain)]


def close(chain: Chain) -> None:
    """Close a chain and those of its inputs."""
    for _, source in opened_inputs(chain):
        source.close()
    chain.close()


@dataclass(frozen=True)
class Family:
    """Two roots, one of which advances a hundred times slower, and two derivatives of them.

    `sparse` is the case of RFC-014: as many transactions as the root has
    blocks, of which twelve carry data. `joined` takes from both roots.
    """

    root: Place
    slow: Place
    sparse: Place
    joined: Place
    blocks: int

    @classmethod
    def write(cls, folder: Path, blocks: int) -> Family:
        root = new_root(folder, "root")
        slow = new_root(folder, "slow")
        with opened(root) as chain:
            fill(chain, add_data, blocks)
        with opened(slow) as chain:
            fill(chain, add_data, max(blocks // SLOW_INPUT, 10))
        sparse = new_derivative(folder, "sparse", root)
        with opened(sparse) as chain:
            fill(chain, execute(chain, blocks), blocks)
        joined = new_derivative(folder, "joined", root, slow)
        with opened(joined) as chain:
            fill(chain, execute(chain, blocks), blocks)
        return cls(root, slow, sparse, joined, blocks)


class opened:  # noqa: N801
    """A chain that is closed at the end of the block."""

    def __init__(self, place: Place) -> None:
        self.chain = place.open()

    def __enter__(self) -> Chain:
        return self.chain

    def __exit__(self, *_: object) -> None:
        close(self.chain)


def new_root(folder: Path, name: str) -> Place:
    """Begin a root, as a workspace does: seed, push source, schema."""
    place = _place(folder, name)
    push = AddPushSource(source_name="default", read=ReadParquet(), merge=MergeAppend())
    schema = from_arrow(rows.with_system_columns(rows.table(1), 0, rows.START).schema)
    with opened(place) as chain:
        _begin(chain, Seed(place.id, DatasetKind.Root), push, SetDataSchema(schema=schema))
    return place


def new_derivative(folder: Path, name: str, *inputs: Place) -> Place:
    """Begin a derivative: seed, transform, schema."""
    place = _place(folder, name, *inputs)
    query = TransformSql("bench", queries=(SqlQueryStep(query="select * from a where price > 1e9"),))
    sources = tuple(TransformInput(str(one.id), alias=one.folder.name) for one in inputs)
    schema = from_arrow(rows.with_system_columns(rows.table(1), 0, rows.START).schema)
    with opened(place) as chain:
        _begin(
            chain,
            Seed(place.id, DatasetKind.Derivative),
            SetTransform(sources, query),
            SetDataSchema(schema=schema),
        )
    return place


def fill(chain: Chain, make: Make, upto: int, *, data: bool = False) -> None:
    """Bring a chain to a number of blocks, `BATCH` to a commit; with `data` an object for every slice.

    The objects are a few bytes each: what counts is that the folder has as many names.
    """
    tail = chain.tail()
    assert tail is not None
    while (missing := upto - tail.sequence_number - 1) > 0:
        blocks = []
        for _ in range(min(BATCH, missing)):
            block = next_block(tail, make(tail, tail.sequence_number + 1))
            tail = tail.after(block)
            blocks.append(block)
        with chain.store.lease():
            if data:
                for block in blocks:
                    chain.store.put(Folder.DATA, b"%d" % block.sequence_number)
            chain.append(*blocks)


def add_data(tail: Tail, number: int) -> Event:
    """A root moves on by a slice of 1,000 records and a minute of event time."""
    start = tail.next_offset
    watermark = max(_watermark(number), tail.watermark or Instant(0))
    return next_add_data(tail, new_data=_slice(start, start + rows.ROWS - 1), new_watermark=watermark)


def execute(chain: Chain, blocks: int, inputs: Sequence[tuple[DatasetId, Chain]] = ()) -> Make:
    """A derivative takes one more block of its first input each time, of its second now and then."""
    ends = [(name, _commit_ends(source)) for name, source in inputs or opened_inputs(chain)]
    latest: dict[DatasetId, Position] = {}
    every = max(blocks // SLICES, 1)

    def make(tail: Tail, number: int) -> Event:
        for place, (name, positions) in enumerate(ends):
            if place == 0 or number % SLOW_INPUT == 0 or name not in latest:
                latest[name] = next(positions, latest.get(name)) or latest[name]
        new = {"new_watermark": _watermark(number), "new_checkpoint": _checkpoint(b"%d" % number)}
        if number % every == every - 1:
            start = tail.next_offset
            new["new_data"] = _slice(start, start + 9)
        return next_execute_transform(tail, latest, **new)

    return make


def _commit_ends(chain: Chain) -> Iterator[Position]:
    for entry in chain.entries():
        if entry.last_offset is not None:
            yield Position(entry.hash, entry.last_offset)


def _place(folder: Path, name: str, *inputs: Place) -> Place:
    return Place(folder / name, folder / "index" / f"{name}.sqlite", DatasetKey.generate().id, inputs)


def _begin(chain: Chain, *events: Event) -> None:
    tail: Tail | None = None
    blocks = []
    for event in events:
        block = next_block(tail, event)
        blocks.append(block)
        tail = tail.after(block) if tail else _first(block)
    chain.append(*blocks)


def _first(block: Block) -> Tail:
    from trueline.chain.head_state import follow

    return follow(None, block)


_NUMBERS = count()


def _slice(start: int, end: int) -> DataSlice:
    """A slice that is only spoken of: hashes as distinct as real ones, no bytes behind them."""
    digest = sha3_256(b"slice %d" % next(_NUMBERS)).digest()
    interval = OffsetInterval(start, end)
    return DataSlice(Multihash.arrow0_sha3_256(digest), Multihash.sha3_256(digest), interval, 50_000)


def _checkpoint(name: bytes) -> Checkpoint:
    return Checkpoint(Multihash.of(b"checkpoint " + name), 1_000)


def _watermark(number: int) -> Instant:
    return Instant(int(rows.START.timestamp()) * 1_000_000_000 + number * 60_000_000_000)
