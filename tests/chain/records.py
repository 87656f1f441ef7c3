"""Records of every kind, made from their layouts: random ones, and a text example of every union member."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.chain.histories import dataset_id, digest, moment
from trueline.chain import Block, Instant
from trueline.chain.datatypes import DataField, Extra, Option, String
from trueline.chain.events import Event
from trueline.chain.wire import (
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
    WireField,
    layout,
)
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

EVENTS: tuple[type[Any], ...] = layout(Block).by_key["event"].kind.of
RANGES = {"i": (-(1 << 31), (1 << 31) - 1), "I": (0, (1 << 32) - 1), "Q": (0, (1 << 64) - 1)}
YEARS = (-62135596800 * 10**9, 253402300800 * 10**9 - 1)
"""The nanoseconds of the years 1 to 9999."""


def reachable(start: type[Record] = Block) -> set[type[Record]]:
    """Every record type that can lie in a block."""
    found: set[type[Record]] = set()
    waiting: list[type[Record]] = [start]
    while waiting:
        record = waiting.pop()
        if record not in found:
            found.add(record)
            for field in layout(record).fields:
                kind = field.kind.of if isinstance(field.kind, Many) else field.kind
                if isinstance(kind, NestedRecord):
                    waiting.append(kind.of)
                elif isinstance(kind, OneOf):
                    waiting.extend(kind.of)
    return found


# --- random records -------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(st.text(max_size=8), json_values, max_size=3).map(Extra.of)
digests = st.binary(min_size=32, max_size=32)
hashes = st.one_of(digests.map(Multihash.sha3_256), digests.map(Multihash.arrow0_sha3_256))
dataset_ids = digests.map(lambda key: DatasetId.from_bytes(b"\xed\x01" + key))
instants = st.integers(*YEARS).map(Instant)
texts = st.text(max_size=12)


def records(record: type[Record], depth: int = 4) -> st.SearchStrategy[Any]:
    """Random records; unions below `depth` hold members that hold no union."""
    if record is Extra:
        return extras
    fields = {field.name: _field(field, depth) for field in layout(record).fields}
    return st.builds(record, **fields)


def _field(field: WireField, depth: int) -> st.SearchStrategy[Any]:
    made = _value(field.kind, depth)
    return made if field.required or field.absent is not None else st.none() | made


def _value(kind: Kind, depth: int) -> st.SearchStrategy[Any]:
    match kind:
        case Scalar("?"):
            return st.booleans()
        case Scalar(code):
            return st.integers(*RANGES[code])
        case Choice(of):
            return st.sampled_from(list(of))
        case Text():
            return texts
        case Octets(of):
            return {Multihash: hashes, DatasetId: dataset_ids, bytes: st.binary(max_size=20)}[of]
        case Moment():
            return instants
        case NestedRecord(of):
            return st.deferred(lambda: records(of, depth - 1))
        case OneOf(of):
            flat = [member for member in of if not _holds_union(member)]
            chosen = of if depth > 0 else flat or of
            return st.sampled_from(chosen).flatmap(lambda member: records(member, depth - 1))
        case Many(of):
            return st.lists(_value(of, depth), max_size=3).map(tuple)


def _holds_union(record: type[Record]) -> bool:
    return any(isinstance(field.kind, OneOf | NestedRecord | Many) for field in layout(record).fields)


def blocks(*events: type[Any]) -> st.SearchStrategy[Block]:
    """Random blocks around random events; no rule of the chain is asked."""
    return st.builds(
        Block,
        system_time=instants,
        prev_block_hash=st.none() | hashes,
        sequence_number=st.integers(*RANGES["Q"]),
        event=st.sampled_from(events or EVENTS).flatmap(records),
    )


data_types = _value(layout(DataField).by_key["type"].kind, 4)


# --- one text example of everything ---------------------------------------------

TEXTS: dict[type[Any], str] = {
    Multihash: digest("example"),
    DatasetId: str(dataset_id("example")),
    bytes: "AAEC",
}


def examples(record: type[Record], depth: int = 2) -> Iterator[dict[str, Any]]:
    """Text forms in which every field is present, and every member of every union once."""
    by_key = {field.key: list(_examples(field.kind, depth)) for field in layout(record).fields}
    first = {key: made[0] for key, made in by_key.items()}
    kind = {"kind": record.KIND} if record.KIND else {}
    yield kind | first
    for key, made in by_key.items():
        for other in made[1:]:
            yield kind | first | {key: other}


def _examples(kind: Kind, depth: int) -> Iterator[Any]:
    match kind:
        case Scalar(code):
            yield True if code == "?" else 3
        case Choice(of):
            yield list(of)[-1].name
        case Text():
            yield "text"
        case Octets(of):
            yield TEXTS[of]
        case Moment():
            yield moment(1)
        case NestedRecord(of):
            yield from [{"example.org/x": 1}] if of is Extra else examples(of, depth)
        case OneOf(of):
            deep = String in of
            members = (String, Option) if deep and depth == 1 else (String,) if deep and depth < 1 else of
            for member in members:
                yield from examples(member, depth - deep)
        case Many(of):
            for made in _examples(of, depth):
                yield [made, made] if isinstance(made, str) else [made]


def block_examples(event: type[Event]) -> Iterator[dict[str, Any]]:
    """Blocks around the examples of an event."""
    for made in examples(event):
        yield {
            "systemTime": moment(1),
            "prevBlockHash": digest("before"),
            "sequenceNumber": 3,
            "event": made,
        }


# --- where things are -----------------------------------------------------------

Path = tuple[str | int, ...]


def show(path: Path) -> str:
    """A path as messages write it."""
    return "block" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def mappings(
    value: Any, kind: Any = None, path: Path = ()
) -> Iterator[tuple[Path, type[Record], dict[str, Any]]]:
    """Every mapping of a block's text form but attributes, with the record it stands for."""
    kind = NestedRecord(Block) if kind is None else kind
    if isinstance(kind, Many):
        for index, item in enumerate(value):
            yield from mappings(item, kind.of, (*path, index))
    elif isinstance(kind, NestedRecord | OneOf):
        record = _record_of(kind, value)
        if record is not Extra:
            yield path, record, value
            for field in layout(record).fields:
                if field.key in value:
                    yield from mappings(value[field.key], field.kind, (*path, field.key))


def _record_of(kind: NestedRecord | OneOf, value: dict[str, Any]) -> type[Record]:
    if isinstance(kind, NestedRecord):
        return kind.of
    return next(member for member in kind.of if value["kind"] == member.KIND)
