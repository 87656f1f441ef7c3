"""Groups before and after a change, as the last step of an aggregate query gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.dataset.append.merge_ranges import spooled
from trueline.workspace.derive.strategies.accumulators import RESULT, ROWS, VALUES, VERSION, Accumulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trueline.chain.store.scratch import Scratch
    from trueline.workspace.derive.strategies.spooled import RowsInFile

# In updates of the state: 1 for groups that are gone.
OP: Final = "op"


@dataclass(frozen=True, slots=True)
class Partials:
    """Accumulators of rows that came and, with the sign −1, of rows that went, as Spark types them.

    They are rows of this process, or where they are many, files of scratch.
    """

    made: Accumulation
    schema: Any
    rows: pa.Table | None
    pieces: tuple[RowsInFile, ...] = ()

    def spooled(self, scratch: Scratch) -> Sequence[RowsInFile]:
        """Return them as files."""
        return self.pieces or [spooled(scratch, "partials", self.rows)]


def types_of(made: Accumulation, schema: Any) -> dict[str, str]:
    """Return the types of what is kept of a group as Spark names them."""
    names = (*made.sums, *((VALUES,) if made.values else ()))
    return {name: schema[name].dataType.simpleString() for name in names}


def change_of(made: Accumulation, found: pa.Table, op: str) -> pa.Table:
    """Return the rows of the result that go (those before) and come (those after)."""
    there = found.filter(pc.is_valid(found[RESULT])).combine_chunks()
    result = there[RESULT].combine_chunks() if there.num_rows else found.schema.field(RESULT).type
    if isinstance(result, pa.DataType):
        arrays = [pa.array([], result.field(at).type) for at in range(result.num_fields)]
    else:
        result = result.chunk(0) if isinstance(result, pa.ChunkedArray) else result
        arrays = result.flatten()
    ops = pa.array(1 - np.asarray(there[VERSION].combine_chunks(), np.int32), pa.int32())
    return pa.Table.from_arrays([*arrays, ops], names=[*made.columns, op])


def update_of(made: Accumulation, found: pa.Table, kept: pa.Schema | None) -> pa.Table:
    """Return what becomes of the state: accumulators after the change, typed as those that are `kept`."""
    after = found.filter(pc.equal(found[VERSION], 1)).select(list(made.kept))
    if kept is not None:
        after = after.cast(pa.schema([kept.field(name) for name in after.column_names]))
    counts = _counts(after)
    gone = np.zeros(len(counts), bool) if made.is_global else counts == 0
    return after.append_column(OP, pa.array(gone.astype(np.int32)))


def disagrees(update: pa.Table) -> bool:
    """Say whether a group lost more rows than it had."""
    return bool((_counts(update) < 0).any())


def _counts(rows: pa.Table) -> Any:
    return np.asarray(rows[ROWS].combine_chunks()) if rows.num_rows else np.zeros(0, np.int64)
