"""How what is appended joins what is there: the merge strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Append:
    """Every row is a new record; offsets follow the order of the rows."""

    NAME: ClassVar[str] = "append"

    def __str__(self) -> str:
        return "append()"


Strategy = Append


def append() -> Append:
    """Keep every row as it comes.

    >>> str(append())
    'append()'
    """
    return Append()
