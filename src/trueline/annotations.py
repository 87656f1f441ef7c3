"""Annotations of columns, `domain/name` → any JSON, and how Arrow carries them.

In Arrow each is an entry of the field's metadata with compact JSON as its value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def annotations_of_arrow(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return the annotations among a field's metadata; other entries (of Parquet, of pandas) are not ours.

    >>> annotations_of_arrow({b"shop/unit": b'"CHF"', b"PARQUET:field_id": b"1"})
    {'shop/unit': 'CHF'}
    """
    found: dict[str, Any] = {}
    for key, value in (metadata or {}).items():
        if b"/" not in key:
            continue
        try:
            found[key.decode()] = json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
    return found


def annotations_to_arrow(annotations: Mapping[str, Any]) -> dict[str, str] | None:
    """Return annotations as metadata of an Arrow field, None for none.

    >>> annotations_to_arrow({"shop/unit": "CHF"})
    {'shop/unit': '"CHF"'}
    """
    if not annotations:
        return None
    return {
        key: json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for key, value in sorted(annotations.items())
    }


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
