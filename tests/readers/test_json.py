"""JSON lines."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers import oracle
from tests.readers.reading import everything, totals
from trueline.errors import SchemaError
from trueline.readers import JsonReader, looks_wrong
from trueline.readers.json_block import is_plain

KINDS = st.sampled_from(
    [
        pa.string(),
        pa.int64(),
        pa.int8(),
        pa.float64(),
        pa.float32(),
        pa.bool_(),
        pa.decimal128(5, 2),
        pa.date32(),
        pa.timestamp("ms", "UTC"),
        pa.list_(pa.int64()),
        pa.list_(pa.float32()),
        pa.struct({"b": pa.int8(), "c": pa.string()}),
        pa.struct({"b": pa.list_(pa.decimal128(5, 2))}),
    ]
)
VALUES = st.sampled_from(
    [
        "1",
        "-0",
        "300",
        "1.5",
        "12",
        "1e2",
        "1e39",
        "1e400",
        "99999999999999999999",
        "12345",
        "12345.6",
        "NaN",
        "Infinity",
        "-NaN",
        "Inf",
        "true",
        "false",
        "null",
        '""',
        '"x"',
        '"1"',
        '" 1.5"',
        '"2026-01-02"',
        '"2026-02-30"',
        '"\\u00e9"',
        '"2026-01-02T03:04:05.123456Z"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\udc00x"',
        '"\\u0000"',
        '"é"',
        "[1,2]",
        "[]",
        "[null]",
        '[1,"x"]',
        "[1e39]",
        "[300]",
        '{"b":1}',
        '{"b":1,"b":2,"c":"d"}',
        '{"b":300}',
        '{"c":[1]}',
        "{}",
        '{"b":[1.5,12345]}',
        '"a\tb"',
        "01",
        "+1",
        "",
        "]",
        '"open',
    ]
)
OBJECTS = st.one_of(
    VALUES.map(lambda value: f'{{"a":{value}}}'),
    VALUES.map(lambda value: f'{{"a":{value},"z":1}}'),
    VALUES.map(lambda value: f' {{ "z" : {value} , "a" : 1 }} '),
    VALUES.map(lambda value: f'{{"a":1,"a":{value}}}'),
)
LINES = st.one_of(
    OBJECTS.map(str.encode),
    OBJECTS.map(str.encode),
    st.sampled_from(
        [b"", b" ", b"\r", b"5", b"[1]", b'{"a":1}{"a":2}', b'{"a":', b"1}", b"{}", b"x", b'{"a":"\xff"}']
    ),
    st.sampled_from(
        [b'{"a":1} x', b'{"a":[{}', b",{}]}", b'\xef\xbb\xbf{"a":1}', b'{"a":1,"z":"\xff"}', b'{"z":1e400}']
    ),
)
FILES = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\n", b"\r\n", b""])), max_size=8).map(
    # The first line shows that the file has lines, whatever the others are.
    lambda lines: b'{"q":0}\n' + b"".join(part for line in lines for part in line)
)


@settings(max_examples=examples(166))
@given(FILES, KINDS, st.integers(1, 40))
@example(b'{"a":12345}\n', pa.decimal128(5, 2), 99)
@example(b'{}\n{"a":1}\n{"a":1}{"a":\n2}\n', pa.int64(), 99)
@example(b'{"a":1}\n{"a":1}{"b":{}\n}\n', pa.int64(), 99)
@example(b'{"a":1}\n{"a":[{}\n,{}]}\n', pa.string(), 99)
def test_reading_gives_what_the_rules_say_in_any_blocks(data, kind, block):
    schema = pa.schema({"a": kind})
    expected = oracle.json_lines(JsonReader(), data, schema)
    assert everything(JsonReader(), data, schema) == expected
    assert everything(JsonReader(block_bytes=block), data, schema, batch_rows=2) == expected
    assert everything(JsonReader(), data, schema, typed=False) == expected


@settings(max_examples=examples(50))
@given(FILES, KINDS)
def test_which_rows_there_are_does_not_depend_on_the_columns_read(data, kind):
    schema = pa.schema({"a": kind, "z": pa.int64()})
    whole = everything(JsonReader(), data, schema)
    for columns in ([], ["a"], ["z"], ["z", "a"]):
        part = everything(JsonReader(), data, schema, columns=columns)
        assert part["rows"] == whole["rows"]
        assert part["columns"] == {name: whole["columns"][name] for name in columns}
        assert sorted(part["bad"]) == sorted(cell for cell in whole["bad"] if cell[2] in {*columns, "(line)"})


@settings(max_examples=examples(60))
@given(KINDS, st.lists(st.tuples(st.integers(0, 399), VALUES), max_size=4))
def test_a_bad_line_among_many_changes_no_other(kind, odd):
    good = (
        {"i": "1", "f": "1.5", "b": "true", "d": '"2026-01-02"', "l": "[1]", "s": '{"b":1}'}[str(kind)[0]]
        if str(kind)[0] in "ifbdls"
        else "null"
    )
    lines = [f'{{"a":{good}}}'] * 400
    for at, value in odd:
        lines[at] = f'{{"a":{value}}}'
    data, schema = "\n".join(lines).encode(), pa.schema({"a": kind})
    assert everything(JsonReader(), data, schema) == oracle.json_lines(JsonReader(), data, schema)


def test_a_missing_key_is_missing_and_a_wrong_type_is_bad():
    data = b'{"a": 1}\n{"b": 2}\n{"a": "1"}\n{"a": null}\n'
    result = everything(JsonReader(), data, pa.schema({"a": pa.int64()}))
    assert result["columns"] == {"a": [1, None, None, None]}
    assert result["bad"] == [(2, 3, "a", "1")]


def test_a_line_that_is_no_object_is_a_row_with_one_bad_cell():
    data = b'\n{"a": 1}\n\n nonsense\n[1]\n{"a": 2'
    result = everything(JsonReader(), data, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    assert result["columns"] == {"a": [1, None, None, None], "b": [None] * 4}
    assert result["bad"] == [
        (1, 4, "(line)", " nonsense"),
        (2, 5, "(line)", "[1]"),
        (3, 6, "(line)", '{"a": 2'),
    ]


def test_no_digit_goes_through_a_float():
    data = b'{"a": 9007199254740993, "b": 0.1000000000000000055, "c": 12345678901234567890}\n'
    schema = pa.schema({"a": pa.int64(), "b": pa.decimal128(19, 19), "c": pa.string()})
    result = everything(JsonReader(), data, schema)["columns"]
    assert result["a"] == [9007199254740993]
    assert str(result["b"][0]) == "0.1000000000000000055"
    assert result["c"] == ["12345678901234567890"]


def test_nested_values_are_kept_as_text_where_no_type_was_declared():
    data = '{"a": {"k": [1.50, true, "é"]}}\n'.encode()
    assert everything(JsonReader(), data, pa.schema({"a": pa.string()}))["columns"] == {
        "a": ['{"k":[1.50,true,"é"]}']
    }


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize(("depth", "is_row"), [(98, True), (99, True), (100, False), (100_000, False)])
@pytest.mark.parametrize("key", ["a", "z"])
def test_nesting_is_bounded_whichever_way_it_is_read(depth, is_row, key, typed):
    data = b'{"b":1}\n{"%s":%s%s}\n' % (key.encode(), b"[" * depth, b"]" * depth)
    result = everything(JsonReader(), data, pa.schema({"a": pa.string(), "b": pa.int64()}), typed=typed)
    assert result["rows"] == 2
    assert result["counts"] == ({} if is_row else {"(line)": 1})


def test_brackets_inside_text_do_not_count_as_nesting():
    data = json.dumps({"a": "[" * 500 + '\\"{' * 200}).encode()
    assert everything(JsonReader(), data, pa.schema({"a": pa.string()}))["counts"] == {}


def test_the_fast_way_is_taken_for_plain_lines():
    assert is_plain(b'{"a":1}\n{"a":{"b":[1]}}', 2)
    assert not is_plain(b'{"a":1}{"a":\n2}', 2)
    assert not is_plain(b'{"a":NaN}', 1)
    assert not is_plain(b'{"a":"\\ud800"}', 1)
    assert not is_plain(b'{"a":"\xff"}', 1)


def test_types_that_json_cannot_hold_are_refused_before_reading():
    with pytest.raises(SchemaError) as caught:
        JsonReader().read(None, pa.schema({"a": pa.map_(pa.string(), pa.int64())}))
    assert caught.value.column == "a"


def test_a_schema_of_other_names_is_recognised():
    stats = totals(JsonReader(), b'{"price": 1, "city": "Bern"}\n', pa.schema({"prise": pa.int64()}))
    assert stats.unknown == ["price", "city"]
    assert "price" in looks_wrong(stats.counts)
