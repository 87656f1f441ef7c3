"""The library of queries: what the judge makes of each, equal bits however rows are cut, DuckDB's answers."""

from __future__ import annotations

import math
import struct

import duckdb
import pytest

import trueline as tl
from tests.examples import some
from tests.workspace.derive.queries import KEYS, MERGE, QUERIES, tables
from trueline.dataset.derivation import Derivation, KeyKind
from trueline.errors import TruelineError
from trueline.spark.canonical import function_names, versions_of
from trueline.workspace.derive.evaluate import query_session, with_room
from trueline.workspace.derive.exact import widened
from trueline.workspace.derive.judge import judged, judged_steps
from trueline.workspace.derive.reproducible import classes
from trueline.workspace.derive.strategies import with_strategy


@pytest.fixture(scope="module")
def library(tmp_path_factory, spark):
    """The tables in a session, and what the judge made of each query."""
    with tl.open(tmp_path_factory.mktemp("library") / "ws", create=True, spark=spark) as workspace:
        views = {name: tl.View.from_arrow(table) for name, table in tables().items()}
        with query_session(workspace, views) as session:
            yield session, {query.name: verdict(session, query) for query in QUERIES}


def verdict(session, query):
    try:
        return judged(session, query.sql, KEYS)
    except TruelineError as error:
        return error


def kind_of(found):
    if isinstance(found, TruelineError):
        return found.code
    return "opaque" if found.opaque_reason else "canonical"


@pytest.mark.contract("derive:V5")
def test_the_judge_knows_each_query(library):
    _, found = library
    assert {query.name: kind_of(found[query.name]) for query in QUERIES} == {
        query.name: query.kind for query in QUERIES
    }
    for query in QUERIES:
        if not query.is_run:
            assert found[query.name].remedy, query.name


@pytest.mark.contract("derive:V4")
@pytest.mark.contract("derive:V19")
def test_each_query_follows_by_the_strategy_that_is_expected_of_it(library, tmp_path):
    """Spark has the last word: a query that falls back to being recomputed is seen here."""
    session, found = library
    with tl.open(tmp_path / "ws", create=True) as workspace:
        inputs = {name: workspace.create(name, merge=MERGE.get(name)) for name in tables()}
        runs = [query for query in QUERIES if query.is_run]
        decided = {
            query.name: with_strategy(definition(found[query.name]), inputs, session) for query in runs
        }
    assert {name: (each.strategy, each.reason) for name, each in decided.items()} == {
        query.name: (query.strategy, query.reason) for query in runs
    }
    assert not any(query.how for query in QUERIES if not query.is_run)


def definition(verdict):
    """Return the definition of a query, as far as it decides how its inputs are followed."""
    return Derivation(
        (), (), verdict.key, verdict.key_kind, reason=verdict.opaque_reason, canonical=(verdict.canonical,)
    )


@pytest.mark.contract("derive:V6")
def test_keys_are_proven_where_the_query_proves_them(library):
    _, found = library
    for query in QUERIES:
        if query.key is not None:
            assert (found[query.name].key, found[query.name].key_kind) == (query.key, KeyKind.PROVEN), (
                query.name
            )
    for name in ("rollup", "function of a key", "join", "explode", "limit of a union", "window over groups"):
        assert found[name].key_kind is (KeyKind.PROVEN if name == "window over groups" else KeyKind.BAG), name


@pytest.mark.sampled
@pytest.mark.contract("derive:V4")
def test_results_have_the_same_bits_however_rows_are_cut_and_agree_with_duckdb(library):
    session, found = library
    runs = [query for query in QUERIES if query.is_run]
    cut = some((query.name for query in runs if depends_on_order(found[query.name])), 20)
    frames = {name: session.session.table(name) for name in tables()}
    one, other = {}, {}
    for answers, partitions, adaptive in ((one, 1, "false"), (other, 7, "true")):
        session.session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        session.session.conf.set("spark.sql.adaptive.enabled", adaptive)
        for name, frame in frames.items():
            frame.repartition(partitions).createOrReplaceTempView(name)
        for query in runs:
            if answers is one or query.name in cut:
                answers[query.name] = answer(session, found[query.name].canonical)
    for query in runs:
        assert bag(one[query.name]) == bag(other.get(query.name, one[query.name])), query.name
        key = found[query.name].key
        if found[query.name].key_kind is KeyKind.PROVEN:
            rows = [tuple(map(bits, (row[name] for name in key))) for row in one[query.name]]
            assert len(rows) == len(set(rows)), query.name
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    for name, table in tables().items():
        database.register(name, table)
    for query in runs:
        if query.duckdb:
            text = query.sql if query.duckdb is True else query.duckdb
            theirs = database.sql(text).to_arrow_table().to_pylist()
            assert rounded(one[query.name]) == rounded(theirs), query.name


def depends_on_order(verdict):
    """Say whether a query has what would depend on how rows are cut, if it were run as it was written."""
    return bool(verdict.repairs or "tl_" in verdict.canonical or "nanvl" in verdict.canonical)


def answer(session, text):
    return with_room(lambda wide: session.session.sql(widened(text) if wide else text).toArrow().to_pylist())


def bits(value):
    """Return a value so that it is equal only to one of the same bits."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return tuple((name, bits(each)) for name, each in value.items())
    return tuple(map(bits, value)) if isinstance(value, list) else value


def bag(rows):
    return sorted(repr(bits(row)) for row in rows)


def rounded(rows):
    """Return rows in an order of their own, numbers to nine digits."""

    def near(value):
        if isinstance(value, float):
            return "nan" if math.isnan(value) else f"{value + 0.0:.9e}"
        return [near(each) for each in value] if isinstance(value, list) else value

    return sorted(repr([near(value) for value in row.values()]) for row in rows)


def test_no_result_has_a_negative_zero(library):
    session, found = library
    for name in (
        "zeros and nan",
        "nested",
        "explode doubles",
        "distinct doubles",
        "union of doubles",
        "mode",
    ):
        assert struct.pack(">d", -0.0).hex() not in repr(bag(answer(session, found[name].canonical))), name


@pytest.mark.contract("derive:V5")
def test_every_function_of_spark_is_classified(library):
    session, _ = library
    assert function_names(session.session) - set(classes()) == set()


def test_steps_see_those_before_them(library):
    session, _ = library
    steps = [
        ("sums", "select k, sum(y) as s from t group by k"),
        ("large", "select * from sums where s > 20"),
        ("result", "select k, s, rank() over (order by s) as r from large"),
    ]
    found = judged_steps(session, steps, KEYS)
    assert [verdict.key for verdict in found] == [("k",)] * 3
    assert "*" not in found[1].expanded
    assert {row["r"] for row in answer(session, found[-1].canonical)} >= {1, 2}


def test_what_a_result_depends_on_beside_its_inputs_is_recorded(library):
    session, _ = library
    assert set(versions_of(session.session)) == {"spark", "java", "tzdata"}


@pytest.mark.contract("derive:V5")
def test_each_way_to_have_no_canonical_form_says_which_it_is(library):
    _, found = library
    reasons = {
        "sums of wide decimals": "wide_decimals",
        "list over a window": "ties",
        "maps by extremes": "ties",
        "ranks of grouping sets": "ties",
        "ranks of maps": "ties",
        "limit of maps": "ties",
        "last of a range": "ties",
    }
    assert {name: found[name].fields["reason"] for name in reasons} == reasons


def test_a_rewriting_that_means_another_thing_to_spark_is_not_used(library, monkeypatch):
    """sqlglot once took percentile_cont for percentile_approx; a condition that it lost would be as bad."""
    from sqlglot import exp

    from trueline.workspace.derive import judge

    real = judge.qualified

    def mistaken(query, tables):
        made = real(query, tables)
        made.set("where", None)
        for each in list(made.find_all(exp.WithinGroup)):
            value = each.expression.expressions[0].this
            each.replace(exp.Anonymous(this="percentile_approx", expressions=[value, each.this.this]))
        return made

    session, _ = library
    exact = "select d, percentile_cont(0.5) within group (order by y) as p from t group by d"
    some_rows = "select id, s from t where id > 5"
    for text in (exact, some_rows):
        assert not judge.judged(session, text, KEYS).opaque_reason
    monkeypatch.setattr(judge, "qualified", mistaken)
    with pytest.raises(TruelineError, match="may depend on the order of rows") as caught:
        judge.judged(session, exact, KEYS)
    assert (caught.value.code, caught.value.fields["reason"]) == ("Opaque", "round_trip")
    assert judge.judged(session, some_rows, KEYS).opaque_reason == "round_trip"
    assert "WHERE" in judge.judged(session, some_rows, KEYS).canonical.upper()


def test_a_plain_sum_that_was_left_is_found_in_the_plan(library, monkeypatch):
    session, _ = library
    from trueline.workspace.derive import judge
    from trueline.workspace.derive.canonical import CanonicalQuery

    monkeypatch.setattr(judge, "canonical", lambda query, *_: CanonicalQuery(judge.written(query), ()))
    for text in ("select k, sum(y) as s from t group by k", "select avg(y * 2) as a from t"):
        with pytest.raises(TruelineError, match="floating-point numbers is left"):
            judge.judged(session, text, KEYS)
