"""Where a dataset stands, for people and programs that ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trueline.chain.instant import Instant
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash


@dataclass(frozen=True, slots=True)
class Info:
    """What is known of a dataset without reading its rows: counts, times, definition."""

    name: str
    kind: str
    id: DatasetId
    head: Multihash
    rows: int
    commits: int
    blocks: int
    created: Instant
    updated: Instant
    watermark: Instant | None
    lateness: str | None
    event_time: str | None
    merge: str | None
    sources: tuple[str, ...]
    description: str | None
    last_slice_bytes: int
    location: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        values = {name: getattr(self, name) for name in self.__slots__}
        moments = {
            name: None if values[name] is None else str(values[name])
            for name in ("created", "updated", "watermark")
        }
        return values | moments | {"sources": list(self.sources)}


@dataclass(frozen=True, slots=True)
class Health:
    """What goes on around a dataset: the state of its index, and since when a commit is in flight."""

    index: str
    in_flight_since: float | None
