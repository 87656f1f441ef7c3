"""Rows in memory, which is a copy where others may change theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError
from trueline.identity import RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece
from trueline.readers.cast import may_be_unsound
from trueline.view.execute.dispatch import pieces, stored_columns
from trueline.view.plan.node import NodeState, Want
from trueline.view.plan.sources import Memory
from trueline.view.source_cells import Pass, as_types, tally_of


@pieces.register(Memory)
def _memory(node: Memory, want: Want) -> Sequence[Piece]:
    """Return equal parts of the table, some thousands of rows each, or as many as are wanted."""
    total = node.table.num_rows
    kinds = tuple(node.schema[index].type for index in want.columns)
    chosen = node.table.select(list(want.columns))
    noted = None if all(_is_exact(node, index) for index in want.columns) else Pass(tally_of(node))
    looked_at = LookedAt(want.columns, _sound.of(node))
    return [
        MemoryPiece(chosen.slice(start, stop - start), kinds, start, stop - start, want.ids, noted, looked_at)
        for start, stop in _stretches(total, want.parts)
    ]


@stored_columns.register(Memory)
def _stored(node: Memory, columns: tuple[int, ...], rows: range) -> list[pa.ChunkedArray] | None:
    """Return slices of columns whose cells are values, whatever they hold or since all were looked at."""
    sound = _sound.of(node)
    stretches = [] if all(_is_exact(node, column) for column in columns) else _stretches(node.table.num_rows)
    if not all(
        _is_exact(node, column) or all((column, start, stop - start) in sound for start, stop in stretches)
        for column in columns
    ):
        return None
    return [node.table.column(column).slice(rows.start, len(rows)) for column in columns]


def _stretches(total: int, wished: int = 0) -> list[tuple[int, int]]:
    """Cut rows into parts of at most as many as a chunk has."""
    parts = max(-(-total // ROWS_OF_A_CHUNK), min(wished, total))
    return list(pairwise(total * part // parts for part in range(parts + 1))) if parts else []


def _is_exact(node: Memory, column: int) -> bool:
    """Say whether cells are of the type that the column has, and values of it whatever they hold."""
    given, kind = node.table.schema.field(column).type, node.schema[column].type
    return bool(
        given == kind.arrow and not isinstance(kind, t.Vector | t.Category) and not may_be_unsound(given)
    )


# Which cells of a table were looked at and are values, as they are: columns, and stretches of rows.
_sound: Final = NodeState[set[tuple[int, int, int]]](lambda _: set())


@dataclass(frozen=True)
class LookedAt:
    """Which columns of a table are read, and which of its cells are known to be values."""

    columns: tuple[int, ...]
    sound: set[tuple[int, int, int]]


@dataclass(frozen=True, eq=False)
class MemoryPiece:
    """Some rows of a table, from number `start` on."""

    table: pa.Table
    kinds: tuple[t.Type, ...]
    start: int
    rows: int
    ids: bool
    noted: Pass | None
    looked_at: LookedAt | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere it has these rows only: a slice of a table is pickled with all rows of its buffers."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        rest = self.kinds, self.start, self.rows, self.ids, self.noted
        return _received, (sink.getvalue().to_pybytes(), *rest)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        bad: Counter[str] = Counter()
        for start in range(0, self.rows, ROWS_OF_A_CHUNK):
            rows = min(ROWS_OF_A_CHUNK, self.rows - start)
            part = self.table.slice(start, rows)
            if self.noted is None and all(column.num_chunks == 1 for column in part.columns):
                arrays = tuple(column.chunk(0) for column in part.columns)
            else:
                arrays = self._values(part, self.start + start, bad)
                if bad and self.noted is not None:
                    self.noted.note(self.start, bad)
            yield Chunk(rows, arrays, RowIds.range(self.start + start, rows) if self.ids else None)

    def _values(self, part: pa.Table, start: int, bad: Counter[str]) -> tuple[pa.Array, ...]:
        """Return columns of some rows; what was looked at before is taken as it is."""
        arrays: list[pa.Array] = []
        known = self.looked_at
        for place, (column, kind, name) in enumerate(
            zip(part.columns, self.kinds, part.column_names, strict=True)
        ):
            if known is None or column.num_chunks != 1:
                arrays += as_types([column], [kind], [name], bad)
                continue
            cells, given = (known.columns[place], start, part.num_rows), column.chunk(0)
            if cells in known.sound:
                arrays.append(given)
                continue
            arrays += as_types([given], [kind], [name], bad)
            if arrays[-1] is given:
                known.sound.add(cells)
        return tuple(arrays)


def _received(rows: bytes, *rest: Any) -> MemoryPiece:
    return MemoryPiece(pa.ipc.open_stream(rows).read_all(), *rest)


# --- memory of their own --------------------------------------------------------------------


def copied_table(data: Any) -> pa.Table:
    """Return a copy of an Arrow table or batch, or of anything with `__arrow_c_stream__`."""
    if isinstance(data, pa.RecordBatch):
        return owned(pa.Table.from_batches([data]))
    if isinstance(data, pa.Table):
        return owned(data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return owned(pa.table(data))
    raise InputError(
        f"a {type(data).__name__} is not an Arrow table",
        remedy="give a table, a batch, or anything with __arrow_c_stream__; from_rows takes dictionaries",
    )


def owned(table: pa.Table) -> pa.Table:
    """Return a table in memory of its own, which nobody else can change.

    Arrow does not say whose memory a buffer is: that of a numpy array looks like its own. So all is copied.

    >>> import numpy as np
    >>> numbers = np.arange(3)
    >>> table = owned(pa.table({"x": numbers}))
    >>> numbers[0] = 9
    >>> table["x"].to_pylist()
    [0, 1, 2]
    """
    columns = [
        pa.chunked_array([_copied(chunk) for chunk in column.chunks], type=column.type)
        for column in table.columns
    ]
    # A table without columns knows its rows only by itself.
    return pa.Table.from_arrays(columns, schema=table.schema) if columns else table


def _copied(array: Any) -> Any:
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _copied(array.storage))
    if isinstance(array, pa.DictionaryArray):
        codes, values = _copied(array.indices), _copied(array.dictionary)
        return pa.DictionaryArray.from_arrays(codes, values, ordered=array.type.ordered, safe=False)
    # Of one array Arrow gives back the same memory, of two it makes new.
    return pa.concat_arrays([array, array[:0]])
