"""Views one after another: columns, annotations, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import Counting, values
from trueline.errors import SchemaError
from trueline.view.annotations import CATEGORY_VALUES, SLOT_NAMES, Annotation, Annotations
from trueline.view.plan.sources import Memory
from trueline.view.schema import Field, Schema


def annotated(kind, data, **found):
    """A view of one column with annotations."""
    node = Memory(pa.table({"x": pa.array(data, kind.arrow)}))
    object.__setattr__(node, "schema", Schema([Field("x", kind, Annotations(found))]))
    return tl.View(node)


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
    assert error.value.remedy == 'convert the column in view 1: with_columns(x="cast(`x` as float64)")'
    kind = tl.types.category(2)
    red, blue = (
        annotated(kind, [0], **{CATEGORY_VALUES: Annotation(tl.types.vector(tl.types.text, 2), names)})
        for names in (["red", "green"], ["blue", "green"])
    )
    with pytest.raises(SchemaError, match="different values"):
        red.concat(blue)
    with pytest.raises(SchemaError, match="different values"):
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
