"""Rows of state for tests, and the plainest state there is: a dictionary."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from trueline.chain.checkpoint import CheckpointFile
from trueline.dataset.state import State, encode_keys

COLUMNS = {"n": pa.int64(), "v": pa.string()}


def key_of(number: int) -> bytes:
    return encode_keys(pa.table({"n": pa.array([number], pa.int64())}), ["n"])[0].as_py()


def keys_of(numbers) -> pa.Array:
    return encode_keys(pa.table({"n": pa.array(list(numbers), pa.int64())}), ["n"])


def delta(change: Mapping[int, str | None], columns: Mapping[str, pa.DataType] = COLUMNS) -> pa.Table:
    """An update: number → text, None to remove; further columns hold the number again."""
    numbers = list(change)
    gone = [change[number] is None for number in numbers]
    kept = [None if out else number for number, out in zip(numbers, gone, strict=True)]
    table = {"_key": keys_of(numbers), "_gone": pa.array(gone, pa.bool_())}
    for name, kind in columns.items():
        values = list(change.values()) if name == "v" else kept
        table[name] = pa.array(values, kind)
    return pa.table(table)


def applied(before: Mapping[int, str], change: Mapping[int, str | None]) -> dict[int, str]:
    """What the rows are after an update."""
    after = {**before, **change}
    return {number: text for number, text in sorted(after.items()) if text is not None}


def content(state: State, **options) -> dict[int, str]:
    """All rows of a state, in the order it gives them out."""
    found: dict[int, str] = {}
    for batch in state.scan(**options):
        for row in batch.to_pylist():
            assert row["_key"] == key_of(row["n"])
            assert row["n"] not in found
            found[row["n"]] = row["v"]
    assert list(found) == sorted(found)
    return found


def reopened(state: State) -> State:
    """The state as the next process finds it, through the bytes of a checkpoint."""
    checkpoint = CheckpointFile.from_bytes(CheckpointFile(state.files).to_bytes())
    return State.open(state.store, checkpoint, state.name)
