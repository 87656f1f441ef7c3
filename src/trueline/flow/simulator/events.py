"""What may happen in one execution of a test, and how values are written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trueline.flow.graph import Site

SHOWN = 8  # elements of a batch that are written out; a longer one says how many there are
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Sent:
    """The test put elements into a source."""

    source: str
    values: tuple[Any, ...]
    place: Site | None = None

    @property
    def summary(self) -> str:
        """One line that says it."""
        return f"the test sends to {self.source!r}: {shown(self.values)[1:-1]}"


@dataclass(frozen=True, slots=True)
class Received:
    """The test read from a sink."""

    sink: str
    values: tuple[Any, ...]
    place: Site | None = None

    @property
    def summary(self) -> str:
        """One line that says it."""
        return f"the test reads {self.sink!r}: {shown(self.values)[1:-1] or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Noted:
    """Something else that matters: a fault, a fork, a barrier."""

    summary: str
    place: Site | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """What one observation point let through, and why it was free to."""

    operator: str
    note: str
    reason: str = ""
    place: Site | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a tick, or one step of an observation outside every tick."""

    number: int
    actor: str
    releases: tuple[Released, ...] = ()
    cut: tuple[tuple[str, str], ...] = ()
    points: tuple[str, ...] = ()
    emitted: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    deviation: bool = False

    @property
    def summary(self) -> str:
        """One line that says it."""
        mark = "  ← not the eager choice" if self.deviation else ""
        return f"{self.actor} runs (execution {self.number}){mark}"


TraceEvent = Sent | Received | Noted | Execution


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
