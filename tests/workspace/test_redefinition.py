"""Changing the definition of a root: its source, lateness and description, from here on."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline import merge
from trueline.chain.events import SetPollingSource
from trueline.errors import DatasetExists, InputError


@pytest.fixture
def inboxes(tmp_path):
    for name, rows in (("old", "x,y\n1,b\n"), ("new", "x;y\n2;a\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(rows)
    return tmp_path


def values(ds):
    return ds.view().to_arrow()["x"].to_pylist()


def test_another_source_is_read_from_here_on(ws, inboxes):
    ds = ws.create("sales", source=tl.source(inboxes / "old/*.csv"))
    ws.pull("sales")
    asked = tl.source(inboxes / "new/*.csv", tl.csv(separator=";"))
    with pytest.raises(DatasetExists, match="source: it is") as caught:
        ws.create("sales", source=asked)
    assert 'on_change="from_here"' in caught.value.remedy
    assert ws.create("sales", source=asked, on_change="from_here") is ds
    assert isinstance(
        next(block for _, block in ds.blocks() if block.event.KIND == "SetPollingSource").event,
        SetPollingSource,
    )
    assert ws.create("sales", source=asked) is ds, "it is the definition now"
    with pytest.raises(DatasetExists):
        ws.create("sales", source=tl.source(inboxes / "old/*.csv"))
    report = ws.pull("sales")
    assert report.ok
    assert values(ds) == [1, 2]
    assert ds.verify().ok
    assert ds.info.sources == (str(inboxes / "new/*.csv"),)


def test_a_dataset_that_is_appended_to_gets_a_source_and_loses_it_again(ws, inboxes):
    ds = ws.create("sales")
    ds.append(pa.table({"x": [0]}))
    ws.create("sales", source=str(inboxes / "old/*.csv"), on_change="from_here")
    with pytest.raises(InputError, match="filled from its source"):
        ds.append(pa.table({"x": [9]}))
    ws.pull("sales", new_columns="add")
    ws.create("sales", on_change="from_here")
    ds.append(pa.table({"x": [3]}))
    assert values(ds) == [0, 1, 3]
    assert ds.verify().ok


def test_lateness_and_description_change_and_the_reader_stays(ws, inboxes):
    source = tl.source(inboxes / "new/*.csv", tl.csv(separator=";"))
    ds = ws.create("sales", source=source, description="a")
    plain = tl.source(inboxes / "new/*.csv")
    ws.create("sales", source=plain, lateness="2h", description="b", on_change="from_here")
    assert (ds.info.lateness, ds.info.description) == ("2h", "b")
    ws.pull("sales")
    assert ds.columns == ("x", "y")
    before = ds.head
    ws.create("sales", source=plain, lateness="2h", description="b", on_change="from_here")
    assert ds.head == before, "the same definition again changes nothing"


@pytest.mark.parametrize(
    "asked",
    [{"merge": merge.ledger("x")}, {"event_time": "day"}, {"schema": pa.schema([("x", pa.string())])}],
)
def test_what_is_for_ever_is_refused(ws, asked):
    ds = ws.create("sales", schema=pa.schema([("x", pa.int64())]))
    before = ds.head
    with pytest.raises(DatasetExists) as caught:
        ws.create("sales", on_change="from_here", description="new", **asked)
    assert "from_here" not in caught.value.remedy
    assert ds.head == before


def test_which_keys_are_equal_stays_as_it_was_recorded(ws, inboxes):
    ds = ws.create("sales", merge=merge.upsert("x"))
    before = ds.chain.tail().attachments
    ws.create("sales", merge=merge.upsert("x"), description="b", on_change="from_here")
    assert ds.chain.tail().attachments == before
    ws.create("sales", merge=merge.upsert("x"), description="b", lateness="1h", on_change="from_here")
    assert '"key_equality":"numeric"' in ds.chain.tail().attachments.attachments.items[0].content


@pytest.mark.parametrize("what", ["rebuild", "always", None])
def test_what_cannot_be_done_is_refused(ws, what):
    ws.create("sales")
    with pytest.raises(InputError, match="on_change"):
        ws.create("sales", on_change=what)


def test_a_password_in_the_new_source_is_refused(ws, inboxes):
    ds = ws.create("sales", source=str(inboxes / "old/*.csv"))
    before = ds.head
    with pytest.raises(InputError, match="password or a key"):
        ws.create("sales", source="https://ann:secret@example.org/a.csv", on_change="from_here")
    assert ds.head == before
