"""Commands that put data in: ingest."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trueline.cli.session import Directory, Json, examples, session
from trueline.errors import InputError

_FORMATS = ("csv", "json", "parquet", "text")

Format = Annotated[
    str | None, typer.Option("--format", help="csv, json, parquet or text (default: by the ending).")
]
Separator = Annotated[str | None, typer.Option("--separator", help="Between the cells of a CSV.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Of text files (default: utf-8).")]
NoHeader = Annotated[bool, typer.Option("--no-header", help="The first line of a CSV is a row already.")]


@examples(
    "trueline ingest sales inbox/*.csv",
    'trueline ingest sales export.txt --format csv --separator ";" --encoding latin-1',
    "trueline ingest sales inbox/b.csv --resend",
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
        bool, typer.Option("--resend", help="Take in files whose names are known with other bytes.")
    ] = False,
    watermark: Annotated[
        str | None, typer.Option("--watermark", metavar="TIME", help="Nothing older is expected.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key again finds the first commit.")
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Add the rows of files to a dataset, as one commit.

    Files whose bytes were taken in before are passed over. Cells that cannot
    be read are missing and counted.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        commit = workspace[name].append(
            files,
            chosen_reader(format_, reader_options(separator, encoding, no_header)),
            max_bad=max_bad,
            idempotency_key=key,
            watermark=watermark,
            resend=resend,
        )
        here.console.answer(
            commit.to_dict(),
            lambda shown: shown.say(f"{name}  {commit.told}", "good" if commit.rows else "plain"),
        )


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
    """Return the reader that was asked for, None if the ending of the names decides."""
    if format_ is None and not options:
        return None
    if format_ is not None and format_ not in _FORMATS:
        raise InputError(f"no format {format_!r}", remedy=f"give one of {', '.join(_FORMATS)}")
    import trueline

    kind = getattr(trueline, format_ or "csv")
    try:
        return kind(**options)
    except TypeError:
        shown = ", ".join(f"--{option.replace('_', '-')}" for option in options)
        raise InputError(f"{shown} is not for {format_} files", remedy="leave it out") from None
