"""Bytes nobody vouches for: what may come of them, at what cost, and how to make cunning ones."""

from __future__ import annotations

import json
import struct
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import flatbuffers

from trueline.chain import Block
from trueline.chain.decode import decode
from trueline.chain.encode import MANIFEST_KIND, encode
from trueline.errors import MalformedBlock, UnsupportedVersion

REFUSALS = (MalformedBlock, UnsupportedVersion)


def read(raw: bytes) -> Block | None:
    """Read a block or be refused with a typed error; any other error is a failure of the test.

    A block that was read must be usable: handed on verbatim, shown as text,
    read back from it, and written anew with the same meaning. The plain reader
    and the one that remembers shapes must agree.
    """
    plain = _attempted(lambda: decode(raw, Block))
    block = _attempted(lambda: Block.from_bytes(raw))
    if not isinstance(block, Block):
        assert block.remedy
        assert type(plain) is type(block)
        return None
    assert block == plain
    assert block.to_bytes() == raw
    text = block.to_dict()
    assert json.loads(json.dumps(text)) == text
    assert Block.from_dict(text).to_dict() == text
    assert Block.from_bytes(encode(block)) == block
    return block


@dataclass(frozen=True)
class Cost:
    """What an attempt to read took: calls of Python functions, and bytes at the peak."""

    calls: int
    peak: int


def cost_of(attempt: Callable[[], Any]) -> Cost:
    """Count calls instead of seconds, so that the answer is the same on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    _attempted(attempt)  # caches fill once
    sys.setprofile(count)
    try:
        _attempted(attempt)
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    try:
        _attempted(attempt)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Cost(calls, peak)


def _attempted(attempt: Callable[[], Any]) -> Any:
    """What was read, or the refusal."""
    try:
        return attempt()
    except REFUSALS as error:
        return error


# --- cunning buffers ------------------------------------------------------------


def manifest(content: bytes, version: int = 3, kind: int = MANIFEST_KIND) -> bytes:
    """Wrap anything as the content of a block."""
    builder = flatbuffers.Builder(len(content) + 64)
    vector = builder.CreateByteVector(content)
    builder.StartObject(3)
    builder.PrependInt64Slot(0, kind, 0)
    builder.PrependInt32Slot(1, version, 0)
    builder.PrependUOffsetTRelativeSlot(2, vector, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def event_block(tag: int, event: Callable[[Any], int]) -> bytes:
    """A block around an event that `event` writes with a builder and whose offset it returns."""
    builder = flatbuffers.Builder(1024)
    offset = event(builder)
    builder.StartObject(5)
    builder.Prep(4, 16)
    builder.head -= 16
    struct.pack_into("<iHHII", builder.Bytes, builder.head, 2026, 1, 0, 0, 0)
    builder.Slot(0)
    builder.PrependUint8Slot(3, tag, 0)
    builder.PrependUOffsetTRelativeSlot(4, offset, 0)
    builder.Finish(builder.EndObject())
    return manifest(bytes(builder.Output()))


def table(builder: Any, slots: int, *fields: tuple[int, int]) -> int:
    """A table whose (slot, offset) fields point at what was written before, shared or not."""
    builder.StartObject(slots)
    for slot, offset in fields:
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return int(builder.EndObject())


def union(builder: Any, slots: int, slot: int, tag: int, value: int, *fields: tuple[int, int]) -> int:
    """A table with a union and other fields."""
    builder.StartObject(slots)
    builder.PrependUint8Slot(slot, tag, 0)
    builder.PrependUOffsetTRelativeSlot(slot + 1, value, 0)
    for other, offset in fields:
        builder.PrependUOffsetTRelativeSlot(other, offset, 0)
    return int(builder.EndObject())


def vector(builder: Any, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def set_data_schema(builder: Any, fields: list[int]) -> int:
    """A SetDataSchema event over DataField tables."""
    schema = table(builder, 2, (0, vector(builder, fields)))
    return table(builder, 2, (1, schema))
