"""How what a step made reaches the steps to its right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trueline.run.attempt import Attempt, Entry
from trueline.run.contributions import ABSENT
from trueline.run.equality import same
from trueline.run.executors import Executor
from trueline.run.generations import stamped
from trueline.run.keys import ALL
from trueline.run.notify import Notifier
from trueline.run.step import ERASED
from trueline.run.step_state import StepState


class Emission:
    """Delivers values in the turn in which they were made: no outgoing queue is ever left full (run:F12)."""

    def __init__(self, states: Sequence[StepState], notifier: Notifier, executor: Executor) -> None:
        self.states = states
        self.results: dict[Any, Entry] = {}  # what has left the last step, so far
        self._guarded = any(state.writes_others for state in states)
        self._notifier = notifier
        self._executor = executor

    def broadcast(self, producer: int, entries: dict[Any, Entry]) -> None:
        """Deliver newer values to every step to the right, never to the producer (run:F8).

        A step that had worked on an equal value sends what it made of it again, with the new generations;
        the steps to its right are given that instead.
        """
        for state in self.states[producer + 1 :]:
            again: dict[Any, Entry] = {}
            if not state.cancelled:
                wanted = state.wanted(entries)
                if wanted:
                    again = self._deliver(state, wanted)
            elif state.writes_others:
                again = self._pass_on(state, entries)
            if again:
                entries = {**entries, **again}
        results = self.results
        if results and self._guarded:
            entries = {
                key: entry
                for key, entry in entries.items()
                if key not in results or entry[0] > results[key][0]
            }
        results.update(entries)

    def _deliver(self, state: StepState, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        found = state.deliver(entries)
        if found is None:
            return {}
        for attempt, keys in found.lost:
            self.supersede(state, attempt, keys)
        self._notifier.notify_all("restamped", state.index, found.restamped, None)
        return {**found.again, **self.written(state, found.touched)} if found.touched else found.again

    def _pass_on(self, state: StepState, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        """A step that was skipped hands keys through, those it ever wrote under its own generations."""
        entries = state.newer(entries)
        state.accept(entries)
        return self.written(state, [key for key in entries if key in state.contributions.owned])

    def written(self, state: StepState, keys: Iterable[Any], generation: int = 0) -> dict[Any, Entry]:
        """Return what is to be sent to later steps of keys that others may write here.

        That is a key whose value is not what came in and, once it was sent, every change of it. All of it
        has one generation: that of the batch that wrote it, or where no batch did, one of its own.
        """
        contributions, accepted = state.contributions, state.accepted
        owned = contributions.owned
        sent: dict[Any, Entry] = {}
        for dst in keys:
            if dst in state.pending or dst in state.waiting or dst is ALL:
                continue  # a newer value is on its way in; it is sent when that is accepted
            if dst not in owned and not contributions.is_written(dst):
                continue
            value, entry = contributions.value(dst, accepted), accepted.get(dst)
            if dst not in owned:
                came = ABSENT if entry is None else entry[1]
                if value is came or (came is not ABSENT and same(state.step, value, came)):
                    continue
            gens = contributions.gens(dst, accepted)
            if gens is None:
                continue
            generation = state.newest = generation or state.next_generation()
            owned[dst] = None
            sent[dst] = (stamped(gens, state.index, generation), ERASED if value is ABSENT else value)
        return sent

    def supersede(self, state: StepState, attempt: Attempt, keys: Iterable[Any]) -> None:
        """Tell running work that it is superseded; its result is dropped whether it stops or not."""
        keys = [key for key in keys if key not in attempt.stale]
        attempt.supersede(keys)
        if state.step.hears_superseded:
            for key in keys:
                state.step.superseded(key)
        if attempt.is_useless:
            self._executor.superseded(attempt)
