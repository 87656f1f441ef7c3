"""A cut as a value: equal by its positions, the same bytes for ever, hostile until it was read whole."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.histories import dataset_id, digest
from tests.chain.records import dataset_ids, hashes, instants, json_values
from trueline.chain import Instant
from trueline.chain.head_state import Position
from trueline.errors import CorruptionError, UnsupportedVersion
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.cut import Cut, fold_cuts, unfold_cuts

A, B = dataset_id("a"), dataset_id("b")
OWN = ("format", "version", "number", "time", "positions", "reset", "broken", "transactions", "gone")
positions = st.builds(Position, hashes, st.none() | st.integers(0, (1 << 64) - 1))
cuts = st.builds(
    Cut,
    st.dictionaries(dataset_ids, positions, max_size=3),
    st.integers(0, 1 << 62),
    st.none() | instants,
    st.frozensets(dataset_ids, max_size=2),
    st.lists(st.binary(min_size=16, max_size=16).map(bytes.hex), max_size=2).map(tuple),
    st.dictionaries(st.text(max_size=6).filter(lambda key: key not in OWN), json_values, max_size=2),
    st.dictionaries(
        st.binary(min_size=16, max_size=16).map(bytes.hex),
        st.dictionaries(dataset_ids, st.none() | positions, max_size=2),
        max_size=2,
    ),
)


def at(label, offset):
    return Position(Multihash(digest(label)), offset)


def fields(cut):
    return (cut.positions, cut.number, cut.time, cut.reset, cut.broken, cut.more, cut.transactions)


@given(cuts)
def test_a_cut_survives_its_bytes(cut):
    read = Cut.from_bytes(cut.to_bytes(), "here")
    assert fields(read) == fields(cut)
    assert read.to_bytes() == cut.to_bytes()


def test_the_bytes_of_a_cut_never_change():
    time = Instant.parse("2026-11-13T09:30:00Z")
    cut = Cut({A: at("x", 41), B: at("y", None)}, 7, time, frozenset({B}), ("0" * 32,), {"later": [1]})
    both = sorted([(str(A), digest("x"), "41"), (str(B), digest("y"), "null")])
    shown = ",".join(f'"{name}":{{"block":"{block}","offset":{offset}}}' for name, block, offset in both)
    assert cut.to_bytes().decode() == (
        f'{{"broken":["{"0" * 32}"],"format":"trueline/cut","later":[1],"number":7,"positions":{{{shown}}},'
        f'"reset":["{B}"],"time":"2026-11-13T09:30:00Z","version":1}}\n'
    )


def test_cuts_are_equal_by_their_positions():
    one = Cut({A: at("x", 1)}, 7)
    assert one == Cut({A: at("x", 1)}, 9, reset=frozenset({A}))
    assert len({one, Cut({A: at("x", 1)})}) == 1
    assert one != Cut({A: at("other", 1)}, 7)
    assert Cut({A: at("x", 1), B: at("y", 2)}).of([A, dataset_id("c")]) == one
    assert Cut() == Cut().of([A])


def test_a_field_of_a_later_version_is_kept_when_it_is_copied():
    raw = json.dumps(json.loads(Cut({A: at("x", 1)}, 3).to_bytes()) | {"later": {"x": [1]}}).encode()
    assert json.loads(Cut.from_bytes(raw, "here").to_bytes())["later"] == {"x": [1]}


GOOD = json.loads(Cut({A: at("x", 1)}, 3, Instant.parse("2026-01-01T00:00:00Z")).to_bytes())
NESTED = b'{"format":"trueline/cut","version":1,"positions":{},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"cut",
        NESTED,
        *(
            json.dumps(GOOD | more).encode()
            for more in (
                {"format": "other"},
                {"version": 0},
                {"version": True},
                {"version": "1"},
                {"number": -1},
                {"number": 4},
                {"number": "3"},
                {"number": True},
                {"number": 1 << 70},
                {"time": "yesterday"},
                {"time": 3},
                {"positions": []},
                {"positions": None},
                {"positions": {"a": {"block": digest("x"), "offset": 1}}},
                {"positions": {str(A).upper(): {"block": digest("x"), "offset": 1}}},
                {"positions": {str(A): {"block": "../../x", "offset": 1}}},
                {"positions": {str(A): {"block": digest("x")}}},
                {"positions": {str(A): {"block": digest("x"), "offset": -1}}},
                {"positions": {str(A): {"block": digest("x"), "offset": 1.0}}},
                {"positions": {str(A): {"block": digest("x"), "offset": True}}},
                {"positions": {str(A): {"block": digest("x"), "offset": 1 << 64}}},
                {"positions": {str(A): 3}},
                {"reset": "all"},
                {"reset": [3]},
                {"broken": [3]},
                {"transactions": [3]},
                {"transactions": {"x": {}}},
                {"transactions": {"0" * 32: {"x": None}}},
                {"transactions": {"0" * 32: {str(A): 3}}},
                {"broken": ["x" * 32]},
                {"broken": ["0" * 32] * 10_001},
            )
        ),
    ],
    ids=lambda raw: repr(raw[-60:]),
)
def test_what_is_not_a_cut_is_damage_that_names_the_place(raw):
    with pytest.raises(CorruptionError) as caught:
        Cut.from_bytes(raw, "lake/.cuts/cut/3", 3)
    assert (caught.value.code, caught.value.path) == ("CutsDamaged", "lake/.cuts/cut/3")
    assert "lake/.cuts/cut/3" in caught.value.problem
    assert caught.value.remedy


def test_a_later_version_is_refused_as_such():
    with pytest.raises(UnsupportedVersion) as caught:
        Cut.from_bytes(json.dumps(GOOD | {"version": 2}).encode(), "here")
    assert caught.value.remedy


def test_a_cut_is_shown_with_its_offsets_and_what_was_reset():
    cut = Cut({A: at("x", 41)}, 7, reset=frozenset({B}), broken=("ab" * 16,))
    assert str(cut) == f"cut 7: {A.short}@41"
    shown = cut._repr_html_()
    for text in ("Cut 7", str(A), ">41<", str(B), "reset", "abababab"):
        assert text in shown
    assert "<b>" not in Cut({}, 7, more={"x": "<b>"})._repr_html_()


# --- many in one object -----------------------------------------------------------------


@given(st.lists(cuts, min_size=1, max_size=5), st.integers(1, 1 << 40))
def test_folded_cuts_are_the_same_cuts(found, first):
    numbered = [replace(c, number=first + n) for n, c in enumerate(found)]
    raw = fold_cuts(numbered)
    assert [fields(c) for c in unfold_cuts(raw, "here", first, len(found))] == [fields(c) for c in numbered]


def test_folded_cuts_take_the_room_of_what_changed():
    many = {dataset_id(n): at(n, n) for n in range(500)}
    found = [Cut({**many, A: at(n, n)}, n) for n in range(1, 101)]
    assert len(fold_cuts(found)) < 3 * len(found[0].to_bytes())


@pytest.mark.parametrize("change", ["short", "long", "number", "format", "gone"])
def test_folded_cuts_that_do_not_hold_together_are_damage(change):
    value = json.loads(fold_cuts([Cut({A: at(n, n)}, n) for n in (1, 2, 3)]))
    match change:
        case "short":
            value["cuts"].pop()
        case "long":
            value["cuts"].append(value["cuts"][-1])
        case "number":
            value["cuts"][1]["number"] = 5
        case "format":
            value["format"] = "trueline/cut"
        case "gone":
            value["cuts"][1]["gone"] = ["x"]
    with pytest.raises(CorruptionError) as caught:
        list(unfold_cuts(json.dumps(value).encode(), "lake/.cuts/folded/1", 1, 3))
    assert (caught.value.code, caught.value.path) == ("CutsDamaged", "lake/.cuts/folded/1")
