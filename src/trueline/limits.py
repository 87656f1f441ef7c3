"""How much may be in memory at once, whatever a file says; sizes as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from trueline.errors import InputError, LimitExceeded

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
COLUMNS: Final = 10_000
RECORD_BYTES: Final = 16 * MIB
BATCH_BYTES: Final = 128 * MIB
# Cells that are made at once: rows that lack many cells would otherwise fill the memory with nulls.
CELLS: Final = 1 << 22
# Levels of structs and lists inside each other.
DEPTH: Final = 100
# How many times `batch_bytes` the pages may have that the columns of a Parquet file hold open together.
PAGES: Final = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Columns of a file, bytes of one record, and bytes of the rows that are decoded at once.

    Reading a file holds at most 64 × `record_bytes` (text) or 16 × `batch_bytes` (Parquet) (guard:G8).

    >>> Limits(columns=2).check_columns("a.csv", 3)
    Traceback (most recent call last):
    trueline.errors.LimitExceeded: a.csv has 3 columns, more than limits.columns allows (2)
      → if the file is right, raise it: trueline config set limits.columns 3, or the reader's max_columns=3
    """

    columns: int = COLUMNS
    record_bytes: int = RECORD_BYTES
    batch_bytes: int = BATCH_BYTES

    def __post_init__(self) -> None:
        if min(self.columns, self.record_bytes, self.batch_bytes) < 1:
            raise InputError("a limit is less than 1", remedy="give numbers of at least 1")

    def check_columns(self, path: str, found: int, line: int | None = None) -> None:
        """Refuse a file with too many columns."""
        if found > self.columns:
            raise LimitExceeded(
                f"{path} has {found:,} columns, more than limits.columns allows ({self.columns:,})",
                remedy=_remedy("limits.columns", str(found), "max_columns", str(found)),
                code="TooManyColumns",
                path=path,
                line=line,
                limit="limits.columns",
                allowed=self.columns,
                found=found,
            )

    def too_large(self, path: str, what: str, found: int) -> LimitExceeded:
        """The error of something in a file that has to be in memory as a whole, and is too large for it."""
        return LimitExceeded(
            f"{path}: {what} takes {shown(found)} in memory, more than limits.batch_bytes allows "
            f"({shown(self.batch_bytes)})",
            remedy=_remedy("limits.batch_bytes", shown(found), "max_batch_bytes", str(found)),
            path=path,
            limit="limits.batch_bytes",
            allowed=self.batch_bytes,
            found=found,
        )


DEFAULT: Final = Limits()


def record_too_long(path: str, line: int, limit: int, found: int) -> LimitExceeded:
    """The error of a record that does not end within the limit."""
    wanted = max(4 * limit, KIB)
    return LimitExceeded(
        f"{path}: the record that begins on line {line} is longer than limits.record_bytes allows "
        f"({limit:,} bytes)",
        remedy="look for a quote that is never closed; "
        + _remedy("limits.record_bytes", shown(wanted), "max_record_bytes", str(wanted)),
        code="RecordTooLong",
        path=path,
        line=line,
        limit="limits.record_bytes",
        allowed=limit,
        found=found,
    )


def _remedy(setting: str, value: str, option: str, number: str) -> str:
    return (
        f"if the file is right, raise it: trueline config set {setting} {value}, "
        f"or the reader's {option}={number}"
    )


def shown(size: int) -> str:
    """Write a number of bytes as settings have it, never less than it is.

    >>> shown(16 << 20), shown((16 << 20) + 1), shown(17)
    ('16MiB', '17MiB', '17B')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= 16 * unit or (size >= unit and size % unit == 0):
            return f"{-(-size // unit)}{name}"
    return f"{size}B"


_UNITS: Final = {
    "": 1,
    "b": 1,
    **{
        f"{p}{b}": (1000 if b == "b" else 1024) ** n
        for n, p in enumerate("kmg", start=1)
        for b in ("ib", "b")
    },
}


@lru_cache(maxsize=64, typed=True)
def size_of(value: Any) -> int:
    """Return the bytes that a size means.

    >>> size_of("64MiB"), size_of("1 kB"), size_of(4096)
    (67108864, 1000, 4096)
    """
    found = re.fullmatch(r"([1-9]\d{0,14}) ?([kmg]i?b|b|)", str(value).strip().lower())
    if found is None or isinstance(value, bool):
        raise InputError(f"{value!r} is not a size", remedy="write it like 64MiB")
    return int(found.group(1)) * int(_UNITS[found.group(2)])


def limits_of(settings: Mapping[str, Any]) -> Limits:
    """Return what a workspace's settings allow to be in memory at once; the defaults where there are none."""

    said = {
        "columns": settings.get("limits.columns"),
        "record_bytes": settings.get("limits.record_bytes"),
        "batch_bytes": settings.get("limits.batch_bytes"),
    }
    return Limits(**{name: size_of(value) for name, value in said.items() if value is not None})
