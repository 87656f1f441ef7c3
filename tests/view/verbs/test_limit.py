"""The first and the last rows, and that no more is read than it takes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.view.verbs.reading import Counting, agree, divided, values
from trueline.errors import InputError
from trueline.identity import RowId


@given(st.integers(0, 12), st.integers(0, 15), st.sampled_from([1, 3, 50]))
def test_the_last_rows_are_the_same_however_they_are_read(rows, count, batch):
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    expected = list(range(rows))[max(0, rows - count) :]
    middle = rows // 2
    for source in (
        Counting(table, batch=batch),
        Counting(table, batch=batch, counted=True),
        divided(table, middle, rows - middle),
    ):
        found = tl.View(source).tail(count)
        assert values(found, "n") == expected
        assert [each for each, _ in agree(found, sets=(2,), seeds=(None,))] == [RowId(n) for n in expected]
    assert values(tl.View(Counting(table)).head(count), "n") == list(range(rows))[:count]


def test_the_last_rows_of_several_pieces_are_read_from_the_end():
    table = pa.table({"n": range(40)})
    sources = [Counting(table.slice(start, 10)) for start in range(0, 40, 10)]
    first, *others = (tl.View(source) for source in sources)
    found = first.concat(*others).filter("n >= 0").tail(13)
    assert values(found, "n") == list(range(27, 40))
    assert [source.cells["n"] for source in sources] == [0, 0, 10, 10]
    assert "from the end" in found.explain()


def test_counted_pieces_are_cut_and_those_before_are_not_read():
    source = divided(pa.table({"n": range(40)}), 15, 5, 20)
    found = tl.View(source).tail(22)
    assert found.row_count == 22
    assert values(found, "n") == list(range(18, 40))
    assert source.cells["n"] <= 25
    assert tl.View.range(5).tail().count() == tl.View.range(50).head().count() == 5


def test_the_last_rows_of_more_pieces_than_can_be_gone_through_are_found():
    view = tl.View.range(1)
    for _ in range(45):
        view = view.concat(view)
    assert view.tail(3).count() == 3
    assert values(view.tail(2), "n") == [0, 0]


def test_what_is_not_a_number_of_rows_is_refused():
    for wrong in (-1, 1.5, "3", True):
        with pytest.raises(InputError, match="tail"):
            tl.View.range(3).tail(wrong)
        with pytest.raises(InputError, match="head"):
            tl.View.range(3).head(wrong)
