"""The functions of the language, one by one; casts, cases and spans."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.architecture import ROOT
from tests.view.expressions.function_table import differences, table
from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.kernel.vectors import sparse
from trueline.view.annotations import about
from trueline.view.expressions import expression
from trueline.view.expressions.functions.registry import ALIASES, functions
from trueline.view.schema import Field, Schema

NAN, INF = math.nan, math.inf
UTC = dt.UTC
LEAST = -(1 << 63)


def at(*parts):
    return dt.datetime(*parts, tzinfo=UTC)


ROWS = pa.record_batch(
    {
        "i": pa.array([7, -7, None, LEAST], pa.int64()),
        "k": pa.array([1, -2, None, 127], pa.int8()),
        "f": pa.array([2.5, -2.5, None, NAN]),
        "g": pa.array([0.5, 2.675, None, INF], pa.float32()),
        "m": pa.array([Decimal("2.50"), Decimal("-9.99"), None, Decimal("0.00")]),
        "s": pa.array(["Bern", " ä€𝄞 ", None, ""]),
        "p": pa.array(["a,b,,c", "x", None, ""]),
        "b": pa.array([True, False, None, True]),
        "d": pa.array([dt.date(2024, 2, 29), dt.date(1969, 12, 31), None, dt.date(2027, 1, 1)]),
        "t": pa.array(
            [at(2026, 11, 13, 12, 34, 56, 789), at(1969, 12, 31, 23, 59, 59, 1), None, at(1, 1, 1)],
            pa.timestamp("us", "UTC"),
        ),
        "c": pa.array([dt.time(1, 2, 3), dt.time(23, 59, 59), None, dt.time(0)], pa.time64("us")),
        "v": pa.array([[1.0, None, 3.0], [], None, [4.0]], pa.list_(pa.float64())),
        "z": pa.array([None] * 4, pa.null()),
    }
)
# One value for each row of the batch.
EXAMPLES = [
    # regular expressions
    ("regexp_replace(p, '[a-c]', '<$0>')", ["<a>,<b>,,<c>", "x", None, ""]),
    ("regexp_replace(p, '(a),(b)', '$2$1')", ["ba,,c", "x", None, ""]),
    ("regexp_replace(p, ',', '\\\\$')", ["a$b$$c", "x", None, ""]),
    ("regexp_replace(s, '[ä€]', '')", ["Bern", " 𝄞 ", None, ""]),
    ("regexp_extract(p, '(b),')", ["b", "", None, ""]),
    ("regexp_extract(p, '([a-z]),([a-z])?', 2)", ["b", "", None, ""]),
    ("regexp_extract(p, ',(q)?', 1)", ["", "", None, ""]),
    ("regexp_extract(p, 'b.', 0)", ["b,", "", None, ""]),
    ("regexp_extract(p, '(?:a)[(,](?P<x>b)', 1)", ["b", "", None, ""]),
    ("regexp_extract(s, '.$', 0)", ["n", " ", None, ""]),
    # forms
    ("date_format(d, '%d.%m.%Y')", ["29.02.2024", "31.12.1969", None, "01.01.2027"]),
    (
        "date_format(d, '%A %a %j %y %B %b %%')",
        [
            "Thursday Thu 060 24 February Feb %",
            "Wednesday Wed 365 69 December Dec %",
            None,
            "Friday Fri 001 27 January Jan %",
        ],
    ),
    (
        "date_format(t, '%FT%T.%f%z')",
        [
            "2026-11-13T12:34:56.000789+00:00",
            "1969-12-31T23:59:59.000001+00:00",
            None,
            "0001-01-01T00:00:00.000000+00:00",
        ],
    ),
    ("date_format(t, '%I:%M %p')", ["12:34 PM", "11:59 PM", None, "12:00 AM"]),
    ("round(5e-324, -1)", [0.0] * 4),
    # text
    ("lower(s)", ["bern", " ä€𝄞 ", None, ""]),
    ("upper(s)", ["BERN", " Ä€𝄞 ", None, ""]),
    ("trim(s)", ["Bern", "ä€𝄞", None, ""]),
    ("ltrim(s)", ["Bern", "ä€𝄞 ", None, ""]),
    ("rtrim(s)", ["Bern", " ä€𝄞", None, ""]),
    ("length(s)", [4, 5, None, 0]),
    ("reverse(s)", ["nreB", " 𝄞€ä ", None, ""]),
    ("substring(s, 2, 2)", ["er", "ä€", None, ""]),
    ("substring(s, 2)", ["ern", "ä€𝄞 ", None, ""]),
    ("substring(s, 0, 2)", ["Be", " ä", None, ""]),
    ("substring(s, -2)", ["rn", "𝄞 ", None, ""]),
    ("substring(s, -3, 2)", ["er", "€𝄞", None, ""]),
    ("substring(s, -9, 6)", ["B", " ä", None, ""]),
    ("substring(s, 2, -1)", ["", "", None, ""]),
    ("substring(s, k, 2)", ["Be", "𝄞 ", None, ""]),
    ("substring(s, 1, k)", ["B", "", None, ""]),
    ("left(s, 2)", ["Be", " ä", None, ""]),
    ("left(s, -1)", ["", "", None, ""]),
    ("right(s, 2)", ["rn", "𝄞 ", None, ""]),
    ("right(s, 0)", ["", "", None, ""]),
    ("concat(s, '-', p)", ["Bern-a,b,,c", " ä€𝄞 -x", None, "-"]),
    ("s || p", ["Berna,b,,c", " ä€𝄞 x", None, ""]),
    ("concat(s, null)", [None] * 4),
    ("concat_ws('-', s, null, p)", ["Bern-a,b,,c", " ä€𝄞 -x", "", "-"]),
    ("replace(s, 'er', '')", ["Bn", " ä€𝄞 ", None, ""]),
    ("replace(s, '', 'x')", ["Bern", " ä€𝄞 ", None, ""]),
    ("replace(p, p, s)", ["Bern", " ä€𝄞 ", None, ""]),
    ("starts_with(s, 'Be')", [True, False, None, False]),
    ("ends_with(s, 'n')", [True, False, None, False]),
    ("contains(s, 'er')", [True, False, None, False]),
    ("contains(s, substring(s, 2))", [True, True, None, True]),
    ("instr(s, 'n')", [4, 0, None, 0]),
    ("instr(s, '𝄞')", [0, 4, None, 0]),
    ("instr(s, '')", [1, 1, None, 1]),
    ("rlike(s, '^B.*n$')", [True, False, None, False]),
    ("s rlike 'r'", [True, False, None, False]),
    ("lpad(s, 5, '.')", [".Bern", " ä€𝄞 ", None, "....."]),
    ("lpad(s, 2)", ["Be", " ä", None, "  "]),
    ("rpad(s, 6, 'xy')", ["Bernxy", " ä€𝄞 x", None, "xyxyxy"]),
    ("split(p, ',')", [["a", "b", "", "c"], ["x"], None, [""]]),
    ("split(p, '.')", [["a,b,,c"], ["x"], None, [""]]),
    ("split(left(p, 2), '')", [["a", ","], ["x"], None, []]),
    ("split_part(p, ',', 2)", ["b", "", None, ""]),
    ("split_part(p, ',', -1)", ["c", "x", None, ""]),
    ("split_part(p, ',', 0)", [None] * 4),
    ("split_part(p, '', 1)", ["a,b,,c", "x", None, ""]),
    # numbers
    ("abs(i)", [7, 7, None, None]),
    ("abs(k)", [1, 2, None, 127]),
    ("abs(m)", [Decimal("2.50"), Decimal("9.99"), None, Decimal("0.00")]),
    ("sign(f)", [1.0, -1.0, None, NAN]),
    ("sign(i)", [1.0, -1.0, None, -1.0]),
    ("floor(f)", [2, -3, None, None]),
    ("ceil(f)", [3, -2, None, None]),
    ("floor(m)", [2, -10, None, 0]),
    ("ceil(k)", [1, -2, None, 127]),
    ("round(f)", [3.0, -3.0, None, NAN]),
    ("round(g, 2)", [0.5, float(np.float32(2.68)), None, INF]),
    ("round(f * 1.07, 2)", [2.68, -2.68, None, NAN]),
    ("round(i, -1)", [10, -10, None, None]),
    ("round(k, -2)", [0, 0, None, 100]),
    ("round(k, -30)", [0, 0, None, 0]),
    ("round(k, 1)", [1, -2, None, 127]),
    ("round(m, 1)", [Decimal("2.50"), Decimal("-10.00"), None, Decimal("0.00")]),
    ("sqrt(f)", [2.5**0.5, None, None, NAN]),
    ("ln(f)", [math.log(2.5), None, None, NAN]),
    ("log10(m)", [math.log10(2.5), None, None, None]),
    ("log2(power(2, k))", [1.0, -2.0, None, 127.0]),
    ("exp(k)", [math.e, math.exp(-2), None, math.exp(127)]),
    ("power(f, 2)", [6.25, 6.25, None, NAN]),
    ("power(f, 0.5)", [2.5**0.5, None, None, NAN]),
    ("mod(i, 4)", [3, -3, None, 0]),
    ("mod(i, 0)", [None] * 4),
    ("div(i, 2)", [3, -3, None, LEAST // 2]),
    ("i div -1", [-7, 7, None, None]),
    ("i div 0", [None] * 4),
    ("isnan(f)", [False, False, False, True]),
    ("isnan(i)", [False] * 4),
    ("nanvl(f, 0)", [2.5, -2.5, None, 0.0]),
    # days and moments
    ("year(d)", [2024, 1969, None, 2027]),
    ("year(t)", [2026, 1969, None, 1]),
    ("quarter(d)", [1, 4, None, 1]),
    ("month(d)", [2, 12, None, 1]),
    ("weekofyear(d)", [9, 1, None, 53]),
    ("day(d)", [29, 31, None, 1]),
    ("dayofyear(d)", [60, 365, None, 1]),
    ("dayofweek(d)", [5, 4, None, 6]),
    ("weekday(d)", [3, 2, None, 4]),
    ("hour(t)", [12, 23, None, 0]),
    ("hour(c)", [1, 23, None, 0]),
    ("hour(d)", [0, 0, None, 0]),
    ("minute(t)", [34, 59, None, 0]),
    ("second(t)", [56, 59, None, 0]),
    ("extract(month from d)", [2, 12, None, 1]),
    ("date_trunc('year', t)", [at(2026, 1, 1), at(1969, 1, 1), None, at(1, 1, 1)]),
    ("date_trunc('quarter', t)", [at(2026, 10, 1), at(1969, 10, 1), None, at(1, 1, 1)]),
    ("date_trunc('month', d)", [at(2024, 2, 1), at(1969, 12, 1), None, at(2027, 1, 1)]),
    ("date_trunc('week', d)", [at(2024, 2, 26), at(1969, 12, 29), None, at(2026, 12, 28)]),
    ("date_trunc('DAY', t)", [at(2026, 11, 13), at(1969, 12, 31), None, at(1, 1, 1)]),
    ("date_trunc('hour', t)", [at(2026, 11, 13, 12), at(1969, 12, 31, 23), None, at(1, 1, 1)]),
    ("datediff(d, date'2024-02-28')", [1, -19782, None, 1038]),
    ("datediff(t, d)", [988, 0, None, -739981]),
    ("date_add(d, 1)", [dt.date(2024, 3, 1), dt.date(1970, 1, 1), None, dt.date(2027, 1, 2)]),
    ("date_add(d, k)", [dt.date(2024, 3, 1), dt.date(1969, 12, 29), None, dt.date(2027, 5, 8)]),
    ("date_sub(d, 31)", [dt.date(2024, 1, 29), dt.date(1969, 11, 30), None, dt.date(2026, 12, 1)]),
    ("date_add(d, 9223372036854775807)", [None] * 4),
    ("add_months(d, 12)", [dt.date(2025, 2, 28), dt.date(1970, 12, 31), None, dt.date(2028, 1, 1)]),
    ("add_months(d, -10)", [dt.date(2023, 4, 29), dt.date(1969, 2, 28), None, dt.date(2026, 3, 1)]),
    ("unix_seconds(t)", [1794573296, -1, None, -62135596800]),
    ("unix_millis(t)", [1794573296000, -1000, None, -62135596800000]),
    ("unix_micros(t)", [1794573296000789, -999999, None, -62135596800000000]),
    ("unix_seconds(d)", [1709164800, -86400, None, 1798761600]),
    (
        "timestamp_seconds(k)",
        [at(1970, 1, 1, 0, 0, 1), at(1969, 12, 31, 23, 59, 58), None, at(1970, 1, 1, 0, 2, 7)],
    ),
    (
        "timestamp_millis(k)",
        [
            at(1970, 1, 1, 0, 0, 0, 1000),
            at(1969, 12, 31, 23, 59, 59, 998000),
            None,
            at(1970, 1, 1, 0, 0, 0, 127000),
        ],
    ),
    (
        "timestamp_micros(k)",
        [
            at(1970, 1, 1, 0, 0, 0, 1),
            at(1969, 12, 31, 23, 59, 59, 999998),
            None,
            at(1970, 1, 1, 0, 0, 0, 127),
        ],
    ),
    ("timestamp_seconds(9223372036854775807)", [None] * 4),
    ("to_date('13.11.2026', '%d.%m.%Y')", [dt.date(2026, 11, 13)] * 4),
    ("to_date(t)", [dt.date(2026, 11, 13), dt.date(1969, 12, 31), None, dt.date(1, 1, 1)]),
    ("to_timestamp(d)", [at(2024, 2, 29), at(1969, 12, 31), None, at(2027, 1, 1)]),
    ("to_timestamp('13.11.2026 01:02', '%d.%m.%Y %H:%M')", [at(2026, 11, 13, 1, 2)] * 4),
    ("to_timestamp(s)", [None] * 4),
    # spans
    ("d + interval 1 day", [dt.date(2024, 3, 1), dt.date(1970, 1, 1), None, dt.date(2027, 1, 2)]),
    ("interval 1 day + d", [dt.date(2024, 3, 1), dt.date(1970, 1, 1), None, dt.date(2027, 1, 2)]),
    ("d - interval 1 hour", [at(2024, 2, 28, 23), at(1969, 12, 30, 23), None, at(2026, 12, 31, 23)]),
    ("d + interval '1 day 2 hours'", [at(2024, 3, 1, 2), at(1970, 1, 1, 2), None, at(2027, 1, 2, 2)]),
    ("d + interval 1 month", [dt.date(2024, 3, 29), dt.date(1970, 1, 31), None, dt.date(2027, 2, 1)]),
    ("d - interval 1 year", [dt.date(2023, 2, 28), dt.date(1968, 12, 31), None, dt.date(2026, 1, 1)]),
    (
        "t + interval 1 month",
        [at(2026, 12, 13, 12, 34, 56, 789), at(1970, 1, 31, 23, 59, 59, 1), None, at(1, 2, 1)],
    ),
    (
        "t + interval 1.5 seconds",
        [
            at(2026, 11, 13, 12, 34, 57, 500789),
            at(1970, 1, 1, 0, 0, 0, 500001),
            None,
            at(1, 1, 1, 0, 0, 1, 500000),
        ],
    ),
    ("t - d > interval 900 days", [True, False, None, False]),
    ("d - d", [dt.timedelta(0), dt.timedelta(0), None, dt.timedelta(0)]),
    (
        "t - timestamp'2026-11-13 12:00:00'",
        [
            dt.timedelta(minutes=34, seconds=56, microseconds=789),
            at(1969, 12, 31, 23, 59, 59, 1) - at(2026, 11, 13, 12),
            None,
            at(1, 1, 1) - at(2026, 11, 13, 12),
        ],
    ),
    ("(t - t) + interval 1 day", [dt.timedelta(1), dt.timedelta(1), None, dt.timedelta(1)]),
    ("t + interval '106751990 days' is null", [True, False, True, False]),
    ("t - interval '106751990 days' is null", [False, False, True, True]),
    # choosing
    ("coalesce(z, i, 1)", [7, -7, 1, LEAST]),
    ("coalesce(s, 'none')", ["Bern", " ä€𝄞 ", "none", ""]),
    ("coalesce(z, null)", [None] * 4),
    (
        "coalesce(d, '2026-01-01')",
        [dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(2027, 1, 1)],
    ),
    ("nullif(i, 7)", [None, -7, None, LEAST]),
    ("nullif(f, f)", [None, None, None, NAN]),
    ("isnull(s)", [False, False, True, False]),
    ("isnotnull(s)", [True, True, False, True]),
    ("least(k, 5)", [1, -2, 5, 5]),
    ("least(f, 3)", [2.5, -2.5, 3.0, 3.0]),
    ("greatest(f, g)", [2.5, float(np.float32(2.675)), None, NAN]),
    ("greatest(1, k, null)", [1, 1, 1, 127]),
    ("least(s, 'C')", ["Bern", " ä€𝄞 ", "C", ""]),
    ("if(b, i, k)", [7, -2, None, LEAST]),
    ("if(i > 0, 'up')", ["up", None, None, None]),
    ("case when i > 0 then 'up' when i < 0 then 'down' else 'none' end", ["up", "down", "none", "down"]),
    ("case k when 1 then 'one' when null then 'x' end", ["one", None, None, None]),
    ("case when b then m end", [Decimal("2.50"), None, None, Decimal("0.00")]),
    ("case when true then 1 else 2 end", [1] * 4),
    # casts
    ("cast(f as int)", [2, -2, None, None]),
    ("cast(i as tinyint)", [7, -7, None, None]),
    ("try_cast(p as double)", [None] * 4),
    ("cast(m as text)", ["2.50", "-9.99", None, "0.00"]),
    ("cast('12' as int8) + k", [13, 10, None, 139]),
    ("cast(v as vector(int64, 1))", [None, None, None, [4]]),
    ("cast(t as date)", [dt.date(2026, 11, 13), dt.date(1969, 12, 31), None, dt.date(1, 1, 1)]),
    ("cast(z as date)", [None] * 4),
    ("cast(null as text)", [None] * 4),
    # vectors
    ("size(v)", [3, 0, None, 1]),
    ("item(v, 2)", [3.0, None, None, None]),
    ("v[0]", [1.0, None, None, 4.0]),
    ("v[-1]", [None] * 4),
    ("v[size(v) - 1]", [3.0, None, None, 4.0]),
    ("element_at(v, 1)", [1.0, None, None, 4.0]),
    ("element_at(v, -1)", [3.0, None, None, 4.0]),
    ("element_at(v, 0)", [None] * 4),
    ("array(i, k, 1)", [[7, 1, 1], [-7, -2, 1], [None, None, 1], [LEAST, 127, 1]]),
    ("size(split(p, ','))", [4, 1, None, 1]),
    ("coalesce(v, array(0.0))", [[1.0, None, 3.0], [], [0.0], [4.0]]),
]


def values(text, batch=ROWS, **parameters):
    found = expression(text, batch.schema, parameters)
    return found.values(batch.select(list(found.columns)), batch.num_rows)


def named(found):
    if isinstance(found, list):
        return [named(each) for each in found]
    return "NaN" if isinstance(found, float) and math.isnan(found) else found


@pytest.mark.parametrize(("text", "expected"), EXAMPLES, ids=[text for text, _ in EXAMPLES])
def test_an_expression_means_what_the_page_says(text, expected):
    found = values(text)
    assert named(found.to_pylist()) == named(expected)
    # A row's value does not depend on the rows beside it, nor on where they begin.
    for row in range(4):
        alone = values(text, ROWS.slice(row, 1))
        assert alone.type == found.type
        assert named(alone.to_pylist()) == named(expected[row : row + 1])
    assert values(text, ROWS.slice(0, 0)).type == found.type


def test_every_function_has_an_example():
    written = " ".join(text for text, _ in EXAMPLES)
    assert [name for name in functions() if f"{name}(" not in written] == []


@pytest.mark.parametrize(("alias", "name"), sorted(ALIASES.items()))
def test_other_names_lead_to_functions(alias, name):
    assert name in functions()
    assert alias not in functions()
    arguments = {
        "concat": "s, s",
        "substring": "s, 1",
        "power": "f, 2",
        "coalesce": "i, 1",
        "rlike": "s, 'a'",
        "starts_with": "s, 'a'",
        "ends_with": "s, 'a'",
        "date_add": "d, 1",
    }
    taken = {"text": "s", "number": "f", "moment": "d", "clock": "t"}
    given = arguments.get(name) or taken[functions()[name].takes[0]]
    assert str(values(f"{alias.upper()}({given})")) == str(values(f"{name}({given})"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("coalesce(k, 0)", t.int8),
        ("coalesce(k, 1000)", t.int64),
        ("coalesce(k, 1.5)", t.float64),
        ("coalesce(g, 0)", t.float32),
        ("coalesce(g, f)", t.float64),
        ("coalesce(k, i)", t.int64),
        ("coalesce(m, 0)", t.decimal(3, 2)),
        ("coalesce(m, k)", t.decimal(21, 2)),
        ("coalesce(d, t)", t.timestamp()),
        ("coalesce(null, k)", t.int8),
        ("if(b, cast(k as uint8), k)", t.int16),
        ("if(b, cast(k as uint64), k)", t.decimal(20)),
        ("k + 1", t.int64),
        ("g + 1", t.float64),
        ("k / 2", t.float64),
        ("array(k, 1)", t.vector(t.int8, 2)),
        ("cast(k as category(3))", t.category(3)),
        ("split(s, ',')", t.vector(t.text)),
        ("t - t", t.duration("us")),
        ("d - d", t.duration("s")),
        ("null", t.Nested(pa.null())),
    ],
)
def test_the_type_of_an_expression_is_known_before_a_row_is_read(text, kind):
    assert expression(text, ROWS.schema).kind == kind


def test_constants_are_reckoned_out_once_so_that_they_rule_out_rows():
    found = expression("d >= date'2026-01-02' - interval 1 day and i < 2 * 3", ROWS.schema)
    day = 86_400 * 10**9
    assert found.bounds["d"].low == (dt.date(2026, 1, 1) - dt.date(1970, 1, 1)).days * day
    assert found.bounds["i"].high == 5


def test_an_expression_can_be_sent_to_another_process():
    found = expression("case when s like 'B%' then cast(f as decimal(4, 1)) end", ROWS.schema)
    again = pickle.loads(pickle.dumps(found))
    assert again.values(ROWS, 4).equals(found.values(ROWS, 4))


# --- categories, row ids, vectors ---------------------------------------------------------


@pytest.fixture
def marked():
    fields = [
        Field("c", t.category(3), about(category_values=["x", "y", "z"])),
        Field("e", t.category(3)),
        Field("o", t.category(4)),
        Field("v", t.vector(t.category(3))),
        Field("id", t.rowid),
        Field("n", t.int64),
    ]
    ids = [bytes(15) + bytes([n]) for n in range(3)]
    columns = [[0, 1, None], [0, 2, 2], [0, 1, 2], [[0, 1], [], None], ids, [0, 1, 2]]
    return tl.View.from_arrow(pa.table(columns, schema=Schema(fields).to_arrow()))


@pytest.mark.contract("view:C14")
@pytest.mark.parametrize(
    "text",
    [
        "c + 1",
        "-c",
        "c > 1",
        "c = 1",
        "c = o",
        "c = n",
        "c in (1, 2)",
        "coalesce(c, 0)",
        "coalesce(c, o)",
        "abs(c)",
        "least(c, e)",
        "if(n = 1, c, n)",
        "id > id",
        "id = x'00'",
        "length(id)",
        "round(c)",
        "array(c, n)",
        "v[c]",
        "v[0] + 1",
        "coalesce(c, e) + 1",
        "case n when c then 1 end",
        "n % c",
        "c between 1 and 2",
    ],
)
def test_a_category_or_a_row_id_is_not_reckoned_with(marked, text):
    with pytest.raises(SchemaError) as caught:
        marked.with_columns(y=text)
    assert caught.value.code == "TypeMismatch"
    assert "cast" in caught.value.remedy


@pytest.mark.contract("view:C14")
@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("c = e", t.boolean, [True, False, None]),
        ("c is null", t.boolean, [False, False, True]),
        ("c <=> e", t.boolean, [True, False, False]),
        ("coalesce(c, e)", t.category(3), [0, 1, 2]),
        ("nullif(c, e)", t.category(3), [None, 1, None]),
        ("if(n > 0, c, null)", t.category(3), [None, 1, None]),
        ("cast(c as int64) + 1", t.int64, [1, 2, None]),
        ("cast(n as category(2))", t.category(2), [0, 1, None]),
        ("v[0]", t.category(3), [0, None, None]),
        ("array(c, e)", t.vector(t.category(3), 2), [[0, 0], [1, 2], [None, 2]]),
        ("size(v)", t.int64, [2, 0, None]),
        ("cast(id as text) = '" + "0" * 31 + "1'", t.boolean, [False, True, False]),
        ("id = id", t.boolean, [True] * 3),
        ("isnull(id)", t.boolean, [False] * 3),
    ],
)
def test_a_category_or_a_row_id_is_compared_with_its_kind_chosen_and_cast(marked, text, kind, expected):
    view = marked.with_columns(y=text)
    assert view.schema["y"].type == kind
    assert view.to_arrow()["y"].to_pylist() == expected


@pytest.mark.contract("view:C107")
@pytest.mark.parametrize(
    "text",
    [
        "size(v)",
        "v[1]",
        "element_at(v, -1)",
        "v is null",
        "cast(v as vector(text, 3))",
        "coalesce(v, w)",
        "case when size(v) > 2 then v end",
        "isnotnull(v)",
        "v",
    ],
)
def test_sparse_vectors_are_worth_what_dense_ones_are(text):
    kind = t.vector(t.float64)
    array = pa.array([[0.0, 2.0, 0.0], [], None, [None, NAN, 1.0], [0.0]], kind.arrow)
    dense = pa.record_batch([array, array], names=["v", "w"])
    there = pa.array([True, False, True, True, False]).to_numpy(zero_copy_only=False)
    for encoded in (sparse(array, kind), sparse(array, kind, there)):
        one = values(text, dense)
        found = expression(text, dense.schema)
        other = found.values(
            pa.record_batch([encoded, encoded], names=["v", "w"]).select(list(found.columns)), 5
        )
        assert str(other) == str(one)


# --- parameters -----------------------------------------------------------------------------


def test_keywords_are_parameters_where_a_text_names_them():
    view = tl.View.from_rows([{"x": 1, "s": "a"}])
    more = view.with_columns(y="x + :a", z="concat(s, :t)", a=2, t=":y or 'x")
    assert more.to_arrow().to_pydict() == {"x": [1], "s": ["a"], "y": [3], "z": ["a:y or 'x"]}
    named = view.with_columns({"y": "x + :y"}, y=5)
    assert named.to_arrow()["y"].to_pylist() == [6]


@pytest.mark.parametrize(
    ("texts", "keywords", "message"),
    [
        ({}, {"y": 5}, "no expression names :y"),
        ({}, {"y": "x + :a"}, "no value for the parameter"),
        ({}, {"y": "':a'", "a": 1}, "no expression names :a"),
        ({}, {"y": "x -- :a", "a": 1}, "no expression names :a"),
        ({}, {"y": "`:a`", "a": 1}, "no expression names :a"),
        ({}, {"y": "x + :z", "z": "x + :y"}, "name each other"),
        ({"y": "x"}, {"y": "x"}, "two columns"),
        ({"y": 3}, {}, "no expression"),
    ],
)
def test_what_is_neither_column_nor_parameter_is_refused(texts, keywords, message):
    with pytest.raises(InputError, match=message):
        tl.View.from_rows([{"x": 1}]).with_columns(texts, **keywords)


# --- the page -------------------------------------------------------------------------------


def test_the_page_lists_every_function_and_every_difference():
    page = (ROOT / "docs" / "expressions.md").read_text(encoding="utf-8")
    assert table() in page
    assert differences() in (ROOT / "docs" / "expressions-and-spark.md").read_text(encoding="utf-8")


WORDS = st.sampled_from(
    [
        "x",
        "s",
        "1",
        "'a'",
        "(",
        ")",
        "+",
        "-",
        "upper(",
        "cast(",
        " as int)",
        ",",
        "case when ",
        " then ",
        " end",
        "[",
        "]",
        " and ",
        "interval ",
        " day",
        ":p",
        "null",
        "coalesce(",
        "is null",
        "||",
    ]
)


@given(st.lists(WORDS, max_size=8).map("".join))
def test_any_text_is_an_expression_or_refused_with_a_remedy(text):
    schema = pa.schema({"x": pa.int64(), "s": pa.string()})
    try:
        found = expression(text, schema, {"p": 1} if ":p" in text else {})
    except InputError as refused:
        problem = refused
    else:
        problem = None
    if problem is not None:
        assert problem.code
        assert problem.remedy
        return
    batch = pa.record_batch([pa.array([1, None]), pa.array(["a", None])], schema=schema)
    assert len(found.values(batch.select(list(found.columns)), 2)) == 2
