"""The language of conditions and computed columns: a documented part of SQL, null on error."""

from __future__ import annotations

from trueline.view.expressions.expression import (
    Expression,
    columns_and_parameters,
    condition,
    expression,
    named_in,
)

__all__ = ["Expression", "columns_and_parameters", "condition", "expression", "named_in"]
