"""The binary form, read: bytes are hostile until every offset, length and count is checked."""

from __future__ import annotations

from struct import Struct
from typing import Any, NoReturn, TypeVar

from trueline.chain.datatypes import Extra
from trueline.chain.encode import MANIFEST_KIND, MAX_BLOCK_BYTES, MAX_DEPTH
from trueline.chain.instant import Instant
from trueline.chain.wire import (
    Choice,
    Field,
    Layout,
    Many,
    Moment,
    Nested,
    Octets,
    OneOf,
    Record,
    Scalar,
    Text,
    layout,
)
from trueline.errors import InputError, MalformedBlock, UnsupportedVersion

READ_VERSIONS = (2, 3)
R = TypeVar("R", bound=Record)

_u8 = Struct("<B").unpack_from
_u16 = Struct("<H").unpack_from
_i32 = Struct("<i").unpack_from
_u32 = Struct("<I").unpack_from
_moment = Struct("<iHHII").unpack_from
_SCALARS = {code: Struct("<" + code) for code in "Bhi?IQq"}
_SLOTS = {count: Struct(f"<{count}H").unpack_from for count in range(64)}


def decode(raw: bytes, record: type[R]) -> R:
    """Read a block from its manifest bytes; the only outcome of garbage is `MalformedBlock`."""
    return Reader(open_manifest(raw)).root(record)


def open_manifest(raw: bytes) -> bytes:
    """Check the wrapper of a block and return what is inside."""
    if len(raw) > MAX_BLOCK_BYTES:
        raise malformed(f"{len(raw):,} bytes, more than the {MAX_BLOCK_BYTES:,} a block may have")
    reader = Reader(raw)
    start, slots, size = reader.table(reader.offset(0))
    if len(slots) != 3 or not all(slots) or slots[0] + 8 > size or slots[1] + 4 > size or slots[2] + 4 > size:
        raise malformed("the manifest lacks its kind, version or content")
    kind: int = _SCALARS["q"].unpack_from(raw, start + slots[0])[0]
    version: int = _i32(raw, start + slots[1])[0]
    if kind != MANIFEST_KIND:
        raise malformed(f"manifest kind {kind:#x} is not a metadata block ({MANIFEST_KIND:#x})")
    if version not in READ_VERSIONS:
        raise unsupported_version(version)
    return reader.octets(start + slots[2])


def unsupported_version(version: object) -> UnsupportedVersion:
    """Say which manifest versions are read and what to do about another."""
    old = version == 1
    return UnsupportedVersion(
        f"manifest version {version} is not read here, only 2 and 3",
        remedy="version 1 has no sequence numbers; re-create the dataset with a tool that writes version 2 or 3"
        if old
        else "the block was written by a newer version; upgrade",
        version=version,
    )


def malformed(problem: str) -> MalformedBlock:
    return MalformedBlock(f"not a block: {problem}", remedy="fetch it again from where it came from")


class Reader:
    """A flatbuffer of `raw`; what it hands out has been checked to lie inside."""

    __slots__ = ("budget", "end", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.end = len(raw)
        # Tables may be shared by several parents; without a bound on what is
        # handed out, a small buffer could unfold into an endless tree.
        self.budget = 4 * len(raw) + 1024

    def root(self, record: type[R]) -> R:
        """Read the root table as a record."""
        made = self.record(self.offset(0), layout(record), MAX_DEPTH)
        assert isinstance(made, record)
        return made

    def fail(self, problem: str) -> NoReturn:
        raise malformed(problem)

    def spend(self, amount: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            self.fail("its parts overlap so often that it unfolds beyond its size")

    def offset(self, at: int) -> int:
        """Follow the offset stored at a place that is known to be inside."""
        if at + 4 > self.end:
            self.fail("it ends inside an offset")
        target: int = at + _u32(self.raw, at)[0]
        if target + 4 > self.end:
            self.fail(f"an offset at {at} points outside")
        return target

    def table(self, at: int) -> tuple[int, tuple[int, ...], int]:
        """Check a table and return its start, its slots and its size."""
        raw = self.raw
        vtable: int = at - _i32(raw, at)[0]
        if vtable < 0 or vtable + 4 > self.end:
            self.fail(f"the table at {at} has its layout outside")
        length: int = _u16(raw, vtable)[0]
        size: int = _u16(raw, vtable + 2)[0]
        if length < 4 or length & 1 or vtable + length > self.end or size < 4 or at + size > self.end:
            self.fail(f"the table at {at} has an impossible layout")
        count = (length - 4) >> 1
        if count >= 64:
            self.fail(f"the table at {at} has {count} fields")
        return at, _SLOTS[count](raw, vtable + 4), size

    def octets(self, at: int) -> bytes:
        """Read the byte vector that the offset at `at` points to."""
        start = self.offset(at)
        length: int = _u32(self.raw, start)[0]
        if start + 4 + length > self.end:
            self.fail(f"a vector at {start} is longer than what is left")
        self.spend(length)
        return self.raw[start + 4 : start + 4 + length]

    def record(self, at: int, plan: Layout, depth: int) -> Record:
        """Read a table as a record."""
        if depth == 0:
            self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        self.spend(4)
        start, slots, size = self.table(at)
        if len(slots) > plan.slots and any(slots[plan.slots :]):
            self.fail(f"{plan.of.__name__} has a field that is not known here")
        values: dict[str, Any] = {}
        count = len(slots)
        for field in plan.fields:
            slot = slots[field.slot] if field.slot < count else 0
            if isinstance(field.kind, OneOf):
                value = self.union(field.kind, start, size, slot, slots, field.slot + 1, depth)
            elif slot:
                value = self.value(field, start, slot, size, depth)
            else:
                value = None
            if value is None:
                if field.required:
                    self.fail(f"{plan.of.__name__}.{field.key} is missing")
                value = field.absent
            values[field.name] = value
        return plan.of(**values)

    def union(
        self, kind: OneOf, start: int, size: int, tag_slot: int, slots: tuple[int, ...], next_slot: int, depth: int
    ) -> Record | None:
        """Read a union: a tag and the record it tells."""
        value_slot = slots[next_slot] if next_slot < len(slots) else 0
        if not tag_slot and not value_slot:
            return None
        if not tag_slot or not value_slot or tag_slot + 1 > size or value_slot + 4 > size:
            self.fail("a union has a tag without a value, or a value without a tag")
        tag: int = _u8(self.raw, start + tag_slot)[0]
        if not 1 <= tag <= len(kind.of):
            self.fail(f"a union has the unknown tag {tag}")
        return self.record(self.offset(start + value_slot), layout(kind.of[tag - 1]), depth - 1)

    def value(self, field: Field, start: int, slot: int, size: int, depth: int) -> Any:
        """Read a field that is present."""
        kind = field.kind
        width = 16 if isinstance(kind, Moment) else _SCALARS[kind.code].size if isinstance(kind, Scalar | Choice) else 4
        if slot < 4 or slot + width > size:
            self.fail(f"{field.key} lies outside its table")
        at = start + slot
        match kind:
            case Octets(of):
                octets = self.octets(at)
                try:
                    return octets if of is bytes else of.from_bytes(octets)  # type: ignore[attr-defined]
                except InputError as error:
                    self.fail(f"{field.key}: {error.problem}")
            case Text():
                return self.text(self.offset(at))
            case Scalar(code):
                return self.number(code, at, field)
            case Choice(of, code):
                number = self.number(code, at, field)
                try:
                    return of(number)
                except ValueError:
                    self.fail(f"{field.key} has the unknown value {number}")
            case Moment():
                parts = _moment(self.raw, at)
                year, ordinal, _, seconds, nanoseconds = parts
                if not Instant.parts_are_valid(year, ordinal, seconds, nanoseconds):
                    self.fail(f"{field.key} is not a moment")
                return Instant.from_parts(year, ordinal, seconds, nanoseconds)
            case Nested(of):
                made = self.record(self.offset(at), layout(of), depth - 1)
                if isinstance(made, Extra):
                    self.check_extra(made)
                return made
            case Many(of):
                return self.vector(of, self.offset(at), depth)

    def number(self, code: str, at: int, field: Field) -> Any:
        if code == "?" and self.raw[at] > 1:
            self.fail(f"{field.key} is neither true nor false")
        return _SCALARS[code].unpack_from(self.raw, at)[0]

    def text(self, at: int) -> str:
        """Read the string at a place."""
        length: int = _u32(self.raw, at)[0]
        stop = at + 4 + length
        if stop >= self.end or self.raw[stop]:
            self.fail(f"the string at {at} does not end where it says")
        self.spend(length)
        try:
            return self.raw[at + 4 : stop].decode()
        except UnicodeDecodeError:
            self.fail(f"the string at {at} is not UTF-8")

    def check_extra(self, extra: Extra) -> None:
        try:
            extra.value
        except InputError as error:
            self.fail(error.problem)

    def vector(self, of: Text | Nested | OneOf, at: int, depth: int) -> tuple[Any, ...]:
        """Read a vector of strings or records."""
        count: int = _u32(self.raw, at)[0]
        if at + 4 + 4 * count > self.end:
            self.fail(f"a vector at {at} has more members than fit")
        self.spend(4 * count)
        places = (self.offset(at + 4 + 4 * index) for index in range(count))
        if isinstance(of, Text):
            return tuple(self.text(place) for place in places)
        if isinstance(of, Nested):
            plan = layout(of.of)
            return tuple(self.record(place, plan, depth - 1) for place in places)
        return tuple(self.wrapped(of, place, depth) for place in places)

    def wrapped(self, of: OneOf, at: int, depth: int) -> Record:
        """Read a union inside a vector."""
        start, slots, size = self.table(at)
        if len(slots) > 2 and any(slots[2:]):
            self.fail("a union in a vector has a field that is not known here")
        made = self.union(of, start, size, slots[0] if slots else 0, slots, 1, depth)
        if made is None:
            self.fail("a union in a vector is empty")
        return made


