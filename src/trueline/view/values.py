"""Values of a row as Python has them, by logical type; each is the reader's own (view:C49)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from trueline import types as t
from trueline.identity import RowId

At: TypeAlias = Callable[[int], Any]


def reader(kind: t.Type) -> Callable[[pa.Array], At]:
    """Return what turns an array into a function from row to value."""
    if isinstance(kind, t.Vector):
        from trueline.view.vectors import value_reader

        return value_reader(kind)
    if isinstance(kind, t.Nested):
        return lambda array: lambda at: array[at].as_py()
    if isinstance(kind, t.RowIdentity):
        return _ids
    return lambda array: array.to_pylist().__getitem__


def _ids(array: pa.Array) -> At:
    raw = array.to_pylist()

    def at(index: int) -> RowId | None:
        found = raw[index]
        return None if found is None else RowId.from_hex(found.hex())

    return at
