"""What a dataset is filled from is part of its definition, and so of its chain."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import trueline as tl
from trueline.chain.block import Block
from trueline.chain.events import (
    AddPushSource,
    AttachmentEmbedded,
    AttachmentsEmbedded,
    SetAttachments,
    SetPollingSource,
)
from trueline.chain.sources import FetchFilesGlob, FetchUrl, MergeUpsertStream, ReadCsv, SourceOrdering
from trueline.dataset.declared_source import is_one_file, matching, to_fetch
from trueline.dataset.definition import PATH, Addendum, addendum_of
from trueline.errors import BadName, DatasetExists, InputError, UnsupportedVersion

ROW = "id,price\n1,9.5\n"


def fetch_of(dataset):
    return dataset.chain.tail().polling.fetch


def test_a_source_is_recorded_as_a_polling_source_and_there_is_no_push_source(ws, inbox):
    merge = tl.merge.upsert("id")
    ds = ws.create("sales", source=tl.source(inbox / "*.csv", tl.csv(separator=";")), merge=merge)
    event = ds.chain.newest(SetPollingSource).event
    assert event.fetch == FetchFilesGlob(f"{inbox}/*.csv", order=SourceOrdering.ByName)
    assert (event.read.separator, event.read.header) == (";", True)
    assert isinstance(event.read, ReadCsv)
    assert event.merge == MergeUpsertStream(("id",))
    assert ds.chain.newest(AddPushSource) is None
    assert ds.info.sources == (f"{inbox}/*.csv",)
    assert ds.info.commits == 1
    assert ds.verify().ok


def test_without_a_source_nothing_is_added_to_the_chain_of_before(ws):
    ds = ws.create("sales")
    assert ds.chain.newest(SetAttachments) is None
    assert [block.event.KIND for _, block in ds.blocks()] == ["AddPushSource", "Seed"]


def test_the_same_definition_returns_the_dataset_and_another_says_how_it_differs(ws, inbox):
    asked = {"source": tl.source(inbox / "*.csv", tl.csv(separator=";"), max_bad=0.5), "lateness": "90m"}
    ds = ws.create("sales", **asked)
    assert ws.create("sales", **asked) is ds
    assert ws.create("sales", **asked | {"source": replace(asked["source"], reader=None)}) is ds
    with pytest.raises(DatasetExists) as refused:
        ws.create("sales", source=tl.source(inbox / "*.csv", tl.csv(separator="|")), lateness="2h")
    assert [line.split(":")[0] for line in refused.value.differences] == [
        "lateness",
        "reader of the source",
        "max_bad of the source",
    ]
    assert refused.value.differences[0] == "lateness: it is 90m, asked for is 2h"
    for other in (None, inbox / "*.json", "https://example.org/x.csv"):
        with pytest.raises(DatasetExists, match="source: it is"):
            ws.create("sales", source=other, lateness="90m")


def test_options_that_a_read_step_has_no_field_for_are_kept_and_hashed(ws, inbox):
    reader = tl.csv(nulls=("", "n.v."), decimal=",", skip_lines=2)
    ds = ws.create("sales", source=tl.source(inbox / "*.csv", reader), lateness="2h")
    block = ds.chain.newest(SetAttachments)
    (item,) = block.event.attachments.items
    assert item.path == "trueline.json"
    assert json.loads(item.content) == {
        "format": "trueline/definition",
        "version": 1,
        "lateness_ns": 7_200_000_000_000,
        "reader": {"kind": "csv", "nulls": ["", "n.v."], "decimal": ",", "skip_lines": 2},
    }
    assert item.content == json.dumps(json.loads(item.content), sort_keys=True, separators=(",", ":"))
    forged = AttachmentEmbedded(item.path, item.content.replace("7200", "7201"))
    assert replace(block, event=SetAttachments(AttachmentsEmbedded((forged,)))).hash != block.hash


def test_other_attachments_stay():
    readme = AttachmentEmbedded("README.md", "# Sales")
    before = SetAttachments(AttachmentsEmbedded((readme, AttachmentEmbedded(PATH, Addendum(1).to_text()))))
    after = Addendum(2).attached(before)
    assert after.attachments.items == (readme, AttachmentEmbedded(PATH, Addendum(2).to_text()))
    assert Addendum().attached(before).attachments.items == (readme,)
    assert Addendum(2).attached(after) is None
    assert Addendum().attached(None) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", InputError),
        ("[]", InputError),
        ('{"format":"trueline/definition","version":2}', UnsupportedVersion),
        ('{"format":"trueline/definition","version":1,"checks":["x > 0"]}', UnsupportedVersion),
        ('{"format":"trueline/definition","version":1,"lateness_ns":-1}', InputError),
        ('{"format":"trueline/definition","version":1,"lateness_ns":"2h"}', InputError),
        ('{"format":"trueline/definition","version":1,"reader":[]}', InputError),
        ('{"format":"trueline/definition","version":1,"max_bytes":"x"}', InputError),
        ("[" * 100_000, InputError),
    ],
)
def test_what_cannot_be_understood_stops_appends_before_rows_are_taken_in_wrongly(ws, text, error):
    ds = ws.create("sales")
    tail = ds.chain.tail()
    event = SetAttachments(AttachmentsEmbedded((AttachmentEmbedded(PATH, text),)))
    ds.chain.append(
        Block(
            system_time=tail.system_time,
            prev_block_hash=tail.head,
            sequence_number=tail.sequence_number + 1,
            event=event,
        )
    )
    with pytest.raises(error, match=r"trueline\.json"):
        ds.append([{"id": 1}])
    assert ds.info.rows == 0


def test_a_manifest_may_declare_everything(ws, inbox):
    text = f"""
kind: DatasetSnapshot
version: 1
content:
  name: sales
  kind: Root
  metadata:
    - kind: SetPollingSource
      fetch: {{kind: FilesGlob, path: "{inbox}/*.csv"}}
      prepare: [{{kind: Decompress, format: Gzip}}]
      read: {{kind: Csv, header: true, separator: ";"}}
      merge: {{kind: Ledger, primaryKey: [id]}}
    - kind: SetVocab
      eventTimeColumn: day
    - kind: SetAttachments
      attachments:
        kind: Embedded
        items:
          - {{path: trueline.json, content: '{Addendum(3_600_000_000_000).to_text()}'}}
"""
    ds = ws.create_from_manifest(text)
    (inbox / "a.csv").write_text("id;day\n1;2026-11-13T12:00:00Z\n1;2026-11-13T13:00:00Z\n")
    assert ws.pull().rows == 1
    assert str(ds.info.watermark) == "2026-11-13T12:00:00Z"
    assert addendum_of(ds.chain).lateness_ns == 3_600_000_000_000


# --- places ----------------------------------------------------------------------------


def test_a_path_below_the_workspace_is_kept_relative_so_that_it_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ws" / "inbox").mkdir(parents=True)
    (tmp_path / "ws" / "inbox" / "a.csv").write_text(ROW)
    with tl.open("ws", create=True) as ws:
        ds = ws.create("sales", source="ws/inbox/*.csv")
        assert fetch_of(ds).path == "inbox/*.csv"
        assert ws.pull().rows == 1
        assert next(ds.log()).files == ("inbox/a.csv",)
    shutil.move("ws", "moved")
    monkeypatch.chdir("/")
    with tl.open(tmp_path / "moved") as ws:
        (tmp_path / "moved" / "inbox" / "b.csv").write_text("id,price\n2,1\n")
        report = ws.pull()
        assert (report.rows, report["sales"].skipped) == (1, ("inbox/a.csv",))


def test_a_relative_path_means_from_here(tmp_path, monkeypatch, ws, inbox):
    monkeypatch.chdir(tmp_path)
    assert fetch_of(ws.create("a", source="inbox/*.csv")).path == f"{inbox}/*.csv"
    assert fetch_of(ws.create("b", source="./inbox/../inbox/x.csv")).path == f"{inbox}/x.csv"


def test_a_folder_is_everything_in_it_that_is_not_hidden(ws, inbox):
    (inbox / "b.csv").write_text(ROW)
    (inbox / "a.csv").write_text(ROW + "2,1\n")
    (inbox / ".c.csv").write_text("half")
    (inbox / "deeper").mkdir()
    for given in (inbox, f"{inbox}/"):
        step = to_fetch(str(given), None)
        assert step.path == f"{inbox}/*"
        assert [source.path for source in matching(step, None)] == [f"{inbox}/a.csv", f"{inbox}/b.csv"]
    assert isinstance(ws.create("sales", source=inbox).chain.tail().polling.read, ReadCsv)


def test_a_folder_that_is_to_come_needs_a_reader_and_a_slash(ws, tmp_path):
    with pytest.raises(InputError) as refused:
        ws.create("sales", source=f"{tmp_path}/later/")
    assert "sales" not in ws
    assert refused.value.code in ("UnknownFormat", "NoSuchFile")
    ds = ws.create("sales", source=tl.source(f"{tmp_path}/later/", tl.json()))
    assert fetch_of(ds).path == f"{tmp_path}/later/*"


@pytest.mark.parametrize("name", ["plain.csv", "a[1].csv", "what?.csv", "st*r.csv", "[.csv"])
def test_characters_of_patterns_in_the_names_of_files_that_exist_are_meant_as_they_are(inbox, name):
    (inbox / name).write_text(ROW)
    (inbox / "a1.csv").write_text(ROW)
    (inbox / "star.csv").write_text(ROW)
    step = to_fetch(str(inbox / name), None)
    assert is_one_file(step, None)
    assert [source.path for source in matching(step, None)] == [str(inbox / name)]
    folder = inbox / name.replace(".csv", "")
    folder.mkdir()
    (folder / "x.csv").write_text(ROW)
    step = to_fetch(str(folder), None)
    assert not is_one_file(step, None)
    assert [source.path for source in matching(step, None)] == [str(folder / "x.csv")]


def test_a_folder_we_are_in_is_meant_as_it_is_written(tmp_path, monkeypatch):
    here = tmp_path / "data[1]"
    here.mkdir()
    (here / "a.csv").write_text(ROW)
    monkeypatch.chdir(here)
    assert [source.path for source in matching(to_fetch("*.csv", None), None)] == [str(here / "a.csv")]


def test_a_pattern_may_go_deeper_and_its_files_are_sorted(inbox):
    for name in ("2/b.csv", "1/z.csv", "1/a.csv", "1/a.json"):
        (inbox / name).parent.mkdir(exist_ok=True)
        (inbox / name).write_text(ROW)
    found = matching(to_fetch(f"{inbox}/**/*.csv", None), None)
    assert [source.path for source in found] == [
        f"{inbox}/{name}" for name in ("1/a.csv", "1/z.csv", "2/b.csv")
    ]


def test_a_pattern_that_matches_nothing_is_no_error_but_a_folder_that_is_not_there_is(inbox, tmp_path):
    assert matching(to_fetch(f"{inbox}/*.csv", None), None) == []
    with pytest.raises(InputError) as refused:
        matching(to_fetch(f"{tmp_path}/inbx/*.csv", None), None)
    assert refused.value.code == "NoSuchFile"
    with pytest.raises(InputError, match="no file"):
        matching(to_fetch(f"{inbox}/day.csv", None), None)


@pytest.mark.parametrize(
    "url", ["http://example.org/a.csv", "HTTPS://example.org/a.csv?x=1", "file:///srv/a.csv"]
)
def test_an_address_is_recorded_as_it_is(ws, url):
    assert fetch_of(ws.create("sales", source=url)) == FetchUrl(url)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("ftp://example.org/a.csv", "UnknownSource"),
        ("s3://bucket/a.csv", "UnknownSource"),
        ("https://ann:secret@example.org/a.csv", "BadUrl"),
        ("https:///a.csv", "BadUrl"),
        ("http://[/a.csv", "BadUrl"),
        ("http://example.org:x/a.csv", "BadUrl"),
        ("http://example.org/a b.csv", "BadUrl"),
        ("http://example.org/a\n.csv", "BadUrl"),
        ("file://other/a.csv", "BadUrl"),
        ("https://example.org/", "UnknownFormat"),
        ("inbox/a.xyz", "UnknownFormat"),
        ("a\0.csv", "InputError"),
        (" ", "InputError"),
        (7, "InputError"),
    ],
)
def test_what_cannot_be_a_source_is_refused_and_leaves_nothing(ws, given, code):
    with pytest.raises(InputError) as refused:
        ws.create("sales", source=given)
    assert refused.value.code == code
    assert "secret" not in str(refused.value)
    assert "sales" not in ws


def test_text_files_have_no_read_step_and_are_refused_with_what_to_do(ws, inbox):
    with pytest.raises(InputError, match="append the files"):
        ws.create("lines", source=inbox / "*.txt")


@pytest.mark.parametrize(
    "asked",
    [
        {"lateness": "soon"},
        {"lateness": -1},
        {"lateness": "200000d"},
        {"checks": ["x > 0"]},
        {"on_change": "rebuild"},
        {"source": "a.csv", "merge": "upsert"},
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(ws, asked):
    with pytest.raises(InputError):
        ws.create("sales", **asked)
    assert "sales" not in ws


@pytest.mark.parametrize("options", [{"reader": "csv"}, {"max_bad": "x"}, {"max_bytes": -1}])
def test_options_of_a_source_are_checked(options):
    with pytest.raises(InputError):
        tl.source("inbox/*.csv", **options)


def test_names_are_checked_before_sources(ws):
    with pytest.raises(BadName):
        ws.create("../x", source="inbox/*.csv")
