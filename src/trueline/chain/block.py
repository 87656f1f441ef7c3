"""One link of a chain: an event, when it was recorded, the hash of the link before it; and its bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from trueline.chain.datatypes import Extra
from trueline.chain.decode import open_manifest
from trueline.chain.decode_templates import MAX_SHAPED_BYTES, Shapes, TemplateTracer
from trueline.chain.encode import encode
from trueline.chain.events import AddData, Event, ExecuteTransform
from trueline.chain.instant import Instant
from trueline.chain.wire import (
    U64,
    Choice,
    Kind,
    Many,
    Moment,
    NestedRecord,
    Octets,
    OneOf,
    Record,
    Scalar,
    Text,
    layout,
)
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

MAX_STENCILS = 256

Shape = list[int]
Values = list[bytes]
Put = Callable[[Any, Shape, Values], None]
_ABSENT = -1


class Stencil(NamedTuple):
    """A block of a shape, and where its values lie in the order they are taken from a record."""

    block: bytes
    places: tuple[slice, ...]

    def fill(self, values: Values) -> bytes:
        """Return the block of this shape with these values."""
        block = bytearray(self.block)
        for place, value in zip(self.places, values, strict=True):
            block[place] = value
        return bytes(block)


class Stencils:
    """What is known of the shapes of one kind of record."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Stencil | None] = {}
        self._seen: dict[tuple[int, ...], tuple[bytes, Values]] = {}

    def write(self, record: Record) -> bytes:
        """Return the manifest bytes of a record, the same as `encode` does."""
        shape: Shape = []
        values: Values = []
        try:
            _take(record, shape, values)
        except (AttributeError, InputError, LookupError, TypeError, ValueError, struct.error):
            return encode(record)  # which says what is wrong
        key = tuple(shape)
        stencil = self._known.get(key)
        if stencil is not None:
            return stencil.fill(values)
        raw = encode(record)
        if key not in self._known and len(raw) <= MAX_SHAPED_BYTES:
            self._learn(key, raw, values, type(record))
        return raw

    def _learn(self, key: tuple[int, ...], raw: bytes, values: Values, record: type[Record]) -> None:
        """Cut a stencil from the second block of a shape, if it also gives the first."""
        if len(self._known) + len(self._seen) >= MAX_STENCILS:
            self._seen.clear()  # most shapes come once, by the length of a text
        if len(self._known) >= MAX_STENCILS:
            return
        before = self._seen.pop(key, None)
        if before is None:
            self._seen[key] = (raw, values)
            return
        stencil = _cut(raw, values, record)
        fits = stencil is not None and stencil.fill(before[1]) == before[0]
        self._known[key] = stencil if fits else None


def _cut(raw: bytes, values: Values, record: type[Record]) -> Stencil | None:
    reader = TemplateTracer(raw, *open_manifest(raw))
    reader.root(record)
    found = [raw[start:stop] for start, stop in reader.values]
    if reader.overlap or found != values:
        return None
    return Stencil(raw, tuple(slice(start, stop) for start, stop in reader.values))


# --- taking the values from a record, in the order they are read ------------------


def _take(record: Record, shape: Shape, values: Values) -> None:
    if isinstance(record, Extra):
        _ = record.value  # what a reader would refuse is not written
    for name, absent, required, put in _plan(type(record)):
        value = getattr(record, name)
        if value is None or (absent is not None and value == absent):
            if value is None and required:
                raise ValueError(name)
            shape.append(_ABSENT)
        else:
            put(value, shape, values)


_PLANS: dict[type[Record], tuple[tuple[str, Any, bool, Put], ...]] = {}


def _plan(record: type[Record]) -> tuple[tuple[str, Any, bool, Put], ...]:
    known = _PLANS.get(record)
    if known is None:
        fields = layout(record).fields
        known = _PLANS[record] = tuple((f.name, f.absent, f.required, _put(f.kind)) for f in fields)
    return known


def _put(kind: Kind) -> Put:
    """Return how a value that is there adds to shape and values."""
    match kind:
        case Scalar(code) | Choice(_, code):
            return _number(struct.Struct("<" + code))
        case Moment():
            return _moment
        case Octets(of):
            return _raw_octets if of is bytes else _octets
        case Text():
            return _text
        case NestedRecord():
            return _nested
        case OneOf(of):
            return _one_of({kind: tag for tag, kind in enumerate(of, 1)})
        case Many(of):
            return _many(_put(of))


def _number(form: struct.Struct) -> Put:
    def put(value: Any, shape: Shape, values: Values) -> None:
        shape.append(form.size)
        values.append(form.pack(int(value)))

    return put


_TIME = struct.Struct("<iHHII")


def _moment(value: Instant, shape: Shape, values: Values) -> None:
    year, ordinal, seconds, nanoseconds = value.parts
    shape.append(_TIME.size)
    values.append(_TIME.pack(year, ordinal, 0, seconds, nanoseconds))


def _raw_octets(value: bytes, shape: Shape, values: Values) -> None:
    shape.append(len(value))
    values.append(value)


def _octets(value: Any, shape: Shape, values: Values) -> None:
    _raw_octets(value.bytes, shape, values)


def _text(value: str, shape: Shape, values: Values) -> None:
    _raw_octets(value.encode(), shape, values)


def _nested(value: Record, shape: Shape, values: Values) -> None:
    shape.append(0)
    _take(value, shape, values)


def _one_of(tags: dict[type[Record], int]) -> Put:
    def put(value: Record, shape: Shape, values: Values) -> None:
        shape.append(tags[type(value)])
        _take(value, shape, values)

    return put


def _many(put: Put) -> Put:
    def put_all(items: tuple[Any, ...], shape: Shape, values: Values) -> None:
        shape.append(len(items))
        for item in items:
            put(item, shape, values)

    return put_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Record):
    """A metadata block; its name is the sha3-256 of its manifest bytes.

    Bytes that came from outside are kept and handed on as they are, whatever
    version they have; what is made here is written as manifest version 3.

    >>> block = Block.from_dict(
    ...     {
    ...         "systemTime": "2050-01-01T12:00:00Z",
    ...         "sequenceNumber": 0,
    ...         "event": {"kind": "SetInfo", "description": "foo"},
    ...     }
    ... )
    >>> block.hash.short, len(block.to_bytes())
    ('25f4f50f', 120)
    >>> Block.from_bytes(block.to_bytes()) == block
    True

    >>> block.to_dict()["event"], block.data_event is None
    ({'kind': 'SetInfo', 'description': 'foo'}, True)
    """

    system_time: Instant
    prev_block_hash: Multihash | None = None
    sequence_number: U64
    event: Event
    _raw: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _hash: Multihash | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_bytes(cls, raw: bytes, *, name: Multihash | None = None) -> Block:
        """Read a block; raises `MalformedBlock` or `UnsupportedVersion`.

        `name` is its hash if the caller has just computed it.
        """
        raw = bytes(raw)
        block: Block = _SHAPES.read(raw)
        object.__setattr__(block, "_raw", raw)
        object.__setattr__(block, "_hash", name)
        return block

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Block:
        """Read the JSON or YAML form, with or without its `kind: MetadataBlock` wrapper."""
        from trueline.chain.text import block_from_dict

        return block_from_dict(value)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form; what is absent is left out."""
        from trueline.chain.text import to_dict

        return to_dict(self)

    def to_bytes(self) -> bytes:
        """Return the manifest bytes: the original ones if the block came as bytes."""
        if self._raw is None:
            # Data events come by the thousand in a few shapes, others once.
            write = _STENCILS.write if self.data_event is not None else encode
            object.__setattr__(self, "_raw", write(self))
        assert self._raw is not None
        return self._raw

    @property
    def hash(self) -> Multihash:
        """The block's name."""
        if self._hash is None:
            object.__setattr__(self, "_hash", Multihash.of(self.to_bytes()))
        assert self._hash is not None
        return self._hash

    @property
    def data_event(self) -> AddData | ExecuteTransform | None:
        """The event if it is one that moves data on, else None."""
        return self.event if isinstance(self.event, (AddData, ExecuteTransform)) else None


_SHAPES = Shapes(Block)
_STENCILS = Stencils()


COMMIT_KEY = "trueline/commit"
MAX_PARTS = 1 << 31
# Notes of commits of keyed datasets: how many rows are current, and what was done to how many.
CURRENT: Final = "current_rows"
OPERATIONS: Final = "operations"
# The names of the counts, in the order in which people read them.
KINDS: Final = ("insert", "update", "delete")


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """Part `part` of `parts`; `notes` holds what the writer adds: idempotency key, files, bad cells.

    >>> CommitRecord(2, 3).is_end, CommitRecord(3, 3).is_end
    (False, True)
    """

    part: int = 1
    parts: int = 1
    notes: Mapping[str, Any] | None = None

    @property
    def is_end(self) -> bool:
        """Whether a commit ends with this part."""
        return self.part >= self.parts

    @property
    def files(self) -> list[tuple[str, str]]:
        """The name and hash of each file the commit appended; what is not of that form is passed over."""
        listed = (self.notes or {}).get("files")
        if not isinstance(listed, list):
            return []
        pairs = [(item.get("name"), item.get("hash")) for item in listed if isinstance(item, Mapping)]
        return [
            (name, content) for name, content in pairs if isinstance(name, str) and isinstance(content, str)
        ]

    @property
    def current_rows(self) -> int | None:
        """How many rows are current after the commit, None if it does not say so."""
        return _count((self.notes or {}).get(CURRENT))

    @property
    def operations(self) -> dict[str, int] | None:
        """The rows by what was done to them, None if the commit does not say so.

        >>> CommitRecord(notes={"operations": {"insert": 1, "delete": 2}}).operations
        {'insert': 1, 'update': 0, 'delete': 2}
        """
        noted = (self.notes or {}).get(OPERATIONS)
        if not isinstance(noted, Mapping):
            return None
        found = {kind: _count(noted.get(kind, 0)) for kind in KINDS}
        known = {kind: count for kind, count in found.items() if count is not None}
        return known if len(known) == len(KINDS) else None

    def to_extra(self) -> Extra | None:
        """Return the attributes to store, None if there is nothing to say."""
        value: dict[str, Any] = dict(self.notes or {})
        if self.parts > 1:
            value |= {"part": self.part, "parts": self.parts}
        return Extra.of({COMMIT_KEY: value}) if value else None

    @classmethod
    def from_value(cls, value: object) -> CommitRecord:
        """Read the stored form."""
        if not isinstance(value, Mapping):
            raise InputError(
                f"{COMMIT_KEY} is not a mapping", remedy="the block was not written by this software"
            )
        notes = {str(key): item for key, item in value.items() if key not in ("part", "parts")}
        part, parts = value.get("part", 1), value.get("parts", 1)
        if type(part) is not int or type(parts) is not int or not 1 <= part <= parts < MAX_PARTS:
            raise InputError(
                f"{COMMIT_KEY} says part {part!r} of {parts!r}",
                remedy="the block was not written by this software",
            )
        return cls(part, parts, notes or None)


WHOLE = CommitRecord()


def _count(noted: object) -> int | None:
    """Read a count that a commit noted; what is not one is passed over."""
    return noted if type(noted) is int and noted >= 0 else None


def commit_record(block: Block) -> CommitRecord:
    """Return what a block says of its commit; every block without a record is a whole one.

    So is one whose record is not ours: a block of another writer must not make its chain unreadable.
    """
    return record_of(block.event) if isinstance(block.event, AddData) else WHOLE


def record_of(event: AddData) -> CommitRecord:
    """Return what an AddData says of its commit."""
    extra = event.extra
    # The text is searched first: most blocks say nothing, and parsing costs 2 µs.
    if extra is None or COMMIT_KEY not in extra.entries:
        return WHOLE
    value = extra.value
    try:
        return CommitRecord.from_value(value[COMMIT_KEY]) if COMMIT_KEY in value else WHOLE
    except InputError:
        return WHOLE


def is_commit_end(block: Block) -> bool:
    """Say whether readers and plans may stop at a block: not inside a commit of several parts."""
    event = block.event
    if isinstance(event, ExecuteTransform):
        return not event.is_part
    return not isinstance(event, AddData) or record_of(event).is_end


def check_commit_end(block: Block) -> None:
    """Refuse a block inside a commit of several parts where a head, a position or a cut would be."""
    if not is_commit_end(block):
        raise InputError(
            f"block {block.hash} is inside a commit of several parts",
            remedy="give a commit from the log",
            code="InsideCommit",
            block=block.hash,
        )


def noted_object(notes: Mapping[str, Any], role: str) -> Multihash | None:
    """Return the name of an object that a commit noted."""
    try:
        return Multihash.parse(notes["objects"][role]["hash"])
    except (KeyError, TypeError, InputError):
        return None


def noted_hash(noted: object) -> Multihash | None:
    """Read the name of a commit that a commit noted."""
    try:
        return Multihash.parse(noted) if isinstance(noted, str) else None
    except InputError:
        return None


def noted_numbers(noted: object) -> dict[str, int]:
    """Read counts by name, as a commit noted them."""
    if not isinstance(noted, Mapping):
        return {}
    return {str(name): count for name, count in noted.items() if type(count) is int}


def noted_texts(noted: object) -> tuple[str, ...]:
    """Read a list of names, as a commit noted it."""
    return tuple(str(name) for name in noted) if isinstance(noted, list) else ()


MAX_KEY = 512
RESERVED = "trueline/"


def is_text(value: str) -> bool:
    """Say whether a value can be stored as text: names of files may hold bytes that are not text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_key(key: object) -> None:
    """Refuse what cannot be a key."""
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not is_text(key)):
        raise InputError(
            f"the idempotency key is {key!r:.80}",
            remedy=f"give text of 1 to {MAX_KEY} characters",
            code="BadKey",
        )
    if key is not None and key.startswith(RESERVED):
        raise InputError(
            f"keys that begin with {RESERVED!r} are used for removals", remedy="choose another", code="BadKey"
        )
