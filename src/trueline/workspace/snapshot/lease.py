"""Leases of snapshots: what somebody reads now is spared by `gc`, though a reset has cut it off.

A lease is a small object beside the datasets, in the place of the log of cuts:

    pinned/3f…    {"positions": {"did:odf:fed01…": "f1620…"}, "expires": "2026-11-13T10:00:00Z"}

It is removed when the snapshot is closed or forgotten by the process that took it: forked children have
copies of the snapshot, and only forget. Until then one thread of that process renews it, however long nobody
asks the snapshot for anything. One whose process died is passed over once it has expired, and removed by the
next `gc`.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from trueline.chain.instant import Instant
from trueline.errors import InputError, StorageReadOnly, StoreError, TruelineError
from trueline.identity.multihash import Multihash
from trueline.workspace.small_objects import SmallObjects

_FOLDER: Final = "pinned"
_SECONDS: Final = 3600
_SECOND: Final = 1_000_000_000
# So often is looked which of them have half of their time behind them.
_PAUSE: Final = _SECONDS / 6


@dataclass(slots=True)
class SnapshotLease:
    """One lease: blocks by the ids of datasets, until `expires`; whoever reads goes on holding it."""

    objects: SmallObjects
    positions: Mapping[str, Multihash]
    name: str
    expires: Instant
    process: int = field(default_factory=os.getpid)
    is_released: bool = False

    @classmethod
    def take(cls, objects: SmallObjects, positions: Mapping[str, Multihash]) -> SnapshotLease:
        """Take a lease, `StoreError` if it cannot be put.

        A place that nobody can write to needs none, for nobody can remove anything.
        """
        lease = cls(objects, positions, f"{_FOLDER}/{secrets.token_hex(16)}", Instant(0))
        lease.renew()
        KEEPER.keep(lease)
        return lease

    def renew(self) -> None:
        """Hold on to it if half of its time has passed; a store that fails meanwhile is asked again later."""
        now = Instant.now()
        if not self.is_held() or self.expires - now > _SECONDS * _SECOND // 2:
            return
        expires = Instant(now + _SECONDS * _SECOND)
        document = {
            "positions": {name: str(block) for name, block in self.positions.items()},
            "expires": str(expires),
        }
        try:
            self.objects.put(self.name, json.dumps(document, sort_keys=True).encode() + b"\n")
            self.expires = expires
        except StorageReadOnly:
            pass
        except StoreError:
            if self.expires < now:
                raise  # it holds nothing
        if not self.is_held():
            self.release()  # it was given back meanwhile

    def is_held(self) -> bool:
        """Say whether it was not given back."""
        return not self.is_released

    def release(self) -> None:
        """Give it back; in a forked child only forget it, for it is still its parent's."""
        self.is_released = True
        KEEPER.leases.pop(self.name, None)
        if self.process != os.getpid():
            return
        with suppress(TruelineError, OSError):
            self.objects.remove(self.name)


@dataclass
class LeaseKeeper:
    """The one thread that renews the leases of a process; it ends when there are none.

    Python may release a forgotten one at any moment, in any thread: that takes no lock.
    """

    pause: float = _PAUSE
    leases: dict[str, SnapshotLease] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _process: int = field(default_factory=os.getpid)
    _changing: threading.RLock = field(default_factory=threading.RLock)

    def keep(self, lease: SnapshotLease) -> None:
        """Renew a lease until it is released."""
        if self._process != os.getpid():
            # A forked child has no threads of its parent, which keeps its own leases.
            self._process, self._changing = os.getpid(), threading.RLock()
            self._thread = None
            self.leases.clear()
        with self._changing:
            self.leases[lease.name] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._keeping, name="trueline-lease", daemon=True)
                self._thread.start()

    def _keeping(self) -> None:
        pausing = threading.Event()
        while True:
            pausing.wait(self.pause)
            held: list[SnapshotLease] = []
            with suppress(RuntimeError):  # one was released as they were listed: the next look is soon enough
                held = list(self.leases.values())
            for lease in held:
                with suppress(TruelineError, OSError):  # a store that does not answer now may do so in time
                    lease.renew()
            with self._changing:
                if not self.leases:
                    self._thread = None
                    return


KEEPER: Final = LeaseKeeper()


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
