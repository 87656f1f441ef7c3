"""Remedies of checks, of derived datasets before Spark is asked, and of going back."""

from __future__ import annotations

import re
import warnings

import pyarrow as pa
import pytest

import trueline as tl
from tests.remedies.story import Scene, done, piece, story
from tests.workspace.derive.computed_here import by_hand, computing, counted, define_by_hand
from tests.workspace.derive.following import follow_all
from trueline import check
from trueline.errors import DataWarning
from trueline.workspace.derive.folder import plan_folder, request_of
from trueline.workspace.derive.redefine import OnChange, redefine


@story("check", "use {replace(self, action=Action.STOP)}.warn(), or let it stop the commit")
@story("check", 'write one: expression("price >= 0")')
@story("check", 'write one: max_age("2h")')
@story("check", 'name columns: not_null("id")')
@story("check", "give at_least or at_most, or both")
@story("check", 'make one: trueline.check.not_null("id")')
def checks_that_say_nothing(scene: Scene) -> None:
    remedy = scene.refused(lambda: check.unique("id").quarantine())
    assert done(f"check.{piece(remedy, r'use (.*), or')}", check=check).action is check.Action.WARN
    for making, kind in (
        (lambda: check.expression(""), "expression"),
        (lambda: check.max_age(""), "max_age"),
        (check.not_null, "not_null"),
    ):
        remedy = scene.refused(making)
        assert done(f"check.{piece(remedy, ': (.*)')}", check=check).kind == kind
    remedy = scene.refused(check.row_count)
    assert check.row_count(**{piece(remedy, r"(at_least)"): 1}).option("at_least") == 1
    remedy = scene.refused(lambda: scene.ws.create("sales", checks=["id"]))
    made = done(piece(remedy, r"trueline\.check\.[^)]*\)").replace("trueline.", "tl."), tl=tl)
    assert scene.ws.create("sales", checks=[made]).info.checks == ("not_null('id')",)


@story("dataset.checks", "fix the rows, or let the check warn() or quarantine()")
@story("dataset.checks", "commit.checks counts them")
def rows_that_break_a_check(scene: Scene) -> None:
    wanted = check.not_null("id")
    scene.ws.create("sales", checks=[wanted])
    rows = [{"id": 1, "n": 1}, {"id": None, "n": 2}]
    remedy = scene.refused(lambda: scene.ws["sales"].append(rows))
    for action in re.findall(r"(\w+)\(\)", remedy):
        made = scene.ws.create(action, checks=[getattr(wanted, action)()])
        with pytest.warns(DataWarning) as caught:
            commit = made.append(rows)
        told = scene.meet(str(caught[0].message).rpartition("→ ")[2])
        assert done(piece(told, r"commit\.checks"), commit=commit) == {f"not_null('id').{action}()": 1}


@story("workspace.derive.request", "give sql=, or fn=")
@story("workspace.derive.request", 'give key="id", or several columns')
@story("workspace.derive.folder", "write for example `-- key: account`")
def definitions_that_lack_something(scene: Scene) -> None:
    scene.ws.create("sales")
    remedy = scene.refused(lambda: scene.ws.derive("x"))
    assert re.findall(r"(\w+)=", remedy) == ["sql", "fn"]
    remedy = scene.refused(lambda: scene.ws.derive("x", fn="statistics:mean", inputs=["sales"]))
    assert piece(remedy, r'(key="id")')
    path = scene.file("x.sql", "select account from sales")
    scene.file("x.yaml", "- account")
    remedy = scene.refused(lambda: request_of(path, "x"))
    scene.file("x.yaml", "{}")
    scene.file("x.sql", f"{piece(remedy, '`(.*)`')}\nselect account from sales")
    assert request_of(path, "x").key == "account"


@story(
    "workspace.derive.folder",
    "write {path.stem}.sql beside it, or fn: module:function into it, or a DatasetSnapshot",
    "make it: `trueline create -f {path}`",
)
def files_of_yaml_that_define_nothing(scene: Scene) -> None:
    scene.ws.create("sales").append([{"id": 1}])
    folder = scene.file("models/x.yaml", "key: id\n").parent
    remedy = scene.refused(lambda: plan_folder(scene.ws, folder))
    beside = scene.file("models/" + piece(remedy, r"write (\S+)"), "select id from sales")
    assert [each.name for each in plan_folder(scene.ws, folder).changes] == ["x"]
    beside.unlink()
    root = "kind: DatasetSnapshot\nversion: 1\ncontent: {name: days, kind: Root, metadata: []}\n"
    scene.file("models/x.yaml", root)
    scene.typed(scene.refused(lambda: plan_folder(scene.ws, folder)))
    assert "days" in scene.ws


@story("cli.derive", "if it is not needed, `trueline delete {name} --yes` deletes it")
def a_dataset_of_another_folder(scene: Scene) -> None:
    scene.ws.create("sales").append([{"id": 1}])
    more = {"columns": {"id": pa.int64()}, "key": "id", "file": "models/ids.sql", "folder": "0" * 32}
    define_by_hand(scene.ws, "ids", "select id from sales", ["sales"], **more)
    folder = scene.file("models/readme.txt", "").parent
    scene.typed(scene.warned("derive", "-f", folder, "--yes", "--prune"))
    assert "ids" not in scene.ws


@story("cli.derive", "give -f FOLDER without a name")
@story("cli.derive", "write: trueline derive NAME FILE.sql, or trueline derive -f FOLDER")
@story("cli.derive", "write: trueline reset {name} --to {to} --yes")
@story("workspace.reset", "say where to: reset(to=…)")
def commands_that_lack_something(scene: Scene) -> None:
    sales = scene.ws.create("sales")
    first = sales.append([{"id": 1}])
    sales.append([{"id": 2}])
    folder = scene.file("models/readme.txt", "").parent
    remedy = scene.run_refused("derive", "x", "-f", folder)
    assert "-f FOLDER" in remedy
    scene.done("derive", "-f", folder)
    remedy = scene.run_refused("derive", "x")
    scene.done(*piece(remedy, r"trueline (derive -f) FOLDER").split(), folder)
    assert "reset(to=" in scene.refused(sales.reset)
    remedy = scene.run_refused("reset", "sales", "--to", first.short)
    scene.done(*piece(remedy, r"trueline (reset .*)").split())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scene.ws["sales"].head == first.block


TOTALS = {"account": pa.string(), "total": pa.float64()}


@story(
    "workspace.derive.follow",
    "compute it again from what is there now: `trueline reset {node.name} --rebuild`",
)
def an_input_that_was_reset(scene: Scene) -> None:
    ws = scene.ws
    sales = ws.create("sales")
    first = sales.append([{"id": 1}])
    define_by_hand(ws, "counts", "select * from sales", ["sales"], columns=TOTALS)
    with computing(counted):
        follow_all(ws, ["counts"])
        sales.append([{"id": 2}])
        follow_all(ws, ["counts"])
        with pytest.warns(DataWarning):
            sales.reset(to=first)
        sales.append([{"id": 3}, {"id": 4}])
        remedy = scene.refused(lambda: follow_all(ws, ["counts"]))
        scene.typed(remedy)
        follow_all(ws, ["counts"])
    assert ws["counts"].get("all") == {"account": "all", "total": 3.0}


@story("workspace.derive.strategies", "define it again with on_change='rebuild'")
def a_definition_from_here_that_has_lost_its_increment(scene: Scene) -> None:
    ws = scene.ws
    sales = ws.create("sales")
    sales.append([{"id": 1}, {"id": 2}])
    said = {"strategy": "stateless", "reason": ""}
    query = "select * from sales"
    made = define_by_hand(ws, "counts", query, ["sales"], columns=TOTALS, **said)
    with computing(counted):
        follow_all(ws, ["counts"])
        other, schema = by_hand(ws, f"{query} where id > 0", ["sales"], columns=TOTALS, **said)
        redefine(ws, made, other, schema, OnChange.FROM_HERE)
        # No event says which rows went, so that they cannot be taken from the result.
        sales.append([{"id": 3}])
        sales.drop_data(where="id = 1", reason="asked for")
        sales.append([{"id": 4}])
        remedy = scene.refused(lambda: follow_all(ws, ["counts"]))
        change = OnChange(piece(remedy, "on_change='(.*)'"))
        redefine(ws, made, other, schema, change)
        follow_all(ws, ["counts"])
    assert made.get("all") == {"account": "all", "total": 3.0}
