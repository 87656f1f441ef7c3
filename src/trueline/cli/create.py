"""Commands that make things: init, create, config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from trueline.cli.arguments import QuickCommand
from trueline.cli.ingest import (
    AllowEmpty,
    DateFormat,
    Decimal,
    Encoding,
    Format,
    Member,
    NewColumns,
    NoHeader,
    Nulls,
    Separator,
    SkipLines,
    TimestampFormat,
    Types,
    chosen_reader,
    reader_options,
)
from trueline.cli.session import Directory, Json, command_group, examples, session
from trueline.console import Console
from trueline.console.items import cell
from trueline.credentials import masked, masked_values
from trueline.errors import InputError
from trueline.workspace.config import Config
from trueline.workspace.settings import Level, variable
from trueline.workspace.user_config import UserConfig

Lateness = Annotated[
    str | None,
    typer.Option("--lateness", metavar="TIME", help="How late rows may arrive, for example 2h."),
]
SourcePath = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="PATH", help="A folder, file, pattern or URL that `trueline pull` reads."
    ),
]
OnBadFile = Annotated[
    str | None,
    typer.Option("--on-bad-file", metavar="POLICY", help="A file that cannot be read: stop, or skip it."),
]
Merge = Annotated[
    str | None,
    typer.Option("--merge", help="append, ledger, snapshot, changelog or upsert (upsert if --key is given)."),
]
KeyColumns = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="COLUMN", help="A column of the key; may be repeated."),
]
OnChange = Annotated[
    str,
    typer.Option(
        "--on-change",
        metavar="ACTION",
        help="If it has another source, lateness or description: error, or from_here to change it.",
    ),
]


@examples(
    "trueline init shop",
    "trueline init s3://bucket/shop",
    "trueline --option endpoint=https://storage.example.com init s3://bucket/shop",
)
def init(
    context: typer.Context,
    folder: Annotated[
        str | None, typer.Argument(help="A folder or URL (default: -C, or this folder).")
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Make a workspace.

    Where there is one already, nothing changes.
    """
    with session(context, directory, json) as here:
        import trueline

        place = folder or here.place
        with trueline.open(place, create=True, **here.options) as workspace:
            here.console.answer(
                {"workspace": workspace.location, "datasets": list(workspace)},
                lambda shown: shown.say(f"workspace {workspace.location}", "good"),
            )


@examples(
    "trueline create sales",
    'trueline create sales --event-time day --description "All sales"',
    "trueline create customers --merge upsert --key id",
    "trueline create sales --source 'inbox/*.csv' --lateness 2h --new-columns add",
    "trueline create sales --source 'inbox/*.csv' --delimiter ';' --on-bad-file skip",
    "trueline create sales --source 'archive/*.csv' --on-change from_here",
    "trueline create -f sales.yaml",
)
def create(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The name of the dataset.")] = None,
    *,
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", metavar="COLUMN", help="The column that says when a row happened."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="A description of what it holds.")
    ] = None,
    merge: Merge = None,
    key: KeyColumns = None,
    lateness: Lateness = None,
    source: SourcePath = None,
    format_: Format = None,
    separator: Separator = None,
    encoding: Encoding = None,
    no_header: NoHeader = False,
    skip_lines: SkipLines = None,
    allow_empty: AllowEmpty = False,
    nulls: Nulls = None,
    date_format: DateFormat = None,
    timestamp_format: TimestampFormat = None,
    decimal: Decimal = None,
    types: Types = None,
    member: Member = None,
    on_bad_file: OnBadFile = None,
    new_columns: NewColumns = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", help="Make it from a DatasetSnapshot manifest (YAML or JSON)."),
    ] = None,
    on_change: OnChange = "error",
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Make a root dataset.

    The same definition again changes nothing, another is an error unless --on-change says otherwise.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        how: dict[str, Any] = {"separator": separator, "encoding": encoding, "skip_lines": skip_lines}
        how |= {"header": False if no_header else None}
        how |= {"date_format": date_format, "timestamp_format": timestamp_format}
        how |= {"decimal": decimal, "member": member}
        options = reader_options(how, nulls, types)
        if file is not None:
            said = (name, event_time, description, merge, lateness, source, on_bad_file, new_columns)
            said = (*said, *options.values())
            if format_ is not None or any(given is not None for given in said) or key:
                raise InputError(
                    "-f FILE cannot be combined with other options",
                    remedy="give -f FILE alone; the manifest holds the rest",
                )
            dataset = workspace.create_from_manifest(_read(file))
        elif name is not None:
            dataset = workspace.create(
                name,
                merge=_strategy(merge, key),
                event_time=event_time,
                description=description,
                lateness=lateness,
                source=_source(
                    source, chosen_reader(format_, options, [source or ""]), on_bad_file, allow_empty
                ),
                on_change=on_change,
                new_columns=cast("Any", new_columns or "error"),
            )
        else:
            raise InputError(
                "the dataset has no name", remedy="trueline create NAME, or trueline create -f FILE"
            )
        info = dataset.info
        here.console.answer(
            info.to_dict(),
            lambda shown: shown.say(f"{info.name}  {info.kind}  {info.head.short}  {info.id}", "good"),
        )


def _strategy(merge: str | None, key: list[str] | None) -> Any:
    """Return the merge strategy that was asked for."""
    import trueline

    chosen = merge or ("upsert" if key else "append")
    if chosen not in ("append", "ledger", "snapshot", "changelog", "upsert"):
        raise InputError(
            f"there is no merge strategy {chosen!r}",
            remedy="give append, ledger, snapshot, changelog or upsert",
        )
    if chosen == "append":
        if key:
            raise InputError(
                "the merge strategy append has no key", remedy="leave out --key, or choose another --merge"
            )
        return trueline.merge.append()
    if not key:
        raise InputError(f"the merge strategy {chosen} needs a key", remedy="add --key COLUMN")
    return getattr(trueline.merge, chosen)(key)


def _source(path: str | None, reader: Any, on_bad_file: str | None, allow_empty: bool) -> Any:
    """Return the source that was asked for."""
    import trueline

    if path is None:
        if reader is not None or on_bad_file is not None or allow_empty:
            raise InputError("options of a source were given without a source", remedy="add --source PATH")
        return None
    return trueline.source(path, reader, on_bad_file=on_bad_file or "stop", allow_empty=allow_empty)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", remedy="check the path") from None


def _list_all(context: typer.Context) -> None:
    config_list(context)


config = command_group(
    "config",
    "Show and change the settings of the workspace, and your own. Without a command, show all of them.",
    alone=_list_all,
)

Own = Annotated[
    bool, typer.Option("--user", help="Your own settings, for every workspace; no workspace is needed.")
]


@config.command("list", cls=QuickCommand)
@examples(
    "trueline config list",
    "trueline config list --user",
)
def config_list(
    context: typer.Context, *, user: Own = False, directory: Directory = None, json: Json = False
) -> None:
    """Show all settings, and where each comes from.

    The environment comes before your own file, that before trueline.toml.
    """
    with session(context, directory, json) as here:
        if user:
            _list(here.console, Config("format = 1", lambda *_: None))
        else:
            with here.workspace() as workspace:
                _list(here.console, workspace.config)


def _list(console: Console, settings: Config) -> None:
    levels = {name: settings.level(name) for name in settings}
    origins = {name: _level(settings, name, level) for name, level in levels.items()}
    values = {name: masked_values(settings[name]) for name in settings}
    rows = [(name, values[name], origins[name], settings.meaning(name)) for name in settings]

    def render(shown: Console) -> None:
        shown.table(["setting", "value", "from", "meaning"], rows)
        for name in settings:
            if settings.is_open(name):
                shown.warn(
                    f"the workspace proposes {name} = {masked(str(settings.proposed(name)))}, "
                    "which is not used",
                    remedy=f"`trueline config trust {name}` confirms it",
                )

    console.answer({**values, "from": origins}, render)


def _level(settings: Config, name: str, level: Level) -> str:
    match level:
        case Level.ENVIRONMENT:
            return variable(name)
        case Level.USER:
            return str(settings.user.path)
        case Level.WORKSPACE:
            return "trueline.toml" + ", not confirmed" * settings.is_open(name)
    return "default"


@config.command("get", cls=QuickCommand)
@examples(
    "trueline config get gc.older_than",
)
def config_get(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The setting, for example gc.older_than.")],
    *,
    user: Own = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show one setting; keys in it are masked."""
    with session(context, directory, json) as here:
        if user:
            value = UserConfig().value(name)
        else:
            with here.workspace() as workspace:
                value = workspace.config[name]
        value = masked_values(value)
        text = str(value).lower() if isinstance(value, bool) else cell(value)
        here.console.answer({name: value}, lambda shown: shown.say(text if value is not None else "None"))


@config.command("set", cls=QuickCommand)
@examples(
    "trueline config set gc.older_than 1d",
    "trueline config set --user spark.remote sc://spark.example.org:15002",
    "trueline config set --user safe.directory /srv/shared/shop",
)
def config_set(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The setting, for example gc.older_than.")],
    value: Annotated[str, typer.Argument(help="Its new value; a list gets one more.")],
    *,
    user: Own = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Change one setting, in trueline.toml or (--user) in your own file."""
    with session(context, directory, json) as here:
        if user:
            own = UserConfig()
            own.set(name, value)
            _changed(here.console, name, own.value(name), str(own.path))
        else:
            with here.workspace() as workspace:
                workspace.config.set(name, value)
                _changed(here.console, name, workspace.config.proposed(name), here.found)
                level = workspace.config.level(name)
                if level < Level.WORKSPACE:
                    here.console.warn(
                        f"{_level(workspace.config, name, level)} sets {name} too, and comes first"
                    )


def _changed(console: Console, name: str, value: Any, where: str) -> None:
    value = masked_values(value)
    console.answer({name: value}, lambda shown: shown.say(f"{name} = {cell(value)} in {where}"))


@config.command("trust", cls=QuickCommand)
@examples(
    "trueline config trust spark.remote",
)
def config_trust(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The setting that trueline.toml proposes.")],
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Confirm what the workspace's own file proposes.

    Only this value is confirmed, in this workspace; a new value has to be confirmed again.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        value = masked_values(workspace.config.trust(name))
        here.console.answer(
            {name: value}, lambda shown: shown.say(f"{name} = {cell(value)} is used in {here.found}")
        )
