"""Vectors: dense and sparse, row by row, are the same to everyone."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId
from trueline.kernel import vectors
from trueline.kernel.chunk import Chunk, joined
from trueline.kernel.values import VectorValue
from trueline.kernel.vectors import (
    apart,
    checked,
    concatenated,
    dense,
    items_at,
    malformed,
    mended,
    same,
    sparse,
)
from trueline.view.schema import Field, Schema

NAN = float("nan")
ITEMS = {
    t.float64: [0.0, -0.0, 1.5, NAN, None],
    t.float32: [0.0, -0.0, 1.5, NAN, None],
    t.int8: [0, 1, -1, None],
    t.boolean: [False, True, None],
    t.text: ["", "a", "é", None],
    t.binary: [b"", b"\x00", None],
    t.category(3): [0, 1, 2, None],
    t.rowid: [bytes(16), bytes(range(16)), None],
}
KINDS = [t.vector(item, *dims) for item in ITEMS for dims in ((), (3,))]


@st.composite
def arrays(draw, kind, rows=None):
    """Vectors of a type, some missing, some of their items too."""
    items = st.sampled_from(ITEMS[kind.item])
    length = (kind.size, kind.size) if kind.size else (0, 4)
    row = st.none() | st.lists(items, min_size=length[0], max_size=length[1])
    found = draw(st.lists(row, max_size=6) if rows is None else st.lists(row, min_size=rows, max_size=rows))
    # Slices begin somewhere in their buffers.
    return pa.array([None, *found], kind.arrow)[1:]


def bits(array):
    return str(array)


@pytest.mark.contract("view:C107", "kit:K17")
@given(st.sampled_from(KINDS), st.data())
def test_every_encoding_goes_back_to_the_same_values(kind, data):
    array = data.draw(arrays(kind))
    where = np.array(data.draw(st.lists(st.booleans(), min_size=len(array), max_size=len(array))), np.bool_)
    for encoded in (
        sparse(array, kind),
        sparse(array, kind, where),
        sparse(sparse(array, kind), kind, where),
    ):
        assert encoded.type == kind.sparse
        encoded.validate(full=True)
        assert not malformed(encoded, kind).any()
        again = dense(encoded, kind)
        again.validate(full=True)
        assert again.type == kind.arrow
        assert bits(again) == bits(array)
        assert same(encoded, array, kind).all()
        half = len(array) // 2
        assert bits(dense(encoded[half:], kind)) == bits(array[half:])


@pytest.mark.contract("view:C107")
@given(st.sampled_from(KINDS), st.data())
def test_what_kernels_see_does_not_depend_on_the_encoding(kind, data):
    array = data.draw(arrays(kind))
    other = sparse(array, kind)
    assert vectors.sizes(other).equals(vectors.sizes(array))
    for place in (-1, 0, 1, 2, 3):
        places = np.full(len(array), place)
        expected = [
            None if row is None or not 0 <= place < len(row) else row[place] for row in array.to_pylist()
        ]
        found = items_at(array, kind, places)
        assert bits(found) == bits(pa.array(expected, kind.item.arrow))
        assert bits(items_at(other, kind, places)) == bits(found)
    with_default = vectors.with_items(other, kind, kind.item, lambda items: items)
    assert same(with_default, array, kind).all()


@pytest.mark.contract("view:C106")
@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_what_is_not_listed_is_the_default_and_never_missing(item):
    kind = t.vector(item, 2)
    usual = ITEMS[item][0]
    empty = pa.array([{"size": 2, "indices": [], "values": []}], kind.sparse)
    assert dense(empty, kind).to_pylist() == [[usual, usual]]
    assert vectors.default(item).as_py() == usual
    # A missing item has to be listed, or it would become the default.
    listed = sparse(pa.array([[usual, None]], kind.arrow), kind)
    assert listed.to_pylist() == [{"size": 2, "indices": [1], "values": [None]}]


@pytest.mark.parametrize(
    "item", [t.date, t.timestamp("ms"), t.duration("us"), t.time("s"), t.decimal(4, 2)], ids=str
)
def test_times_and_decimals_have_a_default_too(item):
    assert not vectors.default(item).as_py() or item == t.date or isinstance(item, t.Timestamp | t.Time)
    kind = t.vector(item, 2)
    assert dense(pa.array([{"size": 2, "indices": [], "values": []}], kind.sparse), kind).null_count == 0


@pytest.mark.contract("view:C105", "view:C108", "kit:K17")
@pytest.mark.parametrize(
    "row",
    [
        {"size": 3, "indices": [1, 0], "values": [1, 2]},
        {"size": 3, "indices": [1, 1], "values": [1, 2]},
        {"size": 3, "indices": [0, 3], "values": [1, 2]},
        {"size": 3, "indices": [-1], "values": [1]},
        {"size": 3, "indices": [0, None], "values": [1, 2]},
        {"size": 3, "indices": [0], "values": [1, 2]},
        {"size": 3, "indices": [0, 1], "values": [1]},
        {"size": 3, "indices": None, "values": [1, 2]},
        {"size": 3, "indices": None, "values": None},
        {"size": 3, "indices": [], "values": None},
        {"size": 4, "indices": [], "values": []},
        {"size": 2, "indices": None, "values": [1, 2]},
        {"size": -1, "indices": [], "values": []},
    ],
    ids=str,
)
def test_a_malformed_vector_is_missing_where_it_comes_in_and_an_error_where_it_is_made(row):
    kind = t.vector(t.int8, 3)
    good = {"size": 3, "indices": [0, 2], "values": [1, 2]}
    whole = {"size": 3, "indices": None, "values": [7, 8, 9]}
    array = pa.array([good, row, None, whole], kind.sparse)
    assert malformed(array, kind).tolist() == [False, True, False, False]
    assert mended(array, kind)[1] == 1
    with pytest.raises(SchemaError) as caught:
        checked(array, kind, "the kernel")
    assert caught.value.code == "BadVector"
    assert checked(array[2:], kind, "the kernel") is not None
    field = pa.field("v", array.type, metadata={b"trueline/type": b'"vector(int8, 3)"'})
    view = tl.View.from_arrow(pa.table([array, [1, 2, 3, 4]], schema=pa.schema([field, ("n", pa.int64())])))
    # The same rows, whether the column is read or not (view:C37).
    assert view.select("n").count() == 4
    assert view.to_arrow()["v"].to_pylist() == [[1, 0, 2], None, None, [7, 8, 9]]
    assert view.filter("v is null").to_arrow()["n"].to_pylist() == [2, 3]


@pytest.mark.contract("view:C108")
def test_a_known_size_is_the_length_of_every_vector_and_an_unknown_one_of_none():
    known, unknown = t.vector(t.int8, 2), t.vector(t.int8)
    array = pa.array([[1, 2], [3]], unknown.arrow)
    assert malformed(array, known).tolist() == [False, True]
    assert not malformed(array, unknown).any()
    with pytest.raises(SchemaError, match=r"not vector\(int8, 2\)"):
        checked(array, known, "the kernel")


def test_codes_beyond_a_category_are_missing_where_they_come_in():
    fields = [
        Field("c", t.category(2)),
        Field("v", t.vector(t.category(2))),
        Field("w", t.vector(t.category(2), 2)),
    ]
    schema = Schema(fields).to_arrow()
    table = pa.table([[1, 2], [[1, 2], [0]], [[0, 9], None]], schema=schema)
    found = tl.View.from_arrow(table).to_arrow().to_pydict()
    assert found == {"c": [1, None], "v": [[1, None], [0]], "w": [[0, None], None]}


def test_sparse_columns_come_in_as_such_from_arrow_and_parquet(tmp_path):
    kind = t.vector(t.float32, 1_000_000)
    array = sparse(pa.array([[0.0] * 1_000_000], kind.arrow), kind)
    field = pa.field("v", array.type, metadata={b"trueline/type": b'"vector(float32, 1000000)"'})
    pq.write_table(pa.table([array], schema=pa.schema([field])), tmp_path / "x.parquet")
    for view in (
        tl.View.from_arrow(pq.read_table(tmp_path / "x.parquet")),
        tl.View.read_parquet(tmp_path / "x.parquet"),
    ):
        assert view.schema["v"].type == kind
        with view.cursor("v") as cursor:
            assert cursor.move_next()
            value = cursor.getter("v", kind)()
            assert not value.is_dense
            assert (len(value), len(value.values), value[999_999]) == (1_000_000, 0, 0.0)
        assert view.with_columns(n="size(v)", x="v[5]").select("n", "x").to_arrow().to_pydict() == {
            "n": [1_000_000],
            "x": [0.0],
        }


def test_a_dense_form_that_has_no_room_is_refused():
    kind = t.vector(t.int8)
    huge = pa.array([{"size": (1 << 31) - 1, "indices": [], "values": []}] * 2, kind.sparse)
    with pytest.raises(InputError, match="do not fit") as caught:
        dense(huge, kind)
    assert caught.value.remedy


@given(st.data())
def test_arrays_of_different_encodings_are_joined(data):
    kind = t.vector(t.float64)
    parts = [data.draw(arrays(kind)) for _ in range(3)]
    mixed = [parts[0], sparse(parts[1], kind), parts[2]]
    expected = pa.concat_arrays(parts)
    found = concatenated(mixed, kind.arrow)
    assert bits(dense(found, kind)) == bits(expected)
    assert concatenated(parts, kind.arrow).type == kind.arrow
    chunks = [Chunk(len(array), (array,)) for array in mixed]
    assert same(joined(chunks, [kind.arrow], ids=False).arrays[0], expected, kind).all()
    assert len(concatenated([], kind.arrow)) == 0


@given(st.data())
def test_rows_differ_exactly_where_their_values_do(data):
    kind = t.vector(t.float64)
    one, other = data.draw(arrays(kind, rows=4)), data.draw(arrays(kind, rows=4))

    def plain(array):
        return [
            row if row is None else ["NaN" if isinstance(v, float) and np.isnan(v) else v for v in row]
            for row in array.to_pylist()
        ]

    expected = [a == b for a, b in zip(plain(one), plain(other), strict=True)]
    for a in (one, sparse(one, kind)):
        for b in (other, sparse(other, kind)):
            assert same(a, b, kind).tolist() == expected


def test_the_same_values_at_other_places_are_not_the_same():
    kind = t.vector(t.int8)
    one, other = pa.array([[1, 0], [1]], kind.arrow), pa.array([[0, 1], [1]], kind.arrow)
    assert same(one, sparse(other, kind), kind).tolist() == [False, True]


def test_the_negative_zero_keeps_its_sign():
    kind = t.vector(t.float64)
    again = dense(sparse(pa.array([[-0.0, 0.0]], kind.arrow), kind), kind)
    assert np.signbit(again[0].as_py()).tolist() == [True, False]


def test_taking_apart_says_where_each_value_stands():
    kind = t.vector(t.int8)
    found = apart(sparse(pa.array([[0, 5], None, [], [7]], kind.arrow), kind))
    assert (found.sizes.tolist(), found.counts.tolist()) == ([2, 0, 0, 1], [1, 0, 0, 1])
    assert (found.rows.tolist(), found.indices.tolist(), found.starts.tolist()) == (
        [0, 3],
        [1, 0],
        [0, 1, 1, 1],
    )


# --- one value ------------------------------------------------------------------------------


def both(kind, *rows):
    """The values of rows, as cursors over each encoding give them."""
    array = pa.array(rows, kind.arrow)
    found = []
    for encoded in (array, sparse(array, kind)):
        field = pa.field("v", encoded.type, metadata={b"trueline/type": f'"{kind}"'.encode()})
        with tl.View.from_arrow(pa.table([encoded], schema=pa.schema([field]))).cursor("v") as cursor:
            get = cursor.getter("v", kind)
            found.append([get() for _ in rows if cursor.move_next()])
    return found


@pytest.mark.contract("view:C107")
@given(st.sampled_from(KINDS), st.data())
def test_a_value_is_the_same_from_either_encoding(kind, data):
    rows = data.draw(arrays(kind, rows=2)).to_pylist()
    for one, other in zip(*both(kind, *rows), strict=True):
        assert one == other
        if one is not None:
            assert hash(one) == hash(other)
            assert one == other.dense()
            assert other.dense().is_dense
            assert len(one) == len(other) == len(list(one))
            assert one == list(other)
            assert one == [other[at] for at in range(len(other))]


def test_a_value_is_a_sequence_that_nobody_can_change():
    (value,), (other,) = both(t.vector(t.float32, 4), [0.0, 2.5, None, NAN])
    for each in (value, other):
        assert (each[1], each[-3], each[2], each[1:3]) == (2.5, 2.5, None, (2.5, None))
        with pytest.raises(IndexError):
            each[4]
        with pytest.raises(IndexError):
            each[-5]
        with pytest.raises(TypeError):
            each[0] = 1.0
        with pytest.raises(AttributeError):
            each.values = []
        assert each.type == t.vector(t.float32, 4)
        assert pickle.loads(pickle.dumps(each)) == each
        assert each != [0.0, 2.5, None]
        assert each != "x"
    assert other.indices.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        other.indices[0] = 2
    assert repr(value) == "vector([0.0, 2.5, None, nan])"
    assert repr(other) == "vector(4, {1: 2.5, 2: None, 3: nan})"
    assert value != VectorValue.of(t.vector(t.float64, 4), [0.0, 2.5, None, NAN])


def test_a_value_becomes_an_array_of_numpy():
    for value in (v[0] for v in both(t.vector(t.float32, 3), [0.0, 2.5, None])):
        found = np.asarray(value)
        assert found.dtype == np.float32
        assert np.array_equal(found, np.array([0.0, 2.5, NAN], np.float32), equal_nan=True)
        assert np.asarray(value, np.float64).dtype == np.float64
    for value in (v[0] for v in both(t.vector(t.int8, 3), [0, 2, 3])):
        assert np.asarray(value).tolist() == [0, 2, 3]
        assert np.asarray(value).dtype == np.int8
    for value in (v[0] for v in both(t.vector(t.int8, 2), [0, None])):
        assert np.asarray(value).tolist() == [0, None]
    for value in (v[0] for v in both(t.vector(t.text), ["", "a"])):
        assert np.asarray(value).tolist() == ["", "a"]
    assert len(np.asarray(both(t.vector(t.float32), [])[0][0])) == 0


def test_items_are_what_a_column_of_them_would_give():
    for value in (v[0] for v in both(t.vector(t.rowid), [bytes(16), bytes(15) + b"\x07"])):
        assert list(value) == [RowId(0), RowId(7)]
        assert value[1] == RowId(7)


@pytest.mark.contract("view:C112")
def test_dimensions_flatten_row_by_row():
    kind = t.vector(t.int8, 2, 3)
    array = pa.array([[1, 2, 3, 4, 5, 6]], kind.arrow)
    (value,), _ = both(kind, array[0].as_py())
    assert np.asarray(value).reshape(kind.dims).tolist() == [[1, 2, 3], [4, 5, 6]]
