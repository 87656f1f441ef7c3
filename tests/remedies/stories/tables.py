"""What the tables of remedies can use beside a workspace; importing this registers them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import io
import re
import zipfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl
from tests.architecture import ROOT
from tests.remedies.cases import table
from tests.remedies.story import Scene
from trueline.dataset import prepare
from trueline.view.cursor.consolidate import consolidate


def zipped(method: int = zipfile.ZIP_DEFLATED, **members: str) -> bytes:
    """An archive of CSV files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, text in members.items():
            archive.writestr(f"{name}.csv", text)
    return made.getvalue()


def ipc(**columns: Any) -> bytes:
    """An Arrow file."""
    found = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, found.schema) as file:
        file.write_table(found)
    return bytes(sink.getvalue().to_pybytes())


def parquet(found: pa.Table) -> bytes:
    """A Parquet file."""
    made = io.BytesIO()
    pq.write_table(found, made)
    return made.getvalue()


def reading(scene: Scene) -> dict[str, Any]:
    """Files of every kind."""
    del scene
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    made = {"zipped": zipped, "ipc": ipc, "parquet": parquet, "gz": gzip.compress}
    return {**made, "LZMA": zipfile.ZIP_LZMA, "twice": twice, "re": re}


def appending(scene: Scene) -> dict[str, Any]:
    """Strategies, steps and times."""
    del scene
    return {"m": tl.merge, "prepare": prepare, "datetime": dt, "re": re}


def views(scene: Scene) -> dict[str, Any]:
    """A view with a column of most kinds."""
    day = dt.date(2026, 11, 13)
    view = tl.View.from_rows(
        [
            {"x": 1, "y": 2.5, "s": "a", "vec": [1, 2], "day": day, "raw": b"\xff"},
            {"x": 2, "y": None, "s": "b", "vec": [3, 4], "day": day, "raw": b"b"},
        ]
    )
    return {**reading(scene), "view": view, "dataclass": dataclasses.dataclass, "ROOT": ROOT} | {
        "consolidate": consolidate,
        "day": day,
    }


def workspace(scene: Scene) -> dict[str, Any]:
    """Another workspace beside the first."""
    other = scene.stack.enter_context(tl.open(scene.folder / "other", create=True))
    other.create("theirs").append([{"x": 1}])
    return {"other": other, "re": re}


table("reading", reading, __name__)
table("appending", appending, __name__)
table("views", views, __name__)
table("workspace", workspace, __name__)
