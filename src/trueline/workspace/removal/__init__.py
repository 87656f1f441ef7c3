"""Removal: bytes go on purpose; hashes, counts and the reason stay in the chain."""

from __future__ import annotations

from trueline.workspace.removal.record import Hole, Removal, Removals, removals_of

__all__ = ["Hole", "Removal", "Removals", "removals_of"]
