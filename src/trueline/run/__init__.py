"""Steps that work ahead of their input, and are revised when it changes."""

from __future__ import annotations

from trueline.run.attempt import Token, current
from trueline.run.events import Event, Observer
from trueline.run.executors import Executor, Inline, Processes, Threads
from trueline.run.failure import Failure
from trueline.run.report import Report
from trueline.run.run import Run
from trueline.run.step import ERASED, Step

__all__ = [
    "ERASED",
    "Event",
    "Executor",
    "Failure",
    "Inline",
    "Observer",
    "Processes",
    "Report",
    "Run",
    "Step",
    "Threads",
    "Token",
    "current",
]
