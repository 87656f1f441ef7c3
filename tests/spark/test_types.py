"""Types and annotations between Arrow, Spark and the chain."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as s
from pyspark.sql.pandas.types import to_arrow_schema

from trueline.annotations import annotations_of_arrow, annotations_to_arrow
from trueline.chain.schema import from_arrow, to_arrow
from trueline.errors import SchemaError
from trueline.spark.types import (
    annotations_of_spark,
    annotations_to_spark,
    arrow_schema_of,
    to_spark_schema,
)

PLAIN = st.sampled_from(
    [
        s.BooleanType(),
        s.ByteType(),
        s.ShortType(),
        s.IntegerType(),
        s.LongType(),
        s.FloatType(),
        s.DoubleType(),
        s.StringType(),
        s.BinaryType(),
        s.DateType(),
        s.TimestampType(),
        s.TimestampNTZType(),
        s.TimeType(6),
        s.DecimalType(10, 2),
        s.DecimalType(38, 38),
    ]
)


def fields(kinds):
    names = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
    return names.flatmap(
        lambda ns: st.tuples(*(st.builds(s.StructField, st.just(n), kinds, st.booleans()) for n in ns))
    ).map(lambda fs: s.StructType(list(fs)))


TYPES = st.recursive(
    PLAIN,
    lambda inner: (
        st.builds(s.ArrayType, inner, st.booleans())
        | st.builds(s.MapType, PLAIN, inner, st.booleans())
        | fields(inner)
    ),
    max_leaves=6,
)


@given(fields(TYPES))
def test_what_comes_from_spark_goes_back_as_it_was(schema):
    assert to_spark_schema(arrow_schema_of(schema)) == schema


@given(fields(TYPES))
def test_the_chain_keeps_what_comes_from_spark(schema):
    arrow = arrow_schema_of(schema)
    assert to_arrow(from_arrow(arrow)) == arrow


@given(fields(TYPES.filter(lambda kind: "time(" not in kind.simpleString())))
def test_pyspark_agrees(schema):
    theirs = to_arrow_schema(schema, timezone="UTC")
    assert [str(f.type).replace("element:", "item:") for f in theirs] == [
        str(f.type) for f in arrow_schema_of(schema)
    ]


@pytest.mark.parametrize(
    ("arrow", "spark"),
    [
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary(5), "binary"),
        (pa.date64(), "date"),
        (pa.timestamp("ms", "UTC"), "timestamp"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Paris"), "timestamp"),
        (pa.time32("ms"), "time(3)"),
        (pa.time64("ns"), "time(9)"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.list_(pa.uint8(), 3), "array<smallint>"),
        (pa.large_list(pa.int8()), "array<tinyint>"),
        (pa.list_view(pa.int8()), "array<tinyint>"),
        (pa.decimal256(38, 3), "decimal(38,3)"),
        (pa.map_(pa.string(), pa.int8()), "map<string,tinyint>"),
        (pa.null(), "void"),
    ],
)
def test_what_spark_has_not_becomes_the_next_type_that_holds_it(arrow, spark):
    assert to_spark_schema(pa.schema({"c": arrow}))["c"].dataType.simpleString() == spark


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.decimal256(50, 3), pa.decimal128(5, -2)])
def test_what_spark_cannot_hold_is_refused_by_column(kind):
    with pytest.raises(SchemaError) as caught:
        to_spark_schema(pa.schema({"a": pa.struct({"b": pa.list_(kind)})}))
    assert caught.value.column == "a.b[]"


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (s.NullType(), "cast"),
        (s.DayTimeIntervalType(), "seconds"),
        (s.YearMonthIntervalType(), "months"),
        (s.CalendarIntervalType(), "unit"),
        (s.VariantType(), "to_json"),
        (s.GeometryType(4326), "cast"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_column_with_the_remedy(kind, remedy):
    nested = s.StructType([s.StructField("a", s.ArrayType(s.StructType([s.StructField("b", kind)])))])
    with pytest.raises(SchemaError) as caught:
        arrow_schema_of(nested)
    assert caught.value.column == "a[].b"
    assert remedy in caught.value.remedy


def test_a_column_that_occurs_twice_is_refused_and_case_tells_columns_apart():
    twice = s.StructType([s.StructField("a", s.LongType()), s.StructField("a", s.LongType())])
    with pytest.raises(SchemaError, match="'a' occurs twice"):
        arrow_schema_of(twice)
    cases = s.StructType([s.StructField("a", s.LongType()), s.StructField("A", s.LongType())])
    assert arrow_schema_of(cases).names == ["a", "A"]


# --- annotations ------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
ANNOTATIONS = st.dictionaries(st.from_regex(r"[a-z]{1,4}/[a-z]{1,4}", fullmatch=True), JSON, max_size=3)


@given(ANNOTATIONS)
def test_annotations_go_to_spark_and_to_arrow_and_come_back(annotations):
    assert annotations_of_spark(annotations_to_spark(annotations)) == annotations
    as_bytes = {k.encode(): v.encode() for k, v in (annotations_to_arrow(annotations) or {}).items()}
    assert annotations_of_arrow(as_bytes) == annotations


def test_annotations_go_through_the_jvm_and_a_file(spark, tmp_path):
    annotations = {
        "ml/role": "label",
        "ml/levels": ["a", "b"],
        "ml/odd": [1, "a", None, [2.5]],
        "ml/deep": {"a": {"b": [1, 2]}, "c": 1.5, "d": True},
        "ml/none": None,
        "ml/big": 2**64,
        "ml/whole": 2.0,
        "ml/empty": [],
        "spark/comment": "as Spark's users write it",
    }
    field = pa.field("x", pa.int64(), metadata=annotations_to_arrow(annotations))
    frame = spark.createDataFrame([(1,)], to_spark_schema(pa.schema([field])))
    frame.write.parquet(str(tmp_path / "file"))
    for each in (frame, spark.read.parquet(str(tmp_path / "file")), frame.select("x").filter("x > 0")):
        found = arrow_schema_of(each.schema).field("x")
        assert annotations_of_arrow(found.metadata) == annotations
        assert each.schema["x"].metadata["comment"] == "as Spark's users write it"


def test_what_others_keep_in_metadata_is_no_annotation():
    assert annotations_of_arrow({b"PARQUET:field_id": b"1", b"a/b": b"not json", b"pandas": b"{}"}) == {}
    assert annotations_of_spark({"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}) == {}
