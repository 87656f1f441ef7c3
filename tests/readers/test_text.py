"""Plain text."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.readers.reading import everything
from trueline.errors import InputError, LimitExceeded
from trueline.readers import TextReader

TEXT = pa.schema({"text": pa.string()})


@settings(max_examples=examples(66))
@given(st.text("ab\r\né ", max_size=20), st.integers(1, 8))
def test_every_line_is_a_row(text, block):
    expected = re.split("\r\n|\n|\r", text)
    if expected[-1] == "":
        expected.pop()
    for reader in (TextReader(), TextReader(block_bytes=block)):
        result = everything(reader, text.encode(), TEXT)
        assert result["columns"]["text"] == expected
        assert result["bad"] == []


def test_a_line_that_is_no_text_is_a_bad_cell():
    result = everything(TextReader(), b"a\r\r\n\xff\n", TEXT)
    assert result["columns"]["text"] == ["a", "", None]
    assert result["bad"] == [(2, 3, "text", "\ufffd")]


def test_a_whole_file_is_one_row():
    for data in (b"", b"a\nb\n", b"a"):
        assert everything(TextReader(whole=True, block_bytes=1), data, TEXT)["columns"]["text"] == [
            data.decode()
        ]
    with pytest.raises(LimitExceeded):
        everything(TextReader(whole=True, max_record_bytes=3), b"a\nb\n", TEXT)


def test_the_column_can_have_another_name_and_type():
    schema = pa.schema({"n": pa.int64(), "other": pa.string()})
    result = everything(TextReader(column="n"), b"1\nx\n\n", schema)
    assert result["columns"] == {"n": [1, None, None], "other": [None] * 3}
    assert result["bad"] == [(1, 2, "n", "x")]
    with pytest.raises(InputError):
        TextReader(column="")
