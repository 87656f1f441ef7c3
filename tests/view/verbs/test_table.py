"""The table of operators in docs/views.md: every cell is checked by what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT
from tests.view.verbs.reading import Counting, divided, ids, serial
from trueline.identity import RowId
from trueline.view import execute
from trueline.view.annotations import about
from trueline.view.plan.node import Want
from trueline.view.schema import Field, Schema

TABLE = pa.table(
    {
        "n": pa.array(range(40), pa.int64()),
        "k": pa.array([number % 7 for number in range(40)], pa.int64()),
        "v": pa.array([[number, number + 1] for number in range(40)], pa.list_(pa.int64(), 2)),
        "o": pa.array([number if number % 3 else None for number in range(40)], pa.int64()),
        "c": pa.array([number % 2 for number in range(40)], pa.uint32()),
    }
)
MEANT = Schema([Field("c", tl.types.category(2), about(category_values=["no", "yes"]))]).to_arrow()
TABLE = TABLE.cast(TABLE.schema.set(4, MEANT.field("c")))
OTHER = pa.table({"k": pa.array([1, 2, 2, 3, 99], pa.int64()), "m": pa.array(range(5), pa.int64())})


def counted():
    """Rows in three pieces."""
    return tl.View(divided(TABLE, 15, 5, 20))


def uncounted():
    """Rows in one piece, whose number takes reading."""
    return tl.View(Counting(TABLE))


def other():
    return tl.View.from_arrow(OTHER)


def still(view):
    """The same rows, which cannot be shuffled."""
    return view.window(0, 0, one="count(*)").drop("one").window(0, 0, one="count(*)")


@dataclass
class Case:
    """Operators of a row of the table: from one view to another."""

    makers: list
    pairs: bool = False  # whether there is a second view


CASES = {
    "`select`, `drop`, `rename`, `with_columns`, `with_row_id`, `annotate`, `fill_null`, `decode`": Case(
        [
            lambda v: v.select("k", "n"),
            lambda v: v.drop("k"),
            lambda v: v.rename(j="k"),
            lambda v: v.with_columns(y="n + 1"),
            lambda v: v.with_row_id("id"),
            lambda v: v.annotate("k", {"test/unit": "m"}),
            lambda v: v.fill_null(k=7),
            lambda v: v.decode("c"),
        ]
    ),
    "`filter`, `drop_nulls`": Case([lambda v: v.filter("k > 2"), lambda v: v.drop_nulls("o")]),
    "`limit`, `skip`, `head`": Case(
        [lambda v: v.limit(17), lambda v: v.skip(17), lambda v: v.skip(50), lambda v: v.head(17)]
    ),
    "`tail`": Case([lambda v: v.tail(22), lambda v: v.tail(50)]),
    "`sample`, `split`, `folds`": Case(
        [
            lambda v: v.sample(0.5),
            lambda v: v.split((0.5, 0.5))[1],
            lambda v: v.split((0.5, 0.5), by="k")[0],
            lambda v: v.folds(3)[1][0],
            lambda v: v.folds(3)[1][1],
        ]
    ),
    "`sample(replace=True)`": Case([lambda v: v.sample(1.5, replace=True)]),
    "`sort`": Case([lambda v: v.sort("k"), lambda v: v.sort("k", descending=True)]),
    "`shuffle`": Case([lambda v: v.shuffle(3)]),
    "`concat`": Case([lambda v, w: v.concat(w, v), lambda v, w: v.concat()], pairs=True),
    "`zip`": Case([lambda v, w: v.zip(w.rename(a="n").limit(30))], pairs=True),
    "`explode`": Case([lambda v: v.explode("v"), lambda v: v.explode("v", outer=True)]),
    "`join`: inner, left, right, full": Case(
        [
            lambda v, w: v.join(w.select("k", "n"), "k"),
            lambda v, w: v.join(w.select("k", "n").filter("k > 3"), "k", how="left"),
            lambda v, w: v.filter("k < 5").join(w.select("k", "n").filter("k <> 1"), "k", how="right"),
            lambda v, w: v.filter("k < 5").join(w.select("k", "n"), "k", how="full"),
            lambda v, w: v.join(w.select("k", "n"), "k", how="left", as_of="n"),
        ],
        pairs=True,
    ),
    "`join`: cross": Case([lambda v, w: v.join(w.select("n"), how="cross")], pairs=True),
    "`join`: semi, anti": Case(
        [
            lambda v, w: v.join(w.filter("k > 3"), "k", how="semi"),
            lambda v, w: v.join(w.filter("k > 3"), "k", how="anti"),
        ],
        pairs=True,
    ),
    "`group_by`, `distinct`": Case(
        [
            lambda v: v.group_by("k").agg(n="first(n)"),
            lambda v: v.group_by().agg(n="min(n)"),
            lambda v: v.group_by("k").agg(n="first(n) + 0 * sum(n)"),
            lambda v: v.distinct("k"),
            lambda v: v.select("n", "k").filter("n < 7").distinct(),
        ]
    ),
    "`window`": Case(
        [
            lambda v: v.window(2, 1, s="sum(n)"),
            lambda v: v.window(2, 1, by="k", s="sum(n)"),
            lambda v: v.window(s="row_number()"),
            lambda v: v.window(s="rank(k)"),
        ]
    ),
    "`cache`": Case([lambda v: v.cache()]),
}


def table():
    """The cells of the page: operator → column → text."""
    text = (ROOT / "docs" / "views.md").read_text(encoding="utf-8").split("## Operators")[1].split("###")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def made(case, source=counted):
    """The views of a case, each with what it was made of."""
    for maker in case.makers:
        view = source()
        if case.pairs:
            second = source()
            yield view, maker(view, second), second
        else:
            yield view, maker(view), None


def numbers(view):
    """Which row of the input a row is from, by its column n."""
    return [row[0] for _, row in serial(view, ["n"])]


def pieces(view, parts=0):
    """The ids of each piece."""
    want = Want((), ids=True, parts=parts)
    return [
        [one for chunk in piece.chunks() for one in (chunk.ids or ())]
        for piece in execute.pieces(view.node, want)
    ]


# --- ids --------------------------------------------------------------------------------------


def ids_are_unchanged(case):
    for _, view, _ in made(case):
        if "n" in view.schema and view.schema["n"].type == tl.types.int64:
            assert ids(view) == [RowId(number) for number in numbers(view)]
        else:
            assert ids(view) == [RowId(number) for number in range(40)]


def ids_are_drawn(case):
    for _, view, _ in made(case):
        seen = {}
        expected = []
        for number in numbers(view):
            seen[number] = seen.get(number, -1) + 1
            expected.append(RowId(number).combine(RowId(seen[number])))
        assert ids(view) == expected
        assert max(seen.values()) > 0


def ids_are_of_the_ith_view(case):
    for _, view, _ in made(case):
        expected = [RowId(n).combine(RowId(i)) for i in range(len(view.node.inputs)) for n in range(40)]
        assert ids(view) == expected


def ids_are_of_the_first_view(case):
    for _, view, _ in made(case):
        assert ids(view) == [RowId(number) for number in range(30)]


def ids_are_forks(case):
    for _, view, _ in made(case):
        first = [RowId(number).fork() for number in range(40)]
        assert ids(view) == [each for one in first for each in (one, one.next())]


def ids_are_combined(case):
    """Every pair of rows that can be partners, and the id of all ones for none."""
    pairs = set()
    for left, view, _ in made(case):
        known = {}
        for a in [RowId.ONES, *ids(left)]:
            for b in [RowId.ONES, *ids(left)]:
                known[a.combine(b)] = (a, b)
        found = [known[each] for each in ids(view)]
        mine, theirs = view.to_arrow()["n"].to_pylist(), view.to_arrow()["n_right"].to_pylist()
        expected = [
            (RowId.ONES if n is None else RowId(n), RowId.ONES if m is None else RowId(m))
            for n, m in zip(mine, theirs, strict=True)
        ]
        assert found == expected
        pairs |= set(expected)
    assert {a == RowId.ONES for a, _ in pairs} == {b == RowId.ONES for _, b in pairs} == {True, False}


def ids_are_of_pairs(case):
    for _, view, _ in made(case):
        pairs = zip(view.to_arrow()["n"].to_pylist(), view.to_arrow()["n_right"].to_pylist(), strict=True)
        assert ids(view) == [RowId(n).combine(RowId(m)) for n, m in pairs]


def ids_are_of_first_rows(case):
    for _, view, _ in made(case):
        assert ids(view) == [RowId(number) for number in numbers(view)]


# --- order ------------------------------------------------------------------------------------


def order_is_unchanged(case):
    for _, view, _ in made(case):
        found = ids(view)
        assert found == sorted(found)


def order_is_unchanged_with_repeats(case):
    for _, view, _ in made(case):
        assert numbers(view) == sorted(numbers(view))


def order_is_by_columns(case):
    for _, view, _ in made(case):
        down = view.node.descending[0]
        expected = sorted(range(40), key=lambda n: (-(n % 7) if down else n % 7, n))
        assert numbers(view) == expected


def order_is_by_hash(case):
    for _, view, _ in made(case):
        assert numbers(view) != list(range(40))
        assert numbers(view) == sorted(range(40), key=lambda n: written_hash("shuffle", 3, n))


def written_hash(purpose, seed, low, high=0):
    """The hash as the page writes it down, in plain numbers."""
    import hashlib

    def mix(x):
        x ^= x >> 30
        x = x * 0xBF58476D1CE4E5B9 % 2**64
        x ^= x >> 27
        x = x * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    digest = hashlib.blake2b(f"trueline/{purpose}/{seed}".encode()).digest()
    s0, s1 = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
    return mix(mix((low + s0) % 2**64) ^ (high + s1) % 2**64)


def order_is_one_after_another(case):
    for _, view, _ in made(case):
        assert numbers(view) == list(range(40)) * len(view.node.inputs)


def order_is_of_values(case):
    for _, view, _ in made(case):
        expected = [(number, number + at) for number in range(40) for at in (0, 1)]
        assert [row for _, row in serial(view, ["n", "v"])] == expected


def order_is_of_left_then_right(case):
    for _, view, _ in made(case):
        found = [row for _, row in serial(view, ["n", "n_right"])]
        end = [(999, m) for n, m in found if n is None]
        start = [(n, -1 if m is None else m) for n, m in found if n is not None]
        assert start == sorted(start)
        assert end == sorted(end)
        assert found[len(start) :] == [(None, m) for _, m in end]


# --- rows -------------------------------------------------------------------------------------


def rows_are_the_same(case):
    for _, view, _ in made(case):
        assert view.row_count == 40 == view.count()
    assert all(view.row_count is None for _, view, _ in made(case, uncounted))


def rows_are_unknown(case):
    assert all(view.row_count is None for _, view, _ in made(case))


def rows_are_what_is_left(case):
    for _, view, _ in made(case):
        assert view.row_count == view.count()
    assert all(view.row_count is None for _, view, _ in made(case, uncounted))
    assert uncounted().limit(0).row_count == 0


def rows_are_known_for_all_or_none(case):
    rows_are_unknown(case)
    assert counted().sample(1.0).row_count == 40
    assert counted().sample(0).row_count == 0
    assert [part.row_count for part in counted().split((1.0, 0.0))] == [40, 0]


def rows_are_the_sum(case):
    for _, view, _ in made(case):
        assert view.row_count == 40 * len(view.node.inputs) == view.count()
    assert all(view.row_count is None for _, view, _ in made(case, uncounted))


def rows_are_the_smallest(case):
    for _, view, _ in made(case):
        assert view.row_count == 30 == view.count()
    assert all(view.row_count is None and view.count() == 30 for _, view, _ in made(case, uncounted))


def rows_are_times_size(case):
    assert all(view.row_count is None for _, view, _ in made(case))  # a vector might be missing
    sure = TABLE.cast(TABLE.schema.set(2, TABLE.schema.field("v").with_nullable(False)))
    view = tl.View.from_arrow(sure).explode("v")
    assert view.row_count == 80 == view.count()


def rows_of_joins(case):
    *unknown, as_of = [view.row_count for _, view, _ in made(case)]
    assert unknown == [None] * 4
    assert as_of == 40
    assert list(made(case))[-1][1].count() == 40


def rows_are_the_product(case):
    for _, view, _ in made(case):
        assert view.row_count == 1600 == view.count()
    assert all(view.row_count is None for _, view, _ in made(case, uncounted))


def rows_are_known_once_read(case):
    for _, view, _ in made(case, uncounted):
        assert view.row_count is None
        view.select("n").to_arrow()
        assert view.row_count == 40
    assert all(view.row_count == 40 for _, view, _ in made(case))


# --- shuffling --------------------------------------------------------------------------------


def shuffles_as_the_input(case):
    assert all(view.can_shuffle for _, view, _ in made(case))
    assert not any(view.can_shuffle for _, view, _ in made(case, lambda: still(counted())))
    for _, view, _ in made(case):
        rows = serial(view)
        mixed = serial(view, seed=11)
        assert sorted(map(str, mixed)) == sorted(map(str, rows))
        assert len(rows) < 5 or mixed != rows


def shuffles_never(case):
    for _, view, _ in made(case):
        assert not view.can_shuffle
        assert serial(view, seed=11) == serial(view)


def shuffles_always(case):
    for _, view, _ in made(case, lambda: still(counted())):
        assert view.can_shuffle
        assert serial(view, seed=11) != serial(view)


# --- pieces -----------------------------------------------------------------------------------


def pieces_of_the_input(case):
    """Rows stay in the piece they were in: their ordinals say which that was."""
    for source, view, _ in made(case):
        whole = [len(each) for each in pieces(source)]
        assert whole == [15, 5, 20]
        assert len(pieces(view)) == 3
        assert [one for piece in pieces(view) for one in piece] == ids(view)
        if all(each.high == 0 for each in ids(view)):
            bounds = [(0, 15), (15, 20), (20, 40)]
            for piece, (low, high) in zip(pieces(view), bounds, strict=True):
                assert all(low <= each.low < high for each in piece)


def pieces_are_cut(case):
    sizes = [[len(piece) for piece in pieces(view)] for _, view, _ in made(case)]
    assert sizes == [[15, 2], [3, 20], [], [15, 2]]
    for _, view, _ in made(case, uncounted):
        assert len(execute.pieces(view.node, Want((), ids=True))) == 1
        assert execute.serial(view.node) is not None


def pieces_are_cut_at_the_end(case):
    sizes = [[len(piece) for piece in pieces(view)] for _, view, _ in made(case)]
    assert sizes == [[2, 20], [15, 5, 20]]
    for _, view, _ in made(case, uncounted):
        assert len(execute.pieces(view.node, Want((), ids=True))) == 1
        assert execute.serial(view.node) is not None


def pieces_are_ranges(case):
    for _, view, _ in made(case):
        found = pieces(view, parts=6)
        assert len(found) == 6
        assert max(map(len, found)) - min(map(len, found)) <= 1
        assert [one for piece in found for one in piece] == ids(view)


def pieces_of_each(case):
    for _, view, _ in made(case):
        assert [len(piece) for piece in pieces(view)] == [15, 5, 20] * len(view.node.inputs)


def pieces_where_counted(case):
    for _, view, _ in made(case):
        assert [len(piece) for piece in pieces(view, parts=5)] == [6] * 5
        assert execute.serial(view.node) is None
    for _, view, _ in made(case, uncounted):
        assert len(pieces(view, parts=5)) == 1
        assert execute.serial(view.node) is not None


def pieces_of_the_left(case):
    for _, view, _ in made(case):
        found = pieces(view)
        assert len(found) == 3 + (view.node.how in ("right", "full"))
        assert [one for piece in found for one in piece] == ids(view)


def pieces_are_one(case):
    for _, view, _ in made(case):
        want = Want((view.schema["s"].index,), ids=True, parts=7)
        assert len(execute.pieces(view.node, want)) == 1
        assert execute.serial(view.node) is not None
        assert len(execute.pieces(view.node, Want((0,), ids=True, parts=7))) == 3


def pieces_once_kept(case):
    for _, view, _ in made(case):
        want = Want((0,), ids=True, parts=5)
        assert len(execute.pieces(view.node, want)) == 1
        rows = serial(view, ["n"])
        assert [piece.rows for piece in execute.pieces(view.node, want)] == [8] * 5
        assert serial(view, ["n"]) == rows


CHECKS = {
    "ids": {
        "unchanged": ids_are_unchanged,
        "`id.combine(RowId(k))`, k from 0 on": ids_are_drawn,
        "`id.combine(RowId(i))` of the i-th view": ids_are_of_the_ith_view,
        "of the first view": ids_are_of_the_first_view,
        "`id.fork()`, its `next()` …": ids_are_forks,
        "`left.combine(right)`; for none the id of all ones": ids_are_combined,
        "`left.combine(right)`": ids_are_of_pairs,
        "of the first row": ids_are_of_first_rows,
    },
    "order": {
        "unchanged": order_is_unchanged,
        "unchanged, repeated rows together": order_is_unchanged_with_repeats,
        "by the columns, equal rows as they were": order_is_by_columns,
        "by a hash of seed and id": order_is_by_hash,
        "one view after another": order_is_one_after_another,
        "unchanged, values in their order": order_is_of_values,
        "of the left, then of the right; right rows alone last": order_is_of_left_then_right,
        "of the left, then of the right": order_is_of_left_then_right,
        "of the first rows": order_is_unchanged,
    },
    "rows": {
        "the same": rows_are_the_same,
        "unknown": rows_are_unknown,
        "what is left": rows_are_what_is_left,
        "unknown; known where all or none are chosen": rows_are_known_for_all_or_none,
        "the sum": rows_are_the_sum,
        "the product": rows_are_the_product,
        "the smallest": rows_are_the_smallest,
        "rows × size where it is fixed and none is null": rows_are_times_size,
        "unknown; an as-of left join has the left's": rows_of_joins,
        "the input's; known once read": rows_are_known_once_read,
    },
    "shuffling": {
        "as the input": shuffles_as_the_input,
        "if all can": shuffles_as_the_input,
        "if both can": shuffles_as_the_input,
        "never": shuffles_never,
        "always": shuffles_always,
    },
    "pieces": {
        "those of the input": pieces_of_the_input,
        "those of the input, cut; one where rows are not counted": pieces_are_cut,
        "those of the input, cut; one where the last are not counted": pieces_are_cut_at_the_end,
        "ranges of the order": pieces_are_ranges,
        "those of each": pieces_of_each,
        "equal parts where rows are counted, else one": pieces_where_counted,
        "those of the left, and one more for right and full": pieces_of_the_left,
        "those of the left": pieces_of_the_input,
        "equal parts": pieces_are_ranges,
        "one, unless no column of it is read": pieces_are_one,
        "one until kept, then equal parts": pieces_once_kept,
    },
}


def test_the_table_has_a_row_for_every_case():
    assert list(table()) == list(CASES)
    verbs, _ = (ROOT / "src/trueline/view/verbs.py").read_text().split("class Groups")
    operations = re.findall(r"    def (\w+)\(", verbs)
    said = " ".join(CASES)
    assert [name for name in operations if not name.startswith("_") and name not in said] == [
        "node",
        "schema",
    ]


CONTRACTS = {
    "rows": ["view:C31"],
    "shuffling": ["view:C71", "view:C83"],
    "pieces": ["view:C70", "view:C71"],
}


def cells():
    """Every cell, with the contracts it holds."""
    for operator in CASES:
        for column in CHECKS:
            held = [*CONTRACTS.get(column, ()), *(["view:C104"] if operator == "`cache`" else [])]
            marks = [pytest.mark.contract(each) for each in held]
            yield pytest.param(operator, column, marks=marks, id=f"{operator}-{column}")


@pytest.mark.parametrize(("operator", "column"), list(cells()))
def test_a_cell_of_the_table_holds(operator, column):
    CHECKS[column][table()[operator][column]](CASES[operator])
