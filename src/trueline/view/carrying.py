"""How annotations travel with Arrow data: as metadata of fields, one key each.

Our kinds are written under `trueline/<kind>` with their types; other keys of
a field are text that someone else wrote, kept under their own names. What
cannot be read is kept as text: reading never fails because of an annotation
(view:C20).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.view.annotations import NONE, Annotation, Annotations

if TYPE_CHECKING:
    from trueline.view.schema import Column

_OURS: Final = b"trueline/"
# What Arrow and its neighbours write for themselves; it says nothing about the column.
_THEIRS: Final = (b"PARQUET:", b"ARROW:", b"org.apache.spark", b"pandas")


def annotations_of(field: pa.Field) -> Annotations:
    """Return what a field says of itself."""
    found = {}
    for key, value in (field.metadata or {}).items():
        if key == t.LOGICAL or key.startswith(_THEIRS):
            continue
        kind = (key.removeprefix(_OURS)).decode(errors="replace")
        read = _read(value) if key.startswith(_OURS) else None
        found[kind] = read or Annotation(t.text, value.decode(errors="replace"))
    return Annotations(found) if found else NONE


def field_of(column: Column) -> pa.Field:
    """Return a column as an Arrow field that says all this of itself."""
    return t.field(column.name, column.type, nullable=column.nullable, metadata=_written(column.annotations))


def _written(annotations: Annotations) -> Mapping[bytes, bytes]:
    return {
        kind.encode() if "/" in kind else _OURS + kind.encode(): (
            str(each.value).encode() if "/" in kind else _text(each)
        )
        for kind, each in annotations.found.items()
    }


def _text(each: Annotation) -> bytes:
    """A value with its type, as JSON: Arrow's own bytes where JSON has no word for it."""
    plain = each.value
    if _is_plain(plain):
        return json.dumps({"type": _spelt(each.type), "value": plain}, ensure_ascii=False).encode()
    batch = pa.record_batch([pa.array([plain], each.type.arrow)], schema=pa.schema([t.field("v", each.type)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return json.dumps({"arrow": base64.b64encode(sink.getvalue()).decode()}).encode()


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 1 << 53)


def _spelt(kind: t.Type) -> Any:
    field = pa.schema([t.field("v", kind)])
    return base64.b64encode(field.serialize()).decode()


def _read(raw: bytes) -> Annotation | None:
    try:
        said = json.loads(raw)
        if "arrow" in said:
            with pa.ipc.open_stream(base64.b64decode(said["arrow"], validate=True)) as reader:
                table = reader.read_all()
            return Annotation(t.of(table.schema.field(0)), table.column(0)[0].as_py())
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said["type"], validate=True)))
        return Annotation(t.of(schema.field(0)), said["value"])
    except (ValueError, TypeError, KeyError, IndexError, pa.ArrowException):
        return None
