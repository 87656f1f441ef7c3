"""Fingerprints: the same for the same rows in any order and any pieces, another for others."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from trueline.dataset.append.pieces import IncomingPiece
from trueline.kernel import row_fingerprint as fp
from trueline.kernel.row_fingerprint import Fingerprint, fingerprint
from trueline.kernel.tasks import InlineTasks

TYPES = {
    "flag": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-1, 0, None]),
    "number": (pa.int64(), [1, -(2**62), None]),
    "real": (pa.float64(), [0.0, -0.0, 1.5, None]),
    "text": (pa.string(), ["", "a", "a\0", "\0a", "aa", "ä" * 40, None]),
    "large": (pa.large_binary(), [b"", b"\0", b"\0\0", None]),
    "fixed": (pa.binary(3), [b"abc", b"abd", None]),
    "money": (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "day": (pa.date32(), [0, 1, None]),
    "at": (pa.timestamp("us", "UTC"), [0, 1, None]),
    "list": (pa.list_(pa.string()), [[], [None], [""], ["a", "b"], ["ab"], ["b", "a"], None]),
    "pair": (pa.list_(pa.int32(), 2), [[1, 2], [2, 1], [None, 1], None]),
    "struct": (
        pa.struct({"x": pa.int64(), "y": pa.string()}),
        [{"x": 1, "y": "b"}, {"x": None, "y": None}, None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("k", 1)], [("k", None)], [("k", 1), ("l", 2)], None]),
    "none": (pa.null(), [None]),
    "code": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None]),
}


def of(values, kind, name="c"):
    return Fingerprint.of(pa.table({name: pa.array(values, kind)}), [name])


@pytest.mark.parametrize("name", TYPES)
def test_values_that_differ_are_told_apart(name):
    kind, values = TYPES[name]
    sums = [of([value], kind).total for value in values]
    assert len(set(sums)) == len(values)


rows = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, (_, values) in TYPES.items()}), max_size=40
)


@settings(max_examples=examples(60), deadline=None)
@given(rows, st.randoms(use_true_random=False), st.integers(0, 40))
def test_order_pieces_and_columns_do_not_matter(found, chance, at):
    schema = pa.schema({name: kind for name, (kind, _) in TYPES.items()})
    table = pa.Table.from_pylist(found, schema)
    whole = Fingerprint.of(table, schema.names)
    mixed = found.copy()
    chance.shuffle(mixed)
    other = pa.Table.from_pylist(mixed, schema).select(chance.sample(schema.names, len(schema)))
    pieces = [IncomingPiece.of(other.slice(0, at)), IncomingPiece.of(other.slice(at))]
    assert fingerprint(pieces, schema.names, InlineTasks(2)) == whole
    assert whole.rows == len(found)


def test_values_that_change_places_between_rows_are_noticed():
    one = pa.table({"a": [1, 2], "b": ["x", "y"]})
    other = pa.table({"a": [1, 2], "b": ["y", "x"]})
    swapped = pa.table({"a": ["x", "y"], "b": [1, 2]})
    assert len({Fingerprint.of(t, ["a", "b"]) for t in (one, other, swapped)}) == 3
    assert Fingerprint.of(one, ["a"]) == Fingerprint.of(other, ["a"])


def test_long_texts_are_hashed_in_blocks(monkeypatch):
    chance = random.Random(7)
    values = ["".join(chance.choices("abc", k=chance.randrange(50))) for _ in range(300)]
    whole = of(values, pa.string())
    monkeypatch.setattr(fp, "_ELEMENTS", 64)
    assert of(values, pa.string()) == whole
    assert of([v.encode() for v in values], pa.large_binary()) == whole
    assert of([*values[:-1], values[-1] + "a"], pa.string()) != whole
