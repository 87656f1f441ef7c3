"""Leases in an object store: who is writing to a dataset now, and who was given up.

An object store cannot tell whether a writer lives, so a lease is an object
that its writer writes again from time to time, and one that was not written
for a day may be given up by a collection. No commit loses its data to that,
whatever the clocks of the machines say and however long one of them slept:

1. Ages are differences of the store's own stamps: of the lease, and of what
   the collector has just written. The store's clock is taken not to go back.
2. A lease is given up by writing `dead` into it, on the condition that it is
   as it was when it was judged; its writer writes it again on the condition
   that it is as he left it. One of the two fails, so both know.
3. A writer reads the head, then confirms its lease, then moves the head on
   the condition that it is as it was read. A collector gives leases up, then
   writes the head again with another line break at its end (`fence`), then
   asks what is reached, then removes. A writer that confirmed before it was
   given up has read the head before the fence, so that its move fails, or it
   has moved it before the fence, so that its objects are reached. One that
   confirms later finds its lease dead and is refused.
4. A writer that was not given up began before the limit of the collection,
   which spares all that was stamped since.
5. The stores have no removal under a condition: between the look at a stamp and
   the removal a writer may put the same object again. So who removes announces
   it first, and a writer that relied on an object that was there is refused
   while there is an announcement, after it has put the object again. Who
   announces later sees the new stamp. An announcement holds for a quarter of an
   hour and is renewed every minute; what is left is a collector that stops for
   longer between two instructions, just before it removes such an object.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.chain.store.object_client import condition
from trueline.errors import StoreError

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult
    from obstore.store import ObjectStore as Client

LEASE_SECONDS: Final = 86_400.0
RENEW_SECONDS: Final = 600.0
# An announcement is written again after a minute, not relied on for removals after five, and believed
# for fifteen.
_ANNOUNCE_SECONDS: Final = 60.0
_REMOVE_SECONDS: Final = 300.0
_BELIEVE_SECONDS: Final = 900.0
_DEAD: Final = b"dead"
# A head with so many line breaks is written without any again.
_FENCES: Final = 1000
_LEASES: Final = "private/leases"
_COLLECTING: Final = "private/collecting"


def elapsed() -> float:
    """Return seconds on a clock that cannot be set and that continues while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease of ours: when it began by the store's clock, and how we left it."""

    key: str
    started: float
    unchanged: PutMode
    renewed: float  # by `elapsed`


class ObjectLeases:
    """The leases of one dataset in an object store, and the one that is held here."""

    def __init__(
        self,
        client: Client,
        key: Callable[..., str],
        refusing: Callable[[str, str], AbstractContextManager[None]],
        seconds: float,
    ) -> None:
        self._client = client
        self._key = key
        self._refusing = refusing
        self._seconds = seconds
        self._held: _Held | None = None
        self._lost = False
        self._measured: tuple[float, float] | None = None
        self._announced: tuple[str, float] | None = None

    # --- the lease held here ----------------------------------------------

    def renew(self) -> None:
        """Take the lease, or write it again when it has become old."""
        if self._held is None:
            self._held = self._begin()
        elif self._lost or elapsed() - self._held.renewed >= RENEW_SECONDS:
            self.confirm()

    def _begin(self) -> _Held:
        import obstore

        key = self._key(_LEASES, f"{time.time_ns()}-{secrets.token_hex(8)}")
        with self._refusing("write", _LEASES):
            renewed = elapsed()
            put = obstore.put(self._client, key, _text(None), mode="create")
            started = obstore.head(self._client, key)["last_modified"].timestamp()
        self._measured = (started, renewed)
        return _Held(key, started, condition(put), renewed)

    def confirm(self) -> None:
        """Write the lease again; refuse to go on if it is not as it was left."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        held = self._held
        if held is None or self._lost:
            raise self._given_up()
        text, renewed = _text(held.started), elapsed()
        with self._refusing("write", _LEASES):
            put: PutResult | ObjectMeta
            try:
                put = obstore.put(self._client, held.key, text, mode=held.unchanged)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                # The library may have sent again what had been done.
                found = self._read(held.key)
                if found is None or found[0] != text:
                    self._lost = True
                    raise self._given_up() from None
                put = found[1]
        self._held = _Held(held.key, held.started, condition(put), renewed)

    def end(self) -> None:
        """Give the lease back."""
        import obstore
        from obstore.exceptions import BaseError

        held, self._held, lost, self._lost = self._held, None, self._lost, False
        if held is not None and not lost:
            # Where it cannot be removed it expires; the commit it was for is done.
            with suppress(BaseError, OSError):
                obstore.delete(self._client, held.key)

    def _given_up(self) -> StoreError:
        place = self._key(_LEASES)
        return StoreError(
            f"the lease of this commit in {place} is gone or was given up: "
            "it was not renewed for too long, or somebody removed it, and its objects may be gone too",
            remedy="nothing was changed; do the commit again",
            code="LeaseLost",
            path=place,
        )

    # --- the leases of all ------------------------------------------------

    def clock(self) -> float:
        """Return about what time it is by the store's clock, by what was measured last."""
        if self._measured is None:
            self.measure()
        assert self._measured is not None
        stamp, then = self._measured
        return stamp + elapsed() - then

    def measure(self) -> float:
        """Return the stamp of something just written: the time by the store's clock."""
        import obstore

        if self._held is not None:
            self.confirm()
            with self._refusing("read", _LEASES):
                stamp = obstore.head(self._client, self._held.key)["last_modified"].timestamp()
            self._measured = (stamp, self._held.renewed)
        else:
            self._held = self._begin()
            stamp = self._held.started
            self.end()
        return stamp

    def oldest(self) -> float | None:
        """Return when the oldest lease began that is not too old; nothing is written."""
        now = time.time() if self._measured is None else self.clock()
        starts = []
        for meta in self._list(_LEASES):
            if now - meta["last_modified"].timestamp() <= self._seconds:
                found = self._read(meta["path"])
                if found is not None and found[0] != _DEAD:
                    starts.append(_started(*found))
        return min(starts, default=None)

    def give_up_old(self) -> tuple[float | None, list[str]]:
        """Mark the leases that are too old as dead; return when the oldest other began, and the dead ones."""
        now, starts, dead = self.measure(), list[float](), list[str]()
        mine = self._held.key if self._held is not None else ""
        for meta in self._list(_LEASES):
            found = self._read(meta["path"])
            while found is not None and meta["path"] != mine and self._is_old(*found, now):
                if found[0] == _DEAD or self._mark(meta["path"], found[1]):
                    dead.append(meta["path"])
                    found = None
                else:
                    found = self._read(meta["path"])
            if found is not None:
                starts.append(_started(*found))
        return min(starts, default=None), dead

    def _is_old(self, text: bytes, meta: ObjectMeta, now: float) -> bool:
        return text == _DEAD or now - meta["last_modified"].timestamp() > self._seconds

    def _mark(self, key: str, meta: ObjectMeta) -> bool:
        """Write `dead` into a lease; False if its writer came first."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._refusing("write", _LEASES):
            try:
                obstore.put(self._client, key, _DEAD, mode=condition(meta))
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return False
        return True

    def fence(self, key: str) -> None:
        """Write a ref as it is, but for a line break: who has read it before cannot move it any more.

        A ref that was never set gets the line break alone, which reads as unset.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        while True:
            text, meta = self._read(key) or (b"", None)
            text = text.rstrip(b"\n") if text.endswith(b"\n" * _FENCES) else text
            with self._refusing("write", key):
                try:
                    obstore.put(self._client, key, text + b"\n", mode=condition(meta))
                    return
                except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                    continue  # somebody moved it: who reads what is reached from now on sees that

    def forget(self, dead: list[str]) -> None:
        """Remove leases that were marked as dead."""
        import obstore

        with self._refusing("remove", _LEASES):
            for key in dead:
                with suppress(FileNotFoundError):
                    obstore.delete(self._client, key)

    # --- removing beside them ---------------------------------------------

    def announce(self) -> None:
        """Say that objects are about to be removed; said once a minute at most."""
        import obstore

        now = elapsed()
        if self._announced is not None and now - self._announced[1] < _ANNOUNCE_SECONDS:
            return
        key = self._announced[0] if self._announced else self._key(_COLLECTING, secrets.token_hex(8))
        with self._refusing("write", _COLLECTING):
            obstore.put(self._client, key, b"")
        self._announced = (key, now)

    @property
    def is_announced(self) -> bool:
        """Whether others can still be relied on to know."""
        return self._announced is not None and elapsed() - self._announced[1] < _REMOVE_SECONDS

    def retract(self) -> None:
        """Say that nothing is being removed any more."""
        import obstore
        from obstore.exceptions import BaseError

        announced, self._announced = self._announced, None
        if announced is not None:
            with suppress(BaseError, OSError):
                obstore.delete(self._client, announced[0])

    def refuse_beside_removals(self) -> None:
        """Raise while somebody removes objects."""
        for meta in self._list(_COLLECTING):
            if self.clock() - meta["last_modified"].timestamp() <= _BELIEVE_SECONDS:
                raise StoreError(
                    f"{meta['path']} says that objects are being removed; this commit relies on one that "
                    "was there before, which may be among them",
                    remedy="nothing was changed; do the commit again when the collection has ended",
                    code="BeingCollected",
                    path=meta["path"],
                )

    # --- requests ---------------------------------------------------------

    def _list(self, folder: str) -> Iterator[ObjectMeta]:
        import obstore

        with self._refusing("list", folder):
            yield from [meta for page in obstore.list(self._client, self._key(folder)) for meta in page]

    def _read(self, key: str) -> tuple[bytes, ObjectMeta] | None:
        import obstore

        with self._refusing("read", _LEASES):
            try:
                found = obstore.get(self._client, key)
                return found.bytes().to_bytes(), found.meta
            except FileNotFoundError:
                return None


def _text(started: float | None) -> bytes:
    """What a lease holds: when it began, once the store has said, and what tells one writing from another."""
    return f"{'-' if started is None else repr(started)} {secrets.token_hex(8)}".encode("ascii")


def _started(text: bytes, meta: ObjectMeta) -> float:
    """Return when a lease began, by the store's clock."""
    stamp = meta["last_modified"].timestamp()
    with suppress(ValueError, IndexError):
        return min(stamp, float(text.split()[0]))
    return stamp
