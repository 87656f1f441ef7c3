"""Runs on the command line: their journals, and how those of other commands are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueline import console as consoles
from trueline.cli.arguments import QuickCommand
from trueline.cli.session import Directory, Json, command_group, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.run import Journal

Timeline = Annotated[
    str | None, typer.Option("--timeline", metavar="FILE", help="Draw what ran when, as SVG.")
]
Trace = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="Write what ran when, as a trace for Chrome or Perfetto."),
]

run = command_group("run", "Show the journals of runs.")


@contextmanager
def watched(label: str, timeline: str | None, trace: str | None) -> Iterator[None]:
    """Show how far the runs inside the block are, and write down when what ran, also where they fail."""
    from trueline.run import Display, Recording, watching

    wanted = [Path(file) for file in (timeline, trace) if file is not None]
    for path in wanted:
        if not path.parent.is_dir():
            raise InputError(
                f"there is no folder {path.parent}", remedy=f"create it, or choose another path than {path}"
            )
    recording = Recording()
    try:
        with watching(Display(label), *([recording] if wanted else [])):
            yield
    finally:
        try:
            if timeline is not None:
                recording.write_timeline(timeline, label)
            if trace is not None:
                recording.write_trace(trace)
        except OSError as error:
            problem = f"{error.filename} was not written: {error.strerror}"
            consoles.current().warn(problem, remedy="everything else was done; choose another file")


@run.command("show", cls=QuickCommand)
@examples(
    "trueline run show prepare.journal",
    "trueline run show prepare.journal --json",
)
def show(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="The journal of a run.")],
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show the runs in a journal: what each step finished, and how much of it changed a value.

    A run that did not end continues when it is started again with the same
    journal.
    """
    with session(context, directory, json) as here:
        from trueline.run import Journal

        if not Path(file).is_file():
            raise InputError(f"there is no file {file}", remedy="name the journal of a run")
        journal = Journal(file).read()
        if not journal.sessions:
            raise InputError(
                f"{file} is not the journal of a run",
                remedy="give the file that the run was given as journal",
            )
        here.console.answer(_document(journal), lambda shown: _tell(shown, journal))


def _document(journal: Journal) -> dict[str, Any]:
    runs = [
        {
            "run": each.run,
            "at": each.at,
            "ended": each.ended,
            "steps": [
                {"name": name, "finished": finished, "changed": changed}
                for name, finished, changed in zip(each.steps, each.finished, each.changed, strict=True)
            ],
        }
        for each in journal.sessions
    ]
    return {"path": str(journal.path), "runs": runs}


def _tell(console: Console, journal: Journal) -> None:
    for each in journal.sessions:
        rows = zip(each.steps, each.finished, each.changed, strict=True)
        how = "ended" if each.ended else "did not end"
        console.table(["step", "finished", "changed"], rows, title=f"run {each.run}, begun {each.at}, {how}")
