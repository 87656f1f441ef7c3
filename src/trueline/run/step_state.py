"""What the coordinator knows of one step: what waits, what was accepted, what the step made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.run.attempt import Attempt, Entry
from trueline.run.contributions import Contributions
from trueline.run.equality import same
from trueline.run.generations import stamped
from trueline.run.keys import ALL
from trueline.run.step import ERASED, Step

# How long a batch should take: long enough that handing it over costs little, short enough to be revised.
BATCH_SECONDS: Final = 0.004
LARGEST_BATCH: Final = 20_000
# What takes less is not shared among workers: handing a batch over costs some 30 µs.
SHARED_SECONDS: Final = 0.0003
# How many of a step's last values say how often it changes one.
REMEMBERED: Final = 50


@dataclass
class Delivery:
    """What newer values did to a step that had worked on older ones."""

    restamped: dict[Any, Entry] = field(default_factory=dict)  # the value is the same, its generations new
    again: dict[Any, Entry] = field(default_factory=dict)  # to be sent again, with the new generations
    touched: dict[Any, None] = field(default_factory=dict)  # keys whose writers have new generations
    lost: list[tuple[Attempt, list[Any]]] = field(default_factory=list)  # running work that is superseded


class StepState:
    """The state of one step: its queues, what it accepted and made, its final bits."""

    def __init__(self, step: Step, index: int) -> None:
        self.step = step
        self.index = index
        self.writes_others = step.writes_others
        self.takes_all = step.takes_all
        # Only after a step that writes other keys can something older come later: there keys of different
        # histories meet. Looking costs 0.15 µs a key.
        self.guarded = True
        self.pending: dict[Any, Entry] = {}  # can be begun
        # Pending keys, the oldest last: the first of a dictionary is found by passing all that were removed.
        self._turn: list[Any] = []
        self.waiting: dict[Any, Entry] = {}  # will be, once its input is final
        self.accepted: dict[Any, Entry] = {}
        self.undone: set[Any] = set()  # accepted, but what came of it was dropped
        self.changed: dict[Any, Any] = {}  # what a map made of keys it changed
        self.contributions = Contributions()  # what a step that writes other keys made
        self.attempts: list[Attempt] = []
        self.failed: dict[Any, tuple[Entry, BaseException]] = {}  # on input that may still change
        self.starts: dict[Any, int] = {}  # of keys that were begun more than once
        self.matched: dict[Any, bool] = {}
        self.raised: dict[Any, Exception] = {}  # by `match`
        self.has_idle = False  # some key was erased, or none of the step's business
        self.generation = 0
        self.newest = 0  # the greatest of them that a value has which was written here, or fed anew
        self.inputs_final = False
        self.outputs_final = False
        self.cancelled = False
        self.was_ready = True  # when it was last asked
        # For the size of batches and the worth of working ahead.
        self.pace: float | None = None
        self.change_rate = step.change_rate
        self._seen = 1
        self.calls = 0
        self.kept = 0
        self.wasted = 0
        self.reused = 0

    @property
    def name(self) -> str:
        """What people know the step by."""
        return self.step.name or type(self.step).__name__

    @property
    def is_whole(self) -> bool:
        """Whether what becomes of one key here may depend on another."""
        return self.step.is_whole and not self.cancelled

    def next_generation(self) -> int:
        """Return a generation no batch of this step had (run:F9)."""
        self.generation += 1
        return self.generation

    # --- what comes in ----------------------------------------------------------------

    def matches(self, key: Any) -> bool:
        """Ask the step once whether a key is its business; if asking raises, that is for when it is begun."""
        found = self.matched.get(key)
        if found is None:
            try:
                found = bool(self.step.match(key))
            except Exception as error:  # noqa: BLE001 (whatever a step raises)
                self.raised[key] = error
                found = True
            self.matched[key] = found
        return found

    def wanted(self, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        """Return those a map has something to do with; a step that writes others follows every key."""
        if self.writes_others or self.step.matches_all:
            return entries
        return {key: entry for key, entry in entries.items() if self.matches(key)}

    def newer(self, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        """Return those that are newer than what is here (run:F5, run:F6)."""
        accepted, pending, waiting = self.accepted, self.pending, self.waiting
        if not (pending or waiting or accepted):
            return entries
        return {
            key: entry
            for key, entry in entries.items()
            if (known := pending.get(key) or waiting.get(key) or accepted.get(key)) is None
            or entry[0] > known[0]
        }

    def deliver(self, entries: dict[Any, Entry]) -> Delivery | None:
        """Take newer values; say what that does to work on older ones, if there was any."""
        assert not self.inputs_final, "nothing comes in after the final bit (run:F14)"
        if self.guarded:
            entries = self.newer(entries)
        if not self.accepted or self.accepted.keys().isdisjoint(entries):
            self._queue(entries)
            return None
        return self._redeliver(entries)

    def _queue(self, entries: dict[Any, Entry]) -> None:
        to, other = self.pending, self.waiting
        if not self.step.eager:
            to, other = other, to
        if other:
            for key in [key for key in entries if key in other]:
                del other[key]
        to.update(entries)

    def _redeliver(self, entries: dict[Any, Entry]) -> Delivery:
        """Where a newer value equals the one worked on, only its generations are new (run:F11)."""
        found = Delivery()
        known = [key for key in entries if key in self.accepted]
        running = self.running(known)
        fresh = dict(entries)
        lost: dict[int, tuple[Attempt, list[Any]]] = {}
        generation = 0
        for key in known:
            entry = entries[key]
            attempt = running.get(key)
            if key in self.undone or not same(self.step, entry[1], self.accepted[key][1]):
                if attempt is not None:
                    lost.setdefault(attempt.number, (attempt, []))[1].append(key)
                if attempt is not None or self.failed.pop(key, None) is not None:
                    self.undone.add(key)
                continue
            found.restamped[key] = self.accepted[key] = entry
            del fresh[key]
            self.pending.pop(key, None)
            self.waiting.pop(key, None)
            if attempt is not None:
                attempt.items[key] = entry
                attempt.restamped = True
            elif key in self.failed:
                self.failed[key] = (entry, self.failed[key][1])
            elif self.writes_others:
                found.touched.update(dict.fromkeys((key, *self.contributions.by_source.get(key, ()))))
            elif key in self.changed:
                generation = generation or self.next_generation()
                found.again[key] = (stamped(entry[0], self.index, generation), self.changed[key])
        found.lost = list(lost.values())
        self._queue(fresh)
        return found

    def running(self, keys: Iterable[Any]) -> dict[Any, Attempt]:
        """Return those of the keys that are being worked on, and where."""
        if not self.attempts:
            return {}
        return {
            key: attempt
            for key in keys
            for attempt in self.attempts
            if key in attempt.items and key not in attempt.stale
        }

    def is_busy_with(self, key: Any) -> bool:
        """Say whether a key's newest value is still to be worked on, or is being worked on."""
        return (
            key in self.pending
            or key in self.waiting
            or key in self.failed
            or any(key in attempt.items and key not in attempt.stale for attempt in self.attempts)
        )

    def busy_with(self, keys: Iterable[Any]) -> list[Any]:
        """Return those of the keys whose newest value is still to be worked on, or is being worked on."""
        tables = [table for table in (self.pending, self.waiting, self.failed) if table]
        found = [key for table in tables for key in keys if key in table]
        for attempt in self.attempts:
            if not attempt.items.keys().isdisjoint(keys):
                found += [key for key in keys if key in attempt.items and key not in attempt.stale]
        return found

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs (run:F12)."""
        return not (self.pending or self.waiting or self.attempts or self.failed)

    # --- batches ----------------------------------------------------------------------

    def size(self, workers: int, seconds: float = BATCH_SECONDS) -> int:
        """Return how many keys the next batch has at most, so that it takes about so long (run:F18)."""
        fixed = self.step.batch_size
        if fixed is not None:
            return fixed if fixed > 0 else len(self.pending)
        if self.takes_all:
            return len(self.pending)
        if self.pace is None:
            return 1
        pace = max(self.pace, 1e-8)
        fair = max(-(-len(self.pending) // workers), int(SHARED_SECONDS / pace))
        return max(1, min(LARGEST_BATCH, int(seconds / pace), fair))

    def take(self, limit: int) -> dict[Any, Entry]:
        """Take the oldest of what can be begun."""
        pending, turn = self.pending, self._turn
        if limit >= len(pending):
            self.pending = {}
            turn.clear()
            return pending
        taken: dict[Any, Entry] = {}
        while missing := limit - len(taken):
            if not turn:
                turn.extend(reversed(pending))
            keys = turn[-missing:]
            del turn[-missing:]
            taken.update({key: pending.pop(key) for key in reversed(keys) if key in pending})
        return taken

    def accept(self, batch: dict[Any, Entry]) -> None:
        """Make values the ones the step has seen; their generations only grow (run:F3)."""
        self.accepted.update(batch)
        if self.undone:
            self.undone.difference_update(batch)

    def learn(self, keys: int, changed: int, seconds: float) -> None:
        """Keep how long a key takes and how often it changes; what the step said first counts as one key."""
        if not keys:
            return
        pace = seconds / keys
        self.pace = pace if self.pace is None else 0.7 * self.pace + 0.3 * pace
        self._seen = min(REMEMBERED, self._seen + keys)
        self.change_rate += min(1.0, keys / self._seen) * (min(1.0, changed / keys) - self.change_rate)

    # --- when it is final -------------------------------------------------------------

    def tally(self) -> None:
        """Count what was kept, now that nothing can change: one piece of work for each key that is there."""
        if self.cancelled:
            self.kept = 0
        elif not self.has_idle:
            self.kept = len(self.accepted) - (ALL in self.accepted)
        else:
            self.kept = sum(
                key is not ALL and entry[1] is not ERASED and self.matched.get(key, True)
                for key, entry in self.accepted.items()
            )
        self.wasted = self.calls + self.reused - self.kept

    def forget(self) -> None:
        """Let go of what only unfinished steps need."""
        self.accepted, self.changed, self.undone = {}, {}, set()
        self.contributions = Contributions()
        self.matched, self.raised, self.starts = {}, {}, {}
