"""Leases of snapshots: what somebody reads now is spared by `gc`, though a reset has cut it off.

A lease is a small object beside the datasets, in the place of the log of cuts:

    pinned/3f…    {"positions": {"did:odf:fed01…": "f1620…"}, "expires": "2026-11-13T10:00:00Z"}

It is removed when the snapshot is closed or forgotten. One whose process died is passed over once it has
expired, and removed by the next `gc`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from trueline.chain.instant import Instant
from trueline.errors import InputError, OutcomeUnknown, StoreError, TruelineError
from trueline.identity.multihash import Multihash
from trueline.workspace.small_objects import SmallObjects

_FOLDER: Final = "pinned"
_SECONDS: Final = 3600
_SECOND: Final = 1_000_000_000


@dataclass(slots=True)
class SnapshotLease:
    """One lease: blocks by the ids of datasets, until `expires`; whoever reads goes on holding it."""

    objects: SmallObjects
    positions: Mapping[str, Multihash]
    name: str
    expires: Instant

    @classmethod
    def take(cls, objects: SmallObjects, positions: Mapping[str, Multihash]) -> SnapshotLease:
        """Take a lease; a place that nobody can write to needs none, for nobody can remove anything."""
        lease = cls(objects, positions, f"{_FOLDER}/{secrets.token_hex(16)}", Instant(0))
        lease.renew()
        return lease

    def renew(self) -> None:
        """Hold on to it if half of its time has passed."""
        now = Instant.now()
        if self.expires - now > _SECONDS * _SECOND // 2:
            return
        expires = Instant(now + _SECONDS * _SECOND)
        document = {
            "positions": {name: str(block) for name, block in self.positions.items()},
            "expires": str(expires),
        }
        with suppress(StoreError, OutcomeUnknown):
            self.objects.put(self.name, json.dumps(document, sort_keys=True).encode() + b"\n")
            self.expires = expires

    def release(self) -> None:
        """Give it back."""
        with suppress(TruelineError, OSError):
            self.objects.remove(self.name)


def pinned(objects: SmallObjects, dataset_id: str) -> list[Multihash]:
    """Return the blocks of a dataset that open snapshots hold; leases that have expired are removed."""
    now = Instant.now()
    found: list[Multihash] = []
    for name in objects.names(_FOLDER):
        raw = objects.read(f"{_FOLDER}/{name}").raw
        positions = _held(raw, now) if raw is not None else {}
        if positions is None:
            with suppress(StoreError):
                objects.remove(f"{_FOLDER}/{name}")
        elif dataset_id in positions:
            found.append(positions[dataset_id])
    return found


def _held(raw: bytes, now: Instant) -> dict[str, Multihash] | None:
    """Return what a lease holds; None if it has expired, or was cut short as it was put."""
    try:
        document = json.loads(raw)
        if Instant.parse(document["expires"]) < now:
            return None
        return {name: Multihash.parse(block) for name, block in document["positions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return None
