"""Declared sources: where new data is found, and pulling it in."""

from __future__ import annotations

from trueline.dataset.declared_source import DeclaredSource, source
from trueline.workspace.pull.report import Pulled, PullReport

__all__ = ["DeclaredSource", "PullReport", "Pulled", "source"]
