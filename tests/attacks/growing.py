"""Short chains in memory, with real slices, for properties over many histories."""

from __future__ import annotations

import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.events import DatasetKind, Seed, SetDataSchema, SetVocab
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.instant import Instant
from trueline.chain.schema import from_arrow
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.append.slices import SliceLayout, write_slice
from trueline.dataset.read import view_of
from trueline.identity.dataset_id import DatasetKey

_SCHEMA = whole_schema(from_arrow(pa.schema({"x": pa.int64()})), SetVocab())


def appended(chain: Chain, rows: int) -> None:
    """Append rows whose values are their offsets; the first append makes the dataset."""
    if chain.tail() is None:
        for event in (
            Seed(DatasetKey.generate().id, DatasetKind.Root),
            SetDataSchema(schema=_SCHEMA),
        ):
            chain.append(next_block(chain.tail(), event))
    tail = chain.tail()
    assert tail is not None
    time = Instant(max(Instant.now(), tail.system_time + 1))
    first = tail.next_offset
    times = pa.array([None] * rows, pa.timestamp("ms", "UTC"))
    table = pa.table({"event_time": times, "x": list(range(first, first + rows))})
    written = write_slice(chain.store, [table], SliceLayout(_SCHEMA, SetVocab(), time), first)
    checkpoint = tail.data.new_checkpoint if tail.data else None
    event = next_add_data(tail, new_data=written.slice, new_checkpoint=checkpoint)
    chain.append(next_block(tail, event, time))


def rows_of(chain: Chain) -> list[int]:
    """The values that readers see."""
    values: list[int] = view_of("x", chain, None, system=False).to_arrow()["x"].to_pylist()
    return values
