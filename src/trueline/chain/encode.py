"""The binary form, written: flatbuffers in the order that makes hashes equal.

For every table first the strings, vectors and child tables of its present
fields in schema order, then the table with its fields in schema order.
"""

from __future__ import annotations

import struct
from typing import Any

from trueline.chain.datatypes import Extra
from trueline.chain.instant import Instant
from trueline.chain.wire import (
    Choice,
    Many,
    Moment,
    NestedRecord,
    Octets,
    OneOf,
    Record,
    RecordLayout,
    Scalar,
    Text,
    WireField,
    layout,
)
from trueline.errors import InputError

MANIFEST_KIND = 0x400000
MANIFEST_VERSION = 3
MAX_BLOCK_BYTES = 16 << 20
MAX_DEPTH = 64


def encode(block: Record, version: int = MANIFEST_VERSION) -> bytes:
    """Return the manifest bytes of a block; version 2 differs in the alignment of times."""
    import flatbuffers  # 90 ms, because it imports numpy; only writers pay

    writer = _Writer(flatbuffers.Builder(1024), time_alignment=1 if version == 2 else 4)
    try:
        writer.builder.Finish(writer.table(block, layout(type(block)), MAX_DEPTH))
    except (TypeError, UnicodeEncodeError, struct.error, flatbuffers.builder.BuilderSizeError) as error:
        raise InputError(
            f"a value does not fit its field: {error}", remedy="check the numbers and texts of the event"
        ) from None
    content = bytes(writer.builder.Output())
    builder = flatbuffers.Builder(len(content) + 64)
    offset = builder.CreateByteVector(content)
    builder.StartObject(3)
    builder.PrependInt64Slot(0, MANIFEST_KIND, 0)
    builder.PrependInt32Slot(1, version, 0)
    builder.PrependUOffsetTRelativeSlot(2, offset, 0)
    builder.Finish(builder.EndObject())
    raw = bytes(builder.Output())
    if len(raw) > MAX_BLOCK_BYTES:
        raise InputError(
            f"a block of {len(raw):,} bytes is larger than the {MAX_BLOCK_BYTES:,} allowed",
            remedy="keep large content in data files, not in attachments or extra attributes",
        )
    return raw


class _Writer:
    def __init__(self, builder: Any, time_alignment: int) -> None:
        self.builder = builder
        self.time_alignment = time_alignment

    def table(self, record: Record, plan: RecordLayout, depth: int) -> int:
        """Write a record depth first and return where it is."""
        if depth == 0:
            raise InputError(f"the schema is nested deeper than {MAX_DEPTH} levels", remedy="flatten it")
        if isinstance(record, Extra):
            _ = record.value  # what a reader would refuse is not written
        present = []
        for field in plan.fields:
            value = getattr(record, field.name)
            if value is None and field.required:
                raise InputError(f"{plan.of.__name__}.{field.key} is missing", remedy="give it a value")
            if value is not None and value != field.absent:
                present.append((field, value, self._outside(field, value, depth - 1)))
        self.builder.StartObject(plan.slots)
        for field, value, offset in present:
            self._slot(field, value, offset)
        return int(self.builder.EndObject())

    def _outside(self, field: WireField, value: Any, depth: int) -> int:
        """Write what does not fit into the table itself; 0 for what does."""
        builder = self.builder
        match field.kind:
            case Text():
                return int(builder.CreateString(value))
            case Octets(of):
                return int(builder.CreateByteVector(value if of is bytes else value.bytes))
            case NestedRecord(of):
                return self.table(value, layout(of), depth)
            case OneOf():
                return self.table(value, layout(type(value)), depth)
            case Many(of):
                return self._vector(of, value, depth)
        return 0

    def _vector(self, of: Text | NestedRecord | OneOf, items: tuple[Any, ...], depth: int) -> int:
        builder = self.builder
        if isinstance(of, Text):
            offsets = [builder.CreateString(item) for item in items]
        elif isinstance(of, NestedRecord):
            offsets = [self.table(item, layout(of.of), depth) for item in items]
        else:
            offsets = [self._wrapped(of, item, depth) for item in items]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def _wrapped(self, of: OneOf, item: Record, depth: int) -> int:
        """A vector cannot hold unions, so each member is a table with one."""
        value = self.table(item, layout(type(item)), depth)
        self.builder.StartObject(2)
        self.builder.PrependUint8Slot(0, of.of.index(type(item)) + 1, 0)
        self.builder.PrependUOffsetTRelativeSlot(1, value, 0)
        return int(self.builder.EndObject())

    def _slot(self, field: WireField, value: Any, offset: int) -> None:
        builder = self.builder
        match field.kind:
            case Scalar(code) | Choice(_, code):
                getattr(builder, _PREPEND[code])(int(value))
                builder.Slot(field.slot)
            case Moment():
                self._moment(value)
                builder.Slot(field.slot)
            case OneOf(of):
                builder.PrependUint8Slot(field.slot, of.index(type(value)) + 1, 0)
                builder.PrependUOffsetTRelativeSlot(field.slot + 1, offset, 0)
            case _:
                builder.PrependUOffsetTRelativeSlot(field.slot, offset, 0)

    def _moment(self, value: Instant) -> None:
        year, ordinal, seconds, nanoseconds = value.parts
        builder = self.builder
        builder.Prep(self.time_alignment, 16)
        builder.head -= 16
        _TIME.pack_into(builder.Bytes, builder.head, year, ordinal, 0, seconds, nanoseconds)


_TIME = struct.Struct("<iHHII")
_PREPEND = {
    "?": "PrependBool",
    "h": "PrependInt16",
    "i": "PrependInt32",
    "I": "PrependUint32",
    "Q": "PrependUint64",
}
