"""What will not change any more, step by step and key by key; and when to work ahead on what still may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.run.notify import Notifier
from trueline.run.step_state import StepState

# Work on input that may still change is begun at most so many times for a key; then it waits.
ATTEMPTS: Final = 3
# Below this chance that nothing will change, a step waits for its input instead of working ahead.
WORTH: Final = 0.25


def attempts_allowed(state: StepState) -> int:
    """Return how often a step may begin a key before its input is final (run:F21).

    A step has as many as there are steps before it: with the last one, on the final value, that makes at
    most S (S + 1) / 2 calls for a key in S steps, and never more than four for each.
    """
    return min(ATTEMPTS, max(1, state.index))


def is_worth(chance: float) -> bool:
    """Say whether to work ahead on a value that stays with this chance."""
    return chance >= WORTH


def chance_through(before: Iterable[StepState]) -> float:
    """Return the chance that whatever comes through these steps stays, by how often each changed a value.

    For one key only the steps count that may still change it (`Finality.due`): a file that was parsed is
    worth working ahead on, though parsing changes all of them and others are not parsed yet.
    """
    chance = 1.0
    for state in before:
        if not state.cancelled:
            chance *= 1.0 - state.change_rate
    return chance


@dataclass(slots=True)
class Outlook:
    """What lies before keys on their way to a step."""

    is_certain: bool  # there is no step on the way at which keys touch each other
    chance: float = 1.0  # that no such step changes a key
    odds: dict[Any, float] = field(default_factory=dict)  # that no step that is busy with a key does


class Finality:
    """Sets the final bits from the left, and knows which keys are final ahead of them."""

    def __init__(self, states: Sequence[StepState], notifier: Notifier, *, deliberate: bool = False) -> None:
        self.states = states
        self.closed = False
        self.promised: set[Any] = set()  # keys that will not be revised, before all is closed
        self.finals = 0  # so many steps from the left are output-final
        self._reach = 0
        self._deliberate = deliberate
        self._notifier = notifier
        self._notified: dict[Any, int] = {}  # up to which step observers know a key to be final
        self.measure()

    def measure(self) -> None:
        """Find how far keys can be final one by one: up to the first step where they touch each other."""
        reach = self.finals
        if not self._deliberate:
            while reach < len(self.states) and not self.states[reach].is_whole:
                reach += 1
        self._reach = reach

    def is_final(self, key: Any, index: int) -> bool:
        """Say whether a key's value will stay as it is when it reaches a step."""
        if index <= self.finals:
            return self.closed or (index == 0 and key in self.promised)
        if index > self._reach or not (self.closed or key in self.promised):
            return False
        return not any(state.is_busy_with(key) for state in self.states[self.finals : index])

    def are_final(self, keys: Iterable[Any], index: int) -> bool:
        """Say whether all of some keys are."""
        keys = list(keys)
        if not all(self.is_final(key, index) for key in keys[:1]):
            return False
        if not self.closed and not self.promised.issuperset(keys):
            return False
        return not any(state.busy_with(keys) for state in self.states[self.finals : index])

    def due(self, state: StepState, keys: Iterable[Any]) -> list[Any]:
        """Return the keys that may be begun at a step: their values will stay, or probably will."""
        keys = list(keys)
        return next(self._due(each, keys, ahead) for each, ahead in self._ahead(keys) if each is state)

    def released(self, after: int, keys: Iterable[Any]) -> list[tuple[StepState, list[Any]]]:
        """Let later steps begin what waited for these keys; return where failures can be judged now."""
        judged: list[tuple[StepState, list[Any]]] = []
        first = max(after + 1, self.finals)
        if any(state.waiting or state.failed for state in self.states[first:]):
            keys = list(keys)
            for state, ahead in self._ahead(keys):
                if state.index < first:
                    continue
                if state.waiting and not state.takes_all:
                    for key in self._due(state, [key for key in keys if key in state.waiting], ahead):
                        state.pending[key] = state.waiting.pop(key)
                failed = [key for key in keys if key in state.failed and self._stays(key, ahead)]
                if failed:
                    judged.append((state, failed))
        if self._notifier:
            self._notify_keys(keys)
        return judged

    def _ahead(self, keys: list[Any]) -> Iterator[tuple[StepState, Outlook]]:
        """Yield each step that is not final, and what may still happen to keys before they reach it.

        One walk over the steps serves all keys; `Outlook` is the same object, brought up to date on the way.
        """
        ahead = Outlook(not self._deliberate)
        for state in self.states[self.finals :]:
            yield state, ahead
            if state.is_whole:
                ahead.is_certain = False
                ahead.chance *= 1.0 - state.change_rate
            else:
                stays = 1.0 - state.change_rate
                for key in state.busy_with(keys):
                    ahead.odds[key] = ahead.odds.get(key, 1.0) * stays

    def _stays(self, key: Any, ahead: Outlook) -> bool:
        return ahead.is_certain and key not in ahead.odds and (self.closed or key in self.promised)

    def _due(self, state: StepState, keys: list[Any], ahead: Outlook) -> list[Any]:
        eager = state.step.eager and not self._deliberate
        allowed, starts = attempts_allowed(state), state.starts
        return [
            key
            for key in keys
            if self._stays(key, ahead)
            or (eager and is_worth(ahead.chance * ahead.odds.get(key, 1.0)) and starts.get(key, 0) <= allowed)
        ]

    def released_all(self) -> list[tuple[StepState, list[Any]]]:
        """Do so for every key that waits or failed anywhere: a step was skipped, or all is closed."""
        states = self.states[self.finals :]
        keys = dict.fromkeys(key for state in states for key in (*state.waiting, *state.failed))
        return self.released(-1, keys)

    def advance(self, known: Mapping[Any, Any]) -> list[StepState] | None:
        """Set the final bits that can be set, each once (run:F13, run:F15); None if there were none.

        Returns the steps whose input became final and on which work has failed: that was no mistake.
        """
        if not self.closed:
            return None
        moved: list[StepState] | None = None
        while self.finals < len(self.states):
            state = self.states[self.finals]
            if not state.inputs_final:
                state.inputs_final = True
                state.pending.update(state.waiting)
                state.waiting = {}
                moved = moved or []
                if state.failed:
                    moved.append(state)
            if not state.is_idle:
                break
            state.outputs_final = True
            state.tally()
            state.forget()
            self.finals += 1
            self.measure()
            if self._notifier:
                self._notify_step(state, known)
        return moved

    @property
    def is_done(self) -> bool:
        """Whether every step is output-final."""
        return self.closed and self.finals == len(self.states)

    # --- notifying ---------------------------------------------------------------------

    def _notify_keys(self, keys: Iterable[Any]) -> None:
        for key in keys:
            index = max(self._notified.get(key, 0), self.finals)
            while index < self._reach and self.is_final(key, index + 1):
                self._notifier.notify("key final", index, key)
                index += 1
                self._notified[key] = index

    def _notify_step(self, state: StepState, known: Mapping[Any, Any]) -> None:
        for key in known:
            if self._notified.get(key, 0) <= state.index:
                self._notifier.notify("key final", state.index, key)
                self._notified[key] = state.index + 1
        self._notifier.notify("step final", state.index)
