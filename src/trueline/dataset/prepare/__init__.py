"""Preparation of files on their way in: ready-made steps, and the run that does them.

`ds.append(files, steps=[…])` takes these, and any `trueline.run.Step` on
tables: `map(path, table)` returns the table as it is, or another one.
"""

from __future__ import annotations

from trueline.dataset.prepare.parse import parse
from trueline.dataset.prepare.preparation import Preparation
from trueline.dataset.prepare.rows import Rows, on_rows
from trueline.dataset.prepare.steps import enrich, mask, repair, validate

__all__ = ["Preparation", "Rows", "enrich", "mask", "on_rows", "parse", "repair", "validate"]
