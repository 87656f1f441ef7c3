"""What happened in one execution, step by step: as text, as a sequence diagram, in a notebook."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

SHOWN = 8  # elements of a batch that are written out; a longer one says how many there are
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A line of somebody's source."""

    file: str
    line: int

    @property
    def code(self) -> str:
        """The text of the line, empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def name(self) -> str:
        """The last part of the path, so that a trace does not depend on where the project lies."""
        return self.file.replace("\\", "/").rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return f"{self.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class Sent:
    """The test put elements into a source."""

    source: str
    values: tuple[Any, ...]
    place: Place | None = None

    @property
    def summary(self) -> str:
        """One line that says it."""
        return f"the test sends to {self.source!r}: {shown(self.values)[1:-1]}"


@dataclass(frozen=True, slots=True)
class Received:
    """The test read from a sink."""

    sink: str
    values: tuple[Any, ...]
    place: Place | None = None

    @property
    def summary(self) -> str:
        """One line that says it."""
        return f"the test reads {self.sink!r}: {shown(self.values)[1:-1] or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Noted:
    """Something else that matters: a fault, a fork, a barrier."""

    summary: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """What one observation point let through, and why it was free to."""

    operator: str
    note: str
    reason: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a tick, or one step of an observation outside every tick."""

    number: int
    actor: str
    releases: tuple[Release, ...] = ()
    cut: tuple[tuple[str, str], ...] = ()
    points: tuple[str, ...] = ()
    emitted: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    deviation: bool = False

    @property
    def summary(self) -> str:
        """One line that says it."""
        mark = "  ← not the eager choice" if self.deviation else ""
        return f"{self.actor} runs (execution {self.number}){mark}"


Event = Sent | Received | Noted | Execution


@dataclass(frozen=True)
class Trace:
    """The events of one execution, and what failed at their end."""

    flow: str
    events: tuple[Event, ...]
    failure: str = ""
    failed_at: Place | None = None
    line: str = ""
    deviations: int = 0
    notes: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def executions(self) -> tuple[Execution, ...]:
        """The executions of ticks among the events."""
        return tuple(event for event in self.events if isinstance(event, Execution))

    @property
    def replay(self) -> str:
        """The one line that runs this schedule again."""
        return f'flow.simulate(body, replay="{self.line}")'

    def text(self) -> str:
        """Write it out: the failure, the numbered events with source lines, the line to replay."""
        lines = []
        if self.failure:
            lines += [self.failure]
            if self.failed_at is not None:
                lines += [f"  at {self.failed_at}: {self.failed_at.code}"]
        lines += ["", f"How flow {self.flow!r} got there:"]
        for number, event in enumerate(self.events, 1):
            lines += _written(number, event)
        count = f"{self.deviations} deviation{'' if self.deviations == 1 else 's'}"
        lines += ["", f"{count} from the eager schedule. To run it again:", f"  {self.replay}"]
        return "\n".join([*lines, *self.notes])

    def svg(self) -> str:
        """Draw it as a sequence diagram."""
        from trueline.flow.simulator.diagram import drawn

        return drawn(self)

    def _repr_html_(self) -> str:
        from trueline.flow.simulator.diagram import page

        return page(self)

    def __str__(self) -> str:
        return self.text()


def _written(number: int, event: Event) -> Iterable[str]:
    place = getattr(event, "place", None)
    head = f"{number:>3}  {event.summary}"
    yield f"{head:<{WIDTH - 24}}  {place}".rstrip() if place is not None else head
    if isinstance(event, Execution):
        yield from (f"     {line}" for line in _inside(event))


def _inside(event: Execution) -> Iterator[str]:
    for release in event.releases:
        if release.place is not None:
            yield f"--> {release.place}"
            yield f" |  {clipped(release.place.code)}"
        yield f" |  {release.operator}: {release.note}"
        if release.reason:
            yield f" |  free to, because: {release.reason}"
    if event.cut:
        at = f" of {', '.join(repr(name) for name in event.points)}" if event.points else ""
        yield f"cut{at}: {', '.join(f'{name} {version}' for name, version in event.cut)}"
    for sink, values in event.emitted:
        yield f"==> {sink}: {shown(values)}"


def shown(values: Sequence[Any]) -> str:
    """Write elements out, the first few of many.

    >>> shown([1, "a"]), shown(range(1000))
    ("[1, 'a']", '[0, 1, 2, 3, 4, 5, 6, 7, ..] (1000 total)')
    """
    first = ", ".join(clipped(repr(value), 60) for value in values[:SHOWN])
    return f"[{first}]" if len(values) <= SHOWN else f"[{first}, ..] ({len(values)} total)"


def clipped(text: str, width: int = WIDTH) -> str:
    """Cut a text that is too long for one line.

    >>> clipped("abcdef", 4)
    'abc…'
    """
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
