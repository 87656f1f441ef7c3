"""`python tools/places.py [--check]`: write the table of what runs where, by what `explain()` says of steps.

It is in `docs/spark.md`, between two marks. With `--check` nothing is written: it says whether it is old.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from trueline.spark.frozen_frames import FrozenFrame
from trueline.spark.lowering.places import describe
from trueline.view import View
from trueline.view.execute import serial
from trueline.view.origin import Origin
from trueline.view.plan.node import Bounds, Node, steps
from trueline.view.source import ROWS_OF_A_BATCH

PAGE: Final = Path(__file__).parents[1] / "docs" / "spark.md"
BEGIN, END = "<!-- tools/places.py writes this table -->\n", "<!-- end of the table -->\n"
ROWS: Final = View.range(9).with_columns(k="n % 2", at="n", v="array(n)")
UNCOUNTED: Final = ROWS.filter("n > 3")
PIECES: Final = "piece by piece"


class _OfThisProcess:
    """A source that no other process can read."""

    schema = pa.schema({"n": pa.int64()})
    row_count: int | None = None
    ordinal: str | None = None
    origins: Mapping[str, Origin] = MappingProxyType({})
    travels = False

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield nothing."""
        del columns, bounds
        return iter(())

    def explain(self) -> list[str]:
        """Say what it is."""
        return ["rows of this process"]


def _table(rows: int) -> View:
    return View.from_arrow(pa.table({"n": pa.array(range(rows), pa.int64())}))


def _frame() -> View:
    return View(FrozenFrame(None, _OfThisProcess.schema, {}))  # type: ignore[arg-type]


# What a source is called → a view of it.
SOURCES: Final[dict[str, Callable[[], View]]] = {
    "files, datasets, `View.range`": lambda: View.range(9),
    "a table in memory of up to 1 MiB": lambda: _table(9),
    "a larger table in memory": lambda: _table(3 * ROWS_OF_A_BATCH),
    "another source of this process": lambda: View(_OfThisProcess()),
    "`View.from_spark`, `ws.sql`": _frame,
}
# What a verb is called → a view whose last step it is, over rows whose number is not known.
VERBS: Final[dict[str, Callable[[View], View]]] = {
    "`select`": lambda v: v.select("n"),
    "`drop`": lambda v: v.drop("n"),
    "`rename`": lambda v: v.rename(m="n"),
    "`with_columns`": lambda v: v.with_columns(m="n + 1"),
    "`with_row_id`": lambda v: v.with_row_id("id"),
    "`annotate`": lambda v: v.annotate("n", {"docs/unit": "m"}),
    "`decode`": lambda v: v.decode(),
    "`fill_null`": lambda v: v.fill_null(0),
    "`filter`": lambda v: v.filter("n > 3"),
    "`drop_nulls`": lambda v: v.drop_nulls(),
    "`explode`": lambda v: v.explode("v"),
    "`sample`": lambda v: v.sample(0.5),
    "`split`": lambda v: v.split()[0],
    "`folds`": lambda v: v.folds(2)[0][0],
    "`sort`": lambda v: v.sort("n"),
    "`shuffle`": lambda v: v.shuffle(1),
    "`limit`": lambda v: v.limit(100_000),
    "`head`": lambda v: v.head(),
    "`limit` beyond 100,000 rows": lambda v: v.limit(100_001),
    "`skip`": lambda v: v.skip(1),
    "`tail`": lambda v: v.tail(),
    "`zip`": lambda v: v.zip(v.select("n").rename(m="n")),
    "`concat`": lambda v: v.concat(v),
    "`group_by`": lambda v: v.group_by("k").agg(s="sum(n)"),
    "`group_by` of `collect`, `median`": lambda v: v.group_by("k").agg(c="collect(n)", m="median(n)"),
    "`group_by()` without a key": lambda v: v.group_by().agg(s="sum(n)"),
    "`distinct`": lambda v: v.distinct("k"),
    "`join`": lambda v: v.join(v.select("k", "n").rename(m="n"), on="k"),
    '`join(how="cross")`': lambda v: v.join(v.select("n").rename(m="n"), how="cross"),
    "`join` with `as_of`": lambda v: v.join(v.select("k", "at"), on="k", as_of="at"),
    "`join` with `as_of`, without `on`": lambda v: v.select("n", "at").join(v.select("at"), as_of="at"),
    "`window` with `by`": lambda v: v.window(1, by="k", s="sum(n)"),
    "`window` without `by`": lambda v: v.window(1, s="sum(n)"),
    "`window` of `row_number` without `by`": lambda v: v.window(r="row_number()"),
    "`window` of `rank` without `by`": lambda v: v.window(r="rank(n)"),
    "`window` of `rank` and others without `by`": lambda v: v.window(r="rank(n)", s="sum(n)"),
    "`cache`": lambda v: v.cache(),
}


def _telling(node: Node) -> Node:
    """Return the node of a verb that moves rows, where it is made of several."""
    mine = [each for each in steps(node) if each not in set(steps(UNCOUNTED.node))] or [node]
    return next((each for each in mine if describe(each) != describe(UNCOUNTED.node)), mine[0])


def table() -> str:
    """Return the table: steps that run in the same way share a line."""
    found: dict[tuple[str, str], list[str]] = {}
    views = {name: make() for name, make in SOURCES.items()}
    views |= {name: make(UNCOUNTED) for name, make in VERBS.items()}
    for name, view in views.items():
        node = _telling(view.node)
        reason = serial(node)
        here = PIECES if reason is None else f"in one piece: {reason}"
        found.setdefault((here, describe(node)), []).append(name)
    lines = [f"| {', '.join(names)} | {here} | {there} |" for (here, there), names in found.items()]
    return "\n".join(["| step | in this process | on Spark |", "|---|---|---|", *lines, ""])


def page() -> str:
    """Return the page with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is out of date."""
    is_old = page() != PAGE.read_text(encoding="utf-8")
    if "--check" in arguments:
        return int(is_old)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
