from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.histories import digest
from tests.chain.records import hashes, json_values
from trueline.chain.checkpoint import (
    FORMAT,
    MAX_CHECKPOINT_BYTES,
    CheckpointFile,
    StateFile,
    is_ours,
)
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

OWN = ("format", "version", "files")
notes = st.dictionaries(st.text(max_size=6).filter(lambda key: key not in OWN), json_values, max_size=3)
file_notes = st.dictionaries(
    st.text(max_size=6).filter(lambda key: key not in ("hash", "size")), json_values, max_size=2
)
files = st.lists(st.builds(StateFile, hashes, st.integers(0, 1 << 63), file_notes), max_size=3).map(tuple)


def text(**more: Any) -> bytes:
    return json.dumps({"format": FORMAT, "version": 1, "files": []} | more).encode()


@given(files, notes)
def test_a_checkpoint_survives_its_bytes(found, said):
    checkpoint = CheckpointFile(found, said)
    raw = checkpoint.to_bytes()
    assert is_ours(raw)
    assert CheckpointFile.from_bytes(raw) == checkpoint
    assert CheckpointFile.from_bytes(raw).to_bytes() == raw


@given(notes)
def test_equal_checkpoints_have_equal_bytes(said):
    backwards = dict(reversed(list(said.items())))
    assert CheckpointFile(notes=said).to_bytes() == CheckpointFile(notes=backwards).to_bytes()


def test_the_bytes_of_a_checkpoint_never_change():
    checkpoint = CheckpointFile(
        (StateFile(Multihash(digest("state")), 7, {"keys": [1, 2]}),), {"origin": {"a": 3}, "ü": None}
    )
    assert checkpoint.to_bytes().decode() == (
        '{"files":[{"hash":"' + digest("state") + '","keys":[1,2],"size":7}],'
        '"format":"trueline/checkpoint","origin":{"a":3},"version":1,"ü":null}'
    )


def test_notes_cannot_stand_in_for_what_a_checkpoint_says_itself():
    state = StateFile(Multihash(digest("real")), 7, {"hash": digest("other"), "size": 8})
    raw = CheckpointFile((state,), {"format": "other", "version": 9, "files": []}).to_bytes()
    read = CheckpointFile.from_bytes(raw)
    assert [(file.hash, file.size) for file in read.files] == [(digest("real"), 7)]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"trueline/checkpoint",
        b'"trueline/checkpoint"',
        b'{"format":"other","about":"trueline/checkpoint"}',
        b'{"format":"trueline/checkpoint"',
        b'{"format":["trueline/checkpoint"]}',
        b"\xff\xfe" + FORMAT.encode(),
        FORMAT.encode() + b"[" * 100_000,
        b'{"format":"trueline/checkpoint","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"PK\x03\x04" + FORMAT.encode() + b"\0" * 100,
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_what_another_engine_wrote_is_opaque(raw):
    assert not is_ours(raw)
    with pytest.raises(InputError) as caught:
        CheckpointFile.from_bytes(raw)
    assert caught.value.remedy


def test_a_file_too_large_to_be_a_list_is_opaque():
    assert not is_ours(text() + b" " * MAX_CHECKPOINT_BYTES)


@pytest.mark.parametrize(
    "more",
    [
        {"version": 0},
        {"version": 3},
        {"files": [{"hash": digest("x"), "size": 3, "encoding": 2}]},
        {"version": "1"},
        {"version": True},
        {"version": 1.0},
        {"version": None},
        {"files": None},
        {"files": {}},
        {"files": [3]},
        {"files": [{}]},
        {"files": [{"hash": digest("x")}]},
        {"files": [{"size": 3}]},
        {"files": [{"hash": digest("x"), "size": -1}]},
        {"files": [{"hash": digest("x"), "size": "3"}]},
        {"files": [{"hash": digest("x"), "size": True}]},
        {"files": [{"hash": "nonsense", "size": 3}]},
        {"files": [{"hash": "../../etc/passwd", "size": 3}]},
        {"files": [{"hash": 3, "size": 3}]},
    ],
    ids=repr,
)
def test_a_checkpoint_of_ours_that_does_not_hold_together_is_refused(more):
    raw = text(**more)
    assert is_ours(raw)
    with pytest.raises(InputError) as caught:
        CheckpointFile.from_bytes(raw)
    assert caught.value.remedy


@given(st.binary(max_size=80))
def test_any_bytes_are_ours_or_not(raw):
    assert not is_ours(raw)
    assert isinstance(is_ours(text()[:-1] + raw), bool)


def test_what_is_no_json_is_not_written():
    for said in ({"x": float("nan")}, {"x": {1, 2}}, {3: 4}):
        with pytest.raises(InputError):
            CheckpointFile(notes=said).to_bytes()


def test_the_version_is_two_where_a_file_names_the_encoding_of_its_keys_and_one_elsewhere():
    plain = StateFile(Multihash.of(b"x"), 3, {"state": "a"})
    other = StateFile(Multihash.of(b"y"), 3, {"state": "b", "encoding": 2})
    assert json.loads(CheckpointFile((plain,)).to_bytes())["version"] == 1
    raw = CheckpointFile((plain, other)).to_bytes()
    assert json.loads(raw)["version"] == 2
    assert CheckpointFile.from_bytes(raw).files == (plain, other)


def test_a_copy_keeps_what_a_later_version_says():
    """A field, a note of a file, and a version that nothing known here needs."""
    later = text(version=2, hints={"a": 1}, files=[{"hash": digest("x"), "size": 3, "shape": [1]}])
    assert json.loads(CheckpointFile.from_bytes(later).to_bytes()) == json.loads(later)
