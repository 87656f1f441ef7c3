"""Operators of views in this process, on Arrow data, beside DuckDB and polars in one order, and pyarrow."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bench.run import Run
from bench.table import Row, duration
from bench.timing import Samples, alternate, settle
from trueline.kernel.read_ahead import THREADS
from trueline.view import View

if TYPE_CHECKING:
    import duckdb
    import polars as pl

MOST = 3.0
MOST_EXACT = 6.0  # sums of doubles that no order of adding changes
ROUNDS = 7  # many take some milliseconds: of three rounds the median swung by a half
NOTE = (
    f"views-process: the same Arrow tables, {THREADS} threads each, rows and order the same: DuckDB has "
    "ORDER BY, polars maintain_order. Ours and DuckDB give Arrow; polars has its own form before and after. "
    "pyarrow keeps the order where it sorts; groups and joins come in any, and the goal does not count it."
)

# What pyarrow aggregates, by the name that a case gives it.
_ARROW_CALLS: Final = {
    "count": ([], "count_all"),
    "sum of int64": ("whole", "sum"),
    "exact sum of doubles": ("number", "sum"),
    "min of doubles": ("number", "min"),
    "max of int64": ("whole", "max"),
    "exact average of doubles": ("number", "mean"),
    "count distinct": ("few", "count_distinct"),
}

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Case:
    """One operator, as each engine writes it."""

    what: str
    ours: Callable[[Mapping[str, View]], View]
    sql: str
    polars: Callable[[Mapping[str, Any]], Any]
    most: float = MOST
    arrow: Callable[[Tables], pa.Table] | None = None  # where pyarrow has the operator


def run(run: Run) -> Iterator[Row]:
    rows = 5 * run.scale.hashed_rows // 2
    with run.doing(f"making {rows:,} rows"):
        tables = _tables(rows)
    views = {name: View.from_arrow(table) for name, table in tables.items()}
    peers = _Peers(tables) if run.peers else None
    settle()
    for case in _cases(rows):
        yield _row(case, views, peers, rows)


def _row(case: Case, views: Mapping[str, View], peers: _Peers | None, rows: int) -> Row:
    actions: dict[str, Callable[[], object]] = {"ours": lambda: case.ours(views).to_arrow().num_rows}
    if peers is not None:
        actions |= {"DuckDB": lambda: peers.duckdb(case), "polars": lambda: peers.polars(case)}
        if (arrow := case.arrow) is not None:
            actions["pyarrow"] = lambda: arrow(peers.tables).num_rows
        counts = {name: action() for name, action in actions.items()}
        assert len(set(counts.values())) == 1, (case.what, counts)
    taken = alternate(actions, ROUNDS, warmup=1)
    what = f"{case.what}, {rows:,} rows"
    if peers is None:
        return Row("views-process", what, duration(taken["ours"]), note=NOTE)
    name, best = _better(taken)
    ratio = taken["ours"].median / best.median
    others = ", ".join(
        f"{each} {samples.median * 1e3:,.0f} ms"
        for each, samples in taken.items()
        if each not in ("ours", name)
    )
    return Row(
        "views-process",
        what,
        duration(taken["ours"]),
        duration(best, f"{name} {importlib.metadata.version(name.lower())}: "),
        ratio,
        f"≤ {case.most:g} × the better",
        ratio <= case.most,
        NOTE,
        others,
    )


def _better(taken: Mapping[str, Samples]) -> tuple[str, Samples]:
    return min(((name, taken[name]) for name in ("DuckDB", "polars")), key=lambda each: each[1].median)


class _Peers:
    """The engines beside ours, with the same tables."""

    def __init__(self, tables: Tables) -> None:
        os.environ.setdefault("POLARS_MAX_THREADS", str(THREADS))  # read when polars is first imported
        import duckdb
        import polars as pl

        self.tables = tables
        self.connection: duckdb.DuckDBPyConnection = duckdb.connect(config={"threads": THREADS})
        for name, table in tables.items():
            self.connection.register(name, table)
        self.frames: dict[str, pl.LazyFrame] = {
            name: pl.DataFrame(pl.from_arrow(table)).lazy() for name, table in tables.items()
        }

    def duckdb(self, case: Case) -> int:
        return int(self.connection.sql(case.sql).to_arrow_table().num_rows)

    def polars(self, case: Case) -> int:
        return int(case.polars(self.frames).collect().height)


# --- rows -------------------------------------------------------------------------------------


def _tables(rows: int) -> Tables:
    random = np.random.default_rng(11)
    many, few = max(1, rows // 5), max(1, rows // 50)
    cities = pa.array([f"city {number}" for number in range(1_000)])
    labels = pa.array([f"customer {number:07}" for number in range(rows)])
    mixed = random.permutation(rows)
    t = pa.table(
        {
            "n": np.arange(rows),
            "city": cities.take(pa.array(random.integers(0, 1_000, rows))),
            "label": labels.take(pa.array(mixed)),
            "id": random.integers(0, many, rows),
            "hot": np.where(random.random(rows) < 0.9, 7, random.integers(0, 1_000, rows)),
            "few": random.integers(0, few, rows),
            "own": mixed,
            "whole": random.integers(-1_000_000, 1_000_000, rows),
            "number": random.normal(size=rows),
        }
    )
    small = pa.table({"few": random.permutation(few), "price": random.random(few)})
    large = pa.table({"own": random.permutation(rows), "price": random.random(rows)})
    half = small.slice(0, few // 2)
    prices = pa.table(
        {
            "n": np.arange(0, rows, 10),
            "city": cities.take(pa.array(random.integers(0, 1_000, len(range(0, rows, 10))))),
            "price": random.random(len(range(0, rows, 10))),
        }
    )
    holes = pa.table(
        {
            "n": np.arange(rows),
            "whole": pa.array(t["whole"].to_numpy(), mask=random.random(rows) < 0.1),
            "number": pa.array(t["number"].to_numpy(), mask=random.random(rows) < 0.1),
        }
    )
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(0, 5 * many + 1, 5, dtype=np.int32)), pa.array(random.random(5 * many))
    )
    vectors = pa.table({"n": np.arange(many), "v": lists})
    return {
        "t": t,
        "small": small,
        "large": large,
        "half": half,
        "labels": pa.table({"label": t["label"], "price": large["price"]}),
        "prices": prices,
        "holes": holes,
        "vectors": vectors,
    }


# --- operators --------------------------------------------------------------------------------


def _cases(rows: int) -> Iterator[Case]:
    many = max(1, rows // 5)
    yield from _groups("city", "1,000 text keys")
    yield from _groups("id", f"{many:,} whole keys")
    yield from _statistics()
    yield from _hot()
    yield from _joins()
    yield from _partners()
    yield from _sorts()
    yield from _row_by_row()
    yield from _places()


def _groups(key: str, what: str) -> Iterator[Case]:
    for name, text, sql, most in (
        ("count", "count(*)", "count(*)", MOST),
        ("sum of int64", "sum(whole)", "sum(whole)", MOST),
        ("exact sum of doubles", "sum(number)", "sum(number)", MOST_EXACT),
        ("min of doubles", "min(number)", "min(number)", MOST),
        ("max of int64", "max(whole)", "max(whole)", MOST),
        ("exact average of doubles", "avg(number)", "avg(number)", MOST_EXACT),
        ("count distinct", "count(distinct few)", "count(distinct few)", MOST),
    ):
        yield Case(
            f"group by {what}: {name}",
            lambda views, text=text: views["t"].group_by(key).agg(x=text),  # type: ignore[misc]
            f"SELECT {key}, {sql} AS x FROM t GROUP BY {key} ORDER BY min(n)",
            lambda frames, name=name: (  # type: ignore[misc]
                frames["t"].group_by(key, maintain_order=True).agg(x=_polars(name))
            ),
            most,
            lambda tables, name=name: (  # type: ignore[misc]
                tables["t"].group_by(key).aggregate([_ARROW_CALLS[name]])
            ),
        )


def _polars(name: str) -> pl.Expr:
    import polars as pl

    return {
        "count": pl.len(),
        "sum of int64": pl.col("whole").sum(),
        "exact sum of doubles": pl.col("number").sum(),
        "min of doubles": pl.col("number").min(),
        "max of int64": pl.col("whole").max(),
        "exact average of doubles": pl.col("number").mean(),
        "count distinct": pl.col("few").n_unique(),
    }[name]


def _statistics() -> Iterator[Case]:
    for what, text, sql, most in (
        ("exact stddev of doubles", "stddev(number)", "stddev(number)", MOST_EXACT),
        ("median of doubles", "median(number)", "median(number)", MOST),
        ("first of doubles", "first(number)", "first(number ORDER BY n)", MOST),
        ("collect int64", "collect(whole)", "list(whole ORDER BY n)", MOST),
    ):
        yield Case(
            f"group by 1,000 text keys: {what}",
            lambda views, text=text: views["t"].group_by("city").agg(x=text),  # type: ignore[misc]
            f"SELECT city, {sql} AS x FROM t GROUP BY city ORDER BY min(n)",
            lambda frames, what=what: (  # type: ignore[misc]
                frames["t"].group_by("city", maintain_order=True).agg(x=_columns(what))
            ),
            most,
        )


def _hot() -> Iterator[Case]:
    yield Case(
        "group by 1,000 keys, one with 90 % of the rows: count, exact sum",
        lambda views: views["t"].group_by("hot").agg(c="count(*)", x="sum(number)"),
        "SELECT hot, count(*) AS c, sum(number) AS x FROM t GROUP BY hot ORDER BY min(n)",
        lambda frames: (
            frames["t"]
            .group_by("hot", maintain_order=True)
            .agg(c=_polars("count"), x=_polars("exact sum of doubles"))
        ),
        MOST_EXACT,
        lambda tables: tables["t"].group_by("hot").aggregate([([], "count_all"), ("number", "sum")]),
    )
    yield Case(
        "distinct by whole keys",
        lambda views: views["t"].select("n", "id", "number").distinct("id"),
        "SELECT min(n) AS n, id, first(number ORDER BY n) AS number FROM t GROUP BY id ORDER BY 1",
        lambda frames: (
            frames["t"].select("n", "id", "number").unique(subset=["id"], keep="first", maintain_order=True)
        ),
    )


def _joins() -> Iterator[Case]:
    for right, key, what in (("small", "few", "with a fiftieth as many"), ("large", "own", "with as many")):
        yield Case(
            f"join by whole keys {what}",
            lambda views, right=right, key=key: (  # type: ignore[misc]
                views["t"].select("n", key, "number").join(views[right], on=key)
            ),
            f"SELECT t.n, t.{key}, t.number, r.price FROM t JOIN {right} r ON t.{key} = r.{key} ORDER BY t.n",
            lambda frames, right=right, key=key: (  # type: ignore[misc]
                frames["t"]
                .select("n", key, "number")
                .join(frames[right], on=key, maintain_order="left_right")
            ),
            arrow=lambda tables, right=right, key=key: (  # type: ignore[misc]
                tables["t"].select(["n", key, "number"]).join(tables[right], key, join_type="inner")
            ),
        )


def _partners() -> Iterator[Case]:
    """Joins of other kinds, with a right side that lacks half of the keys."""
    for how, sql, orders in (
        ("left", "LEFT", "ORDER BY t.n"),
        ("full", "FULL", "ORDER BY t.n NULLS LAST"),
        ("semi", "SEMI", "ORDER BY t.n"),
        ("anti", "ANTI", "ORDER BY t.n"),
    ):
        given = "t.n, few, t.number" + (", r.price" if how in ("left", "full") else "")
        yield Case(
            f"{how} join by whole keys, half of which have a partner",
            lambda views, how=how: (  # type: ignore[misc]
                views["t"].select("n", "few", "number").join(views["half"], on="few", how=how)
            ),
            f"SELECT {given} FROM t {sql} JOIN half r USING (few) {orders}",
            lambda frames, how=how: (  # type: ignore[misc]
                frames["t"]
                .select("n", "few", "number")
                .join(frames["half"], on="few", how=how, coalesce=how == "full" or None, **_ordered(how))
            ),
        )
    yield Case(
        "join by texts that all differ",
        lambda views: views["t"].select("n", "label").join(views["labels"], on="label"),
        "SELECT t.n, label, r.price FROM t JOIN labels r USING (label) ORDER BY t.n",
        lambda frames: (
            frames["t"].select("n", "label").join(frames["labels"], on="label", maintain_order="left_right")
        ),
    )
    yield Case(
        "join as of a time by 1,000 text keys",
        lambda views: views["t"].select("city", "n").join(views["prices"], on="city", how="left", as_of="n"),
        "SELECT t.city, t.n, r.price FROM t ASOF LEFT JOIN prices r ON t.city = r.city AND t.n >= r.n "
        "ORDER BY t.n",
        lambda frames: (
            frames["t"]
            .select("city", "n")
            .set_sorted("n")
            .join_asof(frames["prices"].set_sorted("n"), on="n", by="city", check_sortedness=False)
        ),
    )


def _ordered(how: str) -> dict[str, Any]:
    # Of the others the rows are some of the left, which polars leaves in order.
    return {"maintain_order": "left_right"} if how in ("left", "full") else {"maintain_order": "left"}


def _sorts() -> Iterator[Case]:
    for column, what in (
        ("whole", "int64"),
        ("number", "doubles"),
        ("city", "1,000 texts"),
        ("label", "texts that all differ"),
    ):
        yield Case(
            f"sort by {what}",
            lambda views, column=column: views["t"].select(column, "n").sort(column),  # type: ignore[misc]
            f"SELECT {column}, n FROM t ORDER BY {column}, n",
            lambda frames, column=column: (  # type: ignore[misc]
                frames["t"].select(column, "n").sort(column, maintain_order=True)
            ),
            arrow=lambda tables, column=column: (  # type: ignore[misc]
                tables["t"].select([column, "n"]).sort_by(column)
            ),
        )

    yield Case(
        "shuffle",
        lambda views: views["t"].select("n", "number").shuffle(seed=5),
        "SELECT n, number FROM t ORDER BY hash(n)",
        lambda frames: frames["t"].select("n", "number").sort(_columns("hash")),
    )


def _row_by_row() -> Iterator[Case]:
    yield Case(
        "filter",
        lambda views: views["t"].select("n", "whole", "number").filter("number > 0.5"),
        "SELECT n, whole, number FROM t WHERE number > 0.5",
        lambda frames: frames["t"].select("n", "whole", "number").filter(_columns("filter")),
    )
    yield Case(
        "with_columns",
        lambda views: views["t"].select("whole", "number").with_columns(x="number * 2 + 1", y="abs(whole)"),
        "SELECT whole, number, number * 2 + 1 AS x, abs(whole) AS y FROM t",
        lambda frames: frames["t"].select("whole", "number").with_columns(x=_columns("x"), y=_columns("y")),
    )
    yield Case(
        "window of 10 rows by 1,000 text keys: sum of int64",
        lambda views: views["t"].select("city", "whole").window(9, by="city", x="sum(whole)"),
        "SELECT city, whole, sum(whole) OVER (PARTITION BY city ORDER BY n ROWS 9 PRECEDING) AS x "
        "FROM t ORDER BY n",
        lambda frames: frames["t"].select("city", "whole").with_columns(x=_columns("window whole")),
    )
    yield Case(
        "window of 10 rows by 1,000 text keys: exact sum of doubles",
        lambda views: views["t"].select("city", "number").window(9, by="city", x="sum(number)"),
        "SELECT city, number, sum(number) OVER (PARTITION BY city ORDER BY n ROWS 9 PRECEDING) AS x "
        "FROM t ORDER BY n",
        lambda frames: frames["t"].select("city", "number").with_columns(x=_columns("window number")),
        MOST_EXACT,
    )
    yield Case(
        "explode vectors of 5",
        lambda views: views["vectors"].explode("v"),
        "SELECT n, unnest(v) AS v FROM vectors",
        lambda frames: frames["vectors"].explode("v"),
    )
    yield Case(
        "limit to half",
        lambda views: views["t"].select("n", "number").limit(views["t"].count() // 2),
        "SELECT n, number FROM t LIMIT (SELECT count(*) // 2 FROM t)",
        lambda frames: frames["t"].select("n", "number").head(_half(frames)),
    )


def _places() -> Iterator[Case]:
    """What counts rows, or puts views beside and behind each other."""
    yield Case(
        "skip half",
        lambda views: views["t"].select("n", "number").skip(views["t"].count() // 2),
        "SELECT n, number FROM t OFFSET (SELECT count(*) // 2 FROM t)",
        lambda frames: frames["t"].select("n", "number").slice(_half(frames)),
    )
    yield Case(
        "concat with itself",
        lambda views: views["t"].select("n", "number").concat(views["t"].select("n", "number")),
        "SELECT n, number FROM t UNION ALL SELECT n, number FROM t",
        lambda frames: _concat([frames["t"].select("n", "number")] * 2, "vertical"),
    )
    yield Case(
        "zip with as many",
        lambda views: views["t"].select("n", "number").zip(views["large"].select("price")),
        "SELECT n, number, price FROM t POSITIONAL JOIN (SELECT price FROM large)",
        lambda frames: _concat(
            [frames["t"].select("n", "number"), frames["large"].select("price")], "horizontal"
        ),
    )
    yield Case(
        "fill nulls and drop them",
        lambda views: views["holes"].fill_null(whole=0).drop_nulls("number"),
        "SELECT n, coalesce(whole, 0) AS whole, number FROM holes WHERE number IS NOT NULL",
        lambda frames: frames["holes"].with_columns(_columns("filled")).drop_nulls("number"),
    )
    yield Case(
        "window of 10 rows, no keys: sum of int64",
        lambda views: views["t"].select("n", "whole").window(9, x="sum(whole)"),
        "SELECT n, whole, sum(whole) OVER (ORDER BY n ROWS 9 PRECEDING) AS x FROM t ORDER BY n",
        lambda frames: frames["t"].select("n", "whole").with_columns(x=_columns("window all")),
    )
    yield Case(
        "rank by 1,000 text keys",
        lambda views: views["t"].select("n", "city", "number").window(by="city", x="rank(number)"),
        "SELECT n, city, number, rank() OVER (PARTITION BY city ORDER BY number) AS x FROM t ORDER BY n",
        lambda frames: frames["t"].select("n", "city", "number").with_columns(x=_columns("rank")),
    )


def _concat(frames: list[pl.LazyFrame], how: Any) -> pl.LazyFrame:
    import polars as pl

    return pl.concat(frames, how=how)


def _half(frames: Mapping[str, Any]) -> int:
    import polars as pl

    return int(frames["t"].select(pl.len()).collect().item()) // 2


def _columns(name: str) -> pl.Expr:
    import polars as pl

    return {
        "filter": pl.col("number") > 0.5,
        "x": pl.col("number") * 2 + 1,
        "y": pl.col("whole").abs(),
        "window whole": pl.col("whole").rolling_sum(10, min_samples=1).over("city"),
        "window number": pl.col("number").rolling_sum(10, min_samples=1).over("city"),
        "window all": pl.col("whole").rolling_sum(10, min_samples=1),
        "rank": pl.col("number").rank("min").over("city"),
        "hash": pl.col("n").hash(5),
        "filled": pl.col("whole").fill_null(0),
        "exact stddev of doubles": pl.col("number").std(),
        "median of doubles": pl.col("number").median(),
        "first of doubles": pl.col("number").first(),
        "collect int64": pl.col("whole"),
    }[name]
