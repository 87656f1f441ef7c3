"""Defining a derived dataset: what is asked for is checked by sqlglot and by Spark, and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trueline.chain.schema import hidden
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import COPY, Derivation
from trueline.errors import InputError, SchemaError
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.derive.evaluate import QuerySession, query_session
from trueline.workspace.derive.output_keys import key_of
from trueline.workspace.derive.reproducible import check_reproducible
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
        derivation, schema = _defined(session, request, inputs)
    named = tuple(
        TransformInput(dataset_ref=str(dataset.id), alias=alias) for alias, dataset in inputs.items()
    )
    derivation = derivation.over(named)
    plan = CreationPlan(
        lambda dataset_id, now: derivation.blocks(dataset_id, schema, now), derivation.differences
    )
    return make(workspace, request.name, plan)


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


def _defined(
    session: QuerySession, request: DerivationRequest, inputs: Mapping[str, Dataset]
) -> tuple[Derivation, DataSchema]:
    """Have a query judged; return the definition without its inputs, and the columns of the result."""
    from trueline.chain.sources import SqlQueryStep
    from trueline.workspace.derive.judge import judged

    keys = {alias: key for alias, dataset in inputs.items() if (key := key_of(dataset))}
    verdict = judged(session, request.sql, keys)
    verdict = verdict.with_key(request.key, list(session.types(verdict.canonical)))
    derivation = Derivation(
        (SqlQueryStep(query=verdict.expanded),),
        (),
        verdict.key,
        verdict.key_kind,
        request.sql,
        reason="recompute_only",
        event_time=request.event_time,
        description=request.description,
        canonical=(verdict.canonical,),
    )
    return derivation, _schema(session, derivation)


def _schema(session: QuerySession, derivation: Derivation) -> DataSchema:
    from trueline.spark.types import arrow_schema_of

    arrow = arrow_schema_of(session.result(derivation).schema)
    schema = whole_schema(arrow, vocabulary(derivation.event_time))
    fields = tuple(hidden(field, True) if field.name == COPY else field for field in schema.fields)
    return type(schema)(fields)
