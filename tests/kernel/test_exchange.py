"""Rows beyond memory: the same rows in the same order, and nothing left behind."""

from __future__ import annotations

import errno
import gc
import pickle
import tempfile
import threading
import weakref
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import Broken, Counting, agree, divided, memory, serial
from trueline.errors import InputError, StorageFull
from trueline.kernel import exchange
from trueline.kernel import spill as spilling
from trueline.kernel.vectors import sparse
from trueline.view import execute
from trueline.view.plan.node import Want
from trueline.view.plan.with_columns import computed
from trueline.view.schema import Field

ROWS = 1_500


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def every_type():
    """A table with a column of each kind of type, missing values and equal keys among them."""
    rng = np.random.default_rng(7)
    some = np.arange(ROWS)
    gone = rng.random(ROWS) < 0.1
    words = [f"w{number % 13}" * (number % 5) for number in range(ROWS)]
    return pa.table(
        {
            "n": pa.array(some),
            "i": pa.array(rng.integers(-3, 3, ROWS), pa.int8(), mask=gone),
            "u": pa.array(rng.integers(0, 9, ROWS).astype(np.uint64) << np.uint64(60), mask=gone),
            "f": pa.array(rng.choice([0.0, -0.0, 1.5, np.nan, np.inf, -np.inf], ROWS), mask=gone),
            "g": pa.array(rng.random(ROWS), pa.float32()),
            "b": pa.array(rng.random(ROWS) < 0.5, mask=gone),
            "s": pa.array(words, mask=gone),
            "y": pa.array([word.encode() for word in words]),
            "t": pa.array(rng.integers(0, 50, ROWS), pa.timestamp("ns", "UTC"), mask=gone),
            "d": pa.array(rng.integers(0, 50, ROWS), pa.int32()).cast(pa.date32()),
            "p": pa.array(rng.integers(-99, 99, ROWS), pa.int64()).cast(pa.decimal128(19, 0)),
            "v": pa.array([[1.0] * (number % 3) for number in range(ROWS)], pa.list_(pa.float32())),
            "w": pa.array([[number, None] for number in range(ROWS)], pa.list_(pa.int64(), 2)),
            "z": pa.array([{"a": number} for number in range(ROWS)]),
        }
    )


ORDERED = ("n", "i", "u", "f", "g", "b", "s", "y", "t", "d", "p")


def expected(table, keys):
    """Arrow's own order, rows that are equal as they were."""
    return table.sort_by([*keys, ("n", "ascending")])


@pytest.mark.contract("view:C88")
@pytest.mark.parametrize("limit", [1 << 30, 200_000])
def test_columns_of_every_type_survive(limit):
    table = every_type()
    view = tl.View(divided(table, 1_000, 1, 499))
    with memory(limit):
        kept = view.cache()
        for found in (view.sort("n"), view.shuffle(4).sort("n"), kept, kept, kept.shuffle(4).sort("n")):
            assert found.schema == view.schema
            assert repr(found.to_arrow().to_pylist()) == repr(table.to_pylist())


@pytest.mark.parametrize("limit", [1 << 30, 200_000])
@pytest.mark.parametrize("name", ORDERED)
def test_rows_of_every_type_are_sorted_in_memory_and_beyond(name, limit):
    table = every_type()
    view = tl.View(divided(table, 1_000, 1, 499))
    with memory(limit):
        for down in (False, True):
            found = view.sort(name, descending=down).select("n").to_arrow()
            how = "descending" if down else "ascending"
            assert found["n"].equals(expected(table, [(name, how)])["n"])


@pytest.mark.parametrize("limit", [1 << 30, 200_000])
def test_several_columns_each_have_their_direction(limit):
    table = every_type()
    with memory(limit):
        found = tl.View.from_arrow(table).sort("s", "i", "f", descending=[True, False, True]).to_arrow()
    keys = [("s", "descending"), ("i", "ascending"), ("f", "descending")]
    assert found["n"].equals(expected(table, keys)["n"])


def test_rows_beyond_memory_are_those_in_memory():
    view = tl.View.from_arrow(every_type())
    operations = [
        lambda v: v.shuffle(1),
        lambda v: v.group_by("s", "i").agg(c="collect(n)", f="sum(g)"),
        lambda v: v.window(3, 2, by="s", f="sum(g)", l="lag(n, 4)"),
        lambda v: v.join(v.select("i", "s", "n").limit(200), ["i", "s"], how="full"),
        lambda v: v.select("n", "s").join(v.select("n", "s").sort("s"), "n", how="left", as_of="n"),
    ]
    for operation in operations:
        table = operation(view).with_row_id("id").to_arrow()
        with memory(100_000):
            found = operation(view).with_row_id("id").to_arrow()
        assert repr(found.to_pylist()) == repr(table.to_pylist())


def test_sets_over_spilled_rows_follow_the_laws_of_reading():
    view = tl.View(divided(every_type().select(["n", "s", "i"]).slice(0, 300), 100, 199, 1))
    with memory(8_000):
        agree(view.sort("s"), sets=(2, 7))
        agree(view.join(view.sort("s", "n"), "s", how="full").limit(400), sets=(3,))


def test_the_folder_goes_with_the_last_cursor(folder):
    view = tl.View(divided(every_type(), 1_000, 500))
    with memory(10_000):  # about a fifth of the rows
        members = view.sort("s").cursor_set(["n"], 3)
        assert list(folder.iterdir()) == []  # nothing is read before the first move
        for member in members:
            assert member.move_next()
        (only,) = folder.iterdir()
        assert len(list(only.iterdir())) > 3
        for member in members[:2]:
            member.close()
        assert list(folder.iterdir()) == [only]
        members[2].close()
        assert list(folder.iterdir()) == []
        next(iter(view.sort("s").batches()))
        gc.collect()
        assert list(folder.iterdir()) == []


def test_a_failing_input_leaves_no_file_and_no_thread(folder):
    view = tl.View(Broken(every_type()))
    before = threading.active_count()
    with memory(10_000):
        kept = view.cache()
        for operation in (view.sort("n"), view.group_by("n").agg(), view.join(view, "n"), kept):
            with pytest.raises(OSError, match="the disk is gone") as error:
                operation.to_arrow()
            if operation.node is not kept.node:
                assert list(folder.iterdir()) == [], "the error holds nothing"
            assert error
    del operation, error, kept
    gc.collect()
    assert list(folder.iterdir()) == []
    assert threading.active_count() == before


@pytest.mark.contract("view:C69")
def test_all_members_of_a_set_hear_of_a_failing_input():
    members = tl.View(Broken(every_type())).sort("n").cursor_set(["n"], 2)
    assert len(members) == 2
    for member in members:
        with pytest.raises(OSError, match="the disk is gone"):
            member.move_next()
        assert not member.move_next()


def test_rows_are_gathered_once_for_a_set_and_only_when_it_is_moved():
    source = divided(every_type(), 1_000, 500)
    view = tl.View(source).sort("s")
    members = view.cursor_set(["n"], 4)
    assert source.opened == 0
    for member in members:
        while member.move_next():
            pass
    assert (source.opened, source.open) == (2, 0)
    assert source.cells == {**dict.fromkeys(source.cells, 0), "n": ROWS, "s": ROWS}


def test_a_full_disk_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    class Full:
        def __init__(self, *args):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spilling.pa, "OSFile", Full)
    with memory(1_000), pytest.raises(StorageFull, match="TRUELINE_VIEW_MEMORY_MB"):
        tl.View.from_arrow(every_type()).sort("s").to_arrow()


def test_the_budget_is_what_the_variable_says(monkeypatch):
    monkeypatch.delenv("TRUELINE_VIEW_MEMORY_MB", raising=False)
    assert exchange.memory_budget() == 1 << 30
    monkeypatch.setenv("TRUELINE_VIEW_MEMORY_MB", "3")
    assert exchange.memory_budget() == 3 << 20
    monkeypatch.setenv("TRUELINE_VIEW_MEMORY_MB", "99999")
    assert exchange.memory_budget() == 1_536 << 20
    for wrong in ("0", "much", "-1"):
        monkeypatch.setenv("TRUELINE_VIEW_MEMORY_MB", wrong)
        with pytest.raises(InputError, match="megabytes"):
            exchange.memory_budget()


def test_pieces_can_be_sent_elsewhere_and_give_the_same_rows():
    view = tl.View.from_arrow(every_type().slice(0, 200))
    right = view.select("n", "s").rename(m="n")
    operations = [
        view.sort("s"),
        view.shuffle(2),
        view.group_by("s").agg(c="collect(n)", d="count(distinct i)"),
        view.window(1, 1, m="max(n)"),
        view.window(1, 1, by="s", m="max(n)"),
        view.join(right, "s", how="full"),
        view.concat(view),
        view.zip(view),
        view.explode("v", outer=True),
        view.sample(1.5, replace=True),
        view.split(by="s")[0],
        view.cache(),
    ]
    for each in operations:
        want = Want((0, 1), ids=True, parts=3)
        sent = [pickle.loads(pickle.dumps(piece)) for piece in execute.pieces(each.node, want)]
        found = [one for piece in sent for chunk in piece.chunks() for one in chunk.ids]
        assert found == [row[0] for row in serial(each, [])]


def test_runs_are_cut_into_parts_of_about_the_same_size_even_where_all_keys_are_equal():
    table = pa.table({"n": range(4_000), "k": [1] * 4_000})
    with memory(10_000):
        pieces = execute.pieces(tl.View.from_arrow(table).sort("k").node, Want((0,), parts=8))
        sizes = [sum(chunk.rows for chunk in piece.chunks()) for piece in pieces]
    assert sum(sizes) == 4_000
    assert max(sizes) < 800


def test_large_texts_that_meet_many_rows_come_in_small_chunks():
    large = tl.View.from_arrow(pa.table({"k": [1], "text": ["x" * 3_000_000]}))
    many = tl.View.from_arrow(pa.table({"k": [1] * 200}))
    chunks = [batch.nbytes for batch in many.join(large, "k").batches()]
    assert sum(chunks) > 600_000_000
    assert max(chunks) < 100_000_000


def test_the_room_says_when_rows_no_longer_fit():
    room = exchange.MemoryShare(100, 2)
    room.add(100)
    assert not room.spilling
    room.add(1)
    assert room.spilling
    room.add(-50)
    assert room.spilling


@dataclass(frozen=True)
class Encoded:
    """A kernel that gives vectors, those of every other chunk in the sparse encoding."""

    inputs: tuple[int, ...]
    outputs: tuple[Field, ...]
    text = "encoded"
    needs_ids = False

    def run(self, arrays, rows, ids):
        dense = arrays[0]
        return [dense if rows % 2 else sparse(dense, self.outputs[0].type)]


@pytest.mark.contract("view:C107")
@pytest.mark.parametrize("limit", [1 << 30, 2_000])
def test_vectors_come_through_in_either_encoding(limit):
    rows = [[0.0] * (n % 4) + [float(n)] if n % 5 else None for n in range(100)]
    table = pa.table(
        {"n": range(100), "k": [n % 9 for n in range(100)], "v": pa.array(rows, pa.list_(pa.float64()))}
    )
    plain = tl.View(divided(table, 33, 40, 27))
    field = plain.schema["v"].field
    mixed = tl.View(computed(plain.select("n", "k").zip(plain.select("v")).node, [Encoded((2,), (field,))]))
    assert [column.is_hidden for column in mixed.schema] == [False, False, True, False]
    other = plain.select("k").limit(30)
    operations = [
        lambda v: v.sort("k", descending=True),
        lambda v: v.shuffle(3),
        lambda v: v.concat(v),
        lambda v: v.explode("v", outer=True),
        lambda v: v.select("n", "k", "v").group_by("k").agg(v="last(v)"),
        lambda v: v.window(1, 1, w="lag(v)", c="count(v)").select("v", "w", "c"),
        lambda v: v.window(1, 1, by="k", w="lead(v, 2)").select("v", "w"),
        lambda v: v.join(other, "k", how="left").select("n", "v"),
        lambda v: other.join(v.select("k", "v"), "k"),
        lambda v: v.cache(),
        lambda v: v.sample(2, replace=True),
    ]
    with memory(limit):
        for operation in operations:
            found, expected = (operation(v).to_arrow() for v in (mixed, plain))
            assert found.select(expected.column_names).to_pylist() == expected.to_pylist()


def test_what_is_made_once_lets_go_of_what_it_was_made_of():
    class Work:
        def __call__(self):
            return 7

    work = Work()
    gone = weakref.ref(work)
    once = exchange.Once(work)
    del work
    assert gone() is not None
    assert [once(), once()] == [7, 7]
    assert gone() is None
    with pytest.raises(TypeError, match="open the view again"):
        pickle.dumps(once)


def test_an_uncounted_source_is_gathered_too():
    source = Counting(every_type().slice(0, 95))
    assert agree(tl.View(source).sort("s").select("n", "s"), sets=(3,))
    assert source.open == 0
