"""How what a step made reaches the steps to its right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trueline.run.attempt import Attempt, Entry
from trueline.run.contributions import ABSENT
from trueline.run.executors import Executor
from trueline.run.generations import stamped
from trueline.run.keys import ALL
from trueline.run.line import Line
from trueline.run.sameness import same
from trueline.run.step import ERASED
from trueline.run.telling import Teller


class Emission:
    """Delivers values in the turn in which they were made: no outgoing queue is ever left full (run:F12)."""

    def __init__(self, lines: Sequence[Line], teller: Teller, executor: Executor) -> None:
        self.lines = lines
        self.results: dict[Any, Entry] = {}  # what has left the last step, so far
        self._guarded = any(line.writes_others for line in lines)
        self._teller = teller
        self._executor = executor

    def broadcast(self, producer: int, entries: dict[Any, Entry]) -> None:
        """Deliver newer values to every step to the right, never to the producer (run:F8).

        A step that had worked on an equal value tells what it made of it again, with the new generations;
        the steps to its right are given that instead.
        """
        for line in self.lines[producer + 1 :]:
            again: dict[Any, Entry] = {}
            if not line.cancelled:
                wanted = line.wanted(entries)
                if wanted:
                    again = self._deliver(line, wanted)
            elif line.writes_others:
                again = self._pass_on(line, entries)
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

    def _deliver(self, line: Line, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        found = line.deliver(entries)
        if found is None:
            return {}
        for attempt, keys in found.lost:
            self.supersede(line, attempt, keys)
        self._teller.tell_all("restamped", line.index, found.restamped, None)
        return {**found.again, **self.written(line, found.touched)} if found.touched else found.again

    def _pass_on(self, line: Line, entries: dict[Any, Entry]) -> dict[Any, Entry]:
        """A step that was skipped hands keys through, those it ever wrote under its own generations."""
        entries = line.newer(entries)
        line.accept(entries)
        return self.written(line, [key for key in entries if key in line.contributions.owned])

    def written(self, line: Line, keys: Iterable[Any]) -> dict[Any, Entry]:
        """Return what later steps are to be told of keys that others may write here.

        That is a key whose value is not what came in and, once it was told, every change of it.
        """
        contributions, accepted = line.contributions, line.accepted
        owned = contributions.owned
        generation = 0
        told: dict[Any, Entry] = {}
        for dst in keys:
            if dst in line.pending or dst in line.waiting or dst is ALL:
                continue  # a newer value is on its way in; it is told when that is accepted
            if dst not in owned and not contributions.is_written(dst):
                continue
            value, entry = contributions.value(dst, accepted), accepted.get(dst)
            if dst not in owned:
                came = ABSENT if entry is None else entry[1]
                if value is came or (came is not ABSENT and same(line.step, value, came)):
                    continue
            gens = contributions.gens(dst, accepted)
            if gens is None:
                continue
            generation = generation or line.next_generation()
            owned[dst] = None
            told[dst] = (stamped(gens, line.index, generation), ERASED if value is ABSENT else value)
        return told

    def supersede(self, line: Line, attempt: Attempt, keys: Iterable[Any]) -> None:
        """Tell running work that it is of no use; what comes of it is dropped whether it listens or not."""
        keys = [key for key in keys if key not in attempt.stale]
        attempt.supersede(keys)
        if line.step.hears_superseded:
            for key in keys:
                line.step.superseded(key)
        if attempt.is_useless:
            self._executor.superseded(attempt)
