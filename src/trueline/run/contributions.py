"""Who writes what at a step that may write other keys than the one it was given (run:F26–F28).

A key's newest value replaces all that the key wrote before: what it no longer
writes is taken back. The value of a key after the step is what came in,
overlaid by what is written to it in the order of the writing keys. A key once
reported to later steps is *owned*: from then on every change of it is reported by this
step, also when nothing writes it any more, so that later steps never fall back
on something older.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trueline.run.attempt import Entry
from trueline.run.generations import Generations
from trueline.run.keys import in_order

ABSENT: Final = object()


class Contributions:
    """The writes of one step, by the key they were made from and by the key they go to."""

    def __init__(self) -> None:
        self.by_source: dict[Any, dict[Any, Any]] = {}
        self.writers: dict[Any, set[Any]] = {}
        self.ever: dict[Any, set[Any]] = {}
        self.owned: dict[Any, None] = {}

    def replace(self, source: Any, writes: dict[Any, Any]) -> dict[Any, None]:
        """Replace what a key writes; return the keys that touches."""
        before = self.by_source.pop(source, {})
        for dst in before:
            if dst not in writes:
                self.writers[dst].discard(source)
        for dst in writes:
            self.writers.setdefault(dst, set()).add(source)
            self.ever.setdefault(dst, set()).add(source)
        if writes:
            self.by_source[source] = writes
        return dict.fromkeys((*before, *writes))

    def is_written(self, dst: Any) -> bool:
        """Say whether anything writes a key now."""
        return bool(self.writers.get(dst))

    def value(self, dst: Any, accepted: Mapping[Any, Entry]) -> Any:
        """Return a key's value after the step, ABSENT if it has none."""
        writers = self.writers.get(dst)
        if writers:
            return self.by_source[in_order(writers)[-1]][dst]
        entry = accepted.get(dst)
        return ABSENT if entry is None else entry[1]

    def gens(self, dst: Any, accepted: Mapping[Any, Entry]) -> Generations | None:
        """Return the newest generations among the key's own and those of every key that ever wrote it."""
        found = [accepted[key][0] for key in (dst, *self.ever.get(dst, ())) if key in accepted]
        return max(found, default=None)
