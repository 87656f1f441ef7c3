"""Options of readers on the command line, for ingest and for declared sources."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import zipfile
from decimal import Decimal

import pytest

import trueline as tl
from trueline.cli import main

GERMAN = "plz;tag;preis;ort\n01067;13.11.2026;9,50;-\n80331;14.11.2026;NA;München\n"
OPTIONS = (
    *("--delimiter", ";", "--encoding", "latin-1", "--date-format", "%d.%m.%Y", "--decimal", ","),
    *("--nulls", "NA", "--nulls", "-", "--types", "plz=text", "--types", "preis=decimal(10, 2)"),
)
ROWS = [
    {"plz": "01067", "tag": dt.date(2026, 11, 13), "preis": Decimal("9.50"), "ort": None},
    {"plz": "80331", "tag": dt.date(2026, 11, 14), "preis": None, "ort": "München"},
]


def run(capsys, shop, *words):
    code = main(["-C", str(shop), *words])
    return code, *capsys.readouterr()


@pytest.fixture
def shop(tmp_path, capsys):
    assert main(["init", str(tmp_path / "shop")]) == 0
    capsys.readouterr()
    return tmp_path / "shop"


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "a.csv").write_bytes(GERMAN.encode("latin-1"))
    return folder


def rows(shop, name="sales"):
    with tl.open(shop) as ws:
        return ws[name].view().to_arrow().to_pylist()


def test_ingest_reads_as_it_is_asked_to(shop, inbox, capsys):
    run(capsys, shop, "create", "sales")
    code, _, err = run(capsys, shop, "ingest", "sales", str(inbox / "a.csv"), *OPTIONS)
    assert (code, err) == (0, "")
    assert rows(shop) == ROWS


def test_a_declared_source_keeps_the_options(shop, inbox, capsys):
    code, _, err = run(capsys, shop, "create", "sales", "--source", str(inbox / "*.csv"), *OPTIONS)
    assert (code, err) == (0, "")
    assert run(capsys, shop, "create", "sales", "--source", str(inbox / "*.csv"), *OPTIONS)[0] == 0
    assert run(capsys, shop, "pull")[0] == 0
    assert rows(shop) == ROWS
    (inbox / "b.csv").write_text("plz;tag;preis;ort\n00001;15.11.2026;1,00;-\n")
    assert run(capsys, shop, "pull")[0] == 0
    assert rows(shop)[2]["plz"] == "00001"


def test_the_extension_still_says_the_format(shop, inbox, capsys):
    (inbox / "a.json").write_text('[{"plz": 1067, "tag": "13.11.2026"}]')
    (inbox / "a.tsv").write_text("plz\ttag\n01067\t13.11.2026\n")
    for name in ("a.json", "a.tsv"):
        run(capsys, shop, "create", name[2:])
        words = ("--types", "plz=text", "--date-format", "%d.%m.%Y")
        code, _, err = run(capsys, shop, "ingest", name[2:], str(inbox / name), *words)
        assert (code, err) == (0, "")
        assert rows(shop, name[2:])[0]["tag"] == dt.date(2026, 11, 13)


def test_lines_before_the_header_are_skipped_by_ingest_and_by_a_source(shop, inbox, capsys):
    (inbox / "a.csv").write_text('Bericht "Q4\n\nplz;ort\n01067;Dresden\n')
    words = ("--delimiter", ";", "--skip-lines", "2", "--types", "plz=text")
    run(capsys, shop, "create", "report")
    assert run(capsys, shop, "ingest", "report", str(inbox / "a.csv"), *words)[0] == 0
    assert run(capsys, shop, "create", "polled", "--source", str(inbox / "a*.csv"), *words)[0] == 0
    assert run(capsys, shop, "pull", "polled")[0] == 0
    assert rows(shop, "report") == rows(shop, "polled") == [{"plz": "01067", "ort": "Dresden"}]
    assert run(capsys, shop, "ingest", "report", str(inbox / "a.csv"), "--skip-lines", "-1")[0] == 2


def test_a_member_of_an_archive(shop, inbox, capsys):
    with zipfile.ZipFile(inbox / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("b.csv", "x\n2\n")
    run(capsys, shop, "create", "sales")
    code, _, err = run(capsys, shop, "ingest", "sales", str(inbox / "two.zip"))
    assert (code, "'a.csv', 'b.csv'" in err) == (2, True)
    assert run(capsys, shop, "ingest", "sales", str(inbox / "two.zip"), "--member", "b.csv")[0] == 0
    assert rows(shop) == [{"x": 2}]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--delimiter", ";", "--types", "plz"), "--types 'plz' is not of the form column=type"),
        (("--types", "plz=colour"), "colour"),
        (
            ("--delimiter", ";", "--encoding", "latin-1", "--types", "zip=text"),
            "types names the column 'zip', which the files do not have",
        ),
        (("--decimal", ";"), "decimal"),
        (("--format", "json", "--decimal", ","), "--decimal does not apply to json files"),
    ],
)
def test_what_cannot_be_is_misuse(shop, inbox, capsys, words, problem):
    run(capsys, shop, "create", "sales")
    code, _, err = run(capsys, shop, "ingest", "sales", str(inbox / "a.csv"), *words)
    assert code == 2
    assert problem in err


def test_a_source_that_skips_bad_files(shop, inbox, capsys):
    (inbox / "a.json").write_text('{"x": 1}')
    (inbox / "b.json").write_text("<html>")
    words = ("--source", str(inbox / "*.json"), "--on-bad-file", "skip")
    assert run(capsys, shop, "create", "sales", *words)[0] == 0
    code, out, err = run(capsys, shop, "pull")
    assert code == 0
    assert "1 bad file left out" in out
    assert "b.json was left out" in out + err
    code, out, _ = run(capsys, shop, "pull", "--json")
    [reason] = json.loads(out)["datasets"][0]["bad_files"].values()
    assert "is not JSON" in reason
    assert run(capsys, shop, "create", "other", "--on-bad-file", "skip")[0] == 2


def test_advice_names_the_options_of_the_command_line_and_they_work(shop, tmp_path, capsys):
    file = tmp_path / "a.csv"
    file.write_text("n,at\n1,2012/01/01 00:00\nn. a.,2012/01/02 10:30\n".replace("n. a.", "NA"))
    for name in ("first", "second"):
        run(capsys, shop, "create", name)
    code, out, err = run(capsys, shop, "ingest", "first", str(file))
    assert (code, out.count("first")) == (0, 1)
    assert "reader=" not in err
    given = [line.partition(" with ")[2] for line in err.splitlines() if "→" in line]
    assert given == ["--nulls NA", "--timestamp-format '%Y/%m/%d %H:%M'"]
    words = [word for each in given for word in shlex.split(each)]
    code, _, err = run(capsys, shop, "ingest", "second", str(file), *words)
    assert (code, err) == (0, "")
    assert rows(shop, "second") == [
        {"n": 1, "at": dt.datetime(2012, 1, 1)},
        {"n": None, "at": dt.datetime(2012, 1, 2, 10, 30)},
    ]


def test_a_declared_source_has_a_timestamp_format(shop, inbox, capsys):
    (inbox / "a.csv").write_text("at\n13.11.2026 09:30\n")
    words = ("--source", str(inbox / "*.csv"), "--timestamp-format", "%d.%m.%Y %H:%M")
    assert run(capsys, shop, "create", "sales", *words)[0] == 0
    assert run(capsys, shop, "pull")[0] == 0
    assert rows(shop) == [{"at": dt.datetime(2026, 11, 13, 9, 30)}]
