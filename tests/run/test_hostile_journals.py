"""Journals that were put there to harm: other files, other databases, rows that nobody here wrote."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.run.test_journal import moved, plus_one, written
from trueline.errors import InputError, JournalDamaged, TruelineError, UnsupportedVersion
from trueline.run import Journal, Run, Step
from trueline.run import journal as journals

pytestmark = pytest.mark.contract("guard:G3")


def refused(path: Path) -> TruelineError:
    """What both a run and someone who looks are refused with."""
    with pytest.raises(TruelineError) as looked:
        list(Journal(path).read().entries())
    with pytest.raises(TruelineError) as ran:
        Run(plus_one(), journal=path).execute({"a": 1, "b": 2})
    assert type(ran.value) is type(looked.value)
    assert ran.value.remedy
    return ran.value


# --- other files --------------------------------------------------------------


def test_a_journal_of_another_version_is_refused(tmp_path):
    written(tmp_path / "j")
    with closing(sqlite3.connect(tmp_path / "j")) as file:
        file.execute("PRAGMA user_version = 99")
    error = refused(tmp_path / "j")
    assert isinstance(error, UnsupportedVersion)
    assert "version 99" in error.problem


def test_a_journal_of_lines_of_json_is_refused_and_left_alone(tmp_path):
    line = b'{"journal":1,"run":"x","at":"","steps":[],"identities":[],"sum":"00000000"}\n'
    (tmp_path / "j").write_bytes(line)
    error = refused(tmp_path / "j")
    assert isinstance(error, UnsupportedVersion)
    assert "version 1, lines of JSON" in error.problem
    assert "remove it, or name another file" in error.remedy
    assert (tmp_path / "j").read_bytes() == line


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b"x" * 5_000, b"SQLite form", b"\x00" * 200, random.Random(1).randbytes(20_000)],
)
def test_a_file_that_is_not_a_journal_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / "j").write_bytes(content)
    assert isinstance(refused(tmp_path / "j"), InputError)
    assert (tmp_path / "j").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["j"]


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    with closing(sqlite3.connect(tmp_path / "j")) as file, file:
        file.execute("CREATE TABLE run (id)")
    before = (tmp_path / "j").read_bytes()
    assert "not the journal of a run" in refused(tmp_path / "j").problem
    assert (tmp_path / "j").read_bytes() == before


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM entry; END",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE more (x)",
        "DROP TABLE step",
    ],
)
def test_a_journal_with_other_tables_is_damaged(tmp_path, planted):
    written(tmp_path / "j")
    with closing(sqlite3.connect(tmp_path / "j")) as file, file:
        file.execute(planted)
    assert isinstance(refused(tmp_path / "j"), JournalDamaged)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_journal_that_was_cut_off_is_damaged(tmp_path, share):
    path = tmp_path / "j"
    Run(plus_one(), journal=path).execute(dict.fromkeys(range(3_000), 1))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(JournalDamaged):
        list(Journal(path).read().entries())
    with pytest.raises(JournalDamaged):
        Run(plus_one(), journal=path).execute(dict.fromkeys(range(3_000), 1))


def test_a_giant_file_is_refused_without_reading_it(tmp_path):
    with (tmp_path / "j").open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        assert isinstance(refused(tmp_path / "j"), InputError)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_links_pipes_and_folders_are_refused(tmp_path):
    written(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    said = {name: refused(tmp_path / name) for name in ("link", "dangling", "pipe", "folder")}
    assert all(isinstance(error, InputError) for error in said.values())
    assert "symbolic link" in said["link"].problem
    assert "pipe" in said["pipe"].problem
    assert not (tmp_path / "nothing").exists()


def test_a_journal_is_a_file_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "a?mode=memory", "file:x", "50%25#"):
        for calls in (2, 0):
            run = Run(plus_one(), journal=name)
            run.execute({"a": 1, "b": 2})
            assert run.report.steps[0].calls == calls
        assert (tmp_path / name).is_file()
    with pytest.raises(InputError, match="is not the name of a file"):
        Run(plus_one(), journal="a\0b").execute({})


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_sqlite_keeps_beside_a_journal_is_checked_as_well(tmp_path, kind, end):
    written(tmp_path / "j")
    (tmp_path / "mine").write_bytes(b"mine")
    beside = tmp_path / f"j{end}"
    if kind == "link":
        beside.symlink_to(tmp_path / "mine")
    else:
        os.mkfifo(beside)
    assert f"j{end}" in refused(tmp_path / "j").problem
    assert (tmp_path / "mine").read_bytes() == b"mine"


WAITS = """
import sys
from trueline.errors import TruelineError
from trueline.run import Journal, Run, Step
for act in (
    lambda: Journal(sys.argv[1]).read(),
    lambda: Run([Step(map=lambda key, value: value)], journal=sys.argv[1]).execute({"a": 1}),
):
    try:
        act()
    except TruelineError as error:
        print(bool(error.remedy))
"""


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_not_a_file_is_refused_at_once(tmp_path, kind):
    """In another process, because what it shows is that it ends."""
    path = tmp_path / "j"
    {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda at: at.symlink_to("/dev/zero")}[kind](path)
    done = subprocess.run(
        [sys.executable, "-c", WAITS, str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr


@given(st.binary(max_size=300), st.integers(0, 20_000))
@settings(max_examples=examples(60), deadline=None)
def test_bytes_put_into_a_journal_are_refused_or_make_no_difference(tmp_path_factory, garbage, place):
    path = tmp_path_factory.mktemp("journal") / "j"
    whole = written(path)
    path.write_bytes(whole[:place] + garbage + whole[place:])
    try:
        list(Journal(path).read().entries())
        assert Run(plus_one(), journal=path).execute({"a": 1, "b": 2}) == {"a": 2, "b": 3}
    except TruelineError as error:
        assert error.remedy  # noqa: PT017 (both outcomes are right)


# --- rows that nobody here wrote ----------------------------------------------


@pytest.mark.parametrize("made", ["[", '{"$bytes":1}', '{"$never":1}', '{"$decimal":"x"}', "[" * 100_000])
def test_what_cannot_be_read_is_damage_even_if_its_checksum_is_right(tmp_path, made):
    path = tmp_path / "j"
    written(path)
    with closing(sqlite3.connect(path)) as file, file:
        place, *owner, key, gens, given = file.execute(
            "SELECT id, run, step, identity, key, gens, given FROM entry"
        ).fetchone()
        right = journals._sum(tuple(owner), key, gens, given, made)
        file.execute("UPDATE entry SET made = ?, sum = ? WHERE id = ?", (made, right, place))
    with pytest.raises(JournalDamaged):
        Run(plus_one(), journal=path).execute({"a": 1, "b": 2})


def changed(statement: str, *values: object) -> Callable[[sqlite3.Connection], object]:
    return lambda file: file.execute(statement, values)


ROWS = {
    "a run without a name": changed("UPDATE run SET name = NULL"),
    "a run whose time is bytes": changed("UPDATE run SET at = x'ff'"),
    "a step of no run": changed("UPDATE step SET run = 99"),
    "a step without a name": changed("UPDATE step SET name = x'07'"),
    "an identity that is bytes": changed("UPDATE identity SET digest = x'00'"),
    "an entry of no run": changed("UPDATE entry SET run = 99"),
    "a step beyond": changed("UPDATE entry SET step = 7"),
    "a step below": changed("UPDATE entry SET step = -1"),
    "a step that is text": changed("UPDATE entry SET step = 'x'"),
    "a step without end": changed("UPDATE entry SET step = 9e99"),
}


@pytest.mark.parametrize("how", ROWS)
def test_what_a_stranger_says_of_runs_is_damage(tmp_path, how):
    path = tmp_path / "j"
    written(path)
    with closing(sqlite3.connect(path)) as file, file:
        ROWS[how](file)
    with pytest.raises(JournalDamaged) as raised:
        list(Journal(path).read().entries())
    assert str(path) in str(raised.value)


VALUES = [
    {"$datetime": "never"},
    {"$datetime": ["2026-01-01", 0, "../../etc/passwd"]},
    {"$datetime": ["2026-01-01", 0, "Europe"]},
    {"$timedelta": [10**30, 0, 0]},
    {"$decimal": "x"},
    {"$bytes": "é"},
    {"$uuid": "x"},
    {"$set": [[1]]},
    {"$dict": [1]},
    {"$date": []},
    {"$path": 7},
    {"$nothing": 1},
    {"$object": "os.system"},
]


def put(path: Path, column: str, content: object) -> None:
    """Change an entry, with a checksum that is right: anybody can make one."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"UPDATE entry SET {column} = ?", (content,))
        for place, *owner, key, gens, given_, made in file.execute(
            "SELECT id, run, step, identity, key, gens, given, made FROM entry"
        ).fetchall():
            right = journals._sum(tuple(owner), key, gens, given_, made)
            file.execute("UPDATE entry SET sum = ? WHERE id = ?", (right, place))


@pytest.mark.parametrize("made", VALUES, ids=json.dumps)
@pytest.mark.parametrize("place", ["value", "key", "write"])
def test_a_value_that_cannot_be_is_damage(tmp_path, made, place):
    path = tmp_path / "j"
    steps = plus_one()
    if place == "write":
        steps = [Step(process=lambda items: [(key, key, value) for key, value in items], eager=True)]
    Run(steps, journal=path).execute({"a": 1})
    column = "key" if place == "key" else "made"
    put(path, column, json.dumps([[made, made, 1]] if place == "write" else made))
    with pytest.raises(JournalDamaged):
        if place == "key":
            list(Journal(path).entries())
        else:
            Run(steps, journal=path).execute({"a": 1})


@pytest.mark.parametrize("made", [b"\xff", b"7"], ids=str)
def test_a_value_of_another_type_is_damage(tmp_path, made):
    written(tmp_path / "j")
    put(tmp_path / "j", "made", made)
    with pytest.raises(JournalDamaged):
        Run(plus_one(), journal=tmp_path / "j").execute({"a": 1, "b": 2})


def test_a_value_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "LARGEST", 1 << 10)
    steps = [Step(map=lambda key, value: value * 10_000, name="much")]
    with pytest.raises(InputError, match="more than a journal keeps") as raised:
        Run(steps, journal=tmp_path / "j").execute({"a": "x"})
    assert raised.value.code == "TooLarge"
    assert list(Journal(tmp_path / "j").entries()) == []


def test_a_value_larger_than_any_that_is_written_is_not_read(tmp_path, monkeypatch):
    written(tmp_path / "j")
    put(tmp_path / "j", "made", '"' + "x" * (3 << 20) + '"')
    monkeypatch.setattr("trueline.run.journal_file.LARGEST", 1 << 20)
    with pytest.raises(JournalDamaged):
        Run(plus_one(), journal=tmp_path / "j").execute({"a": 1, "b": 2})


def test_names_in_a_journal_do_not_write_on_the_terminal(tmp_path):
    Run([moved("mask", "evil\x1b[2J" + "x" * 5_000)], journal=tmp_path / "j").execute({"a": 1})
    run = Run([moved("mask", "shop")], journal=tmp_path / "j")
    run.execute({"a": 1})
    assert "\x1b" not in str(run.report)
    assert len(str(run.report)) < 1_500
