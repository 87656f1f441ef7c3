"""Commands of derived datasets: derive, reset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueline.cli.session import NO, Directory, Json, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.workspace import Info, Workspace


@examples(
    "trueline derive balances balances.sql --key account",
    'trueline derive totals "select sum(amount) as total from transfers"',
    "trueline derive balances balances.sql --key account --on-change rebuild",
    "trueline derive -f models/",
    "trueline derive -f models/ --yes --prune",
)
def derive(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The name of the dataset.")] = None,
    query: Annotated[
        str | None, typer.Argument(metavar="FILE|SQL", help="A file of SQL, - for stdin, or a query.")
    ] = None,
    *,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="A column that identifies a row; may be repeated."),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", metavar="COLUMN", help="The column that says when a row happened."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="A description of what it holds.")
    ] = None,
    function: Annotated[
        str | None,
        typer.Option("--function", metavar="MODULE:NAME", help="A function of frames instead of a query."),
    ] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="[ALIAS=]DATASET", help="A dataset it reads; may be repeated."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="auto, or incremental to refuse what would be recomputed."),
    ] = None,
    on_change: Annotated[
        str,
        typer.Option(
            "--on-change", metavar="ACTION", help="If it has another definition: error, rebuild or from_here."
        ),
    ] = "error",
    folder: Annotated[
        Path | None,
        typer.Option(
            "-f", "--folder", help="A folder of .sql and .yaml files: shows what they would change."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply what the folder says without asking.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete datasets whose file is not in the folder any more.")
    ] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Make a dataset that is computed from others.

    `trueline pull` brings it up to date. The same definition again changes nothing, another is an error
    with the difference, unless --on-change says otherwise.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        if folder is not None:
            if name is not None or query is not None or key or function is not None:
                raise InputError("-f FOLDER holds the definitions", remedy="give -f FOLDER without a name")
            _derive_folder(here.console, workspace, folder, yes=yes, prune=prune)
            return
        if name is None or (query is None) == (function is None):
            raise InputError(
                "a derived dataset needs a name, and a query or a function",
                remedy="write: trueline derive NAME FILE.sql, or trueline derive -f FOLDER",
            )
        options = {"key": key or None, "event_time": event_time, "description": description}
        options |= {"strategy": strategy}
        said: dict[str, Any] = {what: value for what, value in options.items() if value is not None}
        if query is not None:
            said |= _said(query, name, said)
        if input_:
            said["inputs"] = dict(_input(each) for each in input_)
        dataset = workspace.derive(name, fn=function, on_change=on_change, **said)
        info = dataset.info
        here.console.answer(info.to_dict(), lambda shown: _defined(shown, info))


def _defined(shown: Console, info: Info) -> None:
    """Say what was defined, and how it will follow its inputs."""
    from trueline.workspace.derive.strategies.classify import explained

    shown.say(f"{info.name}  {info.kind}  {info.head.short}  {info.id}", "good")
    why = explained(info.reason or "")
    shown.say(f"    {info.strategy}{f' ({info.reason}): {why}' if why else ''}")


def _said(query: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says of a definition, under what was given as options; or the query itself."""
    if query == "-":
        return {"sql": sys.stdin.read(), **given}
    if " " in query.strip() and not Path(query).exists():
        return {"sql": query, **given}
    from trueline.workspace.derive.folder import request_of

    read = request_of(Path(query), name)
    names = ("sql", "inputs", "key", "event_time", "description", "checks", "columns", "strategy")
    return {what: getattr(read, what) for what in names} | given


def _input(text: str) -> tuple[str, str]:
    alias, sign, name = text.partition("=")
    return (alias, name) if sign else (text, text)


def _derive_folder(console: Console, workspace: Workspace, folder: Path, *, yes: bool, prune: bool) -> None:
    plan = workspace.derive_folder(folder)

    def render(shown: Console) -> None:
        for each in plan.changes:
            shown.say(f"{each.kind:8} {each.name}", "plain" if each.kind == "same" else "good")
            for line in each.differences:
                shown.say(f"    {line}")
        for name in plan.vanished:
            shown.warn(
                f"{name}: its file is not in {folder} any more",
                remedy=f"`trueline derive -f {folder} --prune` deletes it",
            )
        for name in plan.elsewhere if prune else ():
            shown.warn(
                f"{name} was defined by another folder {folder.resolve().name}, and stays",
                remedy=f"if it is not needed, `trueline delete {name} --yes` deletes it",
            )

    changes = [each for each in plan.changes if each.kind != "same"]
    if not changes and not (prune and plan.vanished):
        console.answer({**plan.to_dict(), "applied": False}, render)
        return
    deleting = f", delete {len(plan.vanished)}" if prune and plan.vanished else ""
    if not yes:
        # People see what would change before they are asked.
        render(console)
        if not console.confirm(f"define {len(changes)} datasets{deleting}?"):
            document = {**plan.to_dict(), "applied": False}
            console.answer(document, lambda shown: shown.say("nothing was changed; --yes applies it"))
            raise typer.Exit(NO)
    done = workspace.derive_folder(folder, apply=True, prune=prune)

    def render_done(shown: Console) -> None:
        if yes:
            render(shown)
        shown.say(f"defined {len(changes)} datasets", "good")
        for name in done.pruned:
            shown.say(f"deleted {name}", "good")

    console.answer({**done.to_dict(), "applied": True}, render_done)


@examples(
    "trueline reset balances --to 2026-11-13",
    "trueline reset balances --rebuild",
    "trueline reset transfers --to ab12cd34 --rebuild --yes",
)
def reset(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="AT", help="The commit to go back to: a hash, a day, a tag.")
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Also reset what rests on later commits; alone, the dataset."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Move the head of a dataset back, as if what came later had never been.

    Datasets computed from later commits are named, or with --rebuild reset too. `trueline revert` keeps
    what happened instead.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace[name]
        if to is not None and not yes:
            agreed = here.console.confirm(f"cut off what {name} has after {to}?")
            if agreed is None:
                raise InputError(
                    f"resetting {name!r} needs a yes, and there is no terminal to ask at",
                    remedy=f"write: trueline reset {name} --to {to} --yes",
                    code="NotConfirmed",
                )
            if not agreed:
                here.console.answer({"reset": None}, lambda shown: shown.say("nothing was changed"))
                raise typer.Exit(NO)
        others = dataset.reset(to, rebuild=rebuild)
        head = workspace[name].head

        def render(shown: Console) -> None:
            shown.say(f"{name} is at {head.short}", "good")
            for other in others:
                shown.say(f"{other} {'was reset too' if rebuild else 'rests on commits that are gone'}")

        here.console.answer({"reset": name, "head": str(head), "resting": list(others)}, render)
