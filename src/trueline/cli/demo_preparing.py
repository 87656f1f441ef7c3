"""A chapter of the demo: files prepared by steps that work ahead, and the same one step after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueline.run import Recording, Step

if TYPE_CHECKING:
    import pyarrow as pa

    from trueline.console import Console
    from trueline.workspace import Workspace

# What a step that asks a service takes for a file.
_PAUSE = 0.06
_FILES = {
    "north.csv": "city,visits\nBern,12\nBasel,7\n",
    "east.csv": "city,visits\n  Chur ,3\nZug,9\n",
    "west.csv": "city,visits\nGenf,21\nSion,4\n",
}


def prepare(console: Console, workspace: Workspace, folder: Path) -> dict[str, Any]:
    """Prepare files twice and show both time lines; return what was seen."""
    folder.mkdir()
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    facts: dict[str, Any] = {}
    tables: list[pa.Table] = []
    for name, title, eager in (
        ("visits", "working ahead", True),
        ("visits-in-turn", "one step after another", False),
    ):
        recording = Recording()
        dataset = workspace.create(name)
        dataset.append(str(folder / "*.csv"), steps=_steps(eager), observers=[recording])
        tables.append(dataset.view().to_arrow())
        recording.write_timeline(folder / f"{name}.svg", f"Three files, {title}")
        done = sum(len(piece.keys) for piece in recording.pieces)
        kept = sum(piece.kept for piece in recording.pieces)
        ahead = sum(piece.ahead for piece in recording.pieces)
        console.say(f"  {title}: {recording.seconds:.2f} s", "strong")
        for line in recording.text(76).splitlines():
            console.say(f"  {line}", "faint")
        console.say(f"  {done} pieces of work, {ahead} begun ahead, {done - kept} thrown away", "faint")
        facts[name] = {"done": done, "ahead": ahead, "thrown": done - kept}
    facts["same"] = tables[0].equals(tables[1])
    console.say(f"  {'the same' if facts['same'] else 'OTHER'} rows either way", "good")
    return facts


def _steps(eager: bool) -> list[Step]:
    """Three slow steps, of which one changes one file; a step that is not eager waits for the one before."""
    found: dict[str, Callable[[pa.Table], pa.Table]] = {
        "check": lambda table: table,
        "repair": _trimmed,
        "mask": lambda table: table,
    }
    return [Step(map=_slowly(work), name=name, eager=eager) for name, work in found.items()]


def _slowly(work: Callable[[pa.Table], pa.Table]) -> Callable[[str, pa.Table], pa.Table]:
    def wait_and_work(_: str, table: pa.Table) -> pa.Table:
        time.sleep(_PAUSE)
        return work(table)

    return wait_and_work


def _trimmed(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    return table.set_column(0, table.schema.field(0), pc.utf8_trim_whitespace(table["city"]))
