"""The expression language: what it means, what it refuses, what it rules out."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from trueline.errors import InputError, SchemaError
from trueline.view.expressions import condition, parse
from trueline.view.plan.node import Interval

NAN = float("nan")
SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1
ROWS = pa.record_batch(
    {
        "i": pa.array([1, 2, None, SMALLEST, LARGEST], pa.int64()),
        "f": pa.array([0.5, NAN, None, -1.0, 2.0]),
        "s": pa.array(["a%", "Abc", None, "b_c", ""]),
        "b": pa.array([True, False, None, True, False]),
        "d": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(1969, 12, 31), date(9999, 12, 31)]),
        "t": pa.array([0, 1, None, -1, 10**12], pa.timestamp("ms", "UTC")),
        "m": pa.array([Decimal("0.10"), Decimal("2.00"), None, Decimal("-1.50"), Decimal("9.99")]),
        "u": pa.array([0, 1, None, 1 << 63, (1 << 64) - 1], pa.uint64()),
        "with space": pa.array([1, 2, 3, 4, None], pa.int8()),
        "y": pa.array([b"\x00", b"\x01", None, b"", b"\xff"]),
        "k": pa.array([time(1), time(2), None, time(3), time(4)], pa.time32("s")),
        "c": pa.array(["x", "y", None, "x", "x"]).dictionary_encode(),
        "z": pa.array([None] * 5, pa.null()),
    }
)


def rows(text: str, **parameters: object) -> list[int]:
    """The numbers of the rows that are kept."""
    return np.flatnonzero(condition(text, ROWS.schema, parameters).mask(ROWS)).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 1", [0]),
        ("i <> 1", [1, 3, 4]),
        ("i != 1 and i > 0", [1, 4]),
        ("not i = 1", [1, 3, 4]),
        ("i = 1 or i = 2", [0, 1]),
        ("i is null", [2]),
        ("i is not null", [0, 1, 3, 4]),
        ("i in (1, 2)", [0, 1]),
        ("i not in (1, 2)", [3, 4]),
        ("i not in (1, null)", []),
        ("i in (1, null)", [0]),
        ("i in (1.0, 2.5)", [0]),
        ("i between 1 and 2", [0, 1]),
        ("i not between 1 and 2", [3, 4]),
        (f"i = {SMALLEST}", [3]),
        (f"i > {LARGEST}", []),
        ("i < 99999999999999999999", [0, 1, 3, 4]),
        ("f > 0", [0, 4]),
        ("f = f", [0, 3, 4]),
        ("f in (0.5, 2)", [0, 4]),
        ("s like 'a%'", [0]),
        ("s ilike 'a%'", [0, 1]),
        (r"s like '%\\_%'", [3]),
        ("s like '%!%' escape '!'", [0]),
        ("s not like '%c'", [0, 4]),
        ("s like null", []),
        ("s = ''", [4]),
        ("b", [0, 3]),
        ("not b", [1, 4]),
        ("b is true", [0, 3]),
        ("b is not true", [1, 2, 4]),
        ("b is false or b is null", [1, 2, 4]),
        ("d = date'2026-01-01'", [0]),
        ("d >= '2026-01-01'", [0, 1, 4]),
        ("d < timestamp'2026-01-01 00:00:01'", [0, 3]),
        ("t = timestamp'1970-01-01T00:00:00Z'", [0]),
        ("t > timestamp'1970-01-01 01:00:00+01:00'", [1, 4]),
        ("t >= '1970-01-01'", [0, 1, 4]),
        ("t < timestamp'1970-01-01 00:00:00.000000001'", [0, 3]),
        ("m = 0.1", [0]),
        ("m > 2", [4]),
        ("m + 1 = 1.1", [0]),
        ("u > 9223372036854775807", [3, 4]),
        ("u > i", [3, 4]),
        ("`with space` = 2", [1]),
        ("y = x'00'", [0]),
        ("k >= '02:00:00'", [1, 3, 4]),
        ("c = 'x'", [0, 3, 4]),
        ("c in ('y', 'z')", [1]),
        ("c like 'x'", [0, 3, 4]),
        ("z is null", [0, 1, 2, 3, 4]),
        ("z = 1", []),
        ("i is distinct from null", [0, 1, 3, 4]),
        ("i <=> null", [2]),
        ("i is not distinct from 1", [0]),
        ("1 = 1", [0, 1, 2, 3, 4]),
        ("null", []),
        ("true and null", []),
        ("null or i = 1", [0]),
        ("i = 1 -- and a comment", [0]),
    ],
)
def test_a_condition_keeps_exactly_its_rows(text, expected):
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i / 0 is null", [0, 1, 2, 3, 4]),
        ("i % 0 is null", [0, 1, 2, 3, 4]),
        ("i + 1 is null", [2, 4]),
        ("i - 1 is null", [2, 3]),
        ("i * 2 is null", [2, 3, 4]),
        ("-i is null", [2, 3]),
        ("i + 1 = 2", [0]),
        ("i / 2 = 0.5", [0]),
        ("i % 2 = 1", [0, 4]),
        ("i % -1 = 0", [0, 1, 3, 4]),
        ("f % 0.4 > 0.09", [0, 4]),
        ("f / 0 is null", [0, 1, 2, 3, 4]),
        ("i * z is null", [0, 1, 2, 3, 4]),
        ("5 % 3 = 2 and 5 / 0 is null", [0, 1, 2, 3, 4]),
        ("u + 1 > 18446744073709551615", [4]),
    ],
)
def test_what_has_no_answer_is_missing_and_never_an_error(text, expected):
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("i = :a", 1, [0]),
        ("i = :a", np.int32(1), [0]),
        ("i in :a", [1, 2], [0, 1]),
        ("i in (:a)", (1, 2), [0, 1]),
        ("i in :a", [], []),
        ("i not in :a", [], [0, 1, 2, 3, 4]),
        ("s = :a", "Abc", [1]),
        ("s = :a", "' or 1 = 1 --", []),
        ("d = :a", date(2026, 1, 1), [0]),
        ("t = :a", datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), [0]),
        ("t = :a", datetime(1970, 1, 1), [0]),
        ("m = :a", Decimal("0.1"), [0]),
        ("b = :a", True, [0, 3]),
        ("y = :a", b"\x01", [1]),
        ("k = :a", time(1), [0]),
        ("i is distinct from :a", None, [0, 1, 3, 4]),
        ("u = :a", (1 << 64) - 1, [4]),
        ("f = :a", NAN, []),
    ],
)
def test_a_parameter_is_a_value_and_never_text_of_the_query(text, value, expected):
    assert rows(text, a=value) == expected


def test_long_lists_are_looked_up_as_a_set():
    assert rows("i in :a", a=list(range(2, 100_000))) == [1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "BadExpression"),
        ("i >", "BadExpression"),
        ("i = 1; drop table x", "BadExpression"),
        ("upper(i) = 'A'", "TypeMismatch"),
        ("uper(s) = 'A'", "BadExpression"),
        ("upper(s, s) = 'A'", "BadExpression"),
        ("left(s, i) = 'A'", "BadExpression"),
        ("left(s, null) = 'A'", "BadExpression"),
        ("rand() > 0.5", "BadExpression"),
        ("now() > t", "BadExpression"),
        ("sum(i) > 1", "BadExpression"),
        ("row_number() over () = 1", "BadExpression"),
        ("upper(distinct s) = 'A'", "BadExpression"),
        ("a.upper(s) = 'A'", "BadExpression"),
        ("s rlike '('", "BadConstant"),
        ("date_trunc('eon', t) = t", "BadConstant"),
        ("t > t + interval '1 fortnight'", "BadConstant"),
        ("t > t + interval '1 month 1 day'", "BadConstant"),
        ("t > interval 1 month", "TypeMismatch"),
        ("i + interval 1 day > t", "TypeMismatch"),
        ("t + t > t", "TypeMismatch"),
        ("case when i = 1 then 1 else 'a' end = 1", "TypeMismatch"),
        ("coalesce(s, i) = 1", "TypeMismatch"),
        ("cast(i as nonsense) = 1", "BadType"),
        ("cast(d as int64) = 1", "NoConversion"),
        ("i::int = 1", "BadExpression"),
        ("s[0] = 'a'", "TypeMismatch"),
        ("size(i) = 1", "TypeMismatch"),
        ("nvl(i, 1, 2) = 1", "BadExpression"),
        ("i in (select 1)", "BadExpression"),
        ("t.i = 1", "BadExpression"),
        ("i > ?", "BadExpression"),
        ("i in (f)", "BadExpression"),
        ("s like s", "BadExpression"),
        ("i = interval 1 day", "TypeMismatch"),
        ("i between symmetric 2 and 1", "BadExpression"),
        ("i = " + "1 + " * 60_000 + "1", "BadExpression"),
        ("not " * 500 + "b", "BadExpression"),
        ("i = :a", "MissingParameter"),
        ("nothing = 1", "UnknownColumn"),
        ("I = 1", "UnknownColumn"),
        ("s = 1", "TypeMismatch"),
        ("i = 'one'", "TypeMismatch"),
        ("i", "TypeMismatch"),
        ("i + 1", "TypeMismatch"),
        ("s + 1 = 2", "TypeMismatch"),
        ("b and i", "TypeMismatch"),
        ("i like '1'", "TypeMismatch"),
        ("d = 'yesterday'", "BadConstant"),
        ("d = date'2026-02-30'", "BadConstant"),
        ("t = timestamp'2026-01-01 25:00:00'", "BadConstant"),
    ],
)
def test_what_is_not_in_the_language_is_refused_before_a_row_is_read(text, code):
    with pytest.raises((InputError, SchemaError)) as caught:
        condition(text, ROWS.schema)
    assert caught.value.code == code
    assert caught.value.remedy


def test_what_the_parser_says_in_a_way_we_do_not_know_is_refused():
    outer = sqlglot.exp.Column(this=sqlglot.exp.to_identifier("i"), join_mark=True)
    with pytest.raises(InputError, match="not in the language"):
        parse._Reader("i(+) = 1", {}).read(sqlglot.exp.EQ(this=outer, expression=outer), 0)


def test_a_long_chain_of_conditions_is_no_deep_one():
    assert rows(" or ".join(f"i = {n}" for n in range(1, 3000))) == [0, 1]


def test_a_syntax_error_says_where():
    with pytest.raises(InputError, match="line 2") as caught:
        condition("i = 1\nand and", ROWS.schema)
    assert caught.value.line == 2


def test_a_near_name_is_suggested():
    with pytest.raises(SchemaError, match="did you mean 'with space'"):
        condition("`with spce` = 1", ROWS.schema)


@pytest.mark.parametrize("value", [object(), {"x": 1}, [1]])
def test_a_parameter_of_a_strange_type_is_refused(value):
    with pytest.raises(InputError) as caught:
        condition("i = :a", ROWS.schema, {"a": value})
    assert caught.value.code == "BadParameter"


def test_a_parameter_that_is_not_used_is_refused():
    with pytest.raises(InputError) as caught:
        condition("i = 1", ROWS.schema, {"a": 1})
    assert caught.value.code == "UnknownParameter"


# --- against a slow reading in Python -------------------------------------------

NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([SMALLEST, LARGEST]))
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


@st.composite
def conditions(draw, depth=3):
    """Text of a condition over x and y, and a function of both that says what it means."""
    if depth == 0 or draw(st.booleans()):
        op, (left, f), (right, g) = draw(st.sampled_from(OPERATORS)), draw(terms()), draw(terms())
        return f"({left} {op} {right})", lambda x, y: compared(op, f(x, y), g(x, y))
    kind = draw(st.sampled_from(["and", "or", "not", "is null"]))
    one, f = draw(conditions(depth=depth - 1))
    if kind == "not":
        return f"(not {one})", lambda x, y: None if f(x, y) is None else not f(x, y)
    if kind == "is null":
        return f"({one} is null)", lambda x, y: f(x, y) is None
    other, g = draw(conditions(depth=depth - 1))
    return f"({one} {kind} {other})", lambda x, y: joined(kind, f(x, y), g(x, y))


@st.composite
def terms(draw):
    kind = draw(st.sampled_from(["x", "y", "number", "+", "-", "*", "%"]))
    if kind in "xy":
        return kind, (lambda x, y: x) if kind == "x" else (lambda x, y: y)
    if kind == "number":
        value = draw(st.integers(-3, 3))
        return f"({value})", lambda x, y: value
    value = draw(st.sampled_from([-2, -1, 0, 1, 2, 3]))
    return f"(x {kind} ({value}))", lambda x, y: reckoned(kind, x, value)


def compared(op, a, b):
    if a is None or b is None:
        return None
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def joined(kind, a, b):
    decisive = kind == "or"
    if a is decisive or b is decisive:
        return decisive
    return None if a is None or b is None else not decisive


def reckoned(op, a, b):
    if a is None or (op == "%" and b == 0):
        return None
    found = {"+": a + b, "-": a - b, "*": a * b, "%": abs(a) % abs(b or 1) * (-1 if a < 0 else 1)}[op]
    return found if SMALLEST <= found <= LARGEST else None


@given(conditions(), st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8))
def test_it_agrees_with_a_slow_reading_and_its_bounds_never_rule_out_a_row(written, values):
    text, meaning = written
    batch = pa.record_batch(
        {
            "x": pa.array([x for x, _ in values], pa.int64()),
            "y": pa.array([y for _, y in values], pa.int64()),
        }
    )
    found = condition(text, batch.schema)
    assert found.mask(batch).to_pylist() == [meaning(x, y) is True for x, y in values]
    for x, y in values:
        if meaning(x, y) is True:
            for name, interval in found.bounds.items():
                value = {"x": x, "y": y}[name]
                assert value is not None
                assert interval.meets(value, value)


# --- bounds -----------------------------------------------------------------------

DAY = 86_400 * 10**9
MIDNIGHT = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i > 5", {"i": Interval(low=6)}),
        ("5 > i", {"i": Interval(high=4)}),
        ("i between 2 and 4 and i >= 3", {"i": Interval(3, 4)}),
        ("i in (4, 2)", {"i": Interval(2, 4)}),
        ("i > 1.5", {"i": Interval(low=2)}),
        ("i < 1.5", {"i": Interval(high=1)}),
        ("i <= 1.5 and i >= 0.5", {"i": Interval(1, 1)}),
        ("i = 9007199254740992.0", {}),
        ("d = date'2026-01-01'", {"d": Interval(MIDNIGHT, MIDNIGHT)}),
        ("d >= '2026-01-01' and i = 1", {"d": Interval(low=MIDNIGHT), "i": Interval(1, 1)}),
        ("t < timestamp'2026-01-01'", {"t": Interval(high=MIDNIGHT - 1)}),
        ("t < date'2026-01-02'", {"t": Interval(high=MIDNIGHT + DAY - 1)}),
        ("i = 1 or d = date'2026-01-01'", {}),
        ("not i = 1", {}),
        ("i <> 1", {}),
        ("i in (1, null)", {}),
        ("i > null", {}),
        ("s > 'a'", {}),
        ("i + 1 > 5", {}),
    ],
)
def test_a_condition_says_what_it_rules_out(text, expected):
    assert dict(condition(text, ROWS.schema).bounds) == expected
