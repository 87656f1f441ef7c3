"""Remedies of views: expressions, types, verbs, cursors."""

from __future__ import annotations

import errno
import os
import pickle
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.remedies.story import Scene, done, keywords, piece, story
from trueline import testing
from trueline import types as t
from trueline.errors import ContractBroken
from trueline.identity.logical import logical_hash
from trueline.identity.rowid import RowId
from trueline.identity.rowids import RowIds
from trueline.testing.adapter import SimpleView
from trueline.testing.conformance import plan
from trueline.view import Field, View
from trueline.view.annotations import Annotation, Annotations
from trueline.view.cursor.consolidate import consolidate
from trueline.view.cursor.cursor import ChunkCursor
from trueline.view.schema import Column, Schema


def column(values: list[Any], kind: pa.DataType | None = None, name: str = "x") -> View:
    """A view of one column."""
    return View.from_arrow(pa.table({name: pa.array(values, kind)}))


def category() -> View:
    """A view of a column of codes."""
    return View.from_arrow(pa.table([pa.array([0, 1])], schema=pa.schema([t.field("x", t.category(2))])))


def computed(view: View, text: str) -> list[Any]:
    """The values of an expression."""
    found: list[Any] = view.with_columns(y=text).to_arrow()["y"].to_pylist()
    return found


# --- types ------------------------------------------------------------------------------


@story(
    "types.conversions",
    "say in which unit: timestamp_seconds(x), timestamp_millis(x), timestamp_micros(x)",
    "say in which unit: unix_seconds(x), unix_millis(x), unix_micros(x)",
    "count from a day: date_add(date'1970-01-01', x)",
    "count from a day: datediff(x, date'1970-01-01')",
    "split(x, ',') makes a vector of text",
    "to convert its text: cast(cast(x as text) as {target})",
)
def types_that_do_not_become_each_other(scene: Scene) -> None:
    moments = column([datetime(2026, 11, 13)], pa.timestamp("us"))
    for view, target, pattern in (
        (column([5]), "timestamp", r"\w+\(x\)"),
        (moments, "int64", r"\w+\(x\)"),
        (column([5]), "date", r"date_add\(.*\)"),
        (column([date(2026, 11, 13)]), "int64", r"datediff\(.*\)"),
        (column(["a,b"]), "vector(text, 2)", r"split\(.*?\)"),
        (column([True]), "date", r"cast\(cast.*"),
    ):
        remedy = scene.refused(lambda view=view, target=target: computed(view, f"cast(x as {target})"))
        for text in _all(remedy, pattern):
            assert len(computed(view, text)) == 1


def _all(text: str, pattern: str) -> list[str]:
    found = re.findall(pattern, text)
    assert found, text
    return found


@story(
    "types.conversions",
    "a category is not a number: take its code, cast(x as int64), or one-hot it",
    "a category is not a number: take its code, cast(x as int64)",
    "a category is not a number: compare its code, cast(x as int64) = 1",
    "codes are whole numbers: cast(x as int64) first",
)
def categories_that_are_not_numbers(scene: Scene) -> None:
    for target in ("double", "decimal(10, 2)", "boolean"):
        remedy = scene.refused(lambda target=target: computed(category(), f"cast(x as {target})"))
        assert len(computed(category(), piece(remedy, r"cast\(x as int64\)(?: = 1)?"))) == 2
    remedy = scene.refused(lambda: computed(column([1.0]), "cast(x as category(2))"))
    inner = piece(remedy, r"cast\(x as int64\)")
    assert len(computed(column([1.0]), f"cast({inner} as category(2))")) == 1


@story("types.lookup", "give one of trueline.types, an Arrow type, or a name such as 'float64'")
@story(
    "types.type_text",
    "write it as in docs/types.md: float64, decimal(10, 2), timestamp(ms), vector(float32, 3)",
)
def what_is_not_a_type(scene: Scene) -> None:
    remedy = scene.refused(lambda: t.of(3))
    assert t.of(piece(remedy, "'(.*)'")) == t.of(pa.float64()) == t.float64
    remedy = scene.refused(lambda: t.of("float65"))
    for name in _all(piece(remedy, r"md: (.*)"), r"\w+(?:\([^)]*\))?"):
        assert str(t.of(name)) == name


@story("types.lookup", "ask for {found}, or convert it: with_columns(… = 'cast({column} as {wanted})')")
def a_getter_of_another_type(scene: Scene) -> None:
    view = column([1])
    cursor = view.cursor("x")
    remedy = scene.refused(lambda: cursor.getter("x", "float64"))
    assert cursor.getter("x", piece(remedy, r"ask for (\w+)")) is not None
    other = done("view." + piece(remedy, r"with_columns.*").replace("…", "x"), view=view)
    assert other.cursor("x").getter("x", "float64") is not None


@story("identity.rowid", "give two words of 64 bits, RowId(low, high), or 32 hex digits, high word first")
@story("identity.rowids", "make them with RowIds.range, of, concat or from_arrow")
def ids_that_are_not_ids(scene: Scene) -> None:
    remedy = scene.refused(lambda: RowId(-1))
    row = done(piece(remedy, r"RowId\(low, high\)"), RowId=RowId, low=1, high=2)
    assert row == RowId(1, 2)
    remedy = scene.refused(lambda: RowIds([1], [2]))
    for name in piece(remedy, r"RowIds\.(.*)").replace(" or ", ", ").split(", "):
        assert callable(getattr(RowIds, name))


@story("identity.logical", "give a pyarrow Table, RecordBatch or RecordBatchReader")
@story("identity.logical", "decode the column with pyarrow.compute.run_end_decode")
def hashes_of_what_has_none(scene: Scene) -> None:
    remedy = scene.refused(lambda: logical_hash([1]))
    table = pa.table({"x": [1]})
    assert piece(remedy, "Table, RecordBatch or RecordBatchReader")
    assert logical_hash(table) == logical_hash(table.to_batches()[0]) == logical_hash(table.to_reader())
    encoded = pc.run_end_encode(pa.array([1, 1, 2]))
    remedy = scene.refused(lambda: logical_hash(pa.table({"x": encoded})))
    decoded = done(piece(remedy, r"pyarrow\.compute\.run_end_decode"), pyarrow=pa)(encoded)
    assert logical_hash(pa.table({"x": decoded})) == logical_hash(pa.table({"x": [1, 1, 2]}))


# --- expressions ------------------------------------------------------------------------


@story("view.expressions.functions.conditional", "say which is meant: cast(x as {one})")
def branches_of_two_types(scene: Scene) -> None:
    view = View.from_rows([{"x": 1, "y": "2"}])
    remedy = scene.refused(lambda: computed(view, "coalesce(x, y)"))
    call = piece(remedy, r"cast\(x as .*\)").replace("(x as", "(y as")
    assert computed(view, f"coalesce(x, {call})") == [1]


@story(
    "view.expressions.functions.registry",
    "it is about several rows: use group_by(…).agg(…) or window(…)",
    "write {found.written}; cast(x as …) makes one of another type",
    "write {found.written} with a value or a :parameter",
    "did you mean {near[0]}?",
    "write {found.written}",
)
def functions_that_are_called_otherwise(scene: Scene) -> None:
    view = column([1, 2])
    remedy = scene.refused(lambda: computed(view, "sum(x)"))
    group, window = piece(remedy, r"(group_by\(…\)\.agg\(…\))"), piece(remedy, r"window\(…\)")
    grouped = done("view." + group.replace("…", "'x'", 1).replace("…", "y='sum(x)'"), view=view)
    assert grouped.to_arrow().num_rows == 2
    assert done("view." + window.replace("…", "1, y='sum(x)'"), view=view).to_arrow()["y"].to_pylist()
    remedy = scene.refused(lambda: computed(view, "upper(x)"))
    assert computed(view, f"upper({piece(remedy, r'cast.x as ….').replace('…', 'text')})") == ["1", "2"]
    texts = View.from_rows([{"x": "a1", "y": "a"}])
    remedy = scene.refused(lambda: computed(texts, "split(x, y)"))
    assert piece(remedy, ":parameter")
    assert texts.with_columns({"z": "split(x, :by)"}, by="a").to_arrow()["z"].to_pylist() == [["", "1"]]
    remedy = scene.refused(lambda: computed(texts, "uper(x)"))
    assert computed(texts, f"{piece(remedy, r'mean (.*)[?]')}(x)") == ["A1"]
    remedy = scene.refused(lambda: computed(texts, "upper()"))
    assert piece(remedy, r"write upper\(")


@story(
    "view.expressions.operands",
    "convert one of them, as in cast(x as double)",
    "write the constant in the column's type, as in date'2026-11-13'",
    "write it as '12:00:00'",
)
def sides_that_cannot_be_compared(scene: Scene) -> None:
    view = View.from_rows([{"x": "1", "y": 1.0}])
    remedy = scene.refused(lambda: computed(view, "x = y"))
    assert computed(view, f"{piece(remedy, r'cast.*')} = y") == [True]
    days = column([date(2026, 11, 13)])
    remedy = scene.refused(lambda: computed(days, "x = 5"))
    assert computed(days, f"x = {piece(remedy, 'as in (.*)')}") == [True]
    times = column([0], pa.time64("us"))
    remedy = scene.refused(lambda: computed(times, "x < 'noon'"))
    assert computed(times, f"x < {piece(remedy, 'as (.*)')}") == [True]


@story(
    "view.expressions.parse",
    'write one, as in "x > :a"',
    "give long lists as a parameter: x in :wanted",
    "give a number, text, a date, a time, a boolean, bytes, None, or for `in` a list of them",
    "give it: {name}=…",
    "write :{unused[0]} where its value is meant, or leave it out",
)
def expressions_that_cannot_be_read(scene: Scene) -> None:
    view = column([1, 2, 3])
    remedy = scene.refused(lambda: view.filter(""))
    assert view.filter(piece(remedy, '"(.*)"'), a=1).count() == 2
    long = f"x in ({', '.join(map(str, range(20_000)))})"
    remedy = scene.refused(lambda: view.filter(long))
    assert view.filter(piece(remedy, "x in :wanted"), wanted=list(range(20_000))).count() == 3
    remedy = scene.refused(lambda: view.filter("x = :a", a=object()))
    assert piece(remedy, "for `in` a list")
    for value in (1, None):
        view.filter("x = :a", a=value).count()
    for value in ("a", date(2026, 1, 1), datetime(2026, 1, 1), True, b"x"):
        assert view.limit(1).with_columns({"y": ":a"}, a=value).to_arrow()["y"].to_pylist() == [value]
    assert view.filter("x in :a", a=[1, 2]).count() == 2
    remedy = scene.refused(lambda: view.filter("x = :a"))
    assert view.filter("x = :a", **keywords(remedy.replace("…", "1"), r"a=1")).count() == 1
    remedy = scene.refused(lambda: view.filter("x = 1", a=1))
    assert view.filter(f"x = {piece(remedy, ':a')}", a=1).count() == 1


@story("view.expressions.tree", "if that is meant, say so: cast(x as {meant})")
def codes_that_are_computed_with(scene: Scene) -> None:
    remedy = scene.refused(lambda: computed(category(), "x + 1"))
    assert computed(category(), f"{piece(remedy, r'cast.*')} + 1") == [1, 2]


# --- verbs ------------------------------------------------------------------------------


@story(
    "view.plan.concat",
    "select() the columns that all views have, or add it to the other: with_columns({{name!r}: {null!r}})",
)
def views_that_do_not_go_together(scene: Scene) -> None:
    one, other = View.from_rows([{"x": 1, "y": 1}]), View.from_rows([{"x": 2}])
    remedy = scene.refused(lambda: one.concat(other))
    select = piece(remedy, r"select\(\)").replace("()", "('x')")
    assert done(f"one.{select}", one=one).concat(other).count() == 2
    added = done("other." + piece(remedy, r"with_columns.*"), other=other)
    assert one.concat(added).to_arrow()["y"].to_pylist() == [1, None]
    remedy = scene.refused(lambda: other.concat(one))
    added = done("other." + piece(remedy, r"with_columns.*"), other=other)
    assert added.concat(one).to_arrow()["y"].to_pylist() == [None, 1]


@story("view.plan.join", "rename() one of them, or give another suffix=")
def joins_of_what_does_not_fit(scene: Scene) -> None:
    one = View.from_rows([{"k": 1, "x": 1, "x_right": 1}])
    two = View.from_rows([{"k": 1, "x": 2}])
    remedy = scene.refused(lambda: one.join(two, on="k"))
    renamed = done("one." + piece(remedy, r"rename\(\)").replace("()", "({'x_right': 'z'})"), one=one)
    assert renamed.join(two, on="k").count() == 1
    assert one.join(two, on="k", **{piece(remedy, r"(suffix)="): "_b"}).count() == 1


@story("view.plan.sample", "give a fraction from 0 to {most}; with replace=True rows may come several times")
def a_sample_of_more_than_there_is(scene: Scene) -> None:
    view = column([1, 2])
    remedy = scene.refused(lambda: view.sample(2.0, seed=1))
    assert view.sample(2.0, seed=1, **keywords(remedy, r"(replace=True)")).count() >= 0
    assert view.sample(float(piece(remedy, r"to (\d+)")), seed=1).count() == 2


@story("view.schema", "name columns of single values; explode() gives each value of a vector its row")
def a_key_of_vectors(scene: Scene) -> None:
    view = column([[1, 2], [1, 2]], pa.list_(pa.int64()))
    remedy = scene.refused(lambda: view.group_by("x").agg(n="count(*)"))
    rows = done("view." + piece(remedy, r"explode\(\)").replace("()", "('x')"), view=view)
    assert rows.group_by("x").agg(n="count(*)").count() == 2


@story(
    "view.export",
    "select a column, or add one: with_row_id('id')",
    "choose another name, or say overwrite=True",
)
def a_file_that_cannot_be_written(scene: Scene) -> None:
    view, path = column([1]), scene.folder / "a.parquet"
    remedy = scene.refused(lambda: view.select().write_parquet(path))
    done("view.select()." + piece(remedy, r"with_row_id\('id'\)"), view=view).write_parquet(path)
    remedy = scene.refused(lambda: view.write_parquet(path))
    view.write_parquet(path, **keywords(remedy, r"(overwrite=True)"))
    assert View.read_parquet(path).count() == 1


@story("view.view", "write its rows: write_parquet(path), or append it to a dataset")
@story(
    "view.sources.memory",
    "give a table, a batch, or anything with __arrow_c_stream__; from_rows takes dictionaries",
)
def a_view_that_is_kept_elsewhere(scene: Scene) -> None:
    view = column([1])
    remedy = scene.refused(lambda: pickle.dumps(view))
    done("view." + piece(remedy, r"write_parquet\(path\)"), view=view, path=scene.folder / "a.parquet")
    assert scene.ws.create("a").append(view).rows == 1
    remedy = scene.refused(lambda: View.from_arrow([{"x": 1}]))
    assert getattr(View, piece(remedy, r"(from_rows) takes"))([{"x": 1}]).count() == 1
    assert hasattr(pa.table({"x": [1]}), piece(remedy, r"__\w+__"))


# --- annotations and cursors --------------------------------------------------------------


@story("view.annotations", "give it a name; `type` is what a stored field says of its type")
@story("view.annotations", "ask with get(), which gives None where there is none")
def annotations_that_are_not_there(scene: Scene) -> None:
    remedy = scene.refused(lambda: Annotations({"type": Annotation(t.boolean, True)}))
    assert piece(remedy, "`type`")
    about = Annotations({"kind": Annotation(t.boolean, True)})
    remedy = scene.refused(lambda: about["other"])
    assert done("about." + piece(remedy, r"get\(\)").replace("()", "('other')"), about=about) is None


@story("view.cursor.consolidate", "give what view.cursor_set() returned")
@story("view.cursor.cursor", "call move_next(), and get values only while it returns True")
@story("view.cursor.cursor", "open it with cursor([…, {found.name!r}])")
def cursors_that_are_used_otherwise(scene: Scene) -> None:
    view = View.from_rows([{"x": 1, "y": 2}])
    remedy = scene.refused(lambda: consolidate([]))
    call = piece(remedy, r"view\.cursor_set\(\)").replace("()", "('x', 2)")
    with consolidate(done(call, view=view)) as cursor:
        get = cursor.getter("x")
        remedy = scene.refused(get)
        assert done("cursor." + piece(remedy, r"move_next\(\)"), cursor=cursor) is True
        assert get() == 1
    with view.cursor(["x"]) as cursor:
        remedy = scene.refused(lambda: cursor.getter("y"))
    call = piece(remedy, r"cursor\(.*\)").replace("…", "'x'")
    assert done(f"view.{call}", view=view).getter("y") is not None


@story(
    "testing.adapter",
    "call move_next(), and fetch only while it returns True",
    "open it with cursor([…, {found.name!r}])",
)
def a_cursor_of_your_own(scene: Scene) -> None:
    view = Squares()
    cursor = view.cursor(["n"])
    remedy = scene.refused(cursor.getter("n"))
    assert done("cursor." + piece(remedy, r"move_next\(\)"), cursor=cursor) is True
    assert cursor.getter("n")() == 0
    remedy = scene.refused(lambda: cursor.getter("square"))
    call = piece(remedy, r"cursor\(.*\)").replace("…", "'n'")
    assert done(f"view.{call}", view=view).getter("square") is not None


class Squares(SimpleView):
    """Numbers and their squares."""

    schema = Schema([Field("n", t.int64), Field("square", t.int64)])

    def rows(self, columns: Sequence[Column]) -> Iterator[Sequence[Any]]:
        for n in range(3):
            row = {"n": n, "square": n * n}
            yield [row[column.name] for column in columns]


@story(
    "testing.conformance",
    "give a view (schema, row_count, can_shuffle, cursor, cursor_set), a "
    "function from view to view, or an Operator, Loader, Saver or Split",
)
def what_cannot_be_checked(scene: Scene) -> None:
    remedy = scene.refused(lambda: testing.check(5))
    for name in piece(remedy, r"\((schema.*?)\)").split(", "):
        assert hasattr(Squares(), name)
    assert list(plan(Squares(), None, scene.folder))
    for name in piece(remedy, "or an (.*)").replace(" or ", ", ").split(", "):
        assert isinstance(getattr(testing, name), type)


@story("view.cursor.cursor", "give each thread a cursor of its own, or a member of view.cursor_set()")
def a_cursor_that_two_threads_move(scene: Scene) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def chunks() -> Iterator[Any]:
        entered.set()
        go_on.wait(30)
        yield from ()

    view = View.range(4)
    cursor = ChunkCursor(view.schema, [], chunks)
    first = threading.Thread(target=cursor.move_next)
    first.start()
    assert entered.wait(30)
    remedy = scene.refused(cursor.move_next)
    go_on.set()
    first.join(30)
    members = done(piece(remedy, r"view\.cursor_set\(\)").replace("()", "('n', 2)"), view=view)
    moved: list[bool] = []
    threads = [threading.Thread(target=lambda each=each: moved.append(each.move_next())) for each in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert moved
    assert all(moved)


class Twice(Squares):
    """A view with a fault: each member of a set has all rows."""

    def cursor_set(self, columns: Any = None, n: int | None = None, seed: int | None = None) -> Any:
        return [self.cursor(columns, seed) for _ in range(2)]


@story(
    "view.cursor.consolidate",
    "let the batches of a member rise, and no two members share one; trueline.testing.check(view) finds "
    "what is wrong with a view",
)
def members_that_share_rows(scene: Scene) -> None:
    view = Twice()
    with consolidate(view.cursor_set(["n"])) as cursor:
        remedy = scene.refused(lambda: [cursor.id for _ in iter(cursor.move_next, False)])
    call = piece(remedy, r"trueline\.testing\.check\(view\)")
    with pytest.raises(ContractBroken, match=r"K(10|11)\."):
        done(call.replace("trueline.", ""), testing=testing, view=view)
    with consolidate(Squares().cursor_set(["n"])) as cursor:
        assert sum(1 for _ in iter(cursor.move_next, False)) == 3


@story(
    "kernel.spill",
    "free some space, set TMPDIR to another place, or TRUELINE_VIEW_MEMORY_MB to more megabytes",
)
def rows_that_fit_neither_memory_nor_disk(scene: Scene) -> None:
    full, free = scene.file("full/x", "").parent, scene.file("free/x", "").parent
    opened = pa.OSFile

    def write(path: str, mode: str) -> Any:
        if path.startswith(str(full)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, mode)

    def rows() -> int:
        return int(View.range(400_000).sort("n").to_arrow().num_rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trueline.kernel.spill.pa.OSFile", write)
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("TMPDIR", str(full))
        patch.setenv("TRUELINE_VIEW_MEMORY_MB", "1")
        remedy = scene.refused(rows)
        for name, given in (
            (piece(remedy, r"or (\w+) to more"), "100"),
            (piece(remedy, r"set (\w+)"), str(free)),
        ):
            with pytest.MonkeyPatch.context() as set_:
                set_.setattr(tempfile, "tempdir", None)
                set_.setenv(name, given)
                assert rows() == 400_000
