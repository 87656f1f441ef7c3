"""What was measured, as rows of a table: on a terminal, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.timing import Samples

HEADINGS = ("what", "ours", "peer", "ratio", "goal", "met")


@dataclass(frozen=True)
class Value:
    """A measured quantity: a time (median and p95) or a rate."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One line: ours, what it is held against, the goal, and whether it was met (None: no goal)."""

    scenario: str
    what: str
    ours: Value | None = None
    peer: Value | None = None
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None
    note: str = ""
    aside: str = ""  # said beside the ratio

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            self.ours.text if self.ours else "–",
            self.peer.text if self.peer else "–",
            self.ratio_text,
            self.goal or "–",
            {True: "yes", False: "NO", None: "–"}[self.met],
        )

    @property
    def ratio_text(self) -> str:
        text = f"{self.ratio:.2f}" if self.ratio is not None else "–"
        return f"{text} ({self.aside})" if self.aside else text

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "what": self.what,
            "ours": self.ours.data | {"text": self.ours.text} if self.ours else None,
            "peer": self.peer.data | {"text": self.peer.text} if self.peer else None,
            "ratio": self.ratio,
            "goal": self.goal,
            "met": self.met,
            "note": self.note,
            "aside": self.aside,
        }


def duration(samples: Samples, label: str = "") -> Value:
    """Show the median with the p95 and the number of samples."""
    unit, factor = ("µs", 1e6) if samples.median < 1e-3 else ("ms", 1e3) if samples.median < 1 else ("s", 1)
    middle, high = samples.median * factor, samples.p95 * factor
    text = f"{label}{_digits(middle)} {unit} (p95 {_digits(high)}, n={samples.count})"
    return Value(text, {"median_s": samples.median, "p95_s": samples.p95, "n": samples.count})


def rate(per_second: float, unit: str, samples: Samples | None = None) -> Value:
    """Show a rate; the samples it comes from, if any, go into the data."""
    scaled, prefix = (per_second / 1e6, "M ") if per_second >= 1e6 else (per_second, "")
    data: dict[str, Any] = {"per_second": per_second, "unit": unit}
    if samples:
        data |= {"median_s": samples.median, "p95_s": samples.p95, "n": samples.count}
    return Value(f"{_digits(scaled)} {prefix}{unit}/s", data)


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def plain(rows: Sequence[Row]) -> str:
    """Lay the rows out for a terminal, notes beneath."""
    lines = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    shown.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(line.rstrip() for line in shown) + _remarks(rows, "\n  * ")


def markdown(rows: Sequence[Row]) -> str:
    """Lay the rows out as a Markdown table, notes beneath."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(row.cells for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + _remarks(rows, "\n- ")


def verdict(rows: Sequence[Row]) -> str:
    """Count the goals, and name those that were missed."""
    met, missed = [row for row in rows if row.met], [row for row in rows if row.met is False]
    lines = [f"{len(met)} of {len(met) + len(missed)} goals met."]
    for row in missed:
        got = [row.ours.text] if row.ours else []
        got += [f"ratio {row.ratio_text}"] if row.ratio is not None else []
        lines.append(f"  missed: {row.what}: {', '.join(got)}; goal {row.goal}")
    return "\n".join(lines)


def _remarks(rows: Sequence[Row], mark: str) -> str:
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return "".join(mark + note for note in notes)
