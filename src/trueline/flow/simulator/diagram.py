"""A trace as a picture: the test and every tick have a line of life, time runs downwards."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trueline.flow.simulator.events import Execution, Noted, Received, Sent, TraceEvent, clipped, shown

COLUMN = 300
LEFT = 130
TOP = 56
LINE = 17
GAP = 14
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='12'"
INK, FAINT, TICK, ODD, WRONG = "#1f2933", "#7b8794", "#e6f0fa", "#fdf0d5", "#b00020"


def drawn(flow: str, events: Sequence[TraceEvent], failure: str = "") -> str:
    """Draw the events of one execution as SVG, and what failed at their end."""
    actors = ["the test", *dict.fromkeys(e.actor for e in events if isinstance(e, Execution))]
    said = failure.splitlines()[0] if failure else ""
    place = {actor: LEFT + number * COLUMN for number, actor in enumerate(actors)}
    body: list[str] = []
    top = TOP
    for number, event in enumerate(events, 1):
        height = _height(event)
        body += _event(number, event, place, top)
        top += height + GAP
    if said:
        body += [_text(LEFT - 110, top + LINE, f"✗ {clipped(said, 76)}", WRONG, bold=True)]
        top += 2 * LINE
    label = escape(f"flow {flow}: {said or 'no failure'}", quote=True)
    width = max(LEFT + len(actors) * COLUMN, 2 * COLUMN)
    head = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {top + 10}' width='{width}' "
            f"height='{top + 10}' {FONT} role='img' aria-label='{label}'>"
        ),
        (
            "<defs><marker id='head' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='8' markerHeight='8' "
            f"orient='auto'><path d='M0 0L8 4L0 8z' fill='{INK}'/></marker></defs>"
        ),
        f"<rect width='{width}' height='{top + 10}' fill='#ffffff'/>",
    ]
    for actor, middle in place.items():
        head += [
            _text(middle, 24, actor, INK, bold=True, anchor="middle"),
            f"<line x1='{middle}' y1='34' x2='{middle}' y2='{top}' stroke='{FAINT}' stroke-dasharray='3 4'/>",
        ]
    return "".join([*head, *body, "</svg>"])


def _lines(event: Execution) -> list[str]:
    lines = [f"{release.operator}: {release.note}" for release in event.releases]
    if event.cut:
        lines.append("cut: " + ", ".join(f"{name} {version}" for name, version in event.cut))
    lines += [f"⇒ {sink}: {shown(values)}" for sink, values in event.emitted]
    return [clipped(line, 38) for line in lines]


def _height(event: TraceEvent) -> int:
    return LINE * (1 + len(_lines(event))) + 8 if isinstance(event, Execution) else LINE + 4


def _event(number: int, event: TraceEvent, place: dict[str, int], top: int) -> list[str]:
    first = next(iter(place.values()))
    far = list(place.values())[1] if len(place) > 1 else first + COLUMN
    if isinstance(event, Execution):
        return _box(number, event, place[event.actor], top)
    if isinstance(event, Noted):
        return [_text(first - 110, top + LINE, f"{number}  {clipped(event.summary, 60)}", FAINT)]
    assert isinstance(event, Sent | Received)
    name = event.source if isinstance(event, Sent) else event.sink
    start, end = (first, far) if isinstance(event, Sent) else (far, first)
    label = f"{number}  {name} {'←' if isinstance(event, Sent) else '→'} {shown(event.values)}"
    return [
        _text(first + 10, top + LINE - 4, clipped(label, 40), INK),
        (
            f"<line x1='{start}' y1='{top + LINE}' x2='{end}' y2='{top + LINE}' stroke='{INK}' "
            "marker-end='url(#head)'/>"
        ),
    ]


def _box(number: int, event: Execution, middle: int, top: int) -> list[str]:
    left, width = middle - COLUMN // 2 + 8, COLUMN - 16
    fill = ODD if event.deviation else TICK
    found = [
        (
            f"<rect x='{left}' y='{top}' width='{width}' height='{_height(event)}' rx='4' fill='{fill}' "
            f"stroke='{INK}'/>"
        ),
        _text(left + 8, top + LINE - 2, f"{number}  execution {event.number}", INK, bold=True),
    ]
    for row, line in enumerate(_lines(event), 2):
        found.append(_text(left + 8, top + row * LINE - 2, line, INK))
    return found


def _text(x: int, y: int, text: str, colour: str, *, bold: bool = False, anchor: str = "start") -> str:
    weight = " font-weight='bold'" if bold else ""
    return f"<text x='{x}' y='{y}' fill='{colour}' text-anchor='{anchor}'{weight}>{escape(text)}</text>"
