"""Everything that makes a view: to have a new source or operator checked, add a line."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import trueline as tl
from trueline.testing import Loader, Operator, Saver, Split, views
from trueline.testing.generate import mixed

ROWS = 45
PLAIN = pa.table(
    {
        "n": pa.array([None if n % 9 == 4 else n for n in range(ROWS)], pa.int64()),
        "x": [n / 4 for n in range(ROWS)],
        "s": [None if n % 7 == 3 else f"row {n % 10}" for n in range(ROWS)],
    }
)


@dataclass
class Trade:
    n: int
    s: str


def _csv(folder: Path) -> list[Path]:
    paths = []
    for number in range(3):
        path = folder / f"{number}.csv"
        pa.csv.write_csv(PLAIN.slice(number * 15, 15), path)
        paths.append(path)
    return paths


def _text(folder: Path) -> Path:
    path = folder / "lines.txt"
    path.write_text("".join(f"line {n}\n" for n in range(ROWS)), encoding="utf-8")
    return path


def _json(folder: Path) -> Path:
    path = folder / "lines.json"
    path.write_text("".join(f'{{"n": {n}, "s": "row {n}"}}\n' for n in range(ROWS)), encoding="utf-8")
    return path


def _arrow(folder: Path) -> Path:
    path = folder / "rows.arrow"
    tl.View.from_arrow(PLAIN).write_arrow(path)
    return path


def _parquet(folder: Path) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(2)]
    table = mixed(ROWS).to_arrow()
    for number, path in enumerate(paths):
        pq.write_table(table.slice(number * 20, 20 + 5 * number), path, row_group_size=6)
    return paths


def _dataset(folder: Path, at: bool = False, changes: bool = False) -> tl.View:
    ws = tl.open(folder / "ws", create=True)
    trades = ws.create("trades")
    first = trades.append(PLAIN.slice(0, 30))
    trades.append(PLAIN.slice(30))
    return trades.changes() if changes else trades.view(at=first if at else None)


# name → a function from an empty folder to a view.
SOURCES: dict[str, Callable[[Path], tl.View]] = {
    "from_arrow": lambda _: tl.View.from_arrow(PLAIN),
    "from_arrow of several chunks": lambda _: tl.View.from_arrow(pa.concat_tables([PLAIN] * 3)),
    "from_pandas": lambda _: tl.View.from_pandas(PLAIN.to_pandas()),
    "from_rows of dictionaries": lambda _: tl.View.from_rows(PLAIN.to_pylist()),
    "from_rows of dataclasses": lambda _: tl.View.from_rows([Trade(n, f"{n}") for n in range(30)]),
    "range": lambda _: tl.View.range(70, start=-5),
    "read_csv": lambda folder: tl.View.read_csv(_csv(folder)),
    "read_text": lambda folder: tl.View.read_text(_text(folder)),
    "read_json": lambda folder: tl.View.read_json(_json(folder)),
    "read_csv of one file in parts": lambda folder: tl.View.read_csv(_csv(folder)[0], block_bytes=64),
    "read_json of one file in parts": lambda folder: tl.View.read_json(_json(folder), block_bytes=64),
    "read_arrow": lambda folder: tl.View.read_arrow(_arrow(folder)),
    "read_parquet": lambda folder: tl.View.read_parquet(_parquet(folder)),
    "a dataset": _dataset,
    "a dataset at a commit": functools.partial(_dataset, at=True),
    "the events of a dataset": functools.partial(_dataset, changes=True),
}


def _other() -> tl.View:
    return tl.View.from_arrow(
        pa.table({"n": pa.array([5, 7, 7, None, 60], pa.int64()), "w": [1, 2, 3, 4, 5], "x": [0.5] * 5})
    )


# name → operator, checked on a sample of most types.
OPERATORS: dict[str, Operator] = {
    "select": Operator(lambda v: v.select("name", "n")),
    "select hidden": Operator(lambda v: v.with_columns(n="n + 1").select(0, "x", "n")),
    "drop": Operator(lambda v: v.drop("x", "tags")),
    "rename": Operator(lambda v: v.rename(number="n")),
    "with_columns": Operator(lambda v: v.with_columns(y="n * 2 + :a", name="upper(name)", a=1)),
    "with_row_id": Operator(lambda v: v.with_row_id("id")),
    "annotate": Operator(lambda v: v.annotate(0, {"test/unit": "m"})),
    "filter": Operator(lambda v: v.filter("n % 3 > 0 or x > :a", a=2)),
    "filter nothing": Operator(lambda v: v.filter("n < -100")),
    "limit": Operator(lambda v: v.limit(17)),
    "skip": Operator(lambda v: v.skip(9)),
    "tail": Operator(lambda v: v.tail(9), blocking=True),
    "drop_nulls": Operator(lambda v: v.drop_nulls("n", "x")),
    "fill_null": Operator(lambda v: v.fill_null(n=7, name="?")),
    "distinct": Operator(lambda v: v.distinct("kind"), blocking=True),
    "skip and limit after a filter": Operator(lambda v: v.filter("n > 2").skip(3).limit(11)),
    "sample": Operator(lambda v: v.sample(0.6, seed=3)),
    "sample with replacement": Operator(lambda v: v.sample(1.5, seed=3, replace=True)),
    "sort": Operator(lambda v: v.sort("kind", "x", descending=[False, True]), blocking=True),
    "shuffle": Operator(lambda v: v.shuffle(7), blocking=True),
    "concat": Operator(lambda v: v.concat(v, v.filter("n > 5"))),
    "zip": Operator(lambda v: v.select("n").zip(v.select("x").skip(3))),
    "explode": Operator(lambda v: v.explode("tags")),
    "explode outer": Operator(lambda v: v.explode("pair", outer=True)),
    "group_by": Operator(
        lambda v: v.group_by("kind").agg(rows="count(*)", total="sum(n)", first="first(name)"), blocking=True
    ),
    "group_by of expressions": Operator(
        lambda v: v.group_by("kind").agg(mean="sum(n) / count(*)", middle="median(x)", wide="stddev(x)"),
        blocking=True,
    ),
    "window of ranks": Operator(lambda v: v.window(r="rank(x)", n="row_number()"), blocking=True),
    "window": Operator(lambda v: v.window(2, 1, total="sum(n)", low="min(x)"), ahead=70_000),
    "window by": Operator(lambda v: v.window(2, 0, by="kind", total="sum(n)"), blocking=True),
    "cache": Operator(lambda v: v.cache(), blocking=True, caches=True),
    "join to itself": Operator(lambda v: v.join(v.select("n", "x"), on="n"), blocking=True),
    **{
        f"join {how}": Operator(lambda v, how=how: v.join(_other(), on="n", how=how), blocking=True)
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
    "join cross": Operator(lambda v: v.join(_other().limit(2), how="cross"), blocking=True),
    "join as of": Operator(
        lambda v: v.select("kind", "n").join(v.select("kind", "n", "x"), on="kind", as_of="n"), blocking=True
    ),
}

SPLITS: dict[str, Split] = {
    "split": Split(lambda v: v.split((0.5, 0.3, 0.2), seed=4)),
    "split by key": Split(lambda v: v.split({"train": 0.5, "test": 0.5}, by="kind")),
    "folds": Split(lambda v: [test for _, test in v.folds(3, seed=1)]),
}

SCHEMA = pa.schema({"n": pa.int64(), "x": pa.float64(), "s": pa.string()})

LOADERS: dict[str, Loader] = {
    "read_csv": Loader(lambda paths: tl.View.read_csv(paths, schema=SCHEMA)),
}


def sample_file(folder: Path) -> Path:
    """A CSV file for loaders."""
    path = folder / "sample.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([["n", "x", "s"], *([n, n / 2, f"row {n}"] for n in range(20))])
    return path


def _parquet_saver(_: tl.View) -> Saver:
    return Saver(
        lambda view, path: view.write_parquet(path),
        lambda path: tl.View.read_parquet([path]),
        losses=frozenset({"hidden columns"}),
        suffix=".parquet",
    )


def _csv_saver(sample: tl.View) -> Saver:
    return Saver(
        lambda view, path: view.write_csv(path),
        lambda path: tl.View.read_csv([path], schema=sample.schema.to_arrow()),
        losses=frozenset({"hidden columns"}),
        suffix=".csv",
    )


HARD = [name for name in views() if "no columns" not in name]
# name → a function from the sample to the saver, and the hard views that the format can hold.
SAVERS: dict[str, tuple[Callable[[tl.View], Saver], list[str]]] = {
    "write_parquet": (_parquet_saver, HARD),
    "write_csv": (
        _csv_saver,
        ["duplicates", "hidden names", "NaN and infinities", "numbers at their ends", "many columns"],
    ),
}
