"""Trueline: tables on Spark that can say how every number was made.

The front door. Names are loaded when they are first used, so that a command
which only reads metadata does not wait for Arrow.

>>> import tempfile, pyarrow as pa, trueline as tl
>>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
...     ws.create("sales").append(pa.table({"city": ["Bern", "Basel"]})).rows
2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueline.lazy import lazily

if TYPE_CHECKING:
    from trueline import check, console, errors, merge, readers
    from trueline.identity.rowid import RowId
    from trueline.readers import arrow, csv, json, parquet, text
    from trueline.view import View
    from trueline.workspace import Commit, Dataset, Workspace, nondet, open  # noqa: A004 (the promised name)
    from trueline.workspace.pull import source

__version__ = "0.1.0"

__all__ = [
    "Commit",
    "Dataset",
    "RowId",
    "View",
    "Workspace",
    "__version__",
    "arrow",
    "check",
    "console",
    "csv",
    "errors",
    "json",
    "merge",
    "nondet",
    "open",
    "parquet",
    "readers",
    "source",
    "text",
]

_LAZY = {
    "Commit": "trueline.dataset.commit",
    "Dataset": "trueline.workspace.dataset",
    "RowId": "trueline.identity.rowid",
    "View": "trueline.view.view",
    "Workspace": "trueline.workspace.workspace",
    "arrow": "trueline.readers",
    "csv": "trueline.readers",
    "json": "trueline.readers",
    "nondet": "trueline.workspace",
    "open": "trueline.workspace.workspace",
    "parquet": "trueline.readers",
    "source": "trueline.workspace.pull",
    "text": "trueline.readers",
}

_MODULES = ("check", "console", "errors", "merge", "readers", "testing", "types", "view")
__getattr__, __dir__ = lazily(__name__, _LAZY, _MODULES)
