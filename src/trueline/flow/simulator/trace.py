"""What happened in one execution, step by step: as text, as a sequence diagram, in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape

from trueline.flow.graph import Site
from trueline.flow.simulator.diagram import drawn
from trueline.flow.simulator.events import WIDTH, Execution, TraceEvent, clipped, shown


@dataclass(frozen=True)
class Trace:
    """The events of one execution, and what failed at their end."""

    flow: str
    events: tuple[TraceEvent, ...]
    failure: str = ""
    failed_at: Site | None = None
    line: str = ""
    deviations: int = 0
    notes: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[TraceEvent]:
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
                lines += [f"  at {self.failed_at}: {self.failed_at.text}"]
        lines += ["", f"How flow {self.flow!r} got there:"]
        for number, event in enumerate(self.events, 1):
            lines += _written(number, event)
        count = f"{self.deviations} deviation{'' if self.deviations == 1 else 's'}"
        lines += ["", f"{count} from the eager schedule. To run it again:", f"  {self.replay}"]
        return "\n".join([*lines, *self.notes])

    def svg(self) -> str:
        """Draw it as a sequence diagram."""
        return drawn(self.flow, self.events, self.failure)

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}<pre style='margin-top:1em'>{escape(self.text())}</pre></div>"

    def __str__(self) -> str:
        return self.text()


def _written(number: int, event: TraceEvent) -> Iterable[str]:
    place = getattr(event, "place", None)
    head = f"{number:>3}  {event.summary}"
    yield f"{head:<{WIDTH - 24}}  {place}".rstrip() if place is not None else head
    if isinstance(event, Execution):
        yield from (f"     {line}" for line in _inside(event))


def _inside(event: Execution) -> Iterator[str]:
    for release in event.releases:
        if release.place is not None:
            yield f"--> {release.place}"
            yield f" |  {clipped(release.place.text)}"
        yield f" |  {release.operator}: {release.note}"
        if release.reason:
            yield f" |  free to, because: {release.reason}"
    if event.cut:
        at = f" of {', '.join(repr(name) for name in event.points)}" if event.points else ""
        yield f"cut{at}: {', '.join(f'{name} {version}' for name, version in event.cut)}"
    for sink, values in event.emitted:
        yield f"==> {sink}: {shown(values)}"
