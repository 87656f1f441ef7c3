"""Queries that would run programs, call Java, or read what is not a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from trueline.errors import InputError, QueryError, UnsafeQuery
from trueline.spark import plans
from trueline.spark.errors import translated
from trueline.workspace.query_guard import FUNCTIONS, REFUSED_FUNCTIONS, check_query, tokens

pytestmark = pytest.mark.contract("guard:G9")

# {secret} is a file outside, {bait} one that is there once a program has run, `outside` a table of a catalog.
PROGRAMS = [
    "select transform(name) using 'touch {bait}' as (x) from people",
    "select transform(name) USING/**/'touch {bait}' as (x) from people",
    "from people map name using 'touch {bait}' as x",
    "from people reduce name using 'touch {bait}' as x",
    "select * from (from people select transform(name) using 'touch {bait}') t",
    "select transform(name) using :command as (x) from people",
]
JAVA = [
    "select java_method('java.lang.System', 'getProperty', 'user.home')",
    "select reflect('java.lang.System', 'getProperty', 'user.home')",
    "select try_reflect('java.lang.System', 'getProperty', 'user.home')",
    "select ReFlecT ('java.lang.System', 'getProperty', 'user.home')",
    "select `reflect`('java.lang.System', 'getProperty', 'user.home')",
    "select reflect/* /* */ ' */('java.lang.System', 'getProperty', 'user.home') --'",
    "select reflect -- ' \n('java.lang.System', 'getProperty', 'user.home') --'",
    "select -- \\\n ' \n reflect('java.lang.System', 'getProperty', 'user.home') --'",
    "select '\\'', reflect('java.lang.System', 'getProperty', 'user.home'), ''",
    "select r'\\', reflect('java.lang.System', 'getProperty', 'user.home'), ''",
    "select system.builtin.reflect('java.lang.System', 'getProperty', 'user.home')",
    "select identifier('reflect')('java.lang.System', 'getProperty', 'user.home')",
    "select identifier('ref' || 'lect')('java.lang.System', 'getProperty', 'user.home')",
    "select identifier(:f)('java.lang.System', 'getProperty', 'user.home')",
    "select transform(array(1), x -> reflect('java.lang.System', 'getProperty', 'user.home'))",
    "select name from people order by (select reflect('java.lang.System', 'getProperty', 'user.home'))",
    "select * from explode(array(reflect('java.lang.System', 'getProperty', 'user.home')))",
    "select * from people lateral view explode(array(reflect('java.lang.System', 'exit', 0))) e as x",
    "select * from values (reflect('java.lang.System', 'getProperty', 'user.home')) v(a)",
    "from people |> select java_method('java.lang.System', 'getProperty', 'user.home')",
]
PATHS = [
    "select * from text.`{secret}`",
    "select * from TEXT . `{secret}`",
    "select * from `text`.`{secret}`",
    "select * from csv.`{secret}`",
    "select * from json.`{secret}`",
    "select * from parquet.`{secret}`",
    "select * from orc.`{secret}`",
    "select * from delta.`{secret}`",
    "select * from binaryFile.`{secret}`",
    "select * from `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`{secret}`",
    "select * from `binaryFile`.`{secret}`",
    "table text.`{secret}`",
    "select * from (table text.`{secret}`)",
    "select * from people, text.`{secret}`",
    "select * from people join text.`{secret}` on true",
    "select * from people where name in (select value from text.`{secret}`)",
    "select * from people where exists (select 1 from text.`{secret}`)",
    "select (select first(value) from text.`{secret}`)",
    "select * from people, lateral (select * from text.`{secret}`)",
    "select name from people union all select value from text.`{secret}`",
    "with x as (select * from text.`{secret}`) select * from x",
    "with x as (with y as (select * from text.`{secret}`) select * from y) select * from x",
    "select * from people where name = (with x as (from text.`{secret}`) select max(value) from x)",
    "select sum(1) over (order by (select max(value) from text.`{secret}`)) from people",
    "select case when true then (select max(value) from text.`{secret}`) end",
    "select * from values ((select max(value) from text.`{secret}`)) v(a)",
    "select * from range((select count(*) from text.`{secret}`))",
    "select * from people a join people b on a.name = (select max(value) from text.`{secret}`)",
    "select name from people group by name having name = (select max(value) from text.`{secret}`)",
    "select name from people limit (select count(*) from text.`{secret}`)",
    "select transform(array(1), x -> (select max(value) from text.`{secret}`))",
    "select * from people pivot (max(name) for name in ('a')) join text.`{secret}` on true",
    "from text.`{secret}`",
    "from people |> join text.`{secret}` on true",
    "from people |> union all (select value from text.`{secret}`)",
    "select * from identifier('text.`{secret}`')",
    "select * from identifier(:t)",
    "select * from read_files('{secret}')",
    "select from_protobuf(unhex(''), 'M', '{secret}')",
    "select from_xml('<a/>', 'a string', map('rowValidationXSDPath', '{secret}'))",
    "select from_avro(unhex(''), '', map('avroSchemaUrl', '{secret}'))",
    "select * from python_worker_logs()",
]
TABLES = [
    "select * from outside",
    "select * from default.outside",
    "select * from spark_catalog.default.outside",
    "select * from `spark_catalog`.`default`.`outside`",
    "table outside",
    # A name of the query itself counts only where it can be seen.
    "with outside as (select * from outside) select * from outside",
    "select * from (with outside as (select 1) select * from outside) a, outside b",
    "with a as (select * from outside), outside as (select 1) select * from a",
    "select * from people where 1 in (with outside as (select 1) from outside) or exists (from outside)",
    "select * from global_temp.outside",
    "select * from other.ns.t",
    "select default.helper('x')",
    "select spark_catalog.default.helper('x')",
    "select helper('x')",
    "select default.upper('x')",
    "select * from default.range(3)",
    "select * from people lateral view default.explode(array(1)) e as x",
    "select * from stream(people)",
    "select * from people version as of 3",
]
COMMANDS = [
    "set spark.sql.ansi.enabled = false",
    "add jar '/x.jar'",
    "create temporary function f as 'x.Y'",
    "create table t as select 1",
    "with x as (select 1) insert into people select * from x",
    "from people insert overwrite directory '/x' select *",
    "select 1; select 2",
    "execute immediate 'select 1'",
    "begin select 1; end",
    "call p()",
]
ORDINARY = [
    "select name, count(*) as n, sum(length(name)) over (partition by name) s from people group by name",
    "with a as (select name from people), b(x) as (select * from a) select * from b join a on a.name = b.x",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r",
    "select * from people p join people q using (name) where p.name like 'A%' order by 1 limit 3",
    "select * from (values (1, 'a'), (2, 'b')) as v(id, reflect)",
    "select 'reflect(' as a, \"java_method(\" as b, 'x using y' as c -- reflect('x')",
    "select e.x, id from range(3) lateral view explode(array(1, 2)) e as x",
    "select * from explode(array(1, 2)) union all select * from stack(2, 3, 4)",
    "select cast(1 as decimal(3, 2)), date'2026-11-13', now() - interval 1 day, extract(day from now())",
    "select trim(both 'x' from name), name is null from (select array(name)[0] as name from people)",
    "select transform(array(1, 2), x -> x + 1), filter(array(1), x -> x > 1), named_struct('a', 1).a",
    "select case when name is null then 1 else 2 end, try_cast(name as int), if(true, 1, 2) from people",
    "select * from people where exists (select 1 from people) and name in (select name from people)",
    "select name from people intersect select name from people except select 'x'",
    "select /*+ broadcast(people) */ distinct name from people tablesample (50 percent)",
    "select count(*) filter (where true), first(name) from (select name, input_file_name() from people)",
    "select name, rank() over w from people window w as (order by name)",
    "select grouping(name), count(*) from people group by cube (name) having count(*) > 0",
    "select * from people pivot (count(*) for name in ('Anna', 'Ben'))",
    "select percentile_cont(0.5) within group (order by length(name)) from people",
    "select position('a' in name), overlay(name placing 'x' from 1), substring(name from 1) from people",
    "from people select name",
    "values (1), (2)",
]  # fmt: skip


@pytest.fixture(scope="module")
def outside(spark):
    """A table and a function that somebody's catalog has."""
    spark.sql("create or replace view outside as select 'secret' as name")
    spark.sql("create or replace function helper(x string) returns string return x")
    spark.sql("create or replace global temporary view outside as select 'secret' as name")
    yield
    spark.sql("drop view outside")
    spark.sql("drop function helper")
    spark.catalog.dropGlobalTempView("outside")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret").write_text("secret\n")
    return {"secret": folder / "secret", "bait": folder / "touched"}


@pytest.fixture(scope="module")
def ws(spark, outside, tmp_path_factory):
    with tl.open(tmp_path_factory.mktemp("ws"), create=True, spark=spark) as opened:
        opened.create("people").append(pa.table({"name": ["Anna", "Ben"]}))
        yield opened


def asked(ws, query, places):
    text = query.format(**places)
    parameters = {"command": f"touch {places['bait']}", "f": "reflect", "t": f"text.`{places['secret']}`"}
    return ws.sql(
        text, **{name: value for name, value in parameters.items() if f":{name}" in text}
    ).to_arrow()


@pytest.mark.parametrize("query", [*PROGRAMS, *JAVA, *PATHS, *TABLES])
def test_an_unsafe_query_is_refused_before_it_runs(ws, places, query):
    with pytest.raises(UnsafeQuery) as caught:
        asked(ws, query, places)
    assert caught.value.construct
    assert "trusted_sql=True" in caught.value.remedy
    assert not places["bait"].exists()


@pytest.mark.parametrize("query", [*PROGRAMS, *JAVA, *PATHS, *TABLES])
def test_without_sparks_parser_the_answer_is_the_same(places, query):
    with pytest.raises(UnsafeQuery) as caught:
        check_query(query.format(**places), ["people"])
    assert caught.value.construct


@pytest.mark.parametrize("query", COMMANDS)
def test_a_command_is_not_a_query(ws, places, query):
    with pytest.raises(InputError):
        asked(ws, query, places)
    with pytest.raises(UnsafeQuery):
        check_query(query, ["people", "x"])


@pytest.mark.parametrize("query", ORDINARY)
def test_ordinary_queries_are_answered(ws, places, query):
    assert asked(ws, query, places) is not None
    check_query(query, ["people"])


def test_the_plan_is_checked_even_if_words_are_not(spark, places, monkeypatch):
    """Spark's own parser alone finds all of them: no trick of writing gets past it."""
    monkeypatch.setattr(plans, "check_words", lambda text, most_nested: None)
    for query in (*PROGRAMS, *JAVA, *PATHS, *TABLES):
        with pytest.raises((UnsafeQuery, QueryError)):
            with translated():
                plans.check_sql(spark, query.format(**places), ["people"])
            pytest.fail(query)


def test_the_place_is_named(ws):
    with pytest.raises(UnsafeQuery) as caught:
        ws.sql("select name,\n  reflect('a', 'b')\nfrom people")
    assert (caught.value.construct, caught.value.line, caught.value.column) == ("reflect()", 2, 3)
    with pytest.raises(UnsafeQuery) as caught:
        ws.sql("select *\nfrom text.`/x`")
    assert (caught.value.line, caught.value.column) == (2, 11)


def test_a_mistake_is_still_a_mistake(ws):
    with pytest.raises(QueryError) as caught:
        ws.sql("select name\nfrom people wher where")
    assert (type(caught.value), caught.value.condition) == (QueryError, "PARSE_SYNTAX_ERROR")
    assert caught.value.line == 2


def test_a_trusted_workspace_may_so_these_are_attacks(ws, spark, places, tmp_path):
    with tl.open(ws.location, spark=spark, trusted_sql=True) as trusted:
        asked(trusted, PROGRAMS[0], places | {"bait": tmp_path / "ran"})
        assert (tmp_path / "ran").exists()
        assert asked(trusted, "select * from text.`{secret}`", places).to_pylist() == [{"value": "secret"}]
        found = asked(trusted, "select reflect('java.lang.Math', 'abs', -3) as n", places)
        assert found.to_pylist() == [{"n": "3"}]
        assert asked(trusted, "select * from outside", places).to_pylist() == [{"name": "secret"}]


def test_a_query_nested_beyond_all_measure_is_refused(ws):
    with pytest.raises(UnsafeQuery, match="open brackets"):
        ws.sql("select " + "(" * 5_000 + "1" + ")" * 5_000)
    with pytest.raises(QueryError):  # Spark's own answer, or ours
        ws.sql("select 1" + " + 1" * 2_000)


def test_functions_of_the_session_that_was_handed_in_are_not_reached(ws, spark):
    spark.udf.register("mine", lambda: "ran")
    spark.sql("create or replace temporary function theirs() returns string return 'ran'")
    for name in ("mine", "theirs"):
        with pytest.raises(UnsafeQuery, match=name):
            ws.sql(f"select {name}()")
    # One that hides a function of Spark is of their session only.
    spark.udf.register("upper", lambda text: "ran")
    try:
        assert ws.sql("select upper('a') as a").to_arrow().to_pylist() == [{"a": "A"}]
    finally:
        spark.sql("drop temporary function upper")


def test_xml_of_a_cell_reads_no_file(ws, places):
    cell = f'<!DOCTYPE a [<!ENTITY x SYSTEM "{Path(places["secret"]).as_uri()}">]><a>&x;</a>'
    try:
        found = ws.sql("select xpath_string(:cell, 'a') as a", cell=cell).to_arrow().to_pylist()
    except tl.errors.TruelineError:
        return
    assert "secret" not in json.dumps(found)


def test_every_function_of_this_spark_is_in_a_list(spark):
    names = {row[0] for row in spark.newSession().sql("show system functions").collect()}
    named = {name for name in names if name[0].isalpha()}
    assert named <= FUNCTIONS | set(REFUSED_FUNCTIONS)
    assert not FUNCTIONS & set(REFUSED_FUNCTIONS)
    assert named >= FUNCTIONS, "stale"


def test_words_are_those_of_sparks_lexer():
    text = "a /* x /* y */ z */ `b``c` 'd\\'e' r'\\' \"f\" -- g\\\nh\n/*+ i */"
    assert [(token.kind, token.name) for token in tokens(text)] == [
        ("word", "a"), ("quoted", "b`c"), ("string", "d\\'e"), ("string", "\\"), ("string", "f"),
        ("other", "/"), ("other", "*"), ("other", "+"), ("word", "i"), ("other", "*"), ("other", "/"),
    ]  # fmt: skip


# --- expressions of views ---------------------------------------------------------------------

EXPRESSIONS = [
    "reflect('java.lang.System', 'exit', '0')",
    "java_method('java.lang.System', 'exit', '0')",
    "__import__('os')",
    "eval('1')",
    "read_files('/x')",
    "(select 1)",
    "exists (select 1)",
    "(select * from text.`/x`)",
    "name.__class__",
    "a.b.c(1)",
    "transform(name) using 'x'",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_of_views_know_a_closed_list_of_functions(text):
    view = tl.View.from_arrow(pa.table({"name": ["a"]}))
    with pytest.raises(InputError):
        view.with_columns(x=text).to_arrow()
    with pytest.raises(InputError):
        view.filter(text).to_arrow()
