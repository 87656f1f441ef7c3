"""Queries over rows that Python tasks read: no column is read that the query does not need."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline.spark import views

QUERIES = {
    "select a from t": {"t": {"a"}},
    "select * from t": {"t": {"a", "b", "c", "d"}},
    "select a from t where b > 1": {"t": {"a", "b"}},
    "select * from t where b > 1": {"t": {"a", "b", "c", "d"}},
    "select count(*) as n from t": {"t": set()},
    "select count(c) as n from t": {"t": {"c"}},
    "select a, sum(d) as d from t group by a order by a": {"t": {"a", "d"}},
    "select t.a, u.y from t join u on t.a = u.x order by 1, 2": {"t": {"a"}, "u": {"x", "y"}},
    "select x.a, y.b from t x join t y on x.a = y.c order by 1, 2": {"t": {"a", "b", "c"}},
    "select a from t where exists (select 1 from u where u.x = t.b) order by a": {
        "t": {"a", "b"},
        "u": {"x"},
    },
    "select a, (select max(y) from u) as m from t order by a": {"t": {"a"}, "u": {"y"}},
    "with w as (select a, b from t) select a from w union all select x from u order by 1": {
        "t": {"a"},
        "u": {"x"},
    },
    "select a, row_number() over (partition by b order by c) as n from t order by a": {"t": {"a", "b", "c"}},
    "select a from t where true or d > 1 order by a": {"t": {"a"}},
    "select distinct b from t order by b": {"t": {"b"}},
    "select a, e from t lateral view explode(array(b, c)) as e order by a, e": {"t": {"a", "b", "c"}},
    "select a from t order by d desc limit 2": {"t": {"a", "d"}},
    "select a from t except select x from u order by 1": {"t": {"a"}, "u": {"x"}},
    "select 1 as one from t, u": {"t": set(), "u": set()},
}


@pytest.fixture(scope="module")
def ws(tmp_path_factory, spark):
    with tl.open(tmp_path_factory.mktemp("columns") / "ws", create=True, spark=spark) as opened:
        made = opened.create("t", merge=tl.merge.upsert("a"))
        made.append(pa.table({"a": [1, 2, 3], "b": [3, 2, 2], "c": [1, None, 5], "d": [0.5, 2.5, None]}))
        made.append(pa.table({"a": [3, 4], "b": [1, 2], "c": [9, 9], "d": [None, 7.0]}))
        opened.create("u", merge=tl.merge.upsert("x")).append(
            pa.table({"x": [1, 3, 3 + 5], "y": ["one", None, "eight"], "z": [b"1", b"2", b"3"]})
        )
        yield opened


@pytest.fixture
def read(monkeypatch):
    """Note the columns that are read of each table."""
    found = {}
    real = views.frame

    def frame(node, session=None):
        names = set(node.schema.names)
        found["t" if names & set("abcd") else "u"] = names
        return real(node, session)

    monkeypatch.setattr(views, "frame", frame)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_no_column_is_read_that_a_query_does_not_need(ws, read, monkeypatch, query):
    pruned = ws.sql(query).to_arrow()
    allowed = {table: columns or {"a" if table == "t" else "x"} for table, columns in QUERIES[query].items()}
    if "lateral view" in query:
        assert read["t"] >= allowed["t"], "what a generator hands on is not looked into"
    else:
        assert read == allowed
    monkeypatch.setattr(views, "needed_columns", lambda frame: {"t": set("abcd"), "u": set("xyz")})
    whole = ws.sql(query).to_arrow()
    assert pruned.equals(whole)
    assert pruned.schema == whole.schema


def test_parameters_are_bound_in_both_plans(ws, read):
    assert ws.sql("select b from t where a = :n", n=3).to_arrow().to_pylist() == [{"b": 1}]
    assert read == {"t": {"a", "b"}}


def test_slices_that_spark_reads_need_no_second_plan(ws, monkeypatch):
    monkeypatch.setattr(views, "needed_columns", None)
    ws.create("plain").append(pa.table({"a": [1], "b": [2]}))
    assert ws.sql("select b from plain").to_arrow().to_pylist() == [{"b": 2}]
