"""Where the rooms meet: a folder of datasets, what is appended to them, and their proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueline.lazy import lazily

if TYPE_CHECKING:
    from trueline.dataset.commit import Commit
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.info import Info
    from trueline.workspace.workspace import Workspace, open  # noqa: A004 (the promised name)

__all__ = ["Commit", "Dataset", "Info", "Workspace", "open"]

_LAZY = {
    "Commit": "trueline.dataset.commit",
    "Dataset": "trueline.workspace.dataset",
    "Info": "trueline.workspace.info",
    "Workspace": "trueline.workspace.workspace",
    "open": "trueline.workspace.workspace",
}

__getattr__, __dir__ = lazily(__name__, _LAZY)
