"""Rules on what defines a dataset: sources, transforms, schema (S1 to S7, X1 to X7, H1 to H3)."""

from __future__ import annotations

from typing import Any

from trueline.chain.events import (
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
)
from trueline.chain.evolution import schema_findings
from trueline.chain.findings import Findings, Step, breaks
from trueline.chain.sources import FetchEthereumLogs
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId


def s5_one_schema_for_reading(step: Step, event: AddPushSource | SetPollingSource) -> Findings:
    if event.read.ddl_schema is not None and event.read.schema is not None:
        yield breaks("S5", "both read.ddlSchema and read.schema are given", "keep read.schema")


def s6_ethereum_logs_have_an_origin(step: Step, event: SetPollingSource) -> Findings:
    fetch = event.fetch
    if isinstance(fetch, FetchEthereumLogs) and fetch.chain_id is None and fetch.node_url is None:
        yield breaks("S6", "an EthereumLogs source has neither chainId nor nodeUrl", "give one of them")


def s1_the_source_is_new(step: Step, event: AddPushSource | SetPollingSource) -> Findings:
    assert step.tail
    if isinstance(event, AddPushSource):
        active: Any = step.tail.push.get(event.source_name)
    else:
        active = step.tail.polling
    if event == active:
        name = getattr(event, "source_name", "(polling)")
        yield breaks("S1", f"the source {name!r} is identical to the active one", "do not append it")


def s2_no_polling_beside_push(step: Step, event: AddPushSource) -> Findings:
    assert step.tail
    if step.tail.polling is not None:
        yield breaks(
            "S2",
            f"cannot add push source {event.source_name!r} while the polling source is active",
            "append DisablePollingSource first",
        )


def s4_no_push_beside_polling(step: Step, event: SetPollingSource) -> Findings:
    assert step.tail
    if step.tail.push:
        yield breaks(
            "S4",
            f"cannot set a polling source while push sources are active: {', '.join(sorted(step.tail.push))}",
            "append DisablePushSource for each first",
        )


def s7_only_an_active_source_ends(step: Step, event: DisablePushSource | DisablePollingSource) -> Findings:
    assert step.tail
    if isinstance(event, DisablePollingSource):
        if step.tail.polling is None:
            yield breaks("S7", "there is no active polling source to disable", "do not append it")
    elif event.source_name not in step.tail.push:
        active = ", ".join(sorted(step.tail.push)) or "none"
        yield breaks(
            "S7",
            f"there is no active push source {event.source_name!r}, active are: {active}",
            "check its name",
        )


def x1_to_x4_queries_are_normalised(step: Step, event: Any) -> Findings:
    transform = event.transform if isinstance(event, SetTransform) else event.preprocess
    if transform is None:
        return
    queries = transform.queries or ()
    if transform.query is not None:
        yield breaks(
            "X1",
            "transform queries must be normalised: `query` is set",
            "write it as the one entry of queries",
        )
    if not queries:
        yield breaks("X2", "a transform must have at least one query", "add a query")
    elif queries[-1].alias is not None:
        yield breaks(
            "X3",
            f"the last query has the alias {queries[-1].alias!r}",
            "remove it: the last query is the output",
        )
    for index, query in enumerate(queries[:-1]):
        if query.alias is None:
            yield breaks(
                "X4", f"query {index} of {len(queries)} has no alias", "name every query but the last"
            )


def x5_to_x7_inputs_are_resolved(step: Step, event: SetTransform) -> Findings:
    if not event.inputs:
        yield breaks("X5", "a transform must have at least one input", "add the datasets its queries read")
    references = [source.dataset_ref for source in event.inputs]
    twice = sorted({name for name in references if references.count(name) > 1})
    if twice:
        yield breaks("X6", f"the transform contains duplicate inputs: {', '.join(twice)}", "name each once")
    for source in event.inputs:
        if source.alias is None or not _is_dataset_id(source.dataset_ref):
            yield breaks(
                "X7",
                f"input {source.dataset_ref!r} (alias {source.alias!r}) is not a dataset id with an alias",
                "write the did:odf: id of the dataset and the name the queries use",
            )


def _is_dataset_id(reference: str) -> bool:
    try:
        return DatasetId.parse(reference) == reference
    except InputError:
        return False


def h1_to_h3_the_schema_may_follow(step: Step, event: SetDataSchema) -> Findings:
    assert step.tail
    for rule, problem, remedy in schema_findings(step.tail.schema, event, step.tail.vocab):
        yield breaks(rule, problem, remedy)
