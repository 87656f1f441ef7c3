"""A story: a situation that raises an error, and what its remedy says, done with its own words."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any

import trueline as tl
from tests.remedies.collect import Remedy
from trueline.cli import main
from trueline.errors import TruelineError

if TYPE_CHECKING:
    from pathlib import Path

Telling = Callable[["Scene"], None]


@dataclass(frozen=True)
class Story:
    """Who tells what to do about which remedies."""

    tell: Telling
    remedies: tuple[Remedy, ...]

    @property
    def name(self) -> str:
        return f"{self.tell.__module__.rpartition('.')[2]}.{self.tell.__name__}"


STORIES: list[Story] = []


def story(module: str, *texts: str) -> Callable[[Telling], Telling]:
    """Register a story of the remedies with these texts in a module; stories can be about several modules."""

    def register(tell: Telling) -> Telling:
        keys = tuple(Remedy(module, text) for text in texts)
        known = next((one for one in STORIES if one.tell is tell), None)
        if known is not None:
            STORIES.remove(known)
            keys += known.remedies
        STORIES.append(Story(tell, keys))
        return tell

    return register


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str


@dataclass
class Scene:
    """Where a story happens: a folder of its own, a workspace in it, and the remedies that were met."""

    folder: Path
    expected: tuple[Remedy, ...]
    met: set[Remedy] = field(default_factory=set)
    stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def ws(self) -> tl.Workspace:
        """A fresh workspace."""
        return self.stack.enter_context(tl.open(self.folder / "ws", create=True))

    @property
    def home(self) -> Path:
        """The folder of the workspace."""
        return self.folder / "ws"

    def file(self, name: str, content: str | bytes) -> Path:
        """Write a file beside the workspace."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def refused(self, doing: Callable[[], object]) -> str:
        """Do what is refused, and return the remedy: it must be one the story is about."""
        try:
            doing()
        except TruelineError as error:
            return self.meet(error.remedy)
        raise AssertionError("nothing was refused")

    def meet(self, remedy: str) -> str:
        """Note that a remedy was given."""
        found = [one for one in self.expected if one.pattern.fullmatch(remedy)]
        assert found, f"another remedy than the story's: {remedy!r}"
        self.met.update(found)
        return remedy

    def run(self, *words: object, at: Path | None = None) -> Ran:
        """Run a command line, in the folder of the workspace."""
        out, err, before = StringIO(), StringIO(), os.getcwd()  # noqa: PTH109
        os.chdir(at or (self.home if self.home.is_dir() else self.folder))
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = main([str(word) for word in words])
        finally:
            os.chdir(before)
        return Ran(code, out.getvalue(), err.getvalue())

    def done(self, *words: object, at: Path | None = None) -> str:
        """Run a command line that must succeed, and return what it printed."""
        ran = self.run(*words, at=at)
        assert ran.code == 0, ran
        return ran.out

    def run_refused(self, *words: object, at: Path | None = None) -> str:
        """Run a command line that is refused, and return the remedy."""
        ran = self.run(*words, "--json", at=at)
        assert ran.code, ran
        return self.meet(json.loads(ran.err)["error"]["remedy"])

    def warned(self, *words: object, at: Path | None = None) -> str:
        """Run a command line that says something to do beside its answer, and return that."""
        said = " ".join(self.run(*words, at=at).err.split())
        for one in self.expected:
            if found := one.pattern.search(said):
                return self.meet(found[0])
        raise AssertionError(f"none of the story's remedies: {said}")

    def typed(self, remedy: str, *then: str, at: Path | None = None, **stands_for: str) -> str:
        """Run the first command that a remedy names, and return what it printed.

        `stands_for` says what a reader writes for the words in capitals.
        """
        found = re.search(r"`trueline ([^`]*)`", remedy) or re.search(r"\btrueline ([^,;`]*)", remedy)
        assert found, f"no command in {remedy!r}"
        words = [stands_for.get(word, word) for word in shlex.split(found[1])]
        return self.done(*words, *then, at=at)


def piece(remedy: str, pattern: str) -> str:
    """Return the part of a remedy that matches, so that a story does what the text says and nothing else."""
    found = re.search(pattern, remedy)
    assert found, f"nothing in {remedy!r} reads like {pattern}"
    return found[1] if found.re.groups else found[0]


def keywords(remedy: str, pattern: str, **names: Any) -> dict[str, Any]:
    """Return the keyword arguments that a part of a remedy writes out."""
    given = eval(f"dict({piece(remedy, pattern)})", {"tl": tl, "trueline": tl, **names})
    assert isinstance(given, dict)
    return given


def done(text: str, **names: Any) -> Any:
    """Evaluate an expression that a remedy writes out."""
    return eval(text, {"tl": tl, "trueline": tl, **names})
