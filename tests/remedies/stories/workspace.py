"""Remedies of a workspace: names, settings, sources of others, copies."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest

import trueline as tl
from tests.attacks.test_redirects import inside
from tests.remedies.stories.dataset import pulled
from tests.remedies.story import Scene, done, piece, story
from tests.workspace.pull.serving import Page, serving
from tests.workspace.test_deletion import derived
from trueline.chain.store.file import FileStore
from trueline.errors import StorageReadOnly
from trueline.identity.multihash import Multihash
from trueline.limits import size_of
from trueline.workspace.http import HttpReader
from trueline.workspace.user_config import UserConfig


@story(
    "workspace.workspace",
    "give the folder of one, or make one: trueline.open(path, create=True), `trueline init`",
)
def a_folder_that_is_not_a_workspace(scene: Scene) -> None:
    path = scene.folder / "here"
    path.mkdir()
    remedy = scene.refused(lambda: tl.open(path))
    with done(piece(remedy, r"trueline\.open\([^)]*\)"), path=path) as ws:
        assert list(ws) == []
    other = scene.folder / "there"
    other.mkdir()
    scene.typed(remedy, at=other)
    assert scene.done("list", at=other) is not None


@story(
    "workspace.names",
    "there is none yet: ws.create({name!r}) or `trueline create {name}` makes it",
    "did you mean {close[0]!r}?",
    "the datasets are: {shown}",
)
def a_dataset_that_is_not_there(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws["trades"])
    assert done(piece(remedy, r"ws\.create\([^)]*\)"), ws=scene.ws).name == "trades"
    remedy = scene.refused(lambda: scene.ws["trade"])
    assert scene.ws[piece(remedy, "'(.*)'")].name == "trades"
    remedy = scene.refused(lambda: scene.ws["people"])
    assert scene.ws[piece(remedy, "are: (.*)")].name == "trades"
    with tl.open(scene.folder / "other", create=True) as other:
        remedy = scene.refused(lambda: other["people"])
        scene.typed(remedy, at=scene.folder / "other")
        assert list(other) == ["people"]


@story("workspace.names", "a dataset is read as it was by ws[{name!r}].view(at={at[:80]!r})")
def a_dataset_asked_for_with_its_position(scene: Scene) -> None:
    scene.ws.create("trades").append([{"id": 1}])
    scene.ws["trades"].append([{"id": 2}])
    remedy = scene.refused(lambda: scene.ws["trades@offset:0"])
    assert done(piece(remedy, r"ws\[.*\)"), ws=scene.ws).count() == 1


@story("workspace.catalogue", "look at what there is: `trueline list`")
def a_rename_of_what_was_removed(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    scene.ws.create("people")
    shutil.rmtree(scene.home / "datasets" / "trades")
    remedy = scene.refused(lambda: trades.rename("orders"))
    assert "people" in scene.typed(remedy)


@story(
    "workspace.catalogue", "choose another name; `trueline gc` gives it back once the creation was given up"
)
def a_name_of_a_creation_that_ended_badly(scene: Scene) -> None:
    with pytest.MonkeyPatch.context() as patch, tl.open(scene.home, create=True) as dying:
        patch.setattr(FileStore, "move_head", _full)
        patch.setattr("trueline.workspace.catalogue.Catalogue.release", lambda *_: None)
        with pytest.raises(StorageReadOnly):
            dying.create("a")
    remedy = scene.refused(lambda: scene.ws.create("b").rename("a"))
    scene.typed(remedy, "--older-than", "0s")
    scene.ws["b"].rename("a")
    assert list(scene.ws) == ["a"]


def _full(*_: object, **__: object) -> None:
    raise StorageReadOnly("cannot write", remedy="give the right")


# --- settings ---------------------------------------------------------------------------


@story("workspace.config", "trueline config set {name} VALUE sets it")
def a_confirmation_of_what_is_not_set(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws.config.trust("spark.master"))
    scene.typed(piece(remedy, "(.*) sets it"), VALUE="local[1]")
    assert scene.done("config", "get", "spark.master").strip() == "local[1]"


@story(
    "workspace.config",
    "`trueline -C {folder} config trust {name}` or ws.config.trust({name!r}) confirms it; to work elsewhere "
    "give tl.open(..., spark=...), or set {variable('spark.master')}=local[*]",
)
def a_setting_that_was_not_confirmed(scene: Scene) -> None:
    assert scene.ws is not None
    for number, name in enumerate(("by command", "by call")):
        folder = scene.folder / name
        tl.open(folder, create=True).close()
        (folder / "trueline.toml").write_text('format = 1\n[spark]\nremote = "sc://example.com:15002"\n')
        with tl.open(folder) as ws:
            remedy = scene.refused(lambda ws=ws: ws.config.confirmed("spark.remote"))
            if number:
                done(piece(remedy, r"ws\.config\.trust\([^)]*\)"), ws=ws)
            else:
                scene.typed(remedy, at=scene.folder)
        with tl.open(folder) as ws:
            assert ws.config.confirmed("spark.remote") == "sc://example.com:15002"
    assert tl.open(folder, spark="local[1]") is not None
    variable, value = piece(remedy, r"set (\S+)$").split("=")
    with pytest.MonkeyPatch.context() as environment, tl.open(folder) as ws:
        environment.setenv(variable, value)
        assert ws.config["spark.master"] == value


@story(
    "workspace.config", "correct it by hand: a line `format = {FORMAT}` is enough, the datasets are untouched"
)
def settings_that_cannot_be_read(scene: Scene) -> None:
    scene.ws.create("a")
    path = scene.home / "trueline.toml"
    path.write_text("format = ")
    remedy = scene.refused(lambda: tl.open(scene.home))
    path.write_text(piece(remedy, "`(.*)`") + "\n")
    with tl.open(scene.home) as ws:
        assert list(ws) == ["a"]


@story("workspace.config", "take it out there; `trueline config set --user {name} VALUE` sets it for you")
def a_setting_that_only_its_user_decides(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws.config.set("http.allow_private", True))
    scene.typed(remedy, VALUE="true")
    assert UserConfig().value("http.allow_private") is True


@story("workspace.settings", "settings are: {', '.join(SETTINGS)}")
def a_setting_that_is_not_there(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws.config.set("colour", "red"))
    for name in piece(remedy, "are: (.*)").split(", "):
        assert scene.done("config", "get", name) is not None


@story("workspace.user_config", "set XDG_CONFIG_HOME to a folder")
def a_user_without_a_home(scene: Scene) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("XDG_CONFIG_HOME")
        environment.setenv("HOME", "nowhere")
        remedy = scene.refused(lambda: UserConfig().set("http.allow_private", True))
        environment.setenv(piece(remedy, r"set (\w+)"), str(scene.folder / "config"))
        UserConfig().set("http.allow_private", True)
        assert UserConfig().value("http.allow_private") is True


@story(
    "workspace.user_config",
    "name it with -C {quote(str(folder))} to use it once; "
    "`trueline config set --user safe.directory {quote(str(folder))}` lets it be found",
)
def a_workspace_of_another_user(scene: Scene) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs a file of another user")
    theirs = scene.folder / "their things"
    tl.open(theirs, create=True).close()
    os.chown(theirs, 12345, 12345)
    remedy = scene.run_refused("list", at=theirs)
    scene.done(*shlex.split(piece(remedy, r"-C .* to use it")[: -len(" to use it")]), "list", at=theirs)
    assert scene.run("list", at=theirs).code != 0
    scene.typed(remedy)
    scene.done("list", at=theirs)


@story("limits", "write it like 64MiB")
def a_size_that_is_not_one(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws.config.set("limits.batch_bytes", "many"))
    scene.ws.config.set("limits.batch_bytes", piece(remedy, r"like (\S+)"))
    assert size_of(scene.ws.config["limits.batch_bytes"]) == 64 << 20


# --- sources ------------------------------------------------------------------------------


@story(
    "workspace.pull.confirm",
    "if these files are to be read into it: `trueline pull --confirm {name}`, ws[{name!r}].confirm_source()",
)
def a_source_that_somebody_else_declared(scene: Scene) -> None:
    files = scene.file("inbox/a.csv", "id\n1\n").parent
    with tl.open(scene.folder / "stranger", create=True) as stranger:
        stranger.create("one", source=files)
        stranger.create("two", source=files)
        for name in ("one", "two"):
            assert scene.ws is not None
            shutil.copytree(scene.folder / "stranger" / "datasets" / name, scene.home / "datasets" / name)
    remedy = scene.refused(lambda: pulled(scene.ws, "one"))
    scene.typed(remedy)
    remedy = scene.refused(lambda: pulled(scene.ws, "two"))
    done(piece(remedy, r"ws\[.*\)"), ws=scene.ws)
    scene.ws.pull("two")
    assert [scene.ws[name].view().row_count for name in ("one", "two")] == [1, 1]


@story(
    "workspace.http",
    "allow more in a dataset of another name: ws.create(…, source=trueline.source(…, max_bytes=…))",
)
def a_download_that_is_too_large(scene: Scene) -> None:
    with serving() as server:
        url = server.serve("/a.csv", b"id\n" + b"1\n" * 100)
        scene.ws.create("a", source=tl.source(url, max_bytes=20))
        remedy = scene.refused(lambda: pulled(scene.ws, "a"))
        call = piece(remedy, r"ws\.create.*")
        for given in ("'b'", "url", "1000"):
            call = call.replace("…", given, 1)
        done(call, ws=scene.ws, url=url)
        scene.ws.pull("b")
    assert scene.ws["b"].view().row_count == 100


@story(
    "workspace.addresses",
    "`trueline config set --user http.allow_private true` allows redirects into private networks",
)
def a_redirect_into_a_private_network(scene: Scene) -> None:
    with serving() as server, inside("127.0.0.2") as other:
        url = server.serve("/a.csv", status=302, headers={"Location": f"{other.url}/b.csv"})
        scene.ws.create("a", source=url)
        remedy = scene.refused(lambda: pulled(scene.ws, "a"))
        scene.typed(remedy)
        scene.ws.pull("a")
    assert scene.ws["a"].view().row_count == 1


@story("workspace.http", "set {scheme}_proxy to http://host:port, the address of one")
def a_proxy_that_cannot_be_used(scene: Scene) -> None:
    def read() -> bytes:
        reader = HttpReader("http://data.example/a.csv")
        try:
            with reader.get(name="a") as answer:
                return b"".join(reader.pieces(answer))
        finally:
            reader.close()

    with serving() as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("http_proxy", "socks9://127.0.0.1:1")
        environment.setenv("HTTP_PROXY", "socks9://127.0.0.1:1")
        remedy = scene.refused(read)
        server.pages["http://data.example/a.csv"] = server.pages.setdefault("/", Page(b"x"))
        here = server.url.removeprefix("http://")
        value = piece(remedy, r"to (\S+),").replace("host:port", here)
        environment.setenv(piece(remedy, r"set (\w+)"), value)
        assert read() == b"x"


@story("workspace.spark_sessions", 'give a SparkSession, "local[4]" or "sc://host:15002"')
def a_spark_that_is_not_one(scene: Scene) -> None:
    assert scene.ws is not None
    remedy = scene.refused(lambda: tl.open(scene.home, spark=4))
    for given in (piece(remedy, r'"(local[^"]*)"'), piece(remedy, r'"(sc:[^"]*)"')):
        tl.open(scene.home, spark=given).close()


# --- copies and heads ---------------------------------------------------------------------


@story(
    "workspace.transfer.report",
    "transfer the other way, or discard those blocks with force=True (--force)",
    "replace what the target has with force=True (--force), or keep both under different names",
)
def a_copy_that_went_on_by_itself(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    trades.append([{"id": 1}])
    copy = scene.folder / "there" / "datasets" / "trades"
    tl.open(scene.folder / "there", create=True).close()
    trades.push(copy)
    for extra in ("no", "yes"):
        with tl.open(scene.folder / "there") as there:
            there["trades"].append([{"id": 7}])
        if extra == "yes":
            trades.append([{"id": 2}])
        remedy = scene.refused(lambda: trades.push(copy))
        if extra == "yes":
            scene.done("push", "trades", copy, piece(remedy, r"--force"))
        else:
            trades.push(copy, **done(f"dict({piece(remedy, 'force=True')})"))
        with tl.open(scene.folder / "there") as there:
            assert there["trades"].chain.store.head() == trades.head


@story(
    "workspace.pull.pull",
    "discard the blocks that its origin does not have: ws.clone({source!r}, {name!r}, force=True), "
    "`trueline clone {quote(source)} {name} --force`",
)
def a_clone_that_went_on_by_itself(scene: Scene) -> None:
    with tl.open(scene.folder / "other ws", create=True) as other:
        origin = other.create("trades")
        origin.append([{"id": 1}])
        for name in ("one", "two"):
            mine = scene.ws.clone(origin.chain.store.location, name)
            mine.append([{"id": 7}])
            remedy = scene.refused(lambda name=name: pulled(scene.ws, name))
            if name == "one":
                done(piece(remedy, r"ws\.clone\([^)]*\)"), ws=scene.ws)
            else:
                scene.typed(remedy)
            with tl.open(scene.home) as again:
                assert again[name].chain.store.head() == origin.head


@story(
    "workspace.rollback",
    "put it back: `trueline verify {name} --restore-head {seen.head}`, {again}; if it was meant: "
    "`trueline verify {name} --accept-head`, ws[{name!r}].accept_head()",
)
def a_head_that_went_back(scene: Scene) -> None:
    sales = scene.ws.create("sales")
    blocks = [sales.append(pa.table({"x": [n]})).block for n in range(3)]
    ref = scene.home / "datasets" / "sales" / "refs" / "head"

    def rolled_back() -> str:
        ref.write_text(str(blocks[0]))
        with tl.open(scene.home) as again:
            return scene.refused(again.gc)

    remedy = rolled_back()
    scene.typed(remedy)
    assert ref.read_text().strip() == str(blocks[-1])
    remedy = rolled_back()
    with tl.open(scene.home) as ws:
        done(piece(remedy, r"ws\['sales'\]\.restore_head\([^)]*\)"), ws=ws)
    assert ref.read_text().strip() == str(blocks[-1])
    remedy = rolled_back()
    scene.typed(piece(remedy, "if it was meant: (.*)"))
    with tl.open(scene.home) as ws:
        assert ws["sales"].append([{"x": 9}]).rows == 1


@story("workspace.rollback", "name a head that was seen: `trueline verify` says which")
def a_head_without_its_beginning(scene: Scene) -> None:
    sales = scene.ws.create("sales")
    blocks = [sales.append(pa.table({"x": [n]})).block for n in range(3)]
    ref = scene.home / "datasets" / "sales" / "refs" / "head"
    ref.write_text(str(blocks[0]))
    part = replace(sales.chain.block(blocks[0]), prev_block_hash=None)
    stray = Multihash.of(part.to_bytes())
    (scene.home / "datasets" / "sales" / "blocks" / str(stray)).write_bytes(part.to_bytes())
    with tl.open(scene.home) as ws:
        remedy = scene.refused(lambda: ws["sales"].restore_head(str(stray)))
        said = scene.run(*piece(remedy, "`trueline ([^`]*)`").split()).err
        assert str(blocks[-1]) in said
        ws["sales"].restore_head(str(blocks[-1]))
    assert ref.read_text().strip() == str(blocks[-1])


@story(
    "workspace.rollback",
    "bring the dataset back from a copy: its newer blocks are not all here; if it was meant: "
    "`trueline verify {name} --accept-head`, ws[{name!r}].accept_head()",
)
def a_head_that_went_back_for_good(scene: Scene) -> None:
    ref = scene.home / "datasets" / "sales" / "refs" / "head"
    for call in (False, True):
        if call:
            shutil.rmtree(scene.home)
        with tl.open(scene.home, create=True) as ws:
            sales = ws.create("sales")
            blocks = [sales.append(pa.table({"x": [n]})).block for n in range(3)]
            (ref.parent.parent / "blocks" / str(blocks[1])).unlink()
        ref.write_text(str(blocks[0]))
        with tl.open(scene.home) as ws:
            remedy = scene.refused(ws.gc)
            if call:
                done(piece(remedy, r"ws\['sales'\]\.accept_head\(\)"), ws=ws)
        if not call:
            scene.typed(remedy)
        with tl.open(scene.home) as ws:
            assert ws["sales"].verify().ok


@story(
    "workspace.rollback",
    "put it back: `trueline verify {name} --restore-head "
    "{seen.head}`, {again}; or ask who recorded that head",
)
def a_head_that_an_index_elsewhere_knows(scene: Scene) -> None:
    sales = scene.ws.create("sales")
    blocks = [sales.append(pa.table({"x": [n]})).block for n in range(3)]
    ref = scene.home / "datasets" / "sales" / "refs" / "head"
    ref.write_text(str(blocks[0]))
    with tl.open(scene.folder / "fresh", create=True) as fresh:
        shutil.copytree(ref.parent.parent, scene.folder / "fresh" / "datasets" / "sales")
        found = fresh["sales"].verify(expected_head=str(blocks[-1])).problems
        remedy = scene.meet(found[0].remedy)
        scene.typed(remedy, at=scene.folder / "fresh")
        assert fresh["sales"].chain.store.head() == blocks[-1]


@story(
    "workspace.tags",
    "choose another name, or remove it first: ws.untag({name!r}), `trueline tag {name} --delete`",
    'give a commit, a dataset, a snapshot, or text as in "sales@2026-11-13"',
    "did you mean {close[0]!r}?",
    "the tags are: {shown}",
)
@story("workspace.names", "put a word in front of it, as in release-{text}")
def tags_that_cannot_be_given(scene: Scene) -> None:
    sales = scene.ws.create("sales")
    first, second = (sales.append([{"id": n}]) for n in range(2))
    scene.ws.tag("v1", first)
    for way in ("called", "typed"):
        remedy = scene.refused(lambda: scene.ws.tag("v1", second))
        if way == "typed":
            scene.typed(remedy)
        else:
            done(piece(remedy, r"ws\.untag\([^)]*\)"), ws=scene.ws)
        assert scene.ws.tag("v1", second).at["sales"] == second.block
        scene.ws.untag("v1")
        scene.ws.tag("v1", first)
    remedy = scene.refused(lambda: scene.ws.tag("v2", 5))
    text = piece(remedy, '"(.*)"').replace("2026-11-13", "2099-11-13")
    for number, what in enumerate((first, sales, text)):
        assert scene.ws.tag(f"w{number}", what).at["sales"] in (first.block, second.block)
    remedy = scene.refused(lambda: scene.ws.untag("v11"))
    scene.ws.untag(piece(remedy, "'(.*)'"))
    remedy = scene.refused(lambda: scene.ws.untag("release"))
    for name in piece(remedy, "are: (.*)").split(", "):
        scene.ws.untag(name)
    remedy = scene.refused(lambda: scene.ws.tag("2026-11-13", sales))
    assert scene.ws.tag(piece(remedy, r"as in (\S+)"), sales).name == "release-2026-11-13"


@story(
    "workspace.deletion",
    "first delete what is computed from it: {deleting}",
    "first remove what names its commits: {untagging}",
    "first delete what is computed from it: {deleting}; and remove what names its commits: {untagging}",
)
def a_dataset_that_others_rest_on(scene: Scene) -> None:
    for tags, inputs in ((("v1", "v2"), ()), ((), ("daily",)), (("v3",), ("daily", "weekly"))):
        sales = scene.ws.create("sales")
        for tag in tags:
            scene.ws.tag(tag, sales)
        for number, name in enumerate(inputs):
            derived(scene.ws, name, "sales", *inputs[:number])
        remedy = scene.refused(lambda: scene.ws.delete("sales"))
        for call in re.findall(r"ws\.\w+\([^)]*\)", remedy):
            done(call, ws=scene.ws)
        scene.ws.delete("sales")
        assert list(scene.ws) == []
