"""Plain values as JSON text and back, exactly: what a journal can hold, and what a digest is taken of."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from trueline.errors import InputError
from trueline.run.step import ERASED, Erased

# Made once: `json.dumps` makes one for every value, which took half of its time.
_encode: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_AS_IS: Final = frozenset({str, int, float, bool, type(None)})


def text_of(value: object) -> str:
    """Write a value as JSON; two values have one text only if they are equal and of one type.

    >>> text_of({"a": (1, None), "b": b"x"})
    '{"a":{"$tuple":[1,null]},"b":{"$bytes":"eA=="}}'
    """
    made = value if type(value) in _AS_IS else _plain(value)
    return _encode(made)


def value_of(text: str) -> Any:
    """Read a value back.

    >>> value_of(text_of({"a": (1, None), "b": b"x"}))
    {'a': (1, None), 'b': b'x'}
    """
    return _value(json.loads(text))


def digest_of(*texts: str) -> str:
    """Return a digest of texts: 128 bits, in hex.

    >>> digest_of("a", "b") == digest_of("ab")
    False
    """
    raws = [text.encode() for text in texts]
    return blake2b(
        b"".join([part for raw in raws for part in (len(raw).to_bytes(8, "little"), raw)]), digest_size=16
    ).hexdigest()


_WRITE: Final[dict[type, Callable[[Any], tuple[str, Any]]]] = {
    tuple: lambda value: ("$tuple", [_plain(each) for each in value]),
    set: lambda value: ("$set", sorted((_plain(each) for each in value), key=json.dumps)),
    frozenset: lambda value: ("$frozenset", sorted((_plain(each) for each in value), key=json.dumps)),
    bytes: lambda value: ("$bytes", b64encode(value).decode()),
    datetime: lambda value: ("$datetime", _moment(value)),
    date: lambda value: ("$date", value.isoformat()),
    time: lambda value: ("$time", _moment(value)),
    timedelta: lambda value: ("$timedelta", [value.days, value.seconds, value.microseconds]),
    Decimal: lambda value: ("$decimal", str(value)),
    UUID: lambda value: ("$uuid", str(value)),
    Erased: lambda _: ("$erased", True),
}
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "$tuple": lambda inner: tuple(_value(each) for each in inner),
    "$set": lambda inner: {_value(each) for each in inner},
    "$frozenset": lambda inner: frozenset(_value(each) for each in inner),
    "$bytes": b64decode,
    "$datetime": lambda inner: _read_moment(datetime, inner),
    "$date": date.fromisoformat,
    "$time": lambda inner: _read_moment(time, inner),
    "$timedelta": lambda inner: timedelta(*inner),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$erased": lambda _: ERASED,
    "$path": Path,
    "$dict": lambda inner: {_value(key): _value(each) for key, each in inner},
}


def _moment(value: datetime | time) -> Any:
    """ISO 8601 where that says all; else also which of two hours it is, and the name of the zone."""
    zone = value.tzinfo
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, zone.key]
    if zone is not None and type(zone) is not timezone:
        raise _not_plain(type(zone))
    return [value.replace(fold=0).isoformat(), 1] if value.fold else value.isoformat()


def _read_moment(kind: type[datetime | time], inner: Any) -> datetime | time:
    if isinstance(inner, str):
        return kind.fromisoformat(inner)
    text, fold, *zone = inner
    read = kind.fromisoformat(text).replace(fold=fold)
    return read.replace(tzinfo=ZoneInfo(zone[0])) if zone else read


def _not_plain(kind: type) -> InputError:
    return InputError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be kept in a journal",
        remedy="use plain values (numbers, text, bytes, times, lists, dicts), or give the journal "
        "encode= and decode=",
        code="NotPlain",
    )


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is list:
        return [_plain(each) for each in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _plain(each) for key, each in value.items()}
        return {"$dict": [[_plain(key), _plain(each)] for key, each in value.items()]}
    write = _WRITE.get(kind)
    if write is None:
        if isinstance(value, Path):
            return {"$path": str(value)}
        raise _not_plain(kind)
    tag, inner = write(value)
    return {tag: inner}


def _value(made: Any) -> Any:
    if type(made) is list:
        return [_value(each) for each in made]
    if type(made) is dict:
        if len(made) == 1:
            ((tag, inner),) = made.items()
            if tag.startswith("$"):
                return _READ[tag](inner)
        return {key: _value(each) for key, each in made.items()}
    return made
