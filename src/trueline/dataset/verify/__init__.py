"""Proof of data: every file a chain names is there, is what its name says, and holds what its block says."""

from __future__ import annotations

from trueline.dataset.verify.files import DataProblem
from trueline.dataset.verify.verify import verify_data

__all__ = ["DataProblem", "verify_data"]
