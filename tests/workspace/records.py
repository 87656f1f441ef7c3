"""Reading a dataset back from its files, without any code of the workspace."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.store.store import Folder


def slices(dataset):
    """The slices of a dataset, oldest first, each with its DataSlice."""
    for _, block in dataset.chain.between(None):
        event = block.data_event
        if event is not None and event.new_data is not None:
            raw = dataset.chain.store.get(Folder.DATA, event.new_data.physical_hash)
            yield event.new_data, pq.read_table(io.BytesIO(raw))


def records(dataset) -> pa.Table:
    """All records of a dataset."""
    tables = [table for _, table in slices(dataset)]
    return pa.concat_tables(tables, promote_options="default")


def column(dataset, name: str) -> list:
    return records(dataset)[name].to_pylist()
