"""How the fields of a record are stored: one declaration, read by every form.

Events and their parts are frozen dataclasses. Their annotations say how a
field is stored (`U64`, `Hash`, a nested record, a union …) and their order is
the order of the format. The binary writer, the binary reader and the text
form all follow the `RecordLayout` derived here, so none of them can forget a field.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Union

from trueline.chain.instant import Instant
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash


class ShortEnum(IntEnum):
    """An enumeration stored in 16 bits; others take 32."""


class Record:
    """Base of everything that is stored in a block; `KIND` names it inside a union."""

    __slots__ = ()
    KIND: ClassVar[str] = ""


class Plain(Record):
    """A record without fields; all of one type are equal.

    Made without the machinery of dataclasses, which costs half a millisecond per class at import.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of fixed width, by its `struct` code."""

    code: str

    @property
    def size(self) -> int:
        return {"B": 1, "?": 1, "h": 2, "i": 4, "I": 4, "Q": 8, "q": 8}[self.code]


@dataclass(frozen=True, slots=True)
class Choice:
    """An enumeration stored as a number."""

    of: type[IntEnum]
    code: str


@dataclass(frozen=True, slots=True)
class Octets:
    """A byte vector; `of` says what the bytes are: a hash, a dataset id, or themselves."""

    of: type[Multihash | DatasetId | bytes]


@dataclass(frozen=True, slots=True)
class Text:
    """A UTF-8 string."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, stored inline in 16 bytes."""


@dataclass(frozen=True, slots=True)
class NestedRecord:
    """A record of one type."""

    of: type[Record]


@dataclass(frozen=True, slots=True)
class OneOf:
    """A record of one of several types, known by its tag (position from 1)."""

    of: tuple[type[Record], ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A vector of strings or records."""

    of: Text | NestedRecord | OneOf


Kind = Scalar | Choice | Octets | Text | Moment | NestedRecord | OneOf | Many

U64 = Annotated[int, Scalar("Q")]
U32 = Annotated[int, Scalar("I")]
I32 = Annotated[int, Scalar("i")]
Flag = Annotated[bool, Scalar("?")]
union = object()
"""Marks a field as a union even if it has one member today."""


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a record: its names, how it is stored, and what its absence means."""

    name: str
    key: str
    kind: Kind
    slot: int
    required: bool
    absent: Any


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The fields of a record in stored order."""

    of: type[Record]
    fields: tuple[WireField, ...]
    slots: int

    @property
    def by_key(self) -> dict[str, WireField]:
        return {field.key: field for field in self.fields}


def layout(record: type[Record]) -> RecordLayout:
    """Return how a record is stored, derived once from its annotations."""
    known = _LAYOUTS.get(record)
    if known is None:
        known = _LAYOUTS[record] = _derive(record)
    return known


_LAYOUTS: dict[type[Record], RecordLayout] = {}


def _derive(record: type[Record]) -> RecordLayout:
    hints = typing.get_type_hints(record, include_extras=True)
    fields: list[WireField] = []
    slot = 0
    for declared in () if issubclass(record, Plain) else dataclasses.fields(record):  # type: ignore[arg-type]
        if declared.name.startswith("_"):
            continue
        hint, optional = _strip_none(hints[declared.name])
        kind = _kind(hint)
        has_default = declared.default is not dataclasses.MISSING
        absent = declared.default if has_default else _zero(kind)
        required = not optional and not has_default and absent is None
        fields.append(WireField(declared.name, _camel(declared.name), kind, slot, required, absent))
        slot += 2 if isinstance(kind, OneOf) else 1
    return RecordLayout(record, tuple(fields), slot)


def _zero(kind: Kind) -> Any:
    """What a number that must not be missing is when it was left out: zero."""
    if isinstance(kind, Scalar):
        return 0
    return kind.of(0) if isinstance(kind, Choice) else None


def _strip_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not types.NoneType]
        if len(rest) < len(typing.get_args(hint)):
            return (rest[0] if len(rest) == 1 else Union[tuple(rest)]), True  # noqa: UP007
    return hint, False


def _kind(hint: Any) -> Kind:
    if typing.get_origin(hint) is Annotated:
        inner, *notes = typing.get_args(hint)
        for note in notes:
            if isinstance(note, Scalar):
                return note
            if note is union:
                return OneOf(typing.get_args(inner) or (inner,))
    if typing.get_origin(hint) is tuple:
        item = _kind(typing.get_args(hint)[0])
        assert isinstance(item, (Text, NestedRecord, OneOf)), hint
        return Many(item)
    assert isinstance(hint, type), hint
    if issubclass(hint, (Multihash, DatasetId, bytes)):
        return Octets(hint)
    if issubclass(hint, Instant):
        return Moment()
    if issubclass(hint, IntEnum):
        return Choice(hint, "h" if issubclass(hint, ShortEnum) else "i")
    if issubclass(hint, Record):
        return NestedRecord(hint)
    assert hint is str, hint
    return Text()


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
