"""What the text of a cell may look like: the rules all text formats share."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trueline.errors import InputError, SchemaError, check_memory
from trueline.readers.formats import compiled

TRUE = ("true", "True", "TRUE", "1", "yes", "Yes", "YES", "y", "Y", "t", "T")
FALSE = ("false", "False", "FALSE", "0", "no", "No", "NO", "n", "N", "f", "F")


@dataclass(frozen=True, slots=True)
class CellRules:
    """How cells become values; `docs/reference/readers.md` has the table.

    >>> CellRules(date_format="%d.%m.%Y").decimal
    '.'
    """

    nulls: tuple[str, ...] = ("",)
    true_values: tuple[str, ...] = TRUE
    false_values: tuple[str, ...] = FALSE
    decimal: str = "."
    date_format: str | None = None
    timestamp_format: str | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        for name in ("nulls", "true_values", "false_values"):
            words = getattr(self, name)
            if isinstance(words, str) or not all(isinstance(word, str) for word in words):
                raise InputError(
                    f"{name} is {words!r}, not a list of strings", remedy="give a list of strings"
                )
            if any(len(word.encode()) > 200 or "\0" in word for word in words):
                raise InputError(
                    f"{name} has a word of more than 200 bytes or with a zero byte", remedy="give other words"
                )
            object.__setattr__(self, name, tuple(words))
        both = sorted(set(self.true_values) & set(self.false_values))
        if both:
            raise InputError(
                f"{both[0]!r} is in both true_values and false_values", remedy="take it out of one list"
            )
        if self.decimal not in {".", ","}:
            raise InputError(
                f"decimal is {self.decimal!r}, which is not a decimal point", remedy="give '.' or ','"
            )
        for form in (self.date_format, self.timestamp_format):
            if form is not None:
                compiled(form)
        try:
            pa.scalar(0, pa.timestamp("s")).cast(pa.timestamp("s", self.timezone)).as_py()
        except (pa.ArrowException, KeyError, ValueError, LookupError, TypeError) as error:
            check_memory(error, "looking a time zone up")
            raise InputError(
                f"there is no time zone {self.timezone!r}", remedy="give one such as 'Europe/Zurich'"
            ) from None


def is_text(kind: pa.DataType) -> bool:
    """Text of any layout.

    >>> is_text(pa.large_string()), is_text(pa.binary())
    (True, False)
    """
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Bytes of any layout."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_readable(kind: pa.DataType, *, nested: bool = False) -> bool:
    """Whether a cell of text can become a value of this type."""
    types = pa.types
    if nested and (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return is_readable(kind.value_type, nested=True)
    if nested and types.is_struct(kind):
        return all(is_readable(field.type, nested=True) for field in kind)
    if not nested and types.is_duration(kind):
        return True
    flat = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_date)
    more = (types.is_timestamp, types.is_time, types.is_null, is_text, is_bytes)
    return any(test(kind) for test in (*flat, *more))


def check_readable(schema: pa.Schema, what: str, *, nested: bool = False) -> None:
    """Refuse a schema whose types cannot be read from this kind of file."""
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise SchemaError(f"the schema has two columns named {twice[0]!r}", remedy="rename one")
    for field in schema:
        if not is_readable(field.type, nested=nested):
            raise SchemaError(
                f"column {field.name!r}: {what} cannot hold {field.type}",
                remedy="declare the column as text and convert it later",
                column=field.name,
            )
