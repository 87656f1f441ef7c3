"""Commands that follow sources and inputs: pull, plan, lineage."""

from __future__ import annotations

from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trueline.cli.ingest import AllowEmpty, NewColumns
from trueline.cli.session import Directory, Json, examples, exit_code, session, tell
from trueline.errors import InputError, PullError

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.workspace import PullReport

Selected = Annotated[
    list[str] | None,
    typer.Argument(
        help="Datasets (default: all); name+ with all that rests on it, +name with what it rests on.",
        metavar="NAME",
    ),
]


@examples(
    "trueline create sales --source 'inbox/*.csv' --lateness 2h",
    "trueline pull",
    "trueline pull sales --json",
    "trueline pull --confirm prices",
    "trueline pull balances+ --full-refresh",
    "trueline pull --watch",
)
def pull(
    context: typer.Context,
    names: Selected = None,
    *,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Go on until Ctrl-C, ever more rarely while nothing comes; --json prints lines.",
        ),
    ] = False,
    full_refresh: Annotated[
        bool,
        typer.Option("--full-refresh", help="Compute derived datasets again; record what differs."),
    ] = False,
    resend: Annotated[
        bool,
        typer.Option(
            "--resend", help="Ingest changed files again: names that were ingested with other bytes."
        ),
    ] = False,
    allow_empty: AllowEmpty = False,
    new_columns: NewColumns = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm", help="Poll the sources of these datasets although someone else declared them."
        ),
    ] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Read what is new in sources, bring clones and derived datasets up to date.

    What is named is pulled with all it rests on. What was read before is
    skipped. A dataset that fails stops only what rests on it; the exit code
    is then that of the cause, 4 if trying again may fix all of it.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        if confirm:
            if not names:
                raise InputError(
                    "--confirm needs the names of datasets", remedy="trueline pull --confirm NAME"
                )
            for dataset in [workspace[name] for name in names]:
                dataset.confirm_source()
        options: dict[str, Any] = {
            "full_refresh": full_refresh,
            "resend": resend,
            "allow_empty": allow_empty,
            "new_columns": cast("Any", new_columns),
        }
        if watch:
            # Rounds are shown as they come: it ends by Ctrl-C, with nothing left to say.
            workspace.pull(
                *(names or ()), watch=True, on_report=partial(_show_round, here.console), **options
            )
            return
        failed: PullError | None = None
        try:
            report = workspace.pull(*(names or ()), **options)
        except PullError as error:
            failed, report = error, error.report
        here.console.answer(report.to_dict(), lambda shown: _show(shown, report))
        if failed is not None:
            tell(here.console, failed.code, failed.problem, failed.remedy, {"datasets": list(report.errors)})
            raise typer.Exit(exit_code(failed))


def _show_round(shown: Console, report: PullReport) -> None:
    """Show what a round of a watch did: to programs as a document of one line."""
    from trueline.console import JsonConsole
    from trueline.console.items import as_json, plain

    if isinstance(shown, JsonConsole):
        shown.out.write(as_json(plain(report.to_dict())) + "\n")
        shown.out.flush()
    else:
        _show(shown, report, quiet=True)


def _show(shown: Console, report: PullReport, *, quiet: bool = False) -> None:
    """Show what was done for each dataset; `quiet`, only where something was."""
    for each in report:
        line = f"{each.dataset}  {each.told}"
        if each.refused is not None:
            shown.warn(line, remedy=each.refused.remedy)
        elif each.error is not None or each.waits_for:
            shown.say(line, "bad")
        elif each.commits or each.blocks or not quiet:
            shown.say(line, "good" if each.rows or each.blocks else "plain")
        for path, reason in each.bad_files.items():
            shown.warn(f"{path} was left out: {reason}", remedy="fix it; it is tried when its bytes change")
        for advice in (advice for made in each.commits for advice in made.advice):
            if advice.code != "BadCells":
                remedy = advice.in_shell or advice.remedy
                shown.warn(f"{each.dataset}: {advice.problem}", remedy=remedy, code=advice.code)
    if not len(report):
        shown.say("no dataset has a source; `trueline create NAME --source PATH` makes one that has")


@examples(
    "trueline plan",
    "trueline plan balances+ --json",
)
def plan(
    context: typer.Context, names: Selected = None, *, directory: Directory = None, json: Json = False
) -> None:
    """Show what a pull would do to derived datasets: what is new, how they are computed and why.

    Only metadata is read; sources are not looked at.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        found = workspace.plan(*(names or ()))
        here.console.answer(found.to_dict(), lambda shown: shown.say(found.explain()))


@examples(
    "trueline lineage",
    "trueline lineage balances --format dot",
    "trueline lineage --json",
)
def lineage(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A dataset: what it rests on and what rests on it.", metavar="NAME")
    ] = None,
    *,
    format_: Annotated[
        str, typer.Option("--format", help="mermaid, dot or openlineage.", metavar="FORMAT")
    ] = "mermaid",
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show which datasets are computed from which."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        graph = workspace.lineage(name)
        match format_:
            case "mermaid":
                here.console.answer(graph.to_dict(), lambda shown: shown.say(graph.mermaid()))
            case "dot":
                here.console.answer(graph.to_dict(), lambda shown: shown.say(graph.dot()))
            case "openlineage":
                events = graph.openlineage()
                here.console.answer(events, lambda shown: shown.say(dumps(events, indent=2)))
            case _:
                raise InputError(
                    f"there is no format {format_!r}", remedy="give one of mermaid, dot, openlineage"
                )
