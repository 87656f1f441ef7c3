"""A client whose Connect server sees none of its folders: `python -m tests.spark.connect_elsewhere URL`.

Names of the views that are compared may follow, else all are. Prints one JSON object: the name of each
check → "ok", or what went wrong.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, views
from trueline.errors import EnvironmentMissing, NotPortable, TruelineError
from trueline.spark.lowering.deliver import delivered


def caught(kind, do):
    """Return what is raised, which has to be of a kind."""
    try:
        do()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def refused(path, do):
    """Check that something is refused by the name of a folder or file, and says what to do."""
    error = caught(TruelineError, do)
    assert isinstance(error, EnvironmentMissing), repr(error)
    assert error.code == "FolderNotShared", repr(error)
    assert str(path) in error.problem, error.problem
    assert "share" in error.remedy, error.remedy


# Views that between them take every exchange there is; `make soak` compares all.
VIEWS = (
    "nothing",
    "sort by two",
    "shuffle",
    "with_columns",
    "explode",
    "concat",
    "group",
    "all rows, sums far apart",
    "group sorted rows",
    "join, full",
    "join, cross",
    "as of, full",
    "window by a key",
    "window",
    "limit",
    "distinct",
    "skip",
    "zip",
)
NAMES: list[str] = []

# --- what works ---------------------------------------------------------------------------------------


def check_rows_that_travel_are_computed_there(user, folder):
    found = views()
    for name in NAMES or found:
        view = found[name]
        there = rows_of(delivered(view.node, everything(view), user))
        assert difference(in_process(view), there, view) == "", name


def check_numbers_and_frames_are_computed_there(user, folder):
    numbers = tl.View.range(1000).sort("n", descending=True)
    assert numbers.on_spark(user).to_arrow().equals(numbers.to_arrow())
    frame = tl.View.from_spark(user.range(0, 100, 1, 3), order_by="id")
    assert frame.skip(97).to_arrow()["id"].to_pylist() == [97, 98, 99]


def check_a_frame_of_small_rows_is_made_there(user, folder):
    view = tl.View.from_arrow(pa.table({"k": [1, 2, 1], "x": [0.5, 1.5, 2.5]}))
    grouped = view.group_by("k").agg(s="sum(x)").to_spark(user)
    assert sorted(map(tuple, grouped.collect())) == [(1, 3.0), (2, 1.5)]


def check_a_frame_of_a_frame_is_made_there(user, folder):
    frame = tl.View.from_spark(user.range(0, 100, 1, 3), order_by="id").to_spark(user)
    assert sorted(row[0] for row in frame.where("id > 90").collect()) == list(range(91, 100))


def check_views_of_a_workspace_are_computed_by_the_client(user, folder):
    with tl.open(folder / "ws", create=True, spark=user) as ws:
        ws.create("x").append(pa.table({"a": [3, 1, 2]}))
        view = ws["x"].view().sort("a")
        assert view.explain().startswith("computed in this process: machines behind Connect")
        assert view.to_arrow()["a"].to_pylist() == [1, 2, 3]
        again = ws.create("again")
        again.append(view)
        assert again.view().to_arrow()["a"].to_pylist() == [1, 2, 3]


# --- what cannot ----------------------------------------------------------------------------------------


def check_a_table_of_a_few_mebibytes_is_sent_along(user, folder):
    view = tl.View.from_arrow(pa.table({"n": np.arange(1 << 18)})).sort("n", descending=True)
    assert view.on_spark(user).head(2).to_arrow()["n"].to_pylist() == [(1 << 18) - 1, (1 << 18) - 2]


def check_a_large_table_is_refused_by_name(user, folder):
    view = tl.View.from_arrow(pa.table({"n": np.arange(1 << 22)})).sort("n")
    error = caught(NotPortable, view.on_spark(user).to_arrow)
    assert error.code == "ProcessBound", repr(error)
    assert "rows in memory" in error.problem, error.problem


def check_files_are_refused_by_name(user, folder):
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"n": [3, 1, 2]}), path)
    lines = folder / "rows.csv"
    lines.write_text("n\n3\n1\n")
    for view, name in ((tl.View.read_parquet([path]), path), (tl.View.read_csv([lines]), lines)):
        refused(name, view.sort("n").on_spark(user).to_arrow)
        # A frame is the user's: what is wrong with it is said by Spark, in its own words.
        error = caught(Exception, view.to_spark(user).collect)
        assert str(name) in str(error), error


def check_datasets_are_refused_by_name(user, folder):
    with tl.open(folder / "ws", create=True) as ws:
        ws.create("x").append(pa.table({"a": [3, 1, 2]}))
        ws.create("y", merge=tl.merge.upsert("a")).append(pa.table({"a": [3, 1, 2]}))
        for name in ("x", "y"):
            refused(folder / "ws", ws[name].view().sort("a").on_spark(user).to_arrow)


def check_queries_are_refused_by_name(user, folder):
    with tl.open(folder / "ws", create=True, spark=user) as ws:
        ws.create("x").append(pa.table({"a": [3, 1, 2]}))
        refused(folder / "ws", lambda: ws.sql("select sum(a) s from x").to_arrow())


def check_a_frame_is_refused_and_nothing_is_committed(user, folder):
    with tl.open(folder / "ws", create=True, spark=user) as ws:
        ds = ws.create("x")
        before = ds.head
        refused(folder / "ws", lambda: ds.append(user.range(0, 1000, 1, 2)))
        assert ds.head == before
        assert ws.verify().ok


def main(address: str, *names: str) -> dict[str, str]:
    """Run all checks, each in a folder of its own, below that of the client."""
    from pyspark.sql import SparkSession

    NAMES[:] = names

    user = SparkSession.builder.remote(address).getOrCreate()
    said: dict[str, str] = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check(user, Path(tempfile.mkdtemp()).resolve())
                said[name] = "ok"
            except BaseException:  # noqa: BLE001 (every check is reported)
                said[name] = traceback.format_exc()[-3000:]
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
