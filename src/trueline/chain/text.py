"""The text form of blocks and events: dicts, JSON and YAML.

Written canonically (camelCase keys, absent means null, `kind: PascalCase`
inline). Read leniently where the format says so: short forms of types,
kinds and enumerations in any case, older spellings; unknown fields never.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from difflib import get_close_matches
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from trueline.chain.datatypes import Extra
from trueline.chain.decode import READ_VERSIONS, unsupported_version
from trueline.chain.encode import MANIFEST_VERSION, MAX_DEPTH
from trueline.chain.instant import Instant
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
from trueline.errors import InputError, ManifestError

if TYPE_CHECKING:
    from trueline.chain.block import Block


def read_document(text: str) -> Any:
    """Read the JSON of an attachment; None if it is none, or has text that cannot be written again."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half of a character has no bytes
    except (ValueError, RecursionError):
        return None
    return value


_RANGES = {"i": (-(1 << 31), (1 << 31) - 1), "I": (0, (1 << 32) - 1), "Q": (0, (1 << 64) - 1)}
_OLD_KINDS = {"executequery": "ExecuteTransform"}
_REMOVED_KINDS = {
    "setwatermark": "write an AddData (or ExecuteTransform) that carries only newWatermark instead",
}
_REMOVED_FIELDS = {
    "inputSlices": "write queryInputs with half-open (prevOffset, newOffset] intervals instead",
    "outputData": "write newData instead",
    "outputWatermark": "write newWatermark instead",
    "blockInterval": "write prevBlockHash and newBlockHash instead",
    "dataInterval": "write prevOffset and newOffset instead",
}


def to_dict(record: Record) -> dict[str, Any]:
    """Return the canonical JSON form of a record."""
    out: dict[str, Any] = {"kind": record.KIND} if record.KIND else {}
    for field in layout(type(record)).fields:
        value = getattr(record, field.name)
        if value is not None and (value != field.absent or _always(field)):
            out[field.key] = _plain(field.kind, value)
    return out


def _always(field: WireField) -> bool:
    """Say whether a field is a number that must be there; in text it is written even when it is zero."""
    return isinstance(field.kind, Scalar | Choice) and field.absent == 0


def _plain(kind: Kind, value: Any) -> Any:
    match kind:
        case Scalar(code):
            return bool(value) if code == "?" else int(value)
        case Choice():
            return value.name
        case Octets(of):
            return base64.b64encode(value).decode() if of is bytes else str(value)
        case Moment():
            return str(value)
        case NestedRecord() | OneOf():
            return value.value if isinstance(value, Extra) else to_dict(value)
        case Many(of):
            return [_plain(of, item) for item in value]
    return value


def block_from_dict(value: Any) -> Block:
    """Read a block, with or without its manifest wrapper."""
    from trueline.chain.block import Block

    if isinstance(value, Mapping) and "content" in value:
        value = open_manifest(value, "MetadataBlock", READ_VERSIONS)
    block = record_from_dict(value, Block, "block")
    assert isinstance(block, Block)
    return block


def open_manifest(value: Mapping[str, Any], kind: str, versions: tuple[int, ...]) -> Mapping[str, Any]:
    """Check the `kind`, `version`, `content` wrapper of a manifest and return the content."""
    unknown = set(value) - {"kind", "version", "content"}
    if unknown:
        raise _bad("manifest", f"unknown field {min(map(str, unknown))!r}", "keep kind, version and content")
    if str(value.get("kind", "")).lower() != kind.lower():
        raise _bad("manifest", f"kind {value.get('kind')!r} is not {kind}", f"write kind: {kind}")
    if type(value.get("version")) is not int or value["version"] not in versions:
        if kind == "MetadataBlock":
            raise unsupported_version(value.get("version"))
        raise _bad(
            "manifest",
            f"version {value.get('version')!r} of {kind} is not known",
            f"write version: {versions[-1]}",
        )
    content = value["content"]
    if not isinstance(content, Mapping):
        raise _bad("content", "it is not a mapping", "write the fields of the resource below it")
    return content


def manifest(block: Block) -> dict[str, Any]:
    """Return the JSON form of a block inside its wrapper."""
    return {"kind": "MetadataBlock", "version": MANIFEST_VERSION, "content": to_dict(block)}


def record_from_dict(value: Any, record: type[Record], where: str, depth: int = MAX_DEPTH) -> Record:
    """Read a record from its JSON form; `where` names the place in messages."""
    if depth == 0:
        raise _bad(where[:200], f"it is nested deeper than {MAX_DEPTH} levels", "flatten it")
    if record is Extra:
        if not isinstance(value, Mapping):
            raise _bad(where, "extra attributes are a mapping", "write domain/name: value")
        extra: Extra = _at(where, lambda: Extra.of(value))
        return extra
    if not isinstance(value, Mapping):
        raise _bad(
            where, f"{_show(value)} is not a mapping", f"write the fields of {record.KIND or record.__name__}"
        )
    plan = layout(record)
    known = plan.by_key
    given = {key: item for key, item in value.items() if not (key == "kind" and record.KIND)}
    if "ddlSchema" in known:
        _old_spellings(given, where)
    for key in given:
        if key not in known:
            raise _unknown(where, key, known)
    values: dict[str, Any] = {}
    for field in plan.fields:
        item = given.get(field.key)
        if item is None:
            if field.required or _always(field):
                raise _bad(where, f"{field.key} is missing", f"add {field.key}")
            values[field.name] = field.absent
        else:
            values[field.name] = _value(field.kind, item, f"{where}.{field.key}", depth - 1)
    return record(**values)


def _old_spellings(given: dict[str, Any], where: str) -> None:
    """Read what older versions called otherwise: a DDL list under `schema`."""
    schema = given.get("schema")
    if isinstance(schema, list) and all(isinstance(line, str) for line in schema):
        if given.get("ddlSchema") is not None:
            raise _bad(f"{where}.schema", "ddlSchema holds a list of columns too", "keep ddlSchema")
        given["ddlSchema"] = given.pop("schema")


def _value(kind: Kind, item: Any, where: str, depth: int) -> Any:
    match kind:
        case Scalar(code):
            return _number(code, item, where)
        case Choice(of):
            return _choice(of, item, where)
        case Text():
            if not isinstance(item, str):
                raise _bad(where, f"{_show(item)} is not text", "put it in quotes")
            return _at(where, lambda: _utf8(item))
        case Octets(of):
            return _octets(of, item, where)
        case Moment():
            return (
                item if isinstance(item, Instant) else _at(where, lambda: Instant.parse(_text(item, where)))
            )
        case NestedRecord(of):
            return record_from_dict(item, of, where, depth)
        case OneOf(of):
            return _one_of(of, item, where, depth)
        case Many(of):
            if not isinstance(item, list | tuple):
                raise _bad(where, f"{_show(item)} is not a list", "write it as a list")
            return tuple(_value(of, part, f"{where}[{index}]", depth) for index, part in enumerate(item))


def _number(code: str, item: Any, where: str) -> Any:
    if code == "?":
        if not isinstance(item, bool):
            raise _bad(where, f"{_show(item)} is neither true nor false", "write true or false")
        return item
    low, high = _RANGES[code]
    if isinstance(item, bool) or not isinstance(item, int) or not low <= item <= high:
        raise _bad(where, f"{_show(item)} is not a whole number from {low} to {high}", "correct the number")
    return int(item)


def _choice(of: type[IntEnum], item: Any, where: str) -> IntEnum:
    for member in of:
        if isinstance(item, str) and item.lower() == member.name.lower():
            return member
    raise _bad(
        where, f"{_show(item)} is not one of {', '.join(member.name for member in of)}", "pick one of these"
    )


def _octets(of: Any, item: Any, where: str) -> Any:
    text = _text(item, where)
    if of is not bytes:
        return _at(where, lambda: of.parse(text))
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _bad(where, "it is not base64", "encode the bytes as base64") from None


def _one_of(of: tuple[type[Record], ...], item: Any, where: str, depth: int) -> Record:
    """Read a union member by its `kind`, in any case; a bare name is a member without fields."""
    if isinstance(item, str):
        item = {"kind": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("kind"), str):
        raise _bad(
            where, f"{_show(item)} has no kind", f"add kind: {' | '.join(member.KIND for member in of[:8])}"
        )
    name = item["kind"].lower()
    if name in _REMOVED_KINDS:
        raise _bad(where, f"{item['kind']} was removed from the format", _REMOVED_KINDS[name])
    name = _OLD_KINDS.get(name, name).lower()
    for member in of:
        if member.KIND.lower() == name:
            return record_from_dict(item, member, where, depth)
    near = get_close_matches(item["kind"], [member.KIND for member in of], 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(member.KIND for member in of)}"
    raise _bad(where, f"unknown kind {_show(item['kind'])}", hint)


def _text(item: Any, where: str) -> str:
    if not isinstance(item, str):
        raise _bad(where, f"{_show(item)} is not text", "put it in quotes")
    return item


def _utf8(item: str) -> str:
    try:
        item.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"text that is not Unicode: {error.reason}", remedy="remove the unpaired surrogate"
        ) from None
    return item


def _at(where: str, read: Any) -> Any:
    """Add the place to what a reader of values complains about."""
    try:
        return read()
    except InputError as error:
        raise _bad(where, error.problem, error.remedy) from None


def _unknown(where: str, key: Any, known: Mapping[str, WireField]) -> ManifestError:
    if key in _REMOVED_FIELDS:
        return _bad(where, f"{key} was removed from the format", _REMOVED_FIELDS[key])
    near = get_close_matches(str(key), list(known), 1)
    return _bad(
        where,
        f"unknown field {_show(key)}",
        f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}",
    )


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _bad(where: str, problem: str, remedy: str) -> ManifestError:
    return ManifestError(f"{where}: {problem}", remedy=remedy, where=where)
