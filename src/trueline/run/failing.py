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
from trueline.run.line import Line
from trueline.run.step import ERASED
from trueline.run.telling import Teller


class Failing:
    """Judges each error once, when its input is final (run:F22–F25, run:F29)."""

    def __init__(self, emission: Emission, finality: Finality, teller: Teller) -> None:
        self.failures: list[Failure] = []
        self._emission = emission
        self._finality = finality
        self._teller = teller

    def failed(
        self, line: Line, key: Any, entry: Entry, error: BaseException, attempt: Attempt | None = None
    ) -> None:
        """Keep an error until its input is final; what is no ordinary error ends the run at once."""
        self._teller.tell("raised", line.index, key, (entry[0], error), attempt)
        if not isinstance(error, Exception):
            self._note(line, key, entry, error)
            raise error
        if line.cancelled:
            return
        if line.inputs_final or self._finality.is_final(key, line.index):
            self._real(line, key, entry, error)
        else:
            line.failed[key] = (entry, error)

    def judge(self, line: Line, keys: Iterable[Any]) -> None:
        """Their input is final: what failed on them has failed."""
        keys = list(keys)
        for key in keys:
            if key in line.failed:
                entry, error = line.failed.pop(key)
                self._real(line, key, entry, error)
        self.settle(line.index, keys)

    def settle(self, after: int, keys: Iterable[Any]) -> None:
        """Let later steps begin what waited for these keys, and judge what failed on them there."""
        for line, failed in self._finality.released(after, keys):
            self.judge(line, failed)

    def settle_all(self) -> None:
        """Do so for every key that waits or failed: a final bit was set, or a step skipped."""
        for line, failed in self._finality.released_all():
            self.judge(line, failed)

    def broken(self, line: Line, error: BaseException, attempt: Attempt | None = None) -> None:
        """A step failed, and not on a value: its `ready` raised, or its worker was lost.

        What an executor says in words of our own is raised as it is.
        """
        key: Any = None
        entry: Entry = ((), None)
        if attempt is not None and len(attempt.items) == 1:
            ((key, entry),) = attempt.items.items()
        self._note(line, key, entry, error)
        if not isinstance(error, Exception) or (attempt is not None and isinstance(error, TruelineError)):
            raise error
        if line.step.on_error == "skip_step" and attempt is None:
            self.cancel(line)
        else:
            raise self.failures[-1].error() from error

    def _note(self, line: Line, key: Any, entry: Entry, error: BaseException) -> None:
        failure = Failure(line.index, line.name, key, entry[0], error, entry[1], line.step.on_error)
        self.failures.append(failure)
        self._teller.tell("failed", line.index, key, (entry[0], error))

    def _real(self, line: Line, key: Any, entry: Entry, error: Exception | BaseException) -> None:
        if line.cancelled:
            return
        self._note(line, key, entry, error)
        if line.step.on_error == "fail_run":
            raise self.failures[-1].error() from error
        if line.step.on_error == "skip_step":
            self.cancel(line)
        else:
            self._leave_out(line, key, entry)

    def _leave_out(self, line: Line, key: Any, entry: Entry) -> None:
        """Erase a key here; what others write to it counts as it would if the key had erased itself."""
        if line.writes_others:
            touched = line.contributions.replace(key, {key: ERASED})
            gone = self._emission.written(line, {**touched, key: None})
        else:
            line.changed[key] = ERASED
            gone = {key: (stamped(entry[0], line.index, line.next_generation()), ERASED)}
        self._emission.broadcast(line.index, gone)

    def cancel(self, line: Line) -> None:
        """Make a step the identity: take back what it told, and go on handing keys through (run:F22–F25)."""
        self._teller.tell("cancelled", line.index)
        line.cancelled = True
        for attempt in line.attempts:
            self._emission.supersede(line, attempt, attempt.items)
        newer = {**line.pending, **line.waiting}
        line.failed, line.pending, line.waiting = {}, {}, {}
        back: dict[Any, Entry] = {}
        if line.writes_others:
            line.accept(newer)
            touched = dict(line.contributions.owned)
            for source in list(line.contributions.by_source):
                touched.update(line.contributions.replace(source, {}))
            back = self._emission.written(line, touched)
        elif line.changed:
            generation = line.next_generation()
            back = {
                key: (stamped(line.accepted[key][0], line.index, generation), line.accepted[key][1])
                for key in line.changed
                if key not in newer
            }
        line.changed = {}
        if back:
            self._emission.broadcast(line.index, back)
        self._finality.measure()
        self.settle_all()
