"""The expression language: a documented subset of SQL, bound to columns, evaluated by Arrow (decision 5)."""

from __future__ import annotations

from trueline.view.expressions.expression import Expression, condition

__all__ = ["Expression", "condition"]
