"""What happened in a run, batch by batch: when, where, on which keys, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from trueline.run.events import Event

Fate: TypeAlias = Literal["kept", "thrown away"]

# A run of a million batches is recorded to here and counted from there on: some 500 bytes for each.
MOST_PIECES: Final = 100_000


@dataclass(slots=True)
class Piece:
    """One batch: `kept` of its keys count in the end; `ahead` of them were begun before they were final.

    A key is begun ahead when some earlier step ended its last work on the key after this one began.
    From `start` to `end` it was out of the coordinator's hands; for `worked` seconds a worker was at it.
    """

    number: int
    step: int
    name: str
    start: float
    end: float
    worker: int
    keys: list[Any] = field(default_factory=list)
    gens: tuple[int, ...] = ()
    changed: int = 0
    kept: int = 0
    ahead: int = 0
    worked: float = 0.0
    ended: bool = False

    @property
    def fate(self) -> Fate:
        """What became of it: it was kept if any of its keys was."""
        return "kept" if self.kept else "thrown away"

    @property
    def seconds(self) -> float:
        """How long it took from being handed out to being taken back."""
        return self.end - self.start


class Recording:
    """Watches a run: `Run(steps, observers=[recording])`; then look at its pieces, or have them drawn.

    >>> from trueline.run import Recording, Run, Step
    >>> recording = Recording()
    >>> Run([Step(map=lambda key, value: value + 1, name="add")], observers=[recording]).execute({"a": 1})
    {'a': 2}
    >>> [(piece.name, piece.keys, piece.fate, piece.changed) for piece in recording.pieces]
    [('add', ['a'], 'kept', 1)]
    """

    def __init__(self, limit: int = MOST_PIECES) -> None:
        self.limit = limit
        self.left_out = 0  # pieces beyond the limit
        self.steps: list[str] = []
        self._pieces: dict[int, Piece] = {}
        self._last: dict[tuple[int, Any], int] = {}  # the work on a key at a step that counts, so far
        self._skipped: set[int] = set()
        self._now = 0.0
        self._offset = 0.0
        self._first = 0
        self._base = 0  # of the steps of the run that is being told
        self._left = 0
        self._judged = True

    # --- while it goes on -------------------------------------------------------------

    def begin(self, steps: Sequence[str]) -> None:
        """Learn the names of the steps; a second run is shown behind the first, its steps below."""
        self._offset, self._base = self._now, len(self.steps)
        self._first = max(self._left, *self._pieces, 0)
        self.steps.extend(steps)

    def end(self) -> None:
        """Learn that nothing more will happen."""

    def event(self, event: Event) -> None:
        """Keep what happened."""
        step, at = self._base + event.step, self._offset + event.at
        self._now = max(self._now, at)
        self._judged = False
        if event.what == "accepted":
            self._last.pop((step, event.key), None)
        elif event.what == "started":
            self._started(step, at, event)
        elif event.what in ("changed", "unchanged", "superseded", "raised"):
            piece = self._pieces.get(self._first + event.attempt)
            if piece is not None:
                self._ended(piece, at, event)
        elif event.what == "cancelled":
            self._skipped.add(step)

    def _started(self, step: int, at: float, event: Event) -> None:
        number = self._first + event.attempt
        piece = self._pieces.get(number)
        if piece is None:
            if len(self._pieces) >= self.limit:
                self.left_out += number != self._left
                self._left = number
                return
            piece = Piece(number, step, self._name(step), at, at, event.worker, gens=event.gens)
            self._pieces[number] = piece
        piece.keys.append(event.key)

    def _name(self, step: int) -> str:
        return self.steps[step] if step < len(self.steps) else str(step)

    def _ended(self, piece: Piece, at: float, event: Event) -> None:
        if not piece.ended:
            piece.ended, piece.end, piece.worker, piece.worked = True, at, event.worker, event.seconds
        if event.what != "superseded":
            piece.changed += event.what == "changed"
            self._last[(piece.step, event.key)] = piece.number

    # --- afterwards -------------------------------------------------------------------

    @property
    def pieces(self) -> list[Piece]:
        """All batches in the order they were begun, judged by what is known now."""
        if not self._judged:
            self._judge()
        return list(self._pieces.values())

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return self._now

    def _judge(self) -> None:
        """Say of each piece how many of its keys count, and how many were begun before they were final."""
        settled: dict[Any, list[tuple[int, float]]] = {}
        for piece in self._pieces.values():
            if not piece.ended:
                piece.end = self._now
            piece.kept = 0
        for (step, key), number in self._last.items():
            piece = self._pieces[number]
            settled.setdefault(key, []).append((step, piece.end))
            if step not in self._skipped:
                piece.kept += 1
        for piece in self._pieces.values():
            piece.ahead = sum(
                any(step < piece.step and end > piece.start for step, end in settled.get(key, ()))
                for key in piece.keys
            )
        self._judged = True

    # --- to be looked at --------------------------------------------------------------

    def trace(self) -> dict[str, Any]:
        """Return a document in the trace format of Chrome, for `chrome://tracing` or Perfetto."""
        from trueline.run.trace import trace_of

        return trace_of(self)

    def write_trace(self, path: str | Path) -> None:
        """Write the document of `trace` to a file."""
        import json

        Path(path).write_text(json.dumps(self.trace(), ensure_ascii=False) + "\n", encoding="utf-8")

    def svg(self, title: str = "") -> str:
        """Return a drawing of the time line."""
        from trueline.run.timeline import svg_of

        return svg_of(self, title)

    def write_timeline(self, path: str | Path, title: str = "") -> None:
        """Write the drawing of `svg` to a file."""
        Path(path).write_text(self.svg(title), encoding="utf-8")

    def text(self, width: int = 72) -> str:
        """Return the time line as lines of text."""
        from trueline.run.timeline import text_of

        return text_of(self, width)

    def _repr_svg_(self) -> str:
        return self.svg()


def lanes(pieces: Iterable[Piece]) -> dict[int, int]:
    """Give each piece, by number, the first lane that is free when it starts.

    >>> lanes([Piece(1, 0, "a", 0, 2, 0), Piece(2, 0, "a", 1, 3, 0), Piece(3, 0, "a", 2, 4, 0)])
    {1: 0, 2: 1, 3: 0}
    """
    busy: list[float] = []
    found: dict[int, int] = {}
    for piece in sorted(pieces, key=lambda each: (each.start, each.number)):
        lane = next((index for index, until in enumerate(busy) if until <= piece.start), len(busy))
        if lane == len(busy):
            busy.append(0.0)
        busy[lane] = piece.end
        found[piece.number] = lane
    return found
