from __future__ import annotations

import hashlib
import json

import pytest

from tests.chain.golden import FOLDER, Vector, manifest_text, vector, vectors
from tests.chain.histories import data_slice, root
from tests.contracts.register import contracts
from trueline.chain import Block, yaml_text
from trueline.chain.encode import encode
from trueline.chain.manifest import DatasetSnapshot
from trueline.chain.schema import read_raw
from trueline.identity.multihash import Multihash

every_vector = pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in vectors()])
current = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in vectors() if case.version == 3]
)


def test_the_golden_files_hold_what_they_should():
    assert sum(case.version == 3 for case in vectors()) == 9
    assert sum(case.version == 2 for case in vectors()) == 5
    assert all(len(case.raw) == case.size for case in vectors())
    assert all("f1620" + hashlib.sha3_256(case.raw).hexdigest() == case.hash for case in vectors())


@current
def test_a_block_made_from_its_json_has_the_golden_bytes_and_hash(case: Vector):
    block = Block.from_dict(case.block)
    assert block.to_bytes().hex() == case.raw.hex()
    assert block.hash == case.hash


@every_vector
def test_golden_bytes_read_as_their_json_and_are_handed_on_verbatim(case: Vector):
    block = Block.from_bytes(case.raw)
    assert block.to_dict() == case.block
    assert block.to_bytes() == case.raw
    assert block.hash == case.hash
    assert block == Block.from_dict(case.block)


@every_vector
def test_golden_bytes_are_written_in_either_version(case: Vector):
    assert encode(Block.from_dict(case.block), case.version) == case.raw
    assert encode(Block.from_bytes(case.raw), case.version) == case.raw


def test_a_block_of_version_2_keeps_its_name_although_version_3_would_give_it_another():
    old = Block.from_bytes(vector("serializer_stability[9]", 2).raw)
    new = Block.from_bytes(vector("serializer_stability[9]", 3).raw)
    assert old == new
    assert old.hash != new.hash
    assert encode(old) == new.to_bytes()


def test_the_smallest_golden_block_is_the_one_the_reference_prints():
    case = vector("metadata_block_repository_shared.create_block")
    assert case.raw.hex() == (
        "140000000000000000000a0018000c00080004000a0000001400000003000000000040000000000000000000480000001400"
        "000000000e001e000c00000000000b0004000e00000020000000000000080208000001000000c0a800000000000000000600"
        "08000400060000000400000003000000666f6f00"
    )
    assert Block.from_dict(case.block).hash == case.hash


@pytest.mark.parametrize(
    ("name", "golden", "number"),
    [
        ("metadata-block-execute-transform.v3.yaml", "serializer_stability[9]", 127),
        ("metadata-block-set-data-schema.v3.yaml", "serde_set_data_schema", 123),
    ],
)
def test_yaml_of_a_block_reads_as_the_golden_event(name, golden, number):
    value = yaml_text.load(manifest_text(name))
    block = Block.from_dict(value)
    expected = Block.from_dict({**vector(golden).block, "sequenceNumber": number})
    assert block.to_dict() == value["content"]
    assert block == expected
    assert block.hash == expected.hash
    assert Block.from_dict(yaml_text.load(yaml_text.dump(value))).hash == block.hash
    assert Block.from_bytes(block.to_bytes()).to_dict() == value["content"]


def test_yaml_with_a_raw_arrow_schema_reads_as_the_golden_event():
    value = yaml_text.load(manifest_text("metadata-block-set-data-schema-legacy.v3.yaml"))
    block = Block.from_dict(value)
    golden = Block.from_bytes(vector("serde_set_data_schema_legacy", 2).raw)
    assert block.event == golden.event
    assert block.to_dict() == value["content"]
    assert read_raw(golden.event.raw_arrow_schema).names == ("a", "b")


@pytest.mark.parametrize("name", ["dataset-snapshot-root.yaml", "dataset-snapshot-derivative.yaml"])
def test_a_snapshot_manifest_is_written_back_as_it_was_read(name):
    value = yaml_text.load(manifest_text(name))
    snapshot = DatasetSnapshot.from_yaml(manifest_text(name))
    assert snapshot.to_dict() == value
    assert DatasetSnapshot.from_yaml(yaml_text.dump(snapshot.to_dict())) == snapshot


def test_the_three_events_of_rfc_014_follow_each_other():
    events = yaml_text.load(manifest_text("rfc014-add-data-sequence.yaml"))
    history = root()
    for made in events:
        if made["newData"]:
            interval = made["newData"]["offsetInterval"]
            made["newData"] = data_slice(interval["start"], interval["end"]) | made["newData"]
        history.append({"kind": "AddData", **made})
    tail = history.chain.tail()
    assert tail.last_offset == 19
    assert str(tail.watermark) == "2023-12-31T03:00:00Z"
    assert tail.data.new_data is None
    assert tail.data.prev_offset == 19


def test_a_name_is_the_hash_of_the_whole_manifest():
    for case in vectors():
        assert Block.from_bytes(case.raw).hash == Multihash.of(case.raw)


def test_every_rule_of_the_reference_is_a_contract_with_its_error():
    """What we raise is held to the contracts by `test_rules.py`; here these are held to the vectors."""
    rules = json.loads((FOLDER / "validation-rules.json").read_text(encoding="utf-8"))["rules"]
    ours = {rule["id"]: contracts()[f"chain:{rule['id']}"].error for rule in rules}
    theirs = {rule["id"]: rule["kamu_error"] for rule in rules}
    assert len(rules) == 53
    assert {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} == {
        "C9": ("BlockNotFound", "SetChainRefError::BlockNotFound"),
        "T12": ("InvalidInputInterval", "InvalidInputInterval (InvalidIntervalError)"),
        "S7": ("InvalidEvent", "panic unimplemented!()"),
        "H3": ("InvalidEvent", "(warning only)"),
        "G4": ("DataMismatch", "not enforced by verify"),
        "G5": ("ObjectNotFound", "ObjectNotFoundError"),
    }
