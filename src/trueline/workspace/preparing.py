"""Steps that prepare files on their way into a dataset: parse, validate, repair, mask, enrich.

This is their documented name; they live in `trueline.dataset.prepare`.
"""

from __future__ import annotations

from trueline.dataset.prepare import Preparation, Rows, enrich, mask, on_rows, parse, repair, validate
from trueline.dataset.prepare.parse import Step, load_steps

__all__ = [
    "Preparation",
    "Rows",
    "Step",
    "enrich",
    "load_steps",
    "mask",
    "on_rows",
    "parse",
    "repair",
    "validate",
]
