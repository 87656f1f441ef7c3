from __future__ import annotations

import json
from pathlib import Path

import pytest

from trueline.cli import main


@pytest.fixture
def shop(tmp_path, capsys):
    assert main(["init", str(tmp_path / "shop")]) == 0
    capsys.readouterr()
    return str(tmp_path / "shop")


@pytest.fixture
def inbox(tmp_path):
    (tmp_path / "a.csv").write_text("id,price\n1,9.5\n2,7\n")
    (tmp_path / "b.csv").write_text("id;price\n3;1,5\n")
    return tmp_path


def run(capsys, shop, *words):
    code = main(["-C", shop, *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_files_are_taken_in_once(shop, inbox, capsys):
    run(capsys, shop, "create", "sales")
    code, out, _ = run(capsys, shop, "ingest", "sales", str(inbox / "a.csv"))
    assert (code, "+2 rows" in out, "1 file" in out) == (0, True, True)
    code, out, _ = run(capsys, shop, "ingest", "sales", str(inbox / "a.csv"))
    assert code == 0
    assert "known already" in out


def test_the_answer_is_a_document_for_programs(shop, inbox, capsys):
    run(capsys, shop, "create", "sales")
    _, out, _ = run(capsys, shop, "ingest", "sales", str(inbox / "a.csv"), "--json")
    answer = json.loads(out)
    assert (answer["rows"], answer["bad"], answer["files"]) == (2, {}, [str(inbox / "a.csv")])


def test_options_reach_the_reader(shop, inbox, capsys):
    run(capsys, shop, "create", "sales")
    code, _, _ = run(capsys, shop, "ingest", "sales", str(inbox / "b.csv"), "--separator", ";")
    assert code == 0
    code, _, err = run(capsys, shop, "ingest", "sales", str(inbox / "a.csv"), "--format", "xml")
    assert (code, "arrow, csv, json, parquet, text" in err) == (2, True)
    code, _, err = run(
        capsys, shop, "ingest", "sales", str(inbox / "a.csv"), "--format", "parquet", "--no-header"
    )
    assert (code, "--no-header does not apply to parquet files" in err) == (2, True)


def test_a_file_that_is_not_there_is_misuse(shop, inbox, capsys):
    run(capsys, shop, "create", "sales")
    code, _, err = run(capsys, shop, "ingest", "sales", str(inbox / "none.csv"))
    assert (code, "none.csv" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--key", "id"], "upsert('id')"),
        (["--merge", "ledger", "--key", "id", "--key", "day"], "ledger(['id', 'day'])"),
        ([], "append()"),
    ],
)
def test_create_names_the_merge_strategy(shop, capsys, words, expected):
    _, out, _ = run(capsys, shop, "create", "x", *words, "--json")
    assert json.loads(out)["merge"] == expected


@pytest.mark.parametrize(
    "words", [["--merge", "upsert"], ["--merge", "append", "--key", "id"], ["--merge", "mix"]]
)
def test_a_merge_strategy_that_makes_no_sense_is_misuse(shop, capsys, words):
    assert run(capsys, shop, "create", "x", *words)[0] == 2


@pytest.fixture
def cleaning(inbox, monkeypatch):
    (inbox / "cli_cleaning.py").write_text(
        "from trueline.dataset.prepare import validate\n"
        "def doubled(path, table):\n"
        "    import pyarrow.compute as pc\n"
        "    return table.set_column(1, 'price', pc.multiply(table['price'], 2))\n"
        "checks = [validate('price < 15')]\n"
    )
    monkeypatch.chdir(inbox)


def test_files_are_prepared_by_steps_from_the_current_folder(shop, cleaning, capsys):
    run(capsys, shop, "create", "sales")
    words = ("ingest", "sales", "a.csv", "--step", "cli_cleaning:doubled", "--json")
    code, out, _ = run(capsys, shop, *words)
    assert (code, json.loads(out)["steps"]) == (0, ["parse", "doubled"])
    _, out, _ = run(capsys, shop, "show", "sales", "--json")
    assert [row["price"] for row in json.loads(out)["rows"]] == [19.0, 14.0]


def test_rows_that_break_a_condition_are_answered_by_no(shop, cleaning, capsys):
    run(capsys, shop, "create", "sales")
    steps = ("--step", "cli_cleaning:doubled", "--step", "cli_cleaning:checks")
    code, _, err = run(capsys, shop, "ingest", "sales", "a.csv", *steps)
    assert (code, "break 'price < 15'" in err) == (1, True)


def test_a_bad_file_is_left_out_if_that_is_asked_for(shop, cleaning, inbox, capsys):
    (inbox / "c.csv").write_bytes(b"\x1f\x8b no gzip")
    run(capsys, shop, "create", "sales")
    code, _, err = run(capsys, shop, "ingest", "sales", "a.csv", "c.csv")
    assert (code, "c.csv" in err) == (2, True)
    code, out, err = run(capsys, shop, "ingest", "sales", "a.csv", "c.csv", "--on-error", "skip_key")
    assert (code, "left out: c.csv" in out, "c.csv was left out" in err) == (0, True, True)
    code, _, err = run(capsys, shop, "ingest", "sales", "a.csv", "--on-error", "never")
    assert (code, "skip_key" in err) == (2, True)


def test_a_step_that_is_not_there_is_misuse(shop, cleaning, capsys):
    run(capsys, shop, "create", "sales")
    code, _, err = run(capsys, shop, "ingest", "sales", "a.csv", "--step", "cli_cleaning:none")
    assert (code, "no step cli_cleaning:none" in err) == (2, True)


def test_the_steps_of_an_ingest_can_be_drawn(shop, cleaning, capsys):
    run(capsys, shop, "create", "sales")
    drawn = ("--step", "cli_cleaning:doubled", "--timeline", "run.svg", "--trace", "run.json")
    code, _, err = run(capsys, shop, "ingest", "sales", "a.csv", *drawn)
    assert code == 0, err
    assert "doubled" in Path("run.svg").read_text(encoding="utf-8")
    assert json.loads(Path("run.json").read_text(encoding="utf-8"))["otherData"]["steps"] == [
        "parse",
        "doubled",
    ]


def test_the_steps_of_an_ingest_that_fails_are_drawn_too(shop, cleaning, capsys):
    run(capsys, shop, "create", "sales")
    steps = ("--step", "cli_cleaning:doubled", "--step", "cli_cleaning:checks")
    assert run(capsys, shop, "ingest", "sales", "a.csv", *steps, "--timeline", "run.svg")[0] == 1
    assert "validate" in Path("run.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words", [["--timeline", "x.svg"], ["--step", "cli_cleaning:doubled", "--trace", "no/x"]]
)
def test_a_drawing_of_nothing_or_to_nowhere_is_misuse(shop, cleaning, capsys, words):
    run(capsys, shop, "create", "sales")
    assert run(capsys, shop, "ingest", "sales", "a.csv", *words)[0] == 2
