"""Where a clone came from: kept in the workspace beside its datasets, and never in a dataset."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from trueline.chain.instant import Instant
from trueline.chain.store.folders import Inside
from trueline.identity.multihash import Multihash
from trueline.workspace.locations import Place

# Where earlier versions kept it: beside the keys, on one machine.
_FORMER: Final = "origins"


@dataclass(frozen=True, slots=True)
class CopyOrigin:
    """The place a dataset is a copy of, and how it was when it was last brought up to it.

    Credentials and queries of the address are left out. Without a head the clone is not finished. `id`
    says which dataset was brought (None where an earlier version kept it).
    """

    url: str
    head: Multihash | None
    updated: Instant
    findings: tuple[str, ...] = ()
    id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "url": self.url,
            "head": None if self.head is None else str(self.head),
            "updated": str(self.updated),
            "findings": list(self.findings),
            "id": self.id,
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> CopyOrigin:
        """Read what `to_dict` gave."""
        head, whose = value["head"], value.get("id")
        return cls(
            str(value["url"]),
            None if head is None else Multihash(head),
            Instant.parse(value["updated"]),
            tuple(str(text) for text in value["findings"]),
            None if whose is None else str(whose),
        )


def _former(place: Place, name: str) -> Inside:
    return place.inside(place.keys.parent / _FORMER / f"{name}.json")


def origin_of(place: Place, name: str) -> CopyOrigin | None:
    """Return where a dataset was cloned from, None if it was not (or if that was not recorded)."""
    raw = place.read_origin(name)
    if raw is None:
        with suppress(OSError):
            raw = _former(place, name).read_small()
    try:
        return None if raw is None else CopyOrigin.of(json.loads(raw))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def keep_origin(place: Place, name: str, origin: CopyOrigin) -> None:
    """Remember where a dataset came from; what an earlier version kept elsewhere is adopted."""
    value = origin.to_dict() | {"url": _without_secrets(origin.url)}
    place.write_origin(name, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")
    _forget_former(place, name)


def forget_origin(place: Place, name: str) -> None:
    """Forget where what was under a name came from, now that something else is there."""
    # A user who may only add to an object store need not delete what is not there.
    if place.read_origin(name) is not None:
        place.write_origin(name, None)
    _forget_former(place, name)


def _forget_former(place: Place, name: str) -> None:
    with suppress(OSError):
        _former(place, name).remove()


def _without_secrets(url: str) -> str:
    """Return an address without user, password, query and fragment.

    >>> _without_secrets("https://ann:secret@example.org/lake?token=x")
    'https://example.org/lake'
    """
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def forget_unfinished(place: Place, name: str) -> None:
    """Forget that a clone was begun under a name, now that something else comes there."""
    if is_unfinished(place, name):
        forget_origin(place, name)


def is_unfinished(place: Place, name: str) -> bool:
    """Say whether what lies under a name is the beginning of a clone."""
    found = origin_of(place, name)
    return found is not None and found.head is None
