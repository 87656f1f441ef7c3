"""Remedies of the command line."""

from __future__ import annotations

import json
import sys

import pytest

from tests.remedies.story import Scene, piece, story
from trueline.cli.read import _parameters
from trueline.cli.session import store_options

FLOW = """
from trueline.flow import Flow
flow = Flow("f")
process = flow.process("p")
source = process.source("numbers")
process.sink("out", source)
def other(sim):
    sim.send("numbers", [1])
    sim.quiesce()
"""


@story("cli.create", "trueline create NAME, or trueline create -f FILE")
def a_dataset_without_a_name(scene: Scene) -> None:
    manifest = scene.file(
        "a.yaml", "kind: DatasetSnapshot\nversion: 1\ncontent:\n  name: b\n  kind: Root\n  metadata: []\n"
    )
    assert scene.ws is not None
    remedy = scene.run_refused("create")
    scene.typed(remedy, NAME="a")
    scene.typed(piece(remedy, "or (.*)"), FILE=str(manifest))
    assert list(scene.ws) == ["a", "b"]


@story("cli.create", "give -f FILE alone; the manifest holds the rest")
def a_manifest_and_a_name(scene: Scene) -> None:
    manifest = scene.file(
        "a.yaml", "kind: DatasetSnapshot\nversion: 1\ncontent:\n  name: b\n  kind: Root\n  metadata: []\n"
    )
    assert scene.ws is not None
    remedy = scene.run_refused("create", "a", "-f", manifest)
    scene.done("create", *piece(remedy, "-f FILE").replace("FILE", str(manifest)).split())


@story(
    "cli.create",
    "leave out --key, or choose another --merge",
    "add --key COLUMN",
    "add --source PATH",
)
def options_of_create_that_do_not_fit(scene: Scene) -> None:
    assert scene.ws is not None
    remedy = scene.run_refused("create", "a", "--merge", "append", "--key", "id")
    scene.done("create", "a", piece(remedy, r"--merge"), "ledger", piece(remedy, r"--key"), "id")
    remedy = scene.run_refused("create", "b", "--merge", "ledger")
    scene.done("create", "b", "--merge", "ledger", *piece(remedy, r"--key \w+").split())
    remedy = scene.run_refused("create", "c", "--separator", ";")
    scene.done("create", "c", "--separator", ";", *piece(remedy, r"--source \w+").split())


@story("cli.create", "`trueline config trust {name}` confirms it")
def a_setting_that_a_workspace_proposes(scene: Scene) -> None:
    assert scene.ws is not None
    (scene.home / "trueline.toml").write_text('format = 1\n[spark]\nremote = "sc://example.com:15002"\n')
    remedy = scene.warned("config", "list")
    scene.typed(remedy)
    assert "sc://example.com:15002" in scene.done("config", "get", "spark.remote")
    assert scene.run("config", "list").err == ""


@story(
    "cli.flows",
    "write MODULE:FLOW, such as counter:flow",
    "write it as in `import`, or give the path of its file",
    "write one that takes the simulation, or name one with --body",
)
def a_flow_by_its_name(scene: Scene) -> None:
    path = scene.file("counter.py", FLOW)
    remedy = scene.run_refused("flow", "simulate", "counter", at=scene.folder)
    named = piece(remedy, r"such as (\S+)")
    remedy = scene.run_refused("flow", "simulate", named, at=scene.folder)
    body = (piece(remedy, "--body"), "other")
    try:
        scene.done("flow", "simulate", named, *body, at=scene.folder)
        remedy = scene.run_refused("flow", "simulate", "counter/x:flow", *body, at=scene.folder)
        assert piece(remedy, "path of its file")
        scene.done("flow", "simulate", f"{path}:flow", *body)
    finally:
        sys.modules.pop("counter", None)
        sys.path.remove(str(scene.folder))


@story("cli.ingest", "give --step, or leave them out")
def a_timeline_without_steps(scene: Scene) -> None:
    scene.ws.create("a")
    scene.file("a.csv", "id\n1\n")
    scene.file("ws/steps.py", "def as_it_is(path, table):\n    return table\n")
    chart = ("--timeline", scene.folder / "t.svg")
    remedy = scene.run_refused("ingest", "a", scene.folder / "a.csv", *chart)
    step = (piece(remedy, "--step"), "steps:as_it_is")
    try:
        scene.done("ingest", "a", scene.folder / "a.csv", *chart, *step)
    finally:
        sys.modules.pop("steps", None)
    assert (scene.folder / "t.svg").stat().st_size


@story(
    "cli.lifecycle",
    "write: trueline tag NAME --delete",
    "write: trueline tag {name} DATASET",
    "write: trueline delete {name} --yes",
)
def tags_and_deletions_that_say_too_little(scene: Scene) -> None:
    scene.ws.create("trades").append([{"id": 1}])
    remedy = scene.run_refused("tag", "v1")
    scene.typed(remedy, DATASET="trades")
    assert list(scene.ws.tags()) == ["v1"]
    remedy = scene.run_refused("tag", "--delete")
    scene.typed(remedy, NAME="v1")
    assert not scene.ws.tags()
    remedy = scene.run_refused("delete", "trades")
    scene.typed(remedy)
    assert list(scene.ws) == []


@story("cli.maintain", "`trueline status {name}` says more")
def a_dataset_that_gc_skips(scene: Scene) -> None:
    scene.ws.create("a").append([{"id": 1}])
    (scene.home / "datasets" / "a" / "refs" / "head").unlink()
    remedy = scene.warned("gc")
    ran = scene.run(*piece(remedy, "`trueline ([^`]*)`").split())
    assert "refs/head" in ran.out + ran.err


@story("cli.pull", "trueline pull --confirm NAME")
def a_confirmation_of_nothing(scene: Scene) -> None:
    path = scene.file("inbox/a.csv", "id\n1\n")
    scene.ws.create("a", source=path.parent)
    remedy = scene.run_refused("pull", "--confirm")
    scene.typed(remedy, NAME="a")
    assert scene.ws["a"].view().row_count == 1


@story(
    "cli.read",
    "write --param name=value",
    "write {name}@{before} for what the newest commit changed; `trueline log {name}` shows all commits",
)
def parameters_and_commits(scene: Scene) -> None:
    scene.ws.create("a").append([{"id": 1}, {"id": 2}])
    scene.ws["a"].append([{"id": 3}])
    remedy = scene.run_refused("sql", "select :name", "--param", "name")
    assert _parameters([piece(remedy, r"--param (name=value)")]) == {"name": "value"}
    remedy = scene.run_refused("diff", "a")
    told = json.loads(scene.done("diff", piece(remedy, r"a@\w+"), "--json"))
    assert told["rows"] == [{"op": "insert", "id": 3}]
    assert piece(remedy, r"a@(\w+)") in scene.typed(remedy)
    scene.ws.create("b")
    scene.done("diff", piece(scene.run_refused("diff", "b"), r"b@\w+"))


@story("cli.session", "write it like --option region=eu-1")
def an_option_of_a_store_without_a_value(scene: Scene) -> None:
    remedy = scene.run_refused("--option", "region", "list")
    assert store_options([piece(remedy, r"--option (\S+)")]) == {"region": "eu-1"}


@story("cli.session", "write --option {bare[0]}=@FILE or --option {bare[0]}=env:NAME")
def a_secret_that_others_see(scene: Scene) -> None:
    assert scene.ws is not None
    path = scene.file("key", "s3cret\n")
    remedy = scene.warned("--option", "secret_access_key=s3cret", "list")
    given = piece(remedy, r"--option (\S+@FILE)").replace("FILE", str(path))
    assert store_options([given]) == {"secret_access_key": "s3cret"}
    given = piece(remedy, r"or --option (\S+)").replace("NAME", "PATH")
    assert store_options([given])["secret_access_key"]


@story("cli.app", "this should not happen: please report it, with what TRUELINE_TRACEBACK=1 shows")
def an_error_that_nobody_foresaw(scene: Scene) -> None:
    assert scene.ws is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trueline.workspace.workspace.Workspace.tags", _unforeseen)
        remedy = scene.run_refused("tag")
        name, value = piece(remedy, r"\w+=1").split("=")
        patch.setenv(name, value)
        with pytest.raises(ZeroDivisionError) as shown:
            scene.run("tag")
        assert shown.traceback[-1].name == "_unforeseen"


def _unforeseen(_: object) -> None:
    raise ZeroDivisionError


@story("cli.app", "{path} --help shows what is possible")
def a_command_line_that_is_not_understood(scene: Scene) -> None:
    ran = scene.run("create", "--mrege", "x")
    remedy = scene.meet(piece(ran.err, "→ (.*)").strip())
    assert "--merge" in scene.done(*piece(remedy, "^trueline (.*) shows").split())


@story("cli.ingest", "write --types column=type")
def a_type_without_a_column(scene: Scene) -> None:
    scene.ws.create("a")
    path = scene.file("a.csv", "id\n1\n")
    remedy = scene.run_refused("ingest", "a", path, "--types", "text")
    words = piece(remedy, r"--types .*").replace("column", "id").replace("=type", "=text").split()
    scene.done("ingest", "a", path, *words)
    assert scene.ws["a"].view().to_arrow()["id"].to_pylist() == ["1"]


@story(
    "cli.lifecycle",
    "write: trueline tag NAME --delete",
    "write: trueline tag {name} DATASET",
    "write: trueline delete {name} --yes",
)
def tags_and_deletions(scene: Scene) -> None:
    scene.ws.create("a").append([{"id": 1}])
    remedy = scene.run_refused("tag", "good")
    scene.typed(remedy, DATASET="a")
    remedy = scene.run_refused("tag", "--delete")
    scene.typed(remedy, NAME="good")
    remedy = scene.run_refused("delete", "a")
    scene.typed(remedy)
    assert list(scene.ws) == []
