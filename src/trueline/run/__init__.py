"""Steps that work ahead of their input, and are revised when it changes."""

from __future__ import annotations

from trueline.run.attempt import Token, current
from trueline.run.display import Display
from trueline.run.events import Event, Observer, Watcher
from trueline.run.executors import Executor, Inline, Processes, Threads
from trueline.run.failure import Failure
from trueline.run.inbox import NotWoken
from trueline.run.journal import Journal
from trueline.run.notify import watching
from trueline.run.recording import Recording
from trueline.run.report import RunReport
from trueline.run.run import Run
from trueline.run.step import ERASED, Step
from trueline.run.timeline import RecordedBatch

# Earlier names, which other rooms use for other things.
Piece = RecordedBatch
Report = RunReport

__all__ = [
    "ERASED",
    "Display",
    "Event",
    "Executor",
    "Failure",
    "Inline",
    "Journal",
    "NotWoken",
    "Observer",
    "Piece",
    "Processes",
    "RecordedBatch",
    "Recording",
    "Report",
    "Run",
    "RunReport",
    "Step",
    "Threads",
    "Token",
    "Watcher",
    "current",
    "watching",
]
