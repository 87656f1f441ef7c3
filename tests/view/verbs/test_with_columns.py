"""Choosing, naming and computing columns: what is passed on, what is made, and what is read for it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId
from trueline.view.plan.node import Interval, Want


@pytest.fixture
def view():
    return tl.View.from_arrow(pa.table({"a": [1, 2, None], "b": ["x", "y", "z"], "c": [0.5, 1.5, 2.5]}))


@pytest.mark.contract("view:C9")
def test_every_column_is_passed_on_the_hidden_ones_too(view):
    more = view.with_columns(a="a * 10", d="length(b)").with_columns(a="a + 1")
    assert [(column.name, column.is_hidden) for column in more.schema] == [
        ("a", True),
        ("a", True),
        ("a", False),
        ("b", False),
        ("c", False),
        ("d", False),
    ]
    with more.cursor([0, 1, 2]) as cursor:
        getters = [cursor.getter(at, t.int64) for at in range(3)]
        assert cursor.move_next()
        assert [get() for get in getters] == [1, 10, 11]
    assert more.row_count == 3


def test_a_column_that_is_just_another_one_is_that_one(view):
    copied = view.with_columns(e="a", f="(a)", g="a + 0", a="c").with_columns(h="e")
    schema = copied.schema
    place = {name: schema[name].index for name in schema.names}
    assert copied.node.source_of(place["h"]) == (view.node, 0)
    assert copied.node.source_of(place["f"]) == (view.node, 0)
    assert copied.node.source_of(place["a"]) == (view.node, 2)
    assert copied.node.source_of(place["g"])[0] is not view.node
    assert copied.origin("h") == view.origin("a")
    assert copied.select("e", "a", "h").to_arrow().to_pydict() == {
        "e": [1, 2, None],
        "a": [0.5, 1.5, 2.5],
        "h": [1, 2, None],
    }


def test_only_what_a_column_needs_is_asked_for(view):
    more = view.with_columns(d="a + 1", e="concat(b, 'x')", f="c")
    at = {name: more.schema[name].index for name in more.schema.names}
    assert more.node.wants(Want((at["d"],)))[0].columns == (0,)
    assert more.node.wants(Want((at["e"],)))[0].columns == (1,)
    assert more.node.wants(Want((at["f"], at["c"])))[0].columns == (2,)
    assert more.node.wants(Want(()))[0].columns == ()
    bounded = more.node.wants(Want((at["f"],), bounds={at["f"]: Interval(1, 2), at["d"]: Interval(0, 0)}))[0]
    assert dict(bounded.bounds) == {2: Interval(1, 2)}


def test_texts_name_columns_as_they_were_before(view):
    swapped = view.with_columns(a="c", c="a")
    assert swapped.schema.names == ("a", "b", "c")
    assert swapped.to_arrow()["a"].to_pylist() == [0.5, 1.5, 2.5]
    assert swapped.to_arrow()["c"].to_pylist() == [1, 2, None]


def test_constants_and_no_columns_at_all_have_a_value_for_each_row(view):
    found = view.with_columns(k="1 + 1", n="cast(null as text)", s="'x'").select("k", "n", "s").to_arrow()
    assert found.to_pydict() == {"k": [2, 2, 2], "n": [None] * 3, "s": ["x"] * 3}
    empty = tl.View.from_arrow(pa.table({"x": pa.array([], pa.int64())})).with_columns(k="1")
    assert empty.to_arrow()["k"].to_pylist() == []
    bare = tl.View.from_arrow(pa.table({"x": [1, 2]})).select().with_columns(k="7")
    assert bare.to_arrow().to_pydict() == {"k": [7, 7]}


@pytest.mark.contract("view:C80")
def test_the_row_id_is_a_column_like_others(view):
    named = view.with_row_id("id").filter("a > 1 or a is null")
    assert named.schema["id"].type == t.rowid
    with named.cursor("id") as cursor:
        get = cursor.getter("id", RowId)
        found = []
        while cursor.move_next():
            found.append((get(), cursor.id))
    assert found == [(RowId(1), RowId(1)), (RowId(2), RowId(2))]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda v: v.with_columns(d="nothing + 1"), SchemaError),
        (lambda v: v.with_columns({"": "a"}), SchemaError),
        (lambda v: v.with_columns(d="b + 1"), SchemaError),
        (lambda v: v.with_columns(d=""), InputError),
        (lambda v: v.with_columns(d="interval 1 month"), SchemaError),
    ],
)
def test_what_cannot_be_computed_is_refused_before_a_row_is_read(view, make, error):
    with pytest.raises(error) as caught:
        make(view)
    assert caught.value.remedy


def test_a_column_that_is_always_missing_is_one(view):
    found = view.with_columns(d="null")
    assert found.to_arrow()["d"].null_count == 3
    assert found.filter("d is null").count() == 3
