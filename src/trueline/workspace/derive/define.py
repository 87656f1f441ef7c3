"""Defining a derived dataset: what is asked for is checked by sqlglot and by Spark, and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from trueline.chain.datatypes import DataSchema
from trueline.chain.schema import fields_of, hidden
from trueline.check import checked
from trueline.dataset.append.intake import EVENT_TIME, whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import (
    CANONICAL,
    COPY,
    Derivation,
    FunctionOf,
    KeyKind,
    derivation_at,
    described,
)
from trueline.errors import InputError, SchemaError
from trueline.flow import nondet
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.derive.checks import bound, check_definition, refuse_circle_of_checks
from trueline.workspace.derive.evaluate import QuerySession, query_session
from trueline.workspace.derive.function import allow, function_of, result_of_function
from trueline.workspace.derive.input_tables import (
    EVENT_KINDS,
    InputTable,
    TableKind,
    offset_column,
    tables_read,
)
from trueline.workspace.derive.output_keys import key_of
from trueline.workspace.derive.part_types import PartType
from trueline.workspace.derive.redefine import OnChange, redefine, refuse_cycle, replacements
from trueline.workspace.derive.reproducible import BY_OFFSET
from trueline.workspace.derive.request import (
    DerivationRequest,
    GivenInputs,
    check_request,
    inputs_of,
    steps_of,
)
from trueline.workspace.derive.statements import check_steps
from trueline.workspace.derive.strategies import with_strategy
from trueline.workspace.names import check_name
from trueline.workspace.query_guard import tokens

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


def derive(workspace: Workspace, request: DerivationRequest) -> Dataset:
    """Make a derived dataset; the same definition again returns it, another raises with the difference."""
    check_name(request.name)
    check_request(request)
    function = None if request.fn is None else function_of(request.fn)
    inputs = inputs_of(workspace, request)
    refuse_cycle(workspace, request.name, inputs.datasets)
    there = _same(workspace, request, inputs, function)
    if there is not None:
        return _allowing(workspace, there, function)
    derivation, schema = defined(workspace, request, inputs, function)
    if request.name in workspace:
        change = OnChange(request.on_change)
        made = redefine(workspace, workspace[request.name], derivation, schema, change)
        return _allowing(workspace, made, function)

    def differences(chain: Any) -> list[str]:
        return derivation.differences(chain, schema)

    plan = CreationPlan(lambda dataset_id, now: derivation.blocks(dataset_id, schema, now), differences)
    return _allowing(workspace, make(workspace, request.name, plan), function)


def derived_again(workspace: Workspace, dataset: Dataset) -> Dataset:
    """Define a dataset again as it was written, from those who now have the names of its inputs."""
    there = derivation_at(dataset._tail)
    assert there is not None
    names = {**workspace._names_by_id(), **replacements(workspace)}
    return derive(workspace, _request_again(dataset, there, steps_of(there), names))


def defined_again(workspace: Workspace, dataset: Dataset) -> tuple[Derivation, DataSchema]:
    """Return a definition in canonical queries of this version, and its columns; nothing else changes.

    What stars stand for is as it was recorded. A function has no queries.
    """
    there, tail = derivation_at(dataset._tail), dataset._tail
    assert there is not None
    assert tail.schema is not None
    if there.function is not None:
        return replace(there, version=CANONICAL), DataSchema(fields_of(tail.schema))
    steps = [(step.alias or "", step.query) for step in there.queries]
    request = _request_again(dataset, there, steps, workspace._names_by_id())
    derivation, schema = defined(workspace, request, inputs_of(workspace, request))
    return replace(
        derivation,
        written=there.written,
        steps=there.steps,
        replaces=there.replaces,
        from_here=there.from_here,
    ), schema


def _request_again(
    dataset: Dataset, there: Derivation, sql: str | list[tuple[str, str]], names: Mapping[str, str]
) -> DerivationRequest:
    """Return what asks for a definition again, its inputs by the names that their ids have."""
    given: dict[str, Any] = {}
    for each in there.inputs:
        alias, name = each.alias or "", names.get(each.dataset_ref, each.dataset_ref)
        given[alias] = (name, nondet(there.nondet[alias])) if alias in there.nondet else name
    return DerivationRequest(
        dataset.name,
        None if there.function is not None else sql,
        given,
        there.key if there.identity is KeyKind.DECLARED else None,
        there.event_time,
        described(dataset.chain),
        None if there.function is None else there.function.path,
        there.checks,
        there.columns,
        on_change=OnChange.REBUILD,
        file=there.file,
        folder=there.folder,
    )


def _allowing(workspace: Workspace, dataset: Dataset, function: FunctionOf | None) -> Dataset:
    """Let the function that was named here be called for a dataset."""
    if function is not None:
        allow(workspace, dataset.id, function)
    return dataset


def defined(
    workspace: Workspace, request: DerivationRequest, inputs: GivenInputs, function: FunctionOf | None = None
) -> tuple[Derivation, DataSchema]:
    """Check a definition with Spark; return it and the columns of its result. Nothing is recorded."""
    aliases = list(inputs.datasets)
    offsets = _offset_tables(request, inputs.datasets)
    check_steps(request.queries, aliases, ordered=bool(offsets))
    views = {alias: dataset.view() for alias, dataset in inputs.datasets.items()}
    for table in tables_read((text for _, text in request.queries), aliases):
        views[table.name] = table.view(inputs.datasets[table.alias])
    for table in offsets:
        views[table.name] = table.view(inputs.datasets[table.alias])
    for alias, view in views.items():
        if not view.columns:
            raise SchemaError(
                f"input {alias!r} has no columns yet",
                remedy="append rows to it, or create it with a schema",
                code="InputSchemaNotDefined",
            )
    from trueline.workspace.derive.judge import with_offsets

    # Whoever calls `derive` names the function.
    with query_session(workspace, views, function) as session:
        if function is None:
            ordered = with_offsets(session, inputs.datasets, offsets)
            derivation, schema = _defined(ordered, request, inputs.datasets)
            derivation = with_strategy(derivation, inputs.datasets, session)
        else:
            derivation, schema = _defined_by_function(session, request, function)
    derivation = replace(
        derivation.over(inputs.named),
        written=request.written if function is None else function.path,
        steps=request.recorded_steps,
        nondet=inputs.nondet,
        checks=checked(request.checks),
        columns=dict(request.columns),
        file=request.file,
        folder=request.folder,
    )
    _check_columns(derivation, schema)
    checks = check_definition(workspace, derivation.checks, schema)
    refuse_circle_of_checks(workspace, request.name, checks)
    derivation = replace(derivation, checks=checks)
    if request.strategy == "incremental" and derivation.strategy == "recompute":
        raise InputError(
            f"{request.name!r} can only be recomputed: {derivation.reason}",
            remedy='leave out strategy="incremental": it is then recomputed and the difference recorded',
            code="NotIncremental",
            reason=derivation.reason,
        )
    return derivation, schema


def _same(
    workspace: Workspace, request: DerivationRequest, inputs: GivenInputs, function: FunctionOf | None
) -> Dataset | None:
    """Return the dataset if it has this definition: that is seen without Spark."""
    if request.name not in workspace or request.on_change != "error":
        return None
    dataset = workspace[request.name]
    if derivation_at(dataset._tail) is None:
        return None
    return None if same_as_there(workspace, request, inputs, function) else dataset


def same_as_there(
    workspace: Workspace, request: DerivationRequest, inputs: GivenInputs, function: FunctionOf | None = None
) -> list[str]:
    """Say how an existing dataset differs from what is asked for, as far as that is seen without Spark."""
    dataset = workspace[request.name]
    there = derivation_at(dataset._tail)
    if there is None:
        return ["kind: it is not derived here"]
    key, identity = there.key, there.identity
    if request.declared_key is not None:
        key, identity = request.declared_key, KeyKind.DECLARED
    elif identity is KeyKind.DECLARED:
        key, identity = (), KeyKind.BAG
    asked = replace(
        there,
        written=request.written if function is None else function.path,
        steps=request.recorded_steps,
        inputs=inputs.named,
        nondet=inputs.nondet,
        key=key,
        identity=identity,
        event_time=request.event_time or _by_its_name(there.event_time),
        checks=bound(workspace, checked(request.checks)),
        columns=dict(request.columns),
        description=request.description,
        function=function,
    )
    found = asked.differences(dataset.chain)
    if request.strategy == "incremental" and there.strategy == "recompute":
        found.append(f"strategy: it is recompute ({there.reason}), asked for is incremental")
    return found


def _check_columns(derivation: Derivation, schema: DataSchema) -> None:
    """Refuse descriptions of columns that the result does not have."""
    for name, text in derivation.columns.items():
        if name not in schema.names:
            close = get_close_matches(name, schema.names, n=1)
            shown = ", ".join(schema.names[4:])
            raise SchemaError(
                f"column {name!r} is described, and the result has no such column",
                remedy=f"did you mean {close[0]!r}?" if close else f"the columns are {shown}",
                column=name,
            )
        if not isinstance(text, str):
            raise InputError(f"the description of column {name!r} is not text", remedy="give text")


def _offset_tables(request: DerivationRequest, inputs: Mapping[str, Dataset]) -> list[InputTable]:
    """Return the tables with offsets that `first` and `last` can be computed from, if there are any."""
    words = {token.name for _, text in request.queries for token in tokens(text)}
    tables = (InputTable(alias, TableKind.OFFSETS) for alias in inputs) if words & BY_OFFSET else ()
    return [table for table in tables if table.only_grows(inputs[table.alias])]


# --- by query -------------------------------------------------------------------------------------


def _defined(
    session: QuerySession, request: DerivationRequest, inputs: Mapping[str, Dataset]
) -> tuple[Derivation, DataSchema]:
    """Have queries judged; return the definition without its inputs, and the columns of the result."""
    from trueline.chain.sources import SqlQueryStep
    from trueline.workspace.derive.judge import judged_steps

    keys = {alias: key for alias, dataset in inputs.items() if (key := key_of(dataset))}
    # Every event has an offset of its own.
    keys |= {
        InputTable(alias, kind).name: (offset_column(dataset),)
        for alias, dataset in inputs.items()
        for kind in EVENT_KINDS
    }
    *steps, last = judged_steps(session, request.queries, keys)
    if request.declared_key is not None:
        columns = list(session.types(last.canonical))
        check_key(request.declared_key, columns)
        last = last.with_key(request.declared_key, columns)
    names = [name for name, _ in request.steps]
    queries = [
        SqlQueryStep(alias=name, query=step.expanded) for name, step in zip(names, steps, strict=False)
    ]
    derivation = Derivation(
        (*queries, SqlQueryStep(query=last.expanded)),
        (),
        last.key,
        last.key_kind,
        request.written,
        reason=next((each.opaque_reason for each in (*steps, last) if each.opaque_reason), ""),
        event_time=request.event_time,
        description=request.description,
        canonical=tuple(each.canonical for each in (*steps, last)),
    )
    _check_told_apart(derivation, session.types(last.canonical))
    return _with_columns(derivation, session.result(derivation))


def check_key(key: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a key with columns that the result does not have."""
    if not key:
        raise InputError("the key has no columns", remedy="name a column of the result", code="NoKey")
    for name in key:
        if name not in columns:
            close = get_close_matches(name, columns, n=1)
            raise SchemaError(
                f"the key has a column {name!r}, the result has {', '.join(columns)}",
                remedy=f"did you mean {close[0]!r}?" if close else "name columns of the result",
                code="MissingKeyColumn",
                column=name,
            )


def _check_told_apart(derivation: Derivation, types: Mapping[str, str]) -> None:
    """Refuse types that cannot tell rows apart where they have to: in a key, and anywhere in a bag."""
    for name in derivation.key:
        kind = PartType(types.get(name, ""))
        remedy = "name columns of other types as the key"
        if kind.is_collated:
            remedy = "select it COLLATE UTF8_BINARY: as it is, texts of other bytes are equal"
        elif kind.name.startswith("map<"):
            remedy = f"select its map_keys and map_values, and {remedy}"
        elif not kind.is_orderable:
            remedy = "select it as text, by to_json"
        elif not kind.is_nested:
            continue
        is_bag = derivation.identity is KeyKind.BAG
        raise InputError(
            f"column {name!r} is of type {kind.name}, which cannot tell rows apart"
            + "; without a key all columns have to" * is_bag,
            remedy=remedy,
            code="BadKeyType",
            column=name,
        )


def _with_columns(derivation: Derivation, frame: Any) -> tuple[Derivation, DataSchema]:
    """Return a definition with its event time, and the columns of its result.

    A column `event_time` is the event time where no other is named, as it is of a root.
    """
    if derivation.event_time is None and EVENT_TIME in frame.columns:
        derivation = replace(derivation, event_time=EVENT_TIME)
    return derivation, _schema(frame, derivation)


def _by_its_name(event_time: str | None) -> str | None:
    """Return the event time that a definition may have though nobody has named it."""
    return event_time if event_time == EVENT_TIME else None


def _schema(frame: Any, derivation: Derivation) -> DataSchema:
    """Return the columns of a result; all may be null, so that later definitions may add and drop values."""
    import pyarrow as pa

    from trueline.spark.types import arrow_schema_of

    arrow = arrow_schema_of(frame.schema)
    nullable = pa.schema([each.with_nullable(True) for each in arrow], arrow.metadata)
    schema = whole_schema(nullable, vocabulary(derivation.event_time))
    fields = tuple(hidden(each, True) if each.name == COPY else each for each in schema.fields)
    return type(schema)(fields)


# --- by function ----------------------------------------------------------------------------------


def _defined_by_function(
    session: QuerySession, request: DerivationRequest, function: FunctionOf
) -> tuple[Derivation, DataSchema]:
    """Call a function over frames without running them: the columns of its result are checked."""
    key = request.declared_key
    assert key is not None
    derivation = Derivation(
        (function.step,),
        (),
        key,
        KeyKind.DECLARED,
        function.path,
        reason="function",
        event_time=request.event_time,
        description=request.description,
        function=function,
    )
    frame = result_of_function(session, derivation)
    check_key(key, frame.columns)
    _check_told_apart(
        derivation, {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    )
    return _with_columns(derivation, frame)
