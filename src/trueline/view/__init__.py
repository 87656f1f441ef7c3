"""What a reader sees: lazy, typed, repeatable views of exactly known records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueline.lazy import lazily

if TYPE_CHECKING:
    from trueline.view.origin import Origin
    from trueline.view.schema import Column, Schema
    from trueline.view.view import View

__all__ = ["Column", "Origin", "Schema", "View"]

_LAZY = {
    "Column": "trueline.view.schema",
    "Origin": "trueline.view.origin",
    "Schema": "trueline.view.schema",
    "View": "trueline.view.view",
}

__getattr__, __dir__ = lazily(__name__, _LAZY)
