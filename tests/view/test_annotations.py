"""Annotations: a row of their own, never needed, never in the way."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
import trueline.view.annotations as an
from tests.testing.registry import OPERATORS, PLAIN
from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId
from trueline.kernel.values import VectorValue
from trueline.testing.generate import mixed
from trueline.view.annotations import NONE, Annotation, Annotations, about
from trueline.view.cursor.row import Cursor, Row
from trueline.view.plan.sources import Memory
from trueline.view.schema import Field, Schema

ACCESSORS = [
    an.slot_names,
    an.category_values,
    an.categorical_ranges,
    an.is_normalised,
    an.is_user_visible,
    an.score_kind,
    an.score_value_kind,
    an.score_set,
    an.training_labels,
]
KINDS = [
    an.SLOT_NAMES,
    an.CATEGORY_VALUES,
    an.CATEGORICAL_RANGES,
    an.IS_NORMALISED,
    an.IS_USER_VISIBLE,
    an.SCORE_KIND,
    an.SCORE_VALUE_KIND,
    an.SCORE_SET,
    an.TRAINING_LABELS,
]


def column(kind, annotations=NONE):
    return Schema([Field("x", kind, annotations)])["x"]


# --- a row ------------------------------------------------------------------------


class Described:
    """Has the names of a row, and cannot be asked for any of them."""

    def __init__(self):
        self.asked = []

    def _refused(self, *_):
        self.asked.append("a value")
        raise RuntimeError("nobody may look")

    schema = position = batch = id = property(_refused)
    is_active = getter = id_getter = move_next = close = __enter__ = __exit__ = _refused


def test_whether_something_is_a_row_is_seen_without_asking_it_for_a_value():
    cursor = tl.View.from_rows([{"x": 1}]).cursor("x")
    described = Described()
    for moment in range(3):
        assert isinstance(cursor, Row), moment
        assert isinstance(cursor, Cursor), moment
        cursor.move_next()
    assert isinstance(described, Row)
    assert isinstance(described, Cursor)
    assert described.asked == []
    assert not isinstance(about(is_normalised=True), Cursor)
    assert not any(isinstance(other, Row) for other in (None, 1, {"schema": 1}, tl.View.range(1)))

    class Mine(Row):
        pass

    assert isinstance(Mine(), Mine)
    assert isinstance(Mine(), Row)
    assert not isinstance(described, Mine)


@pytest.mark.contract("view:C18")
def test_annotations_are_a_row_whose_columns_are_the_kinds():
    row = about(slot_names=["a", "b"], is_normalised=True)
    assert isinstance(row, Row)
    assert row.schema.names == ("slot_names", "is_normalised")
    assert row.schema is row.schema
    assert (row.position, row.batch, row.id) == (0, 0, RowId(0))
    assert row.is_active("slot_names")
    assert row.getter("is_normalised", bool)() is True
    assert row.getter("slot_names", t.vector(t.text, 2))() == ["a", "b"]
    assert isinstance(row.getter("slot_names")(), VectorValue)
    assert row["slot_names"] == ("a", "b")
    assert list(row) == ["slot_names", "is_normalised"]


@pytest.mark.contract("view:C18")
@pytest.mark.parametrize("asked", [t.vector(t.text), t.vector(t.text, 3), t.text, str, t.vector(t.binary, 2)])
def test_an_annotation_is_had_as_exactly_its_type(asked):
    with pytest.raises(SchemaError, match="was asked for"):
        about(slot_names=["a", "b"]).getter("slot_names", asked)


@pytest.mark.contract("view:C19")
def test_asking_for_a_kind_that_is_not_there_is_an_invalid_call():
    row = about(is_normalised=True)
    for ask in (row.__getitem__, row.getter, row.is_active):
        with pytest.raises(InputError):
            ask("nonsense")
    assert row.get("nonsense") is None
    assert "nonsense" not in row
    assert NONE.get(an.SLOT_NAMES) is None


@pytest.mark.parametrize("kind", ["", "type", 3])
def test_a_kind_has_a_name_that_can_be_stored(kind):
    with pytest.raises(InputError, match="named"):
        Annotations({kind: Annotation(t.text, "x")})


@pytest.mark.contract("view:C24")
def test_annotations_are_the_same_each_time_and_part_of_what_a_column_is():
    given = ["a", "b"]
    row = about(slot_names=given)
    given[0] = "changed"
    assert row["slot_names"] == ("a", "b")
    assert row.getter("slot_names")() == row.getter("slot_names")()
    assert row == about(slot_names=["a", "b"])
    assert row != about(slot_names=["a", "c"])
    nan = Annotation(t.vector(t.float32, 1), np.array([math.nan]))
    assert Annotations({"x": nan}) == pickle.loads(pickle.dumps(Annotations({"x": nan})))
    assert Field("x", t.vector(t.int8, 2), row) != Field("x", t.vector(t.int8, 2))


@pytest.mark.contract("view:C24")
def test_nobody_can_change_what_is_known_of_columns():
    one, other = tl.View.from_rows([{"x": 1}]), tl.View.range(1)
    for about_it in (NONE, about(is_normalised=True), one.schema["x"].annotations):
        with pytest.raises(TypeError):
            about_it.found["unit"] = Annotation(t.text, "CHF")
        with pytest.raises(AttributeError):
            about_it.found.clear()
        with pytest.raises(AttributeError):
            about_it.found = {}
    assert len(other.schema["n"].annotations) == len(NONE) == 0
    again = pickle.loads(pickle.dumps(about(is_normalised=True)))
    assert again == about(is_normalised=True)
    with pytest.raises(TypeError):
        again.found["unit"] = Annotation(t.text, "CHF")


UNIT = {"shop/unit": "CHF"}


@pytest.mark.contract("view:C18", "view:C24")
def test_a_view_can_say_more_of_a_column_and_less_and_nothing_else_changes():
    view = tl.View.from_arrow(PLAIN).with_columns(n="n + 1")
    more = view.annotate("x", UNIT, is_normalised=True)
    assert more.schema["x"].annotations == {**UNIT, "is_normalised": True}
    assert "shop/unit" not in view.schema["x"].annotations
    assert more.to_arrow().equals(view.to_arrow())
    assert [column.is_hidden for column in more.schema] == [column.is_hidden for column in view.schema]
    assert more.origin("x") == view.origin("x")
    less = more.annotate("x", {"shop/unit": None})
    assert less.schema["x"].annotations == {"is_normalised": True}
    assert "with annotations of x" in more.explain("x")
    place = next(column.index for column in view.schema if column.is_hidden)
    assert view.annotate(place, UNIT).schema[place].annotations == UNIT


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("CHF", t.text),
        (True, t.boolean),
        (3, t.int64),
        (2.5, t.float64),
        (b"x", t.binary),
        (["a", "b"], t.vector(t.text, 2)),
        (Annotation(t.int8, 3), t.int8),
    ],
)
def test_the_type_of_an_annotation_is_that_of_its_value(value, kind):
    found = tl.View.range(1).annotate("n", {"shop/x": value}).schema["n"].annotations.found["shop/x"]
    assert found.type == kind


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"slot_names": ["a"]}, "slot_names of 'n'.*does not fit a column of type int64"),
        ({"category_values": ["a", "b"]}, "does not fit"),
        ({"score_kind": 3}, "does not fit"),
        ({"shop/x": object()}, "whose type is not known"),
        ({"slot_names": 3}, "whose type is not known"),
        ({"": "x"}, "named ''"),
    ],
)
def test_what_readers_would_pass_over_is_refused(kinds, told):
    with pytest.raises(InputError, match=told):
        tl.View.range(1).annotate("n", kinds)


def test_annotations_that_fit_are_found_by_their_readers():
    schema = pa.schema([t.field("c", t.category(2)), t.field("v", t.vector(t.float64, 2))])
    view = tl.View.from_arrow(schema.empty_table())
    view = view.annotate("c", category_values=["no", "yes"]).annotate("v", slot_names=["a", "b"])
    assert an.category_values(view.schema["c"]) == ("no", "yes")
    assert an.slot_names(view.schema["v"]) == ("a", "b")


@pytest.mark.contract("view:C23")
@pytest.mark.parametrize("name", list(OPERATORS))
def test_annotations_are_kept_wherever_a_column_is_the_same(name):
    """`origin` says which column of the source a column is: it says the same of itself as that one."""
    source = mixed()
    for column in source.schema:
        source = source.annotate(column.index, {"test/of": f"{column.index} {column.name}"})
    source = tl.View(Memory(source.to_arrow()))
    made = OPERATORS[name].make(source)
    same = [(column, made.origin(column)) for column in made.schema]
    for column, origin in same:
        if origin is not None and origin.source == source.node.title:
            assert column.annotations.get("test/of") == source.schema[origin.index].annotations["test/of"]


@pytest.mark.contract("view:C23")
def test_a_new_column_has_no_annotations_and_the_others_keep_theirs():
    annotated = Schema([Field("v", t.vector(t.float32, 1), about(slot_names=["a"]))]).to_arrow()
    view = tl.View.from_arrow(pa.table([pa.nulls(1, annotated.field(0).type)], schema=annotated))
    more = view.with_columns(w="v", n="size(v)")
    assert an.slot_names(more.schema["v"]) == ("a",)
    assert an.slot_names(more.schema["w"]) == ("a",), "it is the very column"
    assert len(more.schema["n"].annotations) == 0
    assert an.slot_names(view.rename(w="v").schema["w"]) == ("a",)
    assert an.slot_names(view.filter("v is null").schema["v"]) == ("a",)


# --- asking in the forgiving way ----------------------------------------------------


@pytest.mark.contract("view:C21")
def test_names_of_slots_are_there_only_as_text_and_one_for_each():
    names = about(slot_names=["a", "b"])
    assert an.slot_names(column(t.vector(t.float32, 2), names)) == ("a", "b")
    assert an.slot_names(column(t.vector(t.float32, 1, 2), names)) == ("a", "b")
    for kind in (t.vector(t.float32, 3), t.vector(t.float32), t.vector(t.float32, 0, 2), t.float32):
        assert an.slot_names(column(kind, names)) is None
    unknown = Annotation(t.vector(t.text), ("a", "b"))
    assert an.slot_names(column(t.vector(t.float32, 2), NONE.with_(slot_names=unknown))) is None


@pytest.mark.contract("view:C22")
def test_values_of_categories_belong_to_the_column_and_are_of_any_type():
    for values in (["x", "y"], [1.5, 2.5], [dt.date(2026, 1, 1), None], [True, False]):
        said = about(category_values=values)
        assert an.category_values(column(t.category(2), said)) == tuple(values)
        assert an.category_values(column(t.vector(t.category(2)), said)) == tuple(values)
        for kind in (t.category(3), t.uint32, t.vector(t.uint32, 2)):
            assert an.category_values(column(kind, said)) is None
    assert column(t.category(2), about(category_values=["x", "y"])).type == column(t.category(2)).type


@pytest.mark.contract("view:C20")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (t.vector(t.text, 2), ("a",)),
        (t.vector(t.text, 2), "ab"),
        (t.vector(t.text, 2), None),
        (t.vector(t.text, 2), (1, 2)),
        (t.vector(t.binary, 2), (b"a", b"b")),
        (t.vector(t.int32, 1, 2), (0, 2)),
        (t.vector(t.int32, 1, 2), (1, 0)),
        (t.vector(t.int32, 1, 2), (-1, 0)),
        (t.vector(t.int32, 1, 2), ("0", "1")),
        (t.vector(t.int32, 2), (0, 1)),
        (t.boolean, "true"),
        (t.text, True),
        (t.int64, 1),
        (t.uint32, -1),
        (t.uint32, "1"),
        (t.text, None),
        (t.Nested(pa.struct([("x", pa.int8())])), {"x": 1}),
    ],
)
def test_an_annotation_of_the_wrong_type_or_size_counts_as_absent(kind, value):
    wrong = NONE.with_(**dict.fromkeys(KINDS, Annotation(kind, value)))
    absent = [ask(column(t.vector(t.float32, 2))) for ask in ACCESSORS]
    labels = an.training_labels  # any vector that is as long as its type says is fine there
    for ask, expected in zip(ACCESSORS, absent, strict=True):
        found = ask(column(t.vector(t.float32, 2), wrong))
        fits = isinstance(kind, t.Vector) and isinstance(value, tuple) and len(value) == kind.size
        assert found == expected or (ask is labels and fits)


@pytest.mark.contract("view:C20")
def test_what_is_right_is_found():
    said = about(
        categorical_ranges=[(0, 1), (3, 3)],
        is_normalised=True,
        is_user_visible=False,
        score_kind="regression",
        score_value_kind="score",
        score_set=3,
        training_labels=["x", "y"],
    )
    found = [ask(column(t.vector(t.float32, 4), said)) for ask in ACCESSORS]
    assert found == [None, None, ((0, 1), (3, 3)), True, False, "regression", "score", 3, ("x", "y")]
    assert [ask(column(t.text)) for ask in ACCESSORS] == [
        None,
        None,
        None,
        False,
        True,
        None,
        None,
        None,
        None,
    ]
    hidden = Schema([Field("x", t.text), Field("x", t.text)])[0]
    assert not an.is_user_visible(hidden)


TYPES = st.sampled_from(
    [
        t.text,
        t.boolean,
        t.uint32,
        t.float32,
        t.vector(t.text, 2),
        t.vector(t.int32, 1, 2),
        t.vector(t.text),
        t.category(3),
        t.rowid,
        t.date,
        t.Nested(pa.null()),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(KINDS) | st.text(min_size=1, max_size=8).filter(lambda kind: kind != "type"),
    st.builds(Annotation, TYPES, VALUES),
    max_size=3,
)


@pytest.mark.contract("view:C20")
@given(ANNOTATIONS, st.sampled_from([t.vector(t.float32, 2), t.category(3), t.text, t.vector(t.category(3))]))
def test_no_annotation_keeps_a_column_from_being_read_asked_or_stored(found, kind):
    field = Field("x", kind, Annotations(found))
    schema = Schema([field])
    for ask in ACCESSORS:
        ask(schema["x"])
    table = pa.table([pa.nulls(2, kind.arrow)], schema=schema.to_arrow())
    view = tl.View.from_arrow(table)
    assert view.schema["x"].type == kind
    assert view.filter("x is null").count() == 2
    with view.cursor("x") as cursor:
        assert cursor.move_next()
        assert cursor.getter("x")() is None


@pytest.mark.contract("view:C20")
@given(st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(max_size=60), max_size=4))
def test_no_metadata_of_others_keeps_a_column_from_being_read(metadata):
    field = pa.field("x", pa.uint32(), metadata=metadata)
    schema = Schema.from_arrow(pa.schema([field]))
    for ask in ACCESSORS:
        ask(schema["x"])
    again = Schema.from_arrow(schema.to_arrow())
    assert again["x"].type == schema["x"].type
    assert again == schema


# --- how they travel ------------------------------------------------------------------

EACH = [
    (t.boolean, True),
    (t.int64, -(1 << 63)),
    (t.uint64, (1 << 64) - 1),
    (t.float64, 0.1),
    (t.float64, math.nan),
    (t.float32, -math.inf),
    (t.text, 'é\n"\\'),
    (t.binary, b"\x00\xff"),
    (t.date, dt.date(2026, 11, 13)),
    (t.timestamp("us"), dt.datetime(2026, 11, 13, 12, 30, 0, 5, dt.UTC)),
    (t.timestamp("ns", None), np.datetime64(1, "ns")),
    (t.time("us"), dt.time(12, 30)),
    (t.duration("us"), dt.timedelta(seconds=-1.5)),
    (t.decimal(10, 2), Decimal("1.50")),
    (t.category(3), 2),
    (t.rowid, RowId(7, 9)),
    (t.vector(t.text, 2), ("a", None)),
    (t.vector(t.timestamp("us")), (dt.datetime(2026, 11, 13, tzinfo=dt.UTC),)),
    (t.vector(t.category(3), 1), (0,)),
    (t.text, None),
]


@pytest.mark.parametrize(("kind", "value"), EACH, ids=[f"{k} {v}" for k, v in EACH])
def test_an_annotation_travels_as_json_that_people_can_read(kind, value):
    said = Annotations({"some": Annotation(kind, value)})
    arrow = Schema([Field("x", t.int8, said)]).to_arrow()
    written = json.loads(arrow.field(0).metadata[b"trueline/some"])
    assert written["type"] == str(kind)
    assert "value" in written
    assert Schema.from_arrow(arrow)["x"].annotations == said


def test_annotations_survive_a_parquet_file(tmp_path):
    said = about(slot_names=["a", "b"], is_normalised=True)
    schema = Schema(
        [Field("v", t.vector(t.float32, 2), said), Field("c", t.category(1), about(category_values=[7]))]
    )
    table = pa.table([[[1.0, 2.0]], [0]], schema=schema.to_arrow())
    pq.write_table(table, tmp_path / "x.parquet")
    assert Schema.from_arrow(pq.read_table(tmp_path / "x.parquet").schema) == schema


def test_what_others_wrote_keeps_its_key_and_its_bytes():
    metadata = {b"acme/owner": b'{"team": "x"}', b"acme/raw": b"\xff", b"comment": b"hi", b"type": b"odd"}
    schema = Schema.from_arrow(pa.schema([pa.field("x", pa.int8(), metadata=metadata)]))
    found = schema["x"].annotations
    assert found["acme/owner"] == {"team": "x"}
    assert found["arrow/comment"] == "hi"
    assert schema.to_arrow().field(0).metadata == metadata


def test_what_arrow_and_spark_write_for_themselves_is_no_annotation():
    metadata = {b"PARQUET:field_id": b"1", b"ARROW:extension:name": b"x"}
    schema = Schema.from_arrow(pa.schema([pa.field("x", pa.int8(), metadata=metadata)]))
    assert schema["x"].annotations is NONE


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"5",
        b"[]",
        b'{"type": "text"}',
        b'{"type": "nonsense", "value": 1}',
        b'{"type": "int8", "value": "x"}',
        b'{"type": "vector(text)", "value": "x"}',
        b'{"type": "date", "value": "soon"}',
        b"\xff",
        b'{"type": 1, "value": 1}',
    ],
)
@pytest.mark.contract("view:C20")
def test_what_cannot_be_read_is_kept_as_it_is(raw):
    field = pa.field("x", pa.int8(), metadata={b"trueline/slot_names": raw})
    found = Schema.from_arrow(pa.schema([field]))["x"]
    assert an.slot_names(found) is None
    assert found.annotations["slot_names"] in (raw, raw.decode(errors="replace"))
