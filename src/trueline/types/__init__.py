"""The logical types of columns: what a value means, apart from how it is stored.

`float32` is not `float64`, and a category is not the number it is stored as
(view:C14). Every type can be null.
`str` spells a type, `parse` reads it back.

>>> vector(float32, 3), category(5), timestamp("ms")
(vector(float32, 3), category(5), timestamp(ms, UTC))
>>> import pyarrow as pa
>>> of(pa.int64()) == int64, of(pa.list_(pa.float32(), 3)) == parse("vector(float32, 3)")
(True, True)
>>> can_convert(text, date), can_convert(date, float64)
(True, False)
"""

from __future__ import annotations

from trueline.types.conversions import Conversion, can_convert, conversion, family
from trueline.types.kinds import (
    FLOATS,
    LOGICAL,
    NUMBERS,
    Category,
    Decimal,
    Duration,
    Nested,
    Primitive,
    RowIdentity,
    Time,
    Timestamp,
    Type,
    Unit,
    Vector,
    binary,
    boolean,
    category,
    date,
    decimal,
    duration,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    rowid,
    text,
    time,
    timestamp,
    uint8,
    uint16,
    uint32,
    uint64,
    vector,
)
from trueline.types.lookup import field, of, same
from trueline.types.type_text import parse

__all__ = [
    "FLOATS",
    "LOGICAL",
    "NUMBERS",
    "Category",
    "Conversion",
    "Decimal",
    "Duration",
    "Nested",
    "Primitive",
    "RowIdentity",
    "Time",
    "Timestamp",
    "Type",
    "Unit",
    "Vector",
    "binary",
    "boolean",
    "can_convert",
    "category",
    "conversion",
    "date",
    "decimal",
    "duration",
    "family",
    "field",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "of",
    "parse",
    "rowid",
    "same",
    "text",
    "time",
    "timestamp",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "vector",
]
