"""Slices that Spark reads itself: the rows of the tasks' own reading, to the bit, and no column too many."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table
from trueline import types as t
from trueline.dataset.read.slice_reader import SliceFile
from trueline.limits import DEFAULT
from trueline.spark.lowering import ordered_join, slices
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.layout import IDS
from trueline.spark.lowering.ordered_join import join_in_order
from trueline.spark.lowering.slices import read_by_spark
from trueline.view.plan.node import Want

# Types that Spark reads as they are stored, or whose bits it does.
AS_STORED = ["i", "u", "x", "f", "s", "b", "at", "day", "raw", "d", "n"]


def small(rows: pa.Table) -> pa.Table:
    """Add columns of the types that are left."""
    count = rows.num_rows
    more = {
        "u8": pa.array(np.arange(count) % 256, pa.uint8()),
        "u16": pa.array(np.arange(count) % 65_536, pa.uint16()),
        "u32": pa.array((np.arange(count) * 19_000_000) % 2**32, pa.uint32()),
        "i8": pa.array(np.arange(count) % 128, pa.int8()),
        "fixed": pa.array([bytes([n % 256] * 4) for n in range(count)], pa.binary(4)),
        "ms": pa.array(np.arange(count) - 9, pa.timestamp("ms")),
        "us": pa.array(np.arange(count) - 9, pa.timestamp("us", "UTC")),
        "time_ms": pa.array((np.arange(count) * 719_999) % 86_400_000, pa.int32()).view(pa.time32("ms")),
        "time_us": pa.array(86_400_000_000 - 1 - np.arange(count)).view(pa.time64("us")),
        "time_ns": pa.array(np.arange(count) * 1_001).view(pa.time64("ns")),
    }
    for name, values in more.items():
        rows = rows.append_column(name, values)
    # Codes of as many things as there may be, too: Spark has them as numbers of 64 bits.
    for name, things in (("code", 5), ("id", 1 << 32)):
        codes = pa.array([None if n % 7 == 0 else n * 104_729 % things for n in range(count)], pa.uint32())
        rows = rows.append_column(t.field(name, t.category(things)), codes)
    for digits, places in ((9, 9), (18, 0), (38, 10)):
        largest = "9" * digits
        cells = [
            each and Decimal(f"{each}e-{places}")
            for n in range(count)
            for each in [(None, largest, f"-{largest}", f"{n}")[n % 4]]
        ]
        rows = rows.append_column(f"decimal{digits}", pa.array(cells, pa.decimal128(digits, places)))
    return rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Slices of several commits: columns came later, one is hidden, records were removed."""
    with tl.open(tmp_path_factory.mktemp("slices") / "ws", create=True) as ws:
        made = ws.create("nasty")
        made.append(table(150, 1).drop_columns(["v", "large"]))
        made.append(table(150, 2).append_column("secret", pa.array(range(150))), new_columns="add")
        made.append(small(table(120, 3)), new_columns="add")
        made.hide_column("secret")
        made.append(small(table(90, 4)))
        made.drop_data(where="n % 7 = 3", reason="a test")
        made.append(small(table(60, 5)))
        yield made


def on_spark(view, session):
    return rows_of(delivered(view.node, everything(view), session))


def plan_of(view, session) -> str:
    """Return how Spark would make the rows of a view."""
    frame = LoweringTarget(session).lower(view.node, everything(view)).frame
    return frame._jdf.queryExecution().toString()


def scanned_columns(plan: str) -> list[set[str]]:
    """Return the columns that each scan of files reads."""
    physical = plan.partition("== Physical Plan ==")[2]
    return [set(re.findall(r"(\w+):", each)) for each in re.findall(r"ReadSchema: struct<(.*?)>", physical)]


@pytest.mark.contract("exchange:E1", "exchange:E6")
@pytest.mark.parametrize("batch", ["10", "10000"])
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_every_type_comes_as_tasks_read_it(dataset, spark, batch, vectorized):
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch)
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    view = dataset.view()
    plain = view.select(*(name for name in view.schema.names if name not in ("v", "large"))).sort("s", "n")
    assert "FileScan parquet" in plan_of(plain, session)
    assert difference(in_process(plain), on_spark(plain, session), plain) == ""


@pytest.mark.contract("exchange:E1")
@pytest.mark.parametrize("column", ["v", "large"])
def test_other_types_are_read_by_tasks(dataset, spark, column):
    view = dataset.view().select("n", column).sort("n")
    assert "FileScan" not in plan_of(view, spark)
    assert difference(in_process(view), on_spark(view, spark), view) == ""


def test_only_the_columns_asked_for_are_read(dataset, spark):
    view = dataset.view().select("x", "n", "s").rename(m="n").sort("m").select("m")
    [found] = scanned_columns(plan_of(view, spark))
    assert found == {"n", "offset"}
    assert difference(in_process(view), on_spark(view, spark), view) == ""


@pytest.mark.contract("exchange:E1")
def test_all_that_moves_rows_may_rest_on_them(dataset, spark):
    rows = dataset.view().select("i", "s", "x", "n", "at")
    other = rows.select("i", "n").rename(m="n").filter("m < 9")
    for view in (
        rows.group_by("s").agg(t="sum(x)", n="count(*)", f="first(n)"),
        rows.join(other, on="i", how="full"),
        rows.shuffle(3),
        rows.window(1, 1, by="s", t="sum(x)"),
        rows.sort("x").limit(20),
        rows.concat(rows).sort("n"),
        rows.sort("x").filter("n > 30 and at > timestamp '1970-01-01 00:00:00.000003'"),
    ):
        assert difference(in_process(view), on_spark(view, spark), view) == "", view.explain()


def test_what_nothing_moves_is_read_by_tasks_in_order(dataset, spark, monkeypatch):
    monkeypatch.setattr(slices, "read_parquet", None)
    view = dataset.view().select("n", "s")
    assert difference(in_process(view), on_spark(view, spark), view) == ""


def test_bounds_leave_out_no_row_inside(dataset, spark):
    view = dataset.view().select("n", "i")
    want = Want((0, 1), True, view.filter("n >= 20 and n < 50").node.wants(Want((0, 1), True))[0].bounds)
    found = read_by_spark(spark, view.node, want)
    values = sorted(found.frame.toArrow()["c0"].to_pylist())
    assert values == sorted(n for n in view.to_arrow()["n"].to_pylist() if 20 <= n < 50)


@contextmanager
def changed_slice(dataset, change):
    """Replace the newest slice by another file that says the same of itself."""
    folder = Path(dataset.chain.store.location, "data")
    newest = str(
        next(
            block for _, block in dataset.blocks() if getattr(block.event, "new_data", None)
        ).event.new_data.physical_hash
    )
    path = folder / newest
    before, mode = path.read_bytes(), path.stat().st_mode
    path.chmod(0o644)
    change(path)
    try:
        yield
    finally:
        path.write_bytes(before)
        path.chmod(mode)


def rewritten(change, **options):
    def rewrite(path):
        pq.write_table(change(pq.read_table(path)), path, **options)

    return rewrite


def as_nanoseconds(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("ms")
    return rows.set_column(place, "ms", rows["ms"].cast(pa.timestamp("us")))


@pytest.mark.contract("exchange:E1")
def test_a_slice_of_another_type_than_the_dataset_is_read_by_tasks(dataset, spark):
    view = dataset.view().select("ms", "n").sort("n")
    with changed_slice(dataset, rewritten(as_nanoseconds)):
        assert "FileScan" not in plan_of(view, spark)
        assert difference(in_process(view), on_spark(view, spark), view) == ""


def test_text_that_is_not_text_is_null_as_in_this_process(dataset, spark):
    def broken(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("s")
        raw = pa.array([b"\xff\xfe" if n % 5 == 0 else b"ok" for n in range(rows.num_rows)])
        return rows.set_column(place, rows.schema.field("s"), raw.view(pa.string()))

    view = dataset.view().select("s", "n").sort("n")
    with changed_slice(dataset, rewritten(broken)):
        assert "FileScan" in plan_of(view, spark)
        assert difference(in_process(view), on_spark(view, spark), view) == ""
        assert in_process(view).arrays[0].null_count > 0


def test_a_time_beyond_its_day_is_null_as_in_this_process(dataset, spark):
    def broken(rows: pa.Table) -> pa.Table:
        for name, bits, last in (
            ("time_ms", pa.int32(), 86_400_000),
            ("time_ns", pa.int64(), 86_400 * 10**9),
        ):
            place = rows.schema.get_field_index(name)
            field = rows.schema.field(name)
            times = pa.array([(-1, last, last - 1, 0)[n % 4] for n in range(rows.num_rows)], bits)
            rows = rows.set_column(place, field, times.view(field.type))
        return rows

    view = dataset.view().select("time_ms", "time_ns", "n").sort("n")
    with changed_slice(dataset, rewritten(broken)):
        assert "FileScan" in plan_of(view, spark)
        assert difference(in_process(view), on_spark(view, spark), view) == ""
        assert in_process(view).arrays[1].null_count > in_process(dataset.view().select("time_ns")).rows // 2


def test_a_code_beyond_its_category_is_null_as_in_this_process(dataset, spark):
    def broken(rows: pa.Table) -> pa.Table:
        place, field = rows.schema.get_field_index("code"), rows.schema.field("code")
        codes = pa.array([(4, 5, None, 2**32 - 1)[n % 4] for n in range(rows.num_rows)], field.type)
        return rows.set_column(place, field, codes)

    view = dataset.view().select("code", "n").sort("n")
    grouped = dataset.view().select("code", "n").group_by("code").agg(n="count(*)")
    before = in_process(dataset.view().select("code")).arrays[0]
    with changed_slice(dataset, rewritten(broken)):
        assert "FileScan" in plan_of(view, spark)
        for each in (view, grouped):
            assert difference(in_process(each), on_spark(each, spark), each) == ""
        # Of the 60 rows of the slice a quarter are codes.
        after = in_process(dataset.view().select("code")).arrays[0]
        assert after.null_count == before[:-60].null_count + 45


def test_a_slice_with_other_digits_than_the_dataset_is_read_by_tasks(dataset, spark):
    def wider(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("decimal9")
        return rows.set_column(place, "decimal9", rows["decimal9"].cast(pa.decimal128(12, 9)))

    view = dataset.view().select("decimal9", "n").sort("n")
    assert "FileScan" in plan_of(view, spark)
    with changed_slice(dataset, rewritten(wider)):
        assert "FileScan" not in plan_of(view, spark)
        assert difference(in_process(view), on_spark(view, spark), view) == ""


def test_a_slice_with_a_page_beyond_the_limits_is_not_given_to_spark(dataset, spark, monkeypatch):
    """Spark would unpack the page whatever it becomes: tasks refuse it (guard:G8)."""
    view = dataset.view().select("raw", "n").sort("n")
    assert "FileScan" in plan_of(view, spark)
    found = []

    def plain(file, schema, offset, rows):
        found.append(file)
        return len(found) != 2

    monkeypatch.setattr(SliceFile, "is_plain", plain)
    assert "FileScan" not in plan_of(view, spark)


def test_a_slice_is_plain_as_long_as_its_rows_fit_in_a_batch(ds):
    ds.append(pa.table({"s": ["x" * 1_000] * 5_000}))
    source = ds.view().node.source
    [entry] = source.entries(0, source.standing.last_offset)
    file = source.file(entry)
    assert file.is_plain(source.schema, "offset", 4_096)
    tight = replace(file, limits=replace(DEFAULT, batch_bytes=1 << 20))
    assert not tight.is_plain(source.schema, "offset", 4_096)


def test_names_that_differ_by_case_only_are_read_by_tasks(tmp_path, spark):
    with tl.open(tmp_path / "ws", create=True) as ws:
        pairs = ws.create("pairs")
        pairs.append(pa.table({"a": [1, 2]}))
        assert "FileScan" in plan_of(pairs.view().sort("a"), spark)
        twins = pa.schema([pa.field("a", pa.int64()), pa.field("A", pa.int64())])
        events = pairs.view().node.source
        assert events.plain_files(events.schema, 512, 10)
        object.__setattr__(events.standing, "schema", twins)
        assert events.plain_files(twins, 512, 10) is None


def test_very_many_slices_are_read_by_tasks(dataset, spark, monkeypatch):
    monkeypatch.setattr(slices, "MOST_SLICES", 4)
    view = dataset.view().select("n").sort("n")
    assert "FileScan" not in plan_of(view, spark)
    monkeypatch.setattr(slices, "MOST_SLICES", 5)
    assert "FileScan" in plan_of(view, spark)


def test_a_path_is_taken_as_it_is(tmp_path, spark):
    with tl.open(tmp_path / "a [b] {c,d} *%20", create=True) as ws:
        made = ws.create("x")
        made.append(pa.table({"n": [3, 1, 2], "s": ["a", "b", "c"]}))
        view = made.view().sort("n")
        assert "FileScan" in plan_of(view, spark)
        assert difference(in_process(view), on_spark(view, spark), view) == ""
        assert sorted(made.view().to_spark(spark).toArrow()["n"].to_pylist()) == [1, 2, 3]


PLACES = ["i", "x", "s", "n"]


@pytest.mark.contract("exchange:E1")
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_ids_that_are_places_are_moved_once_and_are_those_of_this_process(dataset, spark, how):
    left = dataset.view().select(*PLACES)
    right = left.filter("n < 40") if how == "anti" else left
    right = right.select("i", "n").rename(m="n")
    joined = left.filter("n < 60").join(right, on="i", how=how)
    plain = left.join(dataset.view().select("n", "b"), on="n", how=how)
    grouped = plain.group_by("s").agg(c="count(*)", t="sum(x)", f="first(n)")
    for view in (joined, plain, plain.select("s", "n"), grouped, plain.sort("x"), plain.shuffle(3)):
        assert difference(in_process(view), on_spark(view, spark), view) == ""
    if how in ("inner", "left", "right", "full"):
        found = LoweringTarget(spark).lower(plain.node, everything(plain))
        assert found.makes_ids_late
        assert not set(found.base.columns) & set(IDS)


@pytest.mark.contract("exchange:E1")
def test_a_sort_moves_places_instead_of_ids(dataset, spark):
    view = dataset.view().select(*PLACES).sort("x", "s")
    found = LoweringTarget(spark).lower(view.node, everything(view))
    assert found.makes_ids_late
    assert not set(found.base.columns) & set(IDS)
    for each in (view, view.select("n"), view.group_by("i").agg(f="first(s)"), view.limit(20)):
        assert difference(in_process(each), on_spark(each, spark), each) == ""


@pytest.mark.contract("exchange:E1")
@pytest.mark.parametrize("how", ["inner", "left"])
def test_of_the_left_of_a_join_in_order_only_keys_and_places_are_moved(dataset, spark, how):
    session = spark.newSession()
    # Else the right goes to all tasks, and nothing is moved.
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    left = dataset.view()
    right = left.select("i", "s", "n").filter("n < 30").rename(m="n", t="s")
    by_number = left.join(left.select("n", "x").rename(y="x"), on="n", how=how)
    by_float = left.select("x", "n").join(left.select("x", "i").filter("i > 0"), on="x", how=how)
    for view in (by_number, by_number.select("y", "v", "s"), by_float):
        found = join_in_order(view.node, everything(view), LoweringTarget(session))
        # One column of the right, and two places; the right of the last is filtered by tasks, with ids.
        assert found is None if view is by_float else found.base.columns == ["c0", "o0", "o1"]
        assert difference(in_process(view), on_spark(view, session), view) == ""
    plain = left.join(right, on="i", how=how)
    assert difference(in_process(plain), on_spark(plain, session), plain) == ""


def test_rows_are_read_at_their_places_however_they_are_asked_for(dataset):
    scan = dataset.view().select("n", "s")
    parts = ordered_join._slices_of(scan.node, (0, 1))
    offsets = np.asarray([row.low for row in in_process(scan).ids], np.uint64)
    numbers = np.asarray(in_process(scan).arrays[0])
    chance = np.random.default_rng(5)
    for _ in range(20):
        some = np.sort(chance.integers(0, len(offsets), 50))
        reader = ordered_join.RowsAtPlaces(parts, int(offsets[some[0]]))
        found = [each.arrays[0] for at in range(0, 50, 7) for each in reader.take(offsets[some[at : at + 7]])]
        assert np.array_equal(np.concatenate([np.asarray(each) for each in found]), numbers[some])
