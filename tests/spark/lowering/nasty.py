"""Rows that are hard to move, order and compare, and a view for each thing that can be done with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import trueline as tl
from trueline import types as t
from trueline.kernel.chunk import Chunk, together
from trueline.kernel.vectors import dense
from trueline.types.kinds import LOGICAL
from trueline.view import View
from trueline.view.execute import pieces
from trueline.view.plan.node import Want

# Both zeros, NaN of several bit patterns, the smallest number, both infinities.
FLOATS = np.array(
    [
        0,
        1 << 63,
        0x7FF8000000000000,
        0x7FF8000000000001,
        0xFFF8000000000123,
        1,
        0x7FF0000000000000,
        0xFFF0000000000000,
        0x3FF0000000000000,
        0x4340000000000001,
    ],
    np.uint64,
).view(np.float64)
WORDS = ["a", "b", "é", "", "😀", "ab", "a\x00"]
NUMBERS = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
DAY = 86_400_000_000_000
KINDS = ["none", "some", "", "é", "some more"]
SPARSE = t.vector(t.float64, 4)


def table(rows: int, seed: int) -> pa.Table:
    """Return rows of many types, a tenth of the cells null."""
    random = np.random.default_rng(seed)

    def some(values, kind=None):
        return pa.array(values, kind, mask=random.random(rows) < 0.1)

    def floats():
        return np.where(random.random(rows) < 0.5, random.choice(FLOATS, rows), random.normal(size=rows))

    def decimals(kind):
        return pa.array([Decimal(int(each)) for each in random.integers(-300, 300, rows)], kind)

    def numbers(count):
        return list(map(float, random.normal(size=count))) if count < 4 else None

    with np.errstate(over="ignore"):
        singles = floats().astype(np.float32)
    return pa.table(
        {
            "i": some(random.integers(-3, 3, rows)),
            "u": some(random.choice(NUMBERS, rows)),
            "x": some(floats()),
            "f": some(singles),
            "s": some(random.choice(WORDS, rows)),
            "b": some(random.random(rows) < 0.5),
            "at": pa.array(random.integers(0, 10, rows) * 1_000 + 7).cast(pa.timestamp("ns", "UTC")),
            "day": some(random.integers(-9, 9, rows), pa.int32()).cast(pa.date32()),
            "d": decimals(pa.decimal128(20, 2)),
            "large": decimals(pa.decimal256(50, 2)),
            "raw": some([bytes(random.integers(0, 256, 3, np.uint8)) for _ in range(rows)]),
            "v": pa.array(
                [
                    list(map(float, random.normal(size=n))) if n < 4 else None
                    for n in random.integers(0, 5, rows)
                ],
                pa.list_(pa.float64()),
            ),
            "n": np.arange(rows),
        }
    )


def every_type(rows: int, seed: int) -> pa.Table:
    """Return the same rows with what Spark has no types for, or others than we do."""
    random = np.random.default_rng([seed, 1])

    def some(values, kind):
        return pa.array(values, pa.int64(), mask=random.random(rows) < 0.1).cast(kind)

    made = {
        t.field("c", t.category(len(KINDS))): some(random.integers(0, len(KINDS), rows), pa.uint32()),
        "tiny": some(random.choice([0, 1, 127, 128, 255], rows), pa.uint8()),
        "short": some(random.choice([0, 1, 2**15 - 1, 2**15, 2**16 - 1], rows), pa.uint16()),
        "word": some(random.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1], rows), pa.uint32()),
        "time": some(random.choice([0, 1, 999, 1_000, DAY - 1], rows), pa.time64("ns")),
        _sparse_field("p"): _sparse(random, rows),
    }
    found = table(rows, seed)
    for field, values in made.items():
        found = found.append_column(field, values)
    return found


def not_stored(rows: int, seed: int) -> pa.Table:
    """Return the same rows with what no dataset can store: durations, sparse vectors that are null."""
    random = np.random.default_rng([seed, 2])
    cells = random.choice([0, -1, 1, 2**63 - 1, -(2**63)], rows)
    took = pa.array(cells, pa.int64(), mask=random.random(rows) < 0.1)
    nulls = pa.array(
        [None if random.random() < 0.1 else cell for cell in _sparse(random, rows).to_pylist()], SPARSE.sparse
    )
    found = every_type(rows, seed).append_column("took", took.cast(pa.duration("ns")))
    return found.append_column(_sparse_field("q"), nulls)


def _sparse_field(name: str) -> pa.Field:
    return pa.field(name, SPARSE.sparse, metadata={LOGICAL: json.dumps(str(SPARSE)).encode()})


def _sparse(random: np.random.Generator, rows: int) -> pa.Array:
    """Return vectors of which few values are there, some of them not numbers, some of them zero."""
    cells = []
    for _ in range(rows):
        indices = np.flatnonzero(random.random(SPARSE.size) < 0.3).tolist()
        values = random.choice(FLOATS, len(indices)).tolist()
        cells.append({"size": SPARSE.size, "indices": indices, "values": values})
    return pa.array(cells, SPARSE.sparse)


def far(rows: int) -> pa.Table:
    """Return floats of all sizes there are, some of which cancel, most of them in one group."""
    random = np.random.default_rng(9)
    sizes = random.integers(-1_074, 1_023, rows)
    near = np.where(random.random(rows) < 0.5, sizes, random.integers(-30, 45, rows))
    values = np.ldexp(random.normal(size=rows), np.where(np.arange(rows) % 3, near, 60))
    values[1::4] = -values[: len(values[1::4]) * 4 : 4]
    hot = np.where(random.random(rows) < 0.9, 0, random.integers(0, 9, rows))
    return pa.table({"k": hot, "y": values, "z": random.normal(size=rows), "n": np.arange(rows)})


def views(rows: int = 240, source: Callable[[pa.Table], View] = tl.View.from_arrow) -> dict[str, View]:
    """Return a view for each verb, and some chains of them; the tables are read as `source` says."""
    a = source(every_type(rows, 1))
    other = source(every_type(60, 2))
    late, later = (tl.View.from_arrow(not_stored(count, 3)) for count in (rows, 60))
    b = other.select("i", "x", "s", "at", "n").rename(m="n")
    c = b.select("i", "x", "m")
    two = a.select("i", "s", "n").join(b.select("i", "s", "m"), on=["i", "s"], how="full")
    firsts = a.group_by("n").agg(i="first(i)").join(a.drop("i"), on="n")
    wide = tl.View.from_arrow(far(rows))
    none = a.filter("i > 100")
    sums = {"n": "count(*)", "t": "sum(x)", "a": "avg(f)"}
    timed = a.select("i", "at", "n"), b.select("i", "at", "m")
    return {
        "rows in memory": a,
        "nothing": a.filter("i > 100").sort("x"),
        "filter": a.sort("s").filter("i > 0"),
        "sort a number": a.sort("i"),
        "sort floats, falling": a.sort("x", descending=True),
        "sort by two": a.sort("f", "s", descending=[False, True]),
        "sort unsigned, falling": a.sort("u", descending=True),
        "sort decimals": a.sort("d"),
        "sort large decimals, falling": a.sort("large", descending=True),
        "sort bytes": a.sort("raw"),
        "sort by three": a.sort("b", "day", "at"),
        "sort by a category, a time and a duration": late.sort(
            "c", "time", "took", descending=[True, False, True]
        ),
        "sort by small unsigned numbers": a.sort("tiny", "short", "word", descending=[True, False, True]),
        "shuffle": a.shuffle(7),
        "shuffle twice": a.shuffle(7).shuffle(-1),
        "with_columns": a.sort("x").filter("i > 0").with_columns(z="i + 1").with_row_id("id"),
        "select": a.sort("x").select("s", "n"),
        "rename": a.sort("i").annotate("x", {"test/unit": "m"}).rename(x="s", s="x").filter("x <> 'a'"),
        "decode": a.annotate("c", category_values=KINDS).sort("c").decode("c").filter("c <> 'some'"),
        "drop_nulls": late.sort("u").drop_nulls("x", "took", "q"),
        "fill_null": a.sort("d").fill_null(7, "i", "u", "tiny").fill_null(s="?", x=-0.0),
        "explode": a.sort("s").explode("v"),
        "explode, rows kept": a.shuffle(2).explode("v", outer=True),
        "sample": a.sort("s").sample(0.3, seed=1),
        "sample by a key": a.sort("s").split([0.5, 0.5], seed=1, by="s")[0],
        "folds": a.sort("x").folds(3, seed=1)[1][0],
        "sample with replacement": a.sort("x").sample(1.5, seed=3, replace=True),
        "concat": a.sort("x").concat(a.shuffle(1)),
        "concat of unlike orders": a.sort("s", "d").concat(firsts),
        "group": a.group_by("i").agg(
            n="count(*)",
            t="sum(x)",
            a="avg(f)",
            m="min(x)",
            M="max(s)",
            fi="first(s)",
            l="last(d)",
            u="sum(u)",
            v="variance(x)",
            q="median(f)",
        ),
        "groups by sums": a.group_by("s").agg(**sums, u="sum(u)", w="avg(u)", j="sum(i)", k="avg(n)"),
        "groups by extremes": a.group_by("i").agg(
            c="count(x)",
            mu="min(u)",
            u="max(u)",
            x="min(x)",
            X="max(x)",
            f="min(f)",
            F="max(f)",
            s="max(s)",
            at="min(at)",
            day="max(day)",
            d="min(d)",
            L="max(large)",
            raw="min(raw)",
            some="any(b)",
            every="all(b)",
            fs="first(s)",
            fx="first(x)",
        ),
        "groups by floats": a.group_by("x", "f").agg(t="sum(x)", n="count(*)", m="first(n)"),
        "groups by moments": a.group_by("at", "day").agg(n="count(*)", t="sum(i)", f="first(time)"),
        "groups by decimals": a.group_by("d", "large").agg(n="count(*)", t="sum(x)", m="max(word)"),
        "groups by codes": a.group_by("c", "time", "tiny").agg(t="sum(word)", m="min(short)", f="first(c)"),
        "groups by bytes": a.with_columns(b="i > 0").group_by("raw", "b").agg(n="count(*)", t="sum(tiny)"),
        "groups by a duration": late.group_by("took").agg(n="count(*)", a="avg(short)"),
        "groups of groups": a.group_by("u").agg(n="count(*)", c="collect(c)").group_by("n").agg(u="max(u)"),
        "groups of sums far apart": wide.group_by("k").agg(t="sum(y)", a="avg(y)", z="sum(z)", n="count(y)"),
        "all rows, sums far apart": wide.group_by().agg(t="sum(y)", z="avg(z)"),
        "all rows": a.group_by().agg(**sums, m="max(x)"),
        "groups of nothing": none.group_by("s").agg(**sums),
        "all of nothing": none.group_by().agg(n="count(*)"),
        "all of nothing, sums": none.group_by().agg(**sums),
        "groups of a full join": two.group_by("s").agg(n="count(*)", m="sum(m)", f="first(i)"),
        "groups of rows one after another": a.concat(a.filter("i > 0")).group_by("s").agg(**sums),
        "join on a hot key": wide.select("k", "n").join(wide.filter("n < 9").select("k", "z"), on="k"),
        "join, small left, right": b.filter("m < 9").select("i", "m").join(a, on="i", how="right"),
        "join, sorted": a.sort("s").join(c.sort("x"), on="i", how="full"),
        "group by floats and text": a.group_by("x", "s").agg(n="count(*)", sd="sum(d)"),
        "group sorted rows": a.sort("x").group_by("s").agg(f="first(n)", c="count(distinct i)"),
        "join": a.select("i", "n", "x").join(c, on="i"),
        "join unsigned": a.select("u", "n").join(other.select("u", "p").sort("u"), on="u", how="full"),
        "join by codes": a.join(other.select("c", "time", "word").rename(q="word"), on=["c", "time"]),
        "join by decimals and bytes": a.select("raw", "d", "n").join(
            a.filter("i > 0").select("raw", "d", "tiny", "p"), on=["raw", "d"], how="left"
        ),
        "join by durations": late.join(later.select("took", "n").rename(m="n"), on="took", how="right"),
        "join floats, left": a.join(b.select("x", "m"), on="x", how="left"),
        "join, full": two,
        "join, full, twice": two.sort("s").join(c, on="i", how="full"),
        "join, right": a.select("i", "s", "n").join(b.select("i", "s", "m"), on=["i", "s"], how="right"),
        "join, cross": a.select("s", "n").limit(9).join(b.select("x", "m").sort("x"), how="cross"),
        "join, semi": a.join(b.filter("m < 20"), on="i", how="semi"),
        "join, anti": a.join(b.filter("m < 20"), on=["i", "s"], how="anti"),
        "as of": timed[0].join(timed[1], on="i", as_of="at"),
        "as of, left": timed[0].join(timed[1], on="i", as_of="at", how="left"),
        "as of, full": timed[0].join(timed[1], on="i", as_of="at", how="full"),
        "as of, no key": timed[0].select("at", "n").join(timed[1].select("at", "m"), as_of="at", how="left"),
        "as of, no key, full": timed[0].join(timed[1].rename(j="i"), as_of="at", how="full").sort("n"),
        "as of, semi": timed[0].join(timed[1], on="i", as_of="at", how="semi"),
        "window by a key": a.window(2, 1, by="s", m="sum(x)", g="lag(n, 3)"),
        "window": a.sort("x").window(2, 1, m="sum(x)", g="lead(n, 3)"),
        "ranks": a.window(n2="row_number()", r="rank(x)", q="rank(i desc)"),
        "ranks by a key": a.window(by="s", n2="row_number()", r="rank(x)"),
        "row numbers": a.shuffle(3).window(1, k="row_number()", m="sum(x)"),
        "limit": a.sort("x").limit(100),
        "tail": a.sort("x").tail(7),
        "distinct": a.select("i", "s").distinct(),
        "skip": a.sort("x").skip(rows * 3 // 4),
        "rows in the middle": a.shuffle(3).skip(10).limit(50),
        "zip": a.sort("x").select("x").zip(a.shuffle(2).select("s", "n").limit(70)),
        "cache": a.sort("x").cache(),
        "join with its own groups": a.join(a.group_by("s").agg(c="count(*)"), on="s"),
        "chain": a.join(c, on="i").group_by("s").agg(t="sum(x)", n="count(*)").sort("t", descending=True),
    }


def rows_of(found) -> Chunk | None:
    """Return all rows of pieces as one chunk."""
    chunks = [chunk for piece in found for chunk in piece.chunks() if chunk.rows]
    return together(chunks) if chunks else None


def everything(view: View) -> Want:
    """Want all columns and the ids."""
    return Want(tuple(column.index for column in view.schema), ids=True)


def in_process(view: View) -> Chunk | None:
    """Return all rows as this process makes them."""
    return rows_of(pieces(view.node, everything(view)))


def difference(one: Chunk | None, other: Chunk | None, view: View) -> str:
    """Say where two differ: rows, ids, or a column, bit by bit; nothing if they do not."""
    if one is None or other is None:
        return "" if one is other else "rows: one has none"
    if one.rows != other.rows:
        return f"rows: {one.rows} and {other.rows}"
    assert one.ids is not None
    assert other.ids is not None
    if not one.ids.equals(other.ids):
        return "ids"
    for column, mine, theirs in zip(view.schema, one.arrays, other.arrays, strict=True):
        kind = column.type
        arrays = [dense(each, kind) if isinstance(kind, t.Vector) else each for each in (mine, theirs)]
        if arrays[0].type != arrays[1].type:
            return f"{column.name}: {arrays[0].type} and {arrays[1].type}"
        if not _bits(arrays[0]).equals(_bits(arrays[1])):
            return f"{column.name}: {arrays[0].slice(0, 5)} and {arrays[1].slice(0, 5)}"
    return ""


def _bits(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        # Whatever is behind a null is nobody's.
        return _bits(array.cast(pa.list_(kind.value_type)))
    if pa.types.is_list(kind):
        offsets = pa.array([0, *np.cumsum(pc.fill_null(pc.list_value_length(array), 0))], pa.int32())
        return pa.ListArray.from_arrays(offsets, _bits(array.flatten()), mask=array.is_null())
    if pa.types.is_floating(kind):
        return array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    return array
