"""A recording as a trace for Chrome's viewer and Perfetto: one row for each worker at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trueline.run.recording import Piece, Recording

# Names of colours that the viewers know.
_COLOURS: Final = {"kept": "thread_state_running", "ahead": "rail_response", "thrown away": "terrible"}
_MOST_KEYS: Final = 20


def trace_of(recording: Recording) -> dict[str, Any]:
    """Write each batch as a complete event, times in microseconds.

    Its category is `kept` or `thrown away`, with `ahead` where it began before its input was final.
    """
    from trueline.run.recording import lanes

    pieces = recording.pieces
    rows = lanes(pieces)
    events: list[dict[str, Any]] = [_named("process_name", 0, "run")]
    events += [_named("thread_name", lane, f"worker {lane}") for lane in sorted(set(rows.values()))]
    events += [_event(piece, rows[piece.number]) for piece in pieces]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"steps": list(recording.steps), "left_out": recording.left_out},
    }


def _named(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 1, "tid": lane, "args": {"name": name}}


def _event(piece: Piece, lane: int) -> dict[str, Any]:
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
