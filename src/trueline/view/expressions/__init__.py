"""The language of conditions and computed columns: a documented part of SQL, null on error."""

from __future__ import annotations

from trueline.view.expressions.expression import Expression, condition, expression

__all__ = ["Expression", "condition", "expression"]
