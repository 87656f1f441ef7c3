"""A handler in a module of its own: it answers queries with a count."""

from __future__ import annotations

from typing import Any

from trueline.flow import AlignPoint, Process, nondet


def answer(p: Process, count: Any, point: AlignPoint) -> None:
    """Answer queries with a count that has all that was acknowledged."""
    tick = p.tick("answers")
    seen = count.snapshot_aligned(tick, point, nondet("any count that has the acknowledged"))
    asked = p.source("queries").batch(tick, nondet("asked when it is asked"))
    p.sink("answers", asked.cross_singleton(seen).all_ticks())
