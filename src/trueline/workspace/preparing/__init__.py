"""Preparation of files on their way in: ready-made steps, and the run that does them.

`ds.append(files, steps=[…])` takes these, and any `trueline.run.Step` on
tables: `map(path, table)` returns the table as it is, or another one.
"""

from __future__ import annotations

from trueline.workspace.preparing.enriching import enrich
from trueline.workspace.preparing.masking import mask
from trueline.workspace.preparing.parsing import parse
from trueline.workspace.preparing.preparing import Preparation
from trueline.workspace.preparing.repairing import repair
from trueline.workspace.preparing.rows import Rows
from trueline.workspace.preparing.validating import validate
from trueline.workspace.preparing.wrapping import on_rows

__all__ = ["Preparation", "Rows", "enrich", "mask", "on_rows", "parse", "repair", "validate"]
