"""What happened in a run, batch by batch: when, where, on which keys, and what became of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trueline.run.events import Event
from trueline.run.timeline import RecordedBatch, Timeline, lanes, svg_of, text_of

# A run of a million batches is recorded to here and counted from there on: some 500 bytes for each.
MOST_PIECES: Final = 100_000
# Names of colours that the viewers know.
_COLOURS: Final = {"kept": "thread_state_running", "ahead": "rail_response", "thrown away": "terrible"}
_MOST_KEYS: Final = 20


class Seat:
    """Watches one run for a recording: its steps are shown below those of the runs before it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.first = 0  # of the steps of this run
        self.offset = 0.0  # when it began
        self.pieces: dict[int, RecordedBatch] = {}  # by the number of the batch
        self.last: dict[tuple[int, Any], RecordedBatch] = {}  # the work on a key that counts, so far
        self.skipped: set[int] = set()
        self.left_out = 0  # the newest batch that was

    def begin(self, steps: Sequence[str]) -> None:
        """Take a place in the recording."""
        self.recording.seated(self, steps)

    def event(self, event: Event) -> None:
        """Keep what happened."""
        self.recording.note(self, event)

    def end(self) -> None:
        """Nothing more will happen."""


class Recording:
    """Watches a run: `Run(steps, observers=[recording])`; then look at its pieces, or have them drawn.

    >>> from trueline.run import Recording, Run, Step
    >>> recording = Recording()
    >>> Run([Step(map=lambda key, value: value + 1, name="add")], observers=[recording]).execute({"a": 1})
    {'a': 2}
    >>> [(piece.name, piece.keys, piece.fate, piece.changed) for piece in recording.pieces]
    [('add', ['a'], 'kept', 1)]

    >>> recording.seconds > 0, recording.timeline.steps, recording.text().splitlines()[0][:3]
    (True, ('add',), 'add')
    >>> recording.trace()["traceEvents"][0]["name"], recording.svg()[:4]
    (..., '<svg')
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recording.write_trace(f"{folder}/trace.json")
    ...     recording.write_timeline(f"{folder}/timeline.svg")
    >>> seat = recording.seat()
    >>> recording.seated(seat, ["again"])
    >>> recording.note(seat, Event("step final", step=0))
    """

    def __init__(self, limit: int = MOST_PIECES) -> None:
        self.limit = limit
        self.left_out = 0  # pieces beyond the limit
        self.steps: list[str] = []
        self._runs: list[Seat] = []
        self._pieces: list[RecordedBatch] = []
        self._zero = 0.0
        self._now = 0.0
        self._judged = True
        self._lock = threading.Lock()

    # --- while it goes on -------------------------------------------------------------

    def seat(self) -> Seat:
        """Return the observer of one more run for this recording; runs may go on at the same time."""
        return Seat(self)

    def begin(self, steps: Sequence[str]) -> None:
        """Called with the names of the steps; those of a second run are shown below."""
        self.seat().begin(steps)

    def event(self, event: Event) -> None:
        """Keep what happened."""
        self.note(self._runs[-1], event)

    def end(self) -> None:
        """Called when the run has ended."""

    def seated(self, run: Seat, steps: Sequence[str]) -> None:
        """Called when one more run begins."""
        now = time.perf_counter()
        with self._lock:
            self._zero = now if not self._runs else self._zero
            self._runs.append(run)
            run.first, run.offset = len(self.steps), now - self._zero
            self.steps.extend(steps)

    def note(self, run: Seat, event: Event) -> None:
        """Keep what happened in one of the runs."""
        step, at = run.first + event.step, run.offset + event.at
        with self._lock:
            self._now = max(self._now, at)
            self._judged = False
            if event.what == "accepted":
                run.last.pop((step, event.key), None)
            elif event.what == "started":
                self._started(run, step, at, event)
            elif event.what in ("changed", "unchanged", "superseded", "raised"):
                piece = run.pieces.get(event.attempt)
                if piece is not None:
                    _ended(run, piece, at, event)
            elif event.what == "cancelled":
                run.skipped.add(step)

    def _started(self, run: Seat, step: int, at: float, event: Event) -> None:
        piece = run.pieces.get(event.attempt)
        if piece is None:
            number = len(self._pieces) + 1
            if number > self.limit:
                self.left_out += event.attempt != run.left_out
                run.left_out = event.attempt
                return
            piece = RecordedBatch(number, step, self.steps[step], at, at, event.worker, gens=event.gens)
            run.pieces[event.attempt] = piece
            self._pieces.append(piece)
        piece.keys.append(event.key)

    # --- afterwards -------------------------------------------------------------------

    @property
    def pieces(self) -> list[RecordedBatch]:
        """All batches in the order they were begun, judged by what is known now."""
        with self._lock:
            if not self._judged:
                self._judge()
            return list(self._pieces)

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return self._now

    def _judge(self) -> None:
        """Say of each piece how many of its keys count, and how many were begun before they were final."""
        for piece in self._pieces:
            piece.kept = 0
            if not piece.ended:
                piece.end = self._now
        for run in self._runs:
            settled: dict[Any, list[tuple[int, float]]] = {}
            for (step, key), piece in run.last.items():
                settled.setdefault(key, []).append((step, piece.end))
                piece.kept += step not in run.skipped
            for piece in run.pieces.values():
                piece.ahead = sum(
                    any(step < piece.step and end > piece.start for step, end in settled.get(key, ()))
                    for key in piece.keys
                )
        self._judged = True

    # --- to be looked at --------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """What there is to draw."""
        return Timeline(tuple(self.steps), self.pieces, self.seconds, self.left_out)

    def trace(self) -> dict[str, object]:
        """Return a document in the trace format of Chrome, for `chrome://tracing` or Perfetto."""
        return trace_of(self.timeline)

    def write_trace(self, path: str | Path) -> None:
        """Write the document of `trace` to a file."""
        Path(path).write_text(json.dumps(self.trace(), ensure_ascii=False) + "\n", encoding="utf-8")

    def svg(self, title: str = "") -> str:
        """Return a drawing of the time line."""
        return svg_of(self.timeline, title)

    def write_timeline(self, path: str | Path, title: str = "") -> None:
        """Write the drawing of `svg` to a file."""
        Path(path).write_text(self.svg(title), encoding="utf-8")

    def text(self, width: int = 72) -> str:
        """Return the time line as lines of text."""
        return text_of(self.timeline, width)

    def _repr_svg_(self) -> str:
        return self.svg()


def _ended(run: Seat, piece: RecordedBatch, at: float, event: Event) -> None:
    if not piece.ended:
        piece.ended, piece.end, piece.worker, piece.worked = True, at, event.worker, event.seconds
    if event.what != "superseded":
        piece.changed += event.what == "changed"
        run.last[(piece.step, event.key)] = piece


# --- for Chrome's viewer and Perfetto --------------------------------------------------


def trace_of(timeline: Timeline) -> dict[str, Any]:
    """Write each batch as a complete event, times in microseconds.

    Its category is `kept` or `thrown away`, with `ahead` where it began before its input was final.
    """
    pieces = timeline.batches
    rows = lanes(pieces)
    events: list[dict[str, Any]] = [_named("process_name", 0, "run")]
    events += [_named("thread_name", lane, f"worker {lane}") for lane in sorted(set(rows.values()))]
    events += [_event(piece, rows[piece.number]) for piece in pieces]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"steps": list(timeline.steps), "left_out": timeline.left_out},
    }


def _named(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 1, "tid": lane, "args": {"name": name}}


def _event(piece: RecordedBatch, lane: int) -> dict[str, Any]:
    kept = piece.fate == "kept"
    return {
        "ph": "X",
        "name": piece.name,
        "cat": ",".join([piece.fate, *(["ahead"] if piece.ahead else [])]),
        "cname": _COLOURS["ahead" if kept and piece.ahead else piece.fate],
        "pid": 1,
        "tid": lane,
        "ts": round(piece.start * 1e6, 1),
        "dur": round(piece.seconds * 1e6, 1),
        "args": {
            "step": piece.step,
            "batch": piece.number,
            "keys": len(piece.keys),
            "kept": piece.kept,
            "ahead": piece.ahead,
            "changed": piece.changed,
            "worked ms": round(piece.worked * 1e3, 3),
            "generations": list(piece.gens),
            "first keys": [str(key) for key in piece.keys[:_MOST_KEYS]],
        },
    }
