"""Transactions over several roots: no cut falls between their appends, in this process or another.

An *intent* is put down before the first append: the roots, and where each was. While it is open a cut takes
these roots where they were. When it is closed the next cut takes all of them together. Its owner renews it;
one that was not renewed in time, or whose block of code failed half-way, is broken: cuts go on, and the
first that passes it names it.

All intents are one document beside the cuts, changed by compare-and-set, so that one read shows all of
them at one moment. Who records a cut reads it before and after the heads:

- An intent that is open at the second look, or was not closed at the first, holds its roots.
- One that was closed at the first look had done its appends before the heads were read.
- One that came and went between the two looks was forgotten because a cut with the next number passed it,
  so that the number is taken and everything begins again.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from trueline.chain.datatypes import Extra
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.errors import (
    InputError,
    OutcomeUnknown,
    RetryError,
    StoreError,
    TruelineError,
    UnsupportedVersion,
)
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.cut import TRANSACTION, UNREADABLE, check_version, dataset_of, reason
from trueline.workspace.cuts.roots import Roots, heads_of, positions_of
from trueline.workspace.locations import cuts_damaged
from trueline.workspace.small_objects import SmallObjects
from trueline.workspace.snapshot.made_from import ChainOf

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

_NAME: Final = "transactions"
_FORMAT: Final = "trueline/transactions"
_VERSION: Final = 1
_FIELDS: Final = ("id", "state", "roots", "started", "renewed", "seconds")
_MOST: Final = 10_000
_MOST_SECONDS: Final = 7 * 86_400.0
_ATTEMPTS: Final = 1000
# For so long cuts wait for a process that died. Clocks of machines are taken to differ by less.
LEASE_SECONDS: Final = 300.0
# Renewed so many times before it would expire.
_RENEWALS: Final = 5

Clock = Callable[[], Instant]
# What appends call before they begin: the `join` of each transaction they are made in.
Joins = ContextVar[tuple[Callable[[DatasetId], None], ...]]


class IntentState(StrEnum):
    """Whether an intent still holds its roots."""

    OPEN = "open"
    CLOSED = "closed"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Intent:
    """What a transaction said it would append to: its roots, and where each was before (None: no data)."""

    id: str
    roots: Mapping[DatasetId, Position | None]
    started: Instant
    renewed: Instant
    seconds: float = LEASE_SECONDS
    state: IntentState = IntentState.OPEN
    more: Mapping[str, Any] = field(default_factory=dict)

    def is_over(self, now: Instant) -> bool:
        """Say whether it is open and was not renewed in time."""
        return self.state is IntentState.OPEN and now - self.renewed > self.seconds * 1e9

    @property
    def told(self) -> str:
        """Which transaction it is, and until when it holds its roots if it is not renewed, for people."""
        expires = Instant(self.renewed + int(self.seconds * 1e9))
        return f"transaction {self.id[:8]} until {str(expires)[:19].replace('T', ' ')} UTC"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **self.more,
            "id": self.id,
            "state": str(self.state),
            "roots": {str(name): None if at is None else at.to_dict() for name, at in self.roots.items()},
            "started": str(self.started),
            "renewed": str(self.renewed),
            "seconds": self.seconds,
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Intent:
        """Read what `to_dict` gave; what is not of that form raises."""
        name, seconds = value["id"], value["seconds"]
        if not isinstance(name, str) or not TRANSACTION.fullmatch(name):
            raise ValueError(f"{name!r:.80} is not the id of a transaction")
        if type(seconds) not in (int, float) or not 0 < seconds <= _MOST_SECONDS:
            raise ValueError(f"it holds for {seconds!r:.80} seconds")
        roots = {
            dataset_of(each): None if at is None else Position.of(at) for each, at in value["roots"].items()
        }
        started, renewed = Instant.parse(value["started"]), Instant.parse(value["renewed"])
        more = {key: item for key, item in value.items() if key not in _FIELDS}
        return cls(name, roots, started, renewed, float(seconds), IntentState(value["state"]), more)


Intents = dict[str, Intent]


class IntentDocument:
    """The intents of a workspace."""

    def __init__(self, objects: SmallObjects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self.path = f"{objects.location}/{_NAME}"

    def read(self) -> Intents:
        """Return the intents that no cut has passed yet, by id."""
        return self._parsed(self._objects.read(_NAME).raw)

    def unfinished(self) -> tuple[Intent, ...]:
        """Return those that were not renewed in time, or failed half-way, the oldest first."""
        now = self._clock()
        over = [
            each for each in self.read().values() if each.state is IntentState.BROKEN or each.is_over(now)
        ]
        return tuple(sorted(over, key=lambda each: (each.started, each.id)))

    def holding(self, roots: Iterable[DatasetId]) -> tuple[Intent, ...]:
        """Return those that are open and hold some of these roots where they were, the oldest first."""
        wanted, now = frozenset(roots), self._clock()
        found = [
            each
            for each in self.read().values()
            if each.state is IntentState.OPEN and not each.is_over(now) and wanted & each.roots.keys()
        ]
        return tuple(sorted(found, key=lambda each: (each.started, each.id)))

    def passing(self) -> Intents:
        """Return the intents for who reads past those that are over: they are marked as broken before that.

        Where that cannot be written they hold as before, since their owners would not be told.
        """
        known, now = self.read(), self._clock()
        if any(each.is_over(now) for each in known.values()):
            with suppress(StoreError, OutcomeUnknown, RetryError):
                return self.settled(())
        return known

    def settled(self, named: Iterable[str]) -> Intents:
        """Return the intents, those that are over marked as broken, those that a cut `named` forgotten.

        What is marked stays so: its owner, if it still lives, is told when it closes the transaction.
        """
        now, gone = self._clock(), frozenset(named)

        def change(intents: Intents) -> Intents:
            kept = (each for each in intents.values() if each.id not in gone)
            marked = (replace(e, state=IntentState.BROKEN) if e.is_over(now) else e for e in kept)
            return {each.id: each for each in marked}

        return self.change(change)

    def forget(self, passed: Iterable[str]) -> None:
        """Forget intents that a cut has passed."""
        gone = frozenset(passed)
        if gone:
            self.change(lambda intents: {name: of for name, of in intents.items() if name not in gone})

    def change(self, change: Callable[[Intents], Intents]) -> Intents:
        """Read, change and swap, as often as others were faster."""
        for _ in range(_ATTEMPTS):
            kept = self._objects.read(_NAME)
            known = self._parsed(kept.raw)
            now = change(known)
            if now == known or self._objects.swap(_NAME, kept, _to_bytes(now)):
                return now
        raise RetryError(
            f"{self.path} was changed by others {_ATTEMPTS:,} times in a row",
            remedy="nothing was changed; try again",
            code="TransactionsBusy",
        )

    def _parsed(self, raw: bytes | None) -> Intents:
        if raw is None:
            return {}
        try:
            value = json.loads(raw)
            check_version(value, _FORMAT, _VERSION, self.path)
            listed = value["transactions"]
            if not isinstance(listed, list) or len(listed) > _MOST:
                raise ValueError("it has no list of transactions, or too many")
            found = [Intent.of(item) for item in listed]
        except UnsupportedVersion:
            raise
        except UNREADABLE as error:
            raise cuts_damaged(self.path, reason(error)) from None
        if len({each.id for each in found}) != len(found):
            raise cuts_damaged(self.path, "a transaction occurs twice")
        return {each.id: each for each in found}


def _to_bytes(intents: Intents) -> bytes:
    if len(intents) > _MOST:
        raise RetryError(
            f"there are {_MOST:,} transactions that no cut has passed",
            remedy="pull what rests on their datasets, then try again",
            code="TooManyTransactions",
        )
    listed = [each.to_dict() for _, each in sorted(intents.items())]
    document = {"format": _FORMAT, "version": _VERSION, "transactions": listed}
    return Extra.of(document).entries.encode() + b"\n"


class Transaction:
    """Appends to several roots that no cut falls between; a context manager.

    A root is joined before the first append to it: by `join`, or by the append itself if that is made inside
    of the `with` of a workspace's transaction, by the same thread. What was appended is committed as it
    comes, and stays when the block of code fails: only cuts wait, and the next one says that it did not
    finish. It is renewed by a thread until it is closed.

    >>> import tempfile, trueline as tl
    >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
    ...     orders, lines = ws.create("orders"), ws.create("lines")
    ...     with ws.transaction("orders") as transaction:
    ...         transaction.join(lines.id)
    ...         commit = orders.append([{"id": 1}])
    ...         commit = lines.append([{"order": 1, "what": "tea"}])
    ...         transaction.renew()
    ...     transaction.close()  # it is closed already
    True
    """

    def __init__(
        self,
        objects: SmallObjects,
        chain_of: ChainOf,
        *roots: DatasetId,
        clock: Clock = Instant.now,
        seconds: float = LEASE_SECONDS,
        joins: Joins | None = None,
    ) -> None:
        if not 0 < seconds <= _MOST_SECONDS:
            raise InputError(
                f"a transaction cannot hold for {seconds:g} seconds", remedy="give between 0 and 604,800"
            )
        self.id = secrets.token_hex(16)
        self._intents = IntentDocument(objects, clock)
        self._chain_of = chain_of
        self._clock = clock
        self._seconds = seconds
        self._first = roots
        self._joins = joins
        self._roots: frozenset[DatasetId] = frozenset()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None
        self._is_closing = self._is_closed = self._has_failed = False
        self._ended: IntentState | None = None

    def join(self, *roots: DatasetId) -> None:
        """Hold roots where they are now, for cuts; done before the first append to them."""
        new = frozenset(roots) - self._roots
        if self._is_closing:
            raise InputError(f"transaction {self.id[:8]} is closed", remedy="begin a new one")
        if not new:
            return
        before = {name: at for name, at in positions_of(heads_of(self._chain_of, new)).items() if name in new}
        if lost := new - set(before):
            raise InputError(
                f"{min(lost)} is not a dataset of this workspace",
                remedy="give the id of a dataset of it",
                code="NoSuchRoot",
            )
        first = not self._roots

        def change(intents: Intents) -> Intents:
            mine = intents.get(self.id)
            now = self._clock()
            if mine is None and first:
                mine = Intent(self.id, {}, now, now, self._seconds)
            if mine is None or mine.state is not IntentState.OPEN:
                raise self._expired()
            return intents | {self.id: replace(mine, roots={**before, **mine.roots}, renewed=now)}

        self._intents.change(change)
        self._roots |= new
        if self._renewer is None:
            self._renewer = threading.Thread(target=self._renewing, name="trueline-transaction", daemon=True)
            self._renewer.start()

    def renew(self) -> bool:
        """Say that the owner lives; False if it has expired, which cannot be undone."""

        def change(intents: Intents) -> Intents:
            mine = intents.get(self.id)
            if mine is None or mine.state is not IntentState.OPEN:
                return intents
            return intents | {self.id: replace(mine, renewed=self._clock())}

        mine = self._intents.change(change).get(self.id)
        return mine is not None and mine.state is IntentState.OPEN

    def close(self, *, failed: bool = False) -> None:
        """Let the next cut pass all appends together; `OutcomeUnknown` if it has expired before.

        One that `failed` is named by the cut that passes it, if it had appended something. If a store
        does not answer it can be closed again, before it expires.
        """
        if self._is_closed:
            return
        self._is_closing, self._has_failed = True, self._has_failed or failed
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        if self._roots:
            self._end()
        self._is_closed = True

    def _end(self) -> None:
        failed = self._has_failed
        now = positions_of(heads_of(self._chain_of, self._roots)) if failed else {}

        def change(intents: Intents) -> Intents:
            mine = intents.get(self.id)
            if mine is not None and mine.state is self._ended:
                return intents  # the answer to an earlier attempt was lost
            if mine is None or mine.state is IntentState.BROKEN:
                self._is_closed = True  # nothing changes that
                raise self._expired()
            half = failed and any(now.get(root) != at for root, at in mine.roots.items())
            self._ended = IntentState.BROKEN if half else IntentState.CLOSED
            return intents | {self.id: replace(mine, state=self._ended)}

        self._intents.change(change)

    def _expired(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"transaction {self.id[:8]} was not renewed for {self._seconds:g} seconds and has expired: "
            "what it appended is committed, but a cut may show a part of it",
            remedy="look at what was appended; the next cut shows all of it",
            code="TransactionExpired",
            transaction=self.id,
        )

    def _renewing(self) -> None:
        while not self._stop.wait(self._seconds / _RENEWALS):
            try:
                if not self.renew():
                    return  # the owner is told when it closes
            except TruelineError:
                continue  # a store that does not answer now may do so in time

    def __enter__(self) -> Self:
        self.join(*self._first)
        if self._joins is not None:
            self._joins.set((*self._joins.get(), self.join))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._joins is not None:
            self._joins.set(tuple(join for join in self._joins.get() if join != self.join))
        try:
            self.close(failed=error is not None)
        except TruelineError as lost:
            if error is None:
                raise
            error.add_note(f"and: {lost}")


def transaction(workspace: Workspace, *names: str, seconds: float = LEASE_SECONDS) -> Transaction:
    """Return a transaction over the roots that datasets rest on, which `with` begins; appends join it."""
    roots = Roots(workspace)
    return Transaction(
        workspace._location.cuts(),
        roots.chain_of,
        *(roots.under(*names) if names else ()),
        clock=workspace.clock or Instant.now,
        seconds=seconds,
        joins=workspace._joins,
    )
