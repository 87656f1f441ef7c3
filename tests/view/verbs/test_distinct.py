"""The first of equal rows: which one, its id, its columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.view.verbs.reading import Counting, agree, ids, memory, values
from tests.view.verbs.test_same_type import column
from trueline.errors import SchemaError
from trueline.identity import RowId

NAN = float("nan")


@given(
    st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([None, "a", "b"])), max_size=15),
    st.sampled_from([1 << 30, 60]),
)
def test_the_first_of_equal_rows_stays_where_it_is(rows, limit):
    table = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.int64()), "s": pa.array([s for _, s in rows], pa.string())}
    )
    view = tl.View(Counting(table, batch=4))
    for columns, key in (((), lambda row: row), (("x",), lambda row: row[0]), (("s",), lambda row: row[1])):
        firsts = {}
        for number, row in enumerate(rows):
            firsts.setdefault(key(row), number)
        with memory(limit):
            found = view.distinct(*columns)
            assert found.columns == ("x", "s")
            assert values(found, "x", "s") == [rows[number] for number in firsts.values()]
            assert ids(found) == [RowId(number) for number in firsts.values()]


def test_nan_is_equal_to_nan_and_zero_to_minus_zero():
    view = tl.View.from_arrow(pa.table({"x": [NAN, 0.0, -0.0, NAN, None, None]}))
    assert [str(each) for each in values(view.distinct(), "x")] == ["nan", "0.0", "None"]


def test_columns_keep_what_is_known_of_them():
    view = column("k", tl.types.category(2), [1, 1, 0], ["red", "green"])
    for found in (view.distinct("k"), view.distinct("n"), view.distinct()):
        assert found.schema["k"].annotations == view.schema["k"].annotations
        assert found.schema["k"].type == tl.types.category(2)
        assert found.origin("k").column == "k"
        assert found.origin("n").column == "n"
        agree(found)
    assert values(view.distinct("k"), "k", "n") == [(1, 0), (0, 2)]


def test_what_cannot_be_compared_is_refused_and_may_stand_beside():
    view = tl.View.from_rows([{"x": 1, "v": [1.0]}, {"x": 1, "v": [2.0]}])
    with pytest.raises(SchemaError, match=r"values distinct\(\) cannot compare"):
        view.distinct()
    assert view.distinct("x").to_arrow().to_pydict() == {"x": [1], "v": [[1.0]]}
    with pytest.raises(SchemaError, match="no column 'z'"):
        view.distinct("z")
