"""Cells to values: the table of the documents, and the fast way held to the slow one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers.reading import plain
from tests.readers.test_csv_properties import KINDS, WORDS
from trueline.errors import InputError
from trueline.readers.cells import by_the_rules, convert
from trueline.readers.formats import compiled
from trueline.readers.rules import CellRules

BAD = "bad"
INF = float("inf")


def read(kind, text, **rules):
    found = convert(pa.array([text.encode() if isinstance(text, str) else text]), kind, CellRules(**rules))
    found.array.validate(full=True)
    assert found.array.type == kind
    if found.bad is not None and found.bad[0]:
        assert not found.array[0].is_valid
        return BAD
    return plain(found.array)[0] if pa.types.is_floating(kind) else found.array[0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "7", 7),
        (pa.int64(), "+7", 7),
        (pa.int64(), " -7\t", -7),
        (pa.int64(), "007", 7),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.int64(), "9223372036854775808", BAD),
        (pa.int64(), "0x1F", BAD),
        (pa.int64(), "1.0", BAD),
        (pa.int64(), "1e3", BAD),
        (pa.int64(), "\uff11", BAD),
        (pa.int64(), "", None),
        (pa.int64(), "  ", None),
        (pa.int8(), "128", BAD),
        (pa.uint64(), "18446744073709551615", 2**64 - 1),
        (pa.uint64(), "-1", BAD),
        (pa.float64(), "1e400", BAD),
        (pa.float64(), "1e-400", 0.0),
        (pa.float64(), "Infinity", INF),
        (pa.float64(), "-inf", -INF),
        (pa.float64(), "nan", "NaN"),
        (pa.float64(), "nan(1)", BAD),
        (pa.float64(), "1_0", BAD),
        (pa.float32(), "1e39", BAD),
        (pa.float16(), "65504", 65504.0),
        (pa.float16(), "65536", BAD),
        (pa.decimal128(5, 2), "123.45", Decimal("123.45")),
        (pa.decimal128(5, 2), "123.450", Decimal("123.45")),
        (pa.decimal128(5, 2), "123.456", BAD),
        (pa.decimal128(5, 2), "1234", BAD),
        (pa.decimal128(5, 2), "1.2e2", Decimal("120.00")),
        (pa.decimal128(5, 2), "1e999999999", BAD),
        (pa.decimal128(5, 2), "0e999999999", Decimal("0.00")),
        (pa.decimal256(60, 0), "9" * 60, Decimal("9" * 60)),
        (pa.decimal32(4, 1), "999.9", Decimal("999.9")),
        (pa.bool_(), "Yes", True),
        (pa.bool_(), "0", False),
        (pa.bool_(), "yEs", BAD),
        (pa.date32(), "2024-02-29", dt.date(2024, 2, 29)),
        (pa.date32(), "2026-02-29", BAD),
        (pa.date32(), "2026-02-30", BAD),
        (pa.date32(), "1900-02-29", BAD),
        (pa.date32(), "2000-02-29", dt.date(2000, 2, 29)),
        (pa.date32(), "0000-01-01", BAD),
        (pa.date32(), "2026-2-3", BAD),
        (pa.date32(), "2026-02-03T00:00:00", BAD),
        (pa.time32("s"), "23:59:59", dt.time(23, 59, 59)),
        (pa.time32("s"), "24:00", BAD),
        (pa.duration("ms"), " PT1H30M0.5S ", dt.timedelta(seconds=5400.5)),
        (pa.duration("s"), "-P1DT2H", -dt.timedelta(hours=26)),
        (pa.duration("us"), "P", BAD),
        (pa.duration("us"), "PT", BAD),
        (pa.duration("us"), "P1M", BAD),
        (pa.duration("us"), "90", BAD),
        (pa.duration("ns"), "PT9223372036.854775808S", BAD),
        (pa.timestamp("ms"), "2026-02-03", dt.datetime(2026, 2, 3)),
        (pa.timestamp("us"), "2026-02-03 10:11:12.5", dt.datetime(2026, 2, 3, 10, 11, 12, 500_000)),
        (pa.timestamp("us"), "2026-02-03T10:11:12Z", BAD),
        (pa.timestamp("us"), "2026-02-03T23:59:60", BAD),
        (pa.timestamp("ns"), "2300-01-01", BAD),
        (pa.string(), "", ""),
        (pa.string(), " NA ", " NA "),
        (pa.string(), b"\xff", BAD),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.binary(2), b"abc", BAD),
        (pa.null(), "x", BAD),
    ],
)
def test_a_cell_becomes(kind, text, value):
    assert read(kind, text) == value


UTC = dt.UTC


@pytest.mark.parametrize(
    ("text", "zone", "value"),
    [
        ("2026-07-01T12:00:00Z", "Europe/Zurich", dt.datetime(2026, 7, 1, 12, tzinfo=UTC)),
        ("2026-07-01T12:00:00+05:30", "UTC", dt.datetime(2026, 7, 1, 6, 30, tzinfo=UTC)),
        ("2026-07-01 12:00", "UTC", dt.datetime(2026, 7, 1, 12, tzinfo=UTC)),
        ("2026-07-01 12:00", "Europe/Zurich", dt.datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("2026-10-25 02:30", "Europe/Zurich", dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        ("2026-03-29 02:30", "Europe/Zurich", BAD),
        ("2026-07-01T12:00:00+24:00", "UTC", BAD),
    ],
)
def test_a_time_without_a_zone_is_taken_in_the_zone_that_was_said(text, zone, value):
    assert read(pa.timestamp("s", "UTC"), text, timezone=zone) == value


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("%d.%m.%Y", "3.2.2026", dt.date(2026, 2, 3)),
        ("%d.%m.%Y", "30.02.2026", BAD),
        ("%d.%m.%Y", "2026-02-03", BAD),
        ("%b %d, %Y", "FEB 03, 2026", dt.date(2026, 2, 3)),
        ("%d %B %y", "3 february 99", dt.date(1999, 2, 3)),
        ("%m/%d/%Y %H:%M", "02/03/2026 00:00", dt.date(2026, 2, 3)),
        ("%m/%d/%Y %H:%M", "02/03/2026 10:00", BAD),
    ],
)
def test_a_date_has_the_format_that_was_said(form, text, value):
    assert read(pa.date32(), text, date_format=form) == value


def test_a_timestamp_has_the_format_that_was_said():
    kind, form = pa.timestamp("ms"), "%d/%m/%Y %I:%M:%S.%f %p"
    assert read(kind, "03/02/2026 12:00:01.25 AM", timestamp_format=form) == dt.datetime(
        2026, 2, 3, 0, 0, 1, 250_000
    )
    assert read(kind, "03/02/2026 13:00:01.25 AM", timestamp_format=form) == BAD
    zoned = pa.timestamp("s", "UTC")
    assert read(zoned, "20260203T1000+0100", timestamp_format="%Y%m%dT%H%M%z") == dt.datetime(
        2026, 2, 3, 9, tzinfo=UTC
    )


@pytest.mark.parametrize("form", ["%Q", "%Y", "%Y-%m-%d %Y", "%I:%M %d.%m.%Y", "%d.%m."])
def test_a_format_that_is_none_is_refused(form):
    with pytest.raises(InputError):
        compiled(form)


def test_digits_finer_than_the_unit_are_cut_off_and_counted():
    text = pa.array(["1969-12-31 23:59:59.9999", "2026-01-01 00:00:00.1000", "2026-01-01"])
    found = convert(text, pa.timestamp("ms"), CellRules())
    assert plain(found.array) == [-1, 1767225600100, 1767225600000]
    assert found.rounded == 1
    assert found.bad is None


def test_a_decimal_comma_is_the_only_comma_and_point():
    assert read(pa.float64(), "1,5", decimal=",") == 1.5
    assert read(pa.float64(), "1.5", decimal=",") == BAD
    assert read(pa.decimal128(5, 2), "-1,5", decimal=",") == Decimal("-1.50")


def test_a_null_spelling_is_compared_as_written():
    assert read(pa.int64(), "0", nulls=("0",)) is None
    assert read(pa.int64(), " 0", nulls=("0",)) == 0
    assert read(pa.int64(), "-", nulls=("0",)) == BAD


@pytest.mark.parametrize(
    "options",
    [
        {"true_values": ("x",), "false_values": ("x",)},
        {"decimal": ";"},
        {"timezone": "Mars"},
        {"nulls": "NA"},
    ],
)
def test_rules_that_contradict_themselves_are_refused(options):
    with pytest.raises(InputError):
        CellRules(**options)


GOOD = {
    "int": b"12",
    "float": b"1.5",
    "date": b"2026-01-02",
    "time": b"2026-01-02 03:04:05",
    "null": None,
    "zone": b"2026-01-02T03:04:05+01:00",
    "one": b"1",
}


@settings(max_examples=examples(100))
@given(
    KINDS,
    st.sampled_from(sorted(GOOD)),
    st.lists(st.tuples(st.integers(0, 299), WORDS), max_size=6),
    st.sampled_from([("",), ("1", "NA"), ()]),
)
@example(pa.int8(), "int", [(7, b"0xFF")], ("",))
@example(pa.timestamp("us", "UTC"), "zone", [(7, b"2026-01-02")], ("",))
@example(pa.timestamp("us", "UTC"), "time", [(7, b"2026-01-02T03:04Z")], ("",))
def test_many_cells_cast_at_once_are_what_each_would_be_alone(kind, good, odd, nulls):
    cells = [GOOD[good]] * 300
    for at, word in odd:
        cells[at] = word
    array, rules = pa.array(cells, pa.binary()), CellRules(nulls=nulls)
    quick, slow = convert(array, kind, rules), by_the_rules(array, kind, rules)
    quick.array.validate(full=True)
    assert plain(quick.array) == plain(slow.array)
    none = [False] * 300
    assert (none if quick.bad is None else quick.bad.tolist()) == (
        none if slow.bad is None else slow.bad.tolist()
    )
    assert (quick.rounded, quick.undecodable) == (slow.rounded, slow.undecodable)


def test_many_times_without_a_zone_are_taken_in_the_zone_that_was_said_too():
    cells = pa.array(["2026-07-01 12:00"] * 300)
    found = convert(cells, pa.timestamp("s", "UTC"), CellRules(timezone="Europe/Zurich"))
    assert set(found.array.to_pylist()) == {dt.datetime(2026, 7, 1, 10, tzinfo=UTC)}
