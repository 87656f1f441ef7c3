"""Chains that grow by the dozen, for tests that need a history."""

from __future__ import annotations

from trueline.chain import Block, Chain, Instant
from trueline.chain.block import CommitRecord
from trueline.chain.datatypes import DataField, DataSchema, DataType, Int32, Int64, Option, String, Timestamp
from trueline.chain.events import (
    AddData,
    Checkpoint,
    DatasetKind,
    DataSlice,
    OffsetInterval,
    Seed,
    SetDataSchema,
    SetInfo,
    SetTransform,
    TransformInput,
)
from trueline.chain.head_state import next_add_data, next_block, next_execute_transform
from trueline.chain.sources import SqlQueryStep, TransformSql
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

START = Instant.parse("2026-01-01T00:00:00Z")
SECOND = 1_000_000_000


def dataset_id(number: int) -> DatasetId:
    """An id that is not a key; nothing here signs."""
    return DatasetId.from_bytes(b"\xed\x01" + number.to_bytes(32, "big"))


def schema(*columns: tuple[str, DataType]) -> SetDataSchema:
    system = (
        DataField("offset", Int64()),
        DataField("op", Int32()),
        DataField("system_time", Timestamp()),
        DataField("event_time", Option(Timestamp())),
    )
    own = columns or (("x", Int64()), ("city", Option(String())))
    return SetDataSchema(schema=DataSchema((*system, *(DataField(name, kind) for name, kind in own))))


def slice_of(start: int, count: int, content: bytes = b"") -> DataSlice:
    name = Multihash.of(content or b"slice %d %d" % (start, count))
    return DataSlice(name, name, OffsetInterval(start, start + count - 1), 100)


def grow_root(chain: Chain, commits: int, *, rows: int = 10, number: int = 1) -> Chain:
    """Begin a root if the chain is empty, then add commits of one slice each."""
    if chain.tail() is None:
        seed = next_block(None, Seed(dataset_id(number), DatasetKind.Root), START)
        chain.append(seed)
        chain.append(next_block(chain.tail(), schema(), START))
    for _ in range(commits):
        chain.append(add_rows(chain, rows))
    return chain


def add_rows(chain: Chain, rows: int = 10, **new: object) -> Block:
    """The block that would add rows to a chain now."""
    tail = chain.tail()
    assert tail is not None
    time = Instant(tail.system_time + SECOND)
    event = next_add_data(tail, new_data=slice_of(tail.next_offset, rows), **new)
    return next_block(tail, event, time)


def multi_part(chain: Chain, parts: int, rows: int = 5) -> list[Block]:
    """The blocks of one commit of several slices."""
    tail = chain.tail()
    blocks = []
    for part in range(1, parts + 1):
        assert tail is not None
        event = next_add_data(
            tail, new_data=slice_of(tail.next_offset, rows), extra=CommitRecord(part, parts).to_extra()
        )
        block = next_block(tail, event, START)
        tail = tail.after(block)
        blocks.append(block)
    return blocks


def begin_derivative(chain: Chain, inputs: list[DatasetId], number: int = 100) -> Chain:
    sources = tuple(TransformInput(str(name), f"in{index}") for index, name in enumerate(inputs))
    transform = TransformSql("trueline", queries=(SqlQueryStep(query="select * from in0"),))
    chain.append(next_block(None, Seed(dataset_id(number), DatasetKind.Derivative), START))
    chain.append(next_block(chain.tail(), SetTransform(sources, transform), START))
    chain.append(next_block(chain.tail(), schema(), START))
    return chain


def derive(chain: Chain, inputs: dict[DatasetId, Chain], rows: int = 0) -> Block:
    """The block that takes all that is new; without rows only the checkpoint tells of it."""
    tail = chain.tail()
    assert tail is not None
    positions = {name: position for name, source in inputs.items() if (position := source.position)}
    mark = Multihash.of(b"checkpoint %d" % tail.sequence_number)
    new: dict[str, object] = {"new_checkpoint": Checkpoint(mark, 10)}
    if rows:
        new["new_data"] = slice_of(tail.next_offset, rows)
    return next_block(
        tail, next_execute_transform(tail, positions, **new), Instant(tail.system_time + SECOND)
    )


def info(chain: Chain, text: str) -> Block:
    tail = chain.tail()
    assert tail is not None
    return next_block(tail, SetInfo(text), Instant(tail.system_time + SECOND))


def offsets_of(event: AddData) -> tuple[int, int]:
    assert event.new_data
    return event.new_data.offset_interval.start, event.new_data.offset_interval.end
