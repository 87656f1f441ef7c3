"""A cursor: where it stands, what it gives, what it refuses, and what it leaves behind."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.watched import Watched, numbers
from trueline import types as t
from trueline.errors import CursorShared, InputError, SchemaError
from trueline.identity import RowId, RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk
from trueline.view.cursor import cursor as cursors


@pytest.fixture
def view():
    return tl.View.from_arrow(numbers(25))


def drained(cursor, column=None):
    """All that a cursor gives: position, batch, id, value."""
    get = cursor.getter(column) if column else lambda: None
    found = []
    while cursor.move_next():
        found.append((cursor.position, cursor.batch, cursor.id, get()))
    return found


@pytest.mark.contract("view:C44", "view:C73", "view:C74")
@pytest.mark.parametrize("columns", [[], ["n"]])
@pytest.mark.parametrize("rows", [0, 1, 4_096, 10_000])
def test_an_id_getter_gives_the_id_of_the_row_there_is_and_is_made_once(rows, columns):
    with tl.View.range(rows).cursor(columns) as cursor:
        get = cursor.id_getter()
        assert cursor.id_getter() is get
        for wrong in (get, lambda: cursor.id):
            with pytest.raises(InputError, match="not on a row"):
                wrong()
        found = []
        while cursor.move_next():
            found.append(get())
            assert get() is cursor.id
        assert found == [tl.RowId(number) for number in range(rows)]
        with pytest.raises(InputError, match="not on a row"):
            get()


@pytest.mark.contract("view:C1")
def test_a_cursor_has_the_very_schema_of_its_view(view):
    assert view.schema is view.schema
    assert view.cursor().schema is view.schema
    assert view.filter("n > 3").cursor("name").schema is view.schema
    assert all(member.schema is view.schema for member in view.cursor_set("n", 3))


@pytest.mark.contract("view:C17")
def test_columns_of_other_views_and_places_beyond_the_last_are_refused(view):
    other = tl.View.from_arrow(numbers(1))
    for wrong in (other.schema["n"], 3, -1, "x", True):
        with pytest.raises(SchemaError):
            view.cursor([wrong])
        with pytest.raises(SchemaError):
            view.cursor_set([wrong], 2)
        with view.cursor() as cursor, pytest.raises(SchemaError):
            cursor.getter(wrong)
        with view.cursor() as cursor, pytest.raises(SchemaError):
            cursor.is_active(wrong)


@pytest.mark.contract("view:C32")
def test_opening_reads_nothing():
    source = Watched(numbers(100), parts=4)
    view = tl.View(source).filter("n > 5").select("n")
    opened = [view.cursor(), *view.cursor_set(n=4), tl.view.consolidate(view.cursor_set(n=2))]
    assert [cursor.getter("n") for cursor in opened]
    assert source.log.opened == 0
    for cursor in opened:
        cursor.close()
    assert source.log.opened == 0


@pytest.mark.contract("view:C33", "view:C34", "view:C73")
@pytest.mark.parametrize("columns", [[], ["n"], ["name"], ["half", "n"], None])
def test_the_rows_and_their_ids_do_not_depend_on_the_columns(columns):
    view = tl.View(Watched(numbers(100))).filter("n % 3 = 1").skip(2).limit(20)
    with view.cursor(columns) as cursor:
        found = drained(cursor)
    assert [(at, who) for at, _, who, _ in found] == [(k, RowId(3 * k + 7)) for k in range(20)]


@pytest.mark.contract("view:C39")
def test_a_view_without_rows_opens_and_ends_at_once():
    with tl.View.from_arrow(numbers(0)).cursor() as cursor:
        get = cursor.getter("n", t.int64)
        with pytest.raises(InputError, match="not on a row"):
            get()
        assert not cursor.move_next()
        with pytest.raises(InputError, match="not on a row"):
            get()


@pytest.mark.contract("view:C42", "view:C43")
def test_positions_run_from_the_first_to_the_last_row_and_are_minus_one_outside(view):
    with view.skip(3).cursor("n") as cursor:
        assert cursor.position == -1
        assert [at for at, *_ in drained(cursor)] == list(range(22))
        assert cursor.position == -1
        assert not any(cursor.move_next() for _ in range(100))
        assert cursor.position == -1


@pytest.mark.contract("view:C42")
@pytest.mark.parametrize("rows", [cursors.ROWS_AT_ONCE, ROWS_OF_A_CHUNK])
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_positions_values_and_ids_run_on_over_the_ends_of_what_is_read_at_once(rows, beside):
    view = tl.View.range(rows + beside)
    with view.cursor() as cursor:
        found = drained(cursor, "n")
    assert [at for at, *_ in found] == [n for *_, n in found] == list(range(rows + beside))
    assert [who for _, _, who, _ in found[-3:]] == [RowId(rows + beside - k) for k in (3, 2, 1)]


@pytest.mark.contract("view:C44")
def test_nothing_can_be_fetched_where_there_is_no_row(view):
    with view.cursor("n") as cursor:
        get = cursor.getter("n")
        for _ in range(2):
            with pytest.raises(InputError) as refused:
                get()
            assert refused.value.code == "NoRow"
            with pytest.raises(InputError, match="not on a row"):
                _ = cursor.id
            drained(cursor)


@pytest.mark.contract("view:C45", "view:C49")
def test_a_getter_made_before_the_first_move_serves_every_row_as_often_as_asked(view):
    with view.cursor() as cursor:
        get, unused = cursor.getter("n"), cursor.getter("name")
        found = []
        while cursor.move_next():
            found.append([get() for _ in range(cursor.position % 3)])
    assert found == [[n] * (n % 3) for n in range(25)]
    assert callable(unused)


@pytest.mark.contract("view:C46")
def test_a_column_that_was_not_asked_for_has_no_getter(view):
    with view.cursor(["n"]) as cursor, pytest.raises(InputError, match="not asked for") as refused:
        cursor.getter("name")
    assert refused.value.code == "InactiveColumn"


@pytest.mark.contract("view:C47", "view:C48")
@pytest.mark.parametrize(
    ("column", "wrong"),
    [("n", t.int32), ("n", float), ("half", t.float64), ("half", float), ("name", t.binary), ("n", bool)],
)
def test_a_getter_of_another_type_is_refused_when_it_is_made(view, column, wrong):
    with view.cursor() as cursor:
        with pytest.raises(SchemaError, match="was asked for") as refused:
            cursor.getter(column, wrong)
        assert refused.value.fields["column"] == column
        kind = view.schema[column].type
        assert f"column {column!r} has type {kind}, and " in refused.value.problem
        assert f"ask for {kind}" in refused.value.remedy
        assert callable(cursor.getter(column, view.schema[column].type))


@pytest.mark.contract("view:C50")
def test_exactly_the_columns_asked_for_are_active(view):
    with view.filter("n > 3").cursor(["name"]) as cursor:
        assert [cursor.is_active(column) for column in view.schema] == [False, False, True]
    members = view.filter("n > 3").cursor_set(["name"], 2)
    assert [[m.is_active(i) for i in range(3)] for m in members] == [[False, False, True]] * 2


@pytest.mark.contract("view:C51")
def test_a_column_has_one_getter(view):
    with view.cursor() as cursor:
        before = cursor.getter("n")
        cursor.move_next()
        assert cursor.getter(0, int) is before
        assert cursor.getter(view.schema["n"]) is before
        assert cursor.getter("name") is not before


def test_hidden_columns_are_read_by_their_index():
    view = tl.View.from_arrow(pa.table([[1], ["x"], [2]], names=["a", "b", "a"]))
    with view.cursor([0, 2]) as cursor:
        cursor.move_next()
        assert (cursor.getter(0)(), cursor.getter("a")()) == (1, 2)


@pytest.mark.contract("view:C54")
def test_a_second_thread_that_moves_a_cursor_while_rows_are_fetched_is_refused():
    entered, go_on, second = threading.Event(), threading.Event(), []

    def chunks():
        entered.set()
        go_on.wait(30)
        yield from ()

    cursor = cursors.ChunkCursor(tl.View.range(1).schema, [], chunks)
    first = threading.Thread(target=cursor.move_next)
    first.start()
    assert entered.wait(30)
    with pytest.raises(CursorShared, match="two threads"):
        second.append(cursor.move_next())
    go_on.set()
    first.join(30)
    assert not cursor.move_next()


@pytest.mark.contract("view:C54")
def test_a_cursor_may_be_handed_from_thread_to_thread(view):
    cursor, found = view.cursor("n"), []
    get = cursor.getter("n")

    def one():
        if cursor.move_next():
            found.append(get())

    for _ in range(26):
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    assert found == list(range(25))


@pytest.mark.contract("view:C55")
@pytest.mark.parametrize("moves", [0, 1, 12, 25, 26])
def test_closing_ends_it_at_any_time_and_twice_is_once(moves):
    source = Watched(numbers(25))
    cursor = tl.View(source).cursor("n")
    get = cursor.getter("n")
    for _ in range(moves):
        cursor.move_next()
    cursor.close()
    cursor.close()
    assert cursor.position == -1
    assert not cursor.move_next()
    assert cursor.position == -1
    with pytest.raises(InputError, match="not on a row"):
        get()
    assert source.log.opened == source.log.closed == (moves > 0)


@pytest.mark.contract("view:C55")
def test_the_end_closes_it():
    source = Watched(numbers(25))
    cursor = tl.View(source).filter("n < 9").limit(3).cursor("n")
    while cursor.move_next():
        pass
    assert source.log.opened == source.log.closed == 1


@pytest.mark.contract("view:C56")
def test_a_cursor_that_is_dropped_lets_go_without_waiting_for_the_collector():
    source = Watched(numbers(100), parts=4)
    gc.disable()
    try:
        cursor = tl.View(source).cursor()
        gone = weakref.ref(cursor)
        get = cursor.getter("n")
        cursor.move_next()
        before = get()
        del cursor
        assert gone() is None
        assert source.log.opened == source.log.closed
        assert before == 0
    finally:
        gc.enable()


@pytest.mark.contract("view:C56", "view:C68")
@pytest.mark.parametrize("rows", [0, 3])
def test_another_thread_may_close_it_while_it_waits_for_rows(rows):
    entered, go_on, closed = threading.Event(), threading.Event(), []

    def chunks():
        try:
            entered.set()
            go_on.wait(30)
            yield from [(0, Chunk(rows, (), RowIds.range(0, rows)))] if rows else []
        finally:
            closed.append(True)

    cursor = cursors.ChunkCursor(tl.View.range(1).schema, [], chunks)
    moved = []
    thread = threading.Thread(target=lambda: moved.append(cursor.move_next()))
    thread.start()
    assert entered.wait(30)
    cursor.close()
    assert cursor.position == -1
    go_on.set()
    thread.join(30)
    assert (moved, closed) == ([False], [True])
    assert (cursor.position, cursor.move_next()) == (-1, False)


@pytest.mark.contract("view:C55")
def test_closing_closes_what_it_reads_whoever_else_holds_that():
    closed = []

    def chunks():
        try:
            while True:
                yield 0, Chunk(1, (), RowIds.range(0, 1))
        finally:
            closed.append(True)

    held = chunks()
    cursor = cursors.ChunkCursor(tl.View.range(1).schema, [], lambda: held)
    assert cursor.move_next()
    cursor.close()
    assert closed == [True]


@pytest.mark.contract("view:C56")
@pytest.mark.parametrize("moves", [0, 1, 1_000])
def test_an_early_close_leaves_no_thread_and_no_file(tmp_path, moves):
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    pq.write_table(numbers(5_000), path, row_group_size=100)
    view = tl.View.read_parquet([path])

    def once():
        for cursor in [view.cursor(), *view.cursor_set(n=3), tl.view.consolidate(view.cursor_set(n=2))]:
            for _ in range(moves):
                assert cursor.move_next()
            cursor.close()

    def left():
        return threading.active_count(), sorted(
            name for fd in Path("/proc/self/fd").iterdir() if (name := _target(fd)).startswith(str(tmp_path))
        )

    before = left()
    once()
    assert left() == before


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:
        return ""


@pytest.mark.contract("view:C59")
def test_row_to_row_steps_have_the_batches_positions_and_ids_of_what_they_stand_on():
    below = tl.View(Watched(numbers(100), parts=5))
    above = below.with_columns(twice="n * 2").select("twice", "name").rename(x="twice")
    with below.cursor([]) as one, above.cursor([]) as other:
        expected = drained(one)
        assert drained(other) == expected
    assert len({batch for _, batch, _, _ in expected}) == 5


@pytest.mark.contract("view:C44", "view:C43")
def test_an_error_is_told_once_after_the_rows_before_it():
    source = Watched(numbers(100), fails_at=35)
    cursor, found = tl.View(source).cursor("n"), []
    get = cursor.getter("n")
    with pytest.raises(OSError, match="broke at row 35"):
        while cursor.move_next():
            found.append(get())
    assert found == list(range(30))
    assert (cursor.position, cursor.move_next(), cursor.position) == (-1, False, -1)
    assert source.log.opened == source.log.closed == 1


def test_rows_are_no_iteration_over_the_cursor(view):
    with pytest.raises(TypeError):
        iter(view.cursor())


def test_it_says_where_it_stands(view):
    with view.cursor("n") as cursor:
        assert repr(cursor) == "<Cursor before the first row or after the last, n>"
        cursor.move_next()
        assert repr(cursor) == "<Cursor at row 0, n>"


def test_what_is_handed_out_stays_when_the_cursor_moves_on():
    table = pa.table({"v": [[1, 2], [3], None], "s": [{"a": 1}, {"a": 2}, None]})
    with tl.View.from_arrow(table).cursor() as cursor:
        vector, struct = cursor.getter("v"), cursor.getter("s")
        kept = []
        while cursor.move_next():
            kept.append((vector(), struct()))
    assert [None if v is None else list(v) for v, _ in kept] == [[1, 2], [3], None]
    kept[0][1]["a"] = 9
    assert tl.View.from_arrow(table).to_arrow()["s"].to_pylist()[0] == {"a": 1}
