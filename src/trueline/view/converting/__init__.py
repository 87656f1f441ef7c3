"""Values of one type as values of another, by the table of `trueline.types`; null where there are none."""

from __future__ import annotations

from trueline.view.converting.table import convert

__all__ = ["convert"]
