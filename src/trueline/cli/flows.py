"""Flows on the command line: a test of a flow, run under every schedule."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueline.cli.arguments import QuickCommand
from trueline.cli.session import FAILED, NO, Directory, Json, command_group, examples, session
from trueline.errors import Counterexample, InputError, TruelineError

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.flow import Exploration, Flow

PREFIX = "simulate_"

flow = command_group("flow", "Show and test flows.")


@flow.command("simulate", cls=QuickCommand)
@examples(
    "trueline flow simulate counter:flow",
    "trueline flow simulate counter.py:flow --body simulate_reads --mode deviations",
    'trueline flow simulate counter:flow --body simulate_reads --replay "0 1"',
)
def simulate(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:FLOW", help="A flow, or a function that makes one.")
    ],
    *,
    body: Annotated[
        str | None,
        typer.Option("--body", metavar="NAME", help=f"The test body (default: each {PREFIX}… there)."),
    ] = None,
    mode: Annotated[str, typer.Option("--mode", help="exhaustive, deviations or fuzz.")] = "exhaustive",
    replay: Annotated[
        str | None, typer.Option("--replay", metavar="LINE", help="Run one schedule: the line of a failure.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max-executions", metavar="N", help="Stop after so many.")
    ] = None,
    deviations: Annotated[
        int | None, typer.Option("--max-deviations", metavar="N", help="In mode deviations (default: 3).")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="In mode fuzz.")] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Draw a failure as a sequence diagram.")
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Run a test of a flow under every schedule.

    The body is a function of the simulation: it sends, reads and asserts.
    Exit code 1 if a schedule breaks it, 4 if the search had to stop early.
    """
    with session(context, directory, json) as here:
        module, found = _flow(target)
        options: dict[str, Any] = {"mode": mode, "replay": replay, "max_executions": most, "seed": seed}
        if deviations is not None:
            options["max_deviations"] = deviations
        explored: dict[str, Exploration] = {}
        for name, function in _bodies(module, body).items():
            try:
                explored[name] = _explored(found, function, options)
            except Counterexample as error:
                _failed(here.console, name, error, svg)
                raise typer.Exit(NO) from None
        _passed(here.console, explored)
        if any(each.stopped.startswith("stopped") for each in explored.values()):
            raise typer.Exit(FAILED)


def _explored(found: Flow, body: Callable[..., object], options: dict[str, Any]) -> Exploration:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a search stopped early is in what it answers
        return found.simulate(body, **options)


def _passed(console: Console, explored: dict[str, Exploration]) -> None:
    def render(shown: Console) -> None:
        for name, each in explored.items():
            shown.say(f"{name}: {each}", "good" if each.exhaustive else "plain")

    keys = ("mode", "executions", "states", "exhaustive", "pruned", "discarded", "stopped")
    bodies = {name: {key: getattr(each, key) for key in keys} for name, each in explored.items()}
    console.answer({"ok": True, "bodies": bodies}, render)


def _failed(console: Console, name: str, error: Counterexample, svg: str | None) -> None:
    if svg is not None:
        Path(svg).write_text(error.trace.svg(), encoding="utf-8")

    def render(shown: Console) -> None:
        shown.say(f"{name} fails", "bad")
        shown.say(str(error))
        if svg is not None:
            shown.say(f"drawn in {svg}", "faint")

    document = {
        "ok": False,
        "body": name,
        "choices": list(error.choices),
        "trace": error.trace.text(),
        "svg": svg,
    }
    console.answer(document, render)


# --- finding what is named --------------------------------------------------------------


def _flow(target: str) -> tuple[ModuleType, Flow]:
    from trueline.flow import Flow

    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InputError(f"{target!r} does not name a flow", remedy="write MODULE:FLOW, such as counter:flow")
    module = _module(place)
    made = getattr(module, name, None)
    if callable(made) and _needs_nothing(made):
        with _blaming(f"{target} cannot be made"):
            made = made()
    if not isinstance(made, Flow):
        raise InputError(
            f"{place} has no flow {name!r}", remedy="name a Flow, or a function that returns one"
        )
    return module, made


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function can be called without arguments."""
    try:
        signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _module(place: str) -> ModuleType:
    """Import a module by name, from the folder one is in too, or a file by its path."""
    if place.endswith(".py"):
        path = Path(place)
        spec = spec_from_file_location(path.stem, path) if path.is_file() else None
        if spec is None or spec.loader is None:
            raise InputError(f"there is no file {place}", remedy="name a Python file, or a module")
        module = sys.modules[path.stem] = module_from_spec(spec)
        with _blaming(f"{place} cannot be imported"):
            spec.loader.exec_module(module)
        return module
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    parts = place.split(".")
    if not all(part.isidentifier() for part in parts):
        raise InputError(
            f"{place!r} is not the name of a module",
            remedy="write it as in `import`, or give the path of its file",
        )
    with _blaming(f"{place} cannot be imported"):
        try:
            return import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise InputError(
                f"there is no module {place!r}",
                remedy="run it in the folder of the module, or give the path of its file",
            ) from None


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    """Say of code that is not ours that it failed, and where."""
    try:
        yield
    except TruelineError:
        raise
    except (Exception, SystemExit) as error:
        frames = [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)
        at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
        raise InputError(
            f"{what}: {type(error).__name__}: {error}{at}", remedy="fix it, then run this again"
        ) from error


def _bodies(module: ModuleType, name: str | None) -> dict[str, Callable[..., object]]:
    if name is not None:
        found = getattr(module, name, None)
        if not callable(found):
            raise InputError(f"{module.__name__} has no test body {name!r}", remedy="name a function of it")
        return {name: found}
    bodies = {key: value for key, value in vars(module).items() if key.startswith(PREFIX) and callable(value)}
    if not bodies:
        raise InputError(
            f"{module.__name__} has no function whose name begins with {PREFIX}",
            remedy="write one that takes the simulation, or name one with --body",
        )
    return bodies
