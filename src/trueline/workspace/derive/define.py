"""Defining a derived dataset: what is asked for is checked by sqlglot and by Spark, and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trueline.chain.schema import hidden
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import COPY, Derivation, KeyKind
from trueline.errors import InputError, SchemaError
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.derive.canonical import NotCanonical, canonical
from trueline.workspace.derive.evaluate import QuerySession, query_session
from trueline.workspace.derive.reproducible import check_reproducible
from trueline.workspace.derive.strategies.classify import (
    KEYED,
    RECOMPUTE,
    InputFacts,
    StrategyVerdict,
    classify,
)
from trueline.workspace.derive.strategies.increment import only_grows
from trueline.workspace.derive.strategies.keyed import judged
from trueline.workspace.names import check_name
from trueline.workspace.query_guard import check_query
from trueline.workspace.sql import tables_of

if TYPE_CHECKING:
    from trueline.chain.datatypes import DataSchema
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class DerivationRequest:
    """What `derive` was asked for."""

    name: str
    sql: str
    inputs: Mapping[str, str] | Sequence[str] | None = None
    key: str | Sequence[str] | None = None
    event_time: str | None = None
    description: str | None = None


def derive(workspace: Workspace, request: DerivationRequest) -> Dataset:
    """Make a derived dataset; the same definition again returns it, another raises with the difference."""
    from trueline.chain.events import TransformInput

    check_name(request.name)
    inputs = inputs_of(workspace, request)
    check_query(request.sql, list(inputs))
    check_reproducible(request.sql)
    views = {alias: dataset.view() for alias, dataset in inputs.items()}
    for alias, view in views.items():
        if not view.columns:
            raise SchemaError(
                f"input {alias!r} has no columns yet",
                remedy="append rows to it, or create it with a schema",
                code="InputWithoutSchema",
            )
    with query_session(workspace, views) as session:
        derivation, schema = _defined(session, request)
        derivation = with_strategy(derivation, inputs, session)
    named = tuple(
        TransformInput(dataset_ref=str(dataset.id), alias=alias) for alias, dataset in inputs.items()
    )
    derivation = derivation.over(named)
    plan = CreationPlan(
        lambda dataset_id, now: derivation.blocks(dataset_id, schema, now), derivation.differences
    )
    return make(workspace, request.name, plan)


def with_strategy(derivation: Derivation, inputs: Mapping[str, Dataset], session: QuerySession) -> Derivation:
    """Say how a dataset follows its inputs."""
    *steps, text = derivation.canonical
    if steps:
        return replace(derivation, strategy="recompute", reason="steps")
    facts = {alias: InputFacts(only_grows(dataset, {})) for alias, dataset in inputs.items()}
    verdict = classify(text, facts, derivation.key, operators=session.operators(text))
    if verdict.strategy == KEYED:
        append_only = all(fact.append_only for fact in facts.values())
        if reason := judged(session.session, text, append_only=append_only):
            verdict = StrategyVerdict(RECOMPUTE, reason)
    return replace(derivation, strategy=verdict.strategy, reason=verdict.reason)


def inputs_of(workspace: Workspace, request: DerivationRequest) -> dict[str, Dataset]:
    """Return the inputs by the names they have in the query: those it names, or those that were given."""
    given = request.inputs
    if given is None:
        names = [table for table in tables_of(request.sql, list(workspace)) if table.at is None]
        found = {table.name: workspace[table.dataset] for table in names}
    elif isinstance(given, Mapping):
        found = {alias: workspace[name] for alias, name in given.items()}
    else:
        found = {name: workspace[name] for name in given}
    if request.name in found:
        raise InputError(
            f"{request.name!r} cannot be an input of itself",
            remedy="give the derived dataset another name",
            code="Cycle",
        )
    if not found:
        raise InputError("the query reads no dataset", remedy="name a dataset after FROM", code="NoInputs")
    return found


def _defined(session: QuerySession, request: DerivationRequest) -> tuple[Derivation, DataSchema]:
    """Check a query with Spark; return the definition without its inputs, and the columns of the result."""
    from sqlglot import parse_one

    text = request.sql.strip().rstrip(";")
    types = session.types(text)
    expanded = _expanded(session, text)
    try:
        made = canonical(parse_one(expanded, read="spark"), session.types)
    except NotCanonical as problem:
        raise InputError(
            f"the query has no canonical form: {problem.reason}",
            remedy="write it with sum, count, min, max or avg, or recompute it elsewhere",
            code="NotCanonical",
            reason=problem.code,
        ) from None
    key, identity = _identity(request, types)
    from trueline.chain.sources import SqlQueryStep

    derivation = Derivation(
        (SqlQueryStep(query=expanded),),
        (),
        key,
        identity,
        request.sql,
        event_time=request.event_time,
        description=request.description,
        canonical=(made.text,),
    )
    return derivation, _schema(session, derivation)


def _expanded(session: QuerySession, text: str) -> str:
    """Write out what stars stand for; what sqlglot makes of a query must mean the same to Spark."""
    from sqlglot import parse_one
    from sqlglot.optimizer.qualify import qualify

    parsed = parse_one(text, read="spark")
    schema: dict[str, object] = {name: dict(columns) for name, columns in session.tables.items()}
    qualified = qualify(
        parsed, dialect="spark", schema=schema, validate_qualify_columns=False, quote_identifiers=True
    ).sql(dialect="spark")
    if not session.same(text, qualified):
        raise InputError(
            "the query cannot be rewritten without changing what it means to Spark",
            remedy="write out its columns, without positions in GROUP BY and ORDER BY",
            code="Opaque",
        )
    return qualified


def _identity(request: DerivationRequest, types: Mapping[str, str]) -> tuple[tuple[str, ...], KeyKind]:
    if request.key is None:
        return (*types, COPY), KeyKind.BAG
    key = (request.key,) if isinstance(request.key, str) else tuple(request.key)
    for name in key:
        if name not in types:
            raise SchemaError(
                f"the key has a column {name!r}, the result has {', '.join(types)}",
                remedy="name columns of the result",
                code="MissingKeyColumn",
                column=name,
            )
    return key, KeyKind.DECLARED


def _schema(session: QuerySession, derivation: Derivation) -> DataSchema:
    from trueline.spark.types import arrow_schema_of

    arrow = arrow_schema_of(session.result(derivation).schema)
    schema = whole_schema(arrow, vocabulary(derivation.event_time))
    fields = tuple(hidden(field, True) if field.name == COPY else field for field in schema.fields)
    return type(schema)(fields)
