"""What went wrong in a run, where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trueline.errors import RunFailed
from trueline.run.generations import Generations
from trueline.run.keys import named
from trueline.run.step import OnError


@dataclass(frozen=True)
class Failure:
    """One real failure: where, on which value's generations, and what was raised.

    `key` is None where the step failed and not on a value: its `ready` raised, or its worker was lost.

    >>> from trueline.run import Run, Step
    >>> run = Run([Step(map=lambda key, value: 1 // value, name="divide", on_error="skip_key")])
    >>> run.execute({"a": 1, "b": 0})
    {'a': 1}
    >>> isinstance(run.failures[0], Failure), run.failures[0].key, run.failures[0].error().step
    (True, 'b', 0)
    """

    step: int
    name: str
    key: Any
    gens: Generations
    cause: BaseException
    value: Any = None
    on_error: OnError = "fail_run"

    def error(self) -> RunFailed:
        """Return what is raised for it."""
        where = "" if self.key is None else f" on key {named(self.key)}"
        return RunFailed(
            f"step {self.step} ({self.name}) failed{where}: {said(self.cause)}",
            remedy="fix the step or the value; on_error='skip_key' or 'skip_step' continues without it",
            step=self.step,
            name=self.name,
            key=self.key,
            generations=self.gens,
            cause=self.cause,
        )


def said(error: BaseException) -> str:
    """Return the kind of an error and its words; one that cannot say them is named only.

    >>> said(ValueError("too long"))
    'ValueError: too long'
    """
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:  # noqa: BLE001 (whatever an error's own text raises)
        return kind
