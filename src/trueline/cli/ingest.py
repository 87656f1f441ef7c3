"""Commands that put data in: ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueline.cli.runs import Timeline, Trace, watched
from trueline.cli.session import Directory, Json, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.workspace.preparing import Step

_FORMATS = ("csv", "json", "parquet", "text")

Format = Annotated[
    str | None, typer.Option("--format", help="csv, json, parquet or text (default: by the extension).")
]
Separator = Annotated[
    str | None, typer.Option("--separator", help="The separator between the cells of a CSV.")
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="The encoding of text files (default: utf-8).")
]
AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Let a snapshot without rows delete every row.")
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="The first line of a CSV is data, not a header.")]


@examples(
    "trueline ingest sales inbox/*.csv",
    'trueline ingest sales export.txt --format csv --separator ";" --encoding latin-1',
    "trueline ingest sales inbox/b.csv --resend",
    "trueline ingest sales inbox/*.csv --step cleaning:trimmed --step cleaning:masked --on-error skip_key",
    "trueline ingest sales inbox/*.csv --step cleaning:trimmed --timeline ingest.svg",
)
def ingest(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    files: Annotated[list[str], typer.Argument(help="Files or patterns; read in sorted order per pattern.")],
    *,
    format_: Format = None,
    separator: Separator = None,
    encoding: Encoding = None,
    no_header: NoHeader = False,
    max_bad: Annotated[
        float | None,
        typer.Option("--max-bad", help="Refuse more bad cells: a number, or below 1 a share of the rows."),
    ] = None,
    resend: Annotated[
        bool,
        typer.Option(
            "--resend", help="Ingest changed files again: names that were ingested with other bytes."
        ),
    ] = False,
    allow_empty: AllowEmpty = False,
    watermark: Annotated[
        str | None,
        typer.Option(
            "--watermark", metavar="TIME", help="The event time before which no more rows are expected."
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            "--step",
            metavar="MODULE:NAME",
            help="Prepare the rows of each file by this step, or list of steps; may be given several times.",
        ),
    ] = None,
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error",
            metavar="POLICY",
            help="A file that cannot be read: fail_run refuses all, skip_key leaves it out.",
        ),
    ] = "fail_run",
    key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", help="An idempotency key: the same key again finds the first commit."
        ),
    ] = None,
    timeline: Timeline = None,
    trace: Trace = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Add the rows of files to a dataset, as one commit.

    Files whose bytes were ingested before are skipped. Cells that cannot
    be read are null and counted. Steps are Python: a trueline.run.Step, or
    a function of a file's path and its table; modules of the current folder are found.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        steps = chosen_steps(step or (), on_error)
        if not steps and (timeline or trace):
            raise InputError("--timeline and --trace need steps", remedy="give --step, or leave them out")
        with watched(f"ingest {name}", timeline, trace):
            commit = workspace[name].append(
                files,
                chosen_reader(format_, reader_options(separator, encoding, no_header)),
                steps,
                max_bad=max_bad,
                idempotency_key=key,
                watermark=watermark,
                resend=resend,
                allow_empty=allow_empty,
            )
        here.console.answer(
            commit.to_dict(),
            lambda shown: shown.say(f"{name}  {commit.told}", "good" if commit.rows else "plain"),
        )
        for path, reason in commit.left_out.items():
            here.console.warn(f"{path} was left out: {reason}", remedy="fix it and ingest it again")


def chosen_steps(names: Sequence[str], on_error: str) -> list[Step]:
    """Return the steps that were asked for; none if files are ingested as they are."""
    from trueline.workspace.preparing import load_steps

    return load_steps(names, on_error)


def reader_options(separator: str | None, encoding: str | None, no_header: bool) -> dict[str, Any]:
    """Return the options of a reader that were given."""
    options: dict[str, Any] = {}
    if separator is not None:
        options["separator"] = "\t" if separator in ("\\t", "tab") else separator
    if encoding is not None:
        options["encoding"] = encoding
    if no_header:
        options["header"] = False
    return options


def chosen_reader(format_: str | None, options: dict[str, Any]) -> Any:
    """Return the reader that was asked for, None if the extension of the names decides."""
    if format_ is None and not options:
        return None
    if format_ is not None and format_ not in _FORMATS:
        raise InputError(f"there is no format {format_!r}", remedy=f"give one of {', '.join(_FORMATS)}")
    import trueline

    kind = getattr(trueline, format_ or "csv")
    try:
        return kind(**options)
    except TypeError:
        shown = ", ".join(f"--{option.replace('_', '-')}" for option in options)
        raise InputError(f"{shown} does not apply to {format_} files", remedy="leave it out") from None
