"""Two processes that commit to one dataset as fast as they can."""

from __future__ import annotations

import subprocess
import sys

import trueline as tl
from tests.workspace.records import records

EACH = 500

WRITER = """
import sys
import pyarrow as pa, trueline as tl
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with tl.open(path) as ws:
    ds = ws["trades"]
    sys.stdin.readline()
    for number in range(count):
        commit = ds.append(pa.table({"who": [name], "number": [number]}))
        assert commit.rows == 1
"""


def test_a_thousand_commits_of_two_processes_are_all_there_once(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        # Syncing to disk is not what this is about, and takes most of the time.
        ws.config.set("storage.durable", False)
        ws.create("trades")
    command = [sys.executable, "-c", WRITER, str(tmp_path / "ws")]
    writers = [
        subprocess.Popen(
            [*command, name, str(EACH)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    errors = [writer.communicate(timeout=250)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    with tl.open(tmp_path / "ws") as ws:
        ds = ws["trades"]
        info = ds.info
        assert (info.rows, info.commits) == (2 * EACH, 2 * EACH + 1)
        table = records(ds)
        assert table["offset"].to_pylist() == list(range(2 * EACH))
        for name in ("one", "two"):
            mine = [row["number"] for row in table.to_pylist() if row["who"] == name]
            assert mine == list(range(EACH)), "every row once, in the order it was appended"
        assert ds.verify().ok
        assert [commit.rows for commit in ds.log()] == [1] * (2 * EACH) + [0]
