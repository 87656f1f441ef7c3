"""A table of a schema that was met before goes the way of the first, and no other."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.workspace.records import column
from trueline.chain.events import SetDataSchema, SetVocab
from trueline.dataset.append import intake
from trueline.dataset.append.intake import fit, whole_schema
from trueline.errors import InputError, SchemaError

STORED = pa.schema(
    [
        pa.field("at", pa.timestamp("ms", "UTC")),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("price", pa.float64()),
        pa.field("name", pa.string()),
    ]
)


class Tail:
    """As much of a tail as fitting looks at."""

    vocab = SetVocab(event_time_column="at")
    merge = None

    def __init__(self) -> None:
        self.schema = SetDataSchema(schema=whole_schema(STORED, self.vocab))


moments = st.integers(0, 10**13)
given_columns = {
    "at": st.sampled_from(["ms", "us", "ns"]).map(lambda unit: pa.timestamp(unit, "UTC")),
    "price": st.sampled_from([pa.float64(), pa.null()]),
    "name": st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]),
}


@st.composite
def schemas(draw):
    fields = [pa.field("at", draw(given_columns["at"])), pa.field("n", pa.int64(), draw(st.booleans()))]
    fields += [pa.field(name, draw(given_columns[name])) for name in ("price", "name") if draw(st.booleans())]
    return pa.schema(draw(st.permutations(fields)))


def a_table(draw, schema: pa.Schema) -> pa.Table:
    rows = draw(st.integers(0, 4))
    values = {
        "at": st.none() | moments,
        "n": st.integers(-9, 9) if not draw(st.booleans()) else st.none() | st.integers(-9, 9),
        "price": st.none() | st.floats(),
        "name": st.none() | st.text("ab", max_size=3),
    }
    columns = []
    for field in schema:
        made = [None if pa.types.is_null(field.type) else draw(values[field.name]) for _ in range(rows)]
        if not field.nullable:
            made = [value or 0 for value in made]
        columns.append(pa.array(made, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def outcome(table, tail):
    try:
        fitted = fit(table, tail)
    except SchemaError as error:
        return str(error)
    # As text, in which NaN equals NaN.
    return str(fitted.table.to_pydict()), fitted.table.schema, fitted.schema, fitted.vocab, fitted.rounded


@given(st.data())
def test_tables_fit_or_are_refused_as_if_they_were_the_first(data):
    tail = Tail()
    kinds = [data.draw(schemas()) for _ in range(2)]
    for _ in range(5):
        table = a_table(data.draw, data.draw(st.sampled_from(kinds)))
        assert outcome(table, tail) == outcome(table, Tail())


def test_the_second_table_of_a_schema_is_not_looked_at_again(monkeypatch):
    tail = Tail()
    table = pa.table({"at": [datetime(2026, 1, 1, tzinfo=UTC)], "n": pa.array([1])})
    fit(table, tail)
    monkeypatch.setattr(intake, "_check_fits", None)
    assert fit(table, tail).table["n"].to_pylist() == [1]
    with pytest.raises(TypeError):
        fit(table.append_column("name", pa.array(["x"])), tail)


def test_a_schema_that_others_extended_is_met_anew(ws):
    mine, rows = ws.create("a"), pa.table({"x": [1]})
    mine.append(rows)
    mine.append(rows)
    with tl.open(ws.location) as other:
        other["a"].append(pa.table({"x": [2], "y": ["new"]}), new_columns="add")
    mine.append(rows)
    assert column(mine, "y") == [None, None, "new", None]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(intake, "_MAX_WAYS", 5)
    tails = [Tail() for _ in range(12)]
    for tail in tails:
        fit(STORED.empty_table(), tail)
        assert len(intake._ways) <= 5


@pytest.mark.parametrize(
    ("rows", "declared", "said"),
    [
        (
            [{"x": 1}, {"x": None}, {"x": "a"}],
            None,
            r"row 2 \(counted from 0\) is 'a', a str, rows before it have 1, a int",
        ),
        (
            [{"x": "a"}, {"x": 1}, {"x": "b"}],
            None,
            r"row 1 \(counted from 0\) is 1, a int, rows before it have 'a', a str",
        ),
        (
            [{"x": 1}, {"x": "a"}, {"x": "b"}],
            pa.int64(),
            r"row 1 \(counted from 0\) is 'a', a str, which is not int64",
        ),
        (
            [{"x": 1}] * 700 + [{"x": 300}],
            pa.int8(),
            r"row 700 \(counted from 0\) is 300, a int, which is not int8",
        ),
        ([{"x": 1}, 5], None, r"row 1 \(counted from 0\) is a int, not a dictionary"),
    ],
)
def test_rows_of_mixed_types_are_refused_with_the_row(ws, rows, declared, said):
    ds = ws.create("rows", schema=None if declared is None else pa.schema({"x": declared}))
    with pytest.raises(InputError, match=said):
        ds.append(rows)
    assert ds.info.rows == 0
