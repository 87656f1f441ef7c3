"""The coordinator of a run: it alone owns all state; workers compute and post what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from queue import Empty
from typing import Any, Final

from trueline.errors import RunFailed
from trueline.run.attempt import Attempt, Entry, Outcome
from trueline.run.events import Event, Observer, Watcher, What
from trueline.run.executors import Executor
from trueline.run.failure import Failure
from trueline.run.generations import Generations, initial, stamped
from trueline.run.inbox import Inbox
from trueline.run.line import ABSENT, ALL, ATTEMPTS, Line, there
from trueline.run.step import ERASED, Step, same

# Below this chance that nothing will change, a step waits for its input instead of working ahead.
WORTH: Final = 0.25


class Coordinator:
    """Runs the steps over what comes in until every key is final at the last of them."""

    def __init__(
        self,
        steps: Sequence[Step],
        executor: Executor,
        *,
        deliberate: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.lines = [Line(step, index) for index, step in enumerate(steps)]
        self.executor = executor
        self.deliberate = deliberate
        self.observers = tuple(observers)
        self.inbox = Inbox()
        self.results: dict[Any, Entry] = {}
        self.failures: list[Failure] = []
        self.closed = False
        self.finals = 0  # so many steps from the left are output-final
        self.free = executor.workers
        self.started = time.perf_counter()
        self.number = 0
        self.revision = 0
        self.stopping: BaseException | None = None

    # --- the loop ---------------------------------------------------------------------

    def run(self) -> dict[Any, Any]:
        """Run to the end; nothing runs any more when it returns or raises (run:F29)."""
        watchers = [observer for observer in self.observers if isinstance(observer, Watcher)]
        self.executor.start([line.step for line in self.lines], self.inbox.post)
        for watcher in watchers:
            watcher.begin([line.name for line in self.lines])
        self.started = time.perf_counter()
        try:
            while not self._advance():
                self._receive()
            return {key: value for key, (_, value) in self.results.items() if value is not ERASED}
        finally:
            for line in self.lines:
                for attempt in line.attempts:
                    attempt.token.supersede()
                    self.executor.superseded(attempt)
            self.executor.stop()
            for watcher in watchers:
                watcher.end()

    def _advance(self) -> bool:
        """Begin what can be begun; say whether all is done."""
        while True:
            self._finalise()
            if self.finals == len(self.lines) and self.closed:
                return True
            if not self._dispatch():
                return False

    def _receive(self) -> None:
        """Wait for something to happen, then take all that has."""
        if not self.executor.pump() or not self.inbox.queue.empty():
            self._handle(self.inbox.queue.get())
        while True:
            try:
                message = self.inbox.queue.get_nowait()
            except Empty:
                break
            self._handle(message)

    def _handle(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("done", attempt, outcome):
                self._done(attempt, outcome)
            case ("feed", items):
                self._feed(items)
            case ("close",):
                self.closed = True
            case ("raise", error):
                raise error

    # --- what comes in ----------------------------------------------------------------

    def _feed(self, items: dict[Any, Any]) -> None:
        """Hand new values to every step (run:F2); a revised one is newer than all made from the old."""
        if not items:
            return
        zeros = initial(len(self.lines))
        known = self.results.keys() & items.keys() if self.results else ()
        entries: dict[Any, Entry] = {key: (zeros, value) for key, value in items.items()}
        if known:
            self._revise(entries, known)
        self._broadcast(-1, entries)

    def _revise(self, entries: dict[Any, Entry], known: Any) -> None:
        """Forget what was made of older values of keys, everywhere: their generations begin anew."""
        keys = set(known)
        for line in self.lines:
            for attempt in line.attempts:
                attempt.supersede((attempt.items.keys() & keys) - attempt.stale)
            for table in (line.pending, line.waiting, line.failed, line.changed):
                for key in keys & table.keys():
                    del table[key]
            if not line.writes_others:
                for key in keys & line.accepted.keys():
                    del line.accepted[key]
        self.revision += 1

    def _broadcast(self, producer: int, entries: dict[Any, Entry]) -> None:
        """Deliver newer values to every step to the right, never to the producer (run:F8)."""
        for line in self.lines[producer + 1 :]:
            wanted = line.wanted(entries)
            if wanted and not (line.cancelled and not line.writes_others):
                for attempt in line.deliver(wanted):
                    self.executor.superseded(attempt)
        self.results.update(entries)
        for line in self.lines[producer + 1 :]:
            if line.accepted and not line.accepted.keys().isdisjoint(entries):
                self._cut_off(line, line.accepted.keys() & entries.keys())

    def _cut_off(self, line: Line, keys: set[Any]) -> None:
        """Where a newer value equals the one worked on, only its generations are new (run:F11)."""
        again: dict[Any, Entry] = {}
        for key in keys:
            entry = line.pending.get(key) or line.waiting.get(key)
            if entry is None or not same(line.step, entry[1], line.accepted[key][1]) or line.writes_others:
                continue
            if any(key in attempt.items for attempt in line.attempts) or key in line.failed:
                continue
            line.pending.pop(key, None)
            line.waiting.pop(key, None)
            line.accepted[key] = entry
            self._tell("restamped", line, key, entry[0])
            if key in line.changed:
                gens = stamped(entry[0], line.index, line.next_generation())
                again[key] = (gens, line.changed[key])
        if again:
            self._broadcast(line.index, again)

    # --- beginning work ---------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Begin the leftmost work there is for a free worker; say whether there was any."""
        if self.free <= 0:
            return False
        for line in self.lines[self.finals :]:
            if line.pending and self._can_begin(line) and self._begin(line):
                return True
            if self.deliberate:
                break
        return False

    def _can_begin(self, line: Line) -> bool:
        limit = line.step.concurrency
        if limit is not None and len(line.attempts) >= limit:
            return False
        if not line.cancelled and not line.step.ready():
            return False
        if not line.inputs_final and not self._is_worth(line):
            for key in [key for key in line.pending if not self._is_due(line, key)]:
                line.waiting[key] = line.pending.pop(key)
        return bool(line.pending)

    def _is_worth(self, line: Line) -> bool:
        """Say whether what this step is given will probably stay, whatever the key."""
        chance = 1.0
        for before in self.lines[self.finals : line.index]:
            chance *= 1.0 - before.change_rate
        return chance >= WORTH

    def _is_due(self, line: Line, key: Any) -> bool:
        """Say whether a key may be begun: its value will stay, or probably will.

        Only steps that may still change this key count: a file that is parsed
        is worth working ahead on, though others are not and parsing changes all.
        """
        if self._is_final(key, line.index):
            return True
        if not self.closed or not line.step.eager or line.starts.get(key, 0) > ATTEMPTS:
            return False
        chance = 1.0
        for before in self.lines[self.finals : line.index]:
            if before.writes_others or before.is_busy_with(key):
                chance *= 1.0 - before.change_rate
        return chance >= WORTH

    def _begin(self, line: Line) -> bool:
        """Accept a batch and hand it to a worker; keys that need none are settled here."""
        batch = line.take(line.size(self.executor.workers))
        if line.starts or not line.accepted.keys().isdisjoint(batch):
            batch = self._capped(line, batch)
        self._accept(line, batch)
        work = self._to_work(line, batch)
        if not work:
            return True
        self.number += 1
        attempt = Attempt(
            self.number, line.index, line.next_generation(), work, speculative=not line.inputs_final
        )
        attempt.started = time.perf_counter() - self.started
        line.attempts.append(attempt)
        line.calls += len(work)
        self.free -= 1
        self._tell_all("started", line, work, attempt)
        self.executor.submit(line.step, attempt, list(there(work)))
        return True

    def _capped(self, line: Line, batch: dict[Any, Entry]) -> dict[Any, Entry]:
        """Let keys that were begun too often wait until their input is final (run:F21)."""
        if line.inputs_final:
            return batch
        for key in [key for key in batch if key in line.accepted]:
            line.starts[key] = line.starts.get(key, 1) + 1
            if line.starts[key] > ATTEMPTS and not self._is_final(key, line.index):
                line.waiting[key] = batch.pop(key)
        return batch

    def _accept(self, line: Line, batch: dict[Any, Entry]) -> None:
        line.accepted.update(batch)
        self._tell_all("accepted", line, batch)

    def _to_work(self, line: Line, batch: dict[Any, Entry]) -> dict[Any, Entry]:
        """Return what needs a worker; settle erased keys, keys that do not match, and skipped steps."""
        if line.cancelled:
            idle = batch
        elif line.writes_others:
            match = line.step.match
            all_match = line.step.matches_all
            idle = {k: e for k, e in batch.items() if e[1] is ERASED or not (all_match or match(k))}
        else:
            idle = {key: entry for key, entry in batch.items() if entry[1] is ERASED}
        if not idle:
            return batch
        if line.writes_others:
            touched = set()
            for key in idle:
                touched |= line.contribute(key, {})
            self._emit_written(line, touched | idle.keys())
        else:
            for key in idle:
                line.changed.pop(key, None)
        self._settled(line, idle)
        return {key: entry for key, entry in batch.items() if key not in idle}

    # --- ending work ------------------------------------------------------------------

    def _done(self, attempt: Attempt, outcome: Outcome | BaseException) -> None:
        line = self.lines[attempt.index]
        line.attempts.remove(attempt)
        self.free += 1
        if isinstance(outcome, BaseException):
            raise outcome
        attempt.seconds, attempt.worker = outcome.seconds, outcome.worker
        line.calls -= outcome.known
        line.reused += outcome.known
        stale = len(attempt.stale)
        line.wasted += stale
        line.kept += len(attempt.items) - stale
        if stale:
            self._tell_all("superseded", line, dict.fromkeys(attempt.stale, ((), None)), attempt)
            if not line.writes_others:
                # What came of this value is dropped: should it come again, it is worked on again.
                for key in attempt.stale:
                    if line.accepted.get(key) is attempt.items[key]:
                        del line.accepted[key]
        if line.cancelled:
            return
        line.learn(len(attempt.items), len(outcome.changed) + len(outcome.writes), outcome.seconds)
        if line.writes_others:
            self._wrote(line, attempt, outcome)
        else:
            self._mapped(line, attempt, outcome)
        for key, error in outcome.errors:
            if key not in attempt.stale:
                self._failed(line, key, attempt.items[key], error)
        if not line.cancelled:
            self._settled(line, attempt.items)

    def _mapped(self, line: Line, attempt: Attempt, outcome: Outcome) -> None:
        """Hand on what changed (run:F10)."""
        index, generation, items = attempt.index, attempt.generation, attempt.items
        changed = outcome.changed
        if attempt.stale:
            changed = [each for each in changed if each[0] not in attempt.stale]
        if line.changed:
            for key in line.changed.keys() & items.keys() - attempt.stale:
                del line.changed[key]
        if changed:
            tail = (generation, *(0,) * (len(self.lines) - index - 1))
            emitted = {key: ((*items[key][0][:index], *tail), value) for key, value in changed}
            line.changed.update(changed)
            self._tell_all("changed", line, emitted, attempt)
            self._broadcast(index, emitted)
        if self.observers:
            told = dict(changed)
            quiet = {k: e for k, e in items.items() if k not in told and k not in attempt.stale}
            self._tell_all("unchanged", line, quiet, attempt)

    def _wrote(self, line: Line, attempt: Attempt, outcome: Outcome) -> None:
        """Replace the contributions of the keys of a batch, and hand on what that changes (5.4)."""
        wrong = {key for key, _ in outcome.errors}
        made: dict[Any, dict[Any, Any]] = {
            key: {} for key in attempt.items if key not in attempt.stale and key not in wrong
        }
        whole: dict[Any, Any] = {}
        for source, dst, value in outcome.writes:
            if source is None and not line.step.eager:
                whole[dst] = value
            elif source in made:
                made[source][dst] = value
            elif source not in attempt.items:
                raise RunFailed(
                    f"step {line.step!r} wrote {dst!r} from {source!r}, which it was not given",
                    remedy="yield one of the keys of the batch as the source",
                )
        touched: set[Any] = set()
        for source, writes in made.items():
            touched |= line.contribute(source, writes)
            touched.add(source)
        if whole and not attempt.stale:
            gens = max(entry[0] for entry in attempt.items.values())
            line.accepted[ALL] = (gens, None)
            touched |= line.contribute(ALL, whole)
        self._emit_written(line, touched)
        self._tell_all("changed" if outcome.writes else "unchanged", line, made, attempt)

    def _emit_written(self, line: Line, keys: set[Any]) -> None:
        """Hand on keys whose value here is not what came in, and once told, every change of theirs."""
        generation = 0
        emitted: dict[Any, Entry] = {}
        for dst in keys:
            if dst in line.pending or dst in line.waiting or dst is ALL:
                continue  # a newer value is on its way in; it is told when that is accepted
            if dst not in line.owned and not line.writers.get(dst):
                continue
            value, entry = line.value_of(dst), line.accepted.get(dst)
            came = ABSENT if entry is None else entry[1]
            if dst not in line.owned and (value is came or same(line.step, value, came)):
                continue
            gens = line.gens_of(dst)
            if gens is None:
                continue
            generation = generation or line.next_generation()
            line.owned.add(dst)
            emitted[dst] = (stamped(gens, line.index, generation), ERASED if value is ABSENT else value)
        if emitted:
            self._broadcast(line.index, emitted)

    def _settled(self, line: Line, keys: Any) -> None:
        """Let later steps begin what waited for these keys, if they are final there now."""
        for later in self.lines[line.index + 1 :]:
            if later.waiting and self.closed:
                for key in [key for key in keys if key in later.waiting]:
                    if self._is_due(later, key):
                        later.pending[key] = later.waiting.pop(key)
            if later.failed:
                self._judge(later, [key for key in keys if key in later.failed])

    # --- what is final ----------------------------------------------------------------

    def _is_final(self, key: Any, index: int) -> bool:
        """Say whether a key's value will stay as it is when it reaches a step."""
        if not self.closed:
            return False
        if self.deliberate or any(line.writes_others for line in self.lines[self.finals : index]):
            return self.finals >= index
        return not any(line.is_busy_with(key) for line in self.lines[self.finals : index])

    def _finalise(self) -> None:
        """Set the final bits, from the left, each once (run:F13, run:F15)."""
        while self.finals < len(self.lines) and self.closed:
            line = self.lines[self.finals]
            if not line.inputs_final:
                line.inputs_final = True
                for key, entry in line.waiting.items():
                    line.pending[key] = entry
                line.waiting = {}
                self._judge(line, list(line.failed))
            if not line.is_idle:
                return
            line.outputs_final = True
            line.tally()
            line.forget()
            self.finals += 1
            self._tell("step final", line)

    # --- failures ---------------------------------------------------------------------

    def _failed(self, line: Line, key: Any, entry: Entry, error: BaseException) -> None:
        """Keep a failure until its input is final: on a value that will change it is none."""
        line.failed[key] = (entry, error)
        self._judge(line, [key])

    def _judge(self, line: Line, keys: Sequence[Any]) -> None:
        for key in keys:
            if key in line.failed and (line.inputs_final or self._is_final(key, line.index)):
                entry, error = line.failed.pop(key)
                self._real(line, key, entry, error)

    def _real(self, line: Line, key: Any, entry: Entry, error: BaseException) -> None:
        name = line.name
        failure = Failure(line.index, name, key, entry[0], error, entry[1])
        self._tell("failed", line, key, entry[0])
        if line.step.on_error == "fail_run":
            self.failures.append(failure)
            raise RunFailed(
                f"step {line.index} ({name}) failed on key {key!r}: {type(error).__name__}: {error}",
                remedy="mend the step or the value; on_error='skip_key' or 'skip_step' goes on without it",
                step=line.index,
                name=name,
                key=key,
                generations=entry[0],
            ) from error
        if line.cancelled:
            return
        self.failures.append(failure)
        if line.step.on_error == "skip_step":
            self._cancel(line)
        else:
            gone = (stamped(entry[0], line.index, line.next_generation()), ERASED)
            if line.writes_others:
                self._emit_written(line, line.contribute(key, {}) | {key})
                gone = (stamped(entry[0], line.index, line.next_generation()), ERASED)
            else:
                line.changed[key] = ERASED
            self._broadcast(line.index, {key: gone})

    def _cancel(self, line: Line) -> None:
        """Make a step the identity: take back what it told, and go on handing keys through (run:F22–F25)."""
        line.cancelled = True
        self._tell("cancelled", line)
        for attempt in line.attempts:
            attempt.supersede(attempt.items.keys() - attempt.stale)
            self.executor.superseded(attempt)
        line.failed.clear()
        if line.writes_others:
            touched = set(line.owned)
            for source in list(line.contributions):
                touched |= line.contribute(source, {})
            self._emit_written(line, touched)
            return
        generation = line.next_generation()
        back = {
            key: (stamped(line.accepted[key][0], line.index, generation), line.accepted[key][1])
            for key in line.changed
            if key in line.accepted and key not in line.pending and key not in line.waiting
        }
        line.changed.clear()
        line.pending.clear()
        line.waiting.clear()
        if back:
            self._broadcast(line.index, back)

    # --- telling ----------------------------------------------------------------------

    def _tell(self, what: What, line: Line, key: Any = None, gens: Generations = ()) -> None:
        if self.observers:
            event = Event(what, line.index, key, gens, at=time.perf_counter() - self.started)
            for observer in self.observers:
                observer.event(event)

    def _tell_all(
        self, what: What, line: Line, entries: Mapping[Any, Any], attempt: Attempt | None = None
    ) -> None:
        if not self.observers:
            return
        at = time.perf_counter() - self.started
        told = (0, 0, False, 0.0)
        if attempt is not None:
            told = (attempt.number, attempt.worker, attempt.speculative, attempt.seconds)
        number, worker, ahead, seconds = told
        for key, entry in entries.items():
            gens, value = entry if isinstance(entry, tuple) else ((), None)
            event = Event(what, line.index, key, gens, number, at, worker, value, ahead, seconds)
            for observer in self.observers:
                observer.event(event)
