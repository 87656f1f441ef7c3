"""Declared sources: where new data is found, and pulling it in."""

from __future__ import annotations

from trueline.workspace.sources.declared import DeclaredSource, source
from trueline.workspace.sources.report import Pulled, PullReport

__all__ = ["DeclaredSource", "PullReport", "Pulled", "source"]
