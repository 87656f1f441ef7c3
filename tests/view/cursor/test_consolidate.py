"""Sets of cursors share the rows; merged again they are one cursor."""

from __future__ import annotations

import threading

import pytest

import trueline as tl
from tests.view.watched import Watched, numbers
from trueline.errors import InputError
from trueline.kernel.read_ahead import ReadAhead
from trueline.view import consolidate
from trueline.view.cursor.cursor import ChunkCursor


def rows_of(cursor, column="n"):
    get = cursor.getter(column)
    found = []
    while cursor.move_next():
        found.append((cursor.batch, cursor.id, get()))
    return found


def in_threads(*jobs):
    """Run them at once; return what each returned or raised."""
    found = [None] * len(jobs)

    def run(number, job):
        try:
            found[number] = job()
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            found[number] = error

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


@pytest.fixture(params=["in memory", "in pieces", "in one piece", "filtered", "cut"])
def view(request):
    table = numbers(1_000)
    return {
        "in memory": tl.View.from_arrow(table),
        "in pieces": tl.View(Watched(table, parts=9)),
        "in one piece": tl.View(Watched(table)),
        "filtered": tl.View(Watched(table, parts=9)).filter("n % 3 > 0"),
        "cut": tl.View(Watched(table, parts=9)).skip(150).limit(500),
    }[request.param]


@pytest.mark.contract("view:C60", "view:C61", "view:C62", "view:C63", "view:C64", "view:C74")
@pytest.mark.parametrize("n", [-1, 0, 1, 2, 3, 7, 64, 100_000])
def test_the_rows_of_a_set_sorted_by_batch_are_those_of_one_cursor(view, n):
    serial = rows_of(view.cursor("n"))
    members = [rows_of(member) for member in view.cursor_set("n", n)]
    assert len(members) >= 1
    for member in members:
        batches = [batch for batch, *_ in member]
        assert batches == sorted(batches)
    owned = [{batch for batch, *_ in member} for member in members]
    assert sum(map(len, owned)) == len(set().union(*owned))
    merged = sorted((row for member in members for row in member), key=lambda row: row[0])
    assert [row[1:] for row in merged] == [row[1:] for row in serial]
    assert len({who for _, who, _ in merged}) == len(merged)


@pytest.mark.contract("view:C66")
def test_members_agree_on_schema_and_columns(view):
    members = view.cursor_set(["name"], 5)
    assert all(member.schema is view.schema for member in members)
    assert {tuple(member.is_active(i) for i in range(3)) for member in members} == {(False, False, True)}


@pytest.mark.contract("view:C61")
def test_no_member_reads_the_rows_of_another():
    source = Watched(numbers(1_000), parts=8)
    members = tl.View(source).cursor_set("n", 4)
    found = rows_of(members[1])
    assert len(found) == source.log.rows == 250
    assert len(source.log.readers) == 2


@pytest.mark.contract("view:C68")
def test_members_are_read_by_threads_at_their_own_speeds(view):
    members = view.cursor_set("n", 4)
    late, rest = members[0], members[1:]
    found = in_threads(*(lambda member=member: rows_of(member) for member in rest))
    found.append(rows_of(late))
    merged = sorted((row for each in found for row in each), key=lambda row: row[0])
    assert sorted(n for *_, n in merged) == [n for *_, n in rows_of(view.cursor("n"))]


@pytest.mark.contract("view:C68")
@pytest.mark.parametrize("moves", [0, 1])
@pytest.mark.parametrize("closed", [True, False])
def test_an_abandoned_member_holds_no_one_up(view, moves, closed):
    members = view.cursor_set("n", 3)
    for _ in range(moves):
        members[0].move_next()
    if closed:
        members[0].close()
    found = in_threads(*(lambda member=member: rows_of(member) for member in members[1:]))
    expected = [rows_of(member) for member in view.cursor_set("n", 3)[1:]]
    assert found == expected


@pytest.mark.contract("view:C69")
def test_an_error_comes_to_the_reader_whose_rows_broke_and_the_others_end():
    view = tl.View(Watched(numbers(100), parts=4, fails_at=60))
    found = in_threads(*(lambda member=member: rows_of(member) for member in view.cursor_set("n", 4)))
    assert [type(each) for each in found] == [list, list, OSError, list]
    assert [len(each) for each in found if isinstance(each, list)] == [25, 25, 25]


@pytest.mark.contract("view:C69")
def test_an_error_in_what_is_read_ahead_comes_in_its_place():
    source = Watched(numbers(100), parts=4, fails_at=60)
    cursor, found = tl.View(source).cursor("n"), []
    get = cursor.getter("n")
    with pytest.raises(OSError, match="row 60"):
        while cursor.move_next():
            found.append(get())
    assert found == list(range(60))
    assert source.log.opened == source.log.closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trueline-ahead")]


def test_a_dropped_reader_ends_its_threads():
    before = threading.active_count()
    batches = tl.View(Watched(numbers(10_000), parts=50)).batches()
    next(batches)
    del batches
    assert threading.active_count() == before


@pytest.mark.contract("view:C60")
def test_a_set_of_no_pieces_has_a_member():
    assert [rows_of(member) for member in tl.View.range(5).limit(0).cursor_set("n", 3)] == [[]]


class Stream:
    """Numbers, with a word on how many were made, and whether it was closed."""

    def __init__(self, count):
        self.left, self.made = iter(range(count)), 0
        self.some, self.all, self.closed = threading.Event(), threading.Event(), False

    def __iter__(self):
        return self

    def __next__(self):
        found = next(self.left, None)
        if found is None:
            self.all.set()
            raise StopIteration
        self.made += 1
        if self.made == 5:
            self.some.set()
        return found

    def close(self):
        self.closed = True


@pytest.mark.contract("view:C36")
def test_what_is_read_ahead_is_bounded():
    stream = Stream(100)
    with ReadAhead(lambda _: stream, 1, 1) as ahead:
        # Four wait in the line, the thread holds a fifth, and asks for no more.
        assert stream.some.wait(30)
        assert not stream.all.wait(0.2)
        assert [item for _, item in ahead.run()] == list(range(100))


@pytest.mark.contract("view:C56")
def test_streams_are_closed_by_the_threads_that_read_them():
    streams = [Stream(100), Stream(100), Stream(100)]
    with ReadAhead(streams.__getitem__, 3, 2) as ahead:
        assert next(ahead.run()) == (0, 0)
        assert streams[1].some.wait(30)
    assert [stream.closed for stream in streams] == [True, True, False]


# --- merging ------------------------------------------------------------------------------


@pytest.mark.contract("view:C64", "view:C72", "view:C74")
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64])
def test_a_merged_set_is_the_one_cursor(view, n):
    with view.cursor() as serial, consolidate(view.cursor_set(n=n)) as merged:
        one, other = serial.getter("n"), merged.getter("n", int)
        assert merged.schema is view.schema
        assert merged.is_active("n")
        while serial.move_next():
            assert merged.move_next()
            assert (merged.position, merged.id, other()) == (serial.position, serial.id, one())
        assert not merged.move_next()
        assert merged.position == -1


class Counted:
    """A cursor of someone else's, over (batch, value); it says when it was moved and closed."""

    def __init__(self, schema, rows, log, fails=False):
        self.schema, self.rows, self.log, self.fails = schema, rows, log, fails
        self.position, self.closed = -1, 0

    batch = property(lambda self: self.rows[self.position][0])
    id = property(lambda self: tl.RowId(self.rows[self.position][1]))

    def is_active(self, column):
        return True

    def id_getter(self):
        return lambda: self.id

    def getter(self, column, type=None):  # noqa: A002 (a promised name)
        return lambda: self.rows[self.position][1]

    def move_next(self):
        if self.position + 1 == len(self.rows):
            if self.fails:
                raise OSError("gone")
            self.position = -1
            return False
        self.position += 1
        self.log.append(self.rows[self.position][1])
        return True

    def close(self):
        self.closed += 1


@pytest.fixture
def schema():
    return tl.View.range(1).schema


@pytest.mark.contract("view:C72")
def test_it_stays_with_a_member_until_its_batch_changes(schema):
    log = []
    a = Counted(schema, [(0, 10), (0, 11), (5, 12)], log)
    b = Counted(schema, [(1, 20), (1, 21), (2, 22)], log)
    merged = consolidate([b, a])
    assert [row[2] for row in rows_of(merged)] == [10, 11, 20, 21, 22, 12]
    # A member is not moved before its row is next: it stands one row ahead at most.
    assert log == [20, 10, 11, 12, 21, 22]
    assert (a.closed, b.closed) == (1, 1)


@pytest.mark.contract("view:C62", "view:C63")
@pytest.mark.parametrize(
    ("members", "told"),
    [
        ([[(0, 1), (0, 2)], [(0, 3)]], "members 0 and 1 of the set both have batch 0"),
        ([[(0, 1)], [(1, 2), (3, 3)], [(2, 4), (3, 5)]], "members 1 and 2 of the set both have batch 3"),
        ([[(4, 1), (2, 2)]], "member 0 of the set falls from batch 4 to 2"),
        ([[(0, 1), (5, 2)], [(3, 3), (1, 4)]], "member 1 of the set falls from batch 3 to 1"),
    ],
)
def test_members_whose_batches_repeat_or_fall_are_refused(schema, members, told):
    cursors = [Counted(schema, rows, []) for rows in members]
    merged = consolidate(cursors)
    with pytest.raises(InputError, match=told) as caught:
        rows_of(merged)
    assert caught.value.code == "BatchOrder"
    assert "trueline.testing.check" in caught.value.remedy
    assert [each.closed for each in cursors] == [1] * len(cursors)
    assert not merged.move_next()


@pytest.mark.contract("view:C73", "view:C74")
def test_the_id_getter_of_a_merged_set_gives_the_id_of_the_row_there_is():
    view = tl.View.range(20)
    with consolidate(view.cursor_set("n", 3)) as merged, view.cursor([]) as serial:
        get = merged.id_getter()
        while serial.move_next():
            assert merged.move_next()
            assert get() == merged.id == serial.id
        assert not merged.move_next()
        with pytest.raises(InputError, match="not on a row"):
            get()


@pytest.mark.contract("view:C69")
def test_an_error_in_one_member_surfaces_and_ends_the_others(schema):
    a, b = Counted(schema, [(0, 1), (4, 2)], []), Counted(schema, [(1, 3)], [], fails=True)
    merged = consolidate([a, b])
    with pytest.raises(OSError, match="gone"):
        rows_of(merged)
    assert (a.closed, b.closed) == (1, 1)
    assert (merged.position, merged.move_next()) == (-1, False)
    with pytest.raises(InputError, match="not on a row"):
        merged.getter("n")()


@pytest.mark.contract("view:C55")
def test_closing_it_closes_all_members_even_if_one_complains(schema):
    class Stuck(Counted):
        def close(self):
            super().close()
            raise OSError("stuck")

    a, b = Stuck(schema, [(0, 1)], []), Counted(schema, [(1, 2)], [])
    merged = consolidate([a, b])
    get = merged.getter("n")
    assert merged.move_next()
    with pytest.raises(OSError, match="stuck"):
        merged.close()
    assert b.closed == 1
    assert not merged.move_next()
    with pytest.raises(InputError, match="not on a row"):
        get()
    with pytest.raises(InputError, match="not on a row"):
        _ = merged.id


@pytest.mark.contract("view:C56")
def test_an_early_close_of_a_merged_set_ends_its_threads():
    source, before = Watched(numbers(10_000), parts=10), threading.active_count()
    merged = consolidate(tl.View(source).cursor_set("n", 3))
    assert merged.move_next()
    merged.close()
    merged.close()
    assert threading.active_count() == before
    assert source.log.opened == source.log.closed


@pytest.mark.contract("view:C66")
def test_only_the_cursors_of_one_set_are_merged(schema):
    view = tl.View.range(10)
    with pytest.raises(InputError, match="no cursors"):
        consolidate([])
    with pytest.raises(InputError, match="different views"):
        consolidate([view.cursor(), tl.View.range(10).cursor()])
    with pytest.raises(InputError, match="different columns"):
        consolidate([view.cursor(), view.cursor([])])
    with pytest.raises(InputError, match="twice"):
        consolidate([one := view.cursor(), one])
    one.move_next()
    with pytest.raises(InputError, match="moved already"):
        consolidate([one, view.cursor()])


def test_merging_reads_nothing_before_it_is_moved_and_then_all_members_at_once():
    source = Watched(numbers(1_000), parts=4)
    merged = consolidate(tl.View(source).cursor_set("n", 4))
    assert isinstance(merged._members[0], ChunkCursor)
    assert source.log.opened == 0
    merged.move_next()
    assert source.log.opened == 4
    assert all(who.startswith("trueline-ahead") for names in source.log.readers.values() for who in names)
    merged.close()
