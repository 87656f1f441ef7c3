"""The columns of a view: in order, found by name and place, hidden and placed by rule."""

from __future__ import annotations

import pickle
import threading
from contextlib import suppress
from dataclasses import FrozenInstanceError

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.view.watched import Watched, numbers
from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.view.annotations import about
from trueline.view.schema import Field, Schema

ABA = Schema([Field("A", t.int64), Field("B", t.text), Field("A", t.float32)])


def named(*names):
    return Schema([Field(name, t.int64) for name in names])


@pytest.mark.contract("view:C2")
def test_columns_stand_in_order_and_know_their_places():
    assert [column.index for column in ABA] == [0, 1, 2]
    assert [ABA[at].name for at in range(3)] == ["A", "B", "A"]
    assert len(ABA) == 3
    for outside in (3, -1, 10**9, True, 1.0):
        with pytest.raises(SchemaError, match="no column"):
            ABA[outside]


@pytest.mark.contract("view:C3")
def test_names_are_not_empty_and_their_case_counts():
    for bad in ("", None, 3):
        with pytest.raises(SchemaError):
            Field(bad, t.int64)
        with pytest.raises(SchemaError):
            ABA.get(bad)
    for bad in ("", None):
        with pytest.raises(SchemaError):
            ABA[bad]
    both = named("a", "A")
    assert (both["a"].index, both["A"].index) == (0, 1)
    assert ABA.get("b") is None


@pytest.mark.contract("view:C4")
def test_of_columns_with_one_name_the_last_is_seen():
    assert ABA["A"].index == 2
    assert [column.is_hidden for column in ABA] == [True, False, False]
    assert ABA.names == ("B", "A")
    assert ABA.types == (t.text, t.float32)
    table = pa.table(
        [[1], ["x"], [2.5]], schema=pa.schema([("A", pa.int64()), ("B", "string"), ("A", "float")])
    )
    view = tl.View.from_arrow(table)
    with view.cursor([0, 2]) as cursor:
        old, new = cursor.getter(0, t.int64), cursor.getter("A", t.float32)
        assert cursor.move_next()
        assert (old(), new()) == (1, 2.5)
    assert view.select(0).to_arrow().to_pydict() == {"A": [1]}


@pytest.mark.contract("view:C5")
def test_a_name_that_is_not_there_is_none_or_an_error_with_a_near_one():
    assert ABA.get("C") is None
    with pytest.raises(SchemaError, match="no column 'price_'") as caught:
        named("price", "city")["price_"]
    assert caught.value.code == "UnknownColumn"
    assert "'price'" in caught.value.remedy


@pytest.mark.contract("view:C6")
def test_a_name_is_found_without_looking_at_the_others():
    class Counted(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    schema = named(*(Counted(f"c{n}") for n in range(10_000)))
    Counted.compared = 0
    assert schema["c9999"].index == 9_999
    assert Counted.compared < 10


@pytest.mark.contract("view:C7")
def test_a_column_and_its_type_are_the_same_objects_each_time():
    assert ABA["A"] is ABA[2]
    assert ABA["A"].type is ABA["A"].type
    view = tl.View.from_rows([{"x": 1}])
    assert view.schema is view.schema
    assert view.schema["x"].type is view.schema["x"].type


@pytest.mark.contract("view:C8")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("AB", "BC", ["A0", "B1", "B*", "C*"]),
        ("AB", "CB", ["A0", "B1", "B*", "C*"]),
        ("ABA", "A", ["A0", "B1", "A2", "A*"]),
        ("AB", "BB", ["A0", "B1", "B*", "B*"]),
        ("AB", "CDC", ["A0", "B1", "C*", "C*", "D*"]),
        ("", "BA", ["B*", "A*"]),
        ("A", "", ["A0"]),
    ],
)
def test_a_new_column_goes_behind_the_one_it_hides_else_to_the_end(old, new, expected):
    schema, places = named(*old).added([Field(name, t.text) for name in new])
    shown = [f"{c.name}{'*' if at is None else at}" for c, at in zip(schema, places, strict=True)]
    assert shown == expected


def slowly_placed(old, new):
    """The rule as it is written: each in turn, behind the last of its name."""
    line = list(old)
    for name in new:
        at = [place for place, each in enumerate(line) if each.lower() == name]
        line.insert(at[-1] + 1 if at else len(line), name.upper())
    return line


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcdef")))
def test_many_new_columns_are_placed_as_if_one_by_one(old, new):
    schema, places = named(*old).added([Field(name, t.text) for name in new])
    shown = [c.name if at is not None else c.name.upper() for c, at in zip(schema, places, strict=True)]
    assert shown == slowly_placed(old, new)
    assert [at for at in places if at is not None] == list(range(len(old)))


def test_ten_thousand_columns_are_placed_and_found():
    schema, _ = named(*(f"c{n}" for n in range(10_000))).added(
        [Field(f"c{n}", t.text) for n in range(0, 20_000, 2)]
    )
    assert len(schema) == 20_000
    assert schema["c9998"].type == t.text
    assert schema["c9999"].type == t.int64


@pytest.mark.contract("view:C12")
def test_a_schema_cannot_be_changed_and_is_read_by_many_threads():
    with pytest.raises(FrozenInstanceError):
        ABA[0].name = "x"
    with pytest.raises((AttributeError, TypeError)):
        ABA[0] = ABA[1]
    given = [Field("a", t.int64)]
    schema = Schema(given)
    given.append(Field("b", t.int64))
    schema.fields.append(Field("b", t.int64))
    assert schema.names == ("a",)
    found = []
    threads = [threading.Thread(target=lambda: found.append(schema.to_arrow())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each.equals(found[0]) for each in found)
    assert len(found) == 8


@pytest.mark.contract("view:C17")
def test_a_column_of_another_schema_is_refused_though_its_place_is_there():
    with pytest.raises(SchemaError, match="another view"):
        named("x", "y").find(named("x", "y")["y"])
    with pytest.raises(SchemaError, match="named twice"):
        ABA.find_all(["A", 2])


def test_schemas_are_equal_by_names_types_and_annotations():
    assert Schema(ABA.fields) == ABA
    assert hash(Schema(ABA.fields)) == hash(ABA)
    assert Schema([Field("x", t.category(2))]) != Schema([Field("x", t.uint32)])
    assert Schema([Field("x", t.text, about(is_normalised=True))]) != Schema([Field("x", t.text)])
    assert pickle.loads(pickle.dumps(ABA)) == ABA


def test_a_schema_goes_to_arrow_and_back_with_all_it_says():
    fields = [
        Field("v", t.vector(t.float32, 2), about(slot_names=["a", "b"], is_normalised=True)),
        Field("c", t.category(2), about(category_values=["x", "y"]), nullable=False),
        Field("id", t.rowid),
    ]
    schema = Schema(fields)
    assert Schema.from_arrow(schema.to_arrow()) == schema
    assert Schema.from_arrow(pa.schema(schema)) == schema  # by the C interface


def test_what_is_wrong_with_a_field_is_said():
    with pytest.raises(InputError) as caught:
        Field("", t.int64)
    assert caught.value.code == "BadName"


SOURCES = {
    "rows": lambda folder: tl.View.from_arrow(pa.table({"x": [1]})),
    "numbers": lambda folder: tl.View.range(3),
    "csv": lambda folder: tl.View.read_csv(b"x\n1\n"),
    "parquet": lambda folder: tl.View.read_parquet(_written(folder)),
    "a source": lambda folder: tl.View(Watched(numbers(3), parts=1)),
}


def _written(folder):
    tl.View.range(3).write_parquet(folder / "n.parquet")
    return folder / "n.parquet"


@pytest.mark.contract("view:C1", "view:C28")
@pytest.mark.parametrize("name", list(SOURCES))
def test_a_schema_is_made_with_its_view_and_all_threads_get_the_same(name, tmp_path, monkeypatch):
    view = SOURCES[name](tmp_path)
    made = []
    init = Schema.__init__
    monkeypatch.setattr(Schema, "__init__", lambda self, fields: (made.append(1), init(self, fields))[1])
    start = threading.Barrier(8)
    found, keys = [], []

    def ask():
        start.wait()
        found.append(view.schema)
        keys.append(view.node.key)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [], "it was made when the view was"
    assert {id(each) for each in found} == {id(view.schema)}
    assert len(set(keys)) == 1


@pytest.mark.contract("view:C1", "view:C24")
@pytest.mark.parametrize("of", ["annotations", "key"])
def test_what_is_made_when_it_is_first_asked_for_is_the_same_for_all_threads(of, monkeypatch):
    """Each thread waits, in the middle of making it, until the other makes it too."""
    start = threading.Barrier(2)
    about_it, node = about(is_normalised=True), tl.View.range(1).node
    found = []
    made, parameters = Schema.__init__, type(node)._parameters

    def meet():
        with suppress(threading.BrokenBarrierError):
            start.wait(0.5)

    monkeypatch.setattr(Schema, "__init__", lambda self, fields: (meet(), made(self, fields))[1])
    monkeypatch.setattr(type(node), "_parameters", lambda self: (meet(), parameters(self))[1])
    ask = {"annotations": lambda: id(about_it.schema), "key": lambda: node.key}[of]
    threads = [threading.Thread(target=lambda: found.append(ask())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert set(found) == {ask()}
