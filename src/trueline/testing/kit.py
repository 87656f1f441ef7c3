"""What a check is: a name, the contracts it holds, and a function that finds them broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trueline.errors import ContractBroken

Function: TypeAlias = Callable[[Any], "str | None"]


class Broken(AssertionError):
    """Raised by a check that found something; the kit adds which check it was."""

    def __init__(self, problem: str, remedy: str, **where: object) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.where = problem, remedy, where


class NotApplicable(Exception):
    """Raised by a check that does not apply; the text says why."""


@dataclass(frozen=True)
class Check:
    """One small check; `kind` says what it is of: a view, an operator, a loader, a saver, a split.

    >>> from trueline import View, testing
    >>> check = testing.checks("view")["K13.differs"]
    >>> isinstance(check, Check), check.number, check.kind
    (True, 'K13', 'view')
    >>> from trueline.testing.subjects import ViewSubject
    >>> check.run(ViewSubject(View.range(30)))
    'rows move by ...'
    """

    name: str
    contracts: tuple[str, ...]
    kind: str
    about: str
    function: Function

    @property
    def number(self) -> str:
        """The check of the kit it is a part of: K1 … K21."""
        return self.name.split(".")[0]

    def run(self, subject: Any) -> str | None:
        """Check; return a note if there is one, raise `ContractBroken` or `NotApplicable`."""
        try:
            return self.function(subject)
        except Broken as found:
            raise self._broken(found.problem, found.remedy, found.where) from found.__cause__
        except NotApplicable:
            raise
        except Exception as error:
            problem = f"reading raised {type(error).__name__}: {error}"
            raise self._broken(problem, "let reads that the view allows raise nothing", {}) from error

    def _broken(self, problem: str, remedy: str, where: dict[str, object]) -> ContractBroken:
        shown = "".join(f", {key} {value!r}" for key, value in where.items() if value is not None)
        return ContractBroken(
            f"{self.name} ({', '.join(self.contracts)}){shown}: {problem}",
            remedy=remedy,
            check=self.name,
            contracts=self.contracts,
            column=where.get("column"),
            row=where.get("row"),
        )


# Every check by name, in the order they are run.
CHECKS: Final[dict[str, Check]] = {}


def holds(kind: str, name: str, *contracts: str) -> Callable[[Function], Function]:
    """Register a function as a check of a kind of thing; its docstring says what it looks at."""

    def register(function: Function) -> Function:
        about = (function.__doc__ or "").strip().split("\n")[0]
        CHECKS[name] = Check(name, contracts, kind, about, function)
        return function

    return register


def refused(do: Callable[[], object]) -> bool:
    """Say whether something raises, as it should."""
    try:
        do()
    except Exception:  # noqa: BLE001 (any error is a refusal)
        return True
    return False
