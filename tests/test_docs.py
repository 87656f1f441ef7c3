"""The documents tell the truth: examples run, links lead somewhere, lists are complete."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import os
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture import ROOT
from tools import reference
from trueline import errors
from trueline.cli import main

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """The fenced blocks of a page that can be run: language, text, line."""
    text = page.read_text(encoding="utf-8")
    found = [(m[1], m[2], text[: m.start()].count("\n") + 1) for m in BLOCK.finditer(text)]
    return [block for block in found if block[0] in {"python", "console"}]


def shape(line: str) -> str:
    """What stays of a line of output when hashes, numbers and spacing are taken away.

    >>> shape("f1620ab12ff90   +10,412 rows  2026-11-13")
    '# +0 rows 0-0-0'
    """
    line = re.sub(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{6,}\b", "#", line)
    return " ".join(re.sub(r"\d[\d,.]*", "0", line).split())


def differs(shown: list[str], output: str) -> str | None:
    """Name the first shown line that is not the next of the output, or what the output has beyond them.

    Alone on a line `…` stands for any lines, in a line for any text.

    >>> differs(["sales  …", "…"], "sales 0123abcd\\nmore"), differs(["sales"], "sales\\nmore")
    (None, 'more')
    """
    left = [shape(line) for line in output.splitlines() if line.strip()]
    anywhere = False
    for line in shown:
        if line.strip() in {"…", "..."}:
            anywhere = True
            continue
        wanted = re.compile(re.escape(shape(line)).replace("…", ".*"))
        at = next((n for n, there in enumerate(left) if wanted.fullmatch(there)), None)
        if at is None or (at and not anywhere):
            return line
        left, anywhere = left[at + 1 :], False
    return left[0] if left and not anywhere else None


@pytest.fixture
def typed(capsys, monkeypatch):
    """Run a command line in this process; returns its code, what it said and its errors."""
    monkeypatch.delenv("TRUELINE_WORKSPACE", raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def run_console(text: str, folder: Path, typed) -> Path:
    """Run the `$` lines of a console block; returns the folder it ends in."""
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for command in commands:
        line, *shown = command.rstrip("\n").split("\n")
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            folder = folder / words[1]
            continue
        assert words[0] == "trueline", f"only trueline and cd are run here: {line}"
        with contextlib.chdir(folder):
            code, out, err = typed(*words[1:])
        assert code == 0, f"$ {line}\n{out}{err}"
        missing = differs([s for s in shown if s.strip()], out)
        assert missing is None, f"$ {line}: {missing!r} is not what is next in\n{out}"
    return folder


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.usefixtures("spark")
def test_every_example_runs(page, tmp_path, monkeypatch, capsys, typed):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    folder = tmp_path
    for language, text, line in blocks(page):
        if language == "console":
            folder = run_console(text, folder, typed)
        elif ">>>" in text:
            example = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), line)
            assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0, (
                capsys.readouterr().out
            )
            # What a block names, the blocks after it may use.
            names.update(example.globs)
        else:
            # Lines of the page, so that a traceback points into it.
            exec(compile("\n" * line + text, str(page), "exec"), names)


def test_a_wrong_shape_is_found():
    output = "sales  f1620ab12  10 rows\ndaily  f1620cd34  2 rows\n"
    assert differs(["sales  f1620ffff  7 rows", "daily  f16200  1 rows"], output) is None
    assert differs(["…", "daily f1620ffff 9 rows"], output) is None
    assert differs(["daily f16201 2 rows", "sales f16202 10 rows"], output) == "daily f16201 2 rows"
    assert differs(["…", "daily f16201 2 rows", "sales f16202 10 rows"], output) == "sales f16202 10 rows"
    assert differs(["sales 10 rows"], output) == "sales 10 rows"
    assert differs(["sales f16201 10 rows"], output) == "daily # 0 rows"
    assert differs(["sales f16201 10 rows", "…"], output) is None
    assert differs(["sales … rows", "daily f16201 …"], output) is None
    assert differs([], output) == "sales # 0 rows", "what is printed is shown"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = [t.split("#")[0] for t in re.findall(r"\]\(([^)]+)\)", text) if "://" not in t]
    assert [t for t in targets if t and not (page.parent / t).exists()] == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(p.relative_to(ROOT / "docs")) for p in PAGES if p.is_relative_to(ROOT / "docs")]
    assert [p for p in pages if f": {p.replace(os.sep, '/')}\n" not in navigation] == []


def linked(page: Path) -> list[Path]:
    """The files that a page links to."""
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    return [(page.parent / target).resolve() for target in targets if "://" not in target]


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_every_page_is_reached_from_the_first(start):
    seen: set[Path] = set()
    ahead = [ROOT / start]
    while ahead:
        page = ahead.pop()
        if page.suffix == ".md" and page.exists() and page not in seen:
            seen.add(page)
            ahead += linked(page)
    assert [page.name for page in PAGES if page not in seen and page != ROOT / "README.md"] == []


def test_the_index_leads_to_every_page_itself():
    shown = linked(ROOT / "docs" / "index.md")
    pages = [page for page in PAGES if page.parent in {ROOT / "docs", ROOT / "docs" / "reference"}]
    assert [page.name for page in pages if page not in shown and page.name != "index.md"] == []


# Commands whose example needs what another page makes, or that show themselves.
ELSEWHERE = {"run": "seeing-runs.md", "flow": "simulator.md", "demo": "reference/cli.md"}


def test_every_command_has_an_example(typed):
    consoles = [text for language, text, _ in blocks(ROOT / "docs/reference/cli.md") if language == "console"]
    shown = set(re.findall(r"^\$ trueline (?:-C \S+ )?([\w-]+)", "\n".join(consoles), re.MULTILINE))
    _, helped, _ = typed("--help")
    commands = set(re.findall(r"^  ([a-z-]+)  +\S", helped.partition("Commands:")[2], re.MULTILINE))
    assert commands - shown == set(ELSEWHERE)
    for command, page in ELSEWHERE.items():
        assert f"trueline {command}" in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_every_error_is_in_the_reference_and_no_other():
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TruelineError)
    }
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` ", page, flags=re.MULTILINE)) == classes


def test_the_reference_of_python_says_what_the_docstrings_say():
    written = {path: path.read_text(encoding="utf-8") for path in reference.FOLDER.glob("python/*.md")}
    for name in ("python.md", "errors.md"):
        written[reference.FOLDER / name] = (reference.FOLDER / name).read_text(encoding="utf-8")
    expected = reference.pages()
    assert set(written) == set(expected)
    assert [str(p) for p in written if written[p] != expected[p]] == [], "run `make docs`"


@pytest.mark.parametrize("module", [name for names in reference.PAGES.values() for name in names])
def test_every_public_name_is_in_the_reference(module):
    page = (reference.FOLDER / "python" / f"{reference.page_of(module)}.md").read_text(encoding="utf-8")
    found = set(re.findall(r"^#+ (\w+)$|^\| `(\w+)` \|", page, flags=re.MULTILINE))
    names = {name for pair in found for name in pair}
    assert [name for name in import_module(module).__all__ if name not in names] == []


def test_every_public_name_has_a_sentence_and_an_example():
    assert reference.missing() == []


def test_names_without_a_sentence_or_an_example_are_found(monkeypatch):
    module = ModuleType("shop")

    class Till:
        """Counts money.

        >>> Till().open()
        """

        def open(self):
            """Open it."""

        def close(self):
            """Close it."""

        def count(self): ...

    def pay():
        """Pay.

        >>> pay()
        """

    Till.__module__ = pay.__module__ = Till.count.__module__ = "trueline.shop"
    module.__all__, module.Till, module.pay = ["Till", "pay"], Till, pay
    monkeypatch.setitem(sys.modules, "shop", module)
    monkeypatch.setattr(reference, "PAGES", {"shop": ("shop",)})
    monkeypatch.setattr(reference, "WITHOUT_EXAMPLE", {"shop.pay": "nobody pays"})
    reference.homes.cache_clear()
    try:
        assert reference.missing() == [
            "shop.Till.close has no example",
            "shop.Till.count has no docstring",
            "shop.Till.count has no example",
            "shop.pay has an example by now",
        ]
    finally:
        reference.homes.cache_clear()


def test_every_command_in_the_reference_has_a_help_text(typed):
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\| `trueline (\w+)`", page, flags=re.MULTILINE)
    assert {"init", "create", "list", "status", "log", "schema", "verify", "doctor", "gc", "config"} <= set(
        commands
    )
    for command in commands:
        code, out, err = typed(command, "--help")
        assert code == 0, f"trueline {command} --help\n{err}"
        assert "Usage" in out
