from __future__ import annotations

import base64
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.identity.golden import golden
from tests.identity.hostile import attempt
from tests.identity.seeded import seeded_id
from trueline.errors import InputError
from trueline.identity import DatasetId, DatasetKey, multibase

VECTORS = golden("multiformats.json")


@pytest.mark.parametrize(("seed", "text"), VECTORS["seeded_test_ids"]["ids"].items())
def test_seeded_ids_are_the_golden_ones(seed, text):
    assert seeded_id(seed) == text


def test_the_golden_key_has_both_methods():
    case = VECTORS["did_odf_did_key"]
    assert DatasetId.parse(case["did_key"]) == case["did_odf"]
    assert DatasetId.parse(case["did_odf"]).did_key == case["did_key"]


@given(st.binary(min_size=32, max_size=32))
def test_every_spelling_reads_as_the_same_canonical_text(key):
    raw = b"\xed\x01" + key
    name = DatasetId.from_bytes(raw)
    assert str(name) == "did:odf:f" + raw.hex()
    assert len(name) == 77
    assert name.bytes == raw
    assert name.short == raw.hex()[-8:]
    assert name.did_key.startswith("did:key:z6Mk")
    url = "u" + base64.urlsafe_b64encode(raw).decode().rstrip("=")
    for payload in ("f" + raw.hex(), "F" + raw.hex().upper(), url, multibase.encode_base58(raw)):
        for method in ("did:odf:", "did:key:"):
            assert DatasetId(method + payload) == name


@given(
    st.text()
    | st.text().map("did:odf:".__add__)
    | st.binary(max_size=50).map(lambda b: "did:odf:f" + b.hex())
)
def test_text_that_is_not_an_id_is_refused_and_nothing_else_happens(text):
    read = attempt(DatasetId, text)
    if isinstance(read, InputError):
        assert read.code in {"BadMultibase", "BadDatasetId"}
    else:
        assert DatasetId.from_bytes(read.bytes) == read


@pytest.mark.parametrize(
    "raw", [b"", b"\xed\x01" + bytes(31), b"\xed\x01" + bytes(33), b"\xec\x01" + bytes(32), bytes(34)]
)
def test_bytes_that_are_not_an_ed25519_key_are_refused(raw):
    with pytest.raises(InputError, match="32 bytes of an ed25519 key"):
        DatasetId.from_bytes(raw)


def test_something_that_is_not_text_is_refused():
    with pytest.raises(InputError, match="is text, not bytes"):
        DatasetId(b"did:odf:")  # type: ignore[arg-type]


def test_an_id_pickles():
    again = pickle.loads(pickle.dumps(seeded_id("foo")))
    assert again == seeded_id("foo")
    assert type(again) is DatasetId


def test_a_key_comes_back_from_its_private_bytes():
    key = DatasetKey.generate()
    again = DatasetKey.from_private_bytes(key.private_bytes())
    assert again == key
    assert again.id.bytes[:2] == b"\xed\x01"
    assert DatasetKey.generate().id != key.id


def test_the_published_ed25519_vector_gives_its_public_key():
    # RFC 8032 section 7.1, test 1.
    private = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert DatasetKey.from_private_bytes(private).id == "did:odf:fed01" + public


def test_a_key_does_not_show_its_private_half():
    key = DatasetKey.from_private_bytes(b"\x17" * 32)
    for text in (repr(key), str(key)):
        assert "1717" not in text
        assert "\\x17" not in text
        assert key.id in text


def test_a_private_key_of_another_length_is_refused():
    with pytest.raises(InputError, match="32 bytes, not 31"):
        DatasetKey.from_private_bytes(bytes(31))
