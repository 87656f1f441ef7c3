"""What may be in memory at once: sizes as people write them, and the limits that settings say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.readers import Limits

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
    from trueline.readers import Limits

    said = {
        "columns": settings.get("limits.columns"),
        "record_bytes": settings.get("limits.record_bytes"),
        "batch_bytes": settings.get("limits.batch_bytes"),
    }
    return Limits(**{name: size_of(value) for name, value in said.items() if value is not None})
