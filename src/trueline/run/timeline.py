"""A recording as a drawing: time to the right, steps from the top, a bar for each batch.

Later steps that work ahead lie below bars of earlier ones. Three looks show
what became of the work: kept, begun on input that was final; kept, begun
ahead; thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from trueline.console.items import safe

Fate: TypeAlias = Literal["kept", "thrown away"]
Look: TypeAlias = Literal["kept", "ahead", "thrown"]

_WORDS: Final[dict[Look, str]] = {
    "kept": "kept",
    "ahead": "kept, begun ahead",
    "thrown": "thrown away",
}
_MARKS: Final[dict[Look, str]] = {"kept": "█", "ahead": "▓", "thrown": "×"}

_WIDTH: Final = 960
_LEFT: Final = 150
_RIGHT: Final = 20
_TOP: Final = 56
_LANE: Final = 14
_GAP: Final = 10
_MOST_NAME: Final = 20
# Bars of one look in one lane that are closer than this are drawn as one.
_TOUCHING: Final = 0.3

_STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.title { font-size: 14px; font-weight: 600 }
.tick { fill: #777; font-size: 11px }
.line { stroke: #e4e4e4 }
.kept { fill: #2a6f97 }
.ahead { fill: #61a5c2 }
.thrown { fill: url(#hatch); stroke: #b5473c; stroke-width: 0.7 }
"""
_HATCH: Final = (
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="5" height="5" fill="#fbe9e7"/>'
    '<line x1="0" y1="0" x2="0" y2="5" stroke="#b5473c" stroke-width="2"/></pattern>'
)


@dataclass(slots=True)
class RecordedBatch:
    """One batch: `kept` of its keys count in the end; `ahead` of them were begun before they were final.

    A key is begun ahead when some earlier step ended its last work on the key after this one began.
    From `start` to `end` it was out of the coordinator's hands; for `worked` seconds a worker was at it.

    >>> batch = RecordedBatch(1, 0, "parse", start=0.5, end=2.0, worker=0, kept=1)
    >>> batch.fate, batch.seconds
    ('kept', 1.5)
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


@dataclass(frozen=True)
class Timeline:
    """What is drawn of a timeline."""

    steps: tuple[str, ...]
    batches: list[RecordedBatch]
    seconds: float
    left_out: int = 0


def lanes(pieces: Iterable[RecordedBatch]) -> dict[int, int]:
    """Give each piece, by number, the first lane that is free when it starts.

    >>> lanes(
    ...     [
    ...         RecordedBatch(1, 0, "a", 0, 2, 0),
    ...         RecordedBatch(2, 0, "a", 1, 3, 0),
    ...         RecordedBatch(3, 0, "a", 2, 4, 0),
    ...     ]
    ... )
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


def look_of(piece: RecordedBatch) -> Look:
    """Say how a piece is drawn."""
    if piece.fate == "thrown away":
        return "thrown"
    return "ahead" if piece.ahead else "kept"


# --- the drawing --------------------------------------------------------------


def svg_of(timeline: Timeline, title: str = "") -> str:
    """Draw a recording as an SVG of its own: no script, no font, nothing loaded."""
    rows = _rows(timeline)
    seconds = max(timeline.seconds, 1e-9)
    scale = (_WIDTH - _LEFT - _RIGHT) / seconds
    parts: list[str] = []
    top = float(_TOP)
    for name, tracks in rows:
        shown = name if len(name) <= _MOST_NAME else name[: _MOST_NAME - 1] + "…"
        parts.append(f'<text x="10" y="{top + 11:g}">{_xml(shown)}</text>')
        for track in tracks:
            parts += _bars(track, top, scale)
            top += _LANE
        top += _GAP
    height = top + 34
    size = f'viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" height="{height:g}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_xml(title or 'Time line of a run')}</title>",
        f"<style>{_STYLE}</style><defs>{_HATCH}</defs>",
        f'<rect width="{_WIDTH}" height="{height:g}" fill="#fff"/>',
        f'<text class="title" x="10" y="22">{_xml(title or "Time line")}</text>',
        *_legend(),
        *_axis(seconds, scale, top),
    ]
    if timeline.left_out:
        parts.append(f'<text class="tick" x="10" y="{top + 28:g}">{timeline.left_out:,} batches more</text>')
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _rows(timeline: Timeline) -> list[tuple[str, list[list[RecordedBatch]]]]:
    """The lanes of each step, each with its pieces from left to right."""
    found: list[tuple[str, list[list[RecordedBatch]]]] = []
    by_step: dict[int, list[RecordedBatch]] = {}
    for piece in timeline.batches:
        by_step.setdefault(piece.step, []).append(piece)
    for step, name in enumerate(timeline.steps):
        pieces = sorted(by_step.get(step, []), key=lambda each: (each.start, each.number))
        places = lanes(pieces)
        tracks: list[list[RecordedBatch]] = [[] for _ in range(max(places.values(), default=0) + 1)]
        for piece in pieces:
            tracks[places[piece.number]].append(piece)
        found.append((name, tracks))
    return found


def _bars(track: list[RecordedBatch], top: float, scale: float) -> Iterator[str]:
    """Draw one lane; a batch of which some keys were thrown away is drawn in two heights."""
    group: list[RecordedBatch] = []
    for piece in track:
        apart = group and (
            look_of(piece) != look_of(group[-1])
            or (piece.start - group[-1].end) * scale > _TOUCHING
            or (piece.end - group[0].start) * scale > 3
        )
        if apart:
            yield _bar(group, top, scale)
            group = []
        group.append(piece)
    if group:
        yield _bar(group, top, scale)


def _bar(group: list[RecordedBatch], top: float, scale: float) -> str:
    first, last = group[0], group[-1]
    left = _LEFT + first.start * scale
    width = max(0.6, (last.end - first.start) * scale - 0.4)
    keys = sum(len(piece.keys) for piece in group)
    kept = sum(piece.kept for piece in group)
    height = _LANE - 2
    full = height if kept == 0 or kept >= keys else max(2.0, height * kept / keys)
    bar = (
        f'<rect class="{look_of(first)}" x="{left:.2f}" y="{top:g}" width="{width:.2f}" height="{full:.3g}">'
    )
    drawn = f"{bar}<title>{_xml(_title(group, keys, kept))}</title></rect>"
    if full < height:
        drawn += (
            f'<rect class="thrown" x="{left:.2f}" y="{top + full:.4g}" width="{width:.2f}" '
            f'height="{height - full:.3g}"/>'
        )
    return drawn


def _title(group: list[RecordedBatch], keys: int, kept: int) -> str:
    first = group[0]
    which = ", ".join(str(key) for key in first.keys[:5]) + (" …" if keys > 5 else "")
    spent = sum(piece.seconds for piece in group)
    return (
        f"{first.name}: {which}\n{keys} keys, {kept} kept, {sum(p.changed for p in group)} changed, "
        f"{sum(p.ahead for p in group)} begun ahead\n{first.start:.3f} s, took {spent * 1e3:.1f} ms"
    )


def _legend() -> Iterator[str]:
    left = _LEFT
    for look, words in _WORDS.items():
        yield f'<rect class="{look}" x="{left}" y="32" width="18" height="12"/>'
        yield f'<text x="{left + 24}" y="42">{words}</text>'
        left += 60 + 7 * len(words)


def _axis(seconds: float, scale: float, bottom: float) -> Iterator[str]:
    step = nice(seconds / 6)
    ticks = int(seconds / step + 1e-9) + 1
    for number in range(ticks):
        left = _LEFT + number * step * scale
        yield f'<line class="line" x1="{left:.1f}" y1="{_TOP - 6}" x2="{left:.1f}" y2="{bottom:g}"/>'
        shown = f"{number * step:g} s" if step >= 0.1 else f"{number * step * 1e3:g} ms"
        yield f'<text class="tick" x="{left + 2:.1f}" y="{bottom + 12:g}">{shown}</text>'


def nice(size: float) -> float:
    """Return a round number near to a size: 1, 2 or 5 with zeros.

    >>> [nice(size) for size in (0.013, 0.7, 4.2, 90)]
    [0.01, 0.5, 5.0, 100.0]
    """
    power = 1e-9
    while power * 10 <= size:
        power *= 10
    power = float(f"{power:.0e}")
    best = min((1, 2, 5, 10), key=lambda digit: abs(size / power - digit))
    return float(f"{best * power:.0e}")


def _xml(text: str) -> str:
    """Make text fit for XML: no control characters, no half pairs, no markup."""
    whole = safe(text).encode("utf-8", "replace").decode("utf-8")
    return escape("".join("?" if char in "\ufffe\uffff" else char for char in whole), quote=False)


# --- as text ------------------------------------------------------------------


def text_of(timeline: Timeline, width: int = 72) -> str:
    """Draw a recording with characters: a line for each lane of each step, and what the marks mean."""
    rows = _rows(timeline)
    label = min(_MOST_NAME, max((len(name) for name, _ in rows), default=0))
    room = max(10, width - label - 2)
    scale = room / max(timeline.seconds, 1e-9)
    lines = []
    for name, tracks in rows:
        for number, track in enumerate(tracks):
            shown = safe(name)[:label] if number == 0 else ""
            lines.append(f"{shown:<{label}}  {_marks(track, room, scale)}".rstrip())
    last = f"{timeline.seconds:.2f} s"
    lines.append(f"{'':<{label}}  0{last:>{room - 1}}")
    used = {look_of(piece) for piece in timeline.batches}
    lines.append("  ".join(f"{mark} {_WORDS[look]}" for look, mark in _MARKS.items() if look in used))
    return "\n".join(lines)


def _marks(track: list[RecordedBatch], room: int, scale: float) -> str:
    """Fill the cells of a lane; in each the look wins that fills most of it."""
    cells: list[dict[Look, float]] = [{} for _ in range(room)]
    for look, group in groupby(track, key=look_of):
        for piece in group:
            first, last = piece.start * scale, max(piece.end * scale, piece.start * scale + 1e-6)
            for cell in range(int(first), min(room, int(last) + 1)):
                part = min(last, cell + 1) - max(first, cell)
                cells[cell][look] = cells[cell].get(look, 0.0) + part
    return "".join(_mark(cell) for cell in cells)


def _mark(cell: dict[Look, float]) -> str:
    best = max(cell, key=lambda look: cell[look], default=None)
    return _MARKS[best] if best is not None and sum(cell.values()) >= 0.2 else " "
