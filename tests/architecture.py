"""The plan of the house: which room may use which, read from the source with `ast`.

`docs/architecture.md` shows the same arrows; `test_architecture.py` keeps the two equal and the code to them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "trueline"

# Public modules beside the rooms: anyone may use them, they use nothing of ours but the errors, and those the
# masking of credentials.
LEAVES = frozenset(
    {
        "annotations",
        "check",
        "credentials",
        "disk",
        "errors",
        "console",
        "lazy",
        "limits",
        "types",
        "merge",
        "readers",
    }
)

_OF_LEAVES = frozenset({"errors", "credentials", "limits", "types"})

# room → the rooms it may import from. The front door is `trueline/__init__.py`.
ARROWS: dict[str, frozenset[str]] = {
    "identity": frozenset(),
    "kernel": frozenset({"identity"}),
    "chain": frozenset({"identity"}),
    "view": frozenset({"identity", "kernel"}),
    "model": frozenset({"identity", "kernel", "view"}),
    "run": frozenset(),
    "flow": frozenset(),
    "dataset": frozenset({"identity", "kernel", "chain", "view", "run"}),
    "workspace": frozenset({"identity", "kernel", "chain", "view", "model", "run", "flow", "dataset"}),
    "spark": frozenset(
        {"identity", "kernel", "chain", "view", "model", "run", "flow", "dataset", "workspace"}
    ),
    "testing": frozenset({"identity", "kernel", "view", "model"}),
    "cli": frozenset({"door", "workspace", "model", "run", "flow"}),
    "web": frozenset({"door", "workspace", "model", "flow"}),
    "door": frozenset({"identity", "view", "model", "dataset", "workspace"}),
}

# room → what it may load inside a function only: the engine, behind a protocol of the room's own.
LAZY: dict[str, frozenset[str]] = {
    room: frozenset({"spark"}) for room in ("view", "model", "run", "flow", "dataset", "workspace")
}

# Rooms of which `cli` and `web` may use the public names only: `trueline.model`, not `trueline.model.kernel`.
PUBLIC_ONLY = {("cli", "model"), ("cli", "run"), ("cli", "flow"), ("web", "model"), ("web", "flow")}

# Too heavy for `import trueline`: `trueline log` is to answer within 0.3 s in a cold process.
HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "rich", "obstore", "cryptography", "httpx")


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: who, what, where, and whether only when a function is called."""

    module: str
    target: str
    line: int
    lazy: bool


def module_name(path: Path) -> str:
    """Name a file of the source as Python does."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Say in which room (or leaf) a module stands; `trueline` itself is the front door."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "door"


def imports(module: str, text: str, *, is_package: bool = False) -> Iterator[Import]:
    """Find every import of a module, inside functions and under TYPE_CHECKING too.

    A type used from another room is knowledge of that room, so type-only imports follow the arrows as well.
    """
    tree = ast.parse(text)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for target in _targets(node, module, is_package):
            yield Import(module, target, getattr(node, "lineno", 0), id(node) in inside)


def _targets(node: ast.AST, module: str, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.split(".")
            keep = len(package) - node.level + (1 if is_package else 0)
            base = ".".join([*package[:keep], *([base] if base else [])])
        # `from trueline import chain` names a room, `from trueline import open` a public name.
        return [f"{base}.{a.name}" for a in node.names] if base == "trueline" else [base]
    called = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
    if called in {"import_module", "__import__"} and isinstance(node, ast.Call) and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return [first.value]
    return []


def complaint(found: Import) -> str | None:
    """Say what is wrong with an import, None if nothing is."""
    here = room_of(found.module)
    where = f"{found.module} line {found.line}"
    top = found.target.split(".")[0]
    if top == "pyspark" and here != "spark":
        return f"{where} imports {found.target}: only spark/ may"
    if top != "trueline":
        return None
    there = room_of(found.target)
    if there not in ARROWS and there not in LEAVES:
        there = "door"
    if there == here or (there in LEAVES and (here not in LEAVES or there in _OF_LEAVES)):
        return None
    if here in LEAVES:
        return f"{where} imports {found.target}: a leaf imports nothing of ours but errors"
    if here not in ARROWS:
        return f"{where} stands in no room of the plan"
    if there in LAZY.get(here, frozenset()):
        return None if found.lazy else f"{where} imports {found.target}: only inside a function"
    if there not in ARROWS[here]:
        return f"{where} imports {found.target}: no arrow from {here} to {there}"
    if (here, there) in PUBLIC_ONLY and found.target.count(".") > 1:
        return f"{where} imports {found.target}: only the public names of {there}"
    return None


def source_files() -> list[Path]:
    """All modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return what a file of the package says, parsed once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def import_graph(*, everything: bool = False, types: bool = False) -> dict[str, set[str]]:
    """Return which module of ours imports which as it is loaded.

    With `types`, imports for types only count too, with `everything` those inside functions as well. What
    importing a module does to the packages it is in does not count.
    """
    files = {module_name(path): path for path in source_files()}
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        tree = tree_of(path)
        nodes = ast.walk(tree) if everything else _at_load(tree, types=types)
        found = {name for node in nodes for name in _modules(node, module, files, path.name == "__init__.py")}
        graph[module] = found - {module}
    return graph


def _at_load(tree: ast.AST, *, types: bool) -> Iterator[ast.AST]:
    """Yield what runs when a module is loaded: no bodies of functions, imports for types if asked."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if not types and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (each for other in node.orelse for each in (other, *_at_load(other, types=types)))
            continue
        yield node
        yield from _at_load(node, types=types)


def mutual(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the groups of modules of which each leads to each other one."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    leads = {module: reached(module) for module in graph}
    groups = {frozenset({module, *(to for to in leads[module] if module in leads[to])}) for module in graph}
    return {group for group in groups if len(group) > 1}


def _modules(node: ast.AST, module: str, files: dict[str, Path], is_package: bool) -> Iterator[str]:
    bases = _targets(node, module, is_package)
    if isinstance(node, ast.ImportFrom) and bases[0] in files:
        for alias in node.names:
            inner = f"{bases[0]}.{alias.name}"
            yield inner if inner in files else bases[0]
        return
    for base in bases:
        if base in files:
            yield base
