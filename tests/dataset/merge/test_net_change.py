"""What a result lost and gained is recorded as a snapshot of the whole result would be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.dataset.merge import merge_batch
from trueline.errors import InputError
from trueline.merge import KeyEquality, NetChange, Snapshot

SCHEMA = pa.schema({"k": pa.float64(), "x": pa.float64()})
NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
# Keys that are equal are written in one way: canonical results have one zero and one NaN.
RESULTS = st.dictionaries(st.sampled_from([None, 0.0, 1.0, 2.0, "nan"]), NUMBERS, max_size=5)


def table(rows, ops=None):
    made = pa.Table.from_pylist([{"k": key, "x": value} for key, value in rows], schema=SCHEMA)
    return made if ops is None else made.append_column("op", pa.array(ops, pa.int32()))


def items(result):
    return [(float("nan") if key == "nan" else key, value) for key, value in result.items()]


def merged(strategy, new, old):
    return merge_batch(strategy, new, old, equality=KeyEquality.GROUP)


@pytest.mark.contract("derive:V9")
@given(RESULTS, RESULTS, st.sets(st.sampled_from([None, 0.0, 1.0, 2.0, "nan"])))
def test_a_net_change_is_recorded_as_the_whole_result_would_be(before, after, touched):
    """Rows that did not change may or may not be part of the change."""
    changed = {key for key in {*before, *after} if str(before.get(key, "")) != str(after.get(key, ""))}
    touched |= changed
    gone = [item for item, key in zip(items(before), before, strict=True) if key in touched]
    came = [item for item, key in zip(items(after), after, strict=True) if key in touched]
    old = table(items(before)) if before else None
    change = table([*gone, *came], [1] * len(gone) + [0] * len(came))
    found = merged(NetChange(("k",)), change, old)
    expected = merged(Snapshot(("k",)), table(items(after)), old)
    assert str(found.events.to_pylist()) == str(expected.events.to_pylist())
    assert str(found.delta.to_pylist()) == str(expected.delta.to_pylist())
    assert found.tally == expected.tally


@pytest.mark.contract("derive:V7")
@pytest.mark.parametrize("gone", [[], [(2.0, 1.0)]])
def test_a_second_row_of_a_key_is_refused(gone):
    """Be it among the rows that come, or beside one that is there and does not go."""
    old = table([(1.0, 1.0), (2.0, 1.0)])
    change = table([*gone, (1.0, 5.0)], [1] * len(gone) + [0])
    with pytest.raises(InputError, match="more than once") as caught:
        merged(NetChange(("k",)), change, old)
    assert caught.value.code == "DuplicateKeys"
    assert [list(row.values())[:2] for row in caught.value.fields["rows"]] == [[1.0, 1.0], [1.0, 5.0]]
    with pytest.raises(InputError, match="more than once"):
        merged(NetChange(("k",)), table([(3.0, 1.0), (3.0, 1.0)], [0, 0]), old)


@pytest.mark.parametrize("gone", [(3.0, 1.0), (1.0, 2.0)])
def test_rows_that_go_have_to_be_there_as_they_are(gone):
    with pytest.raises(InputError, match="not those that are there") as caught:
        merged(NetChange(("k",)), table([gone], [1]), table([(1.0, 1.0)]))
    assert caught.value.code == "RowsDisagree"
