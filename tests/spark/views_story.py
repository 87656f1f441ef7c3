"""Views by Spark's tasks: `python -m tests.spark.views_story MASTER FOLDER` says what they gave."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl

# Views whose rows tasks exchange, and count.
MOVED = ("joined", "grouped", "window")


def write(folder: Path) -> None:
    """Files of some groups of rows, and a dataset of some commits."""
    for number in range(3):
        rows = range(number * 1_000, number * 1_000 + 1_000)
        table = pa.table({"n": rows, "key": [n % 7 for n in rows], "text": [f"t{n % 13}" for n in rows]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=300)
    with tl.open(folder / "ws", create=True) as workspace:
        events = workspace.create("events")
        for number in range(3):
            events.append(folder / f"{number}.parquet")
        people = workspace.create("people", merge=tl.merge.upsert("key"))
        people.append([{"key": n, "name": f"p{n}"} for n in range(20)])
        people.append([{"key": n, "name": f"q{n}"} for n in range(0, 20, 3)])


def views(folder: Path) -> dict[str, tl.View]:
    """Views of different kinds over both; every row with its id."""
    files = tl.View.read_parquet(str(folder / "*.parquet"))
    workspace = tl.open(folder / "ws")
    events, people = workspace["events"].view(), workspace["people"].view()
    found = {
        "files": files,
        "filtered": files.filter("n % 3 = 1").with_columns(m="n * 2 + key"),
        "cut": files.skip(450).limit(777),
        "sampled": files.sample(0.3, seed=4),
        "events": events,
        "people": people,
        "concat": events.concat(files),
        "sorted": events.sort("text", "n"),
        "shuffled": files.shuffle(5),
        "joined": files.join(people, "key", how="left"),
        "grouped": files.group_by("text").agg(total="sum(n)", rows="count(*)"),
        "window": files.window(2, 1, near="sum(n)"),
    }
    return {name: view.with_row_id("id") for name, view in found.items()}


def digest(table: pa.Table) -> str:
    """What a table holds, whatever the order of its rows."""
    rows = sorted(json.dumps(row, default=lambda raw: raw.hex(), sort_keys=True) for row in table.to_pylist())
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def in_order(table: pa.Table) -> str:
    """What a table holds, in its order."""
    rows = [json.dumps(row, default=lambda raw: raw.hex(), sort_keys=True) for row in table.to_pylist()]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def delivered(folder: Path, session: Any) -> dict[str, str]:
    """Evaluate views whose rows are moved, in order."""
    found = views(folder)
    return {name: in_order(found[name].on_spark(session).to_arrow()) for name in MOVED}


def evaluated(folder: Path, session: Any) -> dict[str, str]:
    """Evaluate every view as a frame."""
    return {name: digest(view.to_spark(session).toArrow()) for name, view in views(folder).items()}


def main() -> None:
    master, folder = sys.argv[1:]
    with tl.open(Path(folder, "ws"), spark=master) as workspace:
        assert "pyspark" not in sys.modules, "nothing is started before it is needed"
        assert workspace.sql("select count(*) as n from people").to_arrow()["n"].to_pylist() == [20]
        session = workspace._spark.first.given
        assert session.sparkContext.master == master
        session.conf.set("spark.sql.shuffle.partitions", "3")
        found = {"frames": evaluated(Path(folder), session), "rows": delivered(Path(folder), session)}
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
