"""Keys as Spark compares them: by the rules of this process, whatever the types (exchange:E5).

Order: null last, NaN before it in either direction, 0.0 and -0.0 equal. Equality: NaN equals NaN, 0.0 equals
-0.0; whether null equals null is for whoever asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from trueline import types as t
from trueline.spark.lowering.layout import OrderColumn, wire

if TYPE_CHECKING:
    from pyspark.sql import Column


def equal_key(value: Column, kind: t.Type) -> Column:
    """Return a column whose values are equal in Spark where those of a key are equal."""
    from pyspark.sql import functions as f

    if kind not in t.FLOATS:
        return value
    number = f.lit(float("nan")).cast("double" if kind == t.float64 else "float")
    zero = f.lit(0.0).cast("double" if kind == t.float64 else "float")
    return f.when(f.isnan(value), number).when(value == 0, zero).otherwise(value)


def sort_key(value: Column, kind: t.Type, *, descending: bool) -> tuple[Column, OrderColumn]:
    """Return a column that orders rows as another one does, and what is known of it; null is last in each."""
    from pyspark.sql import functions as f

    travels = wire(kind).kind
    if kind in t.FLOATS:
        # For Spark a NaN is the largest number, and still is when the others are turned round.
        turned = -value if descending else value
        return f.when(value == 0, 0.0).otherwise(turned).cast("double"), OrderColumn(pa.float64())
    if kind == t.uint64:
        value = value.bitwiseXOR(f.lit(-(1 << 63)))
    if pa.types.is_boolean(travels) or pa.types.is_integer(travels):
        number = value.cast("bigint")
        # The complement turns the order round, and no value overflows.
        return f.bitwise_not(number) if descending else number, OrderColumn(pa.int64())
    return value, OrderColumn(travels, descending)
