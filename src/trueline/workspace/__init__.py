"""Where the rooms meet: a folder of datasets, what is appended to them, and their proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueline.workspace.commit import Commit
    from trueline.workspace.dataset import Dataset, Info
    from trueline.workspace.workspace import Workspace, open  # noqa: A004 (the promised name)

__all__ = ["Commit", "Dataset", "Info", "Workspace", "open"]

_LAZY = {
    "Commit": "trueline.workspace.commit",
    "Dataset": "trueline.workspace.dataset",
    "Info": "trueline.workspace.dataset",
    "Workspace": "trueline.workspace.workspace",
    "open": "trueline.workspace.workspace",
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
