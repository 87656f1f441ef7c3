"""Where a clone came from; kept beside the workspace's keys, not in the dataset."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trueline.chain.inside import Inside
from trueline.chain.instant import Instant
from trueline.identity.multihash import Multihash
from trueline.workspace.places import Place


@dataclass(frozen=True, slots=True)
class Origin:
    """The place a dataset is a copy of, and how it stood when it was last brought up to it.

    Credentials and queries of the address are left out. Without a head the clone is not finished.
    """

    url: str
    head: Multihash | None
    updated: Instant
    findings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "url": self.url,
            "head": None if self.head is None else str(self.head),
            "updated": str(self.updated),
            "findings": list(self.findings),
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Origin:
        """Read what `to_dict` gave."""
        head = value["head"]
        return cls(
            str(value["url"]),
            None if head is None else Multihash(head),
            Instant.parse(value["updated"]),
            tuple(str(text) for text in value["findings"]),
        )


def _path(place: Place, name: str) -> Inside:
    return place.inside(place.keys.parent / "origins" / f"{name}.json")


def origin_of(place: Place, name: str) -> Origin | None:
    """Return where a dataset was cloned from, None if it was not (or if nobody remembers)."""
    try:
        return Origin.of(json.loads(_path(place, name).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_origin(place: Place, name: str, origin: Origin) -> None:
    """Remember where a dataset came from."""
    text = json.dumps(origin.to_dict(), indent=2, ensure_ascii=False) + "\n"
    _path(place, name).write(text.encode(), replace=True)


def forget_unfinished(place: Place, name: str) -> None:
    """Forget that a clone was begun under a name, now that something else comes there."""
    if is_unfinished(place, name):
        with suppress(OSError):
            _path(place, name).unlink(missing_ok=True)


def is_unfinished(place: Place, name: str) -> bool:
    """Say whether what lies under a name is the beginning of a clone."""
    found = origin_of(place, name)
    return found is not None and found.head is None
