"""A join on one key, in a process of its own: `python -m tests.spark.lowering.hot_once ROWS`.

It says as JSON how many rows there were where they were written, and the most memory that the JVM and the
Python workers have held: what a process has held earlier would count too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl
from tests.architecture import ROOT

# What a JVM that lives in little memory gets, and what it may hold of one key.
HEAP = "512m"
LEFT, PAYLOAD, ROWS_OF_A_GROUP = 3, 100, 50_000


def asked(rows: int) -> dict[str, int]:
    """Join in another process; return what it says."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.lowering.hot_once", str(rows)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak(process: str = "self") -> int:
    """Return the most bytes that a process has held so far."""
    lines = Path("/proc", process, "status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def counted(partition: int, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Count the rows of a task, in it; say what its worker has held."""
    del partition
    return sum(batch.num_rows for batch in batches), peak()


def written(folder: Path, rows: int) -> tl.View:
    """Return a view of rows of one key, whose payload cannot be compressed, in a file of many groups."""
    path, random = folder / "right.parquet", np.random.default_rng(1)
    schema = pa.schema({"k": pa.int64(), "n": pa.int64(), "p": pa.binary(PAYLOAD)})
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for first in range(0, rows, ROWS_OF_A_GROUP):
            count = min(ROWS_OF_A_GROUP, rows - first)
            payload = pa.py_buffer(random.bytes(count * PAYLOAD))
            column = pa.FixedSizeBinaryArray.from_buffers(schema.field("p").type, count, [None, payload])
            numbers = np.arange(first, first + count)
            file.write_table(pa.table([np.zeros(count, np.int64), numbers, column], schema=schema))
    return tl.View.read_parquet([path])


def joined(rows: int, folder: Path) -> dict[str, int]:
    """Join few rows with many of the same key, and measure."""
    from trueline.spark.lowering.deliver import written_by
    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    # Rows of a key meet in one task: neither side is sent to all of them.
    conf = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "4"}
    room = start(Settings(master="local[1]", memory=HEAP, conf=conf))
    try:
        left = tl.View.from_arrow(pa.table({"k": np.zeros(LEFT, np.int64), "m": np.arange(LEFT)}))
        view = left.join(written(folder, rows), on="k")
        tasks = written_by(view.node, room.session, counted)
        handle = room.session.sparkContext._jvm.java.lang.ProcessHandle
        jvm = peak(str(handle.current().pid()))
    finally:
        room.stop()
    return {
        "rows": sum(count for count, _ in tasks),
        "python": max(held for _, held in tasks),
        "jvm": jvm,
        "driver": peak(),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.stdout.write(json.dumps(joined(int(sys.argv[1]), Path(made))) + "\n")
