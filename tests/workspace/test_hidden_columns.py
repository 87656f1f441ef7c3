"""Hidden columns: left out of views from a commit on, kept for ever."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import define_by_hand
from trueline import merge
from trueline.errors import DataWarning, SchemaError

ROWS = {"id": [1, 2], "city": ["Bern", "Zug"], "note": ["a", None]}


@pytest.fixture(params=["append", "ledger", "snapshot", "upsert", "changelog"])
def ds(request, ws):
    keyed = request.param != "append"
    strategy = getattr(merge, request.param)("id") if keyed else merge.append()
    ds = ws.create("sales", merge=strategy)
    rows = dict(ROWS) | ({"op": [0, 0]} if request.param == "changelog" else {})
    ds.append(pa.table(rows))
    return ds


def test_every_reader_leaves_it_out_and_earlier_commits_show_it(ds):
    before = ds.commit()
    ds.hide_column("note")
    assert ds.columns == ds.view().columns == ("id", "city")
    assert ds.view().to_arrow().to_pylist() == [{"id": 1, "city": "Bern"}, {"id": 2, "city": "Zug"}]
    for view in (ds.view(system=True), ds.changes(), ds.changes(system=True), ds.diff(before)):
        assert "note" not in view.columns
        assert "city" in view.columns
    assert ds.get({"id": 1}) == {"id": 1, "city": "Bern"}
    assert [column.name for column in ds.stored_columns()] == ["id", "city"]
    assert [column.name for column in ds.stored_columns(system=True) if column.hidden] == ["note"]
    assert ds.view(at=before).to_arrow()["note"].to_pylist() == ["a", None]
    assert ds.verify().ok


def test_shown_again_its_values_are_there(ds):
    ds.hide_column("note")
    head = ds.head
    ds.hide_column("note")
    assert ds.head == head, "it is hidden already"
    ds.show_column("note")
    assert ds.view().to_arrow()["note"].to_pylist() == ["a", None]
    fields = ds.chain.tail().schema.schema.fields
    assert all(field.extra is None for field in fields)


def test_rows_go_on_bringing_it(ws):
    ds = ws.create("sales", merge=merge.upsert("id"))
    ds.append(pa.table(ROWS))
    ds.hide_column("note")
    ds.append(pa.table({"id": [2, 3], "city": ["Chur", "Sion"], "note": ["b", "c"]}))
    ds.append([{"id": 4, "city": "Brig", "note": "d"}])
    assert ds.columns == ("id", "city")
    ds.show_column("note")
    assert ds.view().to_arrow()["note"].to_pylist() == ["a", "b", "c", "d"]
    assert ds.verify().ok


def test_a_copy_and_another_process_hide_it_too(ws, tmp_path):
    ds = ws.create("sales")
    ds.append(pa.table(ROWS))
    ds.hide_column("note")
    ds.push(tmp_path / "copy")
    with tl.open(tmp_path / "other", create=True) as other:
        assert other.clone(tmp_path / "copy", "twin").columns == ("id", "city")
    with tl.open(ws.location) as again:
        assert again["sales"].columns == ("id", "city")


def test_what_is_needed_cannot_be_hidden(ws):
    ds = ws.create("sales", merge=merge.upsert("id"), event_time="day")
    ds.append(pa.table({"id": [1], "day": pa.array([0], pa.date32()), "x": [1]}))
    head = ds.head
    for name in ("id", "day"):
        with pytest.raises(SchemaError, match="cannot be hidden") as caught:
            ds.hide_column(name)
        assert f"view.drop({name!r})" in caught.value.remedy
        assert name not in ds.view().drop(name).columns
    for name in ("y", "offset", "op", 5):
        with pytest.raises(SchemaError, match="no column"):
            ds.hide_column(name)
    assert ds.head == head


def test_the_last_column_cannot_be_hidden(ws):
    ds = ws.create("sales")
    with pytest.raises(SchemaError, match="no column"):
        ds.hide_column("x")
    ds.append(pa.table({"x": [1], "y": [2]}))
    ds.hide_column("x")
    with pytest.raises(SchemaError, match="the last"):
        ds.hide_column("y")


def test_annotations_stay_and_data_cannot_hide_a_column(ws):
    ds = ws.create("sales")
    unit = pa.field("price", pa.float64(), metadata={"shop/unit": '"CHF"'})
    ds.append(pa.table([[1.0], ["a"]], schema=pa.schema([unit, ("city", pa.string())])))
    ds.hide_column("price")
    ds.show_column("price")
    assert ds.view().schema["price"].annotations["shop/unit"] == "CHF"
    sly = pa.field("city", pa.string(), metadata={"trueline/hidden_column": "true"})
    ds.append(pa.table([["b"]], schema=pa.schema([sly])))
    assert ds.columns == ("price", "city")


def test_a_view_of_a_dataset_that_hides_columns_hides_nothing_where_it_is_appended(ws):
    ds = ws.create("sales")
    before = ds.append(pa.table(ROWS))
    ds.hide_column("note")
    assert ws.create("copy").append(ds.view(at=before)).rows == 2
    assert ws["copy"].columns == ("id", "city", "note")


def test_a_snapshot_may_lack_a_hidden_column_whose_values_stay(ws, tmp_path):
    ds = ws.create("sales", merge=merge.snapshot("id"))
    ds.append(pa.table(ROWS))
    ds.hide_column("note")
    ds.append(pa.table({"id": [1, 2], "city": ["Bern", "Chur"]}))
    (tmp_path / "a.csv").write_text("id,city\n1,Bern\n2,Chur\n3,Sion\n")
    assert ds.append(tmp_path / "a.csv").operations == {"insert": 1, "update": 0, "delete": 0}
    ds.show_column("note")
    assert ds.view().to_arrow()["note"].to_pylist() == ["a", None, None]
    with pytest.raises(SchemaError, match="lacks column 'note'"):
        ds.append(pa.table({"id": [1], "city": ["Bern"]}))
    with pytest.raises(SchemaError, match="lacks column 'city'"):
        ds.append(pa.table({"id": [1], "note": ["a"]}))


@pytest.mark.contract("derive:V28")
def test_hiding_a_column_that_a_definition_reads_is_told(ws):
    ws.create("sales").append([{"city": "Bern", "price": 1.0, "note": "x"}])
    query = "SELECT `sales`.`city`, `sales`.`price` FROM `sales`"
    define_by_hand(ws, "prices", query, ["sales"], columns={"city": pa.string()}, key="city")
    with pytest.warns(DataWarning, match="column 'price' of 'sales' is hidden now, and 'prices' may read it"):
        ws["sales"].hide_column("price")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ws["sales"].hide_column("note")
        ws["sales"].show_column("price")
