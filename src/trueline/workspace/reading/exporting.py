"""Writing a view of a dataset to one file for others: CSV, Parquet, JSON lines, Arrow IPC."""

from __future__ import annotations

import os

from trueline.view.export import Exported
from trueline.view.export import export as write
from trueline.view.view import View


def export(view: View, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write a view to a file, whole or not at all; the ending says the format."""
    return write(view.node, path, overwrite=overwrite)
