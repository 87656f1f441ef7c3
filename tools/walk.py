"""`python tools/walk.py [append | view]`: the modules whose functions a call enters, in order.

A newcomer who follows one call with a debugger passes these modules; the fewer, the better. Imports do not
count: what a call needs is imported before it is followed. Readers and leaves (`errors`, `types`, …) are
counted apart.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pyarrow as pa

import trueline as tl

LEAVES = (
    "annotations",
    "console",
    "credentials",
    "disk",
    "errors",
    "lazy",
    "limits",
    "merge",
    "readers",
    "types",
)


def walked(call: Callable[[], object]) -> list[str]:
    """Return the modules of ours whose functions a call enters, in any thread."""
    home = Path(tl.__file__).parent
    seen: dict[str, None] = {}

    def entered(code: CodeType, _offset: int) -> object:
        path = Path(code.co_filename)
        if path.is_relative_to(home) and not code.co_name.startswith("<"):
            seen.setdefault(path.relative_to(home).with_suffix("").as_posix().replace("/", "."))
        return None

    if sys.version_info >= (3, 12):
        tool, events = sys.monitoring.PROFILER_ID, sys.monitoring.events
        sys.monitoring.use_tool_id(tool, "walk")
        sys.monitoring.register_callback(tool, events.PY_START, entered)
        sys.monitoring.set_events(tool, events.PY_START)
        try:
            call()
        finally:
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.free_tool_id(tool)
        return list(seen)

    def profile(frame: object, event: str, _argument: object) -> None:
        if event == "call":
            entered(frame.f_code, 0)  # type: ignore[attr-defined]

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(seen)


def append_of_a_csv() -> list[str]:
    """Follow the first append of a file to a dataset, once another one was filled."""
    with tempfile.TemporaryDirectory() as folder, tl.open(Path(folder) / "ws", create=True) as ws:
        first, followed = ws.create("monday"), ws.create("tuesday")
        for day in ("monday", "tuesday"):
            Path(folder, f"{day}.csv").write_text(f"id,city\n1,{day}\n2,Bern\n", encoding="utf-8")
        first.append(Path(folder, "monday.csv"))
        return walked(lambda: followed.append(Path(folder, "tuesday.csv")))


def filter_and_group() -> list[str]:
    """Follow a filter and a group_by from the call to the table."""
    table = pa.table({"city": ["Bern", "Basel", "Bern"], "price": [9.5, 12.0, 11.0]})

    def call() -> object:
        view = tl.View.from_arrow(table).filter("price > 10")
        return view.group_by("city").agg(total="sum(price)").to_arrow()

    call()
    return walked(call)


WALKS = {"append": append_of_a_csv, "view": filter_and_group}


def main(words: list[str]) -> None:
    """Print the walks asked for, or all of them."""
    for word in words or list(WALKS):
        modules = WALKS[word]()
        leaves = [name for name in modules if name.startswith(LEAVES)]
        own = [name for name in modules if name not in leaves]
        print(f"{word}: {len(own)} modules, and {len(leaves)} of readers and leaves")
        for name in own:
            print(f"  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
