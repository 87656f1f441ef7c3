"""The commands, and how they are run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from trueline import console as consoles
from trueline.cli.arguments import QuickCommand, QuickGroup
from trueline.cli.session import (
    FAILED,
    INTERRUPTED,
    MISUSE,
    TRACEBACK,
    Directory,
    Given,
    Json,
    Options,
    examples,
    session,
    tell,
)
from trueline.errors import OutOfMemory, check_memory

# Where each command is. A command line names one, and only its module is loaded: all of them cost 50 ms.
COMMANDS = {
    "init": "create:init",
    "create": "create:create",
    "derive": "derive:derive",
    "ingest": "ingest:ingest",
    "pull": "pull:pull",
    "plan": "pull:plan",
    "list": "inspect:list_",
    "status": "inspect:status",
    "log": "inspect:log",
    "schema": "inspect:schema",
    "show": "read:show",
    "sql": "read:sql",
    "snapshot": "read:snapshot",
    "diff": "read:diff",
    "lineage": "pull:lineage",
    "export": "read:export",
    "verify": "maintain:verify",
    "gc": "maintain:gc",
    "revert": "maintain:revert",
    "reset": "derive:reset",
    "tag": "lifecycle:tag",
    "rename": "lifecycle:rename",
    "compact": "lifecycle:compact",
    "delete": "lifecycle:delete",
    "hide-column": "lifecycle:hide_column",
    "show-column": "lifecycle:show_column",
    "drop-data": "transfer:drop_data",
    "push": "transfer:push",
    "clone": "transfer:clone",
    "run": "runs:run",
    "flow": "flows:flow",
    "doctor": "maintain:doctor",
    "demo": "app:demo",
    "config": "create:config",
}


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with some of the commands, by default all."""
    from importlib import import_module

    app = typer.Typer(
        name="trueline",
        help="Tables on Spark that can say how every number was made.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        cls=QuickGroup,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(before)
    for name in names:
        module, attribute = COMMANDS[name].split(":")
        found = getattr(import_module(f"trueline.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, cls=QuickCommand)(found)
    return app


def named(words: Sequence[str]) -> Iterable[str]:
    """Return the one command that words name, or all where they name none.

    >>> named(["-C", "log", "status", "--json"])
    ('status',)
    """
    waiting = iter(words)
    for word in waiting:
        if word in ("-C", "--directory", "--option"):
            next(waiting, None)
        elif not word.startswith("-"):
            return (word,) if word in COMMANDS else COMMANDS
    return COMMANDS


@examples(
    "trueline init shop",
    "trueline -C shop create sales --event-time day",
    "trueline -C shop log sales --json",
)
def before(
    context: typer.Context,
    directory: Directory = None,
    json: Json = False,
    option: Options = None,
    version: Annotated[  # noqa: ARG001 (`run` answers it; here it is for the help)
        bool, typer.Option("--version", help="Show the version and stop.")
    ] = False,
) -> None:
    """Tables on Spark that can say how every number was made.

    -C and --json may come before or after the command, an --option for the
    object store of a workspace before it.
    """
    context.obj = Given(directory, json, tuple(option or ()))


@examples(
    "trueline demo",
    "trueline demo --keep shop",
)
def demo(
    context: typer.Context,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="DIR", help="Run it in this new folder and keep the folder."),
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show what a workspace does, in a few seconds.

    It makes a workspace in a temporary folder, on data made up for it.
    """
    with session(context, directory, json) as here:
        from trueline.cli.demo import tell_story

        tell_story(here.console, keep)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--version" in words:
        return _version("--json" in words)
    console: consoles.Console = consoles.JsonConsole() if "--json" in words else consoles.TerminalConsole()
    try:
        app = application(named(words))
        code: Any = app(words, prog_name="trueline", standalone_mode=False)
    except KeyboardInterrupt:
        return _interrupted(console, whole=arguments is None)
    except Exception as error:
        if os.environ.get(TRACEBACK) == "1":
            raise
        if type(error).__name__ == "Abort":
            return _interrupted(console, whole=arguments is None)
        return _unexpected(console, error)
    # Versions of typer differ in what they make of a Ctrl-C.
    if code == INTERRUPTED:
        return _interrupted(console, whole=arguments is None)
    return code if isinstance(code, int) else 0


def _version(as_json: bool) -> int:
    import trueline

    console: consoles.Console = consoles.JsonConsole() if as_json else consoles.TerminalConsole()
    console.answer(
        {"version": trueline.__version__}, lambda shown: shown.say(f"trueline {trueline.__version__}")
    )
    return 0


def _interrupted(console: consoles.Console, *, whole: bool) -> int:
    """Say so in one line; where the command is the whole process, nothing else is said until it ends."""
    if whole:
        import logging
        import signal
        import threading

        # Threads and the connection to Java would report that they were broken off, and a
        # second Ctrl-C would break off the stopping of Spark with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        logging.disable(logging.CRITICAL)
        threading.excepthook = lambda _: None
        sys.unraisablehook = lambda _: None
    if isinstance(console, consoles.JsonConsole):
        tell(console, "Interrupted", "interrupted", "run it again", {})
    elif isinstance(console, consoles.TerminalConsole):
        consoles.TerminalConsole(out=console.err).say("interrupted")
    return INTERRUPTED


def _unexpected(console: consoles.Console, error: Exception) -> int:
    # The errors of typer's command-line parser; where they come from depends on its version.
    message = getattr(error, "format_message", None)
    if type(error).__name__ == "NoArgsIsHelpError" and isinstance(console, consoles.TerminalConsole):
        consoles.TerminalConsole(out=console.err).say(str(error))
        return MISUSE
    if message is not None:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "trueline"
        tell(console, "Usage", message(), f"{path} --help shows what is possible", {})
        return MISUSE
    try:
        check_memory(error, "running the command")
    except OutOfMemory as lacking:
        tell(console, lacking.code, lacking.problem, lacking.remedy, {})
        return FAILED
    tell(
        console,
        "Unexpected",
        f"{type(error).__name__}: {error}",
        f"this should not happen: please report it, with what {TRACEBACK}=1 shows",
        {},
    )
    return FAILED
