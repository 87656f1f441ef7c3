"""What a folder of definitions would do to a workspace, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file would do: make a dataset (`new`), nothing (`same`), or define one otherwise (`changed`)."""

    name: str
    kind: str
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """What a folder would do to a workspace: its files in the order to apply them, and what vanished from it.

    `pruned` are those that were deleted, because that was asked for. `elsewhere` are those of another folder
    of the same name, or of this one before it had its mark: these are never deleted.
    """

    changes: tuple[FileChange, ...]
    vanished: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the workspace is already as the folder says."""
        return not self.vanished and all(each.kind == "same" for each in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "changes": [
                {"name": each.name, "kind": each.kind, "differences": list(each.differences)}
                for each in self.changes
            ],
            "vanished": list(self.vanished),
            "pruned": list(self.pruned),
            "elsewhere": list(self.elsewhere),
        }
