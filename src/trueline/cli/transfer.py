"""Commands that move data away: clone, push, drop-data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trueline.cli.session import Directory, ExpectedHead, Json, Options, examples, session, store_options
from trueline.credentials import masked

if TYPE_CHECKING:
    from trueline.console import Console

Force = Annotated[
    bool, typer.Option("--force", help="Throw away blocks of the target that the source does not have.")
]


@examples(
    "trueline clone https://data.example.org/trades",
    "trueline clone s3://lake/datasets/trades trades-copy",
)
def clone(
    context: typer.Context,
    url: Annotated[
        str, typer.Argument(help="A folder, an object-store URL, or an address of a file server.")
    ],
    name: Annotated[str | None, typer.Argument(help="What to call it (default: as it is there).")] = None,
    *,
    force: Force = False,
    expected_head: ExpectedHead = None,
    option: Options = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Bring a dataset here.

    Done again it brings what is new. An interrupted transfer is taken up where it stopped.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace.clone(
            url, name, force=force, expected_head=expected_head, **store_options(option or ())
        )
        info, origin = dataset.info, dataset.origin
        findings = origin.findings if origin else ()

        def render(shown: Console) -> None:
            shown.say(f"{info.name}  {info.rows:,} rows  {info.head.short}  from {masked(url)}", "good")
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
    """Send a dataset elsewhere, byte for byte.

    Only what is new goes over. Any static file server can serve what arrives.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        sent = workspace[name].push(url, force=force, **store_options(option or ()))

        def render(shown: Console) -> None:
            if sent.changed:
                counts = f"{sent.blocks:,} blocks, {sent.objects:,} files, {sent.bytes:,} bytes"
                shown.say(f"{name} → {sent.target}: {counts}", "good")
            else:
                shown.say(f"{name}: {sent.target} is up to date")

        here.console.answer(sent.to_dict(), render)


@examples(
    'trueline drop-data sales --upto 2026-01-31 --reason "kept for nine months"',
    """trueline drop-data sales --where "customer = 'C-17'" --reason "erasure request 17\"""",
)
def drop_data(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the chain for good.")],
    upto: Annotated[
        str | None, typer.Option("--upto", metavar="COMMIT", help="Remove all up to a commit or a day.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="CONDITION", help="Remove the records that meet it.")
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Remove records for good.

    Their bytes go; their hashes and the reason stay. There is no way back.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        done = workspace[name].drop_data(upto=upto, where=where, reason=reason)

        def render(shown: Console) -> None:
            if done.block is None:
                shown.say(f"{name}: no such records")
                return
            rows = f"removed {done.rows:,} row{'s' * (done.rows != 1)} of {done.slices:,} slices"
            shown.say(f"{name}: {rows}, commit {done.block.short}", "good")

        here.console.answer(done.to_dict(), render)
