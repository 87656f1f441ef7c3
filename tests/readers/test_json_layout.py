"""JSON that is not one object per line: arrays, objects over several lines, objects beside each other."""

from __future__ import annotations

import io
import json
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers.reading import everything
from trueline.errors import BrokenFile, LimitExceeded
from trueline.readers import JsonReader, Source
from trueline.readers.parts import WHOLE

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
TEXTS = st.text(st.sampled_from('x"\\[]{},: \n\té\U0001f600'), max_size=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"a": st.integers(-5, 5)}, optional={"b": TEXTS, "c": st.lists(TEXTS | st.just({}), max_size=2)}
    ),
    min_size=1,
    max_size=6,
)
FORMS = {
    "array": json.dumps,
    "array over lines": lambda rows: json.dumps(rows, indent=2),
    "array of lines": lambda rows: "[" + ",\r\n".join(map(json.dumps, rows)) + "]\n",
    "pretty": lambda rows: "\n".join(json.dumps(row, indent=1) for row in rows),
    "empty first": lambda rows: "{}\n" + "\n".join(json.dumps(row, indent=1) for row in rows),
    "beside each other": lambda rows: " ".join(map(json.dumps, rows)),
    "without a space": lambda rows: "".join(map(json.dumps, rows)),
    "several arrays": lambda rows: "\n".join(json.dumps([row]) for row in rows),
}


@settings(max_examples=examples(50))
@given(ROWS, st.sampled_from(sorted(FORMS)), st.integers(1, 40), st.booleans())
def test_every_form_gives_the_rows_of_lines(rows, form, block, typed):
    expected = [{"a": row["a"], "b": row.get("b")} for row in rows]
    if form == "empty first":
        expected = [{"a": None, "b": None}, *expected]
    data = FORMS[form](rows).encode()
    for reader in (JsonReader(), JsonReader(block_bytes=block)):
        found = everything(reader, data, SCHEMA, typed=typed)
        assert found["bad"] == []
        assert [{"a": a, "b": b} for a, b in zip(*found["columns"].values(), strict=True)] == expected
        assert set(reader.infer([Source.memory(data)]).names) == {key for row in rows for key in row}


def test_an_element_that_is_not_an_object_is_a_row_with_one_bad_cell_and_its_line():
    found = everything(JsonReader(), b'[\n{"a": 1},\n 5,\n{"a": "x"},\n{"a" 2}\n]', SCHEMA)
    assert found["columns"]["a"] == [1, None, None, None]
    assert found["bad"] == [(1, 3, "(line)", "5"), (2, 4, "a", "x"), (3, 5, "(line)", '{"a" 2}')]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'[{"a": 1},\n{"a": 2}', 2),
        (b'[{"a": 1},\n{"a": ', 2),
        (b'{\n"a": 1}{\n"a"', 2),
        (b'[{"a": 1}]\n]', 2),
        (b'[{"a": 1},\n{"a": "x}]', 2),
    ],
)
def test_an_array_that_does_not_end_is_a_broken_file(data, line, block):
    with pytest.raises(BrokenFile) as caught:
        everything(JsonReader(block_bytes=block), Source.memory(data, "torn.json"), SCHEMA)
    assert (caught.value.path, caught.value.line) == ("torn.json", line)


@pytest.mark.parametrize("data", [b"[]", b" [ ] \n", b"", b"\n\n"])
def test_nothing_is_no_row(data):
    assert everything(JsonReader(), data, SCHEMA)["rows"] == 0
    assert JsonReader().infer([Source.memory(data)]).names == []


@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (b"<!DOCTYPE html>\n<html>\n<form action=login>\n</html>\n", "web page"),
        (b"[1, 2, 3]", "object"),
        (b"1\n2\n3\n", "object"),
        (b'"a"\n', "object"),
        (b"name,age\nAnn,7\n", "trueline.csv"),
        (b"[[1, 2], [3]]", "object"),
    ],
)
def test_a_file_in_which_nothing_is_an_object_is_refused_by_name(data, remedy, block):
    reader, file = JsonReader(block_bytes=block), Source.memory(data, "login.json")
    for read in (lambda: list(reader.read(file, SCHEMA)), lambda: reader.infer([file])):
        with pytest.raises(BrokenFile, match=r"login\.json is not JSON") as caught:
            read()
        assert caught.value.code == "NotJson"
        assert caught.value.path == "login.json"
        assert remedy in caught.value.remedy


def test_no_row_of_a_web_page_is_given_before_it_is_refused():
    with pytest.raises(BrokenFile):
        next(JsonReader().read(Source.memory(b"<html>\n" * 1000), SCHEMA))


def test_a_part_of_a_file_without_an_object_does_not_stand_for_all_of_it():
    data = b'{"a":1}\n' * 20 + b"x\n" * 40
    reader, file = JsonReader(), Source.memory(data)
    parts = reader.parts(file, size=60)
    assert len(parts) > 2
    with pytest.raises(BrokenFile):  # an append reads such a file again as a whole
        list(reader.read(file, SCHEMA, part=parts[-1]))
    assert everything(reader, data, SCHEMA)["rows"] == 60


def test_only_lines_are_cut_into_parts():
    rows = [{"a": n} for n in range(100)]
    for data in (json.dumps(rows), json.dumps(rows, indent=1), "".join(map(json.dumps, rows))):
        assert JsonReader().parts(Source.memory(data.encode()), size=50) == [WHOLE]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_an_element_may_have_as_many_bytes_as_the_limit_and_not_one_more(block):
    reader = JsonReader(block_bytes=block, max_record_bytes=20)
    fits, long = ('{"b":"%s"}' % ("x" * n) for n in (20 - 8, 21 - 8))
    assert everything(reader, f'[{{"a":1}},\n{fits}, {fits}]'.encode(), SCHEMA)["rows"] == 3
    with pytest.raises(LimitExceeded) as caught:
        everything(reader, f'[{{"a":1}},\n{long}, {fits}]'.encode(), SCHEMA)
    assert (caught.value.code, caught.value.line) == ("RecordTooLong", 2)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_an_element_nested_too_deep_is_a_bad_row(depth):
    data = b'[{"a":1},\n{"b":%s%s}]' % (b"[" * depth, b"]" * depth)
    assert everything(JsonReader(), data, SCHEMA)["bad"][0][:3] == (1, 2, "(line)")


class Endless(io.RawIOBase):
    """An array that is made while it is read."""

    ELEMENT = b'{"a": 1, "b": "some text"},\n' * 1000

    def __init__(self, size: int) -> None:
        self.left, self.rest = size, b"["

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if not self.rest and self.left:
            self.left -= 1
            self.rest = self.ELEMENT if self.left else b'{"a": 2}]'
        taken = self.rest[: len(buffer)]
        self.rest = self.rest[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


def test_an_array_is_never_in_memory_as_a_whole():
    reader = JsonReader(block_bytes=1 << 18)
    tracemalloc.start()
    try:
        rows = 0
        for batch in reader.read(Source("big.json", lambda: Endless(1000)), SCHEMA):
            rows += batch.table.num_rows
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 999_001
    assert most < 24 << 20, "28 MB of JSON were held at once"


@pytest.mark.parametrize("filling", [b"[", b"[]", b",", b'"",', b'\\"', b'{"a":[', b"1,\n"])
def test_a_record_of_nothing_but_marks_takes_bounded_memory(filling):
    limit = 1 << 20
    data = b'[{"b":[' + filling * (2 * limit // len(filling))
    reader = JsonReader(max_record_bytes=limit)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            everything(reader, data, SCHEMA)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 * limit
