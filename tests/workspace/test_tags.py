"""Tags: names for commits that hold positions, stay until they are removed, and travel with a dataset."""

from __future__ import annotations

import itertools
import json
import threading

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from trueline.errors import CorruptionError, InputError, UnsupportedVersion
from trueline.workspace.tags import from_bytes, to_bytes

_numbers = itertools.count()


@pytest.fixture(params=["folder", "memory", "s3"])
def lake(request, tmp_path, monkeypatch):
    """A new workspace: in a folder, in an object store in memory, in one behind HTTP."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if request.param == "s3":
        with serving() as server, tl.open("s3://bucket/lake", create=True, **server.options) as ws:
            yield ws
        return
    place = tmp_path / "lake" if request.param == "folder" else f"memory://tags-{next(_numbers)}/lake"
    with tl.open(place, create=True) as ws:
        yield ws


@pytest.fixture
def sales(ws):
    sales = ws.create("sales")
    for price in (1.0, 2.0, 3.0):
        sales.append(pa.table({"price": [price]}))
    return sales


def test_a_tag_names_a_commit_for_good(lake):
    sales = lake.create("sales")
    first = sales.append(pa.table({"price": [1.0]}))
    lake.tag("v1.0", first)
    sales.append(pa.table({"price": [2.0]}))
    assert sales.view("v1.0").count() == 1
    assert sales.view(at="head").count() == 2
    assert sales.changes(after="v1.0").count() == 1
    assert sales.diff("v1.0").count() == 1
    assert sales.commit("v1.0").block == first.block
    assert next(sales.log("v1.0")).block == first.block
    assert sales.verify(after="v1.0").ok
    assert {name: dict(tag.at) for name, tag in lake.tags().items()} == {"v1.0": {"sales": first.block}}
    lake.untag("v1.0")
    assert lake.tags() == {}
    with pytest.raises(InputError, match="not a tag"):
        sales.view("v1.0")


def test_everything_that_can_be_tagged(ws, sales):
    newest = sales.commit()
    assert ws.tag("a", newest).at == {"sales": newest.block}
    assert ws.tag("b", sales).at == {"sales": newest.block}
    assert ws.tag("c", "sales").at == {"sales": newest.block}
    assert ws.tag("d", "sales@offset:0").at["sales"] != newest.block
    assert sales.view("d").count() == 1
    assert ws.tag("e", "sales@d").positions == ws.tags()["d"].positions
    with pytest.raises(InputError, match="cannot be tagged"):
        ws.tag("f", 17)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("2026-11-13", "a day"), ("2026-11", "a day"), ("2026-11-13T10:00:00Z", "a day"),
        ("beef", "a hash"), ("CAFE", "a hash"), ("f1620ab", "a hash"), ("0badc0de", "a hash"),
        ("17", "a number"), ("1.5", "a number"), ("1e5", "a number"), ("head", "the head"),
        ("HEAD", "the head"),
    ],
)  # fmt: skip
def test_a_name_that_reads_as_something_else_is_refused(ws, sales, name, why):
    with pytest.raises(InputError, match=f"reads as {why}") as caught:
        ws.tag(name, sales)
    assert caught.value.code == "BadTag"
    # The remedy works.
    good = caught.value.remedy.removeprefix("put a word in front of it, as in ")
    if ":" not in good:
        ws.tag(good, sales)
        assert list(ws.tags()) == [good]


@pytest.mark.parametrize(
    "name", ["", "a/b", "../x", "a b", ".x", "x.", "a..b", "ä", "x" * 101, "a\n", None, 5]
)
def test_a_name_that_cannot_be_one_is_refused(ws, sales, name):
    with pytest.raises(InputError, match="cannot be a tag"):
        ws.tag(name, sales)
    assert ws.tags() == {}


def test_a_tag_does_not_move(ws, sales):
    first, newest = sales.commit("offset:0"), sales.commit()
    ws.tag("v1", first)
    with pytest.raises(InputError, match="already") as caught:
        ws.tag("v1", newest)
    assert caught.value.code == "TagExists"
    assert ws.tag("v1", first).at["sales"] == first.block, "done again it is the same"
    ws.untag("v1")  # what the remedy says
    assert ws.tag("v1", newest).at["sales"] == newest.block
    with pytest.raises(InputError, match="differ only by case"):
        ws.tag("V1", newest)


def test_a_tag_may_name_a_commit_of_each_of_several_datasets(ws, sales):
    prices = ws.create("prices").append(pa.table({"x": [1]}))
    ws.tag("v1", sales)
    assert ws.tag("v1", prices).at == {"sales": sales.head, "prices": prices.block}


def test_a_tag_follows_a_dataset_that_is_renamed(ws, sales):
    commit = sales.commit()
    sales.rename("orders")
    assert ws.tag("v1", commit).at == {"orders": commit.block}
    ws["orders"].rename("deals")
    assert ws.tags()["v1"].at == {"deals": commit.block}
    assert ws["deals"].view("v1").count() == 3


def test_a_misspelt_tag_gets_a_hint(ws, sales):
    ws.tag("release-1", sales)
    with pytest.raises(InputError, match="did you mean 'release-1'"):
        sales.view("relaese-1")
    with pytest.raises(InputError, match="did you mean 'release-1'"):
        ws.untag("release-11")


def test_gc_keeps_what_a_tag_names(ws, sales):
    first, newest = sales.commit("offset:0"), sales.commit()
    ws.tag("v1", newest)
    sales.chain.reset(first.block)
    assert ws.gc(older_than=0).objects == 0
    sales.chain.reset(newest.block)
    assert sales.verify().ok
    sales.chain.reset(first.block)
    ws.untag("v1")
    assert ws.gc(older_than=0).objects > 0


def test_writers_that_tag_at_the_same_time_lose_nothing(lake):
    lake.create("sales").append(pa.table({"x": [1]}))
    start = threading.Barrier(4)

    def tag(who):
        start.wait()
        for number in range(5):
            lake.tag(f"w{who}.{number}", "sales")

    threads = [threading.Thread(target=tag, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lake.tags()) == sorted(f"w{who}.{number}" for who in range(4) for number in range(5))


# --- the document ----------------------------------------------------------------------


def test_the_document_holds_positions_and_is_read_as_it_was_written(ws, sales, tmp_path):
    ws.tag("v1", sales)
    raw = (tmp_path / "ws" / "datasets" / ".tags").read_bytes()
    assert to_bytes(from_bytes(raw, "x")) == raw
    (tag,) = json.loads(raw)["tags"]
    assert tag["positions"] == {str(sales.id): str(sales.head)}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"{}", b'{"format":"trueline/tags","version":1}', b"\xff", b"[" * 100_000,
        b'{"format":"trueline/tags","version":1,"tags":[{"name":"head","created":"x","positions":{}}]}',
        b'{"format":"trueline/tags","version":1,"tags":[{"name":"v","created":"x","positions":{"../x":""}}]}',
    ],
)  # fmt: skip
def test_a_damaged_document_is_reported_and_gc_removes_nothing(ws, sales, tmp_path, raw):
    first = sales.commit("offset:0")
    sales.chain.reset(first.block)
    (tmp_path / "ws" / "datasets" / ".tags").write_bytes(raw)
    for call in (ws.tags, lambda: ws.tag("v1", sales), lambda: ws.gc(older_than=0)):
        with pytest.raises(CorruptionError) as caught:
            call()
        assert caught.value.code == "TagsDamaged"


def test_a_newer_document_is_not_guessed_at(ws, sales, tmp_path):
    (tmp_path / "ws" / "datasets" / ".tags").write_bytes(b'{"format":"trueline/tags","version":2,"tags":[]}')
    with pytest.raises(UnsupportedVersion):
        ws.tags()


# --- elsewhere -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_push_and_clone_carry_tags(ws, sales, tmp_path, kind):
    first = sales.commit("offset:0")
    ws.tag("v1", first)
    with serving() as server, tl.open(tmp_path / "other", create=True) as other:
        url, options = (tmp_path / "copy", {}) if kind == "folder" else ("s3://bucket/copy", server.options)
        assert sales.push(url, **options).tags == ("v1",)
        assert sales.push(url, **options).tags == ()
        twin = other.clone(url, "twin", **options)
        assert other.tags()["v1"].at == {"twin": first.block}
        assert twin.view("v1").count() == 1
        # Done again it brings tags that were made since.
        ws.tag("v2", sales)
        sales.push(url, **options)
        other.clone(url, "twin", **options)
        assert sorted(other.tags()) == ["v1", "v2"]


def test_a_tag_that_is_here_is_not_changed_by_a_clone(ws, sales, tmp_path):
    first, newest = sales.commit("offset:0"), sales.commit()
    ws.tag("v1", first)
    sales.push(tmp_path / "copy")
    ws.untag("v1")
    ws.tag("v1", newest)
    assert sales.push(tmp_path / "copy").tags == (), "nor one that is there by a push"
    ws.clone(tmp_path / "copy", "sales")
    assert ws.tags()["v1"].at == {"sales": newest.block}
    assert sales.push(tmp_path / "copy", force=True).tags == ("v1",)


def test_a_copy_with_foreign_refs_is_cloned_without_them(ws, sales, tmp_path):
    sales.push(tmp_path / "copy")
    refs = tmp_path / "copy" / "refs"
    (refs / "odd").write_text("not a hash")
    (refs / "beef").write_text(str(sales.head))
    (refs / "gone").write_text("f1620" + "0" * 64)
    with tl.open(tmp_path / "other", create=True) as other:
        other.clone(tmp_path / "copy", "twin")
        assert other.tags() == {}


def test_a_tag_pushed_into_the_folder_of_a_workspace_works_there(ws, sales, tmp_path):
    ws.tag("v1", sales.commit("offset:0"))
    with tl.open(tmp_path / "other", create=True) as other:
        sales.push(tmp_path / "other" / "datasets" / "sales")
        assert other["sales"].view("v1").count() == 1


def test_a_query_reads_a_dataset_at_a_tag(tmp_path, spark):
    with tl.open(tmp_path / "shop", create=True, spark=spark) as ws:
        sales = ws.create("sales")
        ws.tag("v1.0", sales.append(pa.table({"price": [1.5]})))
        sales.append(pa.table({"price": [2.0]}))
        (row,) = ws.sql("select count(*) as n from `sales@v1.0`").to_arrow().to_pylist()
        assert row == {"n": 1}
        (row,) = ws.sql("select count(*) as n from sales", at="v1.0").to_arrow().to_pylist()
        assert row == {"n": 1}
