"""Planted passwords and keys: whatever is done with them, nothing that is shown or written holds one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.pull.serving import Server, serving
from trueline.cli import main
from trueline.credentials import has_secrets, is_secret_name, masked, masked_text
from trueline.errors import InputError, TruelineError
from trueline.workspace import creation, http

pytestmark = pytest.mark.contract("guard:G11")

SECRET = "hunter2-9f3c"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own, so that all that is written can be looked at."""
    monkeypatch.setattr(http, "pause", lambda seconds: None)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name))
    for name in ("TRUELINE_WORKSPACE", "TRUELINE_TRACEBACK", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    """Serves a dataset under /ds, with a key or without."""
    with tl.open(tmp_path / "origin", create=True) as ws:
        ws.create("ds").append(pa.table({"x": [1, 2]}))
        ws["ds"].push(tmp_path / "www")
    with serving() as found:
        for path in (tmp_path / "www").rglob("*"):
            if path.is_file():
                for query in ("", f"?token={SECRET}"):
                    name = path.relative_to(tmp_path / "www").as_posix()
                    found.serve(f"/ds/{name}{query}", path.read_bytes())
        found.serve(f"/now.csv?token={SECRET}", b"1\n")
        found.serve("/moved/refs/head", status=302, headers={"Location": f"ftp://u:{SECRET}@h/"})
        yield found


@pytest.fixture
def shop(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as ws:
        ws.create("sales").append(pa.table({"x": [1]}))
    return tmp_path / "shop"


def with_user(url: str, password: str = SECRET) -> str:
    return url.replace("http://", f"http://ann:{password}@")


def lines(server: Server) -> list[list[str]]:
    """Command lines with a secret in them; most of them fail, each in another place."""
    url = server.url
    nobody = "http://127.0.0.1:1"
    addresses = [
        with_user(f"{url}/ds"),
        f"{url}/ds?token={SECRET}",
        f"{url}/ds?X-Amz-Credential=a&X-Amz-Signature={SECRET}",
        f"{url}/ds?sv=1&sig={SECRET}",
        f"{url}/ds?to%6Ben={SECRET}",
        f"{url}/ds#access_token={SECRET}",
        with_user(f"{url}/absent"),
        with_user(f"{url}/moved"),
        with_user(f"{nobody}/ds"),
        f"{nobody}/ds?password={SECRET}",
        with_user(f"{url}/not a name/%00"),
        with_user("http://[bad/ds"),
        with_user("http://host/ds", f"a/{SECRET}"),
        f"http://host:{SECRET}@/ds",
        f"ftp://ann:{SECRET}@host/ds",
        f"s3://key:{SECRET}@bucket/ds",
        f"s3://bucket/ds?sig={SECRET}",
        f"az://container/ds?sas={SECRET}",
        f"{url}/ds?next=http%3A%2F%2Fann%3A{SECRET}%40host%2F",
    ]
    words = [["clone", address, "--json"] for address in addresses]
    words += [["clone", address, f"copy{number}"] for number, address in enumerate(addresses)]
    words += [["push", "sales", address] for address in addresses]
    words += [["create", f"n{number}", "--source", address] for number, address in enumerate(addresses)]
    words += [["-C", address, "list"] for address in addresses[-6:]]
    words += [["init", address] for address in addresses[-6:]]
    words += [
        ["list", "--json"],
        ["status"],
        ["log", "--blocks", "--json"],
        ["log"],
        ["config", "set", "spark.master", f"http://u:{SECRET}@h"],
        ["config", "set", "spark.remote", f"http://h/?token={SECRET}"],
        ["pull"],
    ]
    return words


def test_no_command_shows_or_writes_one(server, shop, tmp_path, capsys):
    for words in lines(server):
        place = [] if "-C" in words else ["-C", str(shop)]
        main([*place, *words])
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err, words
        assert "Unexpected" not in said.err, (words, said.err)
        assert "should not happen" not in said.err, (words, said.err)
    assert sorted(tl.open(shop))[:2] == ["copy0", "copy1"], "and those that can work do"
    found = [path for path in tmp_path.rglob("*") if SECRET.encode() in os.fsencode(path)]
    found += [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []


def test_the_key_still_reaches_the_host_it_is_for(server, shop):
    with tl.open(shop) as ws:
        ws.clone(with_user(f"{server.url}/ds"))
    assert {headers.get("authorization", "")[:6] for _, headers in server.asked} == {"Basic "}


# --- chains -------------------------------------------------------------------------------

MANIFEST = """
kind: DatasetSnapshot
version: 1
content:
  name: polled
  kind: Root
  metadata:
    - kind: SetPollingSource
      fetch: %s
      read:
        kind: Csv
      merge:
        kind: Append
"""


@pytest.mark.parametrize(
    "fetch",
    [
        {"kind": "Url", "url": f"https://example.org/x.csv?token={SECRET}"},
        {"kind": "Url", "url": f"https://ann:{SECRET}@example.org/x.csv"},
        {"kind": "Url", "url": f"https://{SECRET}@example.org/x.csv"},
        {
            "kind": "Url",
            "url": "https://example.org/x.csv",
            "headers": [{"name": "Authorization", "value": f"Bearer {SECRET}"}],
        },
        {
            "kind": "Url",
            "url": "https://example.org/x.csv",
            "headers": [{"name": "x-api-key", "value": SECRET}],
        },
        {"kind": "Mqtt", "host": "h", "port": 1, "password": SECRET, "topics": [{"path": "x"}]},
        {"kind": "Container", "image": "i", "env": [{"name": "API_TOKEN", "value": SECRET}]},
        {"kind": "EthereumLogs", "nodeUrl": f"https://node.example/?apikey={SECRET}"},
    ],
    ids="-".join,
)
def test_a_definition_with_a_secret_is_refused_and_nothing_is_written(shop, fetch):
    before = {path for path in shop.rglob("*") if path.is_file()}
    with tl.open(shop) as ws:
        with pytest.raises(InputError, match="part of the dataset and of every copy") as refused:
            ws.create_from_manifest(MANIFEST % json.dumps(fetch))
        assert "polled" not in ws
    assert SECRET not in str(refused.value) + repr(refused.value.fields)
    assert "leave it out" in refused.value.remedy
    assert {path for path in shop.rglob("*") if path.is_file()} == before


def test_a_strangers_chain_with_one_is_not_repeated(server, shop, tmp_path, monkeypatch, capsys):
    """Other software has put it there: it is read, masked wherever it is shown, and not written again."""
    with tl.open(shop) as ws:
        with monkeypatch.context() as other_software:
            other_software.setattr(creation, "check_no_secrets", lambda events: None)
            fetch = {"kind": "Url", "url": f"{server.url}/now.csv?token={SECRET}"}
            ws.create_from_manifest(MANIFEST % json.dumps(fetch))
        theirs = holding(shop)
        assert theirs
        report = ws.pull("polled")
        assert report["polled"].rows == 1
        assert ws.pull("polled")["polled"].rows == 0, "the name it goes by is the same the next time"
        said = repr(report) + report._repr_html_() + json.dumps(report.to_dict()) + repr(ws["polled"].info)
        server.serve(f"/now.csv?token={SECRET}", status=404)
        with pytest.raises(TruelineError) as failed:
            ws.pull("polled")
        said += str(failed.value) + repr(failed.value.report)
        with pytest.raises(TruelineError) as failed:
            ws["polled"].append(pa.table({"x": [1]}))
        said += str(failed.value) + repr(failed.value.fields)
    for words in (["log", "--blocks", "--json"], ["status", "--json"], ["list"], ["pull"], ["log", "--json"]):
        main(["-C", str(shop), *words])
        shown = capsys.readouterr()
        said += shown.out + shown.err
    assert SECRET not in said
    assert holding(shop) == theirs


def holding(folder: Path) -> set[Path]:
    """Blocks with the secret in them."""
    files = (path for path in folder.rglob("blocks/*") if path.is_file())
    return {path for path in files if SECRET.encode() in path.read_bytes()}


# --- options ------------------------------------------------------------------------------


def test_an_option_comes_from_a_file_or_the_environment(tmp_path, monkeypatch, capsys):
    from trueline.cli.session import store_options

    (tmp_path / "key").write_text(f"{SECRET}\n")
    monkeypatch.setenv("MY_KEY", SECRET)
    given = [f"secret_access_key=@{tmp_path / 'key'}", "token=env:MY_KEY", "region=@@here"]
    assert store_options(given) == {"secret_access_key": SECRET, "token": SECRET, "region": "@here"}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "value", ["@{0}/absent", "@{0}", "env:NOT_THERE_AT_ALL", "@{0}/binary", "@{0}/large"]
)
def test_one_that_is_not_there_is_told(shop, tmp_path, capsys, value):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    assert main(["--option", f"secret_access_key={value.format(tmp_path)}", "-C", "s3://b/x", "list"]) == 2
    assert "--option secret_access_key" in capsys.readouterr().err


def test_one_on_the_command_line_is_warned_about(capsys):
    words = ["--option", f"secret_access_key={SECRET}", "--option", "region=x"]
    main(
        [
            *words,
            "--option",
            "retry_config.max_retries=0",
            "--option",
            "endpoint=http://127.0.0.1:1",
            "--option",
            "client_options.allow_http=true",
            "--option",
            "access_key_id=a",
            "-C",
            "s3://b/x",
            "list",
        ]
    )
    said = capsys.readouterr()
    assert "others on this machine can see what was given as --option secret_access_key\n" in said.err
    assert "--option secret_access_key=@FILE" in said.err
    assert SECRET not in said.out + said.err


# --- the process list -----------------------------------------------------------------------

STARTED = """
import pathlib, sys
from trueline.spark.launch import launch
from trueline.spark.settings import Settings
conf = {"spark.hadoop.fs.s3a.secret.key": sys.stdin.read(), "spark.ui.enabled": "false"}
launched = launch(Settings(master="local[1]", memory="512m", conf=conf))
seen = b"".join(p.read_bytes() for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"))
context = launched.session.sparkContext
kept = context._jsc.hadoopConfiguration().get("fs.s3a.secret.key")
assert kept == conf["spark.hadoop.fs.s3a.secret.key"], "it is used all the same"
assert b"spark.submit.deployMode=client" in seen, "the command line of the JVM was looked at"
print(kept.encode() in seen)
launched.stop()
"""


@pytest.mark.jvm
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs a list of processes")
def test_a_spark_started_here_carries_none_in_its_command_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STARTED], input=SECRET, capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


# --- Spark ----------------------------------------------------------------------------------


def test_the_token_of_a_spark_is_shown_nowhere(shop, tmp_path, capsys):
    with pytest.raises(InputError) as refused:
        tl.open(shop, spark=f"sc://:1/;token={SECRET}")
    said = str(refused.value)
    (shop / "trueline.toml").write_text(f'format = 1\n[spark]\nremote = "sc://h:1/;token={SECRET}"\n')
    with tl.open(shop) as ws:
        with pytest.raises(TruelineError) as asked:
            ws.sql("select 1")
        said += str(asked.value) + repr(asked.value.fields) + repr(ws.config)
        ws.config.trust("spark.remote")
        said += repr(ws.config)
    for words in (["list"], ["list", "--json"], ["get", "spark.remote"], ["trust", "spark.remote"]):
        assert main(["-C", str(shop), "config", *words]) == 0
        shown = capsys.readouterr()
        said += shown.out + shown.err
    assert SECRET not in said
    assert "sc://h:1/;token=***" in said
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == [shop / "trueline.toml"]


# --- the mask itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://example.org/x?page=2&monkey=1", "https://example.org/x?page=2&monkey=1"),
        ("https://host/@user/pkg@1.0", "https://host/@user/pkg@1.0"),
        (
            "abfss://container@account.dfs.core.windows.net/x",
            "abfss://container@account.dfs.core.windows.net/x",
        ),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("https://ann@example.org/", "https://***@example.org/"),
        ("https://ann:@example.org/", "https://ann:@example.org/"),
        ("HTTPS://a:b@h/?SIG=1&Token=2#key=3", "HTTPS://a:***@h/?SIG=***&Token=***#key=***"),
        ("https://a:b@c:d@h/x", "https://a:***@h/x"),
        ("sc://h/;use_ssl=true;token=x", "sc://h/;use_ssl=true;token=***"),
        ("not an address: a@b?token=x", "not an address: a@b?token=x"),
        ("/a/path?token=x", "/a/path?token=x"),
    ],
)
def test_what_is_masked_and_what_is_left(address, shown):
    assert masked(address) == shown
    assert has_secrets(address) == (address != shown)
    assert masked(shown) == shown, "once masked it stays so"


def test_addresses_in_other_text_are_masked():
    text = f"a 'https://u:{SECRET}@h/x', (http://h/?token={SECRET}) and https://h/plain."
    assert masked_text(text) == "a 'https://u:***@h/x', (http://h/?token=*** and https://h/plain."


@pytest.mark.parametrize(
    "name", ["access_key_id", "client_id", "region", "skip_signature", "token_file", "keyed"]
)
def test_names_that_are_not_secret(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["secret_access_key", "PASSWORD", "sas", "api-key", "client_secret", "spark.hadoop.fs.s3a.access.key",
     "X-Amz-Credential", "Authorization", "Set-Cookie", "fs.azure.account.key.x", "session_token"],
)  # fmt: skip
def test_names_that_are(name):
    assert is_secret_name(name)
