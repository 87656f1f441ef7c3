"""The coordinator of a run: it alone owns all state; workers compute and post what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty
from typing import Any

from trueline.run.attempt import Attempt, Entry, Outcome, Token
from trueline.run.emission import Emission
from trueline.run.error_policy import ErrorPolicy
from trueline.run.events import Observer
from trueline.run.executors import Executor
from trueline.run.failure import Failure
from trueline.run.finality import Finality, attempts_allowed, chance_through, is_worth
from trueline.run.generations import Generations, initial, stamped
from trueline.run.inbox import PATIENCE, Gate, Inbox, warn_not_woken
from trueline.run.keys import ALL, in_order
from trueline.run.notify import Notifier
from trueline.run.step import ERASED, Step
from trueline.run.step_state import BATCH_SECONDS, StepState


def leftmost(states: Sequence[StepState]) -> Iterable[StepState]:
    """Where to look for work first: what earlier steps make decides what later ones are given (run:F21)."""
    return states


class Coordinator:
    """Runs the steps over what comes in until every key is final at the last of them."""

    def __init__(
        self,
        steps: Sequence[Step],
        executor: Executor,
        *,
        deliberate: bool = False,
        observers: Sequence[Observer] = (),
        gate: Gate | None = None,
    ) -> None:
        self.states = [StepState(step, index) for index, step in enumerate(steps)]
        for state in self.states:
            state.guarded = any(before.writes_others for before in self.states[: state.index])
        self.executor = executor
        self.deliberate = deliberate
        self.inbox = Inbox()
        self.gate = gate
        self.order: Callable[[Sequence[StepState]], Iterable[StepState]] = leftmost
        self.notifier = Notifier(observers)
        self.emission = Emission(self.states, self.notifier, executor)
        self.finality = Finality(self.states, self.notifier, deliberate=deliberate)
        self.error_policy = ErrorPolicy(self.emission, self.finality, self.notifier)
        self.free = executor.workers
        self.patience = PATIENCE
        self._batch_seconds: float = getattr(executor, "batch_seconds", BATCH_SECONDS)
        self.fed: dict[Any, None] = {}
        self._handled = 0
        self._number = 0

    @property
    def failures(self) -> list[Failure]:
        """The failures that were real, in the order they were found."""
        return self.error_policy.failures

    def is_at(self, token: Token) -> bool:
        """Say whether a token is of work that is under way here; any thread may ask."""
        return any(attempt.token is token for state in self.states for attempt in tuple(state.attempts))

    # --- the loop ---------------------------------------------------------------------

    def run(self) -> dict[Any, Any]:
        """Run to the end; nothing runs any more when it returns or raises (run:F29)."""
        self.executor.start([state.step for state in self.states], self.inbox.post)
        try:
            self.notifier.begin([state.name for state in self.states])
            while not self._advance():
                self._receive()
            return self._result()
        finally:
            try:
                self._give_up()
            finally:
                try:
                    self.executor.stop()
                finally:
                    self.notifier.end()

    def _result(self) -> dict[Any, Any]:
        """Return the keys that are there: those that came in, in that order, then the others in theirs."""
        found = self.emission.results
        others = in_order(key for key in found if key not in self.fed)
        return {key: found[key][1] for key in (*self.fed, *others) if found[key][1] is not ERASED}

    def _give_up(self) -> None:
        """Supersede what still runs; at the end of a run that went well nothing does."""
        for state in self.states:
            for attempt in state.attempts:
                attempt.token.supersede()
                with suppress(Exception):
                    self.emission.supersede(state, attempt, attempt.items)

    def _advance(self) -> bool:
        """Begin what can be begun; say whether all is done."""
        while True:
            moved = self.finality.advance(self.emission.results)
            if moved is not None:
                for state in moved:
                    self.error_policy.judge(state, list(state.failed))
                self.error_policy.settle_all()
                continue
            if self.finality.is_done:
                return True
            if not self._dispatch():
                return False

    def _receive(self) -> None:
        """Wait for something to happen, then take all that has."""
        if self.gate is not None and not self.finality.closed:
            self.gate.leave(self._handled, self._backlog())
        if not self.executor.pump() or not self.inbox.queue.empty():
            self._handle(self._next_message())
        while True:
            try:
                message = self.inbox.queue.get_nowait()
            except Empty:
                break
            self._handle(message)

    def _next_message(self) -> tuple[Any, ...]:
        """Wait for a message; where steps that are not ready are all there is, look at them now and then.

        A step that has become ready but was not woken would wait for ever, and its run with it.
        """
        not_ready = [state for state in self.states if state.pending and not state.was_ready]
        if not not_ready or any(state.attempts for state in self.states):
            return self.inbox.queue.get()
        ready: set[int] = set()
        while True:
            with suppress(Empty):
                return self.inbox.queue.get(timeout=self.patience)
            before = frozenset(ready)
            ready = {state.index for state in not_ready if self._is_ready(state)}
            # Twice in a row, so that whoever is about to wake it has had the time to do so.
            late = [state.name for state in not_ready if state.index in before & ready]
            if late:
                warn_not_woken(late)
            if late or any(state.cancelled for state in not_ready):
                return ("wake",)

    def _handle(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("done", attempt, outcome):
                self._done(attempt, outcome)
            case ("feed", items, final):
                self._feed(items, final=final)
            case ("close",):
                self.finality.closed = True
                self.error_policy.settle_all()
            case ("raise", error):
                raise error

    # --- what comes in ----------------------------------------------------------------

    def _feed(self, items: dict[Any, Any], *, final: bool) -> None:
        """Hand new values to every step (run:F2); a revised one is newer than all made from the old.

        It is so by a generation of the first step: whatever was made from older values has a smaller one.
        """
        self._handled += len(items)
        if not items:
            return
        gens = initial(len(self.states))
        entries: dict[Any, Entry] = {key: (gens, value) for key, value in items.items()}
        known = self.fed.keys() & items.keys() if self.fed else ()
        if known and self.states:
            self.states[0].newest = self.states[0].next_generation()
            gens = stamped(gens, 0, self.states[0].newest)
            entries.update({key: (gens, items[key]) for key in items if key in known})
            for state in self.states:
                state.starts.update({key: 0 for key in known if key in state.accepted})
        self.fed.update(dict.fromkeys(items))
        self.emission.broadcast(-1, entries)
        if final:
            self.finality.promised.update(items)
            self.error_policy.settle(-1, items)

    def _backlog(self) -> int:
        """Count the values that can be worked on, or are, at the step that has most of them."""
        states = self.states[self.finality.finals :]
        if self.deliberate:
            states = states[:1]
        counts = (len(state.pending) + sum(len(each.items) for each in state.attempts) for state in states)
        return max(counts, default=0)

    # --- beginning work ---------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Begin the first work there is for a free worker; say whether there was any."""
        if self.free <= 0:
            return False
        states = self.states[self.finality.finals :]
        for state in self.order(states[:1] if self.deliberate else states):
            if state.pending and self._can_begin(state):
                self._begin(state)
                return True
        return False

    def _can_begin(self, state: StepState) -> bool:
        limit = state.step.concurrency
        if limit is not None and len(state.attempts) >= limit:
            return False
        return self._is_ready(state)

    def _is_ready(self, state: StepState) -> bool:
        try:
            state.was_ready = bool(state.step.ready())
            return state.was_ready
        except BaseException as error:  # noqa: BLE001 (whatever a step raises)
            self.error_policy.broken(state, error)
            return False

    def _begin(self, state: StepState) -> None:
        """Accept a batch and hand it to a worker; keys that need none are settled here."""
        batch = self._take(state)
        if not state.inputs_final:
            batch = self._capped(state, batch)
        state.accept(batch)
        self.notifier.notify_all("accepted", state.index, batch, None)
        work = self._to_work(state, batch)
        if not work:
            return
        if state.takes_all:
            work = {key: work[key] for key in in_order(work)}
        self._number += 1
        final = state.inputs_final or self.finality.are_final(work, state.index)
        attempt = Attempt(self._number, state.index, state.next_generation(), work, speculative=not final)
        attempt.started = self.notifier.now()
        state.attempts.append(attempt)
        state.calls += len(work)
        self.free -= 1
        self.notifier.notify_all("started", state.index, work, attempt)
        self.executor.submit(state.step, attempt, [(key, value) for key, (_, value) in work.items()])

    def _take(self, state: StepState) -> dict[Any, Entry]:
        """Take as many keys as a batch has; where values rarely stay, those that are not due are set aside.

        Only keys that are taken are looked at, so that each is set aside once, however many there are.
        """
        size = state.size(self.executor.workers, self._batch_seconds)
        before = self.states[self.finality.finals : state.index]
        if state.inputs_final or is_worth(chance_through(before)):
            return state.take(size)
        batch: dict[Any, Entry] = {}
        while state.pending and len(batch) < size:
            taken = state.take(size - len(batch))
            due = {key: taken.pop(key) for key in self.finality.due(state, taken)}
            state.waiting.update(taken)
            batch.update(due)
        return batch

    def _capped(self, state: StepState, batch: dict[Any, Entry]) -> dict[Any, Entry]:
        """Let keys that were begun too often wait until their input is final (run:F21)."""
        if state.accepted.keys().isdisjoint(batch):
            return batch
        for key in [key for key in batch if key in state.accepted]:
            state.starts[key] = state.starts.get(key, 1) + 1
            if state.starts[key] > attempts_allowed(state) and not self.finality.is_final(key, state.index):
                state.waiting[key] = batch.pop(key)
        return batch

    def _to_work(self, state: StepState, batch: dict[Any, Entry]) -> dict[Any, Entry]:
        """Return what needs a worker; settle keys that are erased, do not match, or could not be asked."""
        idle = {key: entry for key, entry in batch.items() if entry[1] is ERASED}
        if state.writes_others and not state.step.matches_all:
            idle.update({k: e for k, e in batch.items() if k not in idle and not state.matches(k)})
        raised = [key for key in batch if key in state.raised and key not in idle] if state.raised else []
        if not idle and not raised:
            return batch
        state.has_idle |= bool(idle)
        if state.writes_others:
            touched: dict[Any, None] = {}
            for key in (*idle, *raised):
                touched |= {**state.contributions.replace(key, {}), key: None}
            changes = self.emission.written(state, touched)
            if changes:
                self.emission.broadcast(state.index, changes)
        else:
            for key in (*idle, *raised):
                state.changed.pop(key, None)
        for key in raised:
            self.error_policy.failed(state, key, batch[key], state.raised[key])
        if state.cancelled:
            return {}
        self.error_policy.settle(state.index, [*idle, *raised])
        return {key: entry for key, entry in batch.items() if key not in idle and key not in raised}

    # --- ending work ------------------------------------------------------------------

    def _done(self, attempt: Attempt, outcome: Outcome | BaseException) -> None:
        state = self.states[attempt.index]
        state.attempts.remove(attempt)
        self.free += 1
        if isinstance(outcome, BaseException):
            self.error_policy.broken(state, outcome, attempt)
            return
        attempt.seconds, attempt.worker = outcome.seconds, outcome.worker
        state.calls -= outcome.known
        state.reused += outcome.known
        state.wasted += len(attempt.stale)
        state.kept += len(attempt.items) - len(attempt.stale)
        if attempt.stale and self.notifier:
            stale = {key: attempt.items[key] for key in attempt.items if key in attempt.stale}
            self.notifier.notify_all("superseded", state.index, stale, attempt)
        if state.cancelled:
            return
        failed = dict(outcome.errors)
        if state.writes_others:
            self._wrote(state, attempt, outcome, failed)
        else:
            self._mapped(state, attempt, outcome, failed)
        for key, error in failed.items():
            if key not in attempt.stale or not isinstance(error, Exception):
                self.error_policy.failed(state, key, attempt.items[key], error, attempt)
        if not state.cancelled:
            self.error_policy.settle(state.index, attempt.items)

    def _mapped(self, state: StepState, attempt: Attempt, outcome: Outcome, failed: dict[Any, Any]) -> None:
        """Hand on what changed; where nothing did, later steps have the value already (run:F10)."""
        index, items, stale = attempt.index, attempt.items, attempt.stale
        changed = outcome.changed
        if stale:
            changed = [each for each in changed if each[0] not in stale]
        state.learn(len(items) - len(stale), len(changed), outcome.seconds)
        if state.changed:
            for key in [key for key in items if key in state.changed and key not in stale]:
                del state.changed[key]
        emitted: dict[Any, Entry] = {}
        if changed:
            # What came in newer on the way may have a generation of this step, by a feed (`_feed`).
            generation = state.next_generation() if attempt.restamped else attempt.generation
            last: Generations | None = None
            for key, value in changed:
                came = items[key][0]
                if came is not last:  # most keys of a batch come from one batch of the step before
                    last, gens = came, stamped(came, index, generation)
                emitted[key] = (gens, value)
            state.changed.update(changed)
        if self.notifier:
            quiet = {k: e for k, e in items.items() if not (k in emitted or k in stale or k in failed)}
            self.notifier.notify_all("changed", index, emitted, attempt)
            self.notifier.notify_all("unchanged", index, quiet, attempt)
        if emitted:
            self.emission.broadcast(index, emitted)

    def _wrote(self, state: StepState, attempt: Attempt, outcome: Outcome, failed: dict[Any, Any]) -> None:
        """Replace what the keys of a batch write, and hand on what that changes (run:F27)."""
        made: dict[Any, dict[Any, Any]] = {
            key: {} for key in attempt.items if key not in attempt.stale and key not in failed
        }
        whole: dict[Any, Any] = {}
        for source, dst, value in outcome.writes:
            if source in made:
                made[source][dst] = value
            elif source not in attempt.items:
                whole[dst] = value
        state.learn(len(made), sum(map(bool, made.values())), outcome.seconds)
        touched: dict[Any, None] = {}
        for source, writes in made.items():
            touched |= {**state.contributions.replace(source, writes), source: None}
        for key in failed:
            if key not in attempt.stale:
                touched |= {**state.contributions.replace(key, {}), key: None}
        if whole:
            state.accepted[ALL] = (max(entry[0] for entry in attempt.items.values()), None)
            touched |= state.contributions.replace(ALL, whole)
        if not touched:
            return
        # What is sent later is newer: where values have a later generation of this step already, so has this.
        generation = attempt.generation
        if generation <= state.newest:
            generation = state.next_generation()
        if self.notifier:
            stamps = {k: (stamped(e[0], state.index, generation), e[1]) for k, e in attempt.items.items()}
            wrote = {k: (stamps[k][0], tuple(w.items())) for k, w in made.items() if w or whole}
            quiet = {k: stamps[k] for k, w in made.items() if not (w or whole)}
            self.notifier.notify_all("changed", state.index, wrote, attempt)
            self.notifier.notify_all("unchanged", state.index, quiet, attempt)
        changes = self.emission.written(state, touched, generation)
        if changes:
            self.emission.broadcast(state.index, changes)
