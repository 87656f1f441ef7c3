"""One execution of a test as its parts see it: the machine, the choices, and the ways in which it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trueline.flow.compiled import CompiledFlow
from trueline.flow.machine import Machine
from trueline.flow.simulator.tracer import Tracer


class ExecutionEnded(BaseException):
    """This execution has seen what it was made for; no `except Exception` of a body's stops it."""

    outcome = "passed"


class Discarded(ExecutionEnded):
    """This execution is not one of those the test is about."""

    outcome = "discarded"


class Pruned(ExecutionEnded):
    """From here on everything was seen."""

    outcome = "pruned"


class Running(Protocol):
    """What faults, scripts and the simulation ask of the execution they are part of."""

    @property
    def machine(self) -> Machine:
        """The flow that runs."""

    @property
    def compiled(self) -> CompiledFlow:
        """How it is laid out."""

    @property
    def tracer(self) -> Tracer | None:
        """Writes down what happens, if anybody wants to see it."""

    @property
    def pick(self) -> Callable[..., int]:
        """Make a choice of the flow."""

    def decide(self, ways: int) -> int:
        """Make a choice of the test itself."""


class Driven(Running, Protocol):
    """An execution that a test body drives."""

    reads: int
    tainted: bool
    poisoned: bool

    def recall(self, name: str, target: str) -> tuple[bool, Any]:
        """Answer a call from the log, if it was made before the last choice that changed."""

    def record(self, name: str, target: str, answer: Any) -> None:
        """Note what a call was answered."""

    def step(self) -> bool:
        """Let one unit of the flow fire; False where nothing is left to happen."""

    def sent(self, source: str, values: tuple[Any, ...], member: int) -> None:
        """Note what may be delivered again."""

    def disturb(self) -> bool:
        """At rest, let a fault happen; says whether one did."""

    @property
    def idle(self) -> bool:
        """Whether nothing can happen before something is sent."""

    def is_ordered(self, sink: str) -> bool:
        """Whether the order of a sink's elements is promised."""
