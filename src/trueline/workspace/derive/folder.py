"""Definitions kept in a folder, one file of SQL for each dataset: compared with the workspace, then applied.

A file `balances.sql` defines the dataset `balances`. What else there is to say stands before the query, in
comments that are YAML (`-- key: account`), or in `balances.yaml` beside it. Lines `-- step NAME` begin steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trueline.chain import yaml_text
from trueline.check import DatasetCheck
from trueline.dataset.derivation import derivation_at
from trueline.errors import InputError, ManifestError, TruelineError
from trueline.flow import nondet
from trueline.workspace.derive.define import derive, same_as_there
from trueline.workspace.derive.folder_plan import FileChange, FolderPlan
from trueline.workspace.derive.input_tables import events_named
from trueline.workspace.derive.redefine import OnChange
from trueline.workspace.derive.request import DerivationRequest, inputs_of
from trueline.workspace.locations import holds_key
from trueline.workspace.names import check_name
from trueline.workspace.query_guard import unknown_tables

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

_SAID: Final = ("key", "event_time", "description", "inputs", "columns", "checks", "strategy")
_HEADER: Final = re.compile(rf"--\s?(?:{'|'.join(_SAID)})\s*:")
_STEP: Final = re.compile(r"^--\s*step\s+(\w+)\s*$", re.MULTILINE)
# A file of SQL larger than this is data.
_LONGEST: Final = 1 << 20


def plan_folder(workspace: Workspace, folder: Path) -> FolderPlan:
    """Compare the files of a folder with the workspace; nothing is computed and nothing changes."""
    return _planned(workspace, folder)[0]


def _planned(workspace: Workspace, folder: Path) -> tuple[FolderPlan, dict[str, DerivationRequest]]:
    requests = {each.name: each for each in _requests(folder)}
    changes = tuple(_change(workspace, requests, name) for name in _in_order(requests, folder))
    return FolderPlan(changes, tuple(_vanished(workspace, folder, set(requests)))), requests


def apply_folder(workspace: Workspace, folder: Path, *, prune: bool = False) -> FolderPlan:
    """Define what a folder says; datasets whose file vanished are deleted only if that is asked for."""
    plan, requests = _planned(workspace, folder)
    for each in plan.changes:
        if each.kind != "same":
            derive(workspace, replace(requests[each.name], on_change=OnChange.REBUILD))
    pruned: list[str] = []
    if prune:
        for name in plan.vanished:
            workspace.delete(name)
            pruned.append(name)
    return replace(plan, pruned=tuple(pruned))


def _change(workspace: Workspace, requests: Mapping[str, DerivationRequest], name: str) -> FileChange:
    request = requests[name]
    if name not in workspace:
        return FileChange(name, "new")
    try:
        inputs = inputs_of(workspace, request)
    except TruelineError as error:
        if set(_tables(request)) & set(requests):
            return FileChange(name, "changed", ("inputs: some of them are new",))
        raise error from None
    found = same_as_there(workspace, request, inputs)
    return FileChange(name, "changed" if found else "same", tuple(found))


def _vanished(workspace: Workspace, folder: Path, there: set[str]) -> Iterator[str]:
    """Name the datasets that were defined by files which this folder no longer has, readers first."""
    below: dict[str, set[str]] = {}
    for dataset in workspace.datasets():
        derivation = derivation_at(dataset._tail)
        if derivation is None or derivation.file is None or dataset.name in there:
            continue
        if not holds_key(workspace._location, dataset.id):
            continue  # a copy of somebody's: its file was never here
        if derivation.file.rpartition("/")[0] == folder.resolve().name:
            below[dataset.name] = set(dataset.inputs)
    order = TopologicalSorter({name: inputs & set(below) for name, inputs in below.items()})
    yield from reversed(list(order.static_order()))


# --- files ------------------------------------------------------------------------------------------


def _requests(folder: Path) -> Iterator[DerivationRequest]:
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder", remedy="name a folder with files of SQL", code="NoFolder"
        )
    for path in sorted(folder.glob("*.sql")):
        yield request_of(path, path.stem)


def request_of(path: Path, name: str) -> DerivationRequest:
    """Read one file of SQL, with what is said in it and beside it."""
    text = _read(path)
    header, query = _split(text, path)
    for ending in (".yaml", ".yml"):
        beside = path.with_suffix(ending)
        if beside.exists():
            header = {**header, **_mapping(_read(beside), beside)}
    unknown = sorted(set(header) - set(_SAID))
    if unknown:
        raise InputError(
            f"{path}: {unknown[0]!r} is not part of a definition",
            remedy=f"what can be said is {', '.join(_SAID)}",
            code="BadDefinitionFile",
        )
    steps = _steps(query)
    return DerivationRequest(
        check_name(name),
        steps if len(steps) > 1 else query.strip(),
        _inputs(header.get("inputs"), path),
        header.get("key"),
        header.get("event_time"),
        header.get("description"),
        None,
        tuple(DatasetCheck.of(each, path.name) for each in header.get("checks", ())),
        header.get("columns", {}),
        header.get("strategy", "auto"),
        file=f"{path.parent.resolve().name}/{path.name}",
    )


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LONGEST:
            raise InputError(f"{path} is larger than a megabyte", remedy="name files of SQL")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}", remedy="check the path") from None


def _split(text: str, path: Path) -> tuple[dict[str, Any], str]:
    """Return what the comments before the query say, and the query."""
    lines = text.splitlines()
    head = 0
    while head < len(lines) and (lines[head].startswith("--") or not lines[head].strip()):
        if _STEP.match(lines[head]):
            break
        head += 1
    comments = [line[2:].removeprefix(" ") for line in lines[:head] if line.startswith("--")]
    first = next((at for at, line in enumerate(lines[:head]) if _HEADER.match(line)), None)
    if first is None:
        return {}, text
    skipped = sum(line.startswith("--") for line in lines[:first])
    return _mapping("\n".join(comments[skipped:]), path), "\n".join(lines[head:])


def _mapping(text: str, path: Path) -> dict[str, Any]:
    try:
        value = yaml_text.load(text)
    except ManifestError as error:
        raise InputError(f"{path}: {error.problem}", remedy=error.remedy, code="BadDefinitionFile") from None
    if not isinstance(value, Mapping):
        raise InputError(
            f"{path} does not say name: value",
            remedy="write for example `-- key: account`",
            code="BadDefinitionFile",
        )
    return {str(name): said for name, said in value.items()}


def _steps(query: str) -> list[tuple[str, str]]:
    parts = _STEP.split(query)
    return list(zip(parts[1::2], parts[2::2], strict=True)) if len(parts) > 1 else [("", query)]


def _inputs(given: Any, path: Path) -> Any:
    """Read the inputs: `{nondet: why}`, with the `dataset` if the alias is not its name, is read as it is."""
    if not isinstance(given, Mapping):
        return given
    found: dict[str, Any] = {}
    for alias, said in given.items():
        if isinstance(said, Mapping):
            if "nondet" not in said or not set(said) <= {"dataset", "nondet"}:
                raise InputError(
                    f"{path}: the input {alias!r} says {', '.join(map(str, said)) or 'nothing'}",
                    remedy="write the name of a dataset, or nondet with the reason",
                    code="BadDefinitionFile",
                )
            found[alias] = (str(said.get("dataset", alias)), nondet(str(said["nondet"])))
        else:
            found[alias] = said
    return found


def _tables(request: DerivationRequest) -> list[str]:
    if request.inputs is not None:
        given = request.inputs.values() if isinstance(request.inputs, Mapping) else request.inputs
        return [str(each[0] if isinstance(each, tuple) else each) for each in given]
    steps = [name for name, _ in request.steps]
    found: list[str] = []
    for _, text in request.queries:
        found += [*unknown_tables(text, steps), *events_named(text)]
    return found


def _in_order(requests: Mapping[str, DerivationRequest], folder: Path) -> list[str]:
    """Return the names so that each comes after those it reads."""
    known = {name.lower(): name for name in requests}
    graph = {
        name: {known[table.lower()] for table in _tables(request) if table.lower() in known}
        for name, request in requests.items()
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        way = " ← ".join(map(repr, error.args[1]))
        raise InputError(
            f"the files of {folder} are computed from each other: {way}",
            remedy="let one of them read other datasets",
            code="Cycle",
        ) from None
