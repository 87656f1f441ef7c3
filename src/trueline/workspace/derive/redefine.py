"""Another definition under the same name: rebuilt, carried on from here, or in a new chain (derive:V15)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from trueline.chain.datatypes import DataSchema
from trueline.chain.events import DatasetKind, Event, SetDataSchema, SetInfo
from trueline.chain.head_state import linked
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of, schema_findings
from trueline.dataset.append.intake import EVENT_TIME
from trueline.dataset.definition import strategy_of
from trueline.dataset.derivation import COPY, Derivation, derivation_at, described
from trueline.errors import CorruptionError, DatasetExists, DataWarning, InputError, visible
from trueline.merge import Append, Ledger
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.derive.input_tables import tables_of
from trueline.workspace.locations import holds_key

if TYPE_CHECKING:
    from trueline.chain.head_state import Tail
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.dependencies import DatasetNode, Dependencies
    from trueline.workspace.workspace import Workspace


class OnChange(StrEnum):
    """What happens where a dataset has another definition: an error, a rebuild, or the new one from here."""

    ERROR = "error"
    REBUILD = "rebuild"
    FROM_HERE = "from_here"


def redefine(
    workspace: Workspace, dataset: Dataset, derivation: Derivation, schema: DataSchema, on_change: OnChange
) -> Dataset:
    """Give an existing dataset another definition; the next pull records what that changes.

    Where the columns cannot follow in the same chain (chain:H2) a new chain takes the name.
    """
    chain, tail = dataset.chain, dataset._tail
    there = derivation_at(tail)
    found = derivation.differences(chain, schema)
    if not found and there is not None and there.queries != derivation.queries:
        # The same text, whose stars now stand for other columns.
        found = ["query: what * stands for has changed"]
    if not found and there is not None and there.from_here and on_change is OnChange.REBUILD:
        found = ["rows: those from before the definition are computed anew"]
    if not found:
        return dataset
    if there is None or on_change is OnChange.ERROR:
        raise _exists_otherwise(dataset.name, found, changeable=there is not None)
    if on_change is OnChange.FROM_HERE:
        _check_from_here(workspace, there, derivation, tail, schema)
    elif not _follows(tail, derivation, schema):
        return _replace(workspace, dataset, derivation, schema)
    derivation = replace(derivation, replaces=there.replaces, from_here=on_change is OnChange.FROM_HERE)
    events = list(_events(dataset, there, derivation, schema))
    _append(workspace, dataset, events)
    return dataset


def _exists_otherwise(name: str, found: list[str], *, changeable: bool) -> DatasetExists:
    change = 'change it with on_change="rebuild" (`--on-change rebuild`)'
    return DatasetExists(
        f"dataset {name!r} exists with another definition\n" + "\n".join(f"    {line}" for line in found),
        remedy=f"use ws[{name!r}] to open it as it is, or {change if changeable else 'choose another name'}",
        name=name,
        differences=tuple(found),
    )


def _append(workspace: Workspace, dataset: Dataset, events: list[Event]) -> None:
    chain = dataset.chain
    with dataset._writing, chain.store.turn():
        tail = dataset._tail
        now = (workspace.clock or Instant.now)()
        # A time of its own: neighbours with equal times are one commit.
        chain.append(*linked(tail, events, Instant(max(now, tail.system_time + 1))))


# --- in the same chain ----------------------------------------------------------------------------


def _events(dataset: Dataset, there: Derivation, asked: Derivation, schema: DataSchema) -> Iterator[Event]:
    """Yield what brings a chain to a definition; SetTransform only if rows may come out otherwise."""
    tail = dataset._tail
    if asked.event_time != tail.vocab.event_time_column:
        yield replace(tail.vocab, event_time_column=asked.event_time)
    same = asked.transform == there.transform and asked.key == there.key
    same = same and (asked.canonical, asked.nondet) == (there.canonical, there.nondet)
    same = same and asked.from_here == there.from_here and asked.leaving_out == there.leaving_out
    if not same or asked.function != there.function:
        yield asked.transform
    if asked.description is not None and asked.description != described(dataset.chain):
        yield SetInfo(description=asked.description)
    if asked.attachments != tail.attachments:
        yield asked.attachments
    after = _merged(tail, schema)
    if after.fields != _fields(tail):
        yield SetDataSchema(schema=after)


def events_of_version(dataset: Dataset, asked: Derivation, schema: DataSchema) -> list[Event]:
    """Return what records a definition in the canonical queries of another version."""
    there = derivation_at(dataset._tail)
    assert there is not None
    return list(_events(dataset, there, asked, schema))


def append_definition(
    workspace: Workspace, dataset: Dataset, derivation: Derivation, schema: SetDataSchema | None
) -> None:
    """Bring a chain to a definition that it had before it was reset."""
    there = derivation_at(dataset._tail)
    assert there is not None
    assert schema is not None
    events = list(_events(dataset, there, derivation, DataSchema(fields_of(schema))))
    if events:
        _append(workspace, dataset, events)


def _fields(tail: Tail) -> tuple[object, ...]:
    return fields_of(tail.schema) if tail.schema is not None else ()


def _merged(tail: Tail, schema: DataSchema) -> DataSchema:
    """Return the columns in the order they have, the new ones behind them."""
    new = {field.name: field for field in schema.fields}
    # Rows that were a bag keep the number of the copy, which nobody sees.
    if tail.schema is not None:
        new |= {field.name: field for field in fields_of(tail.schema) if field.name == COPY}
    before = [field.name for field in (fields_of(tail.schema) if tail.schema is not None else ())]
    order = [*(name for name in before if name in new), *(name for name in new if name not in before)]
    return type(schema)(tuple(new[name] for name in order))


def _follows(tail: Tail, derivation: Derivation, schema: DataSchema) -> bool:
    """Say whether a definition can follow in the same chain: event time and columns decide."""
    declared = tail.vocab.event_time_column
    # Every dataset has the column of this name, null until an event time is declared.
    if declared != derivation.event_time and (declared, derivation.event_time) != (None, EVENT_TIME):
        return False
    after = SetDataSchema(schema=_merged(tail, schema))
    return not any(rule != "H1" for rule, _, _ in schema_findings(tail.schema, after, tail.vocab))


def _check_from_here(
    workspace: Workspace, there: Derivation, derivation: Derivation, tail: Tail, schema: DataSchema
) -> None:
    """Refuse to go on from here where rows that are there could change later (derive:V1)."""
    why = None
    if derivation.strategy != "stateless" or there.strategy != "stateless":
        why = "rows that are there already would change with later rows"
    elif (other := _not_append_only(workspace, derivation)) is not None:
        why = f"rows of {other!r} can be corrected, which would have to be undone by the old definition"
    elif derivation.key != there.key or not _follows(tail, derivation, schema):
        why = "the key or the columns are other ones"
    elif [each.dataset_ref for each in there.inputs] != [each.dataset_ref for each in derivation.inputs]:
        why = "the inputs are other ones"
    if why is not None:
        raise InputError(
            f"the new definition cannot hold from here on: {why}",
            remedy='give on_change="rebuild", which records what changes in all rows',
            code="NotFromHere",
        )


def _not_append_only(workspace: Workspace, derivation: Derivation) -> str | None:
    """Name an input whose rows can change, None if all of them only get more."""
    names = workspace._names_by_id()
    # Events are never taken back.
    read = {table.alias for table in tables_of(derivation) if not table.kind.is_events}
    for each in derivation.inputs:
        name = names.get(each.dataset_ref, each.dataset_ref)
        if each.alias not in read:
            continue
        if name not in workspace:
            return name
        tail = workspace[name]._tail
        above = derivation_at(tail)
        if above is None and not isinstance(strategy_of(tail), Append | Ledger):
            return name
        if above is not None and (above.strategy != "stateless" or _not_append_only(workspace, above)):
            return name
    return None


# --- in a new chain -------------------------------------------------------------------------------


def _replace(workspace: Workspace, dataset: Dataset, derivation: Derivation, schema: DataSchema) -> Dataset:
    """Make a new dataset under the name; the old one keeps its id and is called `name.` and part of that."""
    name, old = dataset.name, str(dataset.id)
    derivation = replace(derivation, replaces=old)

    def differences(chain: object) -> list[str]:
        return derivation.differences(chain, schema)  # type: ignore[arg-type]

    plan = CreationPlan(lambda new_id, now: derivation.blocks(new_id, schema, now), differences)
    # A crash in between leaves it under this name; the next attempt finds and takes it.
    waiting = f"{name[:100]}.next"
    with suppress(InputError):
        _discard_other(workspace, waiting, derivation)
    made = make(workspace, waiting, plan)
    former = f"{name[:100]}.{old[-8:]}"
    workspace._catalogue.exchange(dataset._folder, former, made._folder, name)
    dataset.name, made.name = former, name
    _tell(workspace, name, former, old)
    return made


def _discard_other(workspace: Workspace, name: str, derivation: Derivation) -> None:
    """Remove what an earlier attempt left under a name, if it was of another definition."""
    if name in workspace and derivation.differences(workspace[name].chain):
        workspace.delete(name)


def _tell(workspace: Workspace, name: str, former: str, old: str) -> None:
    resting = sorted(each.name for each in resting_on(workspace, old))
    if not resting:
        return
    shown = ", ".join(map(repr, resting))
    again = ", ".join(f"ws[{each!r}].reset(rebuild=True)" for each in resting)
    warnings.warn(
        visible(
            f"{name} has a new chain, because its columns could not follow in the old one, which is now"
            f" {former!r}; {shown} rest{'s' * (len(resting) == 1)} on the old one\n  → {again}"
        ),
        DataWarning,
        stacklevel=6,
    )


def tell_hidden(dataset: Dataset, column: str) -> None:
    """Say which definitions name a column that is hidden now: the next pull does not find it (derive:V28)."""
    shown = f"`{column.replace('`', '``')}`"
    naming = []
    for each in resting_on(dataset.workspace, str(dataset.id)):
        with suppress(InputError):  # what it is computed by cannot be read
            there = derivation_at(each._tail)
            if there is not None and any(shown in text for text in there.canonical):
                naming.append(each.name)
    if naming:
        who = ", ".join(map(repr, sorted(naming)))
        warnings.warn(
            visible(
                f"column {column!r} of {dataset.name!r} is hidden now, and {who}"
                f" may read it\n  → show it again, or define what reads it without it"
            ),
            DataWarning,
            stacklevel=4,
        )


# --- what rests on what ---------------------------------------------------------------------------


def resting_on(workspace: Workspace, dataset_id: str) -> list[Dataset]:
    """Return the datasets that are computed directly from one, as their definitions in force say."""
    found = []
    for dataset in workspace.datasets():
        with suppress(CorruptionError):  # what it is computed from cannot be read
            transform = dataset._tail.transform
            if transform is not None and any(each.dataset_ref == dataset_id for each in transform.inputs):
                found.append(dataset)
    return found


def replacements(workspace: Workspace) -> dict[str, str]:
    """Return, for the ids of datasets that lost their name to a new chain, who has that name now."""
    found = {}
    for dataset in workspace.datasets():
        with suppress(CorruptionError, InputError):
            tail = dataset._tail
            derivation = derivation_at(tail) if tail.dataset_kind is DatasetKind.Derivative else None
            # A copy of somebody's dataset may say anything of ours.
            ours = holds_key(workspace._location, tail.dataset_id)
            if derivation is not None and derivation.replaces is not None and ours:
                found[derivation.replaces] = dataset.name
    return found


def _replaced(workspace: Workspace, known: Dependencies) -> dict[str, str]:
    """Return the same of datasets that were looked at."""
    found = {}
    for node in known.nodes.values():
        replaces = None if node.derivation is None else node.derivation.replaces
        if replaces is not None and node.id is not None and holds_key(workspace._location, node.id):
            found[replaces] = node.name
    return found


def in_force(workspace: Workspace, known: Dependencies) -> list[str]:
    """Return the names of all datasets but those that lost their name to a new chain."""
    replaced = _replaced(workspace, known)
    return [name for name, node in known.nodes.items() if str(node.id) not in replaced]


def refuse_replaced(known: Dependencies, node: DatasetNode, tail: Tail) -> None:
    """Refuse to follow an input that has lost its name to a new chain (derive:V16)."""
    name = node.name
    replaced = _replaced(node.dataset._workspace, known)
    taken = {str(each): at.last_block for each, at in tail.taken.items()}
    for read in node.derivation.inputs if node.derivation is not None else ():
        if (new := replaced.get(read.dataset_ref)) is None:
            continue
        block, now = taken.get(read.dataset_ref), known[new].dataset.head
        upto = "" if block is None else f" up to block {block}"
        raise InputError(
            f"{name!r} is computed from {read.dataset_ref}{upto}, which was replaced:"
            f" {new!r} is {known[new].id} now, at block {now}",
            remedy=f"compute it from the new one: ws[{name!r}].reset(rebuild=True)",
            code="InputReplaced",
            dataset=name,
            input=read.alias,
            taken=block,
            now=now,
        )


def refuse_cycle(workspace: Workspace, name: str, inputs: Mapping[str, Dataset]) -> None:
    """Refuse inputs that are the dataset itself, or are computed from it; the error shows the way round."""
    names = workspace._names_by_id()
    for each in inputs.values():
        way = _way(workspace, each.name, name, names, set())
        if way is not None:
            shown = " ← ".join(map(repr, [name, *way]))
            raise InputError(
                f"{name!r} cannot be an input of itself: {shown}",
                remedy="give the derived dataset another name, or other inputs",
                code="Cycle",
                way=(name, *way),
            )


def _way(
    workspace: Workspace, start: str, goal: str, names: Mapping[str, str], seen: set[str]
) -> list[str] | None:
    """Return the names from one dataset down its inputs to another, None if that is not below it."""
    if start == goal:
        return [start]
    if start in seen or start not in workspace:
        return None
    seen.add(start)
    transform = workspace[start]._tail.transform
    for source in transform.inputs if transform is not None else ():
        below = names.get(source.dataset_ref)
        if below is not None and (way := _way(workspace, below, goal, names, seen)) is not None:
            return [start, *way]
    return None
