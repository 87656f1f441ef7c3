"""What will not change any more: step by step and, where keys do not touch each other, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trueline.run.line import Line
from trueline.run.speculation import attempts_allowed, is_worth
from trueline.run.telling import Teller


class Finality:
    """Sets the final bits from the left, and knows which keys are final ahead of them."""

    def __init__(self, lines: Sequence[Line], teller: Teller, *, deliberate: bool = False) -> None:
        self.lines = lines
        self.closed = False
        self.promised: set[Any] = set()  # keys that will not be revised, before all is closed
        self.finals = 0  # so many steps from the left are output-final
        self._reach = 0
        self._deliberate = deliberate
        self._teller = teller
        self._told: dict[Any, int] = {}  # up to which step a key was told to be final
        self.measure()

    def measure(self) -> None:
        """Find how far keys can be final one by one: up to the first step where they touch each other."""
        reach = self.finals
        if not self._deliberate:
            while reach < len(self.lines) and not self.lines[reach].is_whole:
                reach += 1
        self._reach = reach

    def is_final(self, key: Any, index: int) -> bool:
        """Say whether a key's value will stay as it is when it reaches a step."""
        if index <= self.finals:
            return self.closed or (index == 0 and key in self.promised)
        if index > self._reach or not (self.closed or key in self.promised):
            return False
        return not any(line.is_busy_with(key) for line in self.lines[self.finals : index])

    def is_due(self, key: Any, line: Line) -> bool:
        """Say whether a key that waits may be begun: its value will stay, or probably will."""
        if self.is_final(key, line.index):
            return True
        if not line.step.eager or self._deliberate or line.starts.get(key, 0) > attempts_allowed(line):
            return False
        return is_worth(before for before in self.lines[self.finals : line.index] if before.may_change(key))

    def released(self, after: int, keys: Iterable[Any]) -> list[tuple[Line, list[Any]]]:
        """Let later steps begin what waited for these keys; return where failures can be judged now."""
        judged: list[tuple[Line, list[Any]]] = []
        for line in self.lines[max(after + 1, self.finals) :]:
            if line.waiting and not line.takes_all:
                for key in [key for key in keys if key in line.waiting]:
                    if self.is_due(key, line):
                        line.pending[key] = line.waiting.pop(key)
            if line.failed:
                failed = [key for key in keys if key in line.failed and self.is_final(key, line.index)]
                if failed:
                    judged.append((line, failed))
        if self._teller:
            self._tell_keys(keys)
        return judged

    def released_all(self) -> list[tuple[Line, list[Any]]]:
        """Do so for every key that waits or failed anywhere: a step was skipped, or all is closed."""
        lines = self.lines[self.finals :]
        keys = dict.fromkeys(key for line in lines for key in (*line.waiting, *line.failed))
        return self.released(-1, keys)

    def advance(self, known: Mapping[Any, Any]) -> list[Line] | None:
        """Set the final bits that can be set, each once (run:F13, run:F15); None if there were none.

        Returns the steps whose input became final and on which work has failed: that was no mistake.
        """
        if not self.closed:
            return None
        moved: list[Line] | None = None
        while self.finals < len(self.lines):
            line = self.lines[self.finals]
            if not line.inputs_final:
                line.inputs_final = True
                line.pending.update(line.waiting)
                line.waiting = {}
                moved = moved or []
                if line.failed:
                    moved.append(line)
            if not line.is_idle:
                break
            line.outputs_final = True
            line.tally()
            line.forget()
            self.finals += 1
            self.measure()
            if self._teller:
                self._tell_step(line, known)
        return moved

    @property
    def is_done(self) -> bool:
        """Whether every step is output-final."""
        return self.closed and self.finals == len(self.lines)

    # --- telling ----------------------------------------------------------------------

    def _tell_keys(self, keys: Iterable[Any]) -> None:
        for key in keys:
            index = max(self._told.get(key, 0), self.finals)
            while index < self._reach and self.is_final(key, index + 1):
                self._teller.tell("key final", index, key)
                index += 1
                self._told[key] = index

    def _tell_step(self, line: Line, known: Mapping[Any, Any]) -> None:
        for key in known:
            if self._told.get(key, 0) <= line.index:
                self._teller.tell("key final", line.index, key)
                self._told[key] = line.index + 1
        self._teller.tell("step final", line.index)
