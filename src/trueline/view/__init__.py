"""What a reader sees: lazy, typed, repeatable views of exactly known records."""

# Without `from __future__ import annotations`: it would stand where the module of that name is looked for.
from typing import TYPE_CHECKING

from trueline.lazy import lazily

if TYPE_CHECKING:
    from trueline.view.cursor.consolidate import consolidate
    from trueline.view.cursor.row import Cursor, Row
    from trueline.view.origin import Origin
    from trueline.view.schema import Column, Field, Schema
    from trueline.view.view import View

__all__ = ["Column", "Cursor", "Field", "Origin", "Row", "Schema", "View", "consolidate"]

_LAZY = {
    "Column": "trueline.view.schema",
    "Cursor": "trueline.view.cursor.row",
    "Field": "trueline.view.schema",
    "Origin": "trueline.view.origin",
    "Row": "trueline.view.cursor.row",
    "Schema": "trueline.view.schema",
    "View": "trueline.view.view",
    "consolidate": "trueline.view.cursor.consolidate",
}

__getattr__, __dir__ = lazily(__name__, _LAZY)
