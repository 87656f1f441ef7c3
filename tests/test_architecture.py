"""The arrows between the rooms, kept."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture import (
    ARROWS,
    HEAVY,
    LAZY,
    LEAVES,
    PACKAGE,
    ROOT,
    complaint,
    import_graph,
    imports,
    module_name,
    mutual,
    room_of,
    source_files,
)


def test_every_import_follows_an_arrow():
    found = [
        wrong
        for path in source_files()
        for each in imports(
            module_name(path), path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py"
        )
        if (wrong := complaint(each))
    ]
    assert found == []


def test_every_module_stands_in_a_room_or_is_a_leaf():
    places = {room_of(module_name(path)) for path in source_files()}
    assert places <= set(ARROWS) | LEAVES


def test_no_modules_import_each_other():
    assert cycle(import_graph()) is None


def test_the_way_of_the_data_never_goes_back():
    """The modules of `dataset` know each other one way only, inside functions and for types too."""
    assert cycle(within("dataset", import_graph(everything=True))) is None


# Types that are made of each other, so that no order of their modules is right.
MUTUAL = {
    # A column has annotations; these can be read as a row, and a row has a schema, which has columns.
    frozenset({"view.annotations", "view.cursor.row", "view.schema"}),
    # An operator of one kind of collection returns another kind.
    frozenset({"flow.keyed", "flow.singletons", "flow.streams"}),
    # The two faces know each other, and verbs of theirs take the face they are called on.
    frozenset(
        f"workspace.{name}"
        for name in (
            "workspace",
            "open_datasets",
            "dataset",
            "gc",
            "info",
            "rollback",
            "creation",
            "deletion",
            "tags",
            "snapshot.snapshot",
            "cuts.transaction",
            "cuts.roots",
        )
    ),
}


def test_only_what_is_made_of_each_other_knows_each_others_types():
    found = mutual(import_graph(types=True))
    assert found == {frozenset(f"trueline.{name}" for name in group) for group in MUTUAL}


def test_modules_that_know_each_other_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert mutual(graph) == {frozenset("abc")}


@pytest.mark.parametrize("room", ["chain", "dataset", "view", "workspace"])
def test_imports_within_a_room_are_seen(room):
    assert any(within(room, import_graph()).values())


def within(room, graph):
    """Return the part of a graph that is in one room."""
    here = {module for module in graph if room_of(module) == room}
    return {module: graph[module] & here for module in here}


def cycle(graph):
    """Return modules that lead back to the first of them, None if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_the_arrows_point_one_way():
    order = list(TopologicalSorter(ARROWS).static_order())
    assert order.index("identity") < order.index("chain") < order.index("workspace") < order.index("cli")


@pytest.mark.parametrize(
    ("module", "text", "expected"),
    [
        ("trueline.identity.rowid", "from trueline.chain import Block", "no arrow from identity to chain"),
        ("trueline.identity.rowid", "def f():\n    import trueline.chain.block", "no arrow from identity"),
        ("trueline.chain.block", "from trueline import workspace", "no arrow from chain to workspace"),
        ("trueline.chain.block", "from ..view import View", "no arrow from chain to view"),
        ("trueline.chain.block", "import trueline", "no arrow from chain to door"),
        (
            "trueline.chain.block",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trueline.view import View",
            "no arrow from chain to view",
        ),
        ("trueline.run.run", "from trueline.flow import Flow", "no arrow from run to flow"),
        ("trueline.workspace.pull", "import pyspark.sql", "only spark/ may"),
        ("trueline.workspace.pull", "def f():\n    import pyspark", "only spark/ may"),
        ("trueline.workspace.pull", "from trueline.spark import session", "only inside a function"),
        ("trueline.chain.log", "import importlib\nimportlib.import_module('trueline.spark')", "no arrow"),
        ("trueline.cli.main", "from trueline.chain import Chain", "no arrow from cli to chain"),
        ("trueline.cli.main", "from trueline.model.kernel import run", "only the public names of model"),
        ("trueline.console", "from trueline.merge import append", "a leaf imports nothing of ours"),
        ("trueline.errors", "from trueline.identity import RowId", "a leaf imports nothing of ours"),
        ("trueline.shed.door", "from trueline.chain import Chain", "stands in no room"),
    ],
)
def test_a_wrong_import_is_named(module, text, expected):
    assert [expected in (complaint(each) or "") for each in imports(module, text)].count(True) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("trueline.chain.block", "from trueline.identity.multihash import Multihash"),
        ("trueline.chain.block", "from trueline.errors import ChainError\nfrom trueline import console"),
        ("trueline.workspace.pull", "def f():\n    from trueline.spark import session"),
        ("trueline.spark.session", "import pyspark\nfrom trueline.workspace import Engine"),
        ("trueline.cli.main", "import trueline\nfrom trueline import open\nfrom trueline.model import Scale"),
        ("trueline.console", "from trueline.errors import TruelineError"),
        ("trueline.chain.chain", "from .block import Block\nimport numpy as np"),
    ],
)
def test_a_right_import_passes(module, text):
    assert [complaint(each) for each in imports(module, text)] == [None] * len(list(imports(module, text)))


def test_nothing_prints_or_writes_to_the_standard_streams_but_the_console():
    found = [
        f"{module_name(path)} line {node.lineno}: {ast.unparse(node)[:40]}"
        for path in source_files()
        if room_of(module_name(path)) != "console"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) == "print")
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"})
    ]
    assert found == []


@pytest.mark.parametrize("module", ["trueline", "trueline.chain", "trueline.identity", "trueline.console"])
def test_importing_is_cheap(module):
    code = f"import sys, json, {module}; print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


# How many modules a newcomer passes who follows a call, beside readers and leaves.
MODULES_OF_A_WALK = {"append": 35, "view": 22}


def test_a_call_passes_few_modules():
    """In a process of its own: what another test has cached is not entered."""
    done = subprocess.run([sys.executable, "tools/walk.py"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = {
        word: int(count) for word, count in re.findall(r"^(\w+): (\d+) modules", done.stdout, re.MULTILINE)
    }
    assert found.keys() == MODULES_OF_A_WALK.keys()
    assert {word: n for word, n in found.items() if n > MODULES_OF_A_WALK[word]} == {}, done.stdout


def test_a_workspace_works_where_pyspark_is_not_installed(tmp_path):
    code = """
import sys
sys.modules["pyspark"] = None
import pyarrow as pa, trueline as tl
with tl.open(sys.argv[1], create=True) as ws:
    ds = ws.create("trades")
    ds.append(pa.table({"x": [1, 2, 3]}))
    assert [d.name for d in ws.datasets()] == ["trades"], ws.datasets()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ws")], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_the_architecture_page_shows_exactly_these_arrows():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)$", page, flags=re.MULTILINE))
    lazily = set(re.findall(r"^ +(\w+) -\.-> (\w+)$", page, flags=re.MULTILINE))
    assert drawn == {(a, b) for a, targets in ARROWS.items() for b in targets}
    assert lazily == {(a, b) for a, targets in LAZY.items() for b in targets}
    for name in LEAVES:
        assert f"`{name}`" in page


def test_the_architecture_page_names_every_room_that_exists():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert {room for room in rooms if f"`{room}" not in page} == set()
