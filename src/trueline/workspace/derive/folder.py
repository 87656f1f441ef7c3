"""Definitions kept in a folder, one file for each dataset: compared with the workspace, then applied.

A file `balances.sql` defines the dataset `balances`, in whatever folder below it stands. What else there is
to say is in comments before the query that are YAML (`-- key: account`), or in `balances.yaml` beside it.
Lines `-- step NAME` begin steps.
A file of YAML alone names a function (`fn: module:name`), or is a DatasetSnapshot manifest. Which datasets
are of this folder is known by the file `.trueline-folder`, which is made in it when it is first applied.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trueline.chain import yaml_text
from trueline.chain.events import SetTransform
from trueline.chain.manifest import DatasetSnapshot
from trueline.check import DatasetCheck
from trueline.dataset.derivation import derivation_at
from trueline.errors import CorruptionError, InputError, ManifestError, TruelineError
from trueline.flow import nondet
from trueline.workspace.dependencies import referred
from trueline.workspace.derive.define import derive, same_as_there
from trueline.workspace.derive.folder_plan import FileChange, FolderPlan
from trueline.workspace.derive.function import function_of
from trueline.workspace.derive.input_tables import events_named, tables_read
from trueline.workspace.derive.redefine import OnChange
from trueline.workspace.derive.request import (
    DerivationRequest,
    GivenInputs,
    check_request,
    inputs_of,
    request_of_manifest,
)
from trueline.workspace.derive.spark_sql import parsed, qualified
from trueline.workspace.locations import holds_key
from trueline.workspace.names import check_name
from trueline.workspace.query_guard import unknown_tables

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

_SAID: Final = ("key", "event_time", "description", "inputs", "columns", "checks", "strategy")
_HEADER: Final = re.compile(rf"--\s?(?:{'|'.join(_SAID)})\s*:")
_STEP: Final = re.compile(r"^--\s*step\s+(\w+)\s*$", re.MULTILINE)
_YAML: Final = (".yaml", ".yml")
# A file of SQL larger than this is data.
_LONGEST: Final = 1 << 20
# Folders may have the same name and the same path on another machine: what is in here tells them apart.
MARKER: Final = ".trueline-folder"
_MARK: Final = re.compile(r"[0-9a-f]{32}")


def plan_folder(workspace: Workspace, folder: Path) -> FolderPlan:
    """Compare the files of a folder with the workspace; nothing is computed and nothing changes."""
    return _planned(workspace, folder, _mark(folder))[0]


def _planned(
    workspace: Workspace, folder: Path, mark: str | None
) -> tuple[FolderPlan, dict[str, DerivationRequest]]:
    requests: dict[str, DerivationRequest] = {}
    for each in _requests(folder):
        if each.name in requests:
            raise InputError(
                f"{each.file} and {requests[each.name].file} define the same dataset {each.name!r}",
                remedy="remove one of them",
                code="BadDefinitionFile",
            )
        requests[each.name] = replace(each, folder=mark)
    changes = tuple(_change(workspace, requests, name) for name in _in_order(requests, folder))
    vanished, elsewhere = _without_file(workspace, folder, mark, set(requests))
    return FolderPlan(changes, vanished, elsewhere=elsewhere), requests


def apply_folder(workspace: Workspace, folder: Path, *, prune: bool = False) -> FolderPlan:
    """Define what a folder says; datasets whose file vanished are deleted only if that is asked for."""
    plan, requests = _planned(workspace, folder, _mark(folder) or _marked(folder))
    for each in plan.changes:
        if each.kind != "same":
            derive(workspace, replace(requests[each.name], on_change=OnChange.REBUILD))
    pruned: list[str] = []
    if prune:
        for name in plan.vanished:
            workspace.delete(name)
            pruned.append(name)
    return replace(plan, pruned=tuple(pruned))


def _mark(folder: Path) -> str | None:
    """Return what tells a folder from others, None if it has no mark."""
    try:
        with (folder / MARKER).open(encoding="ascii") as file:
            found = file.readline(64).strip()
    except (OSError, ValueError):
        return None
    return found if _MARK.fullmatch(found) else None


def _marked(folder: Path) -> str | None:
    """Give a folder its mark; one that cannot be written to has none, and nothing is deleted for it."""
    if not folder.is_dir():
        return None
    made = uuid.uuid4().hex
    try:
        with (folder / MARKER).open("x", encoding="ascii") as file:
            file.write(f"{made}\nDatasets that were defined here are known by this file: keep it in git.\n")
    except OSError:
        return _mark(folder)  # somebody else was first
    return made


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
    function = None if request.fn is None else function_of(request.fn)
    found = same_as_there(workspace, request, inputs, function)
    found = found or list(_star_differences(workspace, request, inputs))
    return FileChange(name, "changed" if found else "same", tuple(found))


def _star_differences(workspace: Workspace, request: DerivationRequest, inputs: GivenInputs) -> Iterator[str]:
    """Say which columns the stars of a query stand for now, and did not when it was defined."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    there = derivation_at(workspace[request.name]._tail)
    assert there is not None
    read = tables_read((text for _, text in request.queries), list(inputs.datasets))
    tables: dict[str, object] = {
        table.name: dict.fromkeys(table.view(inputs.datasets[table.alias]).columns, "string")
        for table in read
    }
    try:
        for (name, text), recorded in zip(request.queries, there.queries, strict=False):
            query = qualified(parsed(text), tables)
            before = parsed(recorded.query)
            tables[name] = dict.fromkeys(getattr(query, "named_selects", ()), "string")
            if not _has_star(parsed(text)) or _has_star(before):
                continue
            now, then = ({each.name for each in found.find_all(exp.Column)} for found in (query, before))
            if now - then:
                yield f"query: * stands for {', '.join(sorted(now - then))} now, too"
    except (SqlglotError, RecursionError):
        return  # Spark sees it when it is applied


def _has_star(query: Any) -> bool:
    from sqlglot import exp

    return any(select.is_star for select in query.find_all(exp.Select))


def _without_file(
    workspace: Workspace, folder: Path, mark: str | None, there: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the datasets whose files this folder no longer has, and those of other folders of its name.

    Readers come first.
    """
    below: dict[str, set[str]] = {}
    names = workspace._names_by_id()
    elsewhere: list[str] = []
    for dataset in workspace.datasets():
        derivation = None
        with suppress(CorruptionError, InputError):  # whoever looks at the dataset itself is told
            derivation = derivation_at(dataset._tail)
        if derivation is None or derivation.file is None or dataset.name in there:
            continue
        if not holds_key(workspace._location, dataset.id):
            continue  # a copy of somebody's: its file was never here
        if derivation.folder is not None and derivation.folder == mark:
            checked = {str(referred(check, names)) for check in derivation.checks}
            below[dataset.name] = {*dataset.inputs, *checked} - {dataset.name}
        elif derivation.file.partition("/")[0] == folder.resolve().name:
            elsewhere.append(dataset.name)
    order = TopologicalSorter({name: inputs & set(below) for name, inputs in below.items()})
    return tuple(reversed(list(order.static_order()))), tuple(elsewhere)


# --- files ------------------------------------------------------------------------------------------


def _requests(folder: Path) -> Iterator[DerivationRequest]:
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder", remedy="name a folder with files of SQL", code="NoFolder"
        )
    for path in sorted(_files(folder)):
        if path.suffix.lower() == ".sql":
            request = request_of(path, path.stem)
        elif path.with_suffix(".sql").exists():
            continue  # what is said beside a query
        else:
            request = _request_of_yaml(path)
        check_request(request)
        yield replace(request, file=f"{folder.resolve().name}/{path.relative_to(folder).as_posix()}")


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those below it, but for hidden ones."""
    for path in folder.rglob("*"):
        below = path.relative_to(folder).parts[:-1]
        if path.suffix.lower() in (".sql", *_YAML) and not any(part.startswith(".") for part in below):
            yield path


def request_of(path: Path, name: str) -> DerivationRequest:
    """Read one file of SQL, with what is said in it and beside it."""
    text = _read(path)
    header, query = _split(text, path)
    for ending in _YAML:
        beside = path.with_suffix(ending)
        if beside.exists():
            header = {**header, **_mapping(_read(beside), beside)}
    steps = _steps(query)
    return _request(name, header, path, sql=steps if len(steps) > 1 else query.strip())


def _request_of_yaml(path: Path) -> DerivationRequest:
    """Read a file of YAML that stands alone: a manifest, or one that names a function."""
    said = _mapping(_read(path), path)
    if "fn" in said:
        function = said.pop("fn")
        return _request(path.stem, said, path, fn=str(function))
    if "kind" not in said:
        raise InputError(
            f"{path} defines nothing: there is no {path.stem}.sql, and it names no function",
            remedy=f"write {path.stem}.sql beside it, or fn: module:function into it, or a DatasetSnapshot",
            code="BadDefinitionFile",
        )
    try:
        snapshot = DatasetSnapshot.from_dict(said)
        request = request_of_manifest(snapshot) if _is_derived(snapshot) else None
    except ManifestError as error:
        raise InputError(f"{path}: {error.problem}", remedy=error.remedy, code="BadDefinitionFile") from None
    if request is None:
        raise InputError(
            f"{path} defines no dataset that is derived here",
            remedy=f"make it: `trueline create -f {path}`",
            code="BadDefinitionFile",
        )
    return replace(request, name=check_name(snapshot.name))


def _is_derived(snapshot: DatasetSnapshot) -> bool:
    return any(isinstance(each, SetTransform) and each.transform.is_ours for each in snapshot.events)


def _request(name: str, header: Mapping[str, Any], path: Path, **what: Any) -> DerivationRequest:
    unknown = sorted(set(header) - set(_SAID))
    if unknown:
        raise InputError(
            f"{path}: {unknown[0]!r} is not part of a definition",
            remedy=f"what can be said is {', '.join(_SAID)}",
            code="BadDefinitionFile",
        )
    return DerivationRequest(
        check_name(name),
        inputs=_inputs(header.get("inputs"), path),
        key=header.get("key"),
        event_time=header.get("event_time"),
        description=header.get("description"),
        checks=tuple(DatasetCheck.of(each, path.name) for each in header.get("checks", ())),
        columns=header.get("columns", {}),
        strategy=header.get("strategy", "auto"),
        **what,
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
    """Return the names so that each comes after those it reads, or is checked against."""
    known = {name.lower(): name for name in requests}
    graph: dict[str, set[str]] = {}
    for name, request in requests.items():
        checked = [str(each.option("dataset")) for each in request.checks if each.kind == "relation"]
        tables = [*_tables(request), *(each for each in checked if each != name)]
        graph[name] = {known[table.lower()] for table in tables if table.lower() in known}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        way = " ← ".join(map(repr, error.args[1]))
        raise InputError(
            f"the files of {folder} are computed from each other: {way}",
            remedy="let one of them read other datasets",
            code="Cycle",
        ) from None
