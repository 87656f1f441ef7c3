"""What a reader sees: lazy, typed, repeatable views of exactly known records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueline.view.origin import Origin
    from trueline.view.schema import Column, Schema
    from trueline.view.view import View

__all__ = ["Column", "Origin", "Schema", "View"]

_LAZY = {
    "Column": "trueline.view.schema",
    "Origin": "trueline.view.origin",
    "Schema": "trueline.view.schema",
    "View": "trueline.view.view",
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
