"""The conformance kit: checks that anyone's views and operators keep the contracts of views.

`check(view)` reads a view in every way it can be read and raises
`ContractBroken`, which names the check, the contract, the column and the row.

>>> from trueline import View, testing
>>> report = testing.check(View.from_rows([{"city": "Bern"}, {"city": "Zug"}]))
>>> "K10.merged" in report.held
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueline.errors import ContractBroken
    from trueline.testing.adapter import SimpleCursor, SimpleView
    from trueline.testing.comparison import ViewComparison, identical
    from trueline.testing.conformance import Report, check, checks, findings
    from trueline.testing.generate import views
    from trueline.testing.kit import Check
    from trueline.testing.protocol import ViewLike
    from trueline.testing.subjects import Loader, Operator, Saver, Split

__all__ = [
    "Check",
    "ContractBroken",
    "Loader",
    "Operator",
    "Report",
    "Saver",
    "SimpleCursor",
    "SimpleView",
    "Split",
    "ViewComparison",
    "ViewLike",
    "check",
    "checks",
    "findings",
    "identical",
    "views",
]

_LAZY = {
    "Check": "trueline.testing.kit",
    "ViewComparison": "trueline.testing.comparison",
    "ContractBroken": "trueline.errors",
    "Loader": "trueline.testing.subjects",
    "Operator": "trueline.testing.subjects",
    "Report": "trueline.testing.conformance",
    "Saver": "trueline.testing.subjects",
    "SimpleCursor": "trueline.testing.adapter",
    "SimpleView": "trueline.testing.adapter",
    "Split": "trueline.testing.subjects",
    "ViewLike": "trueline.testing.protocol",
    "check": "trueline.testing.conformance",
    "checks": "trueline.testing.conformance",
    "findings": "trueline.testing.conformance",
    "identical": "trueline.testing.comparison",
    "views": "trueline.testing.generate",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
