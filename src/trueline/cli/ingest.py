"""Commands that put data in: ingest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trueline.cli.runs import Timeline, Trace, watched
from trueline.cli.session import Directory, Json, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.workspace import Commit
    from trueline.workspace.preparing import Step

_FORMATS = ("arrow", "csv", "json", "parquet", "text")

Format = Annotated[
    str | None,
    typer.Option("--format", help="csv, json, parquet, arrow or text (default: by the extension)."),
]
Separator = Annotated[
    str | None,
    typer.Option("--separator", "--delimiter", help="The separator between the cells of a CSV."),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="The encoding of text files (default: utf-8).")
]
AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Let a snapshot without rows delete every row.")
]
Resend = Annotated[
    bool,
    typer.Option("--resend", help="Ingest changed files again: names that were ingested with other bytes."),
]
NewColumns = Annotated[
    str | None,
    typer.Option(
        "--new-columns",
        metavar="POLICY",
        help="Columns that the dataset does not have: error, add or ignore.",
    ),
]
SkipLines = Annotated[
    int | None, typer.Option("--skip-lines", metavar="N", min=0, help="Lines of a CSV before its header.")
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="The first line of a CSV is data, not a header.")]
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--nulls", metavar="TEXT", help="A spelling of null besides an empty cell; may be repeated."
    ),
]
DateFormat = Annotated[
    str | None, typer.Option("--date-format", metavar="FORMAT", help="How dates are written: %d.%m.%Y.")
]
TimestampFormat = Annotated[
    str | None,
    typer.Option(
        "--timestamp-format", metavar="FORMAT", help="How dates with a time are written: %d.%m.%Y %H:%M."
    ),
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", metavar="MARK", help="The decimal mark of numbers: . or ,")
]
Types = Annotated[
    list[str] | None,
    typer.Option("--types", metavar="COLUMN=TYPE", help="The type of a column; may be repeated."),
]
Member = Annotated[
    str | None, typer.Option("--member", metavar="NAME", help="The member of a zip archive to read.")
]
MaxBad = Annotated[
    float | None,
    typer.Option("--max-bad", help="Refuse more bad cells: a number, or below 1 a share of the rows."),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option("--idempotency-key", help="An idempotency key: the same key again finds the first commit."),
]


@examples(
    "trueline ingest sales inbox/*.csv",
    'trueline ingest sales export.txt --format csv --delimiter ";" --encoding latin-1',
    "trueline ingest sales inbox/*.csv --nulls NA --nulls - --date-format %d.%m.%Y --decimal ,",
    "trueline ingest sales inbox/*.csv --types zip=text --types 'price=decimal(10, 2)'",
    "trueline ingest sales inbox/b.csv --resend",
    "trueline ingest sales inbox/c.csv --new-columns add",
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
    skip_lines: SkipLines = None,
    nulls: Nulls = None,
    date_format: DateFormat = None,
    timestamp_format: TimestampFormat = None,
    decimal: Decimal = None,
    types: Types = None,
    member: Member = None,
    max_bad: MaxBad = None,
    resend: Resend = False,
    allow_empty: AllowEmpty = False,
    new_columns: NewColumns = None,
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
    key: IdempotencyKey = None,
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
        said: dict[str, Any] = {"separator": separator, "encoding": encoding, "skip_lines": skip_lines}
        said |= {"header": False if no_header else None}
        said |= {"date_format": date_format, "timestamp_format": timestamp_format}
        said |= {"decimal": decimal, "member": member}
        reader = chosen_reader(format_, reader_options(said, nulls, types), files)
        with watched(f"ingest {name}", timeline, trace):
            commit = workspace[name].append(
                files,
                reader,
                steps,
                max_bad=max_bad,
                idempotency_key=key,
                watermark=watermark,
                resend=resend,
                allow_empty=allow_empty,
                new_columns=cast("Any", new_columns),
            )
        _show(here.console, name, commit)


def _show(console: Console, name: str, commit: Commit) -> None:
    """Show what was added, and what is to be looked at; bad cells are in the answer."""
    console.answer(
        commit.to_dict(),
        lambda shown: shown.say(f"{name}  {commit.told}", "good" if commit.rows else "plain"),
    )
    for each in commit.advice:
        if each.code != "BadCells":
            console.warn(each.problem, remedy=each.in_shell or each.remedy, code=each.code)
    for path, reason in commit.left_out.items():
        console.warn(f"{path} was left out: {reason}", remedy="fix it and ingest it again")


def chosen_steps(names: Sequence[str], on_error: str) -> list[Step]:
    """Return the steps that were asked for; none if files are ingested as they are."""
    from trueline.workspace.preparing import load_steps

    return load_steps(names, on_error)


def reader_options(
    given: Mapping[str, Any], nulls: Sequence[str] | None, types: Sequence[str] | None
) -> dict[str, Any]:
    """Return the options of a reader that were given."""
    options = {name: value for name, value in given.items() if value is not None}
    if options.get("separator") in ("\\t", "tab"):
        options["separator"] = "\t"
    if nulls:
        options["nulls"] = ("", *nulls)
    if types:
        options["types"] = dict(_typed(each) for each in types)
    return options


def _typed(given: str) -> tuple[str, str]:
    name, sign, kind = given.rpartition("=")
    if not sign or not name or not kind:
        raise InputError(
            f"--types {given!r} is not of the form column=type", remedy="write --types column=type"
        )
    return name, kind


def chosen_reader(format_: str | None, options: dict[str, Any], files: Sequence[str]) -> Any:
    """Return the reader that was asked for, None if the extension of the names decides alone."""
    if format_ is None and not options:
        return None
    if format_ is not None and format_ not in _FORMATS:
        raise InputError(f"there is no format {format_!r}", remedy=f"give one of {', '.join(_FORMATS)}")
    import trueline

    names = [options["member"]] if "member" in options else files  # the name of an archive says less
    known = [] if format_ is not None else [each for each in names if trueline.readers.is_known_by_name(each)]
    usual = getattr(trueline, format_ or "csv")()
    if known:
        usual = trueline.readers.reader_for([trueline.readers.Source.memory(b"", each) for each in known])
    try:
        return replace(usual, **options)
    except TypeError:
        lacks = [name for name in options if name not in usual.options]
        shown = ", ".join(_option(name) for name in lacks)
        raise InputError(f"{shown} does not apply to {usual.kind} files", remedy="leave it out") from None


def _option(name: str) -> str:
    return "--no-header" if name == "header" else f"--{name.replace('_', '-')}"
