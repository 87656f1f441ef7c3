"""The driver of the tests on a cluster, a process of its own: `python -m tests.spark.cluster_story CONFIG`.

CONFIG is a JSON object: `master`, `folder`, `chapters`, `conf`, and what chapters need. Prints one JSON
object: the name of each chapter → what it found, or {"error": …}.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of
from tests.spark.lowering.test_driver import counted
from tests.spark.stalling import StallingRows, StallingStore
from trueline.chain import Instant
from trueline.dataset.append import append as committing
from trueline.dataset.append import pieces
from trueline.dataset.append import slices as writing
from trueline.dataset.append.frames import SpooledPiece
from trueline.errors import EnvironmentMissing
from trueline.kernel.chunk import Chunk
from trueline.spark import shared_places
from trueline.spark.lowering.deliver import DeliveredRows, delivered
from trueline.spark.session import start
from trueline.spark.settings import Settings

ROWS = 200_000
ROWS_OF_A_SLICE = 40_000
NOW = "2030-01-01T00:00:00Z"


def frame(session, partitions=4, stalling: StallingRows | None = None):
    """Rows of common kinds, heavy enough for a slice to be written in several parts."""
    rows = session.range(0, ROWS, 1, partitions)
    if stalling is not None:
        rows = rows.mapInArrow(stalling, "id long")
    # What comes from Python may be null, and a column that may be is stored otherwise.
    return rows.selectExpr("nullif(id, -1) as id").selectExpr(
        "id",
        "timestamp_millis(id * 1000) as at",
        "id / 7 as share",
        "sha2(cast(id as string), 256) as name",
    )


def ingest(ws, name, made, store=None) -> list[list[str]]:
    """Append a frame at a fixed time; return the hashes of the slices."""
    ds = ws.create(name, event_time="at")
    if store is not None:
        ds.chain.store = store(ds.chain.store)
    commit = ds.append(made)
    assert commit.rows == ROWS
    return hashes(ws, name)


def hashes(ws, name) -> list[list[str]]:
    events = (block.data_event for _, block in ws[name].chain.between(None))
    told = (event.new_data for event in events if event is not None and event.new_data is not None)
    return [[str(found.logical_hash), str(found.physical_hash)] for found in told]


def leftovers(workspace: str) -> int:
    """How many files with something in them a workspace has beside its objects and indexes."""
    places = Path(workspace, "datasets").glob("*/private/**/*")
    return sum(1 for path in places if path.is_file() and path.stat().st_size)


def same_size_everywhere(patch) -> None:
    """Small slices and one time, here and where the result is compared with."""
    patch(committing, "ROWS_OF_A_SLICE", ROWS_OF_A_SLICE)
    patch(pieces, "ROWS_OF_A_SLICE", ROWS_OF_A_SLICE)
    patch(pieces.cut, "__defaults__", (ROWS_OF_A_SLICE,))
    now = Instant.parse(NOW)
    patch(Instant, "now", classmethod(lambda cls: now))


# --- what passes the driver ------------------------------------------------------------------------


class Seen:
    """Counts the rows that this process reads from pieces, writes to slices, or gets from Spark."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        for kind in (pieces.IncomingPiece, SpooledPiece):
            kind.read = self._counting(kind.read, "read")
        writing.write_slice = self._noting(writing.write_slice)
        from pyspark.sql.classic.dataframe import DataFrame

        from trueline.spark.engines import Classic

        for name in ("toArrow", "collect", "toPandas"):
            setattr(DataFrame, name, self._sizing(getattr(DataFrame, name)))
        DataFrame.toLocalIterator = self._iterating(DataFrame.toLocalIterator)
        Classic.values = self._iterating(Classic.values)

    def _counting(self, read, what):
        def counted(piece, begin, end):
            for table in read(piece, begin, end):
                self.counts[what] += table.num_rows
                yield table

        return counted

    def _noting(self, write):
        def noted(*args):
            self.counts["slices"] += 1
            return write(*args)

        return noted

    def _iterating(self, fetch):
        def iterated(*made):
            for row in fetch(*made):
                self.counts["iterated rows"] += 1
                yield row

        return iterated

    def _sizing(self, fetch):
        def sized(made):
            found = fetch(made)
            self.counts["fetched rows"] += len(found)
            self.counts["fetched bytes"] += getattr(found, "nbytes", 0)
            return found

        return sized


# --- chapters ----------------------------------------------------------------------------------------


def killed_while_spooling(session, config, _seen) -> dict[str, Any]:
    with tl.open(config["workspace"], create=True, spark=session) as ws:
        stalling = StallingRows(Path(config["folder"], "spooling"), after=2)
        return {"hashes": ingest(ws, "spooling", frame(session, stalling=stalling))}


def killed_while_writing(session, config, _seen) -> dict[str, Any]:
    with tl.open(config["workspace"], create=True, spark=session) as ws:
        folder = Path(config["folder"], "writing")
        found = ingest(ws, "writing", frame(session), lambda store: StallingStore(store, folder))
    with tl.open(config["workspace"]) as ws:
        half_done = leftovers(config["workspace"])
        ws.gc(older_than=0)
        return {"hashes": found, "ok": ws.verify().ok, "left": [half_done, leftovers(config["workspace"])]}


def killed_while_writing_to_a_bucket(session, config, seen) -> dict[str, Any]:
    with tl.open(config["bucket"], create=True, spark=session, **config["options"]) as ws:
        folder = Path(config["folder"], "bucket")
        found = ingest(ws, "writing", frame(session), lambda store: StallingStore(store, folder))
    with tl.open(config["bucket"], spark=session, **config["options"]) as ws:
        total = ws.sql("select count(*) n, sum(id) s from writing").to_arrow().to_pylist()
        return {"hashes": found, "ok": ws.verify().ok, "sql": total, "rows": seen.counts["iterated rows"]}


def a_frame_larger_than_the_driver(session, config, seen) -> dict[str, Any]:
    """This process may have little more memory than it has; the frame is so many times that and the heap."""
    before, width = _data_bytes(), 256
    driver = before + config["room"] + config["heap"]
    size = int(config["times"] * driver)
    resource.setrlimit(resource.RLIMIT_DATA, (before + config["room"], resource.RLIM_INFINITY))
    made = session.range(0, size // width, 1, 8).selectExpr(
        "id", f"concat(sha2(cast(id as string), 256), repeat('-', {width - 72})) as text"
    )
    counted = seen.counts.copy()
    with tl.open(config["workspace"], create=True, spark=session) as ws:
        commit = ws.create("large").append(made)
        rows = ws["large"].info.rows
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return {
        "rows": rows,
        "blocks": len(commit.blocks),
        "driver": driver,
        "bytes": rows * width,
        "seen": dict(seen.counts - counted),
    }


def sorted_rows(folder: str) -> tl.View:
    """Rows that cannot be packed smaller, 35 MB with their ids, and their order."""
    path, count, width = Path(folder, "rows.parquet"), 300_000, 100
    if not path.exists():
        random = np.random.default_rng(5)
        data = pa.py_buffer(random.bytes(count * width))
        payload = pa.Array.from_buffers(pa.binary(width), count, [None, data])
        rows = pa.table({"k": random.integers(0, 500, count), "p": payload.cast(pa.binary())})
        pq.write_table(rows, path, row_group_size=count // 2)
    return tl.View.read_parquet([path]).sort("k")


def unread_cells(folder: str) -> tl.View:
    """Sorted rows of two files with cells that are no numbers."""
    for number, cells in enumerate(("1,a\n", "x,b\n", "3,c\ny,d\n")):
        Path(folder, f"{number}.csv").write_text(f"n,t\n{cells}")
    given = pa.schema({"n": pa.int64(), "t": pa.string()})
    return tl.View.read_csv([Path(folder, f"{number}.csv") for number in range(3)], schema=given).sort("n")


def _delivered(session, config, seen) -> dict[str, Any]:
    view, before = sorted_rows(config["folder"]), seen.counts.copy()
    with counted(session) as passed:
        parts = delivered(view.node, everything(view), session)
        found = rows_of(parts)
    return {
        "differs": difference(in_process(view), found, view),
        "bytes": passed.bytes,
        "seen": dict(seen.counts - before),
    }


def delivered_where_a_folder_is_shared(session, config, seen) -> dict[str, Any]:
    """What is read here comes from files that tasks wrote; what is written for all, a task writes."""
    cells, out = unread_cells(config["folder"]), Path(config["folder"], "out.parquet")
    with passing_rows() as read:
        found = _delivered(session, config, seen)
        expected = read.pop("rows")
        written = sorted_rows(config["folder"]).on_spark(session).write_parquet(out)
        while_writing = read["rows"]
        with warnings_of_ours() as warned:
            told = cells.on_spark(session).to_arrow().num_rows
    there = pq.read_table(out)
    sorted_rows(config["folder"]).write_parquet(out, overwrite=True)
    return found | {
        "read": [expected, while_writing, read["rows"] - while_writing],
        "written": written.rows,
        "same file": there.equals(pq.read_table(out)),
        "bad": [told, dict(cells.bad), len(warned)],
    }


def delivered_where_nothing_is_shared(session, config, seen) -> dict[str, Any]:
    """All rows are in one partition, and more than a driver takes of a task."""

    def refused(*_: object) -> None:
        raise EnvironmentMissing("not to be seen", remedy="share it", code="FolderNotShared")

    parts = session.conf.get("spark.sql.shuffle.partitions")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(shared_places, "shared_folder", refused)
            return _delivered(session, config, seen)
    finally:
        session.conf.set("spark.sql.shuffle.partitions", parts)


@contextmanager
def warnings_of_ours() -> Iterator[list[str]]:
    """Collect what would be written where the driver's errors go."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trueline").addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger("trueline").removeHandler(handler)


@contextmanager
def passing_rows() -> Iterator[Counter[str]]:
    """Count the rows that this process reads of those that tasks have written."""
    found: Counter[str] = Counter()
    part = DeliveredRows.part

    def counting(rows: DeliveredRows, number: int) -> Iterator[Chunk]:
        for chunk in part(rows, number):
            found["rows"] += chunk.rows
            yield chunk

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeliveredRows, "part", counting)
        yield found


def _data_bytes() -> int:
    """What the limit of data counts: private pages of this process that can be written to."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) << 10


def main(config: dict[str, Any]) -> dict[str, Any]:
    settings = Settings(
        master=config["master"], memory=str(config["heap"]), conf=config["conf"], log=Path(config["log"])
    )
    session = start(settings).given
    seen = Seen()
    said: dict[str, Any] = {}
    for name in config["chapters"]:
        try:
            with pytest.MonkeyPatch.context() as patched:
                if name.startswith("killed"):
                    same_size_everywhere(patched.setattr)
                said[name] = globals()[name](session, config, seen)
        except BaseException:  # noqa: BLE001 (every chapter is told)
            said[name] = {"error": traceback.format_exc()[-3000:]}
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
