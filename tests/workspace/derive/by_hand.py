"""Derived datasets without Spark: what a query would have given is handed in."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin
from trueline.chain.events import SetTransform, TransformInput
from trueline.chain.head_state import linked
from trueline.chain.schema import hidden
from trueline.chain.sources import ENGINE, SqlQueryStep
from trueline.dataset.advance import Advance, commit_change, commit_result
from trueline.dataset.append.incoming import from_table
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import COPY, Derivation, KeyKind, derivation_at
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.creation import CreationPlan, make


def define(ws, name, schema, key=None, source="source", *, checks=()):
    """Make a derived dataset of some columns; without a key it is a bag."""
    if source not in ws:
        ws.create(source).append(pa.table({"x": [0]}))
    if key is None:
        schema = schema.append(pa.field(COPY, pa.int32()))
        key = tuple(schema.names)
    derivation = Derivation(
        (SqlQueryStep(query=f"select {', '.join(schema.names)} from {source}"),),
        (TransformInput(dataset_ref=str(ws[source].id), alias=source),),
        key,
        KeyKind.BAG if COPY in key else KeyKind.DECLARED,
        written="by hand",
        canonical=("by hand",),
        checks=tuple(checks),
    )
    whole = whole_schema(schema, vocabulary(None))
    fields = tuple(hidden(field, True) if field.name == COPY else field for field in whole.fields)
    plan = CreationPlan(
        lambda dataset_id, now: derivation.blocks(dataset_id, type(whole)(fields), now), lambda _: []
    )
    return make(ws, name, plan)


def advance(ws, dataset, result, *, at_rest=True, source="source"):
    """Append a record to the source, and make the rows of the dataset those of a table."""
    ws[source].append(pa.table({"x": [0]}))
    chain = dataset.chain
    tail, input_ = chain.tail(), ws[source]
    derivation = derivation_at(tail)
    if derivation.identity is KeyKind.BAG:
        rows = result.to_pylist()
        seen = {}
        numbers = []
        for row in rows:
            seen[str(row)] = seen.get(str(row), 0) + 1
            numbers.append(seen[str(row)])
        result = result.append_column(COPY, pa.array(numbers, pa.int32()))
    with chain.store.scratch() as scratch:
        return commit_result(
            dataset.name,
            chain,
            derivation,
            from_table(result, tail, with_op=False, new="error"),
            _taking(ws, dataset, input_, at_rest=at_rest),
            scratch=scratch,
            tasks=InlineTasks(),
        )


def change(ws, dataset, rows, *, source="source"):
    """Append a record to the source, and record rows that the dataset loses (`op` 1) and gains."""
    ws[source].append(pa.table({"x": [0]}))
    chain = dataset.chain
    tail = chain.tail()
    with chain.store.scratch() as scratch:
        return commit_change(
            dataset.name,
            chain,
            tail,
            derivation_at(tail),
            from_table(rows, tail, with_op=True),
            advance=_taking(ws, dataset, ws[source]),
            scratch=scratch,
            tasks=InlineTasks(),
        )


def _taking(ws, dataset, input_, *, at_rest=True):
    """Take an input where it is."""
    definition = dataset.chain.newest(SetTransform).hash
    position = input_.chain.position
    origin = DerivedOrigin({input_.id: position}, {dataset.id: definition})
    return Advance(
        {input_.id: position}, DerivedCheckpoint(origin, at_rest, definition, ENGINE), None, ws.clock
    )


def redefine(dataset, key):
    """Append a definition with another key that nothing was computed with yet."""
    tail = dataset.chain.tail()
    other = replace(derivation_at(tail), key=key)
    events = [
        event
        for event in other.events(tail.schema.schema)
        if event.KIND in ("SetTransform", "SetAttachments")
    ]
    time = type(tail.system_time)(tail.system_time + 1)
    dataset.chain.append(*linked(tail, events, time))
