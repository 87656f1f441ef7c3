"""Commands that copy or remove data: clone, push, drop-data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trueline.cli.session import Directory, ExpectedHead, Json, Options, examples, session, store_options
from trueline.credentials import masked

if TYPE_CHECKING:
    from trueline.console import Console

Force = Annotated[
    bool, typer.Option("--force", help="Discard blocks of the target that the source does not have.")
]


@examples(
    "trueline clone https://data.example.org/trades",
    "trueline clone s3://lake/datasets/trades trades-copy",
)
def clone(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="A folder, an object-store URL, or the URL of a file server.")],
    name: Annotated[
        str | None, typer.Argument(help="The name of the copy (default: the name it has there).")
    ] = None,
    *,
    force: Force = False,
    expected_head: ExpectedHead = None,
    option: Options = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Copy a dataset into this workspace.

    Run again, it copies what is new. An interrupted transfer continues where it stopped.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace.clone(
            url, name, force=force, expected_head=expected_head, **store_options(option or ())
        )
        info, origin = dataset.info, dataset.origin
        findings = origin.findings if origin else ()

        def render(shown: Console) -> None:
            shown.say(f"{info.name}  {info.rows_shown} rows  {info.head.short}  from {masked(url)}", "good")
            for finding in findings:
                shown.warn(finding, remedy="nothing to do: other software is less strict")

        here.console.answer({**info.to_dict(), "origin": origin.to_dict() if origin else None}, render)


@examples(
    "trueline push trades s3://lake/datasets/trades --option region=eu-1",
    "trueline push trades /srv/www/trades",
)
def push(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    url: Annotated[str, typer.Argument(help="A folder, or an object-store URL.")],
    *,
    force: Force = False,
    option: Options = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Copy a dataset elsewhere, byte for byte.

    Only what is new is sent. Any static file server can serve the copy.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        sent = workspace[name].push(url, force=force, **store_options(option or ()))

        def render(shown: Console) -> None:
            if sent.changed:
                counts = f"{sent.blocks:,} blocks, {sent.objects:,} files, {sent.bytes:,} bytes"
                shown.say(f"{name} → {sent.target}: {counts}", "good")
            else:
                shown.say(f"{name}: {sent.target} is up to date")
            for tag in sent.left_behind:
                shown.warn(
                    f"the tag {tag} was not sent: a reset has cut off the commit it names",
                    remedy="it stays here; what is to be sent has to be tagged again, under another name",
                )

        here.console.answer(sent.to_dict(), render)


@examples(
    'trueline drop-data sales --upto 2026-01-31 --reason "kept for nine months"',
    """trueline drop-data sales --where "customer = 'C-17'" --reason "erasure request 17\"""",
)
def drop_data(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="The reason; it stays in the chain for good.")],
    upto: Annotated[
        str | None,
        typer.Option("--upto", metavar="COMMIT", help="Remove all records up to a commit or a day."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="CONDITION", help="Remove the records for which this condition is true."
        ),
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Remove records for good.

    Their bytes are deleted; their hashes and the reason stay. This cannot be undone.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        done = workspace[name].drop_data(upto=upto, where=where, reason=reason)

        def render(shown: Console) -> None:
            if done.block is None:
                shown.say(f"{name}: no records match")
                return
            rows = f"removed {done.rows:,} row{'s' * (done.rows != 1)} of {done.slices:,} slices"
            shown.say(f"{name}: {rows}, commit {done.block.short}", "good")

        here.console.answer(done.to_dict(), render)
