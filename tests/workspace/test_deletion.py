"""Deleting a dataset: gone at once, its files later, and not while something rests on it."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from trueline.chain.events import SetTransform
from trueline.chain.head_state import next_block
from trueline.chain.store.store import Folder
from trueline.errors import DatasetNotFound, InputError, UnsupportedVersion
from trueline.workspace import catalogue

_numbers = itertools.count()
DERIVED = """
kind: DatasetSnapshot
version: 1
content:
  name: {name}
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs: [{inputs}]
      transform: {{kind: Sql, engine: spark, query: select 1}}
"""


@pytest.fixture(params=["folder", "memory", "s3"])
def lake(request, tmp_path, monkeypatch):
    """A new workspace: in a folder, in an object store in memory, in one behind HTTP."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if request.param == "s3":
        with serving() as server, tl.open("s3://bucket/lake", create=True, **server.options) as ws:
            yield ws
        return
    place = tmp_path / "lake" if request.param == "folder" else f"memory://deletion-{next(_numbers)}/lake"
    with tl.open(place, create=True) as ws:
        yield ws


def derived(ws, name, *inputs):
    listed = ", ".join(f"{{datasetRef: {each}}}" for each in inputs)
    return ws.create_from_manifest(DERIVED.format(name=name, inputs=listed))


def test_a_deleted_dataset_is_gone_and_its_name_is_free(lake):
    sales = lake.create("sales")
    sales.append(pa.table({"x": [1]}))
    lake.create("other")
    lake.delete("sales")
    assert (list(lake), "sales" in lake) == (["other"], False)
    with pytest.raises(DatasetNotFound):
        lake["sales"]
    for use in (lambda: sales.append(pa.table({"x": [2]})), sales.view, lambda: sales.info):
        with pytest.raises(DatasetNotFound):
            use()
    again = lake.create("sales")
    assert (again.info.rows, again.id != sales._folder) == (0, True)
    assert again.append(pa.table({"y": ["a"]})).rows == 1
    assert lake.verify().ok


def test_its_files_are_collected_later(lake):
    lake.create("sales").append(pa.table({"x": [1]}))
    lake.create("other").append(pa.table({"x": [1]}))
    lake.delete("sales")
    assert lake.gc(older_than="1h").deleted == ()
    assert lake._location.exists("sales")
    assert lake.gc(older_than=0, dry_run=True).deleted == ("sales",)
    assert lake._location.exists("sales")
    assert lake.gc(older_than=0).deleted == ("sales",)
    assert not lake._location.exists("sales")
    assert lake._catalogue.deleted() == []
    assert lake.gc(older_than=0).deleted == ()
    assert lake["other"].verify().ok


def test_a_commit_in_flight_keeps_them(lake):
    store = lake._location.store(lake.create("sales")._folder, durable=True)  # of another process
    with store.lease():
        store.put(Folder.DATA, b"x")
        lake.delete("sales")
        assert lake.gc(older_than=0).deleted == ()
    store.close()
    assert lake.gc(older_than=0).deleted == ("sales",)


def test_an_open_snapshot_keeps_them(lake):
    lake.create("sales").append(pa.table({"x": [1]}))
    lake.create("other")
    snap = lake.snapshot("sales", "other")
    lake.delete("sales")
    for dry_run in (True, False):
        swept = lake.gc(older_than=0, dry_run=dry_run)
        assert (swept.deleted, dict(swept.skipped)) == (
            (),
            {"sales": "it was deleted, but an open snapshot reads it"},
        )
    assert lake._location.exists("sales")
    snap.close()
    assert lake.gc(older_than=0).deleted == ("sales",)


def test_who_has_a_snapshot_of_what_another_process_deleted_goes_on_reading(ws):
    ws.create("sales").append(pa.table({"x": [1, 2]}))
    with ws.snapshot("sales") as snap, tl.open(ws.location) as other:
        other.delete("sales")
        assert other.gc(older_than=0).deleted == ()
        assert snap["sales"].count() == 2


def test_a_tag_keeps_a_deleted_copy_that_alone_has_what_it_names(ws, tmp_path):
    """One of two copies may be deleted though a tag names its commits; the other may be behind."""
    sales = ws.create("sales")
    first = sales.append(pa.table({"x": [1]}))
    sales.push(tmp_path / "copy")
    ws.clone(tmp_path / "copy", "twin")
    sales.append(pa.table({"x": [2]}))
    ws.tag("v2", "sales")
    ws.delete("sales")
    swept = ws.gc(older_than=0)
    assert (swept.deleted, list(swept.skipped)) == ((), ["sales"])
    assert "the tag 'v2' names a commit that no copy of it has" in swept.skipped["sales"]
    ws.untag("v2")
    ws.tag("v1", ws["twin"].commit(first.block))
    assert ws.gc(older_than=0).deleted == ("sales",)
    assert ws["twin"].view("v1").count() == 1


def test_what_rests_on_it_is_named_and_the_remedy_works(ws):
    sales = ws.create("sales")
    derived(ws, "daily", "sales")
    derived(ws, "weekly", "daily", "sales")
    ws.create("apart")
    ws.tag("v1", sales)
    with pytest.raises(InputError) as caught:
        ws.delete("sales")
    error = caught.value
    assert (error.code, error.resting, error.tags) == ("DatasetInUse", ("weekly", "daily"), ("v1",))
    assert "'weekly', 'daily' are computed from it; the tag 'v1' names its commits" in str(error)
    for call in ("ws.delete('weekly')", "ws.delete('daily')", "ws.untag('v1')"):
        assert call in error.remedy
        eval(call)
    ws.delete("sales")
    assert list(ws) == ["apart"]


def test_datasets_that_say_they_rest_on_each_other_are_not_followed_for_ever(ws):
    ws.create("root")
    first = derived(ws, "a", "root")
    derived(ws, "b", "a")
    tail = first.chain.tail()
    transform = ws["b"].chain.tail().transform
    inputs = (type(transform.inputs[0])(dataset_ref=str(ws["b"].id), alias="b"),)
    first.chain.append(next_block(tail, SetTransform(inputs=inputs, transform=transform.transform)))
    with pytest.raises(InputError, match="'b' is computed from it"):
        ws.delete("a")


def test_a_copy_may_go_while_another_stays(ws, tmp_path):
    ws.create("sales").push(tmp_path / "copy")
    ws.clone(tmp_path / "copy", "twin")
    derived(ws, "daily", "sales")
    ws.delete("twin")
    assert list(ws) == ["daily", "sales"]


def test_other_processes_do_not_find_it_either(ws):
    ws.create("sales")
    with tl.open(ws.location) as other:
        assert "sales" in other
        ws.delete("sales")
        assert "sales" not in other
        with pytest.raises(DatasetNotFound):
            other.delete("sales")


def test_files_that_somebody_keeps_in_its_folder_stay(ws, tmp_path):
    ws.create("sales")
    kept = tmp_path / "ws" / "datasets" / "sales" / "notes.txt"
    kept.write_text("mine")
    ws.delete("sales")
    assert ws.gc(older_than=0).deleted == ()
    assert [path.name for path in kept.parent.rglob("*")] == ["notes.txt"]
    assert list(ws) == []


def test_a_dataset_without_a_head_can_be_deleted(ws, tmp_path):
    ws.create("sales").append(pa.table({"x": [1]}))
    (tmp_path / "ws" / "datasets" / "sales" / "refs" / "head").unlink()
    ws.delete("sales")
    assert list(ws) == []
    assert ws.gc(older_than=0).deleted == ("sales",)


def test_software_that_does_not_know_of_deletion_refuses_the_catalogue(ws, tmp_path, monkeypatch):
    ws.create("sales")
    path = tmp_path / "ws" / "datasets" / ".catalogue"
    assert json.loads(path.read_bytes())["version"] == 1
    ws.delete("sales")
    raw = path.read_bytes()
    assert json.loads(raw)["version"] == 2
    assert catalogue.to_bytes(catalogue.from_bytes(raw, "x").values()) == raw
    with pytest.raises(UnsupportedVersion):
        catalogue.from_bytes(raw.replace(b'"version":2', b'"version":3'), "x")
    ws.gc(older_than=0)
    assert json.loads(path.read_bytes())["version"] == 1


def test_a_deleted_clone_can_be_cloned_again(ws, tmp_path):
    source = ws.create("sales")
    source.append(pa.table({"x": [1]}))
    source.push(tmp_path / "copy")
    ws.delete("sales")
    assert ws.clone(tmp_path / "copy", "sales").view().count() == 1
    assert ws.gc(older_than=0).deleted == ("sales",)
    assert ws["sales"].verify().ok
    assert ws["sales"].origin is not None
