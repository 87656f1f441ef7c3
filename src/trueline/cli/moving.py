"""Commands that move datasets: clone, push."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trueline.cli.session import Directory, Json, examples, session

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
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Bring a dataset here.

    Done again it brings what is new. An interrupted transfer is taken up where it stopped.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset = workspace.clone(url, name, force=force)
        info, origin = dataset.info, dataset.origin
        findings = origin.findings if origin else ()

        def render(shown: Console) -> None:
            shown.say(f"{info.name}  {info.rows:,} rows  {info.head.short}  from {url}", "good")
            for finding in findings:
                shown.warn(finding, remedy="nothing to do: other software is less strict")

        here.console.answer({**info.to_dict(), "origin": origin.to_dict() if origin else None}, render)


@examples(
    "trueline push trades s3://lake/datasets/trades",
    "trueline push trades /srv/www/trades",
)
def push(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    url: Annotated[str, typer.Argument(help="A folder, or an object-store URL.")],
    *,
    force: Force = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Send a dataset elsewhere, byte for byte.

    Only what is new goes over. Any static file server can serve what arrives.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        sent = workspace[name].push(url, force=force)

        def render(shown: Console) -> None:
            if sent.changed:
                counts = f"{sent.blocks:,} blocks, {sent.objects:,} files, {sent.bytes:,} bytes"
                shown.say(f"{name} → {sent.target}: {counts}", "good")
            else:
                shown.say(f"{name}: {sent.target} is up to date")

        here.console.answer(sent.to_dict(), render)
