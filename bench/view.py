"""Opening a view over twelve slices, in a short and in a long chain."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import trueline
from bench import rows
from bench.chains import SLICES, Place, fill
from bench.machine import lacks_room
from bench.run import Run
from bench.table import Row, duration
from bench.timing import Action, alternate, settle
from trueline.chain import Instant, Tail
from trueline.chain.events import Event
from trueline.chain.head_state import next_add_data
from trueline.identity import DatasetId

MOST = 1.2
HOUR = 3_600_000_000_000
NOTE = (
    "view: a root with twelve slices of 1,000 rows; its other blocks move the watermark. "
    "Workspace, dataset and index are opened anew each time, on a warm page cache."
)


def run(run: Run) -> Iterator[Row]:
    short, long = run.scale.blocks
    if missing := lacks_room(run.folder, short + long):
        yield Row("view", f"open a view at {long:,} blocks", note=f"view was not measured: {missing}")
        return
    places = {}
    for length in (short, long):
        places[length] = run.folder / f"view-{length}"
        with run.doing(f"writing a dataset of {length:,} blocks"):
            _write(places[length], length)
    settle()
    for what, look in {
        "open a view and count its rows": _counted,
        "open a view and read its rows": _read,
    }.items():
        yield _row(run, what, {length: partial(look, place) for length, place in places.items()})


def _write(place: Path, length: int) -> None:
    """Append twelve times; in between bring the chain on by the bulk path, which checks every rule."""
    data = rows.table()
    with trueline.open(place, create=True) as workspace:
        dataset = workspace.create("rows", schema=data.schema, event_time="event_time")
        name = DatasetId(dataset.id)
    index = place / ".trueline" / "index" / "rows.sqlite"
    for number in range(SLICES):
        with trueline.open(place) as workspace:
            workspace["rows"].append(data)
        chain = Place(place / "datasets" / "rows", index, name).open()
        fill(chain, _watermark, length * (number + 1) // SLICES)
        chain.close()


def _watermark(tail: Tail, number: int) -> Event:
    del number
    return next_add_data(tail, new_watermark=Instant((tail.watermark or 0) + HOUR))


def _counted(place: Path) -> None:
    with trueline.open(place) as workspace:
        assert workspace["rows"].view().count() == SLICES * rows.ROWS


def _read(place: Path) -> None:
    with trueline.open(place) as workspace:
        assert workspace["rows"].view().to_arrow().num_rows == SLICES * rows.ROWS


def _row(run: Run, what: str, actions: dict[int, Action]) -> Row:
    short, long = run.scale.blocks
    taken = alternate({str(length): action for length, action in actions.items()}, run.scale.rounds)
    few, many = taken[str(short)], taken[str(long)]
    ratio = many.median / few.median
    return Row(
        "view",
        f"{what}: 12 slices",
        duration(many, f"{long:,} blocks: "),
        duration(few, f"{short:,}: "),
        ratio,
        f"≤ {MOST} × at {short:,}",
        ratio <= MOST,
        NOTE,
    )
