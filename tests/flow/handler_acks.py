"""A handler in a module of its own: it acknowledges what the other one shows."""

from __future__ import annotations

from typing import Any

from trueline.flow import AlignPoint, Process


def acknowledge(p: Process, increments: Any, point: AlignPoint) -> None:
    """Acknowledge an increment once every later answer includes it."""
    p.sink("acks", increments.release_aligned(point))
