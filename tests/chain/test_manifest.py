from __future__ import annotations

from typing import Any

import pytest

from tests.chain.golden import manifest_text
from tests.chain.histories import (
    add_data,
    dataset_id,
    execute,
    moment,
    polling_source,
    push_source,
    seed,
    set_data_schema,
    sql,
)
from trueline.chain import Chain, Instant, MemoryStore
from trueline.chain.manifest import DatasetSnapshot
from trueline.errors import ChainError, ManifestError, TruelineError

NOW = Instant.parse("2026-01-01T00:00:00Z")
KNOWN = {
    "com.naturalearthdata.10m.admin0": dataset_id("10m"),
    "com.naturalearthdata.50m.admin0": dataset_id("50m"),
}


def snapshot(kind: str, *events: dict[str, Any], **more: Any) -> DatasetSnapshot:
    content = {"name": "x", "kind": kind, "metadata": list(events)}
    return DatasetSnapshot.from_dict({"kind": "DatasetSnapshot", "version": 1, "content": content} | more)


def expanded(kind: str, *events: dict[str, Any], resolve: Any = None) -> list[dict[str, Any]]:
    blocks = snapshot(kind, *events).blocks(dataset_id("x"), resolve, NOW)
    return [block.to_dict()["event"] for block in blocks]


def of_inputs(*inputs: dict[str, Any], **transform: Any) -> dict[str, Any]:
    return {"kind": "SetTransform", "inputs": list(inputs), "transform": sql() | transform}


def test_a_root_manifest_becomes_a_chain_that_begins_with_its_seed():
    made = DatasetSnapshot.from_yaml(manifest_text("dataset-snapshot-root.yaml"))
    assert made.name == "kamu.test"
    blocks = made.blocks(dataset_id("x"), system_time=NOW)
    assert [block.event.KIND for block in blocks] == ["Seed", "SetPollingSource"]
    assert blocks[0].event.dataset_id == dataset_id("x")
    assert blocks[0].event.dataset_kind.name == "Root"
    chain = Chain(MemoryStore())
    assert chain.append(*blocks).head == blocks[-1].hash


def test_a_derivative_manifest_has_its_inputs_resolved_and_named():
    made = DatasetSnapshot.from_yaml(manifest_text("dataset-snapshot-derivative.yaml"))
    blocks = made.blocks(dataset_id("x"), KNOWN.get, NOW)
    event = blocks[1].to_dict()["event"]
    assert event["inputs"] == [{"datasetRef": str(name), "alias": alias} for alias, name in KNOWN.items()]
    assert event["transform"] == {"kind": "Sql", "engine": "spark", "queries": [{"query": "SOME_SQL"}]}
    Chain(MemoryStore()).append(*blocks)


def test_the_same_manifest_at_the_same_time_gives_the_same_hashes():
    made = DatasetSnapshot.from_yaml(manifest_text("dataset-snapshot-root.yaml"))
    first, second = (made.blocks(dataset_id("x"), system_time=NOW) for _ in range(2))
    assert [block.hash for block in first] == [block.hash for block in second]


def test_all_inputs_that_do_not_exist_are_reported_together():
    made = DatasetSnapshot.from_yaml(manifest_text("dataset-snapshot-derivative.yaml"))
    with pytest.raises(ManifestError) as caught:
        made.blocks(dataset_id("x"), lambda name: None, NOW)
    assert caught.value.missing == tuple(KNOWN)
    assert all(name in caught.value.problem for name in KNOWN)
    with pytest.raises(ManifestError) as caught:
        made.blocks(dataset_id("x"), {next(iter(KNOWN)): dataset_id("10m")}.get, NOW)
    assert caught.value.missing == (list(KNOWN)[1],)


def test_an_input_may_be_named_by_its_id_in_any_spelling():
    name = dataset_id("a")
    for text in (str(name), name.did_key):
        made = expanded("Derivative", of_inputs({"datasetRef": text, "alias": "a"}))
        assert made[1]["inputs"] == [{"datasetRef": str(name), "alias": "a"}]


def test_an_alias_that_is_given_is_kept_and_one_that_is_not_is_the_reference():
    inputs = ({"datasetRef": "trades"}, {"datasetRef": "cities", "alias": "c"})
    made = expanded("Derivative", of_inputs(*inputs), resolve=dataset_id)
    assert [source["alias"] for source in made[1]["inputs"]] == ["trades", "c"]
    assert [source["datasetRef"] for source in made[1]["inputs"]] == [
        str(dataset_id("trades")),
        str(dataset_id("cities")),
    ]


def test_an_id_that_is_none_is_refused():
    with pytest.raises(ManifestError):
        expanded("Derivative", of_inputs({"datasetRef": "did:odf:nonsense"}))


@pytest.mark.parametrize(
    "event",
    [
        seed(),
        add_data(watermark=1),
        execute(watermark=1),
        {"kind": "DisablePollingSource"},
        {"kind": "DisablePushSource", "sourceName": "x"},
    ],
    ids=lambda event: event["kind"],
)
def test_what_happens_to_a_dataset_is_no_part_of_its_definition(event):
    for kind in ("Root", "Derivative"):
        with pytest.raises(ManifestError) as caught:
            expanded(kind, {"kind": "SetInfo", "description": "x"}, event)
        assert "metadata[1]" in caught.value.problem
        assert event["kind"] in caught.value.problem
        assert caught.value.remedy


@pytest.mark.contract("chain:R6")
@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("Derivative", push_source()),
        ("Derivative", polling_source()),
        ("Root", of_inputs({"datasetRef": str(dataset_id("a")), "alias": "a"})),
    ],
    ids=["push", "polling", "transform"],
)
def test_sources_belong_into_roots_and_transforms_into_derivatives(kind, event):
    with pytest.raises(ChainError) as caught:
        expanded(kind, event)
    assert caught.value.rule == "chain:R6"
    expanded("Root" if kind == "Derivative" else "Derivative", event)


@pytest.mark.parametrize("make", [push_source, polling_source])
def test_the_short_form_of_a_preparation_is_normalised(make):
    short = {"kind": "Sql", "engine": "spark", "query": "select 1"}
    made = expanded("Root", make(preprocess=short))
    assert made[1]["preprocess"] == {"kind": "Sql", "engine": "spark", "queries": [{"query": "select 1"}]}


def test_query_and_queries_together_are_refused():
    both = of_inputs({"datasetRef": "a"}, query="select 2")
    with pytest.raises(ManifestError) as caught:
        expanded("Derivative", both, resolve=dataset_id)
    assert "query" in caught.value.problem
    assert "metadata[0]" in caught.value.problem


def test_at_most_one_query_has_no_name():
    nameless = of_inputs({"datasetRef": "a"}, queries=[{"query": "a"}, {"query": "b"}])
    with pytest.raises(ManifestError) as caught:
        expanded("Derivative", nameless, resolve=dataset_id)
    assert "2 queries" in caught.value.problem
    named = of_inputs({"datasetRef": "a"}, queries=[{"alias": "a", "query": "a"}, {"query": "b"}])
    assert len(expanded("Derivative", named, resolve=dataset_id)) == 2


def test_the_rules_of_the_chain_hold_for_what_a_manifest_says():
    cases = {
        "chain:X2": ("Derivative", of_inputs({"datasetRef": "a"}, queries=[])),
        "chain:X5": ("Derivative", of_inputs()),
        "chain:X6": ("Derivative", of_inputs({"datasetRef": "a"}, {"datasetRef": "a"})),
        "chain:H3": ("Root", set_data_schema(system=[])),
    }
    for rule, (kind, event) in cases.items():
        with pytest.raises(ChainError) as caught:
            expanded(kind, event, resolve=dataset_id)
        assert caught.value.rule == rule


def test_times_do_not_go_back_within_a_manifest():
    blocks = snapshot("Root", {"kind": "SetInfo", "description": "x"}).blocks(dataset_id("x"))
    assert blocks[0].system_time <= blocks[1].system_time
    assert blocks[1].prev_block_hash == blocks[0].hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "text",
        "kind: DatasetSnapshot",
        "kind: DatasetSnapshot\nversion: 1",
        "kind: DatasetSnapshot\nversion: 1\ncontent: text",
        "kind: DatasetSnapshot\nversion: 2\ncontent: {name: x, kind: Root, metadata: []}",
        "kind: DatasetSnapshot\nversion: true\ncontent: {name: x, kind: Root, metadata: []}",
        "kind: MetadataBlock\nversion: 1\ncontent: {name: x, kind: Root, metadata: []}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {kind: Root, metadata: []}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {name: x, metadata: []}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {name: x, kind: Root}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {name: x, kind: Tree, metadata: []}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {name: x, kind: Root, metadata: {}}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {name: x, kind: Root, metadata: [], more: 1}",
        "kind: DatasetSnapshot\nversion: 1\nmore: 1\ncontent: {name: x, kind: Root, metadata: []}",
        "kind: DatasetSnapshot\nversion: 1\ncontent: {name: x, kind: Root, metadata: [{kind: SetWatermark}]}",
    ],
)
def test_a_manifest_that_cannot_be_understood_is_refused(text):
    with pytest.raises(ManifestError) as caught:
        DatasetSnapshot.from_yaml(text)
    assert caught.value.remedy


def test_the_place_in_a_manifest_is_named():
    with pytest.raises(ManifestError) as caught:
        snapshot("Root", {"kind": "SetInfo", "description": 3})
    assert "content.metadata[0].description" in caught.value.problem


def test_every_refusal_is_typed_when_a_resolver_fails():
    with pytest.raises(TruelineError):
        expanded("Derivative", of_inputs({"datasetRef": ""}), resolve=lambda _: None)


def test_system_time_may_be_given():
    blocks = snapshot("Root").blocks(dataset_id("x"), system_time=Instant.parse(moment(5)))
    assert str(blocks[0].system_time) == moment(5)
