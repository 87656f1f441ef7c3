"""What every command has: the workspace it is about, a console, and one way to fail."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from trueline import console as consoles
from trueline.cli.arguments import QuickGroup
from trueline.credentials import is_secret_name, masked_text
from trueline.errors import (
    CheckFailed,
    CorruptionError,
    DataWarning,
    EnvironmentMissing,
    InputError,
    PullError,
    TruelineError,
)

if TYPE_CHECKING:
    from trueline.workspace import Workspace

VARIABLE: Final = "TRUELINE_WORKSPACE"
TRACEBACK: Final = "TRUELINE_TRACEBACK"
_FROM_ENVIRONMENT: Final = "env:"
_OPTION_BYTES: Final = 1 << 16
NO, MISUSE, MISSING, FAILED, INTERRUPTED = 1, 2, 3, 4, 130

Command = TypeVar("Command", bound=Callable[..., None])

Directory = Annotated[
    str | None,
    typer.Option(
        "-C", metavar="DIR", help=f"The workspace: a folder or URL (default: ${VARIABLE}, or from here up)."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="An option of the object store, as in endpoint=https://host:9000; secrets as KEY=@FILE or "
        "KEY=env:NAME. May be repeated.",
    ),
]
ExpectedHead = Annotated[
    str | None,
    typer.Option(
        "--expected-head", metavar="HASH", help="A head you recorded elsewhere; it has to be in the chain."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def examples(*lines: str) -> Callable[[Command], Command]:
    """Add examples to a command's help, each on a line of its own."""

    def add(command: Command) -> Command:
        # \\b keeps the help from rewrapping what follows.
        shown = "".join(f"\n      {line}" for line in lines)
        command.__doc__ = f"{command.__doc__}\n\n    \b\n    Examples:{shown}"
        return command

    return add


@dataclass(frozen=True, slots=True)
class Given:
    """What was said before the verb."""

    directory: str | None = None
    json: bool = False
    options: tuple[str, ...] = ()

    def with_own(self, directory: str | None, json: bool) -> Given:
        """Return it with what was said after a verb that has verbs of its own."""
        return Given(directory if directory is not None else self.directory, json or self.json, self.options)


def command_group(name: str, about: str, alone: Callable[[typer.Context], None] | None = None) -> typer.Typer:
    """Return a verb that has verbs of its own; -C and --json may come before or after it.

    `alone` is what it does without one of them; otherwise it shows its help.
    """

    def before_verb(context: typer.Context, directory: Directory = None, json: Json = False) -> None:
        given = context.obj if isinstance(context.obj, Given) else Given()
        context.obj = given.with_own(directory, json)
        if alone is not None and context.invoked_subcommand is None:
            alone(context)

    return typer.Typer(
        name=name,
        help=about,
        no_args_is_help=alone is None,
        invoke_without_command=alone is not None,
        rich_markup_mode=None,
        cls=QuickGroup,
        callback=before_verb,
    )


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command."""

    console: consoles.Console
    directory: str | None
    given: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """What was said for the object store of the workspace."""
        return store_options(self.given)

    @property
    def is_json(self) -> bool:
        """Whether the answer is for a program."""
        return isinstance(self.console, consoles.JsonConsole)

    @property
    def place(self) -> str:
        """Where the command is to work, workspace or not."""
        return self.directory or os.environ.get(VARIABLE) or "."

    @property
    def found(self) -> str:
        """The workspace of the command: the one named, or the nearest from here upwards."""
        return nearest(self.place, named=bool(self.directory or os.environ.get(VARIABLE)))

    @contextmanager
    def workspace(self, *, trusted_sql: bool = False) -> Iterator[Workspace]:
        """Open the workspace: the one named, or the nearest from here upwards."""
        import trueline

        with trueline.open(self.found, trusted_sql=trusted_sql, **self.options) as workspace:
            yield workspace


def store_options(given: Sequence[str]) -> dict[str, Any]:
    """Return options of an object store from what was given as KEY=VALUE; an error shows no value.

    A value `@FILE` is what a file holds, `env:NAME` what the environment does:
    arguments are visible to every user of the machine. `@@x` is the text `@x`.

    >>> store_options(["region=here", "client_options.allow_http=true"])
    {'region': 'here', 'client_options': {'allow_http': 'true'}}
    """
    if not given:
        return {}
    from trueline.workspace.locations import provider_options

    pairs = [text.partition("=") for text in given]
    if not all(equals and name for name, equals, _ in pairs):
        raise InputError(
            "an --option is not of the form KEY=VALUE", remedy="write it like --option region=eu-1"
        )
    bare = sorted({name for name, _, value in pairs if is_secret_name(name) and not _is_elsewhere(value)})
    if bare:
        consoles.current().warn(
            f"others on this machine can see what was given as --option {', '.join(bare)}",
            remedy=f"write --option {bare[0]}=@FILE or --option {bare[0]}=env:NAME",
            code="SecretVisible",
        )
    return provider_options((name, _option_value(name, value)) for name, _, value in pairs)


def _is_elsewhere(value: str) -> bool:
    return value.startswith(_FROM_ENVIRONMENT) or (value.startswith("@") and not value.startswith("@@"))


def _option_value(name: str, given: str) -> str:
    """Return the value of an option, from the file or variable that it names."""
    if given.startswith(_FROM_ENVIRONMENT):
        found = os.environ.get(given.removeprefix(_FROM_ENVIRONMENT))
        if found is None:
            raise InputError(
                f"--option {name}: the variable {given.removeprefix(_FROM_ENVIRONMENT)!r} is not set",
                remedy="export it, or name another variable",
                code="BadOption",
            )
        return found
    if given.startswith("@@"):
        return given[1:]
    return _option_file(name, given[1:]) if given.startswith("@") else given


def _option_file(name: str, path: str) -> str:
    """Read an option from a file (a pipe is one, too), without the end of its line."""
    try:
        with Path(path).expanduser().open("rb") as file:
            raw = file.read(_OPTION_BYTES + 1)
        text = raw.decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(
            f"--option {name}: cannot read {path!r}: {why}", remedy="check the file", code="BadOption"
        ) from None
    if len(raw) > _OPTION_BYTES:
        raise InputError(
            f"--option {name}: {path!r} has more than {_OPTION_BYTES:,} bytes",
            remedy="give a file with nothing but the value",
            code="BadOption",
        )
    return text.removesuffix("\n").removesuffix("\r")


def nearest(place: str, *, named: bool = True) -> str:
    """Return the folder of the workspace that holds a folder; the folder itself if there is none.

    A folder that was not `named`, and one above, must be this user's own.
    """
    if "://" in place:
        return place
    here = Path(place).expanduser().absolute()
    for folder in (here, *here.parents):
        if os.path.isfile(folder / "trueline.toml"):  # noqa: PTH113 (False where we may not look)
            if not named or folder != here:
                from trueline.workspace.user_config import UserConfig

                UserConfig().check_owner(folder)
            return str(folder)
    return place


@contextmanager
def session(context: typer.Context, directory: str | None, json: bool) -> Iterator[Session]:
    """Run a command: errors become a message with its remedy, and an exit code."""
    given = context.obj if isinstance(context.obj, Given) else Given()
    as_json = json or given.json
    console: consoles.Console = consoles.JsonConsole() if as_json else consoles.TerminalConsole()
    with consoles.use(console), failing(console), warnings.catch_warnings():
        # What is to be looked at is part of the answer.
        warnings.simplefilter("ignore", DataWarning)
        yield Session(console, directory if directory is not None else given.directory, given.options)


@contextmanager
def failing(console: consoles.Console) -> Iterator[None]:
    """Turn errors into exit codes."""
    try:
        yield
    except TruelineError as error:
        _unless_traced()
        tell(console, error.code, error.problem, error.in_shell or error.remedy, error.fields)
        raise typer.Exit(exit_code(error)) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _hang_up()
            raise typer.Exit(0) from None
        _unless_traced()
        tell(console, type(error).__name__, str(error), "fix the cause, then try again", {})
        raise typer.Exit(FAILED) from None


def exit_code(error: TruelineError) -> int:
    """Return the exit code of an error: its kind decides.

    Of several causes, those that trying again cannot fix come first.
    """
    if isinstance(error, PullError):
        causes = {exit_code(cause) for cause in error.report.errors.values()}
        return next((code for code in (NO, MISSING, MISUSE) if code in causes), FAILED)
    if isinstance(error, EnvironmentMissing):
        return MISSING
    if isinstance(error, InputError) and not isinstance(error, CheckFailed):
        return MISUSE
    return NO if isinstance(error, CorruptionError | CheckFailed) else FAILED


def tell(console: consoles.Console, code: str, problem: str, remedy: str, fields: Any) -> None:
    """Show an error on stderr: to programs as one JSON document, to people with what to do."""
    problem, remedy = masked_text(problem), masked_text(remedy)
    if isinstance(console, consoles.JsonConsole):
        from trueline.console.items import as_json, plain

        told = {"code": code, "message": problem, "remedy": remedy, **plain(fields)}
        console.err.write(as_json({"error": told}) + "\n")
    else:
        console.show(consoles.Notice("error", problem, remedy, code))


def _unless_traced() -> None:
    """Let the error go on with its traceback if that was asked for."""
    if os.environ.get(TRACEBACK) == "1":
        raise  # noqa: PLE0704 (called while an error is handled)


def _hang_up() -> None:
    """The reader of the output is gone (`trueline log | head`): write nothing more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
