from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.histories import dataset_id, derivative, digest, execute, taken
from tests.chain.records import dataset_ids, hashes, json_values
from trueline.chain import Folder
from trueline.chain.checkpoint import (
    DERIVED,
    FORMAT,
    MAX_CHECKPOINT_BYTES,
    CheckpointFile,
    DerivedCheckpoint,
    DerivedOrigin,
    StateFile,
    derived_checkpoint,
    is_at_rest,
    is_ours,
)
from trueline.chain.head_state import Position
from trueline.chain.references import references
from trueline.errors import HashMismatch, InputError, ObjectMissing, UnsupportedVersion
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


# --- of a derived dataset --------------------------------------------------------------

positions = st.builds(Position, hashes, st.none() | st.integers(0, (1 << 64) - 1))
origins = st.builds(
    DerivedOrigin,
    st.dictionaries(dataset_ids, positions, max_size=3),
    st.dictionaries(dataset_ids, hashes, max_size=3),
)
KNOWN = ("version", "origin", "at_rest", "definition", "engine", "versions")
derived = st.builds(
    DerivedCheckpoint,
    origins,
    st.booleans(),
    hashes,
    st.text(max_size=6),
    st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=2),
    st.lists(st.builds(StateFile, hashes, st.integers(0, 1 << 40)), max_size=2).map(tuple),
    st.dictionaries(st.text(max_size=6).filter(lambda key: key not in KNOWN), json_values, max_size=2),
    st.dictionaries(
        st.text(max_size=6).filter(lambda key: key not in (*OWN, DERIVED)), json_values, max_size=2
    ),
)


@given(derived)
def test_a_derived_checkpoint_survives_its_bytes_with_fields_of_later_versions(made):
    raw = made.to_file().to_bytes()
    assert DerivedCheckpoint.of(CheckpointFile.from_bytes(raw)) == made
    assert CheckpointFile.from_bytes(raw).to_bytes() == raw


A = dataset_id("a")
STATE = StateFile(Multihash.of(b"state"), 5, {"rows": 3, "encoding": 2})
ORIGIN = DerivedOrigin({A: Position(Multihash(digest("a1")), 9)}, {A: Multihash(digest("sql"))})
MADE = DerivedCheckpoint(ORIGIN, True, Multihash(digest("sql")), "spark", {"spark": "4"}, (STATE,))


def test_the_bytes_of_a_derived_checkpoint_never_change():
    assert MADE.to_file().to_bytes().decode() == (
        '{"derived":{"at_rest":true,"definition":"' + digest("sql") + '","engine":"spark",'
        '"origin":{"definitions":{"' + A + '":"' + digest("sql") + '"},'
        '"roots":{"' + A + '":{"block":"' + digest("a1") + '","offset":9}}},'
        '"version":1,"versions":{"spark":"4"}},'
        '"files":[{"encoding":2,"hash":"' + digest("state") + '","rows":3,"size":5}],'
        '"format":"trueline/checkpoint","version":2}'
    )


def test_a_checkpoint_that_says_nothing_of_a_derivation_is_none():
    assert DerivedCheckpoint.of(CheckpointFile(notes={"removal": {}})) is None


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"at_rest": 1},
        {"at_rest": None},
        {"engine": 3},
        {"versions": {"spark": 4}},
        {"versions": []},
        {"definition": "nonsense"},
        {"definition": 3},
        {"origin": {}},
        {"origin": {"roots": {}}},
        {"origin": {"roots": {"x": {}}, "definitions": {}}},
        {"origin": {"roots": {str(A): {"block": digest("x"), "offset": -1}}, "definitions": {}}},
        {"origin": {"roots": {str(A): {"block": digest("x")}}, "definitions": {}}},
        {"origin": {"roots": {}, "definitions": {str(A): "../x"}}},
        {"origin": {"roots": [], "definitions": {}}},
    ],
    ids=repr,
)
def test_a_derived_checkpoint_that_does_not_hold_together_is_refused(change):
    value = json.loads(MADE.to_file().to_bytes())
    value["derived"] |= change
    with pytest.raises(InputError) as caught:
        DerivedCheckpoint.of(CheckpointFile.from_bytes(json.dumps(value).encode()))
    assert caught.value.code == "DerivedCheckpointDamaged"
    assert caught.value.remedy


@pytest.mark.parametrize("value", [3, "x", [], {}])
def test_what_is_not_even_a_record_is_refused(value):
    with pytest.raises(InputError):
        DerivedCheckpoint.of(CheckpointFile(notes={DERIVED: value}))


def test_a_later_version_of_a_derived_checkpoint_is_refused_as_such():
    value = json.loads(MADE.to_file().to_bytes())
    value["derived"]["version"] = 2
    with pytest.raises(UnsupportedVersion):
        DerivedCheckpoint.of(CheckpointFile.from_bytes(json.dumps(value).encode()))


def ended(raw: bytes | None) -> Any:
    """A derived dataset that has made one transaction and left a checkpoint."""
    history = derivative("a")
    event = execute(taken("a", None, "a1", None, 9), data=(0, 9))
    if raw is not None:
        name = history.store.put(Folder.CHECKPOINTS, raw)
        event["newCheckpoint"] = {"physicalHash": str(name), "size": len(raw)}
    history.append(event)
    return history


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, True),
        (b"opaque", True),
        (CheckpointFile(notes={"removal": 1}).to_bytes(), True),
        (MADE.to_file().to_bytes(), True),
        (DerivedCheckpoint(ORIGIN, False, MADE.definition, "spark").to_file().to_bytes(), False),
    ],
    ids=["none", "of others", "of a removal", "at rest", "not at rest"],
)
def test_what_others_wrote_counts_as_at_rest(raw, expected):
    history = ended(raw)
    event = history.chain.block(history.head).event
    assert is_at_rest(history.store, event) is expected
    assert (derived_checkpoint(history.store, event) is None) == (raw is None or b"derived" not in raw)


def test_a_part_is_never_at_rest():
    part = execute(taken("a", "a1", None, 9), data=(10, 19), prev=9, was="c1", leaves="c1")
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), data=(0, 9), leaves="c1"),))
    history.append(part, strict=False)
    assert not is_at_rest(history.store, history.chain.block(history.head).event)


def test_a_checkpoint_that_is_gone_or_changed_is_corruption():
    history = ended(MADE.to_file().to_bytes())
    event = history.chain.block(history.head).event
    name = event.new_checkpoint.physical_hash
    history.store._objects[Folder.CHECKPOINTS][name] = (b"other", 1.0)
    with pytest.raises(HashMismatch):
        is_at_rest(history.store, event)
    del history.store._objects[Folder.CHECKPOINTS][name]
    with pytest.raises(ObjectMissing):
        is_at_rest(history.store, event)


def test_gc_push_and_clone_follow_the_state_of_a_derived_checkpoint():
    history = ended(MADE.to_file().to_bytes())
    found = {(each.role, each.hash) for each in references(history.chain.block(history.head), history.store)}
    assert ("state", STATE.hash) in found
