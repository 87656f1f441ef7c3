"""Annotations of columns: in with the data, kept in the chain, out again wherever the columns go."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.workspace.records import slices
from trueline.annotations import annotations_of_arrow
from trueline.chain.events import SetDataSchema
from trueline.chain.schema import fields_of
from trueline.chain.store.store import Folder


def column(name="price", kind=None, **said):
    """A field with annotations, `shop_unit` for `shop/unit`."""
    said = {key.replace("_", "/", 1): value for key, value in said.items()}
    return pa.field(name, kind or pa.float64(), metadata=said or None)


def table(*fields, rows=1):
    return pa.table([pa.nulls(rows, field.type) for field in fields], schema=pa.schema(fields))


def said(ds, name="price"):
    return ds.view().schema[name].annotations


def stored(ds):
    """The columns as the chain has them."""
    return fields_of(ds.chain.tail().schema)


def schemas(ds):
    return [block for _, block in ds.blocks() if isinstance(block.event, SetDataSchema)]


@pytest.mark.parametrize("how", ["schema", "table"])
def test_annotations_come_in_and_go_out_with_the_columns(ws, how):
    field = column(shop_unit='"CHF"', shop_of='{"b":[1,null],"a":"ä"}')
    ds = ws.create("sales", schema=pa.schema([field]) if how == "schema" else None)
    ds.append(table(field, rows=3))
    expected = {"shop/unit": "CHF", "shop/of": {"a": "ä", "b": [1, None]}}
    assert said(ds) == expected
    assert stored(ds)[-1].extra.entries == '{"shop/of":{"a":"ä","b":[1,null]},"shop/unit":"CHF"}'
    for found in (ds.view().to_arrow(), ds.view().rename(p="price").filter("p is null").limit(1).to_arrow()):
        assert annotations_of_arrow(found.schema.field(0).metadata) == expected
    assert ds.changes().schema["price"].annotations == expected
    assert len(schemas(ds)) == 1
    with tl.open(ws.location) as again:
        assert said(again["sales"]) == expected
        assert again.create("sales", schema=pa.schema([column()])).name == "sales", "the same definition"
    assert ds.verify().ok


def test_a_table_that_says_nothing_changes_nothing(ws):
    ds = ws.create("sales", schema=pa.schema([column(shop_unit='"CHF"')]))
    ds.append(table(column()))
    ds.append([{"price": 1.5}])
    assert said(ds) == {"shop/unit": "CHF"}
    assert len(schemas(ds)) == 1


def test_a_table_that_says_something_else_evolves_the_schema(ws):
    ds = ws.create("sales")
    ds.append(table(column(shop_unit='"CHF"', shop_kind='"net"')))
    before = ds.head
    for _ in range(2):
        commit = ds.append(table(column(shop_unit='"EUR"')))
    assert said(ds) == {"shop/unit": "EUR", "shop/kind": "net"}
    assert ds.view(before).schema["price"].annotations == {"shop/unit": "CHF", "shop/kind": "net"}
    assert (len(schemas(ds)), commit.events) == (2, ("AddData",)), "the second time it is no change"
    assert ds.verify().ok


def test_annotations_of_the_event_time_of_new_columns_and_of_members_are_kept(ws):
    at = column("at", pa.timestamp("us", "UTC"), shop_clock='"till"')
    inner = pa.struct([column("x", pa.int64(), shop_unit='"m"'), pa.field("y", pa.int64())])
    ds = ws.create("sales", event_time="at")
    moment = pa.table({"at": pa.array([0], at.type)}, schema=pa.schema([at]))
    ds.append(moment)
    place = pa.table(
        {"at": moment["at"], "place": pa.array([{"x": 1, "y": 2}], inner)},
        schema=pa.schema([at, pa.field("place", inner)]),
    )
    ds.append(place, new_columns="add")
    assert said(ds, "at") == {"shop/clock": "till"}
    member = ds.view().to_arrow().schema.field("place").type.field("x")
    assert annotations_of_arrow(member.metadata) == {"shop/unit": "m"}
    assert ds.verify().ok


def test_slices_carry_no_annotations(ws):
    ds = ws.create("sales")
    ds.append(table(column(shop_unit='"CHF"'), rows=5))
    ((data, _),) = slices(ds)
    with ds.chain.store.open(Folder.DATA, data.physical_hash) as file:
        assert annotations_of_arrow(pq.read_schema(file).field("price").metadata) == {}


def test_metadata_that_is_no_annotation_is_left_out(ws):
    others = {"comment": "x", "shop/bad": "no json", "shop/nan": "NaN"}
    field = pa.field("price", pa.float64(), metadata=others)
    ds = ws.create("sales")
    ds.append(table(field))
    assert said(ds) == {}
    assert stored(ds)[-1].extra is None


def test_annotations_go_to_spark_and_come_back(ws, spark):
    fields = [column(shop_unit='"CHF"'), column("n", pa.uint8(), shop_of="[1,2]")]
    ds = ws.create("sales", schema=pa.schema(fields))
    ds.append(table(column(), column("n", pa.uint8()), rows=2))
    for frame in (ds.view().select("price").to_spark(), ds.view().to_spark(), ds.view().limit(1).to_spark()):
        assert frame.schema["price"].metadata == {"shop/unit": "CHF"}
    frame = spark.createDataFrame(ds.view().select("price").to_spark().toPandas(), "price double")
    other = frame.withMetadata("price", {"shop/unit": "EUR", "comment": "gross"})
    ws.create("copy").append(other)
    assert said(ws["copy"]) == {"shop/unit": "EUR", "spark/comment": "gross"}
    ws["copy"].append(frame.withMetadata("price", {"shop/unit": "USD"}))
    assert said(ws["copy"]) == {"shop/unit": "USD", "spark/comment": "gross"}
