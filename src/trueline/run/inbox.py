"""How other threads reach the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from trueline.run.attempt import Attempt, Outcome


@dataclass
class Inbox:
    """What reaches the coordinator from other threads."""

    queue: SimpleQueue[tuple[Any, ...]] = field(default_factory=SimpleQueue)

    def post(self, attempt: Attempt, outcome: Outcome | BaseException) -> None:
        """A batch has ended."""
        self.queue.put(("done", attempt, outcome))

    def feed(self, items: Mapping[Any, Any]) -> None:
        """Values have come in, new or revised."""
        self.queue.put(("feed", dict(items)))

    def close(self) -> None:
        """No more values will come in."""
        self.queue.put(("close",))

    def wake(self) -> None:
        """A step that was not ready may be."""
        self.queue.put(("wake",))
