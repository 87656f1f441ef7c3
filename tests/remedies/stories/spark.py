"""Remedies that need Spark to be there; they share the one of the suite."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pyarrow as pa

import trueline as tl
from tests.remedies.story import Scene, done, keywords, piece, story
from tests.spark.running_steps import ByValue
from tests.spark.test_writer import incoming, lines, rows, stream, write
from trueline.chain.store.scratch import FolderScratch
from trueline.dataset.prepare import Rows, on_rows
from trueline.errors import RunFailed
from trueline.run import Run
from trueline.spark import java
from trueline.spark.errors import CarriedError, carried, lasting_nonce, translated
from trueline.spark.frames import spool
from trueline.spark.options import store_options
from trueline.spark.run_executor import Spark
from trueline.spark.session import adopt, start
from trueline.spark.sink import sink
from trueline.spark.source import TruelineSource, register

# A descriptor that no process of Spark has.
_MINE = 901


def session() -> Any:
    """A session as a user has it."""
    own = start().given.newSession()
    register(own)
    return own


@story(
    "spark.source",
    'add .option("changes", "true")',
    'read its events: .option("changes", "true")',
)
@story("spark.options", 'add .option("{name}", …)')
@story("spark.options", "give options of the provider, such as store.region")
def options_of_the_source(scene: Scene) -> None:
    stock = scene.ws.create("stock", merge=tl.merge.upsert("id"))
    stock.append(pa.table({"id": [1]}))
    home = str(scene.home)

    def source(**options: str) -> Any:
        try:
            made = type("Registered", (TruelineSource,), {"nonce": lasting_nonce()})(options)
            if "after" in options:
                return made.reader(made.schema())
            return made.streamReader(made.schema())
        except CarriedError as error:
            raise carried(str(error)) from None

    remedy = scene.refused(lambda: source(dataset="stock", changes="true"))
    read = session().read.format("trueline").option("dataset", "stock")
    text = piece(remedy, r"\.option\(.*\)").replace("…", "home")
    assert done(f"read{text}", read=read, home=home).load().count() == 1
    remedy = scene.refused(lambda: source(workspace=home, dataset="stock", after="offset:0"))
    read = session().read.format("trueline").option("workspace", home).option("dataset", "stock")
    events = piece(remedy, r"\.option\(.*\)")
    assert done(f"read.option('after', 'offset:0'){events}", read=read).load().count() == 0
    remedy = scene.refused(lambda: source(workspace=home, dataset="stock"))
    stream = session().readStream.format("trueline").option("workspace", home).option("dataset", "stock")
    assert done(f"stream{piece(remedy, r'[.]option.*')}", stream=stream).load().isStreaming
    remedy = scene.refused(lambda: store_options({"store.create": "true"}))
    assert store_options({piece(remedy, r"store\.\w+"): "here"}) == {"region": "here"}


@story("spark.sink", "give the sink a name of its own: sink(workspace, dataset, name=…)")
@story("spark.frames", "use foreachBatch, which gives a frame per batch")
def batches_and_streams(scene: Scene) -> None:
    copy = scene.ws.create("copy")
    names = {"workspace": scene.ws.location, "dataset": "copy", "sink": sink}
    remedy = scene.refused(lambda: sink(scene.ws.location, "copy")(session().range(3), 0))
    named = done(piece(remedy, r"sink\(workspace.*\)").replace("…", "'q'"), **names)
    named(session().range(3), 0)
    assert copy.view().row_count == 3
    rates = session().readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().select("value")
    remedy = scene.refused(lambda: spool(rates, scene.folder))
    write = getattr(rates.writeStream, piece(remedy, "foreachBatch"))
    other = scene.ws.create("other")
    sent = sink(scene.ws.location, "other")
    query = write(sent).option("checkpointLocation", str(scene.folder / "c")).trigger(once=True).start()
    query.awaitTermination(120)
    query.stop()
    assert other.view().row_count is not None


@story("spark.types", "store its text with to_json")
def a_type_that_only_spark_has(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    frame = session().sql("""select parse_json('{"a": 1}') v""")
    remedy = scene.refused(lambda: trades.append(frame))
    text = frame.selectExpr(f"{piece(remedy, 'to_json')}(v) as v")
    assert trades.append(text).rows == 1


def _collected(view: tl.View) -> None:
    with translated():
        view.to_spark(session()).collect()


@story("spark.types", "cut them to microseconds: view.with_columns({{name!r}: {cut!r}})")
def times_between_those_of_spark(scene: Scene) -> None:
    """A frame has no nanoseconds, whether tasks read the rows or Spark has moved them."""
    times = pa.array([1_001, 2_000, None]).cast(pa.timestamp("ns", "UTC"))
    view = tl.View.from_arrow(pa.table({"the `time`": times, "n": [1, 2, 3]}))
    scene.refused(lambda: _collected(view))
    remedy = scene.refused(lambda: _collected(view.sort("n")))
    cut = done(piece(remedy, r"view\.with_columns\(.*\)"), view=view)
    assert cut.to_spark(session()).count() == 3
    scene.ws.create("times").append(view)
    scene.refused(lambda: scene.ws.sql("select * from times").to_arrow())


@story(
    "spark.session",
    "leave out spark=, pass the session as spark=, or use another process",
    "give a SparkSession, classic or Connect",
)
def another_spark_than_there_is(scene: Scene) -> None:
    scene.ws.create("trades").append([{"id": 1}])

    def rows(**given: Any) -> int:
        with tl.open(scene.home, **given) as ws:
            return int(ws.sql("select * from trades").count())

    remedy = scene.refused(lambda: rows(spark="local[7]"))
    assert rows() == 1
    assert rows(**{piece(remedy, r"pass the session as (\w+)="): session()}) == 1
    scene.refused(lambda: adopt("local[2]"))
    assert adopt(session()) is not None


@story(
    "spark.run_executor",
    "keep the rows with Rows.keep(table, scratch), and wrap steps on tables by on_rows(step)",
)
def tables_in_steps_on_spark(scene: Scene) -> None:
    def run(step: Any, value: Any) -> Any:
        try:
            return Run([step], executor=Spark(start())).execute({"a": value})
        except RunFailed as error:
            raise (error.__cause__ or error) from None

    remedy = scene.refused(lambda: run(ByValue(), 1))
    scratch = FolderScratch(scene.folder)
    table = pa.table({"n": [5]})
    rows = done(piece(remedy, r"Rows\.keep\(table, scratch\)"), Rows=Rows, table=table, scratch=scratch)
    step = done(piece(remedy, r"on_rows\(step\)"), on_rows=on_rows, step=ByValue())
    assert run(step, rows)["a"].table()["n"].to_pylist() == [1]


@story(
    "workspace.query_guard",
    "{remedy or 'leave it out'}; where every query is your own, open the workspace with trusted_sql=True "
    "(`trueline sql --trusted-sql`)",
)
def a_query_that_calls_java(scene: Scene) -> None:
    scene.ws.create("trades").append([{"id": 1}])
    query = "select reflect('java.lang.Math', 'abs', -1) as x from trades"
    remedy = scene.refused(lambda: scene.ws.sql(query).to_arrow())
    with tl.open(scene.home, **keywords(remedy, r"(trusted_sql=True)")) as ws:
        assert ws.sql(query).to_arrow()["x"].to_pylist() == ["1"]
    words = piece(remedy, "`trueline (.*)`").split()
    assert "1" in scene.done(*words, query)


@story("workspace.sql", "did you mean {close[0]!r}?", "the datasets are: {known or 'none yet'}")
@story("workspace.sql", "{remedy}; {trusted}")
def a_query_of_a_table_that_is_not_there(scene: Scene) -> None:
    scene.ws.create("trades").append([{"id": 1}])

    def found(ws: tl.Workspace, table: str) -> int:
        return int(ws.sql(f"select * from {table}").count())

    with tl.open(scene.home, trusted_sql=True) as trusted:
        for ws in (scene.ws, trusted):
            remedy = scene.refused(lambda ws=ws: found(ws, "trade"))
            assert found(ws, piece(remedy, r"mean '(\w+)'")) == 1
            remedy = scene.refused(lambda ws=ws: found(ws, "people"))
            assert found(ws, piece(remedy, r"are: (\w+)")) == 1


@story("spark.writer", 'add .option("name", …), another one for every checkpoint')
@story(
    "spark.writer",
    'send all rows in every batch, with .outputMode("complete"), or write to a dataset with another merge',
    "use .{instead}, or write to a dataset created with merge=trueline.merge.snapshot(…)",
)
def writes_that_do_not_fit_the_merge(scene: Scene) -> None:
    own = session()
    lines(scene.folder / "in", 0, 1, 2)
    frame = incoming(own, scene.folder / "in")
    counts = frame.groupBy("n").count()
    copy, whole = scene.ws.create("copy"), scene.ws.create("whole", merge=tl.merge.snapshot("n"))
    remedy = scene.refused(lambda: stream(frame, copy, scene.folder / "a"))
    name = piece(remedy, r'\.option\("(\w+)"')
    stream(frame, copy, scene.folder / "b", **{name: "b"})
    assert len(rows(copy)) == 2
    remedy = scene.refused(lambda: stream(frame, whole, scene.folder / "c", name="c"))
    mode = piece(remedy, r'outputMode\("(\w+)"\)')
    stream(counts, whole, scene.folder / "d", mode=mode, name="d")
    stream(frame, scene.ws.create("other"), scene.folder / "e", name="e")
    assert rows(whole) == [{"n": 1, "count": 1}, {"n": 2, "count": 1}]
    remedy = scene.refused(lambda: stream(counts, copy, scene.folder / "f", mode="complete", name="f"))
    stream(frame, copy, scene.folder / "g", mode=piece(remedy, r'outputMode\("(\w+)"\)'), name="g")
    remedy = scene.refused(lambda: write(own.sql("select 1L as n"), copy, mode="overwrite"))
    write(own.sql("select 1L as n"), copy, mode=piece(remedy, r'mode\("(\w+)"\)'))
    merge = done(piece(remedy, r"merge=(trueline.*)").replace("…", "'n'"))
    write(own.sql("select 1L as n"), scene.ws.create("new", merge=merge), mode="overwrite")
    assert [len(rows(each)) for each in (copy, scene.ws["new"])] == [5, 1]


COUNTED = """
import sys
from pyspark.sql import SparkSession
from trueline.errors import TruelineError
from trueline.spark.errors import translated
from trueline.spark.source import register
own = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(own)
try:
    with translated():
        print(own.read.format("trueline").load(sys.argv[1], dataset="trades").count())
except TruelineError as error:
    print(error.remedy)
"""


@story(
    "spark.errors",
    "set PYSPARK_PYTHON to the interpreter of this process before Spark starts: "
    "export PYSPARK_PYTHON={sys.executable}",
)
def workers_with_another_python(scene: Scene) -> None:
    scene.ws.create("trades").append([{"id": 1}])
    script = scene.file("counted.py", COUNTED)
    home = java.home_for_spark(java.find())

    def said(first: str) -> str:
        line = f'{first}; exec "$0" "$@"'
        words = ["sh", "-c", line, sys.executable, str(script), str(scene.home)]
        ran = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"JAVA_HOME": str(home)})
        return ran.stdout.strip()

    remedy = scene.meet(said("export PYSPARK_PYTHON=/nowhere/python"))
    assert said(piece(remedy, r"export \S+")) == "1"


@story(
    "spark.workers",
    "choose a folder that all machines of the cluster share, or an object store; to work in this process "
    "instead: ws.config.set('spark.tasks', 'never')",
)
def a_folder_that_workers_do_not_see(scene: Scene) -> None:
    (scene.folder / "trades.csv").write_text("id\n1\n")
    mine = os.open(scene.folder, os.O_RDONLY)
    os.dup2(mine, _MINE, inheritable=False)
    os.close(mine)
    scene.stack.callback(os.close, _MINE)
    with tl.open(scene.home, create=True, spark=session()) as ws:
        trades = ws.create("trades")
        ws.config.set("spark.tasks", "always")
        path = f"/proc/self/fd/{_MINE}/trades.csv"
        remedy = scene.refused(lambda: trades.append(path))
        done(piece(remedy, r"ws\.config\.set\(.*\)"), ws=ws)
        assert trades.append(path).rows == 1
