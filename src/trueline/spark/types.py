"""Types between Arrow and Spark, annotations included; the table is in docs/reference/types.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as is_
from pyspark.sql import types as s

from trueline.annotations import annotations_of_arrow, annotations_to_arrow
from trueline.errors import NotPortable, SchemaError

_TO_ARROW: Final[dict[type[s.DataType], pa.DataType]] = {
    s.BooleanType: pa.bool_(),
    s.ByteType: pa.int8(),
    s.ShortType: pa.int16(),
    s.IntegerType: pa.int32(),
    s.LongType: pa.int64(),
    s.FloatType: pa.float32(),
    s.DoubleType: pa.float64(),
    s.StringType: pa.string(),
    s.CharType: pa.string(),
    s.VarcharType: pa.string(),
    s.BinaryType: pa.binary(),
    s.DateType: pa.date32(),
    s.TimestampType: pa.timestamp("us", "UTC"),
    s.TimestampNTZType: pa.timestamp("us"),
}
# Spark has no unsigned numbers and no half floats: they get the next type that holds every value.
_TO_SPARK: Final[dict[pa.DataType, s.DataType]] = {
    pa.bool_(): s.BooleanType(),
    pa.int8(): s.ByteType(),
    pa.int16(): s.ShortType(),
    pa.int32(): s.IntegerType(),
    pa.int64(): s.LongType(),
    pa.uint8(): s.ShortType(),
    pa.uint16(): s.IntegerType(),
    pa.uint32(): s.LongType(),
    pa.uint64(): s.DecimalType(20, 0),
    pa.float16(): s.FloatType(),
    pa.float32(): s.FloatType(),
    pa.float64(): s.DoubleType(),
    pa.string(): s.StringType(),
    pa.large_string(): s.StringType(),
    pa.string_view(): s.StringType(),
    pa.binary(): s.BinaryType(),
    pa.large_binary(): s.BinaryType(),
    pa.binary_view(): s.BinaryType(),
    pa.date32(): s.DateType(),
    pa.date64(): s.DateType(),
    pa.null(): s.NullType(),
}
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def arrow_schema_of(schema: s.StructType) -> pa.Schema:
    """Return the Arrow schema of a frame, or name the column that cannot be stored.

    >>> arrow_schema_of(s.StructType([s.StructField("at", s.TimestampType(), False)]))
    at: timestamp[us, tz=UTC] not null
    """
    return pa.schema(_arrow_fields(schema, ""))


def _arrow_fields(struct: s.StructType, path: str) -> list[pa.Field]:
    names = [field.name for field in struct.fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        column = f"{path}{twice}"
        raise SchemaError(f"column {column!r} occurs twice", remedy="rename one of them", column=column)
    return [
        pa.field(
            field.name,
            _arrow(field.dataType, f"{path}{field.name}"),
            field.nullable,
            annotations_to_arrow(annotations_of_spark(field.metadata)),
        )
        for field in struct.fields
    ]


def _arrow(kind: s.DataType, path: str) -> pa.DataType:
    plain = _TO_ARROW.get(type(kind))
    if plain is not None:
        return plain
    match kind:
        case s.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case s.TimeType():
            return pa.time64("us" if kind.precision <= 6 else "ns")
        case s.ArrayType():
            return pa.list_(pa.field("item", _arrow(kind.elementType, f"{path}[]"), kind.containsNull))
        case s.MapType():
            value = pa.field("value", _arrow(kind.valueType, f"{path}.value"), kind.valueContainsNull)
            return pa.map_(_arrow(kind.keyType, f"{path}.key"), value)
        case s.StructType():
            return pa.struct(_arrow_fields(kind, f"{path}."))
    raise SchemaError(
        f"column {path!r} has the type {kind.simpleString()}, which cannot be stored",
        remedy=_remedy(kind),
        column=path,
        type=kind.simpleString(),
    )


def _remedy(kind: s.DataType) -> str:
    match kind:
        case s.NullType():
            return "cast it to the type it will have, or drop it"
        case s.DayTimeIntervalType() | s.YearMonthIntervalType() | s.CalendarIntervalType():
            return "store a number in a fixed unit, such as seconds or months"
        case s.VariantType():
            return "store its text with to_json"
        case s.UserDefinedType():
            return "store its parts, such as an array of doubles"
    return "cast it to another type"


def to_spark_schema(schema: pa.Schema) -> s.StructType:
    """Return the Spark schema under which a frame with these columns is read.

    >>> to_spark_schema(pa.schema({"n": pa.uint32()})).simpleString()
    'struct<n:bigint>'
    """
    return s.StructType([_spark_field(field, field.name) for field in schema])


def _spark_field(field: pa.Field, path: str) -> s.StructField:
    annotations = annotations_to_spark(annotations_of_arrow(field.metadata))
    return s.StructField(field.name, _spark(field.type, path), field.nullable, annotations)


def _spark(kind: pa.DataType, path: str) -> s.DataType:
    plain = _TO_SPARK.get(kind)
    if plain is not None:
        return plain
    if is_.is_timestamp(kind):
        return s.TimestampNTZType() if kind.tz is None else s.TimestampType()
    if is_.is_time(kind):
        return s.TimeType(_DIGITS[kind.unit])
    if is_.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return s.DecimalType(kind.precision, kind.scale)
    if is_.is_fixed_size_binary(kind):
        return s.BinaryType()
    if is_.is_dictionary(kind):
        return _spark(kind.value_type, path)
    if is_.is_struct(kind):
        return s.StructType([_spark_field(field, f"{path}.{field.name}") for field in kind])
    if is_.is_map(kind):
        key, value = _spark(kind.key_type, f"{path}.key"), _spark(kind.item_type, f"{path}.value")
        return s.MapType(key, value, kind.item_field.nullable)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind) or _is_list_view(kind):
        return s.ArrayType(_spark(kind.value_type, f"{path}[]"), kind.value_field.nullable)
    raise SchemaError(
        f"column {path!r} has the type {kind}, which Spark does not have",
        remedy="leave it out, or cast it",
        column=path,
        type=str(kind),
    )


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(is_.is_list_view(kind) or is_.is_large_list_view(kind))


# --- values -----------------------------------------------------------------------------


def as_spark_values(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as Spark takes them, or name the column with a time that frames do not have.

    >>> times = pa.array([1_000]).cast(pa.timestamp("ns"))
    >>> as_spark_values(pa.record_batch({"at": times}), pa.schema({"at": pa.timestamp("us")})).to_pylist()
    [{'at': datetime.datetime(1970, 1, 1, 0, 0, 0, 1)}]
    """
    try:
        return batch.cast(schema)
    except pa.ArrowInvalid:
        for array, field in zip(batch.columns, schema, strict=True):
            if not _can_be(array, field.type):
                raise _too_fine(field.name, array.type) from None
        raise


def _can_be(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _too_fine(name: str, kind: pa.DataType) -> NotPortable:
    to = "timestamp" if is_.is_timestamp(kind) and kind.tz is not None else "timestamp_ntz"
    cut = f"cast(`{name.replace('`', '``')}` as {to})"
    return NotPortable(
        f"column {name!r} is a {kind} with times that a frame of Spark cannot hold: between microseconds, or "
        "too far from 1970",
        remedy=f"cut them to microseconds: view.with_columns({{{name!r}: {cut!r}}})"
        if is_.is_timestamp(kind)
        else "leave the column out, or cut its times to microseconds before",
        column=name,
        type=str(kind),
    )


# --- annotations ------------------------------------------------------------------------
#
# In Spark an annotation is an entry of the field's metadata. What Spark's users wrote there without a
# domain is kept under the domain `spark`.

_SPARK: Final = "spark/"
# Spark's metadata holds no list of mixed or nested values; such an annotation travels as JSON text.
_TEXT: Final = "json:"


def annotations_of_spark(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the annotations of a Spark field; what Spark keeps there for itself is left out."""
    found: dict[str, Any] = {}
    for key, value in (metadata or {}).items():
        if key.startswith("__"):
            continue
        if key.startswith(_TEXT):
            found[key.removeprefix(_TEXT)] = json.loads(value)
        else:
            found[key if "/" in key else _SPARK + key] = value
    return found


def annotations_to_spark(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return annotations as metadata of a Spark field."""
    found: dict[str, Any] = {}
    for key, value in annotations.items():
        name = key.removeprefix(_SPARK)
        name = name if name and "/" not in name else key
        if _fits(value):
            found[name] = value
        else:
            found[_TEXT + key] = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return found


def _fits(value: Any) -> bool:
    """Say whether Spark's metadata holds a value as it is."""
    match value:
        case bool() | str():
            return True
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return not value.is_integer()  # 1.0 would come back as it is only by luck of the text
        case dict():
            return all(_fits(each) for each in value.values())
        case list():
            # An empty list has no type there, and lists of lists are refused.
            kinds = {type(each) for each in value}
            return len(kinds) == 1 and kinds <= {str, bool, int} and all(_fits(each) for each in value)
    return False
