"""A ready-made step that keeps what is secret out of the dataset."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError
from trueline.run import Step
from trueline.run.step import OnError

How: TypeAlias = Literal["hash", "missing", "stars"]
_DIGITS = 32


class Mask(Step):
    """Masks columns; made by `mask`. `hides` are the columns whose unreadable cells are not listed either."""

    name = "mask"

    def __init__(
        self, columns: tuple[str, ...], how: How, key: bytes | None, *, shown: int, on_error: OnError
    ) -> None:
        if not columns:
            raise InputError("there is nothing to mask", remedy='give columns: mask("email", key=…)')
        if how not in ("hash", "missing", "stars"):
            raise InputError(f"how={how!r}", remedy="give hash, missing or stars")
        if how == "hash" and not key:
            raise InputError(
                "a hash without a key is found out by trying values",
                remedy="give key=…, a secret that stays the same, or how='missing' or 'stars'",
                code="NoKey",
            )
        super().__init__(on_error=on_error)
        self.how, self.shown, self.hides = how, shown, frozenset(columns)
        self._key = key

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows with masked columns; a file without them stays as it is."""
        for name in sorted(self.hides & set(value.column_names)):
            place = value.schema.get_field_index(name)
            column = value.column(place)
            made = self._masked(column)
            value = value.set_column(place, pa.field(name, made.type), made)
        return value

    def _masked(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if self.how == "missing":
            return pa.chunked_array([pa.nulls(len(column), column.type)])
        texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
        coded = texts.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        known = [self._one(text) for text in coded.dictionary.to_pylist()]
        found = pc.take(pa.array(known, pa.string()), coded.indices)
        return pa.chunked_array([found])

    def _one(self, text: str | None) -> str | None:
        if text is None:
            return None
        if self.how == "stars":
            kept = text[len(text) - self.shown :] if 0 < self.shown < len(text) else ""
            return "***" + kept
        assert self._key is not None
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]

    def __repr__(self) -> str:
        return f"<Mask {', '.join(sorted(self.hides))}: {self.how}>"


def mask(
    *columns: str,
    how: How = "hash",
    key: str | bytes | None = None,
    shown: int = 0,
    on_error: OnError = "fail_run",
) -> Mask:
    """Mask columns: by a keyed hash, which still tells values apart, by stars, or by nothing at all.

    `hash` is HMAC-SHA-256 with `key`, 32 hexadecimal digits; `stars` shows the
    last `shown` characters; `missing` leaves the column empty. Cells of these
    columns that could not be read are counted, and their text is not kept.

    >>> import pyarrow as pa
    >>> step = mask("card", how="stars", shown=4)
    >>> step.map("a.csv", pa.table({"card": ["4111111111111111", None]}))["card"].to_pylist()
    ['***1111', None]
    """
    secret = key.encode() if isinstance(key, str) else key
    return Mask(columns, how, secret, shown=shown, on_error=on_error)
