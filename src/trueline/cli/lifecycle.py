"""Commands of a dataset's life: tag, compact, rename, delete, hide-column, show-column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trueline.cli.session import NO, Directory, Json, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.console import Console

Dataset = Annotated[str, typer.Argument(help="The dataset.")]
Column = Annotated[str, typer.Argument(help="The column.")]


@examples(
    "trueline tag",
    "trueline tag audit-2026 sales",
    "trueline tag audit-2026 prices@2026-11-13",
    "trueline tag q3 credits debits",
    "trueline show sales@audit-2026",
    "trueline tag audit-2026 --delete",
)
def tag(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The tag (default: list the tags).")] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Argument(
            help="The dataset, as name, name@commit, name@2026-11-13 or name@tag; several, by their names, "
            "are tagged where they agree.",
            metavar="DATASET[@AT]...",
        ),
    ] = None,
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tag; its commits stay.")] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Name a commit, or list the tags.

    A tag may name a commit in each of several datasets. gc keeps what it names; push and clone copy it.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        if delete:
            if name is None or datasets:
                raise InputError("--delete removes one tag", remedy="write: trueline tag NAME --delete")
            workspace.untag(name)
            here.console.answer({"removed": name}, lambda shown: shown.say(f"removed the tag {name}", "good"))
            return
        if name is None:
            found = list(workspace.tags().values())
        elif not datasets:
            raise InputError(
                f"the tag {name!r} needs a dataset", remedy=f"write: trueline tag {name} DATASET"
            )
        else:
            several = workspace.snapshot(*datasets) if len(datasets) > 1 else None
            found = [workspace.tag(name, several if several is not None else datasets[0])]

        def render(shown: Console) -> None:
            rows = [(each.name, called, block.short) for each in found for called, block in each.at.items()]
            if rows:
                shown.table(["tag", "dataset", "commit"], rows)
            else:
                shown.say("no tags yet; `trueline tag NAME DATASET` makes one")

        here.console.answer({"tags": [each.to_dict() for each in found]}, render)


@examples(
    "trueline compact sales",
)
def compact(context: typer.Context, name: Dataset, directory: Directory = None, json: Json = False) -> None:
    """Read many small slices from few larger files.

    The files are a private cache: no commit and no hash changes.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        done = workspace[name].compact()
        document = {"files": done.files, "slices": done.slices, "rows": done.rows, "bytes": done.bytes}
        here.console.answer(document, lambda shown: shown.say(f"{name}: {done}", "good"))


@examples(
    "trueline rename sales orders",
)
def rename(
    context: typer.Context,
    name: Dataset,
    new: Annotated[str, typer.Argument(help="What it is to be called.")],
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Give a dataset another name.

    Its folder, its id and all its commits stay; datasets that are computed from it follow.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace[name]
        dataset.rename(new)
        answer = {"dataset": new, "was": name, "id": str(dataset.id)}
        here.console.answer(answer, lambda shown: shown.say(f"{name} is now called {new}", "good"))


@examples(
    "trueline delete sales",
    "trueline delete sales --yes",
)
def delete(
    context: typer.Context,
    name: Dataset,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Delete a dataset.

    Refused while other datasets are computed from it or tags name its commits. `gc` frees the room later.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        info = workspace[name].info
        if not yes:
            what = f"delete {name}, {info.rows:,} rows in {info.commits:,} commits?"
            agreed = here.console.confirm(what)
            if agreed is None:
                raise InputError(
                    f"deleting {name!r} needs a yes, and there is no terminal to ask at",
                    remedy=f"write: trueline delete {name} --yes",
                    code="NotConfirmed",
                )
            if not agreed:
                here.console.answer({"deleted": None}, lambda shown: shown.say(f"{name} was not deleted"))
                raise typer.Exit(NO)
        workspace.delete(name)
        later = "`trueline gc` frees its room"
        here.console.answer(
            {"deleted": name, "id": str(info.id), "head": str(info.head)},
            lambda shown: shown.say(f"deleted {name}; {later}", "good"),
        )


@examples(
    "trueline hide-column sales note",
)
def hide_column(
    context: typer.Context,
    name: Dataset,
    column: Column,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Leave a column out of views from here on.

    Its values stay, and earlier commits show it.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace[name]
        dataset.hide_column(column)
        answer = {"dataset": name, "columns": list(dataset.columns)}
        here.console.answer(answer, lambda shown: shown.say(f"{name}: {column} is hidden", "good"))


@examples(
    "trueline show-column sales note",
)
def show_column(
    context: typer.Context,
    name: Dataset,
    column: Column,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show a column again that was hidden."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace[name]
        dataset.show_column(column)
        answer = {"dataset": name, "columns": list(dataset.columns)}
        here.console.answer(answer, lambda shown: shown.say(f"{name}: {column} is shown", "good"))
