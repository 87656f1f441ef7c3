"""Types of columns that are declared with a reader, for files that do not say them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError, SchemaError


class ColumnTypes(tuple[tuple[str, str], ...]):
    """The types of some columns by their names, as text that every machine reads the same way.

    >>> ColumnTypes.of({"zip": "text", "price": "decimal(10, 2)"})
    {'zip': 'text', 'price': 'decimal(10, 2)'}
    """

    __slots__ = ()

    @classmethod
    def of(cls, given: Any) -> ColumnTypes:
        """Take a mapping from names to types: text, types of `trueline.types` or of Arrow, Python classes."""
        if given is not None and not isinstance(given, Mapping | ColumnTypes):
            raise InputError(
                f"types is {given!r:.80}, not a mapping", remedy='give {"column": "type"}, for example "text"'
            )
        pairs = given.items() if isinstance(given, Mapping) else (given or ())
        found: dict[str, str] = {}
        for name, kind in pairs:
            if not isinstance(name, str) or not name:
                raise InputError(f"types has a column named {name!r:.80}", remedy="give names of columns")
            found[name] = str(t.of(kind))
        return cls(found.items())

    def known(self, before: pa.Schema) -> pa.Schema:
        """Add these to the types that are known already, which a dataset keeps for ever."""
        new = [(name, t.of(kind).arrow) for name, kind in self if before.get_field_index(name) < 0]
        return pa.schema([*before, *(pa.field(name, kind) for name, kind in new)])

    def check(self, found: Iterable[str], known: pa.Schema) -> None:
        """Refuse the name of a column that no file has."""
        names = list(found)
        for name, _ in self:
            if name not in names and known.get_field_index(name) < 0:
                raise SchemaError(
                    f"types names the column {name!r}, which the files do not have",
                    remedy=f"they have {', '.join(map(repr, names[:10]))}",
                    column=name,
                )

    def __repr__(self) -> str:
        return repr(dict(self))
