"""Rows from the command line: show, diff, export, schema, sql."""

from __future__ import annotations

import json
import sys
from datetime import date

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import trueline as tl


@pytest.fixture
def first(shop):
    """The first commit that added rows."""
    with tl.open(shop) as ws:
        return list(ws["sales"].log())[-2]


def test_show_shows_rows_columns_and_where_they_come_from(run, shop):
    done = run("-C", shop, "show", "sales")
    assert done.code == 0
    assert "Basel" in done.out
    assert "offset 2" in done.out
    document = run("-C", shop, "show", "sales", "--json").json
    assert document["rows"][0] == {"city": "Bern", "price": 9.5}
    assert document["columns"] == [{"name": "city", "type": "text"}, {"name": "price", "type": "float64"}]
    assert document["origins"]["sales"]["offset"] == 2
    assert document["more"] is False


def test_show_says_when_there_are_more_rows(run, shop):
    assert run("-C", shop, "show", "sales", "-n", "1", "--json").json["more"] is True
    assert "-n 0 all" in run("-C", shop, "show", "sales", "-n", "1").out
    assert len(run("-C", shop, "show", "sales", "-n", "0", "--json").json["rows"]) == 3


def test_a_dataset_is_shown_as_it_was(run, shop, first):
    for at in (first.short, first.block, "offset:1"):
        assert len(run("-C", shop, "show", f"sales@{at}", "--json").json["rows"]) == 2
    done = run("-C", shop, "show", "sales@1999-01-01", "--json")
    assert (done.code, done.error["code"]) == (2, "BeforeTheBeginning")
    assert run("-C", shop, "show", "sales@").code == 2
    assert run("-C", shop, "show", "nothing@abcd").code == 2


def test_changes_are_the_last_events(run, shop):
    rows = run("-C", shop, "show", "sales", "--changes", "-n", "2", "--json").json["rows"]
    assert [(row["offset"], row["op"]) for row in rows] == [(1, "insert"), (2, "insert")]
    assert "late" in run("-C", shop, "show", "sales", "--changes", "--system", "--json").json["rows"][0]
    assert "offset" in run("-C", shop, "show", "sales", "--system", "--json").json["rows"][0]
    assert run("-C", shop, "show", "sales", "--changes", "--bad").code == 2


def test_a_dataset_without_rows_is_shown_without_rows(run, shop):
    run("-C", shop, "create", "empty")
    done = run("-C", shop, "show", "empty")
    assert (done.code, "no rows" in done.out) == (0, True)


def test_diff_shows_the_net_change(run, shop, first):
    rows = run("-C", shop, "diff", f"sales@{first.short}", "--json").json["rows"]
    assert rows == [{"op": "insert", "city": "Zug", "price": 1.0}]
    assert (
        run("-C", shop, "diff", f"sales@{first.short}", f"sales@{first.short}", "--json").json["rows"] == []
    )
    done = run("-C", shop, "diff", "sales", "--json")
    assert (done.code, "since which commit" in done.error["message"]) == (2, True)


def test_schema_is_shown_as_it_was(run, shop, first):
    now = run("-C", shop, "schema", "sales", "--json").json
    assert now == run("-C", shop, "schema", f"sales@{first.short}", "--json").json
    with tl.open(shop) as ws:
        seed = list(ws["sales"].log())[-1]
    assert run("-C", shop, "schema", f"sales@{seed.short}", "--json").json["columns"] == []
    names = [
        c["name"] for c in run("-C", shop, "schema", "sales@offset:1", "--system", "--json").json["columns"]
    ]
    assert names[:3] == ["offset", "op", "system_time"]


def test_log_begins_where_it_is_asked_to(run, shop, first):
    commits = run("-C", shop, "log", f"sales@{first.short}", "--json").json["commits"]
    assert [commit["rows"] for commit in commits] == [2, 0]
    assert commits[0]["commit"] == str(first.block)
    blocks = run("-C", shop, "log", "sales@offset:1", "--blocks", "--json").json["blocks"]
    assert blocks[0]["block"] == str(first.block)
    assert run("-C", shop, "log", "sales@yesterday").code == 2


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "jsonl", "arrow"])
def test_export_writes_what_can_be_read_again(run, shop, tmp_path, ending):
    file = tmp_path / f"out.{ending}"
    done = run("-C", shop, "export", "sales", file, "--json")
    assert (done.code, done.json["rows"], done.json["size"]) == (0, 3, file.stat().st_size)
    if ending == "csv":
        rows = pyarrow.csv.read_csv(file).to_pylist()
    elif ending == "parquet":
        rows = pq.read_table(file).to_pylist()
    elif ending == "arrow":
        rows = pa.ipc.open_file(file).read_all().to_pylist()
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[0] == {"city": "Bern", "price": 9.5}
    assert len(rows) == 3


def test_export_never_leaves_half_a_file_nor_replaces_one_unasked(run, shop, tmp_path, first):
    file = tmp_path / "out.csv"
    file.write_text("mine")
    assert run("-C", shop, "export", "sales", file).code == 2
    assert file.read_text() == "mine"
    assert run("-C", shop, "export", f"sales@{first.short}", file, "--overwrite", "--json").json["rows"] == 2
    assert run("-C", shop, "export", "sales", tmp_path / "out.xls").code == 2
    with tl.open(shop) as ws:
        ws.create("nested").append(pa.table({"l": [[1]]}))
    assert run("-C", shop, "export", "nested", tmp_path / "nested.csv").code == 2
    assert run("-C", shop, "export", "sales", tmp_path / "nowhere" / "out.csv").code == 4
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["out.csv"]


def test_missing_and_empty_text_are_two_things_in_csv(run, tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("x").append(pa.table({"s": ["", None, 'a"b,c\n'], "d": [date(2026, 1, 1), None, None]}))
    run("-C", tmp_path / "ws", "export", "x", tmp_path / "x.csv")
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    back = pyarrow.csv.read_csv(tmp_path / "x.csv", convert_options=options, parse_options=parse)
    assert back["s"].to_pylist() == ["", None, 'a"b,c\n']


def test_a_damaged_slice_is_an_answer_of_no(run, shop):
    path = next((shop / "datasets" / "sales" / "data").iterdir())
    path.unlink()
    done = run("-C", shop, "show", "sales", "--json")
    assert (done.code, done.error["code"]) == (1, "SliceMissing")
    assert path.name in done.error["message"]


def test_bad_cells_of_the_newest_commit_that_has_some(run, shop, tmp_path):
    file = tmp_path / "more.csv"
    file.write_text("city,price\nChur,2\nGenf,much\n")
    for name in ("sales", "sales@head"):
        done = run("-C", shop, "show", name, "--bad")
        assert (done.code, done.out, done.err) == (0, "no bad cells\n", "")
        assert run("-C", shop, "show", name, "--bad", "--json").json["rows"] == []
    assert run("-C", shop, "ingest", "sales", file).code == 0
    rows = run("-C", shop, "show", "sales", "--bad", "--json").json["rows"]
    assert [(row["column"], row["text"]) for row in rows] == [("price", "much")]


def test_looking_at_rows_does_not_load_spark_nor_the_parser_of_queries(shop):
    import subprocess

    code = (
        "import sys; from trueline.cli import main; "
        f"main(['-C', {str(shop)!r}, 'show', 'sales', '--json']); "
        "print(sorted({'pyspark', 'pandas', 'rich', 'sqlglot'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_sql_answers_with_spark(run, shop, spark):
    text = "select city from sales where price > :least order by city"
    done = run("-C", shop, "sql", text, "--param", "least=5", "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == [{"city": "Basel"}, {"city": "Bern"}]
    assert run("-C", shop, "sql", "drop table sales").code == 2
    assert run("-C", shop, "sql", text, "--param", "least").code == 2
    wrong = run("-C", shop, "sql", "select nothing from sales", "--json")
    assert (wrong.code, wrong.error["line"], wrong.error["column"]) == (2, 1, 8)


def test_a_keyed_dataset_is_reverted(run, tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        stock = ws.create("stock", merge=tl.merge.upsert("id"))
        first = stock.append([{"id": 1, "n": 1}])
        stock.append([{"id": 1, "n": 2}, {"id": 2, "n": 2}])
        ws.create("sales").append([{"id": 1}])
    done = run("revert", "stock", "--to", first.short, "-C", tmp_path)
    assert (done.code, done.out) == (0, f"stock  reverted to {first.short}: ~1 -1 rows, offsets 4 to 6\n")
    assert f"reverted to {first.short}" in run("log", "stock", "-C", tmp_path).out
    assert run("revert", "stock", "--to", "offset:0", "-C", tmp_path, "--json").json["rows"] == 0
    refused = run("revert", "sales", "--to", "head", "-C", tmp_path)
    assert (refused.code, "keeps every row" in refused.err) == (2, True)


def test_an_empty_snapshot_is_ingested_and_pulled_only_if_allowed(run, tmp_path):
    ws, inbox = tmp_path / "ws", tmp_path / "inbox"
    inbox.mkdir()
    run("init", ws)
    for name, more in {
        "stock": [],
        "polled": ["--source", f"{inbox}/*.csv"],
        "bold": ["--source", f"{inbox}/*.csv", "--allow-empty"],
    }.items():
        assert run("-C", ws, "create", name, "--merge", "snapshot", "--key", "id", *more).code == 0
    (inbox / "a.csv").write_text("id\n1\n")
    run("-C", ws, "ingest", "stock", inbox / "a.csv")
    run("-C", ws, "pull")
    (inbox / "b.csv").write_text("id\n")
    refused = run("-C", ws, "ingest", "stock", inbox / "b.csv")
    assert (refused.code, "--allow-empty" in refused.err) == (2, True)
    allowed = run("-C", ws, "ingest", "stock", inbox / "b.csv", "--allow-empty")
    assert (allowed.code, "-1 row," in allowed.out) == (0, True)
    assert run("-C", ws, "pull", "polled").code == 2
    assert run("-C", ws, "pull", "polled", "--allow-empty").code == 0
    assert run("-C", ws, "pull", "bold").code == 0, "it was declared"
    assert [each["rows"] for each in run("-C", ws, "list", "--json").json["datasets"]] == [0, 0, 0]
