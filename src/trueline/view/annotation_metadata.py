"""How annotations travel with Arrow data: as metadata of fields, one key each, readable as JSON.

Ours are written under `trueline/<kind>` as `{"type": "vector(text, 2)",
"value": ["a", "b"]}`. Other keys of a field are text that someone else wrote,
and keep their bytes: `acme/owner` is the kind of that name, `comment`, which
has no domain, is the kind `arrow/comment`. What cannot be read is kept as it
is: neither reading nor writing ever fails because of an annotation (view:C20).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.view.annotations import NONE, Annotation, Annotations

if TYPE_CHECKING:
    from trueline.view.schema import Column

_OURS: Final = b"trueline/"
_BARE: Final = "arrow/"
# What Arrow and its neighbours write for themselves; it says nothing about the column.
_THEIRS: Final = (b"PARQUET:", b"ARROW:", b"org.apache.spark", b"pandas")
_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# What Arrow, JSON and our own types say of values they cannot hold.
_FAILURES: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    pa.ArrowException,
)


def annotations_of(field: pa.Field) -> Annotations:
    """Return what a field says of itself."""
    found: dict[str, Annotation] = {}
    for key, value in (field.metadata or {}).items():
        if key == t.LOGICAL or key.startswith(_THEIRS):
            continue
        kind = key.decode(errors="replace")
        if not key.startswith(_OURS):
            found[kind if "/" in kind else _BARE + kind] = _said(value) if "/" in kind else _raw(value)
        elif kind := kind.removeprefix(_OURS.decode()):
            found[kind] = _read(value) or _raw(value)
    return Annotations(found) if found else NONE


def field_of(column: Column) -> pa.Field:
    """Return a column as an Arrow field that says all this of itself."""
    return t.field(column.name, column.type, nullable=column.nullable, metadata=_written(column.annotations))


def _raw(value: bytes) -> Annotation:
    """Text as it is, and bytes that are none."""
    try:
        return Annotation(t.text, value.decode())
    except UnicodeDecodeError:
        return Annotation(t.binary, value)


def _said(value: bytes) -> Annotation:
    """What others wrote under a domain: a plain JSON value as that value, other text as it is."""
    try:
        said = json.loads(value)
    except (ValueError, RecursionError):
        return _raw(value)
    if isinstance(said, bool):
        return Annotation(t.boolean, said)
    if isinstance(said, int) and abs(said) < 1 << 63:
        return Annotation(t.int64, said)
    if isinstance(said, float) and math.isfinite(said):
        return Annotation(t.float64, said)
    if isinstance(said, str):
        return Annotation(t.text, said)
    try:
        return Annotation(t.of(pa.array([said]).type), said) if said is not None else _raw(value)
    except _FAILURES:
        return _raw(value)


def _written(annotations: Annotations) -> Mapping[bytes, bytes]:
    found = {}
    for kind, each in annotations.found.items():
        if kind.startswith(_BARE):
            found[kind.removeprefix(_BARE).encode(errors="replace")] = _as_bytes(each.value)
        elif "/" in kind:
            found[kind.encode(errors="replace")] = _as_json(each.value)
        else:
            found[_OURS + kind.encode(errors="replace")] = _text(each)
    return found


def _as_json(value: Any) -> bytes:
    """A value as JSON; text that is a JSON object or list already stays as it is."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            if isinstance(json.loads(value), dict | list):
                return value.encode(errors="replace")
        except (ValueError, RecursionError):
            pass
    return json.dumps(value, default=str, ensure_ascii=False).encode(errors="replace")


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, default=str)).encode(errors="replace")


def _text(each: Annotation) -> bytes:
    """A value with its type, as JSON; what is not a value of its type is text."""
    try:
        said = {"type": str(each.type), "value": _plain(each.value, each.type)}
        return json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except _FAILURES:
        return _as_bytes(each.value if isinstance(each.value, str | bytes) else str(each.value))


def _plain(value: Any, kind: t.Type) -> Any:
    """A value as JSON has it: numbers and text as they are, other things as the text they convert to."""
    if value is None:
        return None
    if isinstance(kind, t.Vector):
        return [_plain(item, kind.item) for item in value]
    if isinstance(kind, t.Nested):
        raise TypeError("no spelling for it")
    stored = pa.array([value.bytes if isinstance(kind, t.RowIdentity) else value], kind.arrow)
    if kind == t.binary:
        return base64.b64encode(stored[0].as_py()).decode()
    found = stored[0].as_py()
    if isinstance(found, float) and not math.isfinite(found):
        return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
    if kind in t.NUMBERS or kind in (t.text, t.boolean) or isinstance(kind, t.Category):
        return found
    from trueline.view.converting import convert

    return convert(stored, kind, t.text)[0].as_py()


def _read(raw: bytes) -> Annotation | None:
    try:
        said = json.loads(raw)
        if set(said) != {"type", "value"}:
            return None
        kind = t.parse(said["type"])
        return Annotation(kind, _value(said["value"], kind))
    except _FAILURES:
        return None


def _value(said: Any, kind: t.Type) -> Any:
    if said is None:
        return None
    if isinstance(kind, t.Vector):
        if not isinstance(said, list):
            raise TypeError("no list")
        return tuple(_value(item, kind.item) for item in said)
    if kind == t.binary:
        return base64.b64decode(said, validate=True)
    if kind in t.FLOATS and said in _NUMBERS:
        return _NUMBERS[said]
    if kind in t.NUMBERS or kind in (t.text, t.boolean) or isinstance(kind, t.Category):
        # What is of another JSON type than its own is no value of it.
        other: dict[t.Type, type] = {t.text: str, t.boolean: bool}
        if kind not in t.FLOATS and type(said) is not other.get(kind, int):
            raise TypeError("another type")
        return pa.array([said], kind.arrow)[0].as_py()
    from trueline.kernel.values import python
    from trueline.view.converting import convert

    found = convert(pa.array([said], pa.string()), t.text, kind)
    if found.null_count:
        raise ValueError("no value")
    return python(kind)(found)[0]
