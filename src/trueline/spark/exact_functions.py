"""The functions of Python that canonical queries call: they cut rows into limbs, and round what was added.

Workers import this module and nothing of what rewrites queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.kernel.power_sums import from_limbs, from_values, limbs_of, sums_from_limbs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By the names that queries call them.
HELPERS: Final = frozenset({"tl_limbs_of", "tl_from_limbs", "tl_from_values"})


def register(session: SparkSession) -> None:
    """Make the functions known to a session."""
    from pyspark.sql.pandas.functions import arrow_udf

    made: Any = arrow_udf
    session.udf.register("tl_limbs_of", made(_limbs_of, "array<bigint>"))
    session.udf.register("tl_from_limbs", made(_from_limbs, "double"))
    session.udf.register("tl_from_values", made(_from_values, "double"))


def _limbs_of(kind: pa.Array, x: pa.Array, y: pa.Array) -> pa.Array:
    """Cut rows into limbs; those with a null have none."""
    there = pc.and_(x.is_valid(), y.is_valid())
    limbs = limbs_of(kind[0].as_py(), *(np.asarray(pc.fill_null(each, 0.0)) for each in (x, y)))
    rows, width = limbs.shape
    offsets = pa.array(np.arange(0, (rows + 1) * width, width, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, pa.array(limbs.reshape(-1)))
    return pc.if_else(there, lists, pa.scalar(None, lists.type))


def _from_limbs(kind: pa.Array, count: pa.Array, one: pa.Array, two: pa.Array, limbs: pa.Array) -> pa.Array:
    if len(kind) and kind[0].as_py() == "sum":
        return _sums(count, one, two, limbs)
    columns = (each.to_pylist() for each in (kind, count, one, two, limbs))
    return pa.array((from_limbs(*row) for row in zip(*columns, strict=True)), pa.float64())


def _sums(count: pa.Array, one: pa.Array, two: pa.Array, limbs: pa.Array) -> pa.Array:
    """Finish sums, all at once: they may be as many as there are groups."""
    numbers = (np.asarray(pc.fill_null(each, 0)) for each in (count, one, two, limbs.flatten()))
    counts, first, second, flat = numbers
    found, none = sums_from_limbs(counts, first, second, flat.reshape(len(counts), -1))
    return pa.array(found, mask=none)


def _from_values(kind: pa.Array, rows: pa.Array) -> pa.Array:
    found = zip(kind.to_pylist(), rows.to_pylist(), strict=True)
    return pa.array((from_values(name, _pairs(some or ())) for name, some in found), pa.float64())


def _pairs(rows: Sequence[dict[str, float]]) -> Iterator[tuple[float, float]]:
    for row in rows:
        one, other = row.values()
        yield one, other
