"""Every command: what people see, what programs get, and the exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import trueline as tl
from tests.architecture import ROOT
from trueline.cli.app import application
from trueline.spark import java

COMMANDS = ["init", "create", "list", "status", "log", "schema", "verify", "gc", "doctor", "config", "demo"]

app = application()


def test_a_workspace_is_made_and_made_again(run, tmp_path):
    for _ in range(2):
        done = run("init", tmp_path / "ws")
        assert (done.code, done.out) == (0, f"workspace {tmp_path / 'ws'}\n")
    assert run("init", tmp_path / "ws", "--json").json == {"workspace": str(tmp_path / "ws"), "datasets": []}


def test_init_takes_the_folder_from_anywhere(run, tmp_path, monkeypatch):
    assert run("-C", tmp_path / "a", "init").code == 0
    assert run("init", "-C", tmp_path / "b").code == 0
    (tmp_path / "c").mkdir()
    monkeypatch.chdir(tmp_path / "c")
    assert run("init").code == 0
    assert all((tmp_path / name / "trueline.toml").exists() for name in "abc")


def test_a_dataset_is_created_listed_and_described(run, tmp_path):
    run("init", tmp_path)
    done = run("-C", tmp_path, "create", "sales", "--event-time", "day", "--description", "What was sold")
    assert done.code == 0
    assert done.out.startswith("sales  root  ")
    again = run("create", "sales", "--event-time", "day", "-C", tmp_path, "--json")
    assert (again.json["name"], again.json["event_time"], again.json["rows"]) == ("sales", "day", 0)
    listed = run("list", "-C", tmp_path).out.splitlines()
    assert listed[0].split() == ["name", "kind", "rows", "events", "commits", "updated", "head"]
    assert listed[1].split()[:5] == ["sales", "root", "0", "0", "1"]
    refused = run("create", "sales", "-C", tmp_path)
    assert refused.code == 2
    assert "event_time: it is 'day', asked for is None" in refused.err


def test_keyed_datasets_show_current_rows_beside_events(run, tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        stock = ws.create("stock", merge=tl.merge.snapshot("id"))
        stock.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        stock.append([{"id": 2, "n": 5}, {"id": 3, "n": 3}])
    listed = run("list", "-C", tmp_path).out.splitlines()
    assert listed[1].split()[:4] == ["stock", "root", "2", "6"]
    assert run("list", "-C", tmp_path, "--json").json["datasets"][0]["rows"] == 2
    shown = run("status", "-C", tmp_path).out
    assert re.search(r"rows +2\n", shown)
    assert re.search(r"events +6\n", shown)
    assert "+1 ~1 -1 rows, offsets 2 to 5" in run("log", "stock", "-C", tmp_path).out
    assert "+1 ~1 -1 rows" in run("log", "stock", "--oneline", "-C", tmp_path).out
    newest = run("log", "stock", "-C", tmp_path, "--json").json["commits"][0]
    assert newest["operations"] == {"insert": 1, "update": 1, "delete": 1}
    assert (newest["rows"], newest["current_rows"]) == (4, 2)


def test_keyed_datasets_of_an_earlier_version_show_that_nobody_has_counted(run, tmp_path):
    shutil.copytree(ROOT / "tests" / "golden" / "workspace-bitwise-keys", tmp_path / "earlier")
    assert "?" in run("list", "-C", tmp_path / "earlier").out
    assert "? rows in" in run("log", "readings", "-C", tmp_path / "earlier").out
    assert run("verify", "-C", tmp_path / "earlier").code == 0
    assert "?" not in run("list", "-C", tmp_path / "earlier").out
    assert "?" not in run("log", "readings", "-C", tmp_path / "earlier").out


def test_a_dataset_is_created_from_a_manifest(run, tmp_path):
    run("init", tmp_path)
    manifest = tmp_path / "prices.yaml"
    manifest.write_text(
        "kind: DatasetSnapshot\nversion: 1\ncontent:\n  name: prices\n  kind: Root\n  metadata:\n"
        "    - {kind: SetInfo, description: Prices}\n"
    )
    assert run("create", "-f", manifest, "-C", tmp_path).code == 0
    assert run("list", "--json", "-C", tmp_path).json["datasets"][0]["description"] == "Prices"
    for words in (["-f", tmp_path / "no"], ["x", "-f", manifest], []):
        assert run("create", *words, "-C", tmp_path).code == 2


def test_an_empty_workspace_says_what_to_do(run, tmp_path):
    run("init", tmp_path)
    for command in ("list", "status"):
        assert "trueline create" in run(command, "-C", tmp_path).out
    assert run("verify", "-C", tmp_path).code == 0
    assert run("log", "-C", tmp_path).code == 0


def test_the_log_reads_like_that_of_git(run, shop):
    done = run("-C", shop, "log", "sales")
    commits = re.findall(r"^commit (f1620[0-9a-f]{64})( \(head\))?$", done.out, re.MULTILINE)
    assert len(commits) == 3
    assert [bool(head) for _, head in commits] == [True, False, False]
    assert "    +1 row, offset 2, 1," in done.out
    assert "    +2 rows, offsets 0 to 1, " in done.out
    assert "    Seed, AddPushSource, SetInfo" in done.out
    assert re.search(r"^Date:    \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", done.out, re.MULTILINE)


def test_the_log_can_be_short(run, shop):
    lines = run("-C", shop, "log", "--oneline").out.splitlines()
    assert [re.sub(r"^\w{8}  \S+ \S+  ", "", line) for line in lines] == [
        "sales  +1 row, offset 2", "sales  +2 rows, offsets 0 to 1", "sales  Seed, AddPushSource, SetInfo",
    ]  # fmt: skip
    few = run("-C", shop, "log", "--oneline", "-n", 1).out.splitlines()
    assert few[0] == lines[0]
    assert few[1].startswith("… older commits")
    assert len(run("-C", shop, "log", "--oneline", "-n", "0").out.splitlines()) == 3


def test_the_log_for_programs(run, shop):
    document = run("-C", shop, "log", "--json", "-n", "2").json
    assert document["more"] is True
    assert [commit["rows"] for commit in document["commits"]] == [1, 2]
    assert [commit["offsets"] for commit in document["commits"]] == [[2, 2], [0, 1]]
    blocks = run("-C", shop, "log", "--blocks", "--json").json["blocks"]
    assert [block["event"]["kind"] for block in blocks] == [
        "AddData", "AddData", "SetDataSchema", "SetInfo", "AddPushSource", "Seed",
    ]  # fmt: skip
    assert [block["sequenceNumber"] for block in blocks] == [5, 4, 3, 2, 1, 0]
    with tl.open(shop) as ws:
        assert [block["block"] for block in blocks] == [name for name, _ in ws["sales"].blocks()]


def test_blocks_for_people(run, shop):
    lines = run("-C", shop, "log", "--blocks", "-n", "2").out.splitlines()
    assert lines[0].split()[:3] == ["dataset", "number", "block"]
    assert len(lines) == 4


def test_the_log_of_several_datasets_is_in_order_of_time(run, shop):
    with tl.open(shop) as ws:
        ws.create("other").append(pa.table({"x": [1]}))
        ws["sales"].append(pa.table({"city": ["Chur"], "price": [1.0]}))
    commits = run("-C", shop, "log", "--json").json["commits"]
    assert [commit["dataset"] for commit in commits] == ["sales", "other", "other", "sales", "sales", "sales"]
    assert [commit["time"] for commit in commits] == sorted((c["time"] for c in commits), reverse=True)
    assert {c["dataset"] for c in run("-C", shop, "log", "other", "--json").json["commits"]} == {"other"}


def test_the_schema_is_shown(run, shop):
    assert [line.split() for line in run("-C", shop, "schema", "sales").out.splitlines()] == [
        ["column", "type", "optional"], ["city", "String", "yes"], ["price", "Float64", "yes"],
    ]  # fmt: skip
    columns = run("-C", shop, "schema", "sales", "--system", "--json").json["columns"]
    assert [column["name"] for column in columns] == [
        "offset",
        "op",
        "system_time",
        "event_time",
        "city",
        "price",
    ]
    run("-C", shop, "create", "empty")
    assert "first table" in run("-C", shop, "schema", "empty").out


def test_the_status_says_where_things_stand(run, shop):
    text = run("-C", shop, "status").out
    for part in (
        "sales",
        "rows         3",
        "commits      3",
        "index        up to date",
        "ago",
        "What was sold",
    ):
        assert part in text
    (each,) = run("-C", shop, "status", "sales", "--json").json["datasets"]
    assert (each["index"], each["in_flight_seconds"], each["rows"]) == ("up to date", None, 3)


def test_the_status_shows_commits_in_flight_and_a_missing_index(run, shop):
    (shop / ".trueline" / "index" / "sales.sqlite").unlink()
    with tl.open(shop) as ws, ws["sales"].chain.store.lease():
        (each,) = run("-C", shop, "status", "--json").json["datasets"]
        assert "in flight" in run("-C", shop, "status").out
    assert each["index"] == "to be built"
    assert each["in_flight_seconds"] >= 0


def test_verify_says_ok_or_names_what_is_wrong(run, shop):
    done = run("-C", shop, "verify")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("sales: ok, 6 blocks, 2 files, ")
    name = min((shop / "datasets" / "sales" / "data").iterdir())
    raw = bytearray(name.read_bytes())
    raw[40] ^= 1
    name.write_bytes(raw)
    done = run("-C", shop, "verify")
    assert done.code == 1
    assert done.out.startswith("sales: WRONG")
    assert name.name in done.err
    assert re.search(r"block \d+ \(\w{8}\)", done.err)
    assert "→ restore the file" in done.err
    document = run("verify", "sales", "-C", shop, "--json")
    assert document.code == 1
    assert document.json["ok"] is False
    (problem,) = document.json["datasets"][0]["problems"]
    assert problem["kind"] == "corrupt"
    assert problem["block"].startswith("f1620")


def test_a_damaged_dataset_does_not_hide_the_others(run, shop):
    run("-C", shop, "create", "other")
    (shop / "datasets" / "sales" / "refs" / "head").unlink()
    done = run("-C", shop, "list")
    assert done.code == 0
    assert "damaged: HeadMissing" in done.out
    assert "other" in done.out
    assert "its head is missing" in run("-C", shop, "status").out
    assert run("-C", shop, "verify").code == 1
    asked = run("-C", shop, "log", "sales", "--json")
    assert (asked.code, asked.error["code"]) == (1, "HeadMissing")


def test_gc_says_what_it_removes(run, shop):
    from trueline.chain.store.store import Folder

    with tl.open(shop) as ws:
        store = ws["sales"].chain.store
        with store.lease():
            name = store.put(Folder.DATA, b"left")
            store.sync()
    would = run("-C", shop, "gc", "--dry-run", "--older-than", "0s", "--json").json
    assert (would["objects"], would["bytes"], would["removed"]) == (1, 4, {"sales": [name]})
    assert run("-C", shop, "gc").out == "removed 0 objects, 0 bytes\n"
    done = run("-C", shop, "gc", "--older-than", "0")
    assert done.out.startswith("removed 1 objects, 4 bytes\n")
    assert run("-C", shop, "gc", "--older-than", "soon").code == 2


def test_gc_says_what_keeps_a_deleted_dataset(run, shop):
    with tl.open(shop) as ws, ws.snapshot("sales"):
        assert run("-C", shop, "delete", "sales", "--yes").code == 0
        done = run("-C", shop, "gc", "--older-than", "0")
        assert "sales was skipped: it was deleted, but an open snapshot reads it" in done.err + done.out
        assert "its files stay as long as that is so" in done.err + done.out
    assert "removed deleted datasets: sales" in run("-C", shop, "gc", "--older-than", "0").out


def test_settings_are_shown_and_set(run, shop):
    listed = run("-C", shop, "config", "list")
    assert "gc.older_than" in listed.out
    for words in (("-C", shop, "config"), ("config", "-C", shop)):
        assert run(*words) == listed
        assert run(*words, "--json").json == run("-C", shop, "config", "list", "--json").json
    assert run("-C", shop, "config", "set", "gc.older_than", "2d").code == 0
    assert run("config", "-C", shop, "get", "gc.older_than").out == "2d\n"
    assert run("config", "get", "gc.older_than", "-C", shop, "--json").json == {"gc.older_than": "2d"}
    assert run("config", "get", "storage.durable", "-C", shop).out == "true\n"
    wrong = run("-C", shop, "config", "set", "storage.durable", "perhaps", "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "ConfigError")


def test_the_doctor_speaks_of_this_machine(run, tmp_path, monkeypatch):
    good = java.Java("PATH", tmp_path / "java", (21, 0, 8), None)
    monkeypatch.setattr(java, "look", lambda: iter([good]))
    done = run("doctor", "--json", "-C", tmp_path)
    verdicts = {check["name"]: check["verdict"] for check in done.json["checks"]}
    assert verdicts["Java"] == "ok"
    assert (done.code == 0) is done.json["ok"] is ("fail" not in verdicts.values())
    monkeypatch.setattr(java, "look", lambda: iter(()))
    done = run("doctor", "-C", tmp_path)
    assert done.code == 3
    assert "fail  Java: none found" in done.out
    assert "→ install Java" in done.out


# --- where the workspace is -----------------------------------------------------------


def test_the_workspace_is_found_from_a_folder_within_it(run, shop, monkeypatch):
    inside = shop / "datasets" / "sales"
    monkeypatch.chdir(inside)
    assert run("list", "--json").json["workspace"] == str(shop)
    monkeypatch.chdir("/")
    assert run("list", "--json", "-C", inside).json["workspace"] == str(shop)
    monkeypatch.setenv("TRUELINE_WORKSPACE", str(shop))
    assert run("list", "--json").json["workspace"] == str(shop)


def test_without_a_workspace_the_remedy_is_shown(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (
        ["list"],
        ["status"],
        ["log"],
        ["schema", "x"],
        ["verify"],
        ["gc"],
        ["create", "x"],
        ["config", "list"],
    ):
        done = run(*command)
        assert (done.code, done.out) == (2, ""), command
        assert "→" in done.err
        assert "trueline init" in done.err
        assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


# --- errors ------------------------------------------------------------------------------


def test_errors_for_programs_are_one_document_on_stderr(run, shop):
    done = run("-C", shop, "log", "sale", "--json")
    assert (done.code, done.out) == (2, "")
    assert done.error == {
        "code": "DatasetNotFound",
        "message": f"no dataset 'sale' in {shop}",
        "remedy": "did you mean 'sales'?",
        "name": "sale",
    }


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["log", "--nonsense"],
        ["schema"],
        ["log", "-n", "x"],
        ["log", "-n", "-1"],
        ["config", "get"],
    ],
)
def test_misuse_is_exit_code_2_with_the_way_to_the_help(run, words):
    done = run(*words)
    assert done.code == 2
    assert "--help" in done.err
    assert json.loads(run(*words, "--json").err)["error"]["code"] == "Usage"


def test_bad_names_are_refused(run, shop):
    for name in ("../x", "a/b", ".."):
        assert run("-C", shop, "create", name).code == 2
        assert run("-C", shop, "log", name).code == 2


def test_a_full_disk_is_exit_code_4(run, shop, monkeypatch):
    import errno

    from trueline.chain.store import file as file_store
    from trueline.chain.store.files import Files

    class Full(Files):
        def write(self, fd, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(file_store, "Files", Full)
    done = run("-C", shop, "create", "other")
    assert done.code == 4
    assert "No space left on device" in done.err
    assert "→ free some space" in done.err
    assert run("-C", shop, "create", "other", "--json").error["code"] == "StorageFull"
    monkeypatch.undo()
    assert run("-C", shop, "create", "other").code == 0
    assert run("-C", shop, "verify").code == 0


def test_an_interrupt_is_one_line(run, shop, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tl.Workspace, "datasets", interrupt)
    done = run("-C", shop, "list")
    assert (done.code, done.out, done.err) == (130, "", "interrupted\n")


def test_what_should_not_happen_is_reported_without_a_traceback_unless_asked(run, shop, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(tl.Workspace, "datasets", fail)
    done = run("-C", shop, "list")
    assert done.code == 4
    assert "ZeroDivisionError: oh" in done.err
    assert "TRUELINE_TRACEBACK=1" in done.err
    monkeypatch.setenv("TRUELINE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run("-C", shop, "list")


def test_a_traceback_of_an_error_is_shown_when_asked(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUELINE_TRACEBACK", "1")
    with pytest.raises(tl.errors.WorkspaceNotFound):
        run("list", "-C", tmp_path)


# --- help -----------------------------------------------------------------------------------


def test_every_command_has_a_help_text_with_examples():
    runner = CliRunner()
    for command in COMMANDS:
        done = runner.invoke(app, [command, "--help"])
        assert done.exit_code == 0
        if command != "config":
            assert "Examples:\n    trueline" in done.output
            assert "-C DIR" in done.output
            assert "--json" in done.output
    top = runner.invoke(app, ["--help"]).output
    for command in COMMANDS:
        (line,) = re.findall(rf"^  {command} +(.*)$", top, re.MULTILINE)
        assert line
        assert not line.endswith("..."), line


def test_commands_work_through_the_runner_of_typer(shop):
    runner = CliRunner()
    done = runner.invoke(app, ["-C", str(shop), "list", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["datasets"][0]["name"] == "sales"
    assert runner.invoke(app, ["-C", str(shop), "log", "nope"]).exit_code == 2


def test_the_version_is_that_of_the_package(run):
    import tomllib

    from tests.architecture import ROOT

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run("--version").out == f"trueline {version}\n"
    assert run("--version", "--json").json == {"version": version}
    assert tl.__version__ == version


def test_nothing_is_coloured_in_a_pipe(run, shop):
    for words in (["list"], ["log"], ["status"], ["verify"], ["doctor"]):
        done = run("-C", shop, *words)
        assert "\x1b" not in done.out + done.err


def test_the_log_shows_files_bad_cells_and_origins(run, shop, tmp_path):
    for name in ("a.csv", "b\n.csv"):
        (tmp_path / name).write_text(f"city,price\n{name[0]},1.5\nx,{name[0]}\n")
    with tl.open(shop) as ws:
        bad = ws["sales"].append([tmp_path / "a.csv", tmp_path / "b\n.csv"])
        ws.create("copy").append(ws["sales"].view())
    said = run("-C", shop, "log", "sales").out
    assert f"    files: {tmp_path / 'a.csv'}, {tmp_path}/b\\x0a.csv\n" in said
    assert f"    bad cells: price 2 (`trueline show sales@{bad.short} --bad`)\n" in said
    shown = run("-C", shop, "show", f"sales@{bad.short}", "--bad", "--json").json
    assert [row["text"] for row in shown["rows"]] == ["a", "b"]
    assert f"    from: sales@{bad.short} (offset 6)\n" in run("-C", shop, "log", "copy").out
    document = run("-C", shop, "log", "copy", "--json").json
    assert document["commits"][0]["origins"][0]["block"] == str(bad.block)


def test_the_log_names_ten_files_and_says_how_many_more_there_are(run, shop, tmp_path):
    for number in range(12):
        (tmp_path / f"{number:02}.csv").write_text(f"city,price\nx{number},1\n")
    with tl.open(shop) as ws:
        ws["sales"].append(str(tmp_path / "*.csv"))
    said = run("-C", shop, "log", "sales", "-n", "1").out
    assert "09.csv and 2 more\n" in said
    assert "10.csv" not in said
