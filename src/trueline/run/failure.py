"""What went wrong in a run, where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trueline.run.generations import Generations


@dataclass(frozen=True)
class Failure:
    """One real failure: where, on which value's generations, and what was raised."""

    step: int
    name: str
    key: Any
    gens: Generations
    cause: BaseException
    value: Any = None
