"""A workspace: opened, found again, filled with datasets."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.errors import (
    DatasetExists,
    InputError,
    ManifestError,
    NotPortable,
    SchemaError,
    StoreError,
    WorkspaceNotFound,
)
from trueline.view import Field, Schema

MANIFEST = """
kind: DatasetSnapshot
version: 1
content:
  name: prices
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {kind: Parquet}
      merge: {kind: Append}
    - kind: SetInfo
      description: Prices by day
"""


def test_opening_what_is_no_workspace_says_how_to_make_one(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(WorkspaceNotFound, match="create=True"):
            tl.open(path)
    assert list(tmp_path.iterdir()) == []


def test_creating_twice_is_the_same_workspace(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("a")
    with tl.open(str(tmp_path / "ws"), create=True) as ws:
        assert list(ws) == ["a"]
    with tl.open((tmp_path / "ws").as_uri()) as ws:
        assert list(ws) == ["a"]


def test_a_file_in_the_place_of_the_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorkspaceNotFound):
        tl.open(tmp_path / "file")
    with pytest.raises(StoreError, match="file"):
        tl.open(tmp_path / "file", create=True)


def test_datasets_are_found_by_name(ws):
    for name in ("b", "a"):
        ws.create(name)
    assert [d.name for d in ws.datasets()] == ["a", "b"]
    assert list(ws) == ["a", "b"]
    assert len(ws) == 2
    assert "a" in ws
    assert "c" not in ws
    assert ws["a"] is ws["a"]


def test_a_new_dataset_is_one_commit_that_says_what_it_is(ws):
    ds = ws.create("trades", event_time="day", description="All trades")
    assert (ds.name, ds.kind, ds.schema, ds.inputs) == ("trades", "root", None, ())
    assert [commit.events for commit in ds.log()] == [("Seed", "SetVocab", "AddPushSource", "SetInfo")]
    info = ds.info
    assert (info.rows, info.commits, info.blocks, info.watermark) == (0, 1, 4, None)
    assert (info.sources, info.merge, info.event_time) == (("default",), "append()", "day")
    assert info.description == "All trades"
    assert info.head == ds.head
    assert ds.verify().ok


def test_a_dataset_can_be_made_with_a_schema(ws):
    ds = ws.create(
        "trades", schema=pa.schema([pa.field("x", pa.int32(), nullable=False), ("s", pa.large_string())])
    )
    assert ds.columns == ("x", "s")
    assert [c.optional for c in ds.stored_columns()] == [False, True]
    assert ds.system_schema.names == ("offset", "op", "system_time", "event_time", "x", "s")
    assert [c.name for c in ds.stored_columns(system=True)] == list(ds.system_schema.names)
    with pytest.raises(SchemaError):
        ds.append(pa.table({"x": [1]}))
    assert ds.append(pa.table({"x": pa.array([1], pa.int32()), "s": ["a"]})).rows == 1


def test_a_schema_that_cannot_be_hashed_portably_is_refused_before_anything_is_written(ws):
    with pytest.raises(NotPortable):
        ws.create("x", schema=pa.schema([("d", pa.duration("s"))]))
    assert "x" not in ws
    assert not ws._location.exists("x")


@pytest.mark.parametrize("column", ["offset", "op", "system_time"])
def test_system_columns_cannot_be_declared(ws, column):
    with pytest.raises(SchemaError, match="system column"):
        ws.create("x", schema=pa.schema([(column, pa.int64())]))
    with pytest.raises(SchemaError, match="system column"):
        ws.create("x", event_time=column)


def test_the_same_definition_again_is_the_same_dataset(ws):
    schema = pa.schema([("a", pa.int64())])
    first = ws.create("x", schema=schema, event_time=None, description="d")
    head = first.head
    for again in (
        lambda: ws.create("x"),
        lambda: ws.create("x", description="d"),
        lambda: ws.create("x", schema=schema),
        lambda: ws.create("x", event_time="event_time"),
        lambda: ws.create("x", merge=tl.merge.append()),
    ):
        assert again().head == head


def test_another_definition_is_refused_with_the_differences(ws):
    ws.create("x", schema=pa.schema([("a", pa.int64())]), event_time=None, description="d")
    with pytest.raises(DatasetExists) as caught:
        ws.create("x", schema=pa.schema([("a", pa.string()), ("b", pa.int8())]), description="e")
    told = "\n".join(caught.value.differences)
    for part in (
        "description: it is 'd', asked for is 'e'",
        "column a was Int64 and is String",
        "column b is new",
    ):
        assert part in told
    with pytest.raises(DatasetExists, match="event_time"):
        ws.create("x", event_time="day", schema=pa.schema([("day", pa.date32())]))


def test_an_unknown_merge_strategy_is_refused(ws):
    with pytest.raises(InputError, match=r"merge\.append"):
        ws.create("x", merge="append")


def test_a_dataset_comes_from_a_manifest(ws):
    ds = ws.create_from_manifest(MANIFEST)
    assert (ds.name, ds.info.description, ds.info.merge) == ("prices", "Prices by day", "append()")
    assert ws.create_from_manifest(MANIFEST).head == ds.head
    assert ds.append(pa.table({"x": [1]})).rows == 1
    with pytest.raises(DatasetExists, match="SetInfo with other values"):
        ws.create_from_manifest(MANIFEST.replace("by day", "by hour"))
    with pytest.raises(ManifestError):
        ws.create_from_manifest("kind: DatasetSnapshot")


def test_a_derived_dataset_of_a_manifest_knows_its_inputs_by_name_and_takes_no_rows(ws):
    prices = ws.create_from_manifest(MANIFEST)
    text = """
kind: DatasetSnapshot
version: 1
content:
  name: daily
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs: [{datasetRef: prices}]
      transform: {kind: Sql, engine: spark, query: select * from prices}
"""
    daily = ws.create_from_manifest(text)
    assert (daily.kind, daily.inputs) == ("derived", ("prices",))
    assert daily.id != prices.id
    with pytest.raises(InputError, match="derived"):
        daily.append(pa.table({"x": [1]}))
    with pytest.raises(ManifestError, match="do not exist: nowhere"):
        ws.create_from_manifest(text.replace("prices}", "nowhere}").replace("daily", "other"))


def test_a_manifest_may_ask_for_a_merge(ws):
    ledger = MANIFEST.replace("{kind: Append}", "{kind: Ledger, primaryKey: [id]}")
    ds = ws.create_from_manifest(ledger)
    assert ds.info.merge == "ledger('id')"


def test_the_private_key_is_kept_for_its_owner_alone(ws):
    ds = ws.create("x")
    path = ws._location.keys / f"{ds.id.removeprefix('did:odf:')}.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    from trueline.identity import DatasetKey

    assert DatasetKey.from_private_bytes(bytes.fromhex(path.read_text())).id == ds.id


def test_a_creation_that_is_refused_leaves_no_key(ws):
    ws.create("x")
    with pytest.raises(SchemaError):
        ws.create("y", schema=pa.schema([("op", pa.int64())]))
    assert len(list(ws._location.keys.iterdir())) == 1


def test_schema_is_what_people_gave(ws):
    ds = ws.create("x")
    ds.append(pa.table({"city": ["Bern"], "n": [1], "p": [0.5]}))
    assert ds.schema == Schema([Field("city", t.text), Field("n", t.int64), Field("p", t.float64)])
    assert ds.columns == ds.view().columns == ("city", "n", "p")
    assert ds.schema.to_arrow() == ds.view().to_arrow().schema


@pytest.mark.parametrize("merge", [tl.merge.append(), tl.merge.upsert("id")], ids=str)
def test_a_dataset_and_its_views_have_one_schema(ws, merge):
    note = pa.field("at", pa.timestamp("us", "UTC"), metadata={"shop/unit": '"CHF"'})
    given = pa.schema([pa.field("id", pa.int32(), nullable=False), note, ("tags", pa.list_(pa.string()))])
    ds = ws.create("x", schema=given, merge=merge, event_time="at")
    assert type(ds.schema) is type(ds.view().schema) is Schema
    assert ds.schema == ds.view().schema
    assert ds.system_schema == ds.view(system=True).schema
    assert ds.schema["at"].annotations == {"shop/unit": "CHF"}
    assert not ds.schema["id"].nullable


def test_a_schema_makes_another_dataset_like_it(ws):
    ds = ws.create("x")
    ds.append(pa.table({"city": ["Bern"], "n": [1]}))
    assert ws.create("y", schema=ds.schema).schema == ds.schema
    assert ws.create("y", schema=ds.view().select("city", "n").schema).name == "y"


def test_what_is_shown_in_a_notebook_is_escaped(ws):
    ds = ws.create("x", description="<script>alert(1)</script>")
    commit = ds.append(pa.table({"x": [1]}))
    for shown in (ws, ds, commit):
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert "<script>" not in html
    assert "&lt;script&gt;" in ds._repr_html_()
    assert "x" in repr(ds)
    assert ws.location in repr(ws)
    assert "+1 row" in repr(commit)


def test_a_closed_workspace_has_given_back_its_files(tmp_path):
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.is_dir() else None
    with tl.open(tmp_path / "ws", create=True) as ws:
        for number in range(5):
            ws.create(f"d{number}").append(pa.table({"x": [number]}))
    if before is not None:
        assert len(list(descriptors.iterdir())) <= before + 1


def test_a_folder_that_was_removed_can_be_made_again(ws, tmp_path):
    import shutil

    first = ws.create("x").id
    shutil.rmtree(tmp_path / "ws" / "datasets" / "x")
    assert "x" not in ws
    assert ws.create("x").id != first
    assert ws["x"].append(pa.table({"a": [1]})).rows == 1


def test_two_processes_that_create_the_same_dataset_get_the_same_one(tmp_path):
    tl.open(tmp_path / "ws", create=True).close()
    code = "import sys, trueline as tl; print(tl.open(sys.argv[1]).create('x').id)"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "ws")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    ids = {process.communicate(timeout=60)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(ids) == 1
    with tl.open(tmp_path / "ws") as ws:
        assert ws["x"].id == ids.pop()
        assert len(list(ws._location.keys.iterdir())) == 1


def test_the_front_door_names_what_it_has():
    for name in tl.__all__:
        assert getattr(tl, name) is not None
    assert set(dir(tl)) == set(tl.__all__)
    with pytest.raises(AttributeError):
        _ = tl.nothing
