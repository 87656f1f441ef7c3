"""Tables of remedies: what is refused and what its remedy says, as they are typed.

A file of `tables/` has, without indentation, a module below `trueline`; below it the text of a remedy as the
code has it; below that lines with `-`, which are refused with this remedy, then lines with `+`, which do
what it says and work. Lines with `+` know the text as `remedy`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import trueline as tl
from tests.remedies.collect import Remedy
from tests.remedies.story import STORIES, Scene, Story, piece
from trueline.errors import TruelineError

TABLES = Path(__file__).with_name("tables")


@dataclass(frozen=True)
class Case:
    """One remedy: what is refused with it, and what it says."""

    remedy: Remedy
    wrong: str
    right: str

    def play(self, scene: Scene, names: Mapping[str, Any]) -> None:
        """Type both in the same place."""
        there = dict(names)
        said = scene.refused(partial(exec, self.wrong, there))
        assert self.remedy.pattern.fullmatch(said), f"another remedy: {said!r}"
        exec(self.right, there | {"remedy": said})


def table(name: str, setting: Callable[[Scene], Mapping[str, Any]], module: str) -> None:
    """Register one story for all cases of a file, which share a workspace."""
    cases = list(read(TABLES / f"{name}.txt"))

    def tell(scene: Scene) -> None:
        names = {**common(scene), **setting(scene)}
        for case in cases:
            try:
                case.play(scene, names)
            except Exception as error:
                where = f"{name}.txt, {case.remedy.module}: {case.remedy.text}"
                raise AssertionError(f"{where}\n{type(error).__name__}: {error}") from error

    tell.__name__, tell.__module__ = name, module
    STORIES.append(Story(tell, tuple(case.remedy for case in cases)))


def read(path: Path) -> Iterator[Case]:
    """Yield the cases of a file."""
    module = text = ""
    typed: dict[str, list[str]] = {"-": [], "+": []}

    def found() -> Iterator[Case]:
        if text:
            assert all(typed.values()), f"{path.name}: {text!r} lacks lines with - or +"
            yield Case(Remedy(module, text), "\n".join(typed["-"]), "\n".join(typed["+"]))

    for line in path.read_text("utf-8").splitlines():
        if line.startswith("        "):
            sign, code = line[8], line[10:]
            typed[sign].append(code)
        elif line.strip() and not line.startswith("#"):
            yield from found()
            typed = {"-": [], "+": []}
            is_text = line.startswith(" ")
            module, text = (module, line.strip().replace("\\n", "\n")) if is_text else (line.strip(), "")
    yield from found()


def common(scene: Scene) -> dict[str, Any]:
    """What every case can use: a workspace, new datasets in it, files beside it, the command line."""
    scene.ws.config.set("storage.durable", False)  # the cases take half as long
    numbers = count()

    def new(*rows: dict[str, Any], **options: Any) -> tl.Dataset:
        made = scene.ws.create(f"d{next(numbers)}", **options)
        if rows:
            made.append(list(rows))
        return made

    def cli(line: str) -> Any:
        ran = scene.run(*shlex.split(line), "--json")
        if ran.code:
            said = json.loads(ran.err)["error"]
            raise TruelineError(said["message"], remedy=said["remedy"], code=said["code"])
        return json.loads(ran.out) if ran.out else None

    def file(name: str, content: str | bytes) -> str:
        return str(scene.file(name, content))

    # Classes that a case defines are of some module.
    names = {"__name__": __name__, "tl": tl, "pa": pa, "View": tl.View, "scene": scene, "ws": scene.ws}
    return names | {"new": new, "cli": cli, "file": file, "folder": str(scene.folder), "piece": piece}
