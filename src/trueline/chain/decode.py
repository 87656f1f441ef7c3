"""The binary form, read: bytes are hostile until every offset, length and count is checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, NoReturn, TypeVar

from trueline.chain.datatypes import Extra
from trueline.chain.encode import MANIFEST_KIND, MAX_BLOCK_BYTES, MAX_DEPTH
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
from trueline.errors import InputError, MalformedBlock, UnsupportedVersion
from trueline.identity.multihash import Multihash

READ_VERSIONS = (2, 3)
R = TypeVar("R", bound=Record)
Leaf = Callable[[bytes, int, int], Any]

_u16 = Struct("<H").unpack_from
_i32 = Struct("<i").unpack_from
_u32 = Struct("<I").unpack_from
_i64 = Struct("<q").unpack_from
_parts = Struct("<iHHII").unpack_from
_SLOTS = {count: Struct(f"<{count}H").unpack_from for count in range(64)}


def decode(raw: bytes, record: type[R]) -> R:
    """Read a block from its manifest bytes; the only outcome of garbage is `MalformedBlock`."""
    begin, end = open_manifest(raw)
    made = FlatbufferReader(raw, begin, end).root(record)
    assert isinstance(made, record)
    return made


def open_manifest(raw: bytes) -> tuple[int, int]:
    """Check the wrapper of a block and return where the content begins and ends."""
    if len(raw) > MAX_BLOCK_BYTES:
        raise malformed(f"{len(raw):,} bytes, more than the {MAX_BLOCK_BYTES:,} a block may have")
    reader = FlatbufferReader(raw, 0, len(raw))
    start = reader.offset(0)
    slots, size = reader.table(start)
    if len(slots) != 3 or not all(slots) or slots[0] + 8 > size or slots[1] + 4 > size or slots[2] + 4 > size:
        raise malformed("the manifest lacks its kind, version or content")
    kind: int = _i64(raw, start + slots[0])[0]
    version: int = _i32(raw, start + slots[1])[0]
    if kind != MANIFEST_KIND:
        raise malformed(f"manifest kind {kind:#x} is not a metadata block ({MANIFEST_KIND:#x})")
    if version not in READ_VERSIONS:
        raise unsupported_version(version)
    return reader.span(reader.offset(start + slots[2]))


def unsupported_version(version: object) -> UnsupportedVersion:
    """Say which manifest versions are read and what to do about another."""
    return UnsupportedVersion(
        f"manifest version {version} is not read here, only 2 and 3",
        remedy="version 1 has no sequence numbers; re-create the dataset with a tool that writes version 3"
        if version == 1
        else "the block was written by a newer version; upgrade",
        version=version,
    )


def malformed(problem: str) -> MalformedBlock:
    """Make the one error that garbage leads to."""
    return MalformedBlock(f"not a block: {problem}", remedy="fetch it again from where it came from")


# --- values: each reads raw[start:stop], which is known to lie inside ----------


def _hash(raw: bytes, start: int, stop: int) -> Multihash:
    part = raw[start:stop]
    if len(part) == 34 and part[:2] == b"\x16\x20":
        # A sha3-256 as it should be; a block has up to a dozen, and verification reads nothing else.
        return str.__new__(Multihash, "f" + part.hex())
    try:
        return Multihash.from_bytes(part)
    except InputError as error:
        raise malformed(error.problem) from None


def _octets_leaf(of: Any) -> Leaf:
    # Every block of a derivative names the same few inputs.
    known = lru_cache(maxsize=256)(of.from_bytes)

    def read(raw: bytes, start: int, stop: int) -> Any:
        try:
            return known(raw[start:stop])
        except InputError as error:
            raise malformed(error.problem) from None

    return read


def _octets(raw: bytes, start: int, stop: int) -> bytes:
    return raw[start:stop]


def _text(raw: bytes, start: int, stop: int) -> str:
    try:
        return raw[start:stop].decode()
    except UnicodeDecodeError:
        raise malformed(f"the string at {start} is not UTF-8") from None


def _moment(raw: bytes, start: int, stop: int) -> Instant:  # noqa: ARG001
    year, ordinal, _, seconds, nanoseconds = _parts(raw, start)
    if not Instant.parts_are_valid(year, ordinal, seconds, nanoseconds):
        raise malformed(f"the time at {start} is not a valid time")
    return Instant.from_parts(year, ordinal, seconds, nanoseconds)


def _number_leaf(code: str) -> Leaf:
    unpack = Struct("<" + code).unpack_from

    def read(raw: bytes, start: int, stop: int) -> Any:  # noqa: ARG001
        return unpack(raw, start)[0]

    return read


def _flag(raw: bytes, start: int, stop: int) -> bool:  # noqa: ARG001
    if raw[start] > 1:
        raise malformed(f"the flag at {start} is neither true nor false")
    return raw[start] == 1


def _choice_leaf(kind: Choice) -> Leaf:
    unpack = Struct("<" + kind.code).unpack_from
    members = {int(member): member for member in kind.of}

    def read(raw: bytes, start: int, stop: int) -> Any:  # noqa: ARG001
        number = unpack(raw, start)[0]
        if number not in members:
            raise malformed(f"{number} is not a {kind.of.__name__}")
        return members[number]

    return read


def _extra(entries: str) -> Extra:
    extra = Extra(entries)
    try:
        _ = extra.value
    except InputError as error:
        raise malformed(error.problem) from None
    return extra


MAKERS: dict[type, Callable[..., Any]] = {Extra: _extra}
"""How to make a record where its constructor does not check enough."""


def leaf_of(kind: Any, cache: dict[Any, tuple[Leaf, int]] = {}) -> tuple[Leaf, int]:  # noqa: B006
    """Return how a value that lies inside its table is read, and how many bytes it takes."""
    known = cache.get(kind)
    if known is None:
        if isinstance(kind, Moment):
            known = (_moment, 16)
        elif isinstance(kind, Choice):
            known = (_choice_leaf(kind), Struct(kind.code).size)
        else:
            known = (_flag if kind.code == "?" else _number_leaf(kind.code), Struct("<" + kind.code).size)
        cache[kind] = known
    return known


_OCTETS: dict[Any, Leaf] = {Multihash: _hash, bytes: _octets}


class FlatbufferReader:
    """A flatbuffer in raw[begin:end]; what it hands out has been checked to lie inside."""

    def __init__(self, raw: bytes, begin: int, end: int) -> None:
        self.raw = raw
        self.begin = begin
        self.end = end
        # Tables may be shared by several parents; without a bound on what is
        # handed out, a small buffer could unfold into an endless tree.
        self.budget = (end - begin) + 1024

    def root(self, record: type[Record]) -> Any:
        """Read the root table as a record."""
        return self.record(self.offset(self.begin), layout(record), MAX_DEPTH)

    # --- structure --------------------------------------------------------------

    def fail(self, problem: str) -> NoReturn:
        raise malformed(problem)

    def spend(self, amount: int) -> None:
        """Count what is handed out."""
        self.budget -= amount
        if self.budget < 0:
            self.fail("its parts overlap so often that it decodes to more than its size")

    def word(self, at: int) -> int:
        """Read a length, count or offset."""
        if at + 4 > self.end:
            self.fail("it ends inside a number")
        number: int = _u32(self.raw, at)[0]
        return number

    def offset(self, at: int) -> int:
        """Follow the offset stored at a place."""
        target = at + self.word(at)
        if target + 4 > self.end:
            self.fail(f"an offset at {at} points outside the block")
        return target

    def tag(self, at: int) -> int:
        """Read the tag of a union."""
        return self.raw[at]

    def table(self, at: int) -> tuple[tuple[int, ...], int]:
        """Check a table and return its slots and its size."""
        raw = self.raw
        vtable: int = at - _i32(raw, at)[0]
        if vtable < self.begin or vtable + 4 > self.end:
            self.fail(f"the table at {at} has its vtable outside the block")
        length: int = _u16(raw, vtable)[0]
        size: int = _u16(raw, vtable + 2)[0]
        if length < 4 or length & 1 or vtable + length > self.end or size < 4 or at + size > self.end:
            self.fail(f"the table at {at} has an impossible vtable")
        count = (length - 4) >> 1
        if count >= 64:
            self.fail(f"the table at {at} has {count} fields")
        slots: tuple[int, ...] = _SLOTS[count](raw, vtable + 4)
        return slots, size

    def span(self, at: int) -> tuple[int, int]:
        """Check a byte vector and return where it begins and ends."""
        length = self.word(at)
        if at + 4 + length > self.end:
            self.fail(f"a vector at {at} is longer than what is left")
        self.spend(length)
        return at + 4, at + 4 + length

    def text_span(self, at: int) -> tuple[int, int]:
        """Check a string, which ends in a zero byte, and return where it begins and ends."""
        start, stop = self.span(at)
        if stop >= self.end or self.tag(stop):
            self.fail(f"the string at {at} does not end where it says")
        return start, stop

    # --- values -----------------------------------------------------------------

    def leaf(self, read: Leaf, start: int, stop: int) -> Any:
        """Read a value at a checked place."""
        return read(self.raw, start, stop)

    def make(self, record: type[Record], values: dict[str, Any]) -> Any:
        """Make a record of its values."""
        return MAKERS.get(record, record)(**values)

    def absent(self, field: WireField) -> Any:
        """Return what a field is when it is left out."""
        return field.absent

    def record(self, at: int, plan: RecordLayout, depth: int) -> Any:
        """Read a table as a record."""
        if depth == 0:
            self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        self.spend(4)
        slots, size = self.table(at)
        if len(slots) > plan.slots and any(slots[plan.slots :]):
            self.fail(f"{plan.of.__name__} has a field that is not known here")
        slots += (0,) * (plan.slots - len(slots))
        values: dict[str, Any] = {}
        for field in plan.fields:
            slot = slots[field.slot]
            if isinstance(field.kind, OneOf):
                value = self.union(field.kind, at, (slot, slots[field.slot + 1]), size, depth)
            else:
                value = self.value(field, at + slot, slot, size, depth) if slot else None
            if value is None:
                if field.required:
                    self.fail(f"{plan.of.__name__}.{field.key} is missing")
                value = self.absent(field)
            values[field.name] = value
        return self.make(plan.of, values)

    def union(self, kind: OneOf, at: int, slots: tuple[int, int], size: int, depth: int) -> Any:
        """Read a union: a tag and the record it names."""
        tag_slot, value_slot = slots
        if not tag_slot and not value_slot:
            return None
        if tag_slot < 4 or value_slot < 4 or tag_slot + 1 > size or value_slot + 4 > size:
            self.fail("a union has a tag without a value, or a value without a tag")
        tag = self.tag(at + tag_slot)
        if not 1 <= tag <= len(kind.of):
            self.fail(f"a union has the unknown tag {tag}")
        return self.record(self.offset(at + value_slot), layout(kind.of[tag - 1]), depth - 1)

    def value(self, field: WireField, at: int, slot: int, size: int, depth: int) -> Any:
        """Read a field that is present."""
        kind = field.kind
        if isinstance(kind, Scalar | Choice | Moment):
            read, width = leaf_of(kind)
            self.inside(field, slot, width, size)
            return self.leaf(read, at, at + width)
        self.inside(field, slot, 4, size)
        target = self.offset(at)
        if isinstance(kind, Octets):
            read = _OCTETS.get(kind.of) or _OCTETS.setdefault(kind.of, _octets_leaf(kind.of))
            return self.leaf(read, *self.span(target))
        if isinstance(kind, NestedRecord):
            return self.record(target, layout(kind.of), depth - 1)
        if isinstance(kind, Text):
            return self.leaf(_text, *self.text_span(target))
        assert isinstance(kind, Many)
        return self.many(self.vector(kind.of, target, depth))

    def inside(self, field: WireField, slot: int, width: int, size: int) -> None:
        """Check that a field lies in its table."""
        if slot < 4 or slot + width > size:
            self.fail(f"{field.key} lies outside its table")

    def many(self, items: list[Any]) -> Any:
        """Make the value of a vector."""
        return tuple(items)

    def vector(self, of: Text | NestedRecord | OneOf, at: int, depth: int) -> list[Any]:
        """Read a vector of strings or records."""
        count = self.word(at)
        if at + 4 + 4 * count > self.end:
            self.fail(f"a vector at {at} has more members than fit")
        self.spend(4 * count)
        places = (self.offset(at + 4 + 4 * index) for index in range(count))
        if isinstance(of, Text):
            return [self.leaf(_text, *self.text_span(place)) for place in places]
        if isinstance(of, NestedRecord):
            plan = layout(of.of)
            return [self.record(place, plan, depth - 1) for place in places]
        return [self.wrapped(of, place, depth) for place in places]

    def wrapped(self, of: OneOf, at: int, depth: int) -> Any:
        """Read a union inside a vector: a table that holds nothing else."""
        self.spend(4)
        slots, size = self.table(at)
        if len(slots) != 2:
            self.fail("a union in a vector is empty or has a field that is not known here")
        made = self.union(of, at, (slots[0], slots[1]), size, depth)
        if made is None:
            self.fail("a union in a vector is empty")
        return made
