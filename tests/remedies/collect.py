"""The remedies of the package, found in its syntax: a module and the text, with its placeholders."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import typer

from tests.architecture import module_name, source_files
from trueline.cli.app import application

if TYPE_CHECKING:
    from collections.abc import Iterator

# Parameters of our functions and classes that hold what to do.
PARAMETERS = ("remedy", "in_shell", "if_full", "if_read_only")

# What a reader may type: code in backticks, calls, options, commands, names of Python and of settings.
TYPED = re.compile(
    r"`|\w[(\[=]|(?<![\w-])--?[a-z]"
    rf"|\btrueline (?:{'|'.join(typer.main.get_command(application()).commands)}|-)"  # type: ignore[attr-defined]
    r"|\bpip install|\w_\w|\w\.(?!md\b)[a-z]\w|(?:^|\s)\.\w|[a-z][A-Z]|(?<!\w):[a-z]|\b\w+@"
    r"|\b(?:write|convert[^:]*:|instead of [^:]*:) '?…"  # where the code fills in what is to be typed
)
# Functions that give a remedy as a part of a tuple: which part.
IN_TUPLES = {"chain.schema": {"schema_findings": 2, "_system_columns": 2}, "spark.errors": {"_gone": 1}}
_PLACE = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


class Remedy(NamedTuple):
    """What identifies a remedy: the module below `trueline` and the text as it is written there.

    In angle brackets it is an expression of which cannot be seen what it says.
    """

    module: str
    text: str

    @property
    def can_be_typed(self) -> bool:
        """Say whether it names a call, an option or a command."""
        return self.text.startswith("<") or TYPED.search(_PLACE.sub("…", self.text)) is not None

    @property
    def pattern(self) -> re.Pattern[str]:
        """What the text of an error must match to be this remedy."""
        return re.compile(".*".join(re.escape(part) for part in _PLACE.split(self.text)), re.DOTALL)


@dataclass(frozen=True)
class Module:
    """One module: its syntax, its functions, and what it imports from where."""

    name: str
    tree: ast.Module

    @property
    def short(self) -> str:
        return self.name.removeprefix("trueline.")

    def functions(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the callables and their parameters; those of a class are its fields or its `__init__`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg != "self"]
            elif isinstance(node, ast.ClassDef):
                made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
                fields = [
                    n.target.id
                    for n in node.body
                    if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                ]
                yield node.name, [a.arg for a in made[0].args.args[1:]] if made else fields

    def imports(self) -> dict[str, str]:
        """Return the modules that names were imported from."""
        return {
            alias.asname or alias.name: node.module
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }


@cache
def remedies() -> dict[Remedy, str]:
    """Return every remedy with the places where it is written, `module.py:line`."""
    modules = [Module(module_name(path), ast.parse(path.read_text("utf-8"))) for path in source_files()]
    taking = {
        (module.name, name): names.index("remedy")
        for module in modules
        for name, names in module.functions()
        if "remedy" in names
    }
    # A class that adds fields to one of ours takes a remedy where that does.
    by_name = {name: place for (_, name), place in taking.items()}
    for module in modules:
        for node in ast.walk(module.tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                if isinstance(base, ast.Name) and base.id in by_name and base.id[0].isupper():
                    taking.setdefault((module.name, node.name), by_name[base.id])  # type: ignore[attr-defined]
    by_module = {module.name: module for module in modules}
    found: dict[Remedy, str] = {}
    for module in modules:
        for text, line in _Finder(module, taking, by_module).found():
            key = Remedy(module.short, text)
            place = f"{module.name.replace('.', '/')}.py:{line}"
            found[key] = f"{found[key]}, {place}" if key in found else place
    return found


class _Finder(ast.NodeVisitor):
    """Finds what is given as a remedy in one module, and follows names to what they stand for."""

    def __init__(
        self, module: Module, taking: dict[tuple[str, str], int], modules: dict[str, Module]
    ) -> None:
        self.module = module
        self.taking = taking
        self.modules = modules
        self.imports = module.imports()
        self.inside: list[ast.FunctionDef] = []
        self.texts: list[tuple[str, int]] = []
        self.defined = {n.name: n for n in module.tree.body if isinstance(n, ast.FunctionDef)}
        self.constants = {
            target.id: node.value
            for node in module.tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }

    def found(self) -> list[tuple[str, int]]:
        self.visit(self.module.tree)
        return [(text, line) for text, line in self.texts if text]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.inside.append(node)
        self.generic_visit(node)
        self.inside.pop()

    def visit_Return(self, node: ast.Return | ast.Yield) -> None:
        places = IN_TUPLES.get(self.module.short, {})
        if self.inside and self.inside[-1].name in places and isinstance(node.value, ast.Tuple):
            value = node.value.elts[places[self.inside[-1].name]]
            self.texts += [(text, value.lineno) for text in self._texts(value, tuple(self.inside))]
        self.generic_visit(node)

    visit_Yield = visit_Return  # noqa: N815 (the name of ast)

    def visit_Call(self, node: ast.Call) -> None:
        given = [word.value for word in node.keywords if word.arg in PARAMETERS]
        if (place := self._place(node.func)) is not None and len(node.args) > place:
            given.append(node.args[place])
        for value in given:
            for text in self._texts(value, tuple(self.inside)):
                self.texts.append((text, value.lineno))
        self.generic_visit(node)

    def _place(self, called: ast.expr) -> int | None:
        """Return which argument of a call is a remedy."""
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id in ("self", "cls"):
                return self.taking.get((self.module.name, called.attr))
            return self.taking.get((f"{self.imports.get(called.value.id)}.{called.value.id}", called.attr))
        if isinstance(called, ast.Name):
            return self.taking.get((self.imports.get(called.id, self.module.name), called.id))
        return None

    def _texts(self, value: ast.expr, inside: tuple[ast.FunctionDef, ...]) -> list[str]:
        """Return what a remedy may say; nothing where it is handed on, since its origin says it."""
        match value:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Constant(value=None):
                return []
            case ast.JoinedStr(values=parts):
                return ["".join(self._part(part) for part in parts)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                both = product(self._texts(left, inside), self._texts(right, inside))
                return [one + other for one, other in both]
            case ast.IfExp(body=body, orelse=orelse):
                return self._texts(body, inside) + self._texts(orelse, inside)
            case ast.BoolOp(values=values):
                return [text for one in values for text in self._texts(one, inside)]
            case ast.Name(id=name):
                return self._named(name, inside)
            case ast.Call(func=ast.Name(id=name)) if name in self.defined:
                answers = [n for n in ast.walk(self.defined[name]) if isinstance(n, ast.Return) and n.value]
                return [t for n in answers if n.value for t in self._texts(n.value, (self.defined[name],))]
            case ast.Call(func=ast.Name(id=name)) if (there := self._elsewhere(name)) is not None:
                return there._texts(value, ())
            case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get"), args=[_, *other]) if (
                isinstance(kept := self.constants.get(table), ast.Dict)
            ):
                return [text for one in (*kept.values, *other) for text in self._texts(one, inside)]
            case ast.Attribute() | ast.Subscript():
                return []
        return [f"<{ast.unparse(value)}>"]

    def _named(self, name: str, inside: tuple[ast.FunctionDef, ...]) -> list[str]:
        for function in reversed(inside):
            kept = [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
            ]
            if kept:
                return [text for one in kept for text in self._texts(one, inside)]
        return self._texts(self.constants[name], ()) if name in self.constants else []

    def _elsewhere(self, name: str) -> _Finder | None:
        """Return a finder in the module that a name was imported from, if it is one of ours."""
        there = self.modules.get(self.imports.get(name, ""))
        found = _Finder(there, self.taking, self.modules) if there is not None else None
        return found if found is not None and (name in found.defined or name in found.constants) else None

    def _part(self, part: ast.expr) -> str:
        """Return a piece of an f-string as it is written; constants are text like what is around them."""
        if isinstance(part, ast.Constant):
            return str(part.value)
        assert isinstance(part, ast.FormattedValue)
        if isinstance(part.value, ast.Name) and part.conversion < 0:
            there = self._elsewhere(part.value.id) or self
            kept = there.constants.get(part.value.id)
            if isinstance(kept, ast.Constant) and isinstance(kept.value, str):
                return kept.value
        shown = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
        return f"{{{ast.unparse(part.value)}{shown}}}"
