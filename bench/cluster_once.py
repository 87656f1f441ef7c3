"""Views on a Spark cluster of this machine, in a process of their own: `python -m bench.cluster_once JSON`.

A process each, so that the driver is as small as the question says, and its peak memory is theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.timing import Samples, alternate, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trueline.view import View

LEFT: Final = ("n", "k", "g", "price", "weight", "city")
RIGHT: Final = ("k", "rate", "name")
FIRST: Final = "first"  # of the actions: what ours does, with order and ids
HEAP: Final = "1536m"


@dataclass(frozen=True)
class Question:
    """Which views of which rows are measured, how often, where, and with how large a driver."""

    cases: list[str]
    place: str
    rounds: int
    master: str
    driver: str
    peers: bool = True
    seconds: float = 3_600


@dataclass(frozen=True)
class Answer:
    """Seconds by view and action, and the most memory of the driver's two processes, ours having run."""

    seconds: dict[str, dict[str, list[float]]]
    python: int
    jvm: int

    def samples(self, case: str, action: str) -> Samples:
        return Samples(tuple(self.seconds[case][action]))


def asked(question: Question) -> Answer | None:
    """Measure in another process; None if it did not end in time."""
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-m", "bench.cluster_once", json.dumps(asdict(question))]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            timeout=question.seconds,
            check=True,
            cwd=root,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return None
    return Answer(**json.loads(done.stdout.splitlines()[-1]))


# --- in that process --------------------------------------------------------------------------


def answer(question: Question) -> Answer:
    """Run ours once each, look at the memory, then all actions in turn."""
    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    conf = {"spark.executor.memory": HEAP, "spark.sql.adaptive.enabled": "true"}
    room = start(Settings(master=question.master, memory=question.driver, conf=conf))
    try:
        session = room.given
        actions = {case: _actions(case, question, session) for case in question.cases}
        seconds = {case: {FIRST: [timed(each[FIRST])]} for case, each in actions.items()}
        python, jvm = peak_of_python(), _peak_of_jvm(session)
        if question.rounds:
            for case, each in actions.items():
                taken = alternate(each, question.rounds, warmup=1)
                seconds[case] = {name: list(samples.seconds) for name, samples in taken.items()}
        return Answer(seconds, python, jvm)
    finally:
        room.stop()


def _actions(case: str, question: Question, session: SparkSession) -> dict[str, Callable[[], object]]:
    left, right = _view(question, "left", LEFT), _view(question, "right", RIGHT)
    view = {
        "sort": lambda: left.sort("price"),
        "join": lambda: left.join(right, on="k"),
        "group": lambda: left.group_by("g").agg(rows="count(*)", total="sum(price)", top="max(weight)"),
        "join and group": lambda: _chain(left, right),
    }[case]()
    actions: dict[str, Callable[[], object]] = {FIRST: lambda: _delivered(view, session)}
    if case != "sort":
        actions["frame"] = lambda: _written(view.to_spark(session))
    if question.peers:
        mine, theirs = (_plain(question, session, *each) for each in (("left", LEFT), ("right", RIGHT)))
        for name, frame in _peers(case, mine, theirs).items():
            actions[name] = lambda frame=frame: _written(frame)  # type: ignore[misc]
    return actions


def _chain(left: View, right: View) -> View:
    return left.join(right, on="k").group_by("g").agg(rows="count(*)", total="sum(rate)", top="max(price)")


def _peers(case: str, left: DataFrame, right: DataFrame) -> dict[str, DataFrame]:
    """Return the plain frames: as users write them, and with places that the rows are put in order by."""
    from pyspark.sql import functions as f

    if case == "sort":
        return {"plain": left.orderBy("price")}
    mine, theirs = (
        frame.withColumn(name, f.monotonically_increasing_id()) for frame, name in ((left, "p"), (right, "q"))
    )
    if case == "join":
        return {"plain": left.join(right, "k"), "ordered": mine.join(theirs, "k").orderBy("p", "q")}
    if case == "group":
        made = [
            f.count("*").alias("rows"),
            f.sum("price").alias("total"),
            f.max("weight").alias("top"),
        ]
        first = f.min("p").alias("p")
        return {
            "plain": left.groupBy("g").agg(*made),
            "ordered": mine.groupBy("g").agg(*made, first).orderBy("p"),
        }
    sums = [f.count("*").alias("rows"), f.sum("rate").alias("total"), f.max("price").alias("top")]
    return {"plain": left.join(right, "k").groupBy("g").agg(*sums)}


def _view(question: Question, name: str, columns: tuple[str, ...]) -> View:
    import trueline

    view: View = trueline.open(question.place)[name].view()
    return view.select(*columns)


def _plain(question: Question, session: SparkSession, name: str, columns: tuple[str, ...]) -> DataFrame:
    files = sorted((Path(question.place) / "datasets" / name / "data").iterdir())
    return session.read.parquet(*(file.as_uri() for file in files)).select(*columns)


def _delivered(view: View, session: SparkSession) -> None:
    """Have all rows with their ids in order, in files: whoever reads first starts it."""
    from trueline.spark.lowering.deliver import delivered
    from trueline.view.plan.node import Want

    want = Want(tuple(column.index for column in view.schema.visible), ids=True)
    next(delivered(view.node, want, session)[0].chunks(), None)


def _written(frame: DataFrame) -> None:
    with tempfile.TemporaryDirectory(prefix="trueline-bench-") as folder:
        target = Path(folder) / "rows"
        frame.write.option("compression", "none").parquet(target.as_uri())
        shutil.rmtree(target)


def peak_of_python() -> int:
    # Not what getrusage says: that begins with the peak of the process that started this one.
    return _peak_of("self")


def _peak_of_jvm(session: Any) -> int:
    jvm = session.sparkContext._jvm  # noqa: SLF001 (no public way leads to the driver's JVM)
    return _peak_of(str(jvm.java.lang.ProcessHandle.current().pid()))


def _peak_of(process: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    print(json.dumps(asdict(answer(Question(**json.loads(sys.argv[1]))))), flush=True)
