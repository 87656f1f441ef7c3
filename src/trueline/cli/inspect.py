"""Commands that show metadata: list, status, log, schema."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from trueline.cli.read import Named, opened
from trueline.cli.session import NO, Directory, Json, examples, session
from trueline.console.items import one_line
from trueline.credentials import masked_values
from trueline.errors import CorruptionError

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.workspace import Commit, Dataset, Workspace

_SHOWN = 10  # files and origins of a commit that `log` names

Opened: TypeAlias = "tuple[Dataset, str | None]"
Names = Annotated[list[str] | None, typer.Argument(help="Datasets (default: all).", metavar="NAME")]


@examples(
    "trueline list",
    "trueline -C shop list --json",
)
def list_(context: typer.Context, directory: Directory = None, json: Json = False) -> None:
    """List the datasets."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        found = [_stands(dataset) for dataset in workspace.datasets()]
        columns = ["name", "kind", "rows", "events", "commits", "updated", "head"]
        if any(each.get("behind_commits") is not None for each in found):
            columns.append("behind")

        def render(shown: Console) -> None:
            if not found:
                shown.say("no datasets yet; `trueline create NAME` makes one")
                return
            rows = [
                [
                    each["name"],
                    each.get("kind"),
                    _rows(each),
                    each.get("events"),
                    each.get("commits"),
                    _moment(each.get("updated")),
                    _head(each),
                    _behind(each),
                ][: len(columns)]
                for each in found
            ]
            shown.table(columns, rows)

        here.console.answer({"workspace": workspace.location, "datasets": found}, render)


def _stands(dataset: Dataset) -> dict[str, Any]:
    """The state of a dataset; one that is damaged says so and does not hide the others."""
    try:
        return dataset.info.to_dict()
    except CorruptionError as error:
        return {
            "name": dataset.name,
            "error": {"code": error.code, "message": error.problem, "remedy": error.remedy},
        }


def _rows(each: dict[str, Any]) -> object:
    """The current rows; `?` where nobody has counted them."""
    return "?" if "error" not in each and each["rows"] is None else each.get("rows")


def _behind(each: dict[str, Any]) -> str | None:
    """How far a derived dataset is behind its roots, for people; None for others."""
    commits = each.get("behind_commits")
    if commits is None:
        return None
    since = f", {_in_words(each['behind_seconds'])}" if commits else ""
    return f"{commits:,} commit{'s' * (commits != 1)}{since}" if commits else "up to date"


def _head(each: dict[str, Any]) -> str:
    return f"damaged: {each['error']['code']}" if "error" in each else each["head"][-8:]


def _moment(text: str | None) -> str | None:
    """A moment for people: to the second."""
    return None if text is None else text[:19].replace("T", " ")


@examples(
    "trueline status",
    "trueline status sales",
    "trueline status --check",
)
def status(
    context: typer.Context,
    names: Names = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if data are older than their check max_age allows.")
    ] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show the state of each dataset.

    Head, current rows and events, age of the last commit, state of the index, commits in flight; of derived
    datasets what they are computed from, how, and how far they are behind.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        datasets = [workspace[name] for name in names] if names else workspace.datasets()
        found = [_condition(dataset) for dataset in datasets]

        def render(shown: Console) -> None:
            if not found:
                shown.say("no datasets yet; `trueline create NAME` makes one")
            for each in found:
                shown.fields(_condition_shown(each), title=each["name"])

        here.console.answer({"workspace": workspace.location, "datasets": found}, render)
        if check and any(each.get("too_old") for each in found):
            raise typer.Exit(NO)


def _condition(dataset: Dataset) -> dict[str, Any]:
    health = dataset.health()
    since = health.in_flight_since
    return _stands(dataset) | {
        "index": health.index,
        "in_flight_seconds": None if since is None else round(max(0.0, time.time() - since), 1),
        "too_old": list(health.too_old),
    }


def _condition_shown(each: dict[str, Any]) -> dict[str, object]:
    if "error" in each:
        return {"damaged": each["error"]["message"], "→": each["error"]["remedy"]}
    age = _in_words(time.time() - _epoch(each["updated"]))
    shown: dict[str, object] = {
        "head": each["head"],
        "rows": _rows(each),
        "events": each["events"],
        "commits": each["commits"],
        "last commit": f"{_moment(each['updated'])} UTC, {age} ago",
        "watermark": _moment(each["watermark"]),
        "lateness": each["lateness"],
        "merge": each["merge"],
        "index": each["index"],
    }
    if each["strategy"] is not None:
        reason = f" ({each['reason']})" if each["reason"] else ""
        shown |= {
            "computed from": ", ".join(each["inputs"]),
            "strategy": f"{each['strategy']}{reason}",
            "behind": _behind(each),
            "last cut": each["last_cut"],
        }
    if each["too_old"]:
        shown["too old"] = "; ".join(each["too_old"])
    if each["in_flight_seconds"] is not None:
        shown["in flight"] = f"a commit, since {_in_words(each['in_flight_seconds'])}"
    if each["description"]:
        shown["description"] = each["description"]
    return shown


def _epoch(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text[:19] + "+00:00").timestamp()


@examples(
    "trueline log sales",
    "trueline log --oneline -n 5",
    "trueline log sales@2026-11-13 --blocks --json",
)
def log(
    context: typer.Context,
    names: Names = None,
    *,
    number: Annotated[int, typer.Option("-n", min=0, help="How many to show; 0 shows all.")] = 20,
    oneline: Annotated[bool, typer.Option("--oneline", help="One line for each commit.")] = False,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="Show the blocks that commits are made of.")
    ] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show commits, newest first."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        every: list[Opened] = [] if names else [(dataset, None) for dataset in workspace.datasets()]
        datasets = [opened(workspace, name) for name in names or ()] or every
        if blocks:
            _log_blocks(here.console, datasets, number)
        else:
            _log_commits(here.console, workspace, datasets, number, oneline)


def _log_commits(
    console: Console, workspace: Workspace, datasets: list[Opened], number: int, oneline: bool
) -> None:
    found, more = _some(
        heapq.merge(*(d.log(at) for d, at in datasets), key=lambda commit: -commit.system_time), number
    )
    marks: dict[str, list[str]] = {dataset.head: ["head"] for dataset, _ in datasets}
    for each in workspace.tags().values():
        for block in set(each.at.values()):
            marks.setdefault(block, []).append(f"tag: {each.name}")

    derived = any(commit.inputs for commit in found)
    called = {str(dataset.id): dataset.name for dataset in workspace.datasets()} if derived else {}

    def render(shown: Console) -> None:
        for commit in found:
            if oneline:
                shown.say(
                    f"{commit.short}  {_moment(str(commit.system_time))}  {commit.dataset}  {_did(commit)}"
                )
            else:
                _show_commit(shown, commit, marks.get(commit.block, []), called)
        if more:
            shown.say(f"… older commits are not shown; -n {number * 10} shows more, -n 0 all", "faint")

    document = {
        "workspace": workspace.location,
        "commits": [commit.to_dict() for commit in found],
        "more": more,
    }
    console.answer(document, render)


def _some(items: Iterator[Any], number: int) -> tuple[list[Any], bool]:
    """Take the first few, and say whether there are more."""
    if number == 0:
        return list(items), False
    found = list(islice(items, number + 1))
    return found[:number], len(found) > number


def _did(commit: Commit) -> str:
    watermark = f", watermark {_moment(str(commit.watermark))}" if commit.watermark is not None else ""
    return commit.summary + watermark


def _show_commit(shown: Console, commit: Commit, marks: list[str], names: Mapping[str, str]) -> None:
    shown.say(f"commit {commit.block}" + (f" ({', '.join(marks)})" if marks else ""), "strong")
    shown.say(f"Dataset: {commit.dataset}")
    shown.say(f"Date:    {_moment(str(commit.system_time))} UTC")
    size = f", {commit.size:,} bytes" if commit.size else ""
    shown.say(f"\n    {_did(commit)}{size}")
    for taken in commit.inputs:
        first = 0 if taken.prev_offset is None else taken.prev_offset + 1
        last = -1 if taken.last_offset is None else taken.last_offset
        name = names.get(str(taken.dataset_id), str(taken.dataset_id))
        new = f"offsets {first:,} to {last:,}" if last >= first else "nothing new"
        shown.say(f"    took {name}: {new}" + (f", {commit.strategy}" if commit.strategy else ""))
    for line in _details(commit):
        shown.say(f"    {line}")
    shown.say("")


def _details(commit: Commit) -> Iterator[str]:
    """Say where the rows of a commit came from, and which cells could not be read."""
    if commit.files:
        yield f"files: {_few(commit.files)}"
    if commit.bad:
        counts = _few([f"{column} {count:,}" for column, count in commit.bad.items()])
        see = f"`trueline show {commit.dataset}@{commit.short} --bad`"
        yield f"bad cells: {counts} ({see})"
    if commit.origins:
        yield f"from: {_few([str(origin) for origin in commit.origins])}"


def _few(texts: Sequence[str]) -> str:
    """The first of several texts, on one line each can be told from the next."""
    shown = ", ".join(one_line(text) for text in texts[:_SHOWN])
    return shown + (f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else "")


def _log_blocks(console: Console, datasets: list[Opened], number: int) -> None:
    pairs = ((dataset.name, name, block) for dataset, at in datasets for name, block in dataset.blocks(at))
    found, more = _some(pairs, number)

    def render(shown: Console) -> None:
        rows = [
            (dataset, block.sequence_number, name, _moment(str(block.system_time)), block.event.KIND)
            for dataset, name, block in found
        ]
        shown.table(["dataset", "number", "block", "time (UTC)", "event"], rows)
        if more:
            shown.say(f"… older blocks are not shown; -n {number * 10} shows more, -n 0 all", "faint")

    blocks = [
        {"dataset": dataset, "block": str(name), **masked_values(block.to_dict())}
        for dataset, name, block in found
    ]
    console.answer({"blocks": blocks, "more": more}, render)


@examples(
    "trueline schema sales",
    "trueline schema sales@2026-11-13 --system",
)
def schema(
    context: typer.Context,
    name: Named,
    system: Annotated[bool, typer.Option("--system", help="Show system and hidden columns too.")] = False,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show the columns of a dataset."""
    with session(context, directory, json) as here, here.workspace() as workspace:
        dataset, at = opened(workspace, name)
        found = dataset.stored_columns(system=system, at=at)

        def render(shown: Console) -> None:
            if found:
                hidden = [" (hidden)" * c.hidden for c in found]
                rows = [(c.name + mark, c.type, c.optional) for c, mark in zip(found, hidden, strict=True)]
                shown.table(["column", "type", "optional"], rows)
            else:
                shown.say("no columns yet: the first table that is appended decides them")

        columns = [
            {"name": c.name, "type": c.type, "optional": c.optional} | ({"hidden": True} if c.hidden else {})
            for c in found
        ]
        here.console.answer({"dataset": dataset.name, "columns": columns}, render)


def _in_words(length: float) -> str:
    """Say how long a time is, roughly.

    >>> [_in_words(s) for s in (0.4, 59, 3600, 200_000)]
    ['0 s', '59 s', '1 h', '2 d']
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if length >= size:
            return f"{int(length // size)} {unit}"
    return f"{max(0, int(length))} s"
