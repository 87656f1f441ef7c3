"""Merge strategies as pure functions over Arrow tables, and sorting of inputs larger than memory."""

from __future__ import annotations

from trueline.dataset.merge.result import IGNORED, Merged, Op
from trueline.dataset.merge.strategies import merge_batch
from trueline.kernel.key_encoding import RANK
from trueline.kernel.sorted_runs import RunFile, choose_splitters, read_range, sort_run

__all__ = [
    "IGNORED",
    "RANK",
    "Merged",
    "Op",
    "RunFile",
    "choose_splitters",
    "merge_batch",
    "read_range",
    "sort_run",
]
