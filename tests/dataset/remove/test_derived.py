"""Removal from a derived dataset: its blocks have no room for notes, so checkpoints say where they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.workspace.derive.by_hand import advance, define
from trueline.chain.chain import Chain
from trueline.chain.events import (
    DatasetKind,
    ExecuteTransform,
    Seed,
    SetDataSchema,
    SetTransform,
    SetVocab,
    TransformInput,
)
from trueline.chain.head_state import Position, next_block, next_execute_transform
from trueline.chain.instant import Instant
from trueline.chain.schema import from_arrow
from trueline.chain.sources import SqlQueryStep, TransformSql
from trueline.chain.store.memory import MemoryStore
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.append.slices import SliceLayout, write_slice
from trueline.dataset.read import view_of
from trueline.dataset.remove.drop import drop_data
from trueline.dataset.remove.record import removals_of
from trueline.dataset.verify import verify_data
from trueline.identity.dataset_id import DatasetKey
from trueline.identity.multihash import Multihash


@pytest.fixture
def chain():
    """A derived dataset that took one block of its input and has three rows."""
    made = Chain(MemoryStore())
    source = DatasetKey.generate().id
    schema = whole_schema(from_arrow(pa.schema({"x": pa.int64()})), SetVocab())
    transform = TransformSql(engine="spark", queries=(SqlQueryStep(query="select 1"),))
    for event in (
        Seed(DatasetKey.generate().id, DatasetKind.Derivative),
        SetTransform(inputs=(TransformInput(str(source), "source"),), transform=transform),
        SetDataSchema(schema=schema),
    ):
        made.append(next_block(made.tail(), event))
    tail = made.tail()
    time = Instant(int(tail.system_time) + 1)
    event_time = pa.array([None] * 3, pa.timestamp("ms", "UTC"))
    rows = pa.table({"event_time": event_time, "x": [1, 2, 3]})
    written = write_slice(made.store, [rows], SliceLayout(schema, SetVocab(), time), 0)
    taken = {source: Position(Multihash.of(b"block"), 7)}
    event = next_execute_transform(tail, taken, new_data=written.slice)
    made.append(next_block(tail, event, time))
    return made


def test_records_go_and_the_next_removal_knows_of_the_one_before(chain):
    assert drop_data("derived", chain, where="x = 2", reason="one").rows == 1
    assert isinstance(chain.block(chain.head).event, ExecuteTransform)
    assert drop_data("derived", chain, upto=0, reason="two").rows == 1
    assert [removal.reason for removal in removals_of(chain).all] == ["one", "two"]
    view = view_of("derived", chain, None, system=False)
    assert view.to_arrow()["x"].to_pylist() == [3]
    assert view.removed == 2
    assert [str(found.kind) for found in verify_data(chain, None, chain.head).problems] == ["removed"]


def test_later_commits_still_know_what_was_removed(ws):
    schema = pa.schema({"id": pa.int64(), "x": pa.int64()})
    made = define(ws, "made", schema, ("id",))
    advance(ws, made, pa.table({"id": [1, 2], "x": [1, 2]}, schema))
    advance(ws, made, pa.table({"id": [1, 2], "x": [1, 3]}, schema))
    made.drop_data(upto=0, reason="asked for")
    advance(ws, made, pa.table({"id": [1, 2], "x": [1, 4]}, schema))
    advance(ws, made, pa.table({"id": [1, 2], "x": [1, 5]}, schema))
    assert [removal.reason for removal in removals_of(made.chain).all] == ["asked for"]
    assert made.view().removed == made.drop_data(upto=0, reason="again").rows + 1
    assert {str(found.kind) for found in ws.verify("made").problems} == {"removed"}
    assert {row["id"]: row["x"] for row in made.view().to_arrow().to_pylist()} == {1: 1, 2: 5}
