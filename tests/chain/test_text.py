from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chain.histories import dataset_id, digest, moment, polling_source, push_source, set_data_schema
from tests.chain.records import (
    EVENTS,
    block_examples,
    blocks,
    mappings,
    reachable,
    records,
    show,
)
from tests.examples import examples
from trueline.chain import Block, yaml_text
from trueline.chain.datatypes import DataField, Extra, Option, String
from trueline.chain.decode import decode
from trueline.chain.encode import MAX_DEPTH, encode
from trueline.chain.text import manifest, record_from_dict, to_dict
from trueline.chain.wire import Choice, Many, Moment, NestedRecord, Octets, OneOf, Scalar, Text, layout
from trueline.errors import InputError, ManifestError, UnsupportedVersion

every_event = pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.KIND)


def block_of(event: dict[str, Any], **header: Any) -> dict[str, Any]:
    return {
        "systemTime": moment(0),
        "prevBlockHash": digest("p"),
        "sequenceNumber": 1,
        "event": event,
    } | header


def refused(value: Any) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        Block.from_dict(value)
    assert caught.value.remedy
    return caught.value


# --- round trips ----------------------------------------------------------------


@every_event
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_record_survives_its_text_form(event, data):
    block = data.draw(blocks(event))
    text = block.to_dict()
    assert Block.from_dict(text) == block
    assert Block.from_dict(json.loads(json.dumps(text))) == block
    assert Block.from_dict(text).to_dict() == text


@every_event
@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_record_survives_yaml(event, data):
    block = data.draw(blocks(event))
    text = yaml_text.dump(manifest(block))
    assert Block.from_dict(yaml_text.load(text)) == block


@every_event
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_record_survives_its_binary_form_in_either_version(event, data):
    block = data.draw(blocks(event))
    for version in (2, 3):
        raw = encode(block, version)
        again = Block.from_bytes(raw)
        assert again == block
        assert decode(raw, Block) == block
        assert encode(again, version) == raw


@every_event
def test_every_example_survives_text_and_bytes(event):
    for text in block_examples(event):
        block = Block.from_dict(text)
        assert Block.from_bytes(block.to_bytes()) == block
        assert Block.from_dict(block.to_dict()) == block


# --- every place ------------------------------------------------------------------


def places() -> list[tuple[Any, Any, dict[str, Any]]]:
    """One place of every record type in every event that can hold it."""
    found = {}
    for event in EVENTS:
        for text in block_examples(event):
            for path, record, _ in mappings(text):
                found.setdefault((event, record, path), (path, record, text))
    return list(found.values())


PLACES = places()


def put(text: dict[str, Any], path: Any, value: Any) -> dict[str, Any]:
    """A copy with one value replaced."""
    if not path:
        return value
    made = copy.deepcopy(text)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def at(text: Any, path: Any) -> Any:
    for key in path:
        text = text[key]
    return text


def test_the_places_cover_every_record_a_block_can_hold():
    assert {record for _, record, _ in PLACES} == reachable() - {Extra}


def test_an_unknown_field_is_refused_by_name_at_every_place():
    for path, record, text in PLACES:
        changed = put(text, path, {**at(text, path), "nonsense": 1})
        error = refused(changed)
        assert error.where == show(path), record
        assert "nonsense" in error.problem


def test_a_misspelt_field_is_answered_with_the_right_one():
    for path, record, text in PLACES:
        for key in layout(record).by_key:
            if len(key) > 3:
                inner = {(key + "s" if name == key else name): item for name, item in at(text, path).items()}
                error = refused(put(text, path, inner))
                assert key in error.remedy, (record, key)


def test_a_missing_field_is_refused_at_every_place_where_it_is_required():
    required = 0
    for path, record, text in PLACES:
        for field in layout(record).fields:
            inner = {key: item for key, item in at(text, path).items() if key != field.key}
            for without in (inner, {**inner, field.key: None}):
                changed = put(text, path, without)
                if field.required or (isinstance(field.kind, Scalar | Choice) and field.absent == 0):
                    required += 1
                    error = refused(changed)
                    assert error.where == show(path)
                    assert field.key in error.problem
                else:
                    Block.from_dict(changed)
    assert required > 100


WRONG: dict[type[Any], list[Any]] = {
    Scalar: ["3", -(1 << 40), 1 << 64, 1.5, [], {}],
    Choice: [0, "Nonsense", [], {}, True],
    Text: [3, 1.5, True, [], {}, ["text"]],
    Octets: [3, "", "nonsense", "f1620", digest("x")[:-1], digest("x") + "00", [], {}],
    Moment: [3, "", "nonsense", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", [], {}],
    NestedRecord: [3, "text", [], True],
    OneOf: [3, [], {}, {"kind": 3}, {"kind": "Nonsense"}, "Nonsense", True],
    Many: [3, "text", {}, True],
}
BASE64 = [3, "A", "AAA", "A A=", "ÄÄÄÄ", [], {}]


def test_a_wrong_value_is_refused_with_its_place_at_every_leaf():
    for path, record, text in PLACES:
        for field in layout(record).fields:
            for value in BASE64 if field.kind == Octets(bytes) else WRONG[type(field.kind)]:
                error = refused(put(text, (*path, field.key), value))
                assert error.where == show((*path, field.key)), (record, field.key, value)


def test_a_wrong_member_of_a_list_is_refused_with_its_place():
    for path, record, text in PLACES:
        for field in layout(record).fields:
            if isinstance(field.kind, Many):
                wrong = [*at(text, (*path, field.key)), 3]
                error = refused(put(text, (*path, field.key), wrong))
                assert error.where == show((*path, field.key, len(wrong) - 1))


def test_the_place_is_named_as_people_write_it():
    event = {"kind": "AddData", "newData": {"logicalHash": digest(1), "physicalHash": digest(2)}}
    event["newData"] |= {"offsetInterval": {"start": 0, "end": 1}, "size": "large"}
    error = refused(block_of(event))
    assert error.where == "block.event.newData.size"
    assert "block.event.newData.size: 'large' is not a whole number" in str(error)


def test_a_long_wrong_value_is_shown_shortened():
    error = refused(block_of({"kind": "SetInfo", "description": ["x" * 100_000]}))
    assert len(str(error)) < 300


# --- how it may be written --------------------------------------------------------


@pytest.mark.parametrize("name", ["SetInfo", "setInfo", "setinfo", "SETINFO"])
def test_a_kind_may_be_written_in_any_case(name):
    block = Block.from_dict(block_of({"kind": name, "description": "x"}))
    assert block.to_dict()["event"]["kind"] == "SetInfo"


@pytest.mark.parametrize("name", ["Root", "root", "ROOT"])
def test_a_choice_may_be_written_in_any_case(name):
    seed = {"kind": "Seed", "datasetId": str(dataset_id(1)), "datasetKind": name}
    block = Block.from_dict({"systemTime": moment(0), "sequenceNumber": 0, "event": seed})
    assert block.to_dict()["event"]["datasetKind"] == "Root"


def test_a_member_without_fields_may_be_written_as_its_name():
    short = Block.from_dict(block_of(set_data_schema({"name": "x", "type": "int64"})))
    long = Block.from_dict(block_of(set_data_schema({"name": "x", "type": {"kind": "Int64"}})))
    assert short == long
    assert short.to_dict()["event"]["schema"]["fields"][-1]["type"] == {"kind": "Int64"}


def test_a_short_form_of_a_member_that_needs_fields_says_which():
    error = refused(block_of(set_data_schema({"name": "x", "type": "Decimal"})))
    assert "precision" in error.problem


def test_values_that_are_defaults_are_left_out_and_others_written():
    kinds = [
        ({"kind": "Timestamp"}, {"kind": "Timestamp"}),
        ({"kind": "Timestamp", "unit": "Millisecond", "timezone": "UTC"}, {"kind": "Timestamp"}),
        ({"kind": "Timestamp", "unit": "second"}, {"kind": "Timestamp", "unit": "Second"}),
        ({"kind": "Timestamp", "timezone": ""}, {"kind": "Timestamp", "timezone": ""}),
        ({"kind": "Duration", "unit": "Nanosecond"}, {"kind": "Duration", "unit": "Nanosecond"}),
    ]
    for given_type, canonical in kinds:
        block = Block.from_dict(block_of(set_data_schema({"name": "x", "type": given_type})))
        assert block.to_dict()["event"]["schema"]["fields"][-1]["type"] == canonical
        assert Block.from_bytes(block.to_bytes()) == block


def test_absent_may_be_written_as_null():
    block = Block.from_dict(block_of({"kind": "SetInfo", "description": None, "keywords": None}))
    assert block.to_dict()["event"] == {"kind": "SetInfo"}


def test_zero_is_written_where_a_number_must_be():
    interval = {"start": 0, "end": 0}
    part = {"logicalHash": digest(1), "physicalHash": digest(2), "offsetInterval": interval, "size": 0}
    block = Block.from_dict(block_of({"kind": "AddData", "prevOffset": 0, "newData": part}))
    assert block.to_dict()["event"]["newData"] == part
    assert block.to_dict()["event"]["prevOffset"] == 0
    assert Block.from_bytes(block.to_bytes()).to_dict() == block.to_dict()


def test_a_time_in_another_zone_is_the_same_moment():
    times = ["2026-01-01T12:00:00+02:00", "2026-01-01t10:00:00z", "2026-01-01 10:00:00.000000000Z"]
    made = {
        str(Block.from_dict(block_of({"kind": "SetInfo"}, systemTime=text)).system_time) for text in times
    }
    assert made == {"2026-01-01T10:00:00Z"}


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00.0000000001Z",
        "2026-01-01T00:00:00+99:99",
        "2026-01-01T00:00:00+24:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "٢٠٢٦-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z" + " " * 1000,
    ],
)
def test_a_time_that_is_none_is_refused(text):
    assert refused(block_of({"kind": "SetInfo"}, systemTime=text)).where == "block.systemTime"


# --- older spellings --------------------------------------------------------------


def test_execute_query_is_read_as_what_it_is_called_now():
    for name in ("ExecuteQuery", "executeQuery", "executequery"):
        event = {"kind": name, "queryInputs": [{"datasetId": str(dataset_id(1))}], "newWatermark": moment(1)}
        assert Block.from_dict(block_of(event)).to_dict()["event"]["kind"] == "ExecuteTransform"


def test_the_fields_of_execute_query_that_went_are_refused_with_what_replaced_them():
    cases = {
        "inputSlices": "queryInputs",
        "outputData": "newData",
        "outputWatermark": "newWatermark",
    }
    for old, new in cases.items():
        error = refused(block_of({"kind": "ExecuteQuery", "queryInputs": [], old: []}))
        assert old in error.problem
        assert new in error.remedy
    for old, new in {"blockInterval": "newBlockHash", "dataInterval": "newOffset"}.items():
        taken = {"datasetId": str(dataset_id(1)), old: {}}
        error = refused(block_of({"kind": "ExecuteTransform", "queryInputs": [taken]}))
        assert old in error.problem
        assert new in error.remedy


def test_a_ddl_list_under_schema_is_read_as_what_it_is_called_now():
    for make in (push_source, polling_source):
        block = Block.from_dict(block_of(make(read={"kind": "Csv", "schema": ["a INT", "b STRING"]})))
        assert block.to_dict()["event"]["read"] == {"kind": "Csv", "ddlSchema": ["a INT", "b STRING"]}


def test_a_ddl_list_does_not_replace_the_one_under_its_present_name():
    error = refused(block_of(push_source(read={"kind": "Csv", "schema": ["a INT"], "ddlSchema": ["b INT"]})))
    assert "schema" in error.problem


def test_a_ddl_list_is_not_read_where_only_a_schema_may_stand():
    error = refused(block_of({"kind": "SetDataSchema", "schema": ["a INT"]}))
    assert error.where == "block.event.schema"


@pytest.mark.parametrize("name", ["SetWatermark", "setWatermark", "setwatermark"])
def test_set_watermark_is_refused_by_name_with_what_replaced_it(name):
    error = refused(block_of({"kind": name, "outputWatermark": moment(1)}))
    assert name in error.problem
    assert "removed" in error.problem
    assert "AddData" in error.remedy
    assert "newWatermark" in error.remedy


def test_an_event_nobody_knows_is_answered_with_the_nearest():
    error = refused(block_of({"kind": "SetLicence"}))
    assert "SetLicence" in error.problem
    assert "SetLicense" in error.remedy


# --- wrappers ---------------------------------------------------------------------


def wrapped(**more: Any) -> dict[str, Any]:
    return {"kind": "MetadataBlock", "version": 3, "content": block_of({"kind": "SetInfo"})} | more


def test_a_block_is_read_with_or_without_its_wrapper():
    block = Block.from_dict(wrapped())
    assert Block.from_dict(wrapped(version=2, kind="metadataBlock")) == block
    assert Block.from_dict(wrapped()["content"]) == block
    assert manifest(block) == wrapped()


@pytest.mark.parametrize("version", [0, 1, 4, None, "3", 3.0, True, []])
def test_another_version_of_the_text_form_is_refused(version):
    with pytest.raises(UnsupportedVersion) as caught:
        Block.from_dict(wrapped(version=version))
    assert "2 and 3" in caught.value.problem
    if version == 1:
        assert "sequence numbers" in caught.value.remedy


def test_a_wrapper_with_something_else_is_refused():
    for more in (
        {"kind": "DatasetSnapshot"},
        {"kind": None},
        {"extra": 1},
        {"content": []},
        {"content": None},
    ):
        refused(wrapped(**more))


@pytest.mark.parametrize("value", [None, [], "text", 3, {}], ids=repr)
def test_what_is_no_mapping_is_refused(value):
    refused(value)


# --- attributes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra",
    [
        3,
        [],
        "text",
        {"a/b": float("nan")},
        {"a/b": float("inf")},
        {"a/b": {1, 2}},
        {"a/b": b"bytes"},
        {"a/b": "\ud800"},
        {"\udfff": 1},
        {"a": 1, 2: 2},
        {1: 2},
    ],
    ids=repr,
)
def test_attributes_that_are_not_json_are_refused(extra):
    assert refused(block_of({"kind": "AddData", "extra": extra})).where == "block.event.extra"


def test_attributes_nested_without_end_are_refused():
    for depth in (100, 5_000):
        value: Any = 0
        for _ in range(depth):
            value = [value]
        refused(block_of({"kind": "AddData", "extra": {"a/b": value}}))
    endless: dict[str, Any] = {}
    endless["a/b"] = endless
    refused(block_of({"kind": "AddData", "extra": endless}))


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=5))
def test_attributes_have_one_text_whatever_their_order(value):
    backwards = dict(reversed(list(value.items())))
    assert Extra.of(value) == Extra.of(backwards)
    assert Extra.of(value).value == value


# --- limits -----------------------------------------------------------------------


def nested_option(levels: int) -> dict[str, Any]:
    made: Any = "String"
    for _ in range(levels):
        made = {"kind": "Option", "inner": made}
    return block_of({"kind": "SetDataSchema", "schema": {"fields": [{"name": "x", "type": made}]}})


def test_what_is_nested_as_deep_as_text_allows_is_written_and_read():
    deepest = MAX_DEPTH - 5
    block = Block.from_dict(nested_option(deepest))
    assert Block.from_bytes(block.to_bytes()) == block
    assert Block.from_dict(block.to_dict()) == block
    for levels in (deepest + 1, 500):
        assert "deeper" in refused(nested_option(levels)).problem


def test_a_record_too_deep_to_be_read_back_is_not_written():
    kind: Any = String()
    for _ in range(MAX_DEPTH - 4):
        kind = Option(kind)
    block = Block.from_dict(block_of(set_data_schema()))
    schema = type(block.event.schema)((DataField("x", kind),))
    deep = Block(system_time=block.system_time, sequence_number=0, event=type(block.event)(None, schema))
    with pytest.raises(InputError, match="deeper"):
        deep.to_bytes()


def test_text_that_is_not_unicode_is_refused_in_text_and_when_written():
    assert refused(block_of({"kind": "SetInfo", "description": "\ud800"})).where == "block.event.description"
    block = Block.from_dict(block_of({"kind": "SetInfo"}))
    bad = Block(
        system_time=block.system_time, sequence_number=0, event=type(block.event)(description="\ud800")
    )
    with pytest.raises(InputError):
        bad.to_bytes()


def test_what_could_not_be_read_back_is_not_written():
    block = Block.from_dict(block_of({"kind": "AddData", "extra": {}}))
    for text in ("nonsense", "[]", '{"a":NaN}'):
        event = type(block.event)(extra=Extra(text))
        with pytest.raises(InputError):
            Block(system_time=block.system_time, sequence_number=0, event=event).to_bytes()


def test_a_number_that_does_not_fit_is_refused_when_written():
    block = Block.from_dict(block_of({"kind": "AddData"}))
    for number in (-1, 1 << 64):
        with pytest.raises(InputError):
            Block(
                system_time=block.system_time, sequence_number=0, event=type(block.event)(prev_offset=number)
            ).to_bytes()


def test_a_block_too_large_to_be_read_back_is_not_written():
    event = {"kind": "SetInfo", "description": "x" * (16 << 20)}
    with pytest.raises(InputError, match="larger"):
        Block.from_dict(block_of(event)).to_bytes()


@given(st.data())
def test_a_part_is_read_like_a_whole(data):
    field = data.draw(records(DataField))
    assert record_from_dict(to_dict(field), DataField, "field") == field
