from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.identity.hostile import attempt
from trueline.errors import InputError
from trueline.identity import multibase


@given(st.binary(max_size=200))
def test_bytes_come_back_from_every_base(data):
    url = base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert multibase.decode(multibase.encode(data)) == data
    assert multibase.decode("F" + data.hex().upper()) == data
    assert multibase.decode("u" + url) == data
    assert multibase.decode(multibase.encode_base58(data)) == data


@given(st.text(max_size=60) | st.sampled_from("fFuz").flatmap(lambda base: st.text().map(base.__add__)))
def test_text_that_is_not_multibase_is_refused_and_nothing_else_happens(text):
    read = attempt(multibase.decode, text)
    if isinstance(read, InputError):
        assert read.code == "BadMultibase"
        assert "base58btc" in read.remedy
    else:
        assert isinstance(read, bytes)


@given(st.binary(min_size=1, max_size=20))
def test_two_texts_of_one_base_never_mean_the_same_bytes(data):
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    url = base64.urlsafe_b64encode(data).decode().rstrip("=")
    texts = ["u" + url[:-1] + symbol for symbol in alphabet]
    assert [text for text in texts if attempt(multibase.decode, text) == data] == ["u" + url]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f1",
        "f 16",
        "f16\n",
        "fzz",
        "uAA==",
        "uA+/A",
        "uAB",
        "uA",
        "z0",
        "zIl",
        "b16",
        "x",
        "f１６",
        "uÄÄ",
    ],
)
def test_garbage_is_refused(text):
    with pytest.raises(InputError, match="accepted are f and F"):
        multibase.decode(text)


def test_text_that_would_take_long_to_read_is_refused_unread():
    assert multibase.decode("z" + "1" * (multibase.MAX_TEXT - 1)) == bytes(multibase.MAX_TEXT - 1)
    with pytest.raises(InputError, match="longer than 4096"):
        multibase.decode("z" + "1" * multibase.MAX_TEXT)


def test_something_that_is_not_text_is_refused():
    with pytest.raises(InputError, match="not bytes"):
        multibase.decode(b"f16")  # type: ignore[arg-type]
