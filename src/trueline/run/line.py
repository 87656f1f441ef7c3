"""What the coordinator knows of one step: what waits, what was accepted, what it made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from trueline.run.attempt import Attempt, Entry
from trueline.run.step import ERASED, Step

# How long a batch should take: long enough that handing it over costs little, short enough to be revised.
BATCH_SECONDS: Final = 0.004
LARGEST_BATCH: Final = 20_000
# Work on input that may still change is begun so many times for a key; then it waits (run:F21).
ATTEMPTS: Final = 3
ABSENT: Final = object()


class Line:
    """A step in the line: its queues, its state, its final bits."""

    def __init__(self, step: Step, index: int) -> None:
        self.step = step
        self.index = index
        self.pending: dict[Any, Entry] = {}  # can be begun
        self.waiting: dict[Any, Entry] = {}  # will be, once its input is final
        self.accepted: dict[Any, Entry] = {}
        self.changed: dict[Any, Any] = {}  # what a map made of keys it changed
        self.attempts: list[Attempt] = []
        self.failed: dict[Any, tuple[Entry, BaseException]] = {}  # on input that may still change
        self.starts: dict[Any, int] = {}
        self.matched: dict[Any, bool] = {}
        self.generation = 0
        self.inputs_final = False
        self.outputs_final = False
        self.cancelled = False
        # Of a step that writes other keys: who writes what now, who ever did, what was ever told.
        self.contributions: dict[Any, dict[Any, Any]] = {}
        self.writers: dict[Any, set[Any]] = {}
        self.ever: dict[Any, set[Any]] = {}
        self.owned: set[Any] = set()
        # For the size of batches and the worth of working ahead.
        self.pace: float | None = None
        self.change_rate = step.change_rate
        self.calls = 0
        self.kept = 0
        self.wasted = 0
        self.reused = 0

    @property
    def name(self) -> str:
        """What people know the step by."""
        return self.step.name or type(self.step).__name__

    @property
    def writes_others(self) -> bool:
        """Whether keys depend on each other here."""
        return self.step.writes_others

    def next_generation(self) -> int:
        """Return a generation no batch of this step had (run:F9)."""
        self.generation += 1
        return self.generation

    # --- what comes in ----------------------------------------------------------------

    def wanted(self, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        """Return those a map has something to do with; a step that writes others follows every key."""
        if self.writes_others or self.step.matches_all:
            return entries
        matched, match = self.matched, self.step.match
        for key in entries:
            if key not in matched:
                matched[key] = bool(match(key))
        return {key: entry for key, entry in entries.items() if matched[key]}

    def deliver(self, entries: dict[Any, Entry]) -> list[Attempt]:
        """Take newer values; return the batches that run on older ones only, and are of no use any more."""
        useless = []
        for attempt in self.attempts:
            hit = (attempt.items.keys() & entries.keys()) - attempt.stale
            if hit:
                attempt.supersede(hit)
                if attempt.token.superseded():
                    useless.append(attempt)
        if self.failed:
            for key in self.failed.keys() & entries.keys():
                del self.failed[key]
        if self.step.eager or self.inputs_final:
            if self.waiting:
                for key in self.waiting.keys() & entries.keys():
                    del self.waiting[key]
            self.pending.update(entries)
        else:
            self.waiting.update(entries)
        return useless

    def is_busy_with(self, key: Any) -> bool:
        """Say whether a key's newest value is still to be worked on, or is being worked on."""
        return (
            key in self.pending
            or key in self.waiting
            or key in self.failed
            or any(key in attempt.items and key not in attempt.stale for attempt in self.attempts)
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs (run:F12)."""
        return not (self.pending or self.waiting or self.attempts or self.failed)

    # --- batches ----------------------------------------------------------------------

    def size(self, workers: int) -> int:
        """Return how many keys the next batch has at most (run:F18)."""
        fixed = self.step.batch_size
        if fixed is not None:
            return fixed if fixed > 0 else len(self.pending)
        if self.step.kind == "process" and not self.step.eager:
            return len(self.pending)
        if self.pace is None:
            return 1
        fair = -(-len(self.pending) // workers)
        return max(1, min(LARGEST_BATCH, int(BATCH_SECONDS / max(self.pace, 1e-8)), fair))

    def take(self, limit: int) -> dict[Any, Entry]:
        """Take the oldest of what can be begun."""
        if limit >= len(self.pending):
            taken, self.pending = self.pending, {}
            return taken
        pending = self.pending
        return {key: pending.pop(key) for key in list(islice(pending, limit))}

    def learn(self, keys: int, changed: int, seconds: float) -> None:
        """Keep how long a key takes and how often it changes."""
        if not keys:
            return
        pace, rate = seconds / keys, changed / keys
        self.pace = pace if self.pace is None else 0.7 * self.pace + 0.3 * pace
        weight = min(0.5, keys / (keys + 20))
        self.change_rate += weight * (rate - self.change_rate)

    # --- a step that writes other keys ------------------------------------------------

    def contribute(self, source: Any, writes: dict[Any, Any]) -> set[Any]:
        """Replace what a key writes by what its newest value writes; return the keys that touches."""
        before = self.contributions.pop(source, {})
        for dst in before.keys() - writes.keys():
            self.writers[dst].discard(source)
        for dst in writes:
            self.writers.setdefault(dst, set()).add(source)
            self.ever.setdefault(dst, set()).add(source)
        if writes:
            self.contributions[source] = writes
        return set(before) | set(writes)

    def value_of(self, dst: Any) -> Any:
        """Return a key's value after this step: what came in, overlaid in the order of the writing keys."""
        entry = self.accepted.get(dst)
        value = ABSENT if entry is None else entry[1]
        for source in in_order(self.writers.get(dst, ())):
            value = self.contributions[source][dst]
        return value

    def gens_of(self, dst: Any) -> tuple[int, ...] | None:
        """Return the newest generations a key's value rests on."""
        found = [self.accepted[key][0] for key in (dst, *self.ever.get(dst, ())) if key in self.accepted]
        return max(found) if found else None

    def tally(self) -> None:
        """Count what was kept, now that nothing can change: one piece of work for each key that is there."""
        step, all_match = self.step, self.step.matches_all or not self.writes_others
        kept = (
            key is not ALL and entry[1] is not ERASED and (all_match or bool(step.match(key)))
            for key, entry in self.accepted.items()
        )
        self.kept = 0 if self.cancelled else sum(kept)
        self.wasted = self.calls + self.reused - self.kept

    def forget(self) -> None:
        """Let go of what only unfinished steps need."""
        self.accepted, self.changed, self.contributions = {}, {}, {}
        self.writers, self.ever, self.owned, self.matched, self.starts = {}, {}, set(), {}, {}


class All:
    """The source of writes that rest on all keys of a batch; it writes after every single key."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = All()


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Return keys in their own order; keys that have none go by their type and text (decision 20)."""
    single = [key for key in keys if key is not ALL]
    try:
        single.sort()
    except TypeError:
        single.sort(key=lambda key: (type(key).__qualname__, repr(key)))
    return [*single, *(key for key in keys if key is ALL)]


def there(entries: dict[Any, Entry]) -> Iterator[tuple[Any, Any]]:
    """Yield the keys that are there, with their values."""
    return ((key, value) for key, (_, value) in entries.items() if value is not ERASED)
