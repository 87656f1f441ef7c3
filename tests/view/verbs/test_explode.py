"""A row for each value of a vector: ids, chunks, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import agree, ids, numbers, values
from trueline.errors import SchemaError
from trueline.identity import RowId
from trueline.view.execute.explode import forked, repeated


def test_each_value_of_a_vector_gets_a_row():
    table = pa.table({"n": range(4), "v": [["a", None], None, [], ["b"]]})
    view = tl.View.from_arrow(table)
    assert values(view.explode("v"), "n", "v") == [(0, "a"), (0, None), (3, "b")]
    assert values(view.explode("v", outer=True), "n", "v") == [
        (0, "a"),
        (0, None),
        (1, None),
        (2, None),
        (3, "b"),
    ]
    assert ids(view.explode("v", outer=True))[2] == RowId(1).fork()
    assert view.explode("v").schema["v"].type == tl.types.text
    agree(view.explode("v", outer=True).concat(view.explode("v", outer=True)))


def test_vectors_of_a_known_size_explode_too():
    table = pa.table({"v": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2))})
    assert values(tl.View.from_arrow(table).explode("v"), "v") == [1, 2, 3, 4]
    assert values(tl.View.from_arrow(table.slice(1)).explode("v", outer=True), "v") == [None, 3, 4]


def test_long_and_short_vectors_get_the_ids_of_repeated_next():
    lengths = [1, 0, 40, 3] * 10 + [500]
    found = list(forked(tl.identity.RowIds.range(0, len(lengths)), pa.array(lengths).to_numpy()))
    expected = []
    for row, length in enumerate(lengths):
        one = RowId(row).fork()
        for _ in range(length):
            expected.append(one)
            one = one.next()
    assert found == expected


@pytest.mark.parametrize("times", [[2, 2, 2], [0, 0, 0], [1, 0, 3], []])
@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.float64(), pa.bool_(), pa.timestamp("us", "UTC"), pa.string(), pa.decimal128(21, 2)],
)
@pytest.mark.parametrize("null", [0, None])
def test_values_are_repeated_as_often_as_is_said(kind, times, null):
    array = pa.array([7, 1, null, 0]).cast(kind).slice(1, len(times))
    found = repeated(array, np.array(times, np.int64))
    found.validate(full=True)
    assert found.type == kind
    assert found.to_pylist() == [
        each for each, many in zip(array.to_pylist(), times, strict=True) for _ in range(many)
    ]


def test_long_vectors_come_in_chunks_of_bounded_size():
    view = tl.View.from_arrow(pa.table({"v": [list(range(1_000))] * 200}))
    sizes = [batch.num_rows for batch in view.explode("v").batches()]
    assert sum(sizes) == 200_000
    assert max(sizes) <= 65_536


def test_only_vectors_explode():
    with pytest.raises(SchemaError, match="not a vector"):
        numbers(2).explode("n")
