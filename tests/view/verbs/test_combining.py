"""Concat, zip, explode and shuffle: their columns, edges and what they refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import Counting, agree, divided, ids, numbers, serial, values
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId
from trueline.view.annotations import CATEGORY_VALUES, SLOT_NAMES, Annotation, Annotations
from trueline.view.execute.explode import forked
from trueline.view.plan.sources import Memory
from trueline.view.schema import Field, Schema


def annotated(kind, data, **found):
    """A view of one column with annotations."""
    node = Memory(pa.table({"x": pa.array(data, kind.arrow)}))
    object.__setattr__(node, "schema", Schema([Field("x", kind, Annotations(found))]))
    return tl.View(node)


# --- concat -----------------------------------------------------------------------------------


def test_columns_are_found_by_name_in_the_other_views():
    first = tl.View.from_arrow(pa.table({"a": [1], "b": ["x"]}))
    second = tl.View.from_arrow(pa.table({"b": ["y"], "a": [2]}))
    assert first.concat(second).to_arrow().to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_hidden_columns_stay_where_all_views_have_them():
    view = tl.View.from_arrow(pa.table({"x": [1]})).with_columns(x="x + 1")
    both = view.concat(view)
    assert [column.is_hidden for column in both.schema] == [True, False]
    assert both.select(0).to_arrow()["x"].to_pylist() == [1, 1]
    assert values(both.concat(tl.View.from_arrow(pa.table({"x": [7]}))), "x") == [2, 2, 7]


def test_views_that_do_not_go_together_are_refused():
    view = tl.View.from_arrow(pa.table({"x": [1]}))
    with pytest.raises(SchemaError, match="lacks 'x'"):
        view.concat(view.rename(y="x"))
    with pytest.raises(SchemaError, match=r"int64 in view 1 and float64 in view 2") as error:
        view.concat(tl.View.from_arrow(pa.table({"x": [1.0]})))
    assert "cast(x as int64)" in error.value.remedy
    kind = tl.types.category(2)
    red, blue = (
        annotated(kind, [0], **{CATEGORY_VALUES: Annotation(tl.types.vector(tl.types.text, 2), names)})
        for names in (["red", "green"], ["blue", "green"])
    )
    with pytest.raises(SchemaError, match="other values"):
        red.concat(blue)
    with pytest.raises(SchemaError, match="other values"):
        red.join(blue, "x")
    assert CATEGORY_VALUES in red.concat(red).schema["x"].annotations


def test_only_annotations_that_all_views_have_are_kept():
    kind = tl.types.vector(tl.types.float32, 1)
    names = Annotation(tl.types.vector(tl.types.text, 1), ["height"])
    first = annotated(kind, [[1.0]], **{SLOT_NAMES: names})
    assert SLOT_NAMES in first.concat(first).schema["x"].annotations
    assert SLOT_NAMES not in first.concat(annotated(kind, [[1.0]])).schema["x"].annotations


def test_what_a_filter_rules_out_is_ruled_out_of_every_view():
    class Ruled(Counting):
        def batches(self, columns, bounds):
            self.bounds = dict(bounds)
            yield from super().batches(columns, bounds)

    sources = [Ruled(pa.table({"n": range(10), "m": range(10)})) for _ in range(2)]
    first, second = (tl.View(source) for source in sources)
    both = first.concat(second.select("m", "n")).filter("n > 7").select("m")
    assert both.to_arrow()["m"].to_pylist() == [8, 9, 8, 9]
    assert [list(source.bounds) for source in sources] == [["n"], ["n"]]


# --- zip --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [((10, 20), (15, 15)), ((30,), (1, 2, 27)), ((7, 23), (5, 4, 3))])
def test_rows_stand_beside_those_of_the_same_number(sizes):
    first, second = (
        tl.View(divided(pa.table({name: range(sum(each))}), *each))
        for name, each in zip("ab", sizes, strict=True)
    )
    shortest = min(sum(each) for each in sizes)
    both = first.zip(second)
    assert values(both, "a", "b") == [(n, n) for n in range(shortest)]
    agree(both)
    uncounted = tl.View(Counting(pa.table({"c": range(12)})))
    assert values(both.zip(uncounted), "a", "c") == [(n, n) for n in range(12)]
    agree(uncounted.zip(both), sets=(3,))


def test_of_a_name_that_repeats_the_last_is_seen():
    view = numbers(3)
    both = view.zip(view.with_columns(n="n * 10"))
    assert values(both, "n") == [0, 10, 20]
    assert both.select(0).to_arrow()["n"].to_pylist() == [0, 1, 2]
    assert both.node.passed(0) == (0, 0)
    assert both.node.passed(2) == (1, 1)


def test_zipping_reads_only_what_is_wanted_and_stops_at_the_shortest():
    long, short = Counting(pa.table({"a": range(1_000), "b": range(1_000)})), numbers(15)
    assert values(tl.View(long).zip(short), "a", "n") == [(n, n) for n in range(15)]
    assert long.cells["a"] <= 30
    assert long.cells["b"] == 0
    assert long.open == 0


# --- explode ----------------------------------------------------------------------------------


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


def test_long_vectors_come_in_chunks_of_bounded_size():
    view = tl.View.from_arrow(pa.table({"v": [list(range(1_000))] * 200}))
    sizes = [batch.num_rows for batch in view.explode("v").batches()]
    assert sum(sizes) == 200_000
    assert max(sizes) <= 65_536


def test_only_vectors_explode():
    with pytest.raises(SchemaError, match="not a vector"):
        numbers(2).explode("n")


# --- shuffle ----------------------------------------------------------------------------------


@pytest.mark.contract("view:C84")
@pytest.mark.contract("view:C85")
def test_a_shuffle_is_a_permutation_that_only_the_seed_decides():
    view = tl.View(divided(pa.table({"n": range(500)}), 100, 399, 1))
    once, again, other = (serial(view.shuffle(seed)) for seed in (3, 3, 4))
    assert once == again != other
    assert sorted(once, key=lambda row: row[1]) == serial(view)
    assert serial(view, seed=3) == once
    assert serial(tl.View.range(500), seed=3) == once  # a row's place depends on its id, not on its source
    moved = sum(abs(place - row[1][0]) for place, row in enumerate(once)) / 500
    assert 130 < moved < 205  # a third of the rows, on average


def test_fewer_rows_keep_their_order_among_each_other():
    few = [row[1][0] for row in serial(tl.View.range(100).shuffle(1))]
    many = [row[1][0] for row in serial(tl.View.range(1_000).shuffle(1))]
    assert [n for n in many if n < 100] == few


def test_a_sort_needs_columns_that_have_an_order():
    view = tl.View.from_arrow(pa.table({"n": [1], "v": [[1.0]]}))
    with pytest.raises(InputError, match="without columns"):
        view.sort()
    with pytest.raises(SchemaError, match="no order"):
        view.sort("v")
    for wrong in ([True, False], [1], "yes"):
        with pytest.raises(InputError, match="descending"):
            view.sort("n", descending=wrong)
