from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline.workspace import http
from trueline.workspace.pull import derived
from trueline.workspace.pull.report import PullReport


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "a.csv").write_text("id,day\n1,2026-11-13T09:00:00Z\n2,2026-11-13T12:00:00Z\n")
    return folder


@pytest.fixture
def at(run, tmp_path):
    """Run a command in a workspace."""
    tl.open(tmp_path / "ws", create=True).close()
    return lambda *words: run("-C", tmp_path / "ws", *words)


def test_a_dataset_with_a_source_is_made_and_pulled(at, inbox):
    made = at(
        "create", "sales", "--source", inbox / "*.csv", "--lateness", "2h", "--event-time", "day", "--json"
    )
    assert (made.code, made.json["sources"]) == (0, [f"{inbox}/*.csv"])
    pulled = at("pull")
    assert (pulled.code, "sales  +2 rows" in pulled.out) == (0, True)
    again = at("pull", "sales", "--json")
    assert (again.code, again.json["ok"], again.json["rows"]) == (0, True, 0)
    assert again.json["datasets"][0]["skipped"] == [f"{inbox}/a.csv"]
    stands = at("status", "--json").json["datasets"][0]
    assert (stands["watermark"], stands["lateness"]) == ("2026-11-13T10:00:00Z", "2h")
    assert "lateness     2h" in at("status").out


def test_options_of_the_reader_belong_to_the_source(at, inbox):
    (inbox / "b.dat").write_text("1;x\n")
    words = ("--source", inbox / "*.dat", "--format", "csv", "--separator", ";", "--no-header")
    assert at("create", "sales", *words).code == 0
    assert at("pull", "--json").json["rows"] == 1
    for words in (("--separator", ";"), ("--format", "json")):
        refused = at("create", "other", *words)
        assert (refused.code, "--source" in refused.err) == (2, True)


def test_a_dataset_that_fails_is_told_beside_the_others(at, inbox):
    at("create", "good", "--source", inbox / "*.csv")
    at("create", "lost", "--source", inbox.parent / "nowhere" / "*.csv")
    shown = at("pull")
    assert shown.code == 2
    assert "good  +2 rows" in shown.out
    assert "1 of 2 datasets could not be pulled" in shown.err
    (inbox / "b.csv").write_text("id,day\n3,2026-11-14T00:00:00Z\n")
    told = at("pull", "--json")
    assert (told.code, told.json["ok"], told.json["rows"]) == (2, False, 1)
    assert (told.error["code"], told.error["datasets"]) == ("PullError", ["lost"])


def test_a_watch_for_programs_prints_a_line_each_time_and_ends_by_ctrl_c(at, inbox, tmp_path):
    at("create", "sales", "--source", inbox / "*.csv")
    command = [sys.executable, "-m", "trueline.cli", "-C", str(tmp_path / "ws"), "pull", "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        first = json.loads(watching.stdout.readline())
        (inbox / "b.csv").write_text("id,day\n3,2026-11-14T00:00:00Z\n")
        rounds = [first, json.loads(watching.stdout.readline())]
        watching.send_signal(signal.SIGINT)
        rest, said = watching.communicate(timeout=60)
    assert (watching.returncode, json.loads(said)["error"]["code"]) == (128 + signal.SIGINT, "Interrupted")
    assert [each["rows"] for each in (*rounds, *map(json.loads, rest.splitlines()))][:2] == [2, 1]


@pytest.mark.contract("derive:V29")
def test_a_watch_computes_all_again_in_its_first_round_only(ws, monkeypatch):
    ws.create("transfers").append([{"account": "a"}])
    columns = {"account": pa.string(), "total": pa.float64()}
    define_by_hand(ws, "counts", "counts", ["transfers"], columns=columns)
    refreshed, rounds = [], []
    real = derived.refresh
    monkeypatch.setattr(
        derived, "refresh", lambda *given, **named: refreshed.append(1) or real(*given, **named)
    )
    with computing(counted):
        ws.pull()
        ws.pull(watch=True, full_refresh=True, stop=lambda _: len(rounds) == 3, on_report=rounds.append)
    assert [each.differed for (each,) in rounds] == [False, None, None]
    assert len(refreshed) == 1


def test_a_full_refresh_is_asked_for_by_an_option(at, monkeypatch):
    asked = []
    monkeypatch.setattr(
        tl.Workspace, "pull", lambda _, *names, **options: asked.append(options) or PullReport()
    )
    assert at("pull", "--full-refresh").code == 0
    assert asked[0]["full_refresh"] is True


def test_a_changed_file_is_taken_in_on_request(at, inbox):
    at("create", "sales", "--source", inbox / "*.csv")
    at("pull")
    (inbox / "a.csv").write_text("id,day\n7,2026-11-14T00:00:00Z\n")
    assert at("pull").code == 2
    assert at("pull", "--resend", "--json").json["rows"] == 1


def test_where_nothing_has_a_source_the_command_says_how_to_declare_one(at):
    shown = at("pull")
    assert (shown.code, "--source" in shown.out) == (0, True)
    assert at("pull", "nobody").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--lateness", "soon"),
        ("--source", "ftp://example.org/a.csv"),
        ("-f", "x.yaml", "--lateness", "2h"),
        ("-f", "x.yaml", "--source", "x.csv"),
        ("-f", "x.yaml", "--format", "csv"),
    ],
)
def test_what_makes_no_sense_is_misuse(at, words):
    name = () if "-f" in words else ("sales",)
    assert at("create", *name, *words).code == 2


def test_the_same_source_again_is_the_same_dataset_and_another_is_shown(at, inbox):
    words = ("create", "sales", "--source", inbox / "*.csv", "--lateness", "2h")
    assert (at(*words).code, at(*words).code) == (0, 0)
    other = at(*words[:-1], "3h")
    assert (other.code, "lateness: it is 2h, asked for is 3h" in other.err) == (2, True)


def test_the_exit_code_follows_the_cause(at, inbox, monkeypatch):
    monkeypatch.setattr(http, "pause", lambda _: None)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/a.csv"
        at("create", "away", "--source", url)
        assert at("pull").code == 4, "trying again may help"
        at("create", "torn", "--source", inbox / "*.parquet")
        (inbox / "a.parquet").write_bytes(b"no Parquet")
        assert at("pull", "torn").code == 2
        assert at("pull").code == 2, "trying again does not fix all of it"
