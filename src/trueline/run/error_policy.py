"""What becomes of errors: on a value that may still change they are none; then the step's `on_error` says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trueline.errors import TruelineError
from trueline.run.attempt import Attempt, Entry
from trueline.run.emission import Emission
from trueline.run.failure import Failure
from trueline.run.finality import Finality
from trueline.run.generations import stamped
from trueline.run.notify import Notifier
from trueline.run.step import ERASED
from trueline.run.step_state import StepState


class ErrorPolicy:
    """Judges each error once, when its input is final (run:F22–F25, run:F29)."""

    def __init__(self, emission: Emission, finality: Finality, notifier: Notifier) -> None:
        self.failures: list[Failure] = []
        self._emission = emission
        self._finality = finality
        self._notifier = notifier

    def failed(
        self, state: StepState, key: Any, entry: Entry, error: BaseException, attempt: Attempt | None = None
    ) -> None:
        """Keep an error until its input is final; what is not an Exception (Ctrl-C) ends the run at once."""
        self._notifier.notify("raised", state.index, key, (entry[0], error), attempt)
        if not isinstance(error, Exception):
            self._note(state, key, entry, error)
            raise error
        if state.cancelled:
            return
        if state.inputs_final or self._finality.is_final(key, state.index):
            self._real(state, key, entry, error)
        else:
            state.failed[key] = (entry, error)

    def judge(self, state: StepState, keys: Iterable[Any]) -> None:
        """Their input is final: what failed on them has failed."""
        keys = list(keys)
        for key in keys:
            if key in state.failed:
                entry, error = state.failed.pop(key)
                self._real(state, key, entry, error)
        self.settle(state.index, keys)

    def settle(self, after: int, keys: Iterable[Any]) -> None:
        """Let later steps begin what waited for these keys, and judge what failed on them there."""
        for state, failed in self._finality.released(after, keys):
            self.judge(state, failed)

    def settle_all(self) -> None:
        """Do so for every key that waits or failed: a final bit was set, or a step skipped."""
        for state, failed in self._finality.released_all():
            self.judge(state, failed)

    def broken(self, state: StepState, error: BaseException, attempt: Attempt | None = None) -> None:
        """A step failed, and not on a value: its `ready` raised, or its worker was lost.

        What an executor says in words of our own is raised as it is.
        """
        key: Any = None
        entry: Entry = ((), None)
        if attempt is not None and len(attempt.items) == 1:
            ((key, entry),) = attempt.items.items()
        self._note(state, key, entry, error)
        if not isinstance(error, Exception) or (attempt is not None and isinstance(error, TruelineError)):
            raise error
        if state.step.on_error == "skip_step" and attempt is None:
            self.cancel(state)
        else:
            raise self.failures[-1].error() from error

    def _note(self, state: StepState, key: Any, entry: Entry, error: BaseException) -> None:
        failure = Failure(state.index, state.name, key, entry[0], error, entry[1], state.step.on_error)
        self.failures.append(failure)
        self._notifier.notify("failed", state.index, key, (entry[0], error))

    def _real(self, state: StepState, key: Any, entry: Entry, error: Exception | BaseException) -> None:
        if state.cancelled:
            return
        self._note(state, key, entry, error)
        if state.step.on_error == "fail_run":
            raise self.failures[-1].error() from error
        if state.step.on_error == "skip_step":
            self.cancel(state)
        else:
            self._leave_out(state, key, entry)

    def _leave_out(self, state: StepState, key: Any, entry: Entry) -> None:
        """Erase a key here; what others write to it counts as it would if the key had erased itself."""
        if state.writes_others:
            touched = state.contributions.replace(key, {key: ERASED})
            gone = self._emission.written(state, {**touched, key: None})
        else:
            state.changed[key] = ERASED
            gone = {key: (stamped(entry[0], state.index, state.next_generation()), ERASED)}
        self._emission.broadcast(state.index, gone)

    def cancel(self, state: StepState) -> None:
        """Make a step the identity: take back what it sent, and go on handing keys through (run:F22–F25)."""
        self._notifier.notify("cancelled", state.index)
        state.cancelled = True
        for attempt in state.attempts:
            self._emission.supersede(state, attempt, attempt.items)
        newer = {**state.pending, **state.waiting}
        state.failed, state.pending, state.waiting = {}, {}, {}
        back: dict[Any, Entry] = {}
        if state.writes_others:
            state.accept(newer)
            touched = dict(state.contributions.owned)
            for source in list(state.contributions.by_source):
                touched.update(state.contributions.replace(source, {}))
            back = self._emission.written(state, touched)
        elif state.changed:
            generation = state.next_generation()
            back = {
                key: (stamped(state.accepted[key][0], state.index, generation), state.accepted[key][1])
                for key in state.changed
                if key not in newer
            }
        state.changed = {}
        if back:
            self._emission.broadcast(state.index, back)
        self._finality.measure()
        self.settle_all()
