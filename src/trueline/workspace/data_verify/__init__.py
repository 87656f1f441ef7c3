"""Proof of data: every file a chain names is there, is what its name says, and holds what its block says."""

from __future__ import annotations

from trueline.workspace.data_verify.problems import DataProblem
from trueline.workspace.data_verify.verifying import verify_data

__all__ = ["DataProblem", "verify_data"]
