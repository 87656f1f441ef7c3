"""Several sorted streams read as one, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from trueline.workspace.state.keys import KeyRange
from trueline.workspace.state.ordering import as_array, overlay, within


def merged(streams: Sequence[Iterator[pa.Table]], column: str) -> Iterator[pa.Table]:
    """Merge streams that each ascend by unique keys; where several have a key, the last stream wins.

    Holds one table of each stream. Each round gives out everything up to the
    smallest of their last keys, so at least one of them is used up.
    """
    waiting: list[pa.Table | None] = [None] * len(streams)
    while True:
        for number, stream in enumerate(streams):
            waiting[number] = _filled(waiting[number], stream)
        live = [(number, table) for number, table in enumerate(waiting) if table is not None]
        if not live:
            return
        if len(live) == 1:
            number, table = live[0]
            waiting[number] = None
            yield table
            continue
        keys = [as_array(table[column]) for _, table in live]
        # The smallest key after the bound: what is before it is given out.
        bound = KeyRange(end=min(each[-1].as_py() for each in keys) + b"\x00")
        heads = []
        for (number, table), each in zip(live, keys, strict=True):
            _, end = within(each, bound)
            heads.append(table.slice(0, end))
            waiting[number] = table.slice(end)
        yield overlay(heads, column)


def _filled(table: pa.Table | None, stream: Iterator[pa.Table]) -> pa.Table | None:
    """Return a table with rows: this one, or else the next of its stream; None at its end."""
    while table is None or not table.num_rows:
        table = next(stream, None)
        if table is None:
            return None
    return table
