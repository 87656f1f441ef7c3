"""Commands that follow sources: pull."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trueline.cli.ingest import AllowEmpty, NewColumns
from trueline.cli.inspect import Names
from trueline.cli.session import Directory, Json, examples, exit_code, session, tell
from trueline.errors import InputError, PullError

if TYPE_CHECKING:
    from trueline.console import Console


@examples(
    "trueline create sales --source 'inbox/*.csv' --lateness 2h",
    "trueline pull",
    "trueline pull sales --json",
    "trueline pull --confirm prices",
)
def pull(
    context: typer.Context,
    names: Names = None,
    *,
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
    """Read what is new in the sources of datasets, and bring clones up to date.

    What was read before is skipped. A dataset that fails does not stop
    the others; the exit code is then that of the cause, 4 if trying again
    may fix all of it.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        if confirm:
            if not names:
                raise InputError(
                    "--confirm needs the names of datasets", remedy="trueline pull --confirm NAME"
                )
            for dataset in [workspace[name] for name in names]:
                dataset.confirm_source()
        failed: PullError | None = None
        try:
            report = workspace.pull(
                *(names or ()),
                resend=resend,
                allow_empty=allow_empty,
                new_columns=cast("Any", new_columns),
            )
        except PullError as error:
            failed, report = error, error.report

        def render(shown: Console) -> None:
            for each in report:
                line = f"{each.dataset}  {each.told}"
                if each.refused is not None:
                    shown.warn(line, remedy=each.refused.remedy)
                elif each.error is not None:
                    shown.say(line, "bad")
                else:
                    shown.say(line, "good" if each.rows or each.blocks else "plain")
                for path, reason in each.bad_files.items():
                    shown.warn(
                        f"{path} was left out: {reason}", remedy="fix it; it is tried when its bytes change"
                    )
                for advice in (advice for made in each.commits for advice in made.advice):
                    if advice.code != "BadCells":
                        remedy = advice.in_shell or advice.remedy
                        shown.warn(f"{each.dataset}: {advice.problem}", remedy=remedy, code=advice.code)
            if not len(report):
                shown.say("no dataset has a source; `trueline create NAME --source PATH` makes one that has")

        here.console.answer(report.to_dict(), render)
        if failed is not None:
            tell(here.console, failed.code, failed.problem, failed.remedy, {"datasets": list(report.errors)})
            raise typer.Exit(exit_code(failed))
