"""Ingests in copies of a workspace, each killed at another operation (see tests/faults.py)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import trueline as tl
import trueline.dataset.append.append
import trueline.dataset.append.files
import trueline.dataset.state
from trueline.dataset.append import append as committing
from trueline.dataset.append import merge as merging
from trueline.dataset.append import pieces

CITIES = ("Bern", "Basel", "Chur", "Thun", "Zug")
OLD = pa.table({"id": range(20), "city": [CITIES[n % 5] for n in range(20)]})
# Of 30 keys 10 are new, 5 unchanged, the others get another city.
NEW = pa.table({"id": range(29, -1, -1), "city": [CITIES[(n + (n >= 5)) % 5] for n in range(29, -1, -1)]})
FILES = {
    "a.csv": "id,city\n" + "".join(f"{n},Olten\n" for n in range(100, 115)),
    "b.csv": "id,city\n" + "".join(f"{n if n != 120 else 'none'},Brig\n" for n in range(115, 130)),
}


def shrink() -> None:
    """Make slices and sorted runs small, so that little data goes the way of much."""
    pieces.ROWS_OF_A_SLICE = committing.ROWS_OF_A_SLICE = 10
    pieces.cut.__defaults__ = (10,)
    merging.ROWS_AT_ONCE = 16


def ingest(workspace, what):
    """The ingest that is killed, and sent again afterwards."""
    dataset = workspace[what]
    if what == "files":
        folder = Path(workspace.location).parent / "inbox"
        return dataset.append([folder / name for name in FILES])
    return dataset.append(NEW, idempotency_key="k")


def prepare(path, inbox, what, *, durable=False):
    """Make the workspace that is copied."""
    inbox.mkdir()
    for name, text in FILES.items():
        (inbox / name).write_text(text)
    with tl.open(path, create=True) as workspace:
        # What is killed leaves its bytes to the system; syncing takes most of the time and changes nothing.
        workspace.config.set("storage.durable", durable)
        key = () if what in ("append", "files") else ("id",)
        merge = getattr(tl.merge, "append" if what == "files" else what)
        dataset = workspace.create(what, merge=merge(*key))
        for start in (0, 10):
            dataset.append(OLD.slice(start, 10))


def deed(path, what):
    """Open a workspace, and return the ingest that is killed."""
    shrink()
    workspace = tl.open(path)
    assert workspace[what].head
    return lambda: ingest(workspace, what)


deed.stores_only = True
