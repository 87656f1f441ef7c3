"""Views on a cluster whose executors die: chapters of `tests.spark.deaths_story`.

A chapter is the name of a view and the place of a death, as "group/exchanged". It finds what differs from
this process, and who died.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.cluster_story import hashes, same_size_everywhere
from tests.spark.lowering.counting import counted
from tests.spark.lowering.dying import Death, DyingFunction, DyingRows, DyingWork, Stalling
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table, views
from trueline.dataset.read import events
from trueline.spark.lowering import partial_groups
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.exchange import Ranges
from trueline.spark.lowering.lowered import TaskWork
from trueline.spark.lowering.ordered_join import join_in_order
from trueline.spark.lowering.partial_groups import GroupsOfParts
from trueline.spark.tasks import SparkTasks

STORED = ("groups by tasks", "join in order")
in_order, map_tasks = Ranges.in_order, SparkTasks.map


def read_views(folder: Path) -> dict[str, tl.View]:
    """Return nasty views over files that all machines see, of several pieces each."""
    made = count()

    def source(table):
        path = folder / f"{next(made)}.parquet"
        pq.write_table(table, path, row_group_size=40)
        return tl.View.read_parquet([path])

    return views(source=source)


def stored_views(folder: Path) -> dict[str, tl.View]:
    """Return views of slices: rows grouped by the tasks that read them, a join of keys and places only."""
    made = tl.open(folder / "slices", create=True).create("slices")
    rows = table(240, 1).drop_columns(["large", "v"])
    for first in range(0, rows.num_rows, 50):
        made.append(rows.slice(first, 50))
    view = made.view()
    sums = {"n": "count(*)", "t": "sum(x)", "a": "avg(f)", "u": "sum(u)", "f": "first(s)"}
    other = view.select("i", "s", "x").rename(y="x")
    return {
        "groups by tasks": view.group_by("i").agg(**sums),
        "join in order": view.select("n", "i", "s", "d").join(other, on=["i", "s"], how="left"),
    }


def is_as_named(name: str, view: tl.View, session: Any) -> bool:
    """Say whether a view of slices runs in the way that its name says."""
    target = LoweringTarget(session)
    if name == "join in order":
        return join_in_order(view.node, everything(view), target) is not None
    steps = target.lower(view.node, everything(view)).steps
    return any(getattr(step, "func", None) is GroupsOfParts for step in steps)


def plant(patched: pytest.MonkeyPatch, death: Death) -> None:
    """Let executors die at the places of a death, whatever view runs."""

    def dying(*arguments):
        work = DyingWork(*arguments)
        work.death = death
        return work

    def dying_in_order(ranges):
        frame = in_order(ranges)
        return frame.mapInArrow(DyingRows(death), frame.schema)

    def dying_map(tasks, function, descriptors, *, label):
        return map_tasks(tasks, DyingFunction(function, death), descriptors, label=label)

    # The package has a function of the name of this module.
    patched.setattr(sys.modules[TaskWork.__module__], "TaskWork", dying)
    patched.setattr(Ranges, "in_order", dying_in_order)
    patched.setattr(SparkTasks, "map", dying_map)


def compared(view: tl.View, session: Any) -> str:
    """Say how what the cluster gives differs from what this process gives; no row passes the driver."""
    with counted(session) as passed:
        found = rows_of(delivered(view.node, everything(view), session))
    passed.check(view, session)
    return difference(in_process(view), found, view)


def duplicated(view: tl.View, session: Any, folder: Path) -> dict[str, Any]:
    """Run a view whose first task stalls until a speculative duplicate of it is through."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)

    def stalling(ranges):
        frame = in_order(ranges)
        return frame.mapInArrow(Stalling(pipe), frame.schema)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ranges, "in_order", stalling)
        return {"differs": compared(view, session), "duplicated": Path(f"{pipe}-duplicated").exists()}


def appended(view: tl.View, asked: tl.View, session: Any, folder: Path, death: Death) -> dict[str, Any]:
    """Append a view twice, the first time in this process alone; say whether the hashes differ."""
    with pytest.MonkeyPatch.context() as patched:
        same_size_everywhere(patched.setattr)
        with tl.open(folder / "here", create=True) as ws:
            ws.create("x").append(view)
            here = hashes(ws, "x")
        with tl.open(folder / "there", create=True, spark=session) as ws:
            plant(patched, death)
            ws.create("x").append(asked)
            return {"differs": "" if hashes(ws, "x") == here else "hashes", "killed": death.happened}


def chapter(name: str, found: dict[str, tl.View], session: Any, folder: Path) -> dict[str, Any]:
    """Run one view with one death."""
    folder.mkdir(parents=True)
    what, _, place = name.partition("/")
    if what == "speculation":
        return duplicated(found[place], session, folder)
    death = Death(folder, (place,))
    if what == "append":
        return appended(found["sort by two"], found["sort by two"], session, folder, death)
    if what == "append on Spark":
        view = found["sort by two"]
        return appended(view, view.on_spark(session), session, folder, death)
    with pytest.MonkeyPatch.context() as patched:
        # Parts are made however few rows there are.
        patched.setattr(events, "_ROWS_OF_A_PIECE", 30)
        patched.setattr(partial_groups, "_ROWS_OF_A_PART", 0)
        if what in STORED and not is_as_named(what, found[what], session):
            return {"error": f"it is no {what}"}
        plant(patched, death)
        return {"differs": compared(found[what], session), "killed": death.happened}


def run(session: Any, folder: Path, chapters: Sequence[str]) -> dict[str, Any]:
    """Run chapters; return what each found."""
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    found = read_views(folder) | stored_views(folder)
    said: dict[str, Any] = {}
    for number, name in enumerate(chapters):
        try:
            said[name] = chapter(name, found, session, folder / f"chapter-{number}")
        except BaseException:  # noqa: BLE001 (every chapter is reported)
            said[name] = {"error": traceback.format_exc()[-3000:]}
    return said
