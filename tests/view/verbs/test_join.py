"""Joins: partners, order, ids and columns, against a join written out in loops."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.view.verbs.reading import agree, divided, in_set, memory, serial, values
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId

HOW = ("inner", "left", "right", "full", "semi", "anti")
NAN = float("nan")


def sides(count, name):
    """Rows with few different keys, missing ones among them."""
    row = st.tuples(
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from([None, "a", "é" * 5]),
        st.sampled_from([None, 1, 5, 9]),
    )

    def table(rows):
        k, s, at = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.table(
            {
                "k": pa.array(k, pa.int32()),
                "s": pa.array(s, pa.string()),
                "t": pa.array(at, pa.timestamp("us", "UTC")),
                name: pa.array(range(len(rows)), pa.int64()),
            }
        )

    return st.lists(row, max_size=count).map(table)


def looped(left, right, on, how, as_of):
    """The pairs of rows of a join and their ids, the slow way."""
    found, used = [], set()
    for i, mine in enumerate(left):
        partners = [
            j for j, row in enumerate(right) if all(mine[x] is not None and mine[x] == row[x] for x in on)
        ]
        if as_of:
            near = [j for j in partners if mine["t"] and right[j]["t"] and right[j]["t"] <= mine["t"]]
            last = max((right[j]["t"], j) for j in near)[1] if near else None
            partners = [] if last is None else [last]
        used.update(partners)
        if how in ("semi", "anti"):
            found += [(i, None, RowId(i))] if bool(partners) == (how == "semi") else []
            continue
        found += [(i, j, RowId(i).combine(RowId(j))) for j in partners]
        if not partners and how in ("left", "full"):
            found.append((i, None, RowId(i).combine(RowId.ONES)))
    if how in ("right", "full"):
        alone = [j for j in range(len(right)) if j not in used]
        found += [(None, j, RowId.ONES.combine(RowId(j))) for j in alone]
    return found


@settings(max_examples=examples(60))
@given(
    sides(12, "l"),
    sides(12, "r"),
    st.sampled_from([["k"], ["s"], ["k", "s"]]),
    st.tuples(st.sampled_from(HOW), st.sampled_from([None, "t"])),
    st.sampled_from([1 << 30, 100]),
)
def test_a_join_is_what_loops_would_give(left, right, on, asked, limit):
    how, as_of = asked
    expected = looped(left.to_pylist(), right.to_pylist(), on, how, as_of)
    with memory(limit):
        view = tl.View.from_arrow(left).join(tl.View.from_arrow(right), on, how, as_of)
        rows = view.with_row_id("id").to_arrow().to_pylist()
    assert [(row["l"], row.get("r"), RowId.from_bytes(row["id"])) for row in rows] == expected
    for row, (i, j, _) in zip(rows, expected, strict=True):
        assert [row[name] for name in on] == [
            (left if i is not None else right)[name][i if i is not None else j].as_py() for name in on
        ]


def test_keys_may_have_other_names_on_the_right():
    left = tl.View.from_rows([{"a": 1, "x": "l"}])
    right = tl.View.from_rows([{"b": 1, "x": "r"}, {"b": 2, "x": "s"}])
    found = left.join(right, {"a": "b"}, how="full", suffix="_2")
    assert found.to_arrow().to_pydict() == {"a": [1, 2], "x": ["l", None], "x_2": ["r", "s"]}
    assert [found.node.passed(place) for place in range(3)] == [None, (0, 1), (1, 1)]


def test_nan_is_equal_to_nan_and_zero_to_minus_zero_and_missing_to_nothing():
    left = tl.View.from_arrow(pa.table({"x": [NAN, 0.0, None, 1.0], "l": range(4)}))
    right = tl.View.from_arrow(pa.table({"x": [None, -0.0, NAN], "r": range(3)}))
    assert values(left.join(right, "x"), "l", "r") == [(0, 2), (1, 1)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.bool_(),
        pa.uint64(),
        pa.float32(),
        pa.date32(),
        pa.duration("ns"),
        pa.decimal128(19, 0),
        pa.binary(16),
    ],
    ids=str,
)
def test_keys_of_every_type_find_their_partners(kind):
    data = [b"a" * 16, b"b" * 16, None] if kind == pa.binary(16) else [1, 0, None]
    some = pa.array(data, pa.int32() if kind == pa.date32() else None).cast(kind)
    field = tl.types.field("x", tl.types.rowid) if kind == pa.binary(16) else pa.field("x", kind)
    left = pa.table([some, range(3)], pa.schema([field, ("l", pa.int64())]))
    right = pa.table([some.take([1, 0, 2, 1]), range(4)], pa.schema([field, ("r", pa.int64())]))
    found = tl.View.from_arrow(left).join(tl.View.from_arrow(right), "x")
    assert values(found, "l", "r") == [(0, 1), (1, 0), (1, 3)]


def test_the_last_of_several_rows_at_the_same_moment_is_the_partner():
    left = tl.View.from_arrow(pa.table({"k": [1, 1, 1, 2], "t": [0, 5, 9, 9]}))
    right = tl.View.from_arrow(pa.table({"k": [1, 1, 1, 1], "t": [5, 3, 5, 7], "r": range(4)}))
    found = left.join(right, "k", how="left", as_of=("t", "t"))
    assert values(found, "r") == [None, 2, 3, None]
    assert values(found, "t_right") == [None, 5, 7, None]
    assert found.row_count == 4
    alone = left.join(right, [], how="inner", as_of="t")
    assert values(alone, "r") == [2, 3, 3]


def test_only_the_columns_that_are_wanted_are_read():
    left = divided(pa.table({"k": [1, 2], "a": [1, 2], "b": [1, 2]}), 1, 1)
    right = divided(pa.table({"k": [2, 1], "c": [1, 2], "d": [1, 2]}), 2)
    view = tl.View(left).join(tl.View(right), "k")
    view.select("a", "d").to_arrow()
    assert left.cells == {"k": 2, "a": 2, "b": 0}
    assert right.cells == {"k": 2, "c": 0, "d": 2}


def test_the_left_streams_past_the_right():
    left = divided(pa.table({"k": [1] * 500}), 100, 100, 300)
    view = tl.View(left).join(tl.View.from_rows([{"k": 1, "x": 2}]), "k")
    with view.cursor(["x"]) as cursor:
        assert cursor.move_next()
        assert left.cells["k"] < 400
    assert left.open == 0


def test_rows_of_the_right_alone_are_known_whoever_reads_them_first():
    left = tl.View(divided(pa.table({"k": [1, 2, 3, 4]}), 2, 2))
    right = tl.View.from_arrow(pa.table({"k": [4, 9, 2, 8], "r": range(4)}))
    view = left.join(right, "k", how="full")
    rows = serial(view, ["r"])
    assert [row[1] for row in rows] == [(None,), (2,), (None,), (0,), (1,), (3,)]
    members = view.cursor_set(["r"], 3)
    found = []
    for member in reversed(members):
        get = member.getter("r")
        part = []
        while member.move_next():
            part.append((member.batch, member.id, get()))
        found += part
    assert [(each[1], (each[2],)) for each in sorted(found, key=lambda row: row[0])] == rows
    assert in_set(view, 2, ["r"]) == rows


def test_in_order_a_full_join_reads_each_side_once():
    left, right = (divided(pa.table({"k": range(40)}), 10, 30) for _ in range(2))
    assert len(in_set(tl.View(left).join(tl.View(right).filter("k > 9"), "k", how="full"), 1)) == 40
    assert (left.cells, right.cells) == ({"k": 40}, {"k": 40})


def test_a_view_joined_to_itself_has_an_id_for_every_pair():
    view = tl.View.from_arrow(pa.table({"k": [1, 1, 2, 2, 2], "n": range(5)}))
    assert len(agree(view.join(view, "k"))) == 4 + 9


def test_a_column_may_be_missing_where_a_partner_may():
    table = pa.table(
        {"k": [1], "x": [2]}, pa.schema([pa.field("k", pa.int64(), False), pa.field("x", pa.int64(), False)])
    )
    view = tl.View.from_arrow(table)
    other = view.rename(y="x")

    def nullable(how):
        return [column.nullable for column in view.join(other, "k", how=how).schema]

    assert nullable("inner") == [False, False, False]
    assert nullable("left") == [False, False, True]
    assert nullable("full") == [False, True, True]
    assert view.join(other, "k", how="semi").schema is view.schema


def test_what_cannot_be_joined_is_refused_before_a_row_is_read():
    view = tl.View.from_rows([{"k": 1, "x": 1.5, "v": [1.0], "s": "a"}])
    other = tl.View.from_rows([{"k": "1", "x": 1.5, "v": [1.0]}])
    with pytest.raises(SchemaError, match=r"int64.*text") as error:
        view.join(other, "k")
    assert error.value.remedy == 'convert the column on the right: with_columns(k="cast(`k` as int64)")'
    with pytest.raises(SchemaError, match="cannot compare"):
        view.join(other, "v")
    with pytest.raises(SchemaError, match="as_of cannot follow"):
        view.join(view, "k", as_of="s")
    with pytest.raises(InputError, match="without key columns"):
        view.join(view, [])
    with pytest.raises(InputError, match="'outer'"):
        view.join(view, "k", how="outer")
    with pytest.raises(SchemaError, match="no column 'q'"):
        view.join(view, "q")


def test_two_columns_of_one_name_are_refused():
    left = tl.View.from_rows([{"k": 1, "x": 1, "x_right": 2}])
    with pytest.raises(SchemaError, match="two columns would be named 'x_right'"):
        left.join(left.select("k", "x"), "k")
    assert left.join(left.select("k", "x"), "k", suffix="_b").schema.names == ("k", "x", "x_right", "x_b")


@pytest.mark.parametrize("limit", [1 << 30, 100])
def test_a_cross_join_has_every_pair_in_the_order_of_both(limit):
    left = tl.View(divided(pa.table({"a": range(5), "x": [0] * 5}), 2, 3))
    right = tl.View.from_arrow(pa.table({"b": range(3), "x": [1] * 3}))
    found = left.join(right, how="cross")
    assert found.row_count == 15
    assert found.schema.names == ("a", "x", "b", "x_right")
    with memory(limit):
        rows = agree(found)
    assert [row for _, row in rows] == [(a, 0, b, 1) for a in range(5) for b in range(3)]
    assert [each for each, _ in rows] == [RowId(a).combine(RowId(b)) for a in range(5) for b in range(3)]
    assert found.explain().startswith("cross join\n")
    assert left.join(right.limit(0), how="cross").count() == 0
    with pytest.raises(InputError, match="a cross join with key columns"):
        left.join(right, on="x", how="cross")


def test_a_right_join_keeps_the_rows_of_the_right_and_only_those():
    left = tl.View.from_rows([{"k": 1, "l": "a"}, {"k": 2, "l": "b"}])
    right = tl.View.from_arrow(
        pa.table(
            [[3, 1, 1], ["x", "y", "z"]],
            pa.schema([pa.field("k", pa.int64()), pa.field("r", pa.string(), False)]),
        )
    )
    found = left.join(right, "k", how="right")
    assert found.to_arrow().to_pydict() == {"k": [1, 1, 3], "l": ["a", "a", None], "r": ["y", "z", "x"]}
    assert [column.nullable for column in found.schema] == [True, True, False]


def test_a_join_by_another_name_is_named():
    view = tl.View.from_rows([{"k": 1}])
    for how, here in (
        ("outer", "full"),
        ("left_semi", "semi"),
        ("leftanti", "anti"),
        ("right_outer", "right"),
    ):
        with pytest.raises(InputError) as caught:
            view.join(view, "k", how=how)
        assert caught.value.remedy.endswith(f"is {here}")
        assert view.join(view, "k", how=here).count() in (0, 1)


def test_empty_sides_join():
    none = tl.View.from_arrow(pa.table({"k": pa.array([], pa.int64()), "x": pa.array([], pa.string())}))
    some = tl.View.from_arrow(pa.table({"k": [1, None], "y": ["a", "b"]}))
    for limit in (1 << 30, 1):
        with memory(limit):
            assert none.join(some, "k").count() == none.join(some, "k", how="left").count() == 0
            assert some.join(none, "k", how="left").to_arrow()["x"].to_pylist() == [None, None]
            assert values(none.join(some, "k", how="full"), "k", "x", "y") == [
                (1, None, "a"),
                (None, None, "b"),
            ]
            assert some.join(none, "k", how="anti").count() == 2
