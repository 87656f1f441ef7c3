"""Commands that read rows: show, sql, snapshot, diff, export."""

from __future__ import annotations

import json as jsons
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trueline.cli.session import Directory, Json, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline import View
    from trueline.cli.session import Session
    from trueline.console import Console
    from trueline.workspace import Dataset, Workspace

Named = Annotated[
    str,
    typer.Argument(
        help="The dataset, as name, name@commit, name@2026-11-13 or name@tag.", metavar="NAME[@AT]"
    ),
]
Number = Annotated[int, typer.Option("-n", min=0, help="How many rows to show; 0 shows all.")]
System = Annotated[bool, typer.Option("--system", help="Show the system columns too.")]


def parted(text: str) -> tuple[str, str | None]:
    """Split `name@at`.

    >>> parted("sales"), parted("sales@2026-11-13")
    (('sales', None), ('sales', '2026-11-13'))
    """
    name, sign, at = text.partition("@")
    if sign and not at:
        raise InputError(f"{text!r} has nothing after the @", remedy="add a commit, a day or a tag")
    return name, at or None


def opened(workspace: Workspace, text: str) -> tuple[Dataset, str | None]:
    """Return the dataset of `name@at`, and what is after the `@`."""
    name, at = parted(text)
    return workspace[name], at


@examples(
    "trueline show sales",
    "trueline show sales@2026-11-13 -n 5",
    "trueline show sales --changes --system --json",
    "trueline show sales --bad",
)
def show(
    context: typer.Context,
    name: Named,
    *,
    number: Number = 20,
    changes: Annotated[
        bool, typer.Option("--changes", help="Show the last events instead of current rows.")
    ] = False,
    bad: Annotated[
        bool, typer.Option("--bad", help="Show the cells of the commit that could not be read.")
    ] = False,
    system: System = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show the rows of a dataset."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        if changes and bad:
            raise InputError("--changes and --bad cannot be combined", remedy="give one of them")
        dataset, at = opened(workspace, name)
        if bad:
            _answer(here, _bad_cells(dataset, at), number, none="no bad cells")
            return
        if changes:
            view = dataset.changes(upto=at, system=system)
            view = view.skip(max(0, view.count() - number)) if number else view
        else:
            view = dataset.view(at, system=system)
        _answer(here, view, number)


@examples(
    'trueline sql "select city, sum(price) from sales group by city"',
    'trueline sql "select * from sales where price > :least" --param least=10',
    'trueline sql "select count(*) from `sales@2026-11-13`"',
    'trueline sql "select sum(amount) from credits join debits using (account)" --cut transfers=41',
)
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The query; datasets are tables by their names.")],
    *,
    number: Number = 20,
    at: Annotated[
        str | None, typer.Option("--at", help="Read all datasets as they were: a day, a moment or a tag.")
    ] = None,
    cut: Annotated[
        str | None, typer.Option("--cut", help="Read all datasets at a cut: its number, or root=offset,….")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="The value of :name.")
    ] = None,
    trusted_sql: Annotated[
        bool,
        typer.Option("--trusted-sql", help="Let the query run programs and Java, read paths and catalogs."),
    ] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Answer a query over current rows, with Spark.

    Several datasets are read at the newest state at which they agree.
    """
    with session(context, directory, json) as here, here.workspace(trusted_sql=trusted_sql) as workspace:
        if at is not None and cut is not None:
            raise InputError("--at and --cut cannot be combined", remedy="give one of them")
        read = at if cut is None else f"cut:{cut}"
        _answer(here, workspace.sql(query, at=read, **_parameters(param or [])), number)


@examples(
    "trueline snapshot credits debits balances",
    "trueline snapshot credits debits --cut 7 --json",
    "trueline snapshot credits debits --tag q3",
    "trueline snapshot --at q3",
)
def snapshot(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="The datasets (default: all).", metavar="[NAME]...")
    ] = None,
    *,
    at: Annotated[str | None, typer.Option("--at", help="As it was: a day, a moment or a tag.")] = None,
    cut: Annotated[str | None, typer.Option("--cut", help="At a cut: its number, or root=offset,….")] = None,
    advance: Annotated[
        bool, typer.Option("--advance", help="Bring derived datasets that lag to the newest cut first.")
    ] = False,
    together: Annotated[
        bool, typer.Option("--together", help="Refuse datasets that rest on nothing common.")
    ] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="Name it, so that it is kept.")] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show the newest state at which datasets agree: the commit of each."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        found = workspace.snapshot(*names or (), at=at, cut=cut, advance=advance, together=together)
        if tag is not None:
            workspace.tag(tag, found)

        def render(shown: Console) -> None:
            rows = [
                (
                    name,
                    found.positions[name].block.short,
                    _offset(found.positions[name].offset),
                    found.lag.get(name, 0),
                )
                for group in found.groups
                for name in group
            ]
            shown.table(["dataset", "commit", "last offset", "newer commits"], rows)
            shown.say(f"cut {found.shown_cut}" + (f", tagged {tag}" if tag is not None else ""), "faint")
            if len(found.groups) > 1:
                groups = "; ".join(", ".join(group) for group in found.groups)
                shown.say(f"these share nothing with each other: {groups}", "faint")
            if found.own_cuts:
                shown.say(found.shown_own_cuts, "faint")

        here.console.answer(found.to_dict(), render)
        found.close()


def _offset(last: int | None) -> str:
    return "none" if last is None else f"{last:,}"


@examples(
    "trueline diff sales@2026-11-12",
    "trueline diff sales@ab12cd34 2026-11-13",
)
def diff(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset at the older commit.", metavar="NAME@AT")],
    upto: Annotated[
        str | None, typer.Argument(help="The newer commit (default: the newest).", metavar="[AT]")
    ] = None,
    *,
    number: Number = 20,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show what changed between two commits, net."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset, at = opened(workspace, name)
        if at is None:
            before = list(islice(dataset.log(), 2))[-1].short
            raise InputError(
                f"{name!r} does not say since which commit",
                remedy=f"write {name}@{before} for what the newest commit changed; "
                f"`trueline log {name}` shows all commits",
            )
        end = parted(upto)[1] if upto is not None and "@" in upto else upto
        _answer(here, dataset.diff(at, end), number)


@examples(
    "trueline export sales sales.csv",
    "trueline export sales@2026-11-13 old.parquet --system",
)
def export(
    context: typer.Context,
    name: Named,
    file: Annotated[str, typer.Argument(help="A file that ends with .csv, .parquet, .json or .jsonl.")],
    *,
    system: System = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Write the current rows to a file."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset, at = opened(workspace, name)
        done = dataset.export(file, at, system=system, overwrite=overwrite)
        here.console.answer(
            done, lambda shown: shown.say(f"{done.path}: {done.rows:,} rows, {done.size:,} bytes")
        )


def _bad_cells(dataset: Dataset, at: str | None) -> View:
    """The bad cells of a commit; of the newest commit that has some, if none is named."""
    if at is not None:
        return dataset.commit(dataset.view(at).origins[dataset.name].block).bad_cells()
    return next((commit for commit in dataset.log() if commit.bad), dataset.commit()).bad_cells()


def _parameters(given: list[str]) -> dict[str, object]:
    """Read values as numbers, booleans and null where they are, else as text."""
    found: dict[str, object] = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name.isidentifier():
            raise InputError(
                f"--param {each!r} is not of the form name=value", remedy="write --param name=value"
            )
        try:
            parsed = jsons.loads(value)
        except ValueError:
            parsed = value
        found[name] = value if isinstance(parsed, dict) else parsed
    return found


def _answer(here: Session, view: View, number: int, *, none: str = "") -> None:
    """Show rows to people, or as a document: where they come from, columns, rows, whether there are more.

    A query over several datasets says at which cut it reads them. `none` is what to say of no rows.
    """
    table = (view.limit(number + 1) if number else view).to_arrow()
    more = bool(number) and table.num_rows > number
    rows: list[dict[str, Any]] = table.to_pylist()[: number or None]
    names = list(view.schema.names)

    def render(shown: Console) -> None:
        if rows:
            shown.table(names, [tuple(row[name] for name in names) for row in rows], data=True)
        else:
            shown.say(none or f"no rows; the columns are {', '.join(names) or 'not known yet'}")
        if more:
            shown.say(f"… more rows are not shown; -n {number * 10} shows more, -n 0 all", "faint")
        if view.origins:
            shown.say(", ".join(str(origin) for origin in view.origins.values()), "faint")
        if view.read_at:
            shown.say(f"read at one snapshot: cut {view.read_at}", "faint")

    document = {
        "origins": dict(view.origins),
        "cut": view.read_at or None,
        "columns": [{"name": column.name, "type": str(column.type)} for column in view.schema],
        "rows": rows,
        "more": more,
    }
    here.console.answer(document, render)
