"""Waiting until a commit is visible: in every dataset that is named, and in one snapshot of them.

Whoever pulls says, after a head has moved, which dataset has come to rest at which cut. One thread of this
process looks for that on behalf of all who wait, ever less often while nothing happens. What it finds is a
hint: who waits looks at the heads, and does so from time to time without one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trueline.chain.head_state import Position
from trueline.errors import NoCommonCut, NothingShared, TruelineError, WaitTimeout
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import RootHead, Roots
from trueline.workspace.pull.going import GoingTo
from trueline.workspace.snapshot.agree import Agreement, agree
from trueline.workspace.snapshot.find import held
from trueline.workspace.snapshot.snapshot import WorkspaceSnapshot, gone

if TYPE_CHECKING:
    from trueline.dataset.commit import Commit
    from trueline.identity.dataset_id import DatasetId
    from trueline.workspace.cuts.transaction import Intent
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.5
_GROWTH: Final = 1.5
# Hints can be lost with the power; heads cannot.
_LOOK_ANYWAY: Final = 2.0
# A dataset may come to rest at a cut when later ones are recorded already.
_CUTS: Final = 4


# --- one watcher for all who wait ---------------------------------------------------------


@dataclass(slots=True)
class WatchedPlace:
    """A log of cuts that somebody waits for: `version` grows whenever something was reached."""

    look: Callable[[], object]
    waiting: int = 0
    version: int = 0
    seen: object = None
    pause: float = _FIRST_PAUSE
    due: float = 0.0


@dataclass
class ReachWatcher:
    """The one thread that looks for what was reached; it ends when nobody waits."""

    spots: dict[str, WatchedPlace] = field(default_factory=dict)
    thread: threading.Thread | None = None
    _process: int = field(default_factory=os.getpid)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def watching(self, place: str, look: Callable[[], object]) -> Iterator[WatchedPlace]:
        """Have a place looked at while the caller waits."""
        if self._process != os.getpid():
            # A forked child has no threads of its parent; one of them may have held the lock.
            self._process, self._changed = os.getpid(), threading.Condition()
            self.spots, self.thread = {}, None
        with self._changed:
            spot = self.spots.setdefault(place, WatchedPlace(look))
            spot.waiting += 1
            spot.pause, spot.due = _FIRST_PAUSE, 0.0
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._watch, name="trueline-wait", daemon=True)
                self.thread.start()
            self._changed.notify_all()
        try:
            yield spot
        finally:
            with self._changed:
                spot.waiting -= 1
                if not spot.waiting:
                    del self.spots[place]
                self._changed.notify_all()

    def wait(self, spot: WatchedPlace, version: int, timeout: float) -> None:
        """Wait until something was reached since a version, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: spot.version != version, timeout)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self.spots:
                    self.thread = None
                    return
                due = min(spot.due for spot in self.spots.values())
                self._changed.wait(max(0.0, due - time.monotonic()))
                now = time.monotonic()
                spots = [spot for spot in self.spots.values() if spot.due <= now]
            for spot in spots:
                found = self._look(spot)
                with self._changed:
                    if found != spot.seen:
                        spot.seen, spot.pause, spot.version = found, _FIRST_PAUSE, spot.version + 1
                        self._changed.notify_all()
                    else:
                        spot.pause = min(spot.pause * _GROWTH, _LONGEST_PAUSE)
                    spot.due = time.monotonic() + spot.pause

    def _look(self, spot: WatchedPlace) -> object:
        try:
            return spot.look()
        except (TruelineError, OSError):
            return spot.seen  # a store that does not answer now may do so in time


WATCHER: Final = ReachWatcher()


def _reached(workspace: Workspace) -> Callable[[], object]:
    log = CutLog.of(workspace)

    def look() -> object:
        newest = log.newest().number
        numbers = range(max(1, newest - _CUTS + 1), newest + 1)
        return newest, tuple(log.reached(number) for number in numbers)

    return look


# --- waiting for a commit -----------------------------------------------------------------


def wait_for(
    dataset: Dataset, commit: Commit, names: Sequence[str], timeout: float | None
) -> WorkspaceSnapshot:
    """Return the first snapshot of datasets that includes a commit.

    The datasets are all that are computed from that of the commit, if none is named.
    """
    workspace, root = dataset.workspace, dataset.id
    asked = [workspace[name] for name in dict.fromkeys(names)] if names else _readers(workspace, dataset)
    if (snap := _snapshot(workspace, dataset, root, commit, asked)) is not None:
        return snap
    end = None if timeout is None else time.monotonic() + timeout
    if timeout is not None and timeout <= 0:
        raise _timed_out(dataset, root, commit, asked)
    with WATCHER.watching(workspace.location, _reached(workspace)) as spot:
        while True:
            version = spot.version
            if (snap := _snapshot(workspace, dataset, root, commit, asked)) is not None:
                return snap
            left = _LOOK_ANYWAY if end is None else min(end - time.monotonic(), _LOOK_ANYWAY)
            if left <= 0:
                raise _timed_out(dataset, root, commit, asked)
            WATCHER.wait(spot, version, left)


def _snapshot(
    workspace: Workspace, dataset: Dataset, root: DatasetId, commit: Commit, asked: Sequence[Dataset]
) -> WorkspaceSnapshot | None:
    found = _including(workspace, dataset, root, commit, asked)
    return None if found is None else held(workspace, found)


def _readers(workspace: Workspace, dataset: Dataset) -> list[Dataset]:
    """The datasets that are computed from one, directly or not."""
    found, names = {dataset.name}, list(workspace)
    while more := [name for name in names if name not in found and found & set(workspace[name].inputs)]:
        found.update(more)
    readers = [workspace[name] for name in names if name in found and name != dataset.name]
    return readers or [dataset]


def _including(
    workspace: Workspace, dataset: Dataset, root: DatasetId, commit: Commit, asked: Sequence[Dataset]
) -> Agreement | None:
    """Find where datasets agree; None if a commit is not in that yet."""
    try:
        found = agree(workspace, asked)
    except NoCommonCut:
        return None
    if root not in found.histories:
        raise NothingShared(
            f"{', '.join(repr(each.name) for each in asked)} cannot show commit {commit.short}: nothing of "
            f"them is made from {dataset.name!r}",
            remedy=f"name datasets that are computed from {dataset.name!r}",
            groups=((dataset.name,), tuple(each.name for each in asked)),
        )
    return found if _includes(found, dataset, root, commit) else None


def _includes(found: Agreement, dataset: Dataset, root: DatasetId, commit: Commit) -> bool:
    history = found.histories[root]
    entry = history.branch.find(commit.block)
    if entry is None:
        raise gone(dataset.name, commit.block)
    # Metadata alone moves nothing: what counts is the last commit of data up to it.
    needed = history.readable(entry.sequence_number)
    return found.number(root) >= needed


def _timed_out(dataset: Dataset, root: DatasetId, commit: Commit, asked: Sequence[Dataset]) -> WaitTimeout:
    """Say who lags, by how much, whether somebody pulls it, and what holds the commit back."""
    lagging: dict[str, int | None] = {}
    able: list[str] = []
    for each in asked:
        try:
            found = agree(dataset.workspace, [each])
        except NoCommonCut:
            lagging[each.name] = None
            continue
        if root not in found.histories:
            continue  # it shows the commit wherever it is
        able.append(each.name)
        if not _includes(found, dataset, root, commit):
            lagging[each.name] = found.histories[root].commits_after(found.number(root))
    # Each may be far enough, and yet no one state common to all.
    lagging = lagging or dict.fromkeys(able, 0)
    pulls = CommitPulls.of(dataset.workspace, list(lagging))
    holding = tuple(each.told for each in _holding(dataset, commit))
    shown = ", ".join(f"{name!r} ({_lag(lagging[name])}{pulls.told(name)})" for name in lagging)
    return WaitTimeout(
        f"commit {commit.short} of {dataset.name!r} is committed, but not visible yet in {shown}"
        + "".join(f"; {dataset.name!r} is held by {each}" for each in holding),
        remedy=_remedy(pulls, holding),
        lagging=tuple(lagging),
        pulled=pulls.pulled,
        held_by=holding,
        commit=commit.block,
    )


def _lag(behind: int | None) -> str:
    return "not pulled yet" if behind is None else f"{behind:,} commit{'s' * (behind != 1)} behind"


def _remedy(pulls: CommitPulls, holding: Sequence[str]) -> str:
    idle = ", ".join(map(repr, pulls.idle))
    if holding:
        return (
            f"end that transaction, then pull {idle} and wait again"
            if idle
            else ("end that transaction, then wait again")
        )
    if idle:
        return f"pull {idle}, then wait again"
    if begun := ", ".join(map(repr, pulls.begun)):
        return f"wait again; if the process of the pull has died, pull {begun} first"
    return "somebody is at it: wait again"


def _holding(dataset: Dataset, commit: Commit) -> list[Intent]:
    """The open transactions that hold a dataset where it was before a commit."""
    head = RootHead.of(dataset.chain)
    at = head.number_of(Position(commit.block, None))
    intents = CutLog.of(dataset.workspace).intents.holding([dataset.id])
    before = {each.id: head.number_of(each.roots[dataset.id]) for each in intents}
    return [each for each in intents if (was := before[each.id]) is None or at is None or was < at]


@dataclass(frozen=True, slots=True)
class CommitPulls:
    """Who pulls some datasets: `busy` ones are written now, `begun` ones a pull has said it brings further.

    What it said stays for a day where its process died. Nobody has to pull `roots`.
    """

    roots: frozenset[str]
    busy: tuple[str, ...]
    begun: tuple[str, ...]
    idle: tuple[str, ...]

    @classmethod
    def of(cls, workspace: Workspace, names: Sequence[str]) -> CommitPulls:
        """Look who pulls datasets."""
        roots, going = Roots(workspace), GoingTo.of(workspace).read()
        said = frozenset[str]().union(*(each.datasets for each in going))
        computed = [name for name in names if roots.inputs(workspace[name]) is not None]
        busy = [name for name in computed if workspace[name].chain.store.oldest_lease() is not None]
        begun = [name for name in computed if name not in busy and workspace[name].id in said]
        idle = [name for name in computed if name not in (*busy, *begun)]
        return cls(frozenset(names) - frozenset(computed), tuple(busy), tuple(begun), tuple(idle))

    @property
    def pulled(self) -> tuple[str, ...]:
        """Those that somebody pulls, or has begun to."""
        return (*self.busy, *self.begun)

    def told(self, name: str) -> str:
        """Who pulls a dataset, for people."""
        if name in self.roots:
            return ""
        if name in self.begun:
            return ", a pull of it has begun and not ended"
        return ", somebody is pulling it" if name in self.busy else ", nobody is pulling it"
