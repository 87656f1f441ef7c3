"""Servers that lie, stall, lead elsewhere or never stop: nothing of it gets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from trueline.chain.store.store import Folder
from trueline.errors import CorruptionError, HashMismatch, InputError, ObjectMissing, StoreError
from trueline.identity.multihash import Multihash
from trueline.workspace import addresses, http
from trueline.workspace.transfer.http_remote import HttpRemote, shown


def on(part: str, answer):
    """Answer in another way where the path has a part."""
    return lambda handler: answer(handler) if part in handler.path else False


def endless(handler) -> bool:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    except OSError:
        handler.close_connection = True
    return True


def shorter(handler) -> bool:
    """Promise 1,000 bytes and hang up after ten."""
    handler.answer(200, b"0123456789", Content_Length="1000")
    handler.close_connection = True
    return True


PAGE = b"<!doctype html><title>Log in</title>"


@pytest.mark.parametrize(
    ("part", "answer", "error"),
    [
        ("/refs/", lambda h: h.answer(200, PAGE, Content_Type="text/html"), InputError),
        ("/refs/", lambda h: h.answer(200, b"../../etc/passwd"), InputError),
        ("/refs/", lambda h: h.answer(200, b""), InputError),
        ("/refs/", endless, CorruptionError),
        ("/refs/", lambda h: h.answer(403), InputError),
        ("/refs/", lambda h: h.answer(200, str(Multihash.of(b"x")).encode()), ObjectMissing),
        ("/blocks/", lambda h: h.answer(404), ObjectMissing),
        ("/blocks/", lambda h: h.answer(200, PAGE, Content_Type="text/html"), CorruptionError),
        ("/blocks/", lambda h: h.answer(200, b"other bytes"), HashMismatch),
        ("/blocks/", endless, CorruptionError),
        ("/blocks/", shorter, StoreError),
        ("/data/", lambda h: h.answer(404), ObjectMissing),
        ("/data/", lambda h: h.answer(200, b"short"), StoreError),
        ("/data/", lambda h: h.answer(200, PAGE, Content_Type="text/html; charset=utf-8"), CorruptionError),
        ("/data/", endless, CorruptionError),
        ("/data/", shorter, StoreError),
        ("/data/", lambda h: h.answer(200, b"x", Content_Encoding="gzip"), CorruptionError),
        ("/checkpoints/", endless, CorruptionError),
        ("/checkpoints/", lambda h: h.answer(204), InputError),
        ("/data/", lambda h: h.answer(302, Location="file:///etc/passwd"), InputError),
        ("/data/", lambda h: h.answer(302, Location="ftp://127.0.0.1/x"), InputError),
        ("/data/", lambda h: h.answer(302, Location=h.path), InputError),
        ("/data/", lambda h: h.answer(503), StoreError),
    ],
)
def test_a_source_that_misbehaves_is_refused_and_leaves_nothing_visible(
    there, server, url, part, *, answer, error
):
    server.trick = on(part, answer)
    with pytest.raises(error):
        there.clone(url)
    assert list(there) == []
    server.trick = lambda _: False
    there.clone(url)
    assert there.verify().ok


def test_bytes_of_the_right_length_and_another_hash_are_refused(source, there, server, url):
    data = source.chain.block(source.head).data_event.new_data
    server.trick = on(data.physical_hash, lambda h: h.answer(200, b"x" * data.size))
    with pytest.raises(HashMismatch, match=data.physical_hash):
        there.clone(url)
    assert "trades" not in there
    store = there._unborn("trades").chain.store
    assert Multihash.of(b"x" * data.size) not in {each.hash for each in store.list(Folder.DATA)}


def test_a_server_that_is_busy_is_asked_again(there, server, url, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(http, "pause", pauses.append)
    seen: set[str] = set()

    def busy_once(handler) -> bool:
        if handler.path in seen:
            return False
        seen.add(handler.path)
        return handler.answer(429, Retry_After="7")

    server.trick = busy_once
    there.clone(url)
    assert there.verify().ok
    assert len(pauses) == len(seen)
    assert set(pauses) == {7.0}


def test_no_server_makes_us_wait_for_long(there, server, url, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(http, "pause", pauses.append)
    server.trick = lambda handler: handler.answer(503, Retry_After="86400")
    with pytest.raises(StoreError):
        there.clone(url)
    assert max(pauses) == 30.0
    assert len(pauses) == 3


def test_a_connection_that_breaks_is_made_again(there, server, url):
    seen: set[str] = set()

    def hang_up_once(handler) -> bool:
        if handler.path in seen:
            return False
        seen.add(handler.path)
        handler.close_connection = True
        return shorter(handler) if "/data/" in handler.path else True

    server.trick = hang_up_once
    there.clone(url)
    assert there.verify().ok


def test_redirects_within_the_web_are_followed(there, server, url):
    def elsewhere(handler) -> bool:
        if handler.path.startswith("/moved/"):
            return handler.answer(302, Location=f"{server.url}/{handler.path.removeprefix('/moved/')}")
        return False

    server.trick = elsewhere
    there.clone(f"{server.url}/moved/trades")
    assert there.verify().ok


def test_https_does_not_lead_to_http(monkeypatch):
    remote = HttpRemote("https://example.org/trades")

    class Response:
        status = 302
        headers = {"Location": "http://example.org/trades"}  # noqa: RUF012 (as the library has it)

    monkeypatch.setattr(remote._reader, "_sent", lambda *_: Response)
    monkeypatch.setattr(remote._reader, "_give_back", lambda _: None)
    with pytest.raises(InputError) as caught:
        remote.head()
    assert caught.value.code == "BadRedirect"


def test_connections_are_kept(there, server, url, monkeypatch):
    made: list[object] = []
    original = addresses.CheckedBackend.connect_tcp

    def connected(*args, **kwargs):
        made.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(addresses.CheckedBackend, "connect_tcp", connected)
    there.clone(url)
    assert len(made) <= 9, "one for the blocks, and one for each of eight workers"


def test_credentials_go_to_their_host_only_and_are_not_remembered(source, there, server):
    sent: dict[str, str | None] = {}

    def trick(handler) -> bool:
        sent[handler.path] = handler.headers.get("Authorization")
        if "/data/" in handler.path and "other" not in handler.path:
            other = server.url.replace("127.0.0.1", "localhost")
            return handler.answer(302, Location=f"{other}{handler.path}?other")
        return False

    server.trick = trick
    clone = there.clone(server.url.replace("//", "//ann:secret@") + "/trades?token=hidden")
    assert sent["/trades/refs/head?token=hidden"] == "Basic YW5uOnNlY3JldA=="
    assert {value for path, value in sent.items() if "other" in path} == {None}
    assert clone.origin.url == f"{server.url}/trades"
    assert b"secret" not in there._location.read_origin("trades")


@pytest.mark.parametrize("url", ["http://", "https:///x", "http://host:port/x", "http://[x/"])
def test_what_is_no_address_is_refused(there, url):
    with pytest.raises(InputError):
        there.clone(url, "x")


def test_an_address_is_shown_without_secrets():
    assert shown("https://ann:pw@Example.org/a/b/?token=x#y") == "https://example.org/a/b"


def test_a_proxy_of_the_environment_is_used(there, server, url, monkeypatch):
    host = server.url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://{host}")
    monkeypatch.setenv("no_proxy", "")
    asked: list[str] = []

    def as_proxy(handler) -> bool:
        asked.append(handler.path)
        handler.path = handler.path.removeprefix("http://data.example")
        return False

    server.trick = as_proxy
    there.clone("http://data.example/trades")
    assert asked
    assert all(path.startswith("http://data.example/trades/") for path in asked)


def test_an_object_that_breaks_goes_on_where_it_broke(source, there, server, url):
    name = source.chain.block(source.head).data_event.new_data.physical_hash
    body = (Path(source.chain.store.location) / "data" / name).read_bytes()
    asked: list[str | None] = []

    def breaking(handler) -> bool:
        asked.append(handler.headers.get("Range"))
        if asked[-1] is None:
            handler.answer(200, body[:100], Content_Length=str(len(body)))
        else:
            handler.answer(206, body[100:], Content_Range=f"bytes 100-{len(body) - 1}/{len(body)}")
        handler.close_connection = True
        return True

    server.trick = on(f"/data/{name}", breaking)
    there.clone(url)
    assert asked == [None, "bytes=100-"]
    assert there.verify().ok
