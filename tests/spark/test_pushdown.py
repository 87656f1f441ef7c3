"""Conditions of Spark on `format("trueline")`: what they rule out is not read, and no row is lost."""

from __future__ import annotations

import operator
import pickle
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import datasource as s

import trueline as tl
from trueline.dataset.read.slice_reader import SliceFile
from trueline.spark.packing import pack, unpack
from trueline.spark.pushdown import ENABLED, Conditions
from trueline.spark.source import FilteringReader, TruelineSource, register

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def ws(tmp_path_factory):
    with tl.open(tmp_path_factory.mktemp("pushdown") / "ws", create=True) as opened:
        events = opened.create("events")
        for part in range(5):
            numbers = range(part * 100, part * 100 + 100)
            events.append(
                pa.table(
                    {
                        "n": numbers,
                        "k": [n % 3 for n in numbers],
                        "at": pa.array(
                            [START + timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")
                        ),
                        "day": [date(2026, 1, 1) + timedelta(days=n) for n in numbers],
                        "fine": pa.array([n * 1_000 for n in numbers], pa.timestamp("ns")),
                        "big": pa.array([n + 2**63 for n in numbers], pa.uint64()),
                        "s": [f"t{n}" for n in numbers],
                        "m": [None if n % 2 else n for n in numbers],
                    }
                )
            )
        people = opened.create("people", merge=tl.merge.upsert(["id", "part"]))
        people.append(
            pa.table({"id": range(3_000), "part": ["a"] * 3_000, "x": [float(n) for n in range(3_000)]})
        )
        people.append(pa.table({"id": [5, 7], "part": ["a", "b"], "x": [50.0, 70.0]}))
        yield opened


@pytest.fixture(scope="module")
def session(spark):
    own = spark.newSession()
    own.conf.set(ENABLED, "true")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    register(own)
    return own


def load(session, ws, name, **options):
    reader = session.read.format("trueline").option("workspace", ws.location).option("dataset", name)
    return reader.options(**options).load()


CONDITIONS = [
    "n = 250",
    "n > 450",
    "n <= 20 and k = 1",
    "n between 100 and 110",
    "n in (3, 499)",
    "n = 1.5",
    "n <=> 7",
    "m is null and n > 300",
    "m > 480",
    "not (n < 490)",
    "at > timestamp '2026-01-20 00:00:00' and at < timestamp '2026-01-20 05:00:00'",
    "day = date '2026-03-01'",
    "fine = timestamp_ntz '1970-01-01 00:00:00.000400'",
    "big = 9223372036854776058",
    "big > 9223372036854775900",
    "s = 't7'",
    "s like 't49%'",
    "n > 1000",
    "n < 3 or n > 497",
]


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_gives_the_rows_it_gives_without_pushdown(session, ws, where):
    frame = load(session, ws, "events")
    expected = ws["events"].view().to_spark(session).where(where)
    assert frame.where(where).sort("n").toArrow().equals(expected.sort("n").toArrow())


def read(ws, name, *filters, **options):
    """Return the rows that tasks read under conditions, before Spark looks at them."""
    source = TruelineSource({"workspace": ws.location, "dataset": name, **options})
    reader = FilteringReader(source.asked, source.schema(), "")
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates each of them"
    return [
        row
        for partition in reader.partitions()
        for batch in (reader.read(partition) if partition.value is not None else ())
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("filters", "slices"),
    [
        ([s.EqualTo(("n",), 250)], {2}),
        ([s.GreaterThan(("n",), 299), s.LessThan(("n",), 400)], {3}),
        ([s.In(("n",), (5, 150))], {0, 1}),
        ([s.GreaterThanOrEqual(("at",), START + timedelta(hours=400))], {4}),
        ([s.LessThanOrEqual(("day",), date(2026, 1, 5))], {0}),
        ([s.Not(s.EqualTo(("n",), 250))], {0, 1, 2, 3, 4}),
        ([s.EqualTo(("s",), "t1")], {0, 1, 2, 3, 4}),
        ([s.EqualTo(("fine",), datetime(1970, 1, 1))], {0, 1, 2, 3, 4}),
        ([s.EqualTo(("big",), 2**63)], {0, 1, 2, 3, 4}),
        ([s.EqualTo(("n", "x"), 1)], {0, 1, 2, 3, 4}),
        ([s.EqualTo(("n",), None)], {0, 1, 2, 3, 4}),
        ([s.In(("n",), (1, None))], {0}),
    ],
)
def test_groups_of_rows_that_are_ruled_out_are_not_read(ws, filters, slices):
    assert {row["n"] // 100 for row in read(ws, "events", *filters)} == slices


def test_the_columns_of_the_system_are_compared_too(ws):
    found = read(ws, "events", s.EqualTo(("offset",), 42), system="true")
    assert [row["n"] for row in found] == [42]


def test_keys_that_conditions_name_are_looked_up(ws):
    assert read(ws, "people", s.EqualTo(("id",), 5), s.EqualTo(("part",), "a")) == [
        {"id": 5, "part": "a", "x": 50.0}
    ]
    several = read(ws, "people", s.In(("id",), (7, 8, 9_999)), s.In(("part",), ("b", "a")))
    assert [(row["id"], row["part"]) for row in several] == [(7, "a"), (7, "b"), (8, "a")]
    assert read(ws, "people", s.EqualTo(("id",), 2**70), s.EqualTo(("part",), "a")) == [], "no such number"


def test_ranges_of_the_key_leave_the_rest_of_the_state(ws):
    found = read(ws, "people", s.GreaterThan(("id",), 2_990))
    assert [row["id"] for row in found] == list(range(2_991, 3_000))
    assert read(ws, "people", s.GreaterThan(("id",), 9_000)) == []
    assert len(read(ws, "people", s.EqualTo(("x",), 50.0))) == 3_001, "a column that is not of the key"


def test_keyed_rows_are_found_through_spark(session, ws):
    frame = load(session, ws, "people")
    assert frame.where("id = 7 and part = 'b'").toArrow().to_pylist() == [{"id": 7, "part": "b", "x": 70.0}]
    assert frame.where("id < 8").count() == 9
    assert frame.where("id = 7 or part = 'b'").count() == 2


def test_a_state_that_is_gone_changes_nothing(session, tmp_path):
    with tl.open(tmp_path / "ws", create=True) as opened:
        made = opened.create("x", merge=tl.merge.upsert("id"))
        made.append(pa.table({"id": range(9), "v": range(9)}))
        for path in (tmp_path / "ws").rglob("checkpoints/*"):
            path.unlink()
        assert load(session, opened, "x").where("id = 7").toArrow().to_pylist() == [{"id": 7, "v": 7}]


def test_a_session_that_hands_no_conditions_over_reads_all(spark, ws):
    plain = spark.newSession()
    plain.conf.set(ENABLED, "false")
    register(plain)
    assert load(plain, ws, "events").where("n = 250").count() == 1


def test_a_view_of_this_process_passes_over_groups_of_rows_too(ws, monkeypatch):
    seen = []
    real = SliceFile._may_match
    monkeypatch.setattr(SliceFile, "_may_match", lambda *args: seen.append(real(*args)) or seen[-1])
    assert ws["events"].view().filter("n = 250").count() == 1
    assert sorted(seen) == [False] * 4 + [True]


def test_a_filter_of_a_keyed_view_reads_a_range_of_keys(ws):
    view = ws["people"].view()
    assert view.filter("id >= 2995 and id < 2997").to_arrow()["x"].to_pylist() == [2995.0, 2996.0]


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**63 - 1])
def test_ranges_of_keys_hold_at_the_ends_of_the_type(tmp_path, number):
    compare = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    with tl.open(tmp_path / "ws", create=True) as opened:
        made = opened.create("x", merge=tl.merge.upsert("id"))
        ids = sorted({number, -(2**63), 0, 2**63 - 1})
        made.append(pa.table({"id": pa.array(ids, pa.int64())}))
        for sign, holds in compare.items():
            found = made.view().filter(f"id {sign} :n", n=number).to_arrow()["id"].to_pylist()
            assert found == [each for each in ids if holds(each, number)], sign


def test_conditions_travel():
    made = Conditions((s.EqualTo(("n",), 1),))
    assert unpack(pack(made)) == pickle.loads(pickle.dumps(made)) == made
