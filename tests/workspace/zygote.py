"""What is done in copies of a workspace until it is killed: append, create, rename (see tests/faults.py)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

import trueline as tl
import trueline.dataset.append.append


def deed(path: str, what: str) -> Callable[[], object]:
    """Open a workspace, and return what is killed."""
    ws = tl.open(path)
    if what == "create":
        return lambda: ws.create("trades")
    ds = ws["trades"]
    if what == "rename":
        return lambda: ds.rename("deals")
    assert ds.head
    return lambda: ds.append(pa.table({"x": [100]}), idempotency_key="k")
