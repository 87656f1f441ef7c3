"""What operators hand on: columns as they are, schemas as they are, ids as they are; and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.errors import SchemaError
from trueline.identity import RowId


@pytest.fixture
def view():
    return tl.View.from_arrow(pa.table([[1, 2, 3], ["a", "b", "c"], [1.5, None, 2.5]], names=["x", "y", "x"]))


def ids(view):
    with view.cursor(()) as cursor:
        found = []
        while cursor.move_next():
            found.append(cursor.id)
    return found


@pytest.mark.contract("view:C9")
def test_row_to_row_operators_hand_on_every_column_hidden_ones_too(view):
    for made in (view.with_columns(z="x + 1"), view.with_row_id("z"), view.with_columns(y="upper(y)")):
        kept = [column for column in made.schema if made.node.passed(column.index) is not None]
        assert [(c.name, c.type) for c in kept] == [(c.name, c.type) for c in view.schema]
        assert made.select(kept[0]).to_arrow().column(0).to_pylist() == [1, 2, 3]
        assert made.schema[0].is_hidden


@pytest.mark.contract("view:C10")
def test_operators_that_choose_rows_return_the_very_schema(view):
    for made in (
        view.filter("y > 'a'"),
        view.limit(1),
        view.skip(1),
        view.sample(0.5),
        view.sort("y"),
        view.shuffle(1),
        view.split((0.5, 0.5))[0],
    ):
        assert made.schema is view.schema


@pytest.mark.contract("view:C38")
@pytest.mark.parametrize(
    ("misused", "told"),
    [
        (lambda v: v.filter("y + 1 > 2"), "y|text"),
        (lambda v: v.filter("x"), "not a condition"),
        (lambda v: v.explode("y"), "'y' is of type text"),
        (lambda v: v.sort("z"), "no column 'z'"),
        (lambda v: v.join(v.select("y").rename(x="y"), "x"), "x.*(float64|text)"),
        (lambda v: v.group_by("y").agg(s="sum(y)"), "text"),
        (lambda v: v.concat(v.select("y")), "x"),
        (lambda v: v.split((0.5, 0.1)), "sum|1"),
    ],
)
def test_a_misuse_is_named_before_a_row_is_read(view, misused, told):
    with pytest.raises(tl.errors.InputError, match=told):
        misused(view)


@pytest.mark.contract("view:C80")
def test_an_id_can_be_kept_as_a_column_which_is_data_from_then_on(view, tmp_path):
    kept = view.drop(0).with_row_id("id")
    assert kept.schema["id"].type == t.rowid
    with kept.skip(1).cursor("id") as cursor:
        get = cursor.getter("id", RowId)
        assert cursor.move_next()
        assert get() == cursor.id == RowId(1)
    kept.skip(1).write_parquet(tmp_path / "x.parquet")
    back = tl.View.read_parquet(tmp_path / "x.parquet")
    assert [row["id"] for row in back.rows()] == [RowId(1), RowId(2)]
    assert ids(back) == [RowId(0), RowId(1)]


@dataclass
class Row:
    y: str | None
    x: float | None


@dataclass
class Narrow:
    y: str


@dataclass
class Wrong:
    y: int


@dataclass
class More:
    y: str
    missing: int


@dataclass
class MoreWithDefault:
    y: str
    missing: int = 7


@pytest.mark.contract("view:C119")
def test_a_class_is_held_against_the_columns_before_a_row_is_read(view):
    assert list(view.rows(Row))[:2] == [Row("a", 1.5), Row("b", None)]
    assert [row.y for row in view.rows(Narrow)] == ["a", "b", "c"]
    assert next(view.rows(MoreWithDefault)) == MoreWithDefault("a")
    with pytest.raises(SchemaError, match=r"Wrong\.y is of type int64, column 'y' is of type text"):
        view.rows(Wrong)
    with pytest.raises(SchemaError, match=r"More\.missing has no column"):
        view.rows(More)


@pytest.mark.contract("view:C119")
def test_rows_are_objects_of_their_own_and_lists_of_them_can_be_shuffled(view):
    rows = list(view.rows(Row))
    assert len({id(row) for row in rows}) == 3
    again = tl.View.from_rows(rows, schema=Row)
    assert list(again.rows(Row)) == rows
    assert again.can_shuffle


@pytest.mark.contract("view:C119")
def test_only_what_a_class_asks_for_is_read(view):
    class Counting:
        schema, row_count, origins, ordinal = view.select("y").to_arrow().schema, 3, {}, None

        def __init__(self):
            self.asked = []

        def batches(self, columns, bounds):
            self.asked.append(list(columns))
            yield from view.select("y").to_arrow().select(list(columns)).to_batches()

        def explain(self):
            return ["counting"]

    source = Counting()
    assert [row.y for row in tl.View(source).with_columns(z="length(y)").rows(Narrow)] == ["a", "b", "c"]
    assert source.asked == [["y"]]
