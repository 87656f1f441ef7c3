"""What will not change any more: step by step and, where keys do not touch each other, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trueline.run.line import Line
from trueline.run.speculation import attempts_allowed, is_worth
from trueline.run.telling import Teller


@dataclass(slots=True)
class Ahead:
    """What lies before keys on their way to a step."""

    is_certain: bool  # there is no step on the way at which keys touch each other
    chance: float = 1.0  # that no such step changes a key
    odds: dict[Any, float] = field(default_factory=dict)  # that no step that is busy with a key does


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

    def are_final(self, keys: Iterable[Any], index: int) -> bool:
        """Say whether all of some keys are."""
        keys = list(keys)
        if not all(self.is_final(key, index) for key in keys[:1]):
            return False
        if not self.closed and not self.promised.issuperset(keys):
            return False
        return not any(line.busy_with(keys) for line in self.lines[self.finals : index])

    def due(self, line: Line, keys: Iterable[Any]) -> list[Any]:
        """Return the keys that may be begun at a step: their values will stay, or probably will."""
        keys = list(keys)
        return next(self._due(each, keys, ahead) for each, ahead in self._ahead(keys) if each is line)

    def released(self, after: int, keys: Iterable[Any]) -> list[tuple[Line, list[Any]]]:
        """Let later steps begin what waited for these keys; return where failures can be judged now."""
        judged: list[tuple[Line, list[Any]]] = []
        first = max(after + 1, self.finals)
        if any(line.waiting or line.failed for line in self.lines[first:]):
            keys = list(keys)
            for line, ahead in self._ahead(keys):
                if line.index < first:
                    continue
                if line.waiting and not line.takes_all:
                    for key in self._due(line, [key for key in keys if key in line.waiting], ahead):
                        line.pending[key] = line.waiting.pop(key)
                failed = [key for key in keys if key in line.failed and self._stays(key, ahead)]
                if failed:
                    judged.append((line, failed))
        if self._teller:
            self._tell_keys(keys)
        return judged

    def _ahead(self, keys: list[Any]) -> Iterator[tuple[Line, Ahead]]:
        """Yield each step that is not final, and what may still happen to keys before they reach it.

        One walk over the steps serves all keys; `Ahead` is the same object, brought up to date on the way.
        """
        ahead = Ahead(not self._deliberate)
        for line in self.lines[self.finals :]:
            yield line, ahead
            if line.is_whole:
                ahead.is_certain = False
                ahead.chance *= 1.0 - line.change_rate
            else:
                stays = 1.0 - line.change_rate
                for key in line.busy_with(keys):
                    ahead.odds[key] = ahead.odds.get(key, 1.0) * stays

    def _stays(self, key: Any, ahead: Ahead) -> bool:
        return ahead.is_certain and key not in ahead.odds and (self.closed or key in self.promised)

    def _due(self, line: Line, keys: list[Any], ahead: Ahead) -> list[Any]:
        eager = line.step.eager and not self._deliberate
        allowed, starts = attempts_allowed(line), line.starts
        return [
            key
            for key in keys
            if self._stays(key, ahead)
            or (eager and is_worth(ahead.chance * ahead.odds.get(key, 1.0)) and starts.get(key, 0) <= allowed)
        ]

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
