"""Plans: what a pull of derived datasets would do, known from metadata alone."""

from __future__ import annotations

from trueline.workspace.plan.stages import Behind, InputNews, PullPlan, Stage

__all__ = ["Behind", "InputNews", "PullPlan", "Stage"]
