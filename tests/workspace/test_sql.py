"""Queries, and views to and from Spark frames."""

from __future__ import annotations

import gc
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.dataset.read.histories import History
from trueline import merge
from trueline.chain.store.file import FileStore
from trueline.errors import CorruptionError, InputError, ObjectMissing, QueryError, SchemaError
from trueline.workspace.sql import tables_of


@pytest.fixture
def shop(tmp_path, spark):
    with tl.open(tmp_path / "shop", create=True, spark=spark) as ws:
        sales = ws.create("sales", event_time="day")
        sales.append(pa.table({"day": [date(2026, 1, 1)] * 2, "city": ["Bern", "Zug"], "price": [1.5, 2.0]}))
        sales.append(pa.table({"day": [date(2026, 1, 2)], "city": ["Bern"], "price": [4.0]}))
        yield ws


def rows(view):
    return view.to_arrow().to_pylist()


# --- without Spark ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select * from sales", ["sales"]),
        ("SELECT * FROM Sales", ["Sales"]),
        ("with x as (select 1) select sales.price from sales, x", ["sales"]),
        ("from `sales@2026-01-01` select *", ["sales@2026-01-01"]),
        ("select 'sales', \"sales\" from other", []),
        ("select * from `a-b.c` -- sales", ["a-b.c"]),
        ("select * from date", ["date"]),
        ("values (1)", []),
        ("select 1 as sales", []),
        ("select sum(date) as sales, `date` from other as date join `a-b.c`", ["a-b.c"]),
        ("with sales as (select * from date) select * from sales", ["date"]),
        ("with sales as (select * from sales) select date from sales", ["sales"]),
        ("select sales from (select 1 as sales) |> join date on true", ["date"]),
        ("with t as (table sales) select * from t", ["sales"]),
        ("select of sqlglot nothing (from sales", ["sales"]),
        ("select * from `unknown@ab12`", ["unknown@ab12"]),
    ],
)
def test_the_datasets_of_a_query_are_found(text, found):
    assert [table.name for table in tables_of(text, ["sales", "a-b.c", "date"])] == found


@pytest.mark.parametrize(
    "text",
    ["", "drop table sales", "insert into sales values (1)", "with x as (select 1) insert into y select 1",
     "set x = 1", "create view v as select 1", None, "select 'open"],
)  # fmt: skip
def test_what_is_no_query_is_refused(text):
    with pytest.raises(InputError):
        list(tables_of(text, ["sales"]))


# --- queries ------------------------------------------------------------------------


def test_a_query_sees_current_rows_with_its_parameters_bound(shop):
    view = shop.sql(
        "select city, sum(price) as total from sales where city = :city group by city", city="Bern"
    )
    assert view.schema.names == ("city", "total")
    assert rows(view) == [{"city": "Bern", "total": 5.5}]
    assert rows(shop.sql("select count(*) n from sales where city = :c", c="' or 1 = 1 --")) == [{"n": 0}]


def test_a_query_reads_datasets_as_they_were(shop):
    first, second = reversed(list(shop["sales"].log())[:2])
    text = f"select count(*) as n from `sales@{first.short}` union all select count(*) from sales"
    assert [row["n"] for row in rows(shop.sql(text))] == [2, 3]
    assert rows(shop.sql("select count(*) as n from sales", at=first.system_time)) == [{"n": 2}]
    assert rows(shop.sql("select count(*) as n from sales", at={"sales": first})) == [{"n": 2}]
    assert shop.sql("select 1 as x from sales").origins["sales"].block == second.block


def test_a_query_is_computed_once_and_keeps_its_order(shop):
    view = shop.sql("select price, uuid() as u from sales order by price desc")
    assert "not computed" in view.explain()
    once, again = view.to_arrow(), view.to_arrow()
    assert once == again
    assert once["price"].to_pylist() == [4.0, 2.0, 1.5]
    assert view.count() == 3
    assert view.filter("price < 3").select("price").to_arrow()["price"].to_pylist() == [2.0, 1.5]


def test_the_folder_of_a_frozen_frame_goes_with_its_view(shop):
    view = shop.sql("select * from sales")
    view.to_arrow()
    folder = Path(view.node.source.frozen().parts[0].file).parent
    assert folder.exists()
    del view
    gc.collect()
    assert not folder.exists()


def test_errors_are_ours_and_say_where(shop):
    with pytest.raises(QueryError) as caught:
        shop.sql("select\n  prise from sales")
    assert (caught.value.line, caught.value.column) == (2, 3)
    with pytest.raises(QueryError, match="nowhere"):
        shop.sql("select * from nowhere")
    with pytest.raises(InputError, match="does not name a commit"):
        shop.sql("select * from `sales@zzzz`")
    with pytest.raises(InputError, match="no dataset 'nowhere'"):
        shop.sql("select * from `nowhere@2026-01-01`")


def test_a_missing_slice_is_named_when_the_query_is_made(shop, tmp_path):
    name = next(iter((tmp_path / "shop" / "datasets" / "sales" / "data").iterdir()))
    name.unlink()
    with pytest.raises(ObjectMissing, match=name.name):
        shop.sql("select * from sales")


def test_the_session_handed_in_keeps_its_settings_and_its_views(shop, spark):
    before = {row[0]: row[1] for row in spark.sql("SET").collect()}
    rows(shop.sql("select * from sales"))
    assert {row[0]: row[1] for row in spark.sql("SET").collect()} == before
    assert [table.name for table in spark.catalog.listTables() if "sales" in table.name] == []


def test_keyed_datasets_are_queried_by_their_current_rows(shop):
    data = pa.schema({"id": pa.int64(), "name": pa.string()})
    for name, with_state in (("kept", True), ("folded", False)):
        store = FileStore(Path(shop.location) / "datasets" / name)
        history = History(data, merge.upsert("id"), store=store, with_state=with_state)
        history.merged([{"id": n, "name": "old"} for n in range(100)])
        history.merged([{"id": n, "name": "new"} for n in range(0, 100, 2)])
        found = rows(
            shop.sql(f"select name, count(*) as n, sum(id) as s from {name} group by name order by name")
        )
        assert found == [{"name": "new", "n": 50, "s": 2450}, {"name": "old", "n": 50, "s": 2500}]


# --- views and frames -----------------------------------------------------------------

NASTY = pa.table(
    {
        "b": pa.array([True, None, False]),
        "i": pa.array([1, None, -(1 << 63)], pa.int64()),
        "small": pa.array([1, None, -128], pa.int8()),
        "f": pa.array([0.5, None, -0.0]),
        "s": pa.array(["", None, "ä\0ö"]),
        "y": pa.array([b"", None, b"\xff"]),
        "d": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
        "t": pa.array([-1, None, 10**12], pa.timestamp("ms", "UTC")),
        "naive": pa.array([-1, None, 10**12], pa.timestamp("us")),
        "m": pa.array([Decimal("1.10"), None, Decimal("-9.99")], pa.decimal128(10, 2)),
        "with `tick` and.dot": pa.array([1, None, 3], pa.int64()),
    }
)


def same(frame, expected: pa.Table) -> bool:
    found = frame.toArrow()
    kinds = pa.schema([f.with_type(k) for f, k in zip(expected.schema, found.schema.types, strict=True)])
    return found.cast(kinds).to_pylist() == expected.cast(kinds).to_pylist()


def test_every_way_to_a_frame_gives_the_same_rows(tmp_path, spark):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("nasty")
        ds.append(NASTY)
        ds.append(NASTY.slice(1))
        view = ds.view()
        expected = view.to_arrow()
        assert same(view.to_spark(spark), expected)  # the files
        assert same(view.filter("true").to_spark(spark), expected)  # tasks
        assert same(view.limit(9).to_spark(spark), expected)  # this process
        assert same(tl.View.from_arrow(expected).to_spark(spark), expected)
        renamed = expected.select(["s", "i"]).rename_columns(["s", "x"])
        assert same(view.select("s", "i").rename(x="i").to_spark(spark), renamed)


def test_nested_and_unsigned_columns_are_read_in_tasks(tmp_path, spark):
    table = pa.table({"l": [[1, 2], None], "u": pa.array([1, (1 << 64) - 1], pa.uint64())})
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("nested")
        ds.append(table)
        found = ds.view().to_spark(spark).collect()
        assert [(row.l, int(row.u)) for row in found] == [([1, 2], 1), (None, (1 << 64) - 1)]


def test_a_column_added_later_is_missing_in_older_files(tmp_path, spark):
    history = History(pa.schema({"x": pa.int64()}), store=FileStore(tmp_path))
    history.add(pa.table({"x": [1]}))
    history.evolve(pa.schema({"x": pa.int64(), "y": pa.int64()}))
    history.add(pa.table({"x": [2], "y": [3]}))
    assert sorted(map(tuple, history.view().to_spark(spark).collect())) == [(1, None), (2, 3)]
    assert sorted(map(tuple, history.view().filter("x > 0").to_spark(spark).collect())) == [(1, None), (2, 3)]


def test_no_rows_are_a_frame_too_and_no_columns_are_not(tmp_path, spark):
    history = History(pa.schema({"x": pa.int64()}), store=FileStore(tmp_path))
    assert history.view().to_spark(spark).count() == 0
    assert history.view().to_spark(spark).columns == ["x"]
    with pytest.raises(SchemaError, match="without columns"):
        history.view().select().to_spark(spark)


def test_damage_found_in_a_task_is_named_as_everywhere(tmp_path, spark):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("trades")
        ds.append(pa.table({"x": [1]}))
        view = ds.view().filter("x > 0")
        (path,) = (tmp_path / "datasets" / "trades" / "data").iterdir()
        path.chmod(0o644)
        path.write_bytes(b"PAR1 no more")
        frame = view.to_spark(spark)
        with pytest.raises(CorruptionError, match=path.name):
            tl.View.from_spark(frame).to_arrow()


def test_a_frame_becomes_a_view_with_an_order(spark):
    frame = spark.range(100).selectExpr("id", "id % 7 as k", "timestamp'2026-01-01' as t")
    view = tl.View.from_spark(frame, order_by=["k", "id"])
    table = view.to_arrow()
    assert list(zip(table["k"].to_pylist(), table["id"].to_pylist(), strict=True)) == sorted(
        (n % 7, n) for n in range(100)
    )
    assert view.limit(1).to_arrow()["t"].to_pylist() == [datetime(2026, 1, 1, tzinfo=UTC)]
    with pytest.raises(SchemaError, match="no column 'x'"):
        tl.View.from_spark(frame, order_by="x")


# --- errors --------------------------------------------------------------------------


def test_a_misspelt_table_gets_a_hint_before_spark_starts(ws):
    ws.create("sales").append(pa.table({"price": [1.0]}))
    for text in ("select * from sals", "with t as (select 1 as x) select * from t join Salse on true"):
        with pytest.raises(QueryError, match="did you mean 'sales'") as caught:
            ws.sql(text)
        assert text[caught.value.column - 1 :].lower().startswith("sal")
        assert "^" in caught.value.problem


def test_a_quote_that_is_not_closed_is_shown(ws):
    ws.create("sales")
    with pytest.raises(InputError, match="a quote is not closed") as caught:
        ws.sql("select *\nfrom sales where city = 'Bern")
    assert "from sales where city = 'Bern\n                            ^" in caught.value.problem
    assert "tokenizing" not in caught.value.problem


def test_an_unknown_table_names_the_datasets(shop):
    with pytest.raises(QueryError, match="the datasets are: sales"):
        shop.sql("select * from towns")


@pytest.mark.parametrize(
    ("text", "under"),
    [
        ("select *\nfrom sales\ngroup price", "price"),
        ("select prize from sales", "prize"),
        ("select * from (select", ""),
    ],
)
def test_the_place_of_an_error_is_under_a_caret(shop, text, under):
    with pytest.raises(QueryError) as caught:
        shop.sql(text)
    first, line, carets = caught.value.problem.split("\n")
    assert first.count("(line") == 1
    assert "pos " not in first
    assert line.strip() in text
    assert line[carets.index("^") :].startswith(under)


def test_a_dataset_without_rows_or_columns_can_be_queried(shop):
    shop.create("empty")
    shop.create("typed", schema=pa.schema({"city": pa.string()}))
    assert rows(shop.sql("select count(*) as n from empty")) == [{"n": 0}]
    everything = shop.sql("select * from empty")
    assert (everything.columns, everything.count()) == ((), 0)
    assert rows(shop.sql("select s.price from sales s left join empty on true where s.price > 3")) == [
        {"price": 4.0}
    ]
    assert rows(shop.sql("select city from typed")) == []
    assert rows(shop.sql("select count(*) as n, max(city) as c from typed")) == [{"n": 0, "c": None}]
    with pytest.raises(QueryError) as caught:
        shop.sql("select city from empty")
    assert "'empty' has no columns yet: append rows to it, or create it with a schema" in caught.value.remedy
    shop["empty"].append([{"city": "Bern"}])
    assert rows(shop.sql("select city from empty")) == [{"city": "Bern"}]


def test_a_view_of_a_dataset_without_rows_reads_as_nothing(ws):
    ds = ws.create("empty")
    assert (ds.view().columns, ds.view().count(), ds.view().to_arrow().num_rows) == ((), 0, 0)
    assert ds.view().to_pandas().empty
    assert list(ds.view().rows()) == list(ds.changes().batches()) == []
    assert ds.get({"city": "Bern"}) is None
