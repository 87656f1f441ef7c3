"""The command line as a process: what it loads, what it leaves, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

import trueline as tl

HEAVY = {
    "pyarrow",
    "numpy",
    "pandas",
    "pyspark",
    "cryptography",
    "rich",
    "obstore",
    "yaml",
    "pydantic",
    "httpx",
    "polars",
    "sqlglot",
}
# How many modules a command that looks at metadata may load, at about half a millisecond each; now it is 275.
MOST_MODULES = 300
COUNT = """
import json, sys
from trueline.cli import main
code = main(sys.argv[1:])
print(len(sys.modules), json.dumps(sorted(set({heavy!r}) & set(sys.modules))), file=sys.stderr)
sys.exit(code)
"""


def trueline(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "trueline.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def test_looking_at_metadata_as_json_loads_nothing_heavy(shop):
    with tl.open(shop) as ws:
        stock = ws.create("stock", merge=tl.merge.upsert("id"))
        stock.append([{"id": 1, "n": 1}])
        stock.append([{"id": 1, "n": 2}])
    for words in (["log"], ["list"], ["status"], ["schema", "sales"], ["config", "list"], ["gc"]):
        command = [sys.executable, "-c", COUNT.format(heavy=sorted(HEAVY)), "-C", str(shop), *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        count, _, heavy = done.stderr.splitlines()[-1].partition(" ")
        assert json.loads(heavy) == [], words
        assert int(count) <= MOST_MODULES, (
            f"{words} loads {count} modules: import what is seldom needed in functions"
        )


def test_exit_codes_reach_the_shell(shop, tmp_path):
    assert trueline("list", "-C", shop).returncode == 0
    assert trueline("list", "-C", tmp_path).returncode == 2
    assert trueline("nonsense").returncode == 2
    next((shop / "datasets" / "sales" / "data").iterdir()).unlink()
    assert trueline("verify", "-C", shop).returncode == 1


def test_a_reader_that_hangs_up_is_no_error(shop):
    with tl.open(shop) as ws:
        ws.config.set("storage.durable", False)
        for n in range(200):
            ws["sales"].append(pa.table({"city": ["x"], "price": [float(n)]}))
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "trueline.cli", "-C", str(shop), "log", "-n", "0"],
        stdout=write, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


INTERRUPTED = """
import os, signal, sys
# Started in the background, a process inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
import trueline as tl
from trueline.cli import main
def datasets(self):
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
import trueline.workspace.workspace
trueline.workspace.workspace.Workspace.datasets = datasets
sys.exit(main(["-C", sys.argv[1], "list"]))
"""


def test_ctrl_c_ends_quietly_with_130(shop):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(shop)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "interrupted\n")


DURING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import importlib
from trueline.cli import main
module, name = sys.argv[1].split(":")
module = importlib.import_module(module)
def interrupted(*arguments, **options):
    if arguments and hasattr(arguments[0], "is_alive"):
        assert arguments[0].is_alive()
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
setattr(module, name, interrupted)
sys.argv[1:] = sys.argv[2:]
sys.exit(main())
"""


def interrupted(place, *words):
    command = [sys.executable, "-c", DURING, place, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_ctrl_c_while_files_are_read_is_one_line(shop, tmp_path):
    (tmp_path / "a.csv").write_text("city,price\nBern,1\n")
    append = "trueline.dataset.append.append:append_rows"
    words = ("-C", shop, "ingest", "sales", tmp_path / "a.csv")
    assert interrupted(append, *words) == (130, "", "interrupted\n")
    with tl.open(shop) as ws:
        ws.create("polled", source=str(tmp_path / "*.csv"))
    assert interrupted("trueline.workspace.pull.pull:pull", "-C", shop, "pull") == (130, "", "interrupted\n")
    code, _, said = interrupted(append, *words, "--json")
    assert (code, json.loads(said)["error"]["code"]) == (130, "Interrupted")


@pytest.mark.jvm
def test_ctrl_c_while_spark_works_shows_nothing_of_py4j(shop):
    query = "select sum(a.id + b.id) from range(1000000000) a, range(1000000) b, sales"
    said = interrupted("trueline.spark.jobs:follow", "-C", shop, "sql", query)
    assert said == (130, "", "interrupted\n")
