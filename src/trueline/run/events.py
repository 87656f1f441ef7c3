"""What happens in a run, for those who watch: a time line, a progress display, a journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from trueline.run.generations import Generations

What: TypeAlias = Literal[
    "accepted",
    "started",
    "changed",
    "unchanged",
    "restamped",
    "superseded",
    "raised",
    "failed",
    "cancelled",
    "key final",
    "step final",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a key at a step (or to a step, then without a key).

    `attempt` numbers the batches of a run; `worker` says where a batch ran and `seconds` how long, once it
    has ended; `at` is in seconds since the run began; `speculative` says that the input of the step could
    still change.

    >>> Event("changed", step=0, key="a", at=0.5)
    Event(what='changed', step=0, key='a', ...)
    """

    what: What
    step: int
    key: Any = None
    gens: Generations = ()
    attempt: int = 0
    at: float = 0.0
    worker: int = 0
    value: Any = None
    speculative: bool = False
    seconds: float = 0.0


class Observer(Protocol):
    """Called with every event, in order, in the coordinator's thread: return soon, and raise nothing.

    >>> from trueline.run import Run, Step
    >>> class Counting:
    ...     changed = 0
    ...
    ...     def event(self, event):
    ...         self.changed += event.what == "changed"
    >>> counting = Counting()
    >>> Run([Step(map=lambda key, value: value + 1)], observers=[counting]).execute({"a": 1})
    {'a': 2}
    >>> counting.event(Event("changed", step=0))
    >>> counting.changed
    2
    """

    def event(self, event: Event) -> None:
        """Called with what happened."""


@runtime_checkable
class Watcher(Observer, Protocol):
    """An observer that is also called when a run begins and when it has ended.

    >>> from trueline.run import Recording
    >>> watcher = Recording()
    >>> watcher.begin(["parse"])
    >>> watcher.event(Event("step final", step=0))
    >>> watcher.end()
    >>> isinstance(watcher, Watcher)
    True
    """

    def begin(self, steps: Sequence[str]) -> None:
        """Called with the names of the steps, before anything happens."""

    def end(self) -> None:
        """Called at the end, whether the run went well or not."""
