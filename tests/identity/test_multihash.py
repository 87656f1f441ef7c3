from __future__ import annotations

import base64
import json
import pickle
from hashlib import sha3_256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.identity.golden import golden
from tests.identity.hostile import attempt
from trueline.errors import InputError
from trueline.identity import Multihash, multibase

VECTORS = golden("multiformats.json")
NAME = Multihash.of(b"multihash")


@pytest.mark.parametrize("case", VECTORS["sha3_256_multihash"], ids=lambda case: case["input"])
def test_golden_hashes_have_their_names(case):
    name = Multihash.of(case["input"].encode())
    assert name == case["base16"]
    assert name == Multihash.sha3_256(sha3_256(case["input"].encode()).digest())
    if "base58btc" in case:
        assert Multihash.parse(case["base58btc"]) == name
        assert multibase.encode_base58(name.bytes) == case["base58btc"]
        assert name.short == case["short"]


def test_a_golden_hash_of_another_function_is_read():
    case = VECTORS["sha2_256_transcode"]
    assert Multihash.parse(case["base58btc"]) == case["base16"]
    assert Multihash.parse(case["base16"]).code == 0x12


@given(st.sampled_from([0x12, 0x16, 0x300016]), st.binary(min_size=32, max_size=32))
def test_every_spelling_reads_as_the_same_canonical_text(code, digest):
    prefix = {0x12: b"\x12\x20", 0x16: b"\x16\x20", 0x300016: b"\x96\x80\xc0\x01\x20"}[code]
    raw = prefix + digest
    name = Multihash.from_bytes(raw)
    assert str(name) == "f" + raw.hex()
    assert (name.code, name.digest, name.bytes) == (code, digest, raw)
    url = "u" + base64.urlsafe_b64encode(raw).decode().rstrip("=")
    for text in (
        str(name),
        "F" + raw.hex().upper(),
        "f" + raw.hex().upper(),
        url,
        multibase.encode_base58(raw),
    ):
        again = Multihash(text)
        assert again == name
        assert type(again) is Multihash


@given(
    st.text()
    | st.binary(max_size=60).map(multibase.encode)
    | st.binary(max_size=60).map(lambda b: "f1620" + b.hex())
)
def test_text_that_is_not_a_multihash_is_refused_and_nothing_else_happens(text):
    read = attempt(Multihash, text)
    if isinstance(read, InputError):
        assert read.code in {"BadMultibase", "BadMultihash", "UnknownHashFunction"}
    else:
        assert Multihash.from_bytes(read.bytes) == read


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "inside its header"),
        (b"\x16", "inside its header"),
        (b"\x96\x80", "inside its header"),
        (b"\x96" * 12, "inside its header"),
        (b"\x16\x20" + bytes(31), "says 32 and has 31"),
        (b"\x16\x20" + bytes(33), "says 32 and has 33"),
        (b"\x16\x1f" + bytes(31), "says 31"),
        (b"\x16\x1f" + bytes(32), "says 31 and has 32"),
        (b"\x16\x21" + bytes(32), "says 33 and has 32"),
        (b"\x96\x00\x20" + bytes(32), "more bytes than it needs"),
        (b"\x1b\x20" + bytes(32), "0x1b is not known"),
        (b"\x00\x20" + bytes(32), "0x0 is not known"),
    ],
)
def test_damaged_bytes_are_refused_with_the_reason(raw, problem):
    with pytest.raises(InputError, match=problem):
        Multihash.from_bytes(raw)


def test_an_unknown_hash_function_can_be_told_from_damage():
    with pytest.raises(InputError) as caught:
        Multihash.from_bytes(b"\x1b\x20" + bytes(32))
    assert caught.value.code == "UnknownHashFunction"
    assert "sha3-256 (0x16)" in caught.value.remedy


@pytest.mark.parametrize("make", [Multihash.sha3_256, Multihash.arrow0_sha3_256])
def test_a_digest_of_another_length_is_refused(make):
    with pytest.raises(InputError, match="has 32 bytes, not 31"):
        make(bytes(31))


def test_something_that_is_not_text_is_refused():
    with pytest.raises(InputError, match="is text, not NoneType"):
        Multihash(None)  # type: ignore[arg-type]


def test_it_is_a_key_a_json_value_and_a_file_name_as_it_is(tmp_path):
    assert {NAME: 1}[str(NAME)] == 1
    assert json.loads(json.dumps({"hash": NAME})) == {"hash": str(NAME)}
    (tmp_path / NAME).write_bytes(b"")
    assert [Multihash(path.name) for path in tmp_path.iterdir()] == [NAME]


def test_it_pickles_and_carries_no_dictionary():
    again = pickle.loads(pickle.dumps(NAME))
    assert again == NAME
    assert type(again) is Multihash
    with pytest.raises(AttributeError):
        NAME.note = "x"  # type: ignore[attr-defined]
