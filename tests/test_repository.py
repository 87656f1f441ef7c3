"""The repository as people find it: no traces of one machine, readable files, commands that exist."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib

import pytest

from tests.architecture import ROOT, module_name, source_files
from tools import quick

LINES_OF_A_MODULE = 500
LINES_OF_A_FUNCTION = 80

# A home folder, a temporary folder or a workplace of one machine. `/tmp` alone may be spoken of.
MACHINE_PATH = re.compile(
    r"(?<![\w./{}~-])/(?:home|Users|root)/[\w.]+"
    r"|(?<![\w./{}~-])/tmp/[\w.]+"
    r"|(?<![\w./{}~-])/(?:work|workspace|mnt|opt)/[\w.]+"
    r"|\b[A-Z]:\\Users\\"
)

# Hosts that the files which decide what is installed may name: none.
HOST = re.compile(r"\b[a-z][a-z0-9+.-]*://([^/\s\"')>]+)")
ALLOWED_HOSTS: frozenset[str] = frozenset()


def tracked() -> list[str]:
    """Files git knows, or all files where there is no git (an unpacked archive)."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        done = None
    if done is None or done.returncode:
        hidden = {".venv", "site", "build", "dist"}
        files = [p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file()]
        return [str(p) for p in files if not hidden & set(p.parts) and "__pycache__" not in p.parts]
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(name: str) -> str:
    """Text of a file, nothing for binary ones."""
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_no_file_holds_a_path_of_one_machine():
    here = "tests/test_repository.py"
    found = [
        f"{name}: {match.group()}"
        for name in tracked()
        if name != here
        for match in MACHINE_PATH.finditer(text_of(name))
    ]
    assert found == []


def test_every_file_can_be_checked_out_everywhere():
    # What a URL was taken for a folder by, and characters that other systems refuse.
    assert [name for name in tracked() if re.search(r'[<>:"|?*\\\x00-\x1f]', name)] == []


@pytest.mark.parametrize(
    "text",
    [
        "/home/ann/x",
        "= /" + "root/.cache",
        '"/tmp/probe"',
        "/" + "work/main",
        "C:\\Users\\ann",
        "(/Users/ann",
    ],
)
def test_the_path_check_sees_paths(text):
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize(
    "text", ["src/home/x", "a network/tmp/x", "https://example.org/wo" + "rk/x", "{x}/tmp/y"]
)
def test_the_path_check_leaves_other_text_alone(text):
    assert not MACHINE_PATH.search(text)


def test_what_is_installed_names_no_registry_host():
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run"):
        hosts = set(HOST.findall(text_of(name)))
        assert hosts <= ALLOWED_HOSTS, f"{name} names {hosts}"
        assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|--hash", text_of(name)), name


def bare(requirement: str) -> str:
    """Name of the package a requirement is about, as the index spells it."""
    return re.sub(r"[._-]+", "-", re.split(r"[\[<>=!~; ]", requirement)[0]).lower()


def test_every_constraint_pins_one_version():
    lines = text_of("constraints.txt").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin)] == []
    names = [bare(pin) for pin in pins]
    assert sorted(names) == sorted(set(names))


def test_every_dependency_is_pinned():
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pinned = {bare(line) for line in text_of("constraints.txt").split()}
    assert {bare(line) for line in wanted} - pinned - {"trueline"} == set()


def test_modules_stay_readable():
    lengths = {module_name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in source_files()}
    assert {name: n for name, n in lengths.items() if n > LINES_OF_A_MODULE} == {}


def test_functions_fit_a_screen():
    found = [
        f"{module_name(path)}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > LINES_OF_A_FUNCTION
    ]
    assert found == []


def test_a_class_name_has_one_meaning():
    """Types of a manifest are named as Open Data Fabric names them; four of ours have the same names."""
    homes: dict[str, set[str]] = {}
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(module_name(path))
    for name in ("Decimal", "Duration", "Time", "Timestamp"):
        homes[name].discard("trueline.chain.datatypes")
    assert {name: sorted(modules) for name, modules in homes.items() if len(modules) > 1} == {}


def test_every_module_says_what_it_is_for():
    assert [
        module_name(path)
        for path in source_files()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


def test_no_module_is_named_after_nothing():
    nothing = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert [module_name(p) for p in source_files() if p.stem.strip("_") in nothing] == []


def targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z]+):", text_of("Makefile"), flags=re.MULTILINE))


def test_every_make_command_in_the_documents_exists():
    command = re.compile(r"(?:`|^ *\$? *)make ([a-z]+)", re.MULTILINE)
    pages = [text_of(name) for name in tracked() if name.endswith(".md")]
    spoken = {target for page in pages for target in command.findall(page)}
    assert {"demo", "test"} <= spoken
    assert spoken <= targets()


def test_the_promised_targets_exist():
    promised = {
        "setup",
        "demo",
        "test",
        "quick",
        "bench",
        "soak",
        "lint",
        "docs",
        "contracts",
        "clean",
        "help",
    }
    assert promised <= targets()


def test_ci_runs_the_tests_and_can_be_run():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text(encoding="utf-8").rstrip().endswith("exec make test")


def test_the_licence_is_the_one_the_package_names():
    assert "Apache License" in text_of("LICENSE")
    assert tomllib.loads(text_of("pyproject.toml"))["project"]["license"] == "Apache-2.0"


def test_the_changelog_knows_the_version():
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert f"## {version}" in text_of("CHANGELOG.md")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/trueline/flow/graph.py", ["src/trueline/flow", "tests/flow"]),
        ("src/trueline/console/items.py", ["src/trueline/console", "tests/test_console.py"]),
        ("src/trueline/merge.py", ["src/trueline/merge.py"]),
        ("docs/flows.md", ["tests/test_docs.py"]),
        ("tests/run/test_model.py", ["tests/run"]),
        ("tests/test_docs.py", ["tests/test_docs.py"]),
        ("Makefile", []),
    ],
)
def test_a_quick_check_takes_the_tests_of_the_rooms_that_changed(file, expected):
    assert quick.tests_for([file]) == [*quick.ALWAYS, *expected]
