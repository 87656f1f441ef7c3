"""The logical types of columns: what a value means, apart from how it is stored.

`float32` is not `float64`, and a category is not the number it is stored as
(view:C14). Every type can hold null.
`str` spells a type, `parse` reads it back.

>>> vector(float32, 3), category(5), timestamp("ms")
(vector(float32, 3), category(5), timestamp(ms, UTC))
>>> import pyarrow as pa
>>> of(pa.int64()) == int64, of(pa.list_(pa.float32(), 3)) == parse("vector(float32, 3)")
(True, True)
>>> can_convert(text, date), can_convert(date, float64)
(True, False)

A type says what the values of a column are, and how they lie in memory:

>>> import pyarrow as pa
>>> from trueline import types as t
>>> prices = t.decimal(9, 2)
>>> prices, prices.arrow, prices.has_order, prices.is_primitive, prices.is_told, prices.metadata
(decimal(9, 2), Decimal128Type(decimal128(9, 2)), True, True, False, {})
>>> isinstance(prices, t.Type), isinstance(prices, t.Decimal), isinstance(t.int64, t.Primitive)
(True, True, True)
>>> [isinstance(kind, each) for kind, each in ((t.time(), t.Time), (t.duration("s"), t.Duration))]
[True, True]
>>> isinstance(t.timestamp(), t.Timestamp), isinstance(t.category(3), t.Category)
(True, True)
>>> isinstance(t.rowid, t.RowIdentity), isinstance(t.of(pa.struct({"x": pa.int64()})), t.Nested)
(True, True)
>>> point = t.vector(t.float32, 3)
>>> isinstance(point, t.Vector), point.size, point.compatible(t.vector(t.float32, 3)), point.sparse
(True, 3, True, ...)
>>> t.field("price", prices).type, t.family(prices)
(Decimal128Type(decimal128(9, 2)), 'decimal')
>>> isinstance(t.conversion(t.text, t.int64), t.Conversion)
True
>>> t.same("float32", t.float64, "price")
Traceback (most recent call last):
trueline.errors.SchemaError: ...
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
