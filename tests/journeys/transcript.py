"""What a user types and what it prints, as one text: `$` lines go to a shell, `>>>` lines to Python.

In what is printed `…` stands for anything within a line, and alone on a line for any lines: hashes, times and
folders differ from run to run, everything else is compared. An error is shown as its class and message, a
warning too.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from trueline.cli import main

RUN = "import sys; from trueline.cli import main; sys.exit(main())"
QUOTED = re.compile(r"'[^']*'")
# What a shell makes something else of.
SPECIAL = re.compile(r"[*?\[\]|&;<>$`(){}~#!\\]")
PROMPT = re.compile(r"^(?=\$ |>>> )", re.MULTILINE)


def tidy(text: str) -> list[str]:
    """The lines without how wide gaps are, and without empty ones."""
    return [line for line in (" ".join(line.split()) for line in text.splitlines()) if line]


def prints(shown: str, printed: str) -> bool:
    """Whether a text is what a transcript shows.

    >>> (
    ...     prints("sales  …  3 rows", "sales  f1620ab  3 rows"),
    ...     prints("sales  …  3 rows", "sales  f1620ab  4 rows"),
    ... )
    (True, False)
    >>> prints("a\\n…\\nd", "a\\nb\\nc\\nd"), prints("a … d", "a\\nb\\nc\\nd"), prints("a", "a\\nb")
    (True, False, False)
    """
    lines = [
        "(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in tidy(shown)
    ]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in tidy(printed))) is not None


def entries(transcript: str) -> Iterator[tuple[str, str]]:
    """What is typed, with its prompt, and what is shown under it."""
    for entry in filter(str.strip, PROMPT.split(transcript.strip() + "\n")):
        first, *rest = entry.splitlines()
        more = next((n for n, line in enumerate(rest) if not line.startswith("...")), len(rest))
        yield "\n".join([first, *rest[:more]]), "\n".join(rest[more:])


class Desk:
    """Where a user sits: a folder, a shell in it, and a Python that remembers its names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, object] = {"__name__": "__main__"}
        commands = folder / ".commands"
        commands.mkdir()
        script = commands / "trueline"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{RUN}" "$@"\n')
        script.chmod(0o755)
        self.environment = os.environ | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}

    def write(self, name: str, text: str) -> None:
        """Put a file where the user finds it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def play(self, transcript: str) -> None:
        """Type every line, and compare what it prints."""
        for typed, shown in entries(transcript):
            printed = self.type(typed)
            assert prints(shown, printed), f"{typed}\nprints\n{printed}\nand not\n{shown}"

    def type(self, typed: str) -> str:
        """Type one entry; returns what it prints."""
        if typed.startswith("$ "):
            return self.shell(typed.removeprefix("$ "))
        return self.python("\n".join(line[4:] for line in typed.splitlines()) + "\n")

    def shell(self, line: str) -> str:
        """Run a line in a shell; the folder of a `cd` is that of the next line, too."""
        if line.startswith("cd "):
            self.folder = self.folder / line.removeprefix("cd ")
            return ""
        if line.startswith("trueline ") and not SPECIAL.search(QUOTED.sub("", line)):
            return self.command(shlex.split(line)[1:])
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.stdout + (f"[exit {done.returncode}]\n" if done.returncode else "")

    def command(self, words: list[str]) -> str:
        """Run a command of ours without a shell: a process of its own takes a second to start."""
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(words)
        return out.getvalue() + (f"[exit {code}]\n" if code else "")

    def python(self, source: str) -> str:
        """Run lines as at the prompt of Python."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda said, kind, *_: out.write(f"{kind.__name__}: {said}\n")
            try:
                exec(compile(source, "<stdin>", "single"), self.names)
            except Exception as error:  # noqa: BLE001
                out.write(f"{type(error).__name__}: {error}\n")
        return out.getvalue()
