"""`python tools/reference.py [--check]`: write the reference of Python from the docstrings of public names.

`docs/reference/python.md` is the index, `docs/reference/python/` has the pages. A name is public if it is in
the `__all__` of a public module; a class brings its public methods and properties. Each has a signature, a
sentence and an example: its own doctest, or the lines of the doctest of its class or module that use it.
The tables of `docs/reference/errors.md` are written too.
With `--check` nothing is written: it prints what is out of date or missing.
"""

from __future__ import annotations

import ast
import doctest
import functools
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "trueline"
FOLDER = ROOT / "docs" / "reference"
WIDTH = 100
# Of the example of a class or a module, how much is shown for one name.
MOST_EXAMPLES = 2

# page → the public modules on it, in the order of the index.
PAGES: dict[str, tuple[str, ...]] = {
    "trueline": ("trueline",),
    "workspace": ("trueline.workspace", "trueline.workspace.preparing", "trueline.workspace.state"),
    "view": ("trueline.view",),
    "types": ("trueline.types",),
    "readers": ("trueline.readers",),
    "merge": ("trueline.merge",),
    "check": ("trueline.check",),
    "identity": ("trueline.identity",),
    "chain": ("trueline.chain",),
    "run": ("trueline.run",),
    "flow": ("trueline.flow",),
    "spark": ("trueline.spark.source", "trueline.spark.sink", "trueline.spark.run_executor"),
    "testing": ("trueline.testing",),
    "console": ("trueline.console",),
    "errors": ("trueline.errors",),
}

INTRODUCTION = """\
Every public name, with its signature, a sentence and an example that runs. `make docs` writes these pages
from the docstrings; what is public is what the `__all__` of these modules lists. An example that uses a name
made before is part of the example of its class or module, which comes first on the page."""
SPARK = "It needs a running Spark; [the page on Spark](../../spark.md) has examples, which are run there."
ERROR = "It is raised, not made: [the page on errors](../errors.md) says when and what to do."

# What has no example of its own, and why; the reader finds the reason in its place.
WITHOUT_EXAMPLE: dict[str, str] = {
    "trueline.view.View.from_spark": SPARK,
    "trueline.view.View.to_spark": SPARK,
    "trueline.workspace.Workspace.sql": SPARK,
    "trueline.spark.source.register": SPARK,
    "trueline.spark.sink.sink": SPARK,
    "trueline.spark.run_executor.Spark": SPARK,
    "trueline.run.RunReport.of": "A run calls it: `run.report`.",
    "trueline.readers.ReadStats.count": "A reader calls it as it reads; see `reading.stats`.",
}


@dataclass(frozen=True)
class Name:
    """A public name: where it is documented, what it is, and the class it belongs to."""

    path: str
    value: Any
    owner: Any = None

    @property
    def short(self) -> str:
        """The name as it is written: `View`, `View.filter`."""
        return ".".join(self.path.split(".")[-2 if self.owner is not None else -1 :])

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.path.rpartition(".")[2]

    @property
    def function(self) -> Any:
        """The function behind a method or property, else the value itself."""
        if isinstance(self.value, property):
            return self.value.fget
        if isinstance(self.value, functools.cached_property):
            return self.value.func
        return getattr(self.value, "__func__", self.value)

    @property
    def is_property(self) -> bool:
        """Whether it is read without a call."""
        return isinstance(self.value, property | functools.cached_property)

    @property
    def doc(self) -> str:
        """Its docstring, or the one it inherits."""
        if self.owner is not None:
            return inspect.getdoc(getattr(self.owner, self.last)) or inspect.getdoc(self.function) or ""
        own = self.value.__doc__ if inspect.isclass(self.value) else inspect.getdoc(self.value)
        return inspect.cleandoc(own or "")

    @property
    def is_value(self) -> bool:
        """Whether it is a constant or an alias of a type, which has no docstring."""
        return self.owner is None and not (inspect.isclass(self.value) or inspect.isroutine(self.value))

    @property
    def is_error(self) -> bool:
        """Whether it is an exception, which people catch and do not make."""
        return inspect.isclass(self.value) and issubclass(self.value, Exception)


def modules() -> list[ModuleType]:
    """Import the public modules."""
    return [import_module(name) for names in PAGES.values() for name in names]


@functools.cache
def homes() -> dict[int, tuple[str, ...]]:
    """Say for each public object under which names it is public, the one to document it under first.

    That is the module it is defined in or below; the front door and later names only refer to it.
    """
    found: dict[int, list[str]] = {}
    for module in modules():
        for name in module.__all__:
            value = getattr(module, name)
            if not inspect.ismodule(value) and not isinstance(value, str | int):
                found.setdefault(id(value), []).append(f"{module.__name__}.{name}")
    return {key: tuple(sorted(paths, key=_distance)) for key, paths in found.items()}


def _distance(path: str) -> tuple[bool, bool, bool]:
    module, _, name = path.rpartition(".")
    value = getattr(import_module(module), name)
    inside = str(getattr(value, "__module__", "")).startswith(module)
    return (module == "trueline", not inside, getattr(value, "__name__", name) != name)


def home(value: object, path: str) -> str:
    """Return the name an object is documented under; `path` where it has no other."""
    return homes().get(id(value), (path,))[0]


def names_of(module: ModuleType) -> Iterator[Name]:
    """The names that a module documents, its classes with their members."""
    for name in module.__all__:
        path, value = f"{module.__name__}.{name}", getattr(module, name)
        if inspect.ismodule(value) or home(value, path) != path:
            continue
        yield Name(path, value)
        if inspect.isclass(value):
            yield from members(path, value)


def members(path: str, owner: type[Any]) -> Iterator[Name]:
    """The methods and properties of a class, without those of a public class or protocol it follows."""
    followed = {name for base in followed_by(owner) for name in dir(base) if not name.startswith("_")}
    seen = set(followed)
    for base in owner.__mro__:
        if not base.__module__.startswith("trueline"):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            found = Name(f"{path}.{name}", value, owner)
            if found.is_property or inspect.isfunction(found.function):
                seen.add(name)
                yield found


def followed_by(owner: type[Any]) -> tuple[type[Any], ...]:
    """The public classes a class inherits from, and the protocols of its module that it implements."""
    if (mine := homes().get(id(owner))) is None:
        return ()
    bases = tuple(base for base in owner.__mro__[1:] if id(base) in homes())
    module = import_module(mine[0].rpartition(".")[0])
    protocols = [getattr(module, name) for name in module.__all__]
    return bases + tuple(
        each
        for each in protocols
        if getattr(each, "_is_protocol", False) and each is not owner and each not in bases
        if all(hasattr(owner, name) for name in _wanted(each))
    )


def _wanted(protocol: type[Any]) -> set[str]:
    """The methods of a protocol; what it has besides may be set by a constructor."""
    names = [name for name in dir(protocol) if not name.startswith("_")]
    return {name for name in names if inspect.isfunction(getattr(protocol, name))}


# --- examples ---------------------------------------------------------------------------


def examples(text: str) -> list[doctest.Example]:
    """The examples of a docstring."""
    return doctest.DocTestParser().get_examples(text)


def used(example: doctest.Example) -> set[str]:
    """The names and attributes that an example uses."""
    found = ast.walk(ast.parse(example.source))
    return {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in found
        if isinstance(n, ast.Attribute | ast.Name)
    }


def example_of(name: Name) -> list[doctest.Example]:
    """The example of a name: its own, else what uses it in the example of its class, else of its module."""
    if own := examples(name.doc):
        return own
    module = import_module(".".join(name.path.split(".")[: -2 if name.owner is not None else -1]))
    tours = [base.__doc__ for base in getattr(name.owner, "__mro__", ())] + [module.__doc__]
    if name.owner is None:
        # The class of a result is seen where the result is made.
        tours += [getattr(module, other).__doc__ for other in module.__all__]
    for tour in (inspect.cleandoc(each or "") for each in tours):
        if found := [each for each in examples(tour) if name.last in used(each)]:
            return found[:MOST_EXAMPLES]
    return []


def shown(found: Iterable[doctest.Example]) -> str:
    """Write examples as a session."""
    lines: list[str] = []
    for each in found:
        source = each.source.rstrip("\n").split("\n")
        lines += [f"{'...' if number else '>>>'} {line}".rstrip() for number, line in enumerate(source)]
        lines += each.want.rstrip("\n").split("\n") if each.want else []
    return "\n".join(["```pycon", *lines, "```"])


def described(doc: str) -> Iterator[str]:
    """Write a docstring: its paragraphs, and its examples as sessions, in their order."""
    together: list[doctest.Example] = []
    for part in doctest.DocTestParser().parse(doc):
        if isinstance(part, doctest.Example):
            together.append(part)
        elif part.strip():
            if together:
                yield shown(together)
                together = []
            yield part.strip("\n")
    if together:
        yield shown(together)


def reason(name: Name) -> str | None:
    """Say why a name has no example, None if it has to have one."""
    if name.is_error or (name.owner is not None and issubclass(name.owner, Exception)):
        return ERROR
    path = name.path if name.owner is None else name.path.rpartition(".")[0]
    return WITHOUT_EXAMPLE.get(name.path) or (WITHOUT_EXAMPLE.get(path) if name.owner is not None else None)


def missing() -> list[str]:
    """What a reader would miss: names without a sentence or an example, reasons nobody needs."""
    found, needed = [], set()
    for module in modules():
        for name in names_of(module):
            if name.is_value:
                continue
            if not sentence(name.doc):
                found.append(f"{name.path} has no docstring")
            if example_of(name):
                continue
            if reason(name) is None:
                found.append(f"{name.path} has no example")
            needed |= {name.path, name.path.rpartition(".")[0]}
    return [*found, *(f"{path} has an example by now" for path in WITHOUT_EXAMPLE if path not in needed)]


# --- pages ------------------------------------------------------------------------------


class _Written:
    """An annotation as it is written in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(name: Name) -> str:
    """Write how a name is called, or the type of a property."""
    is_class = inspect.isclass(name.value)
    if is_class and (issubclass(name.value, Enum) or getattr(name.value, "_is_protocol", False)):
        # Nobody calls it: what Python says of calling it differs from version to version.
        return f"class {name.short}"
    found = inspect.signature(name.function)
    result = found.return_annotation
    shown_result = result if isinstance(result, str) else inspect.formatannotation(result)
    if name.is_property:
        return f"{name.short}: {shown_result}"
    parameters = [_parameter(each) for each in found.parameters.values()]
    if name.owner is not None and not isinstance(name.value, staticmethod):
        parameters = parameters[1:]
    start = f"class {name.short}(" if is_class else f"{name.short}("
    end = ")" if is_class or result is inspect.Signature.empty else f") -> {shown_result}"
    listed = list(_listed(parameters))
    short = f"{start}{', '.join(listed)}{end}"
    return short if len(short) <= WIDTH else "\n".join([start, *(f"    {each}," for each in listed), end])


def _listed(parameters: list[inspect.Parameter]) -> Iterator[str]:
    star = False
    for number, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and not star:
            yield "*"
        star = star or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        yield str(each)
        following = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if each.kind is each.POSITIONAL_ONLY and following is not each.POSITIONAL_ONLY:
            yield "/"


def _parameter(found: inspect.Parameter) -> inspect.Parameter:
    """A parameter with its annotation as written, and a default that is the same in every process."""
    if isinstance(found.annotation, str):
        found = found.replace(annotation=_Written(found.annotation))
    default = found.default
    if default is not inspect.Parameter.empty:
        text = repr(default)
        if re.search(r" at 0x|^<|\n", text) or callable(default):
            found = found.replace(default=_Written(getattr(default, "__name__", "...")))
    return found


def sentence(doc: str) -> str:
    """The first paragraph of a docstring, on one line; none if it begins with an example."""
    first = re.split(r"\n\s*\n", doc.strip())[0]
    return "" if first.startswith(">>>") else " ".join(first.split())


def entry(name: Name, level: str) -> Iterator[str]:
    """The text of one name."""
    yield f"{level} {name.short}"
    yield f"```py\n{signature(name)}\n```"
    yield from described(name.doc)
    if inspect.isclass(name.value) and (bases := followed_by(name.value)):
        links = ", ".join(link(home(base, ""), name.path) for base in bases)
        yield f"It has what {links} has."
    if not examples(name.doc):
        found = example_of(name)
        yield shown(found) if found else reason(name) or ""


def link(path: str, start: str) -> str:
    """A link to where a name is documented, from the page of another."""
    module, _, name = path.rpartition(".")
    page, here = page_of(module), page_of(start.rpartition(".")[0])
    # Errors stand in a table, which has no place of its own to lead to.
    there = "" if Name(path, getattr(import_module(module), name)).is_error else f"#{name.lower()}"
    return f"[`{name}`]({'' if page == here else page + '.md'}{there})"


def page_of(module: str) -> str:
    """The page of a public module."""
    return next((page for page, names in PAGES.items() if module in names), "trueline")


def module_page(module: ModuleType, level: str) -> Iterator[str]:
    """The text of a module: what it is for, what it refers to, its names."""
    yield f"{level} `{module.__name__}`"
    yield from described(inspect.cleandoc(module.__doc__ or ""))
    yield from elsewhere(module)
    names = list(names_of(module))
    if values := [name for name in names if name.is_value]:
        rows = [f"| `{name.short}` | `{_one_line(name.value)}` |" for name in values]
        yield "\n".join(["| value | is |", "|---|---|", *rows])
    if errors := [name for name in names if name.is_error]:
        rows = [f"| `{name.short}` | {_cell(sentence(name.doc))} |" for name in errors]
        yield "\n".join(["| error | means |", "|---|---|", *rows])
        yield ERROR
    for name in names:
        if name.is_value or (name.is_error and not examples(name.doc)):
            continue
        if (
            name.owner is not None
            and name.owner in {each.value for each in errors}
            and not examples(name.doc)
        ):
            continue
        yield from entry(name, level + ("#" if name.owner is None else "##"))


def elsewhere(module: ModuleType) -> Iterator[str]:
    """The names of a module that are documented on another page, or under another name."""
    rows = []
    for name in module.__all__:
        path, value = f"{module.__name__}.{name}", getattr(module, name)
        if inspect.ismodule(value):
            page = page_of(value.__name__)
            rows.append(
                f"| `{name}` | {_cell(sentence(value.__doc__ or ''))} | [`{value.__name__}`]({page}.md) |"
            )
        elif (there := home(value, path)) != path:
            said = sentence(inspect.cleandoc(value.__doc__ or ""))
            rows.append(f"| `{name}` | {_cell(said)} | {link(there, path)} |")
    if rows:
        yield "\n".join(["| name | what it is | see |", "|---|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _one_line(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(str(each) for each in value))
    return _cell(" ".join(str(value).split()))[:WIDTH]


def index() -> str:
    """The page that leads to the others."""
    rows = []
    for page, names in PAGES.items():
        for name in names:
            said = sentence(inspect.cleandoc(import_module(name).__doc__ or ""))
            rows.append(f"| [`{name}`](python/{page}.md) | {_cell(said)} |")
    table = "\n".join(["| module | what it is for |", "|---|---|", *rows])
    return f"# Python\n\n{INTRODUCTION}\n\n{table}\n"


def error_table() -> str:
    """Every error: its kind, the built-in error it also is, and what it means."""
    errors = import_module("trueline.errors")
    rows = []
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.TruelineError):
            bases = [base for base in value.__bases__ if base not in (Exception, errors.TruelineError)]
            ours = [f"`{base.__name__}`" for base in bases if base.__module__ == errors.__name__]
            other = [f"`{base.__name__}`" for base in bases if base.__module__ != errors.__name__]
            said = _cell(sentence(inspect.cleandoc(value.__doc__ or "")))
            rows.append(f"| `{name}` | {', '.join(ours) or '–'} | {', '.join(other) or '–'} | {said} |")
    return "\n".join(["| error | kind | also | means |", "|---|---|---|---|", *rows])


def code_table() -> str:
    """The codes that say more than the class of an error, as they stand in the source."""
    errors = import_module("trueline.errors").__all__
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for given in node.keywords:
                if given.arg == "code" and isinstance(given.value, ast.Constant) and name in errors:
                    found.setdefault(name, set()).add(f"`{given.value.value!s}`")
    rows = [f"| {name} | {', '.join(sorted(codes))} |" for name, codes in sorted(found.items())]
    return "\n".join(["| error | codes |", "|---|---|", *rows])


def error_page() -> str:
    """The page on errors, with its tables as they are now."""
    text = (FOLDER / "errors.md").read_text(encoding="utf-8")
    for table in (error_table(), code_table()):
        before, header, after = text.partition(table.partition("\n")[0])
        assert header, "the tables are found by their first lines"
        text = before + table + "\n\n" + after.partition("\n\n")[2]
    return text.rstrip("\n") + "\n"


def pages() -> dict[Path, str]:
    """Every page of the reference, by its path."""
    written = {FOLDER / "python.md": index(), FOLDER / "errors.md": error_page()}
    for page, names in PAGES.items():
        found = [import_module(name) for name in names]
        parts = [part for each in found for part in module_page(each, "#" if len(found) == 1 else "##")]
        if len(found) > 1:
            parts = [f"# {page.capitalize()}", *parts]
        written[FOLDER / "python" / f"{page}.md"] = "\n\n".join(part for part in parts if part) + "\n"
    return written


def main(words: list[str]) -> int:
    """Write the pages, or say what is out of date."""
    found = missing()
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in words:
            found.append(f"docs/{path.relative_to(FOLDER.parent)} is out of date: run tools/reference.py")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
