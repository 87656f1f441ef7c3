"""A view in memory: what it is, what it becomes, what it refuses."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from trueline import console
from trueline import types as t
from trueline.errors import EnvironmentMissing, InputError, SchemaError


@dataclass
class City:
    name: str
    people: int


@pytest.fixture
def view():
    return tl.View.from_rows(
        [
            {"name": "Bern", "people": 3},
            {"name": "Zug", "people": 1},
            {"name": None, "people": 2},
            {"name": "Chur", "people": 1},
        ]
    )


class Watched:
    """A source that says what was asked of it."""

    def __init__(self, table):
        self.table = table
        self.schema, self.row_count, self.origins, self.ordinal = table.schema, None, {}, None
        self.asked, self.taken = [], 0

    def batches(self, columns, bounds):
        self.asked.append((list(columns), dict(bounds)))
        for start in range(0, self.table.num_rows, 10):
            self.taken += 1
            yield from self.table.slice(start, 10).select(list(columns)).to_batches()

    def explain(self):
        return ["watched"]


@pytest.fixture
def source():
    return Watched(pa.table({"a": range(100), "b": range(100, 200), "c": ["x"] * 100}))


def test_every_door_gives_the_same_rows(view):
    table = view.to_arrow()
    frame = table.to_pandas()
    doors = [
        tl.View.from_arrow(table),
        tl.View.from_arrow(table.combine_chunks().to_batches()[0]),
        tl.View.from_arrow(view),
        tl.View.from_pandas(frame),
        tl.View.from_rows(table.to_pylist()),
        tl.View.from_arrow(pa.RecordBatchReader.from_batches(table.schema, table.to_batches())),
    ]
    assert all(door.to_arrow().to_pylist() == table.to_pylist() for door in doors)
    assert view.to_pandas()["people"].tolist() == [3, 1, 2, 1]


def test_a_view_is_read_through_the_arrow_stream_protocol(view):
    assert pa.table(view).equals(view.to_arrow())


def test_dataclasses_go_in_and_come_out():
    cities = [City("Bern", 3), City("Zug", 1)]
    view = tl.View.from_rows(cities)
    assert list(view.rows(City)) == cities
    assert list(view.rows()) == [{"name": "Bern", "people": 3}, {"name": "Zug", "people": 1}]


def test_an_index_of_pandas_is_left_out_and_nan_is_missing():
    view = tl.View.from_pandas(pd.DataFrame({"x": [1.0, np.nan]}, index=[7, 8]))
    assert view.to_arrow().to_pydict() == {"x": [1.0, None]}


def test_columns_are_known_by_name_and_place(view):
    column = view.schema["people"]
    assert (column.name, column.index, column.type) == ("people", 1, t.int64)
    assert view.schema[0].name == "name"
    assert view.schema.names == view.columns == ("name", "people")
    assert pa.schema(view.schema) == view.to_arrow().schema


def test_operations_make_new_views_and_leave_the_old_one_as_it_was(view):
    assert view.select("people").schema.names == ("people",)
    assert view.drop("people").schema.names == ("name",)
    assert view.rename(city="name").schema.names == ("city", "people")
    assert view.rename({"name": "people", "people": "name"}).to_arrow().to_pydict() == {
        "people": ["Bern", "Zug", None, "Chur"],
        "name": [3, 1, 2, 1],
    }
    assert view.schema.names == ("name", "people")


def test_rows_are_filtered_cut_and_sorted(view):
    def names(found):
        return found.to_arrow()["name"].to_pylist()

    assert names(view.filter("people < :most", most=3)) == ["Zug", None, "Chur"]
    assert names(view.skip(1).limit(2)) == ["Zug", None]
    assert names(view.limit(0)) == names(view.skip(9)) == []
    assert names(view.sort("people")) == ["Zug", "Chur", None, "Bern"]
    assert names(view.sort("people", "name", descending=True)) == ["Bern", None, "Zug", "Chur"]
    assert names(view.sort("name")) == ["Bern", "Chur", "Zug", None]
    assert names(view.filter("people = 1").limit(1)) == ["Zug"]
    assert names(view.limit(1).filter("people = 1")) == []


def test_a_filter_may_use_columns_that_are_not_asked_for_and_not_others(view):
    assert view.filter("people = 3").select("name").to_arrow().to_pydict() == {"name": ["Bern"]}
    with pytest.raises(SchemaError, match="no column 'people'"):
        view.select("name").filter("people = 3")


def test_counting_reads_no_more_than_it_must(source):
    view = tl.View(source)
    assert view.filter("a >= 90").count() == 10
    assert source.asked[0][0] == ["a"]
    assert tl.View.from_arrow(source.table).skip(5).limit(200).row_count == 95


@pytest.mark.parametrize("columns", [[], ["c"], ["b", "a"]])
def test_only_the_columns_asked_for_are_read(source, columns):
    batches = list(tl.View(source).filter("a > 5").batches(columns))
    assert sum(batch.num_rows for batch in batches) == 94
    assert all(batch.schema.names == columns for batch in batches)
    assert set(source.asked[0][0]) == {*columns, "a"}


def test_a_limit_stops_reading(source):
    assert tl.View(source).skip(15).limit(10).to_arrow()["a"].to_pylist() == list(range(15, 25))
    assert source.taken == 3


def test_bounds_reach_the_source_through_other_names_but_not_through_a_limit(source):
    view = tl.View(source).rename(x="a").filter("x > 50").select("x", "b").filter("b < 170")
    assert view.count() == 19
    assert {name: (i.low, i.high) for name, i in source.asked[-1][1].items()} == {
        "a": (51, None),
        "b": (None, 169),
    }
    assert tl.View(source).limit(60).filter("a > 50").count() == 9
    assert source.asked[-1][1] == {}


def test_explain_shows_each_step(source):
    view = tl.View(source).filter("a > 1").sort("b").skip(1).limit(2).select("a").rename(x="a")
    text = view.explain()
    assert text.splitlines()[0] == "columns a as x"
    assert [line.strip() for line in text.splitlines()[-2:]] == ["watched", "reads a, b"]
    assert "=x" in text
    assert "rows where a > 1 (skips what a rules out)" in text


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda v: v.select("nme"), "did you mean 'name'"),
        (lambda v: v.select("name", "name"), "named twice"),
        (lambda v: v.drop("x"), "no column 'x'"),
        (lambda v: v.rename(people="name"), "two columns would be named 'people'"),
        (lambda v: v.rename(x="y"), "no column 'y'"),
        (lambda v: v.limit(-1), "limit"),
        (lambda v: v.skip(1.5), "skip"),
        (lambda v: v.limit(True), "limit"),
        (lambda v: v.sort(), "without columns"),
        (lambda v: v.batches(["x"]), "no column 'x'"),
        (lambda v: tl.View.from_arrow([1]), "not an Arrow table"),
        (lambda v: tl.View.from_rows([1]), "a row is a int"),
        (lambda v: tl.View.from_rows([{"x": 1}, {"x": "a"}]), "column 'x'"),
        (lambda v: tl.View.from_rows([{"x": [1]}]).sort("x"), "no order"),
    ],
)
def test_what_is_wrong_is_said_before_a_row_is_read(view, wrong, error):
    with pytest.raises((InputError, SchemaError), match=error):
        wrong(view)


def test_no_rows_and_no_columns_are_a_view_like_others():
    nothing = tl.View.from_rows([])
    assert (nothing.count(), nothing.to_arrow().shape) == (0, (0, 0))
    three = tl.View.from_rows([{"x": 1}] * 3).select()
    assert (three.count(), three.to_arrow().num_rows) == (3, 3)
    assert (three.limit(2).count(), three.skip(1).to_arrow().num_rows) == (2, 2)
    assert "0 rows, 0 columns" in nothing._repr_html_()
    assert tl.View.from_arrow(pa.table({"x": pa.array([], pa.int8())})).sort("x").count() == 0


def test_it_is_shown_with_types_and_without_the_power_to_hurt():
    view = tl.View.from_rows([{"a<b": "<script>\x1b[31m"}])
    assert "<script>" not in view._repr_html_()
    assert "text" in view._repr_html_()
    with console.use(console.CapturedConsole()) as seen:
        view.show()
    assert "\x1b" not in seen.text
    assert "a<b" in seen.text
    assert repr(view) == "<View 1 rows, a<b: text>"


def test_show_speaks_even_where_the_library_is_silent(view, capsys):
    view.show(2)
    assert "Bern" in capsys.readouterr().out


def test_ten_thousand_columns_are_no_trouble():
    view = tl.View.from_arrow(pa.table({f"c{n}": [n] for n in range(10_000)}))
    assert view.drop("c5").select("c9999").to_arrow().to_pydict() == {"c9999": [9999]}


def test_several_threads_read_the_same_rows():
    view = tl.View.from_arrow(pa.table({"x": range(200_000)})).filter("x % 3 = 1").sort("x", descending=True)
    found = []
    threads = [threading.Thread(target=lambda: found.append(view.to_arrow())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(table.equals(found[0]) for table in found)


def test_without_spark_its_doors_say_what_is_missing(view, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trueline.spark.views", None)
    with pytest.raises(EnvironmentMissing, match="Spark"):
        view.to_spark()
    with pytest.raises(EnvironmentMissing, match="Spark"):
        tl.View.from_spark(object())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("filter"), st.integers(-5, 5)),
        st.tuples(st.just("limit"), st.integers(0, 12)),
        st.tuples(st.just("skip"), st.integers(0, 6)),
        st.tuples(st.just("sort"), st.booleans()),
    ),
    max_size=5,
)


@given(st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=12), STEPS)
def test_any_chain_of_steps_means_what_lists_say(values, steps):
    view = tl.View.from_arrow(pa.table({"x": pa.array(values, pa.int64()), "n": range(len(values))}))
    rows = list(enumerate(values))
    for what, how in steps:
        if what == "filter":
            view, rows = view.filter("x >= :a", a=how), [r for r in rows if r[1] is not None and r[1] >= how]
        elif what == "limit":
            view, rows = view.limit(how), rows[:how]
        elif what == "skip":
            view, rows = view.skip(how), rows[how:]
        else:
            there = sorted((r for r in rows if r[1] is not None), key=lambda r: -r[1] if how else r[1])
            view, rows = view.sort("x", descending=how), there + [r for r in rows if r[1] is None]
    assert view.to_arrow()["n"].to_pylist() == [number for number, _ in rows]
    assert view.count() == len(rows)
    assert view.row_count in (None, len(rows))
