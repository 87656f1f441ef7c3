"""A workspace below a URL: the same, with what is private on this machine."""

from __future__ import annotations

import itertools
import time

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store import small_s3
from tests.chain.store.small_s3 import serving
from tests.workspace.records import column
from trueline.chain.store.store import Folder
from trueline.errors import StoreError, WorkspaceNotFound
from trueline.workspace.locations import place_of

_numbers = itertools.count()


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return f"memory://workspace-{next(_numbers)}/lake"


def test_a_workspace_lives_below_a_url(url, tmp_path):
    with pytest.raises(WorkspaceNotFound):
        tl.open(url)
    with tl.open(url, create=True) as ws:
        ds = ws.create("trades", description="x")
        ds.append(pa.table({"x": [1, 2]}))
        ws.config.set("gc.older_than", "2h")
    with tl.open(url, create=True) as ws:
        assert list(ws) == ["trades"]
        assert ws.config["gc.older_than"] == "2h"
        ds = ws["trades"]
        assert ds.append(pa.table({"x": [3]})).offsets == range(2, 3)
        assert column(ds, "x") == [1, 2, 3]
        assert ws.verify().ok
        assert "other" not in ws
        assert ws.create("trades").id == ds.id


def test_indexes_lie_in_the_cache_and_keys_in_the_data_of_this_machine(url, tmp_path):
    with tl.open(url, create=True) as ws:
        ws.create("trades").append(pa.table({"x": [1]}))
    assert [path.name for path in (tmp_path / "cache").rglob("*.sqlite")] == ["trades.sqlite"]
    assert len(list((tmp_path / "data").rglob("*.key"))) == 1


def test_two_workspaces_do_not_share_what_is_private(url):
    with tl.open(url, create=True) as one, tl.open(url + "-two", create=True) as two:
        assert one._index_path("x") != two._index_path("x")
        one.create("x").append(pa.table({"a": [1]}))
        two.create("x")
        assert two["x"].info.rows == 0


def test_a_relative_cache_home_counts_as_not_set(url, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with tl.open(url, create=True) as ws:
        assert ws._index_path("x").is_relative_to(tmp_path / "home" / ".cache")


def test_gc_follows_all_refs_and_removes_leftovers(url):
    with tl.open(url, create=True) as ws:
        ds = ws.create("trades")
        ds.append(pa.table({"x": [1]}))
        store = ds.chain.store
        with store.lease():
            store.put(Folder.DATA, b"left")
        half = ws._location.store("half", durable=True)
        half.put(Folder.BLOCKS, b"a seed")
        half.close()
        assert ws.gc().objects == 0
        assert ws.gc().unfinished == ()
        assert "half" not in ws
        assert ws._location.refs("trades") == ["head"]
        assert ws.verify().ok
        later = time.time() + 60
        assert ws._location.remove_unfinished("half", later, dry_run=True)
        assert list(ws._location.names()) == ["half", "trades"]
        assert ws._location.remove_unfinished("half", later, dry_run=False)
        assert list(ws._location.names()) == ["trades"]
        assert not ws._location.remove_unfinished("trades", later, dry_run=False)


def test_the_options_of_a_provider_reach_every_dataset(url):
    with serving() as server:
        with tl.open("s3://bucket/lake", create=True, **server.options) as ws:
            ws.create("trades").append(pa.table({"x": [1]}))
            assert (list(ws), ws._location.refs("trades")) == (["trades"], ["head"])
        with tl.open("s3://bucket/lake", **server.options) as ws:
            assert ws["trades"].append(pa.table({"x": [2]})).offsets == range(1, 2)
            assert ws.gc(older_than=0).objects == 0
            assert ws.verify().ok
        assert "lake/trueline.toml" in server.objects
    assert not any(".key" in key for key in server.objects), "private keys stay on this machine"


def test_of_two_who_create_at_once_the_first_one_writes_the_settings(url):
    """Both saw that there is no workspace; the second leaves the settings of the first as they are."""
    with serving() as server:
        for place in (place_of(url), place_of("s3://bucket/lake", **server.options)):
            for text in ("format = 1\n# first\n", "format = 1\n# second\n"):
                place.create_config(text)
            assert place.read_config() == "format = 1\n# first\n"


def test_of_two_who_set_different_settings_at_once_both_count(url):
    with serving() as server:
        for place, options in ((url, {}), ("s3://bucket/lake", server.options)):
            with tl.open(place, create=True, **options) as one, tl.open(place, **options) as other:
                one.config.set("gc.older_than", "2d")
                other.config.set("storage.durable", False)
            with tl.open(place, **options) as again:
                assert (again.config["gc.older_than"], again.config["storage.durable"]) == ("2d", False)


def test_settings_that_change_between_a_look_and_the_write_are_looked_at_again(monkeypatch):
    """Another writer comes between reading the settings and the conditional write."""
    with serving() as server, tl.open("s3://bucket/lake", create=True, **server.options) as ws:
        put = small_s3._Handler.do_PUT
        others = ["limits"]

        def overtaken(handler):
            if handler.path.endswith("trueline.toml") and others:
                others.pop()
                with tl.open("s3://bucket/lake", **server.options) as other:
                    other.config.set("limits.columns", 77)
            return put(handler)

        monkeypatch.setattr(small_s3._Handler, "do_PUT", overtaken)
        ws.config.set("gc.older_than", "2d")
        assert (ws.config["limits.columns"], ws.config["gc.older_than"]) == (77, "2d")
        with tl.open("s3://bucket/lake", **server.options) as again:
            assert (again.config["limits.columns"], again.config["gc.older_than"]) == (77, "2d")


@pytest.mark.parametrize("refused", [1, 3])
def test_a_conflict_that_nobody_won_is_tried_again(url, monkeypatch, refused):
    """S3 answers 409 to a conditional write that met another one, which may have failed as well."""
    left = [refused]
    put = small_s3._Handler.do_PUT

    def conflicting(handler):
        if handler.path.endswith("trueline.toml") and left[0]:
            left[0] -= 1
            handler._body()
            return handler._answer(409)
        return put(handler)

    monkeypatch.setattr(small_s3._Handler, "do_PUT", conflicting)
    with serving() as server, tl.open("s3://bucket/lake", create=True, **server.options) as ws:
        assert (list(ws), left) == ([], [0])


def test_settings_that_cannot_be_created_name_the_place(url, monkeypatch):
    def conflicting(handler):
        handler._body()
        handler._answer(409)

    monkeypatch.setattr(small_s3._Handler, "do_PUT", conflicting)
    with serving() as server, pytest.raises(StoreError, match="cannot write to s3://bucket/lake"):
        tl.open("s3://bucket/lake", create=True, **server.options)


def test_a_lost_head_is_noticed(url):
    import obstore

    with tl.open(url, create=True) as ws:
        ds = ws.create("trades")
        head = ds.append(pa.table({"x": [1]})).block
        obstore.delete(ws._location._client, ws._location._key("datasets", "trades", "refs", "head"))
    with tl.open(url) as ws:
        assert "trades" in ws
        with pytest.raises(tl.errors.HeadMissing, match=head):
            ws["trades"].append(pa.table({"x": [2]}))
