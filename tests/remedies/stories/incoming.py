"""Remedies of data that comes in otherwise than before: new columns, types, archives, snapshots."""

from __future__ import annotations

import json
import re
import shlex
import warnings
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.remedies.stories.dataset import pulled
from tests.remedies.story import Scene, done, keywords, piece, story
from trueline.errors import TruelineError


def warned(scene: Scene, data: Path, to: tl.Dataset, **options: object) -> tuple[tl.Commit, str]:
    """Append a file that is taken with a warning, and return the remedy of that."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        commit = to.append(data, **options)
    (only,) = caught
    return commit, scene.meet(piece(str(only.message), r"→ (.*)"))


# --- columns ----------------------------------------------------------------------------


@story(
    "dataset.append.new_columns",
    "rename {'it' if len(unknown) == 1 else 'them'}, or new_columns=\"add\" adds them "
    '(--new-columns add), "ignore" leaves them out',
)
@story(
    "dataset.append.intake",
    "cast, rename or drop these columns, or append to a new dataset; "
    'new_columns="add" adds them (--new-columns add), "ignore" leaves them out',
)
def columns_that_are_new(scene: Scene) -> None:
    path = scene.file("a.csv", "id,day\n1,2\n")
    table = pa.table({"id": ["1"], "day": [2]})
    for number, wrong in enumerate((path, table)):
        added, ignored, typed = (scene.ws.create(f"{name}{number}") for name in ("added", "ignored", "typed"))
        for each in (added, ignored, typed):
            each.append([{"id": 0}])
        remedy = scene.refused(lambda wrong=wrong, added=added: added.append(wrong))
        # The cells of the table have to be cast as well, which the remedy names first.
        given = path if wrong is path else table.set_column(0, "id", table["id"].cast(pa.int64()))
        assert added.append(given, **keywords(remedy, r'(new_columns="add")')).rows == 1
        assert added.columns == ("id", "day")
        ignore = {"new_columns": piece(remedy, r'"(ignore)"')}
        assert ignored.append(given, **ignore).rows == 1
        assert ignored.columns == ("id",)
        scene.done("ingest", f"typed{number}", path, *piece(remedy, r"\((--.*)\)").split())
        assert typed.columns == ("id", "day")


@story(
    "dataset.append.new_columns",
    "rename it to {other!r} if it is the same, else to something else",
    'give "error", "add" or "ignore"',
)
def columns_that_differ_by_case(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    trades.append([{"id": 1, "x": 1}])
    remedy = scene.refused(lambda: trades.append([{"id": 1, "X": 1}]))
    assert trades.append([{"id": 1, piece(remedy, r"to '(\w+)'"): 1}]).rows == 1
    remedy = scene.refused(lambda: trades.append([{"id": 1}], new_columns="drop"))
    for policy in re.findall(r'"(\w+)"', remedy):
        assert trades.append([{"id": 1}], new_columns=policy).rows == 1


@story("dataset.columns", "leave it out where it is read: view.drop({name!r})")
@story(
    "dataset.columns",
    "show another first: ds.show_column(name)",
    "show another first: `trueline show-column DATASET COLUMN`",
)
def columns_that_cannot_be_hidden(scene: Scene) -> None:
    people = scene.ws.create("people", merge=tl.merge.upsert("id"))
    people.append([{"id": 1, "x": 1}])
    remedy = scene.refused(lambda: people.hide_column("id"))
    assert done(piece(remedy, r"view\.drop.*"), view=people.view()).columns == ("x",)
    trades = scene.ws.create("trades")
    trades.append([{"a": 1, "b": 1}])
    trades.hide_column("a")
    remedy = scene.refused(lambda: trades.hide_column("b"))
    done(piece(remedy, r"ds\.show_column.*"), ds=trades, name="a")
    trades.hide_column("b")
    assert trades.view().columns == ("a",)
    remedy = scene.run_refused("hide-column", "trades", "a")
    scene.typed(remedy, DATASET="trades", COLUMN="b")
    scene.done("hide-column", "trades", "a")


# --- types ------------------------------------------------------------------------------

NUMBERS = "id,x\n" + "".join(f"{n},{n}\n" for n in range(20_000))


@story(
    "dataset.append.read_files",
    "a type is for ever, so choose: {ways}, max_bad={max(every, 1)} (--max-bad {max(every, 1)}) "
    "lets them be null",
)
@story("dataset.append.append", "look at commit.bad_cells(); max_bad=0 refuses such files")
def cells_that_do_not_fit_the_beginning(scene: Scene) -> None:
    path = scene.file("a.csv", NUMBERS + "7,n.a.\n8,-\n")
    texts, nulls, bad = (scene.ws.create(name) for name in ("texts", "nulls", "bad"))
    remedy = scene.refused(lambda: texts.append(path))
    assert texts.append(path, **keywords(remedy, r"(reader=trueline\.csv\(types=\{.*?\}\))")).rows == 20_002
    assert texts.view().to_arrow()["x"].to_pylist()[-2:] == ["n.a.", "-"]
    reader = tl.csv(**keywords(remedy, r"(nulls=\[.*?\])"))
    assert nulls.append(path, reader=reader).rows == 20_002
    assert nulls.view().to_arrow()["x"].to_pylist()[-3:] == [19_999, None, None]
    commit, remedy = warned(scene, path, bad, **keywords(remedy, r"(max_bad=\d+)"))
    assert commit.rows == 20_002
    assert done(piece(remedy, r"commit\.bad_cells\(\)"), commit=commit).count() == 2
    none = keywords(remedy, r"(max_bad=0)")
    again = scene.file("b.csv", "id,x\n7,none\n")
    with pytest.raises(TruelineError, match="more than max_bad=0"):
        bad.append(again, **none)
    _in_json(scene)
    _in_the_shell(scene, path)


def _in_the_shell(scene: Scene, path: Path) -> None:
    remedy = scene.run_refused("ingest", scene.ws.create("here").name, path)
    for number, flags in enumerate(re.findall(r"\((--[^)]*)\)", remedy)):
        name = scene.ws.create(f"here-{number}").name
        scene.done("ingest", name, path, *shlex.split(flags))
        assert scene.ws[name].info.rows == 20_002
    assert number == 2


def _in_json(scene: Scene) -> None:
    """JSON has no words for null: the other way is a type."""
    lines = [json.dumps({"x": n}) for n in range(20_000)] + ['{"x": "none"}']
    path = scene.file("a.jsonl", "\n".join(lines))
    remedy = scene.refused(lambda: scene.ws.create("first").append(path))
    given = keywords(remedy, r"(reader=trueline\.json\(types=\{.*?\}\))")
    assert scene.ws.create("second").append(path, **given).rows == 20_001


@story(
    "dataset.append.read_files",
    "a type is for ever: to have the other, append to a new dataset with {call}",
    "a type is for ever: to have the other, ingest into a new dataset with {flags}{other}",
)
def columns_that_are_text_because_of_words_for_null(scene: Scene) -> None:
    for dataset in _read_again(scene, scene.file("a.csv", "id,x\n1,5\n2,n.a.\n")):
        assert dataset.view().to_arrow()["x"].to_pylist() == [5, None]


def _read_again(scene: Scene, path: Path) -> tuple[tl.Dataset, tl.Dataset]:
    """Do what a warning says, in Python and in the shell; return the new datasets."""
    _, remedy = warned(scene, path, scene.ws.create("first"))
    second = scene.ws.create("second")
    second.append(path, **keywords(remedy, r"with (reader=.*)"))
    third, fourth = scene.ws.create("third"), scene.ws.create("fourth")
    remedy = scene.warned("ingest", third.name, path)
    scene.done("ingest", fourth.name, path, *shlex.split(piece(remedy, r"--.*")))
    return second, fourth


@story(
    "dataset.append.read_files",
    "a column is for ever: append to a new dataset with reader=trueline.csv({options})",
    "a column is for ever: ingest into a new dataset with --delimiter {shown}",
)
def a_file_that_was_read_as_one_column(scene: Scene) -> None:
    for dataset in _read_again(scene, scene.file("a.csv", "id;name\n1;pen\n")):
        assert dataset.columns == ("id", "name")


@story(
    "dataset.append.read_files", 'leave it text, and read it with view.with_columns({{names[0]!r}: "{call}"})'
)
def times_in_a_form_that_others_do_not_have(scene: Scene) -> None:
    path = scene.file("a.csv", "x,at\n2012/01/01 00:00,2012-01-01 00:00\n")
    dataset = scene.ws.create("first")
    _, remedy = warned(scene, path, dataset)
    found = done(piece(remedy, r"view\.with_columns.*"), view=dataset.view())
    assert found.to_arrow()["x"][0].as_py().year == 2012


# --- snapshots --------------------------------------------------------------------------


@story(
    "dataset.append.lacking",
    "give {what} (null where there is no value); a snapshot that never has it is compared without: "
    "merge.snapshot(key, compare=[...])",
)
def a_snapshot_without_a_column(scene: Scene) -> None:
    people = scene.ws.create("people", merge=tl.merge.snapshot("id"))
    whole, part = pa.table({"id": [1], "x": [1], "y": [1]}), pa.table({"id": [1], "x": [2]})
    people.append(whole)
    remedy = scene.refused(lambda: people.append(part))
    column = piece(remedy, r"give column '(\w+)'")
    people.append(part.append_column(column, pa.nulls(1, pa.int64())))
    assert people.view().to_arrow()["y"].to_pylist() == [None]
    call = piece(remedy, r"merge\.snapshot.*").replace("[...]", "['x']")
    others = scene.ws.create("others", merge=done(call, merge=tl.merge, key="id"))
    others.append(whole)
    others.append(part)
    assert others.view().to_arrow().to_pylist() == [{"id": 1, "x": 2, "y": 1}]


@story(
    "dataset.append.lacking",
    "if there really are no rows left, say so with allow_empty=True (append, pull and trueline.source "
    "have it; in the shell it is --allow-empty)",
)
def an_empty_snapshot(scene: Scene) -> None:
    def people(name: str, **source: object) -> tl.Dataset:
        made = scene.ws.create(name, merge=tl.merge.snapshot("id"), **source)
        if source:
            pulled(scene.ws, name)
        else:
            made.append(pa.table({"id": [1, 2]}))
        return made

    empty = scene.file("people.csv", "id\n")
    for number, wrong in enumerate(
        (pa.table({"id": pa.array([], pa.int64())}), empty, scene.file("none.csv", ""))
    ):
        dataset = people(f"people{number}")
        remedy = scene.refused(lambda wrong=wrong, dataset=dataset: dataset.append(wrong))
        dataset.append(wrong, **keywords(remedy, r"(allow_empty=True)"))
        assert dataset.view().to_arrow().num_rows == 0
    typed = people("typed")
    option = piece(scene.run_refused("ingest", "typed", empty), r"--allow-empty")
    scene.done("ingest", "typed", empty, option)
    assert typed.view().to_arrow().num_rows == 0
    given = keywords(remedy, r"(allow_empty=True)")
    for number, way in enumerate((given, option, None)):
        inbox = scene.file(f"inbox{number}/1.csv", "id\n1\n").parent
        source = tl.source(inbox, **given) if way is None else tl.source(inbox)
        dataset = people(f"pulled{number}", source=source)
        scene.file(f"inbox{number}/2.csv", "id\n")
        if way is not None:
            scene.refused(lambda dataset=dataset: pulled(scene.ws, dataset.name))
        if way == option:
            scene.done("pull", dataset.name, option)
        else:
            scene.ws.pull(dataset.name, **(way or {}))
        assert dataset.view().to_arrow().num_rows == 0


@story(
    "workspace.pull.late",
    "remove {'it' if len(late) == 1 else 'them'} from the source, or take the rows as the newest with "
    "ws.pull({dataset.name!r}, resend=True), `trueline pull {dataset.name} --resend`",
)
def a_snapshot_that_comes_too_late(scene: Scene) -> None:
    for way in ("removed", "called", "typed"):
        inbox = scene.file(f"{way}/day-10.csv", "id\n10\n").parent
        scene.ws.create(way, merge=tl.merge.snapshot("id"), source=f"{inbox}/*.csv")
        scene.ws.pull(way)
        late = scene.file(f"{way}/day-9.csv", "id\n9\n")
        remedy = scene.refused(lambda way=way: pulled(scene.ws, way))
        if way == "removed":
            assert piece(remedy, "^remove it")
            late.unlink()
            scene.ws.pull(way)
        elif way == "called":
            done(piece(remedy, r"ws\.pull\([^)]*\)"), ws=scene.ws)
        else:
            scene.typed(remedy)
        assert scene.ws[way].view().to_arrow()["id"].to_pylist() == [10 if way == "removed" else 9]


# --- files ------------------------------------------------------------------------------


@story(
    "readers.archive",
    "name one: reader=trueline.{_reader_of(first)}(member={first!r}), or --member {first!r}",
    "leave member out",
)
def an_archive_of_several_files(scene: Scene) -> None:
    path = scene.folder / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("my trades.csv", "id\n1\n")
        archive.writestr("notes.txt", "nothing")
    called, typed = scene.ws.create("called"), scene.ws.create("typed")
    for wrong in ({}, {"reader": tl.csv(member="others.csv")}):
        remedy = scene.refused(lambda wrong=wrong: called.append(path, **wrong))
    assert called.append(path, **keywords(remedy, r"(reader=trueline\.csv\(.*?\)),")).rows == 1
    scene.done("ingest", "typed", path, *shlex.split(piece(remedy, r"--member .*")))
    assert typed.view().row_count == 1
    plain = scene.file("b.csv", "id\n1\n")
    remedy = scene.refused(lambda: called.append(plain, tl.csv(member="b.csv")))
    assert piece(remedy, "^leave member out")
    assert called.append(plain, tl.csv(), resend=True).rows == 1


@story(
    "readers.json_reader",
    'write each value as an object, {"value": 1}, or read the lines: reader=trueline.text()',
    "give reader=trueline.csv(...) or reader=trueline.text() if it is text, else fetch it again",
)
def json_without_objects(scene: Scene) -> None:
    numbers = scene.file("a.json", "[1, 2]")
    one, two = scene.ws.create("one"), scene.ws.create("two")
    remedy = scene.refused(lambda: one.append(numbers))
    assert one.append(scene.file("b.json", f"[{piece(remedy, '[{].*[}]')}]")).rows == 1
    assert two.append(numbers, **keywords(remedy, r"(reader=trueline\.text\(\))")).rows == 1
    table = scene.file("c.json", "id,x\n1,2\n")
    three, four = scene.ws.create("three"), scene.ws.create("four")
    remedy = scene.refused(lambda: three.append(table)).replace("...", "")
    assert three.append(table, **keywords(remedy, r"(reader=trueline\.csv\(\))")).rows == 1
    assert four.append(table, **keywords(remedy, r"(reader=trueline\.text\(\))")).rows == 2


@story("readers.column_types", 'give {"column": "type"}, for example "text"')
@story("dataset.declared_source", 'give "stop" or "skip"')
def options_of_files_that_are_not_known(scene: Scene) -> None:
    path = scene.file("inbox/a.csv", "column\n1\n")
    remedy = scene.refused(lambda: tl.csv(types="text"))
    types = {piece(remedy, r'\{"(\w+)"'): piece(remedy, r'example "(\w+)"')}
    assert scene.ws.create("a").append(path, tl.csv(types=types)).rows == 1
    assert scene.ws["a"].view().to_arrow()["column"].to_pylist() == ["1"]
    remedy = scene.refused(lambda: tl.source(path.parent, on_bad_file="drop"))
    for policy in re.findall(r'"(\w+)"', remedy):
        scene.ws.create(policy, source=tl.source(path.parent, on_bad_file=policy))
        scene.ws.pull(policy)
        assert scene.ws[policy].view().row_count == 1
