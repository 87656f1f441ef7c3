"""Fetching by HTTP: whole or not at all, bounded, and only what changed."""

from __future__ import annotations

import gzip
import socket

import pytest

from trueline.chain.events import SourceState
from trueline.chain.store.scratch import MemoryScratch
from trueline.errors import BrokenFile, InputError, StoreError
from trueline.workspace import http
from trueline.workspace.http import HttpLimits
from trueline.workspace.pull.fetch import ETAG, LAST_MODIFIED, fetch

BODY = b"id,price\n1,9.5\n"
WHEN = "Fri, 13 Nov 2026 09:30:00 GMT"


def get(url, **options):
    found = fetch(url, MemoryScratch(), source_name="default", **options)
    return None if found is None else (found.source.open().read(), found.state)


def raw(*lines, body=b""):
    """Answer with these very bytes, then hang up."""

    def send(handler):
        handler.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)

    return send


def test_a_file_comes_whole_with_what_its_server_calls_it(server):
    url = server.serve("/a.csv", BODY, etag='"v1"', last_modified=WHEN)
    assert get(url) == (BODY, SourceState("default", ETAG, '"v1"'))
    url = server.serve("/b.csv", BODY, last_modified=WHEN)
    assert get(url) == (BODY, SourceState("default", LAST_MODIFIED, "2026-11-13T09:30:00Z"))
    assert get(server.serve("/c.csv", BODY)) == (BODY, None)


def test_an_address_may_be_written_as_people_read_it(server):
    server.serve("/z%C3%BCrich%20west.csv?day=1", BODY)
    assert get(f"{server.url}/zürich%20west.csv?day=1#part")[0] == BODY


@pytest.mark.parametrize(
    ("how", "header", "sent"),
    [
        ({"etag": '"v1"'}, "if-none-match", '"v1"'),
        ({"etag": 'W/"weak"'}, "if-none-match", 'W/"weak"'),
        ({"last_modified": WHEN}, "if-modified-since", WHEN),
    ],
)
def test_a_known_version_is_not_sent_again(server, how, header, sent):
    url = server.serve("/a.csv", BODY, **how)
    _, state = get(url)
    assert get(url, known=state) is None
    assert server.asked[-1][1][header] == sent


@pytest.mark.parametrize(
    "state", [("odf/etag", 'x"\r\nEvil: 1'), ("odf/last-modified", "yesterday"), ("other/kind", "1")]
)
def test_a_state_that_makes_no_sense_is_not_sent(server, state):
    url = server.serve("/a.csv", BODY)
    assert get(url, known=SourceState("default", *state))[0] == BODY
    assert not {"if-none-match", "if-modified-since", "evil"} & set(server.asked[-1][1])


def test_an_answer_that_nothing_changed_though_nobody_asked_is_an_error(server):
    with pytest.raises(InputError, match="304"):
        get(server.serve("/a.csv", status=304))


@pytest.mark.parametrize("tag", ["é", "x" * 2000, "a\tb"])
def test_a_hostile_tag_is_not_kept(server, tag):
    send = raw("HTTP/1.1 200 OK", f"Content-Length: {len(BODY)}", f"ETag: {tag}", body=BODY)
    assert get(server.serve("/a.csv", send=send)) == (BODY, None)


def test_half_a_body_is_an_error(server):
    send = raw("HTTP/1.1 200 OK", "Content-Length: 1000", body=BODY)
    with pytest.raises(StoreError, match=r"15 of 1,000 bytes"):
        get(server.serve("/a.csv", send=send))


def test_half_a_chunked_body_is_an_error(server):
    whole = b"f\r\n" + BODY + b"\r\n0\r\n\r\n"
    lines = ("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")
    assert get(server.serve("/a.csv", send=raw(*lines, body=whole)))[0] == BODY
    for cut in (1, 4, len(whole) - 6):
        with pytest.raises(StoreError):
            get(server.serve("/a.csv", send=raw(*lines, body=whole[:cut])))


def test_a_body_of_unknown_length_is_refused_for_half_of_it_would_look_whole(server):
    with pytest.raises(InputError) as refused:
        get(server.serve("/a.csv", send=raw("HTTP/1.0 200 OK", body=BODY)))
    assert refused.value.code == "NoLength"


def test_a_file_that_is_too_large_is_refused_before_it_is_read_or_while(server):
    url = server.serve("/a.csv", b"x" * 5000)
    with pytest.raises(InputError, match="100 bytes"):
        get(url, limits=HttpLimits(bytes=100))
    chunks = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
    send = raw("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", body=chunks * 50)
    with pytest.raises(InputError) as refused:
        get(server.serve("/b.csv", send=send), limits=HttpLimits(bytes=2000))
    assert refused.value.code == "TooLarge"


def test_gzip_that_was_added_on_the_way_is_undone(server):
    packed = gzip.compress(BODY) + gzip.compress(b"2,7\n")
    url = server.serve("/a.csv", packed, headers={"Content-Encoding": "gzip"})
    assert get(url)[0] == BODY + b"2,7\n"
    assert server.asked[-1][1]["accept-encoding"] == "identity"


@pytest.mark.parametrize("packed", [gzip.compress(BODY)[:-9], b"no gzip at all"])
def test_broken_gzip_is_an_error(server, packed):
    with pytest.raises(BrokenFile):
        get(server.serve("/a.csv", packed, headers={"Content-Encoding": "gzip"}))


def test_a_gzip_bomb_is_bounded(server):
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(InputError) as refused:
        get(
            server.serve("/a.csv", bomb, headers={"Content-Encoding": "gzip"}),
            limits=HttpLimits(bytes=1 << 20),
        )
    assert refused.value.code == "TooLarge"


def test_gzip_is_unpacked_a_piece_at_a_time(server):
    sizes = []

    class Watched(MemoryScratch):
        def create(self, name):
            file = super().create(name)
            write = file.write
            file.write = lambda piece: (sizes.append(len(piece)), write(piece))[1]
            return file

    url = server.serve("/a.csv", gzip.compress(b"\0" * 20_000_000), headers={"Content-Encoding": "gzip"})
    found = fetch(url, Watched(), source_name="default")
    assert (found.source.size, max(sizes) <= 1 << 20) == (20_000_000, True)


def test_gzip_that_unpacks_to_nothing_is_bounded_too(server):
    empty = gzip.compress(b"") * 100
    chunks = f"{len(empty):x}\r\n".encode() + empty + b"\r\n"
    lines = ("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Encoding: gzip")
    with pytest.raises(InputError) as refused:
        get(server.serve("/a.csv", send=raw(*lines, body=chunks * 10)), limits=HttpLimits(bytes=5000))
    assert refused.value.code == "TooLarge"


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_gzip_of_any_size_comes_whole(server, size):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    url = server.serve("/a.csv", gzip.compress(body, 0), headers={"Content-Encoding": "gzip"})
    assert get(url)[0] == body


def test_a_file_that_is_gzip_itself_stays_as_it_is(server):
    packed = gzip.compress(BODY)
    assert get(server.serve("/a.csv.gz", packed))[0] == packed


@pytest.mark.parametrize(
    "headers", [{"Content-Encoding": "br"}, {"Content-Type": "text/html; charset=utf-8"}]
)
def test_what_is_no_file_is_refused(server, headers):
    with pytest.raises(InputError) as refused:
        get(server.serve("/a.csv", b"<html>", headers=headers))
    assert refused.value.code == "NotAFile"


def test_a_part_of_a_file_is_refused(server):
    with pytest.raises(InputError, match="206"):
        get(server.serve("/a.csv", BODY, status=206))


def test_redirects_are_followed_a_few_times(server):
    server.serve("/real.csv", BODY, etag='"r"')
    url = server.serve("/a.csv", status=302, headers={"Location": "/real.csv"})
    assert get(url) == (BODY, SourceState("default", ETAG, '"r"'))
    with pytest.raises(InputError):
        get(server.serve("/loop", status=302, headers={"Location": "/loop"}))
    assert len(server.asked) < 15


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:,x"])
def test_a_redirect_out_of_the_web_is_refused(server, target):
    with pytest.raises(InputError) as refused:
        get(server.serve("/a.csv", status=302, headers={"Location": target}))
    assert refused.value.code == "BadRedirect"


def test_headers_of_the_source_are_sent_but_secrets_go_to_no_other_host(server):
    other = server.url.replace("127.0.0.1", "localhost")
    server.serve("/real.csv", BODY)
    url = server.serve("/a.csv", status=302, headers={"Location": f"{other}/real.csv"})
    get(url, headers={"Authorization": "Bearer x", "X-Kind": "y"})
    sent = dict(server.asked)
    assert (sent["/a.csv"]["authorization"], sent["/a.csv"]["x-kind"]) == ("Bearer x", "y")
    assert "authorization" not in sent["/real.csv"]


@pytest.mark.parametrize(("status", "kind"), [(404, InputError), (403, InputError), (503, StoreError)])
def test_a_refusal_says_whether_trying_again_may_help(server, status, kind):
    with pytest.raises(kind, match=str(status)):
        get(server.serve("/a.csv", b"no", status=status))


def test_a_server_that_is_not_there_is_an_error_to_retry(monkeypatch):
    monkeypatch.setattr(http, "pause", lambda _: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StoreError, match="cannot read"):
        get(f"http://127.0.0.1:{port}/a.csv")


def test_a_server_that_says_nothing_is_left(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.csv"
        with pytest.raises(StoreError, match="timed out"):
            get(url, limits=HttpLimits(silence=0.05))


def test_a_server_that_never_ends_is_left(server):
    send = raw("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", body=b"1\r\nx\r\n" * 100)
    with pytest.raises(StoreError, match="not done after"):
        get(server.serve("/a.csv", send=send), limits=HttpLimits(longest=-1))


# --- going on ----------------------------------------------------------------------------


def breaking(body, versions, *, every=1000):
    """Hang up after some bytes of each answer; parts are sent as asked for, of the version there is then."""
    coming = iter(versions)

    def send(handler):
        tag = next(coming)
        asked = handler.headers.get("Range")
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        same = handler.headers.get("If-Range") in (None, tag)
        part = asked is not None and same
        first = first if part else 0
        lines = ["HTTP/1.1 206 Part" if part else "HTTP/1.1 200 OK", f"ETag: {tag}"]
        lines += [f"Content-Range: bytes {first}-{len(body) - 1}/{len(body)}"] if part else []
        lines += [f"Content-Length: {len(body) - first}"]
        raw(*lines, body=body[first : first + every])(handler)

    return send


def test_a_body_that_breaks_goes_on_where_it_broke(server):
    body = bytes(range(256)) * 20
    url = server.serve("/a.csv", send=breaking(body, ['"v1"'] * 6))
    assert get(url)[0] == body
    asked = [headers.get("range") for _, headers in server.asked]
    assert asked == [None, *(f"bytes={n}-" for n in range(1000, 5001, 1000))]
    assert {headers.get("if-range") for _, headers in server.asked[1:]} == {'"v1"'}


def test_halves_of_two_versions_do_not_become_one_file(server):
    url = server.serve("/a.csv", send=breaking(b"x" * 2000, ['"v1"', '"v2"']))
    with pytest.raises(StoreError, match=r"1,000 of 2,000 bytes"):
        get(url)
    url = server.serve("/b.csv", send=breaking(b"x" * 2000, ['W/"v1"'] * 2))
    with pytest.raises(StoreError, match=r"1,000 of 2,000 bytes"):
        get(url)
    assert len(server.asked) == 3, "a weak tag does not say that the bytes are the same"


@pytest.mark.parametrize("answered", ["bytes 999-1999/2000", "bytes 1000-1999/3000", "pages 1-2/3", ""])
def test_a_part_that_was_not_asked_for_is_refused(server, answered):
    def send(handler):
        if handler.headers.get("Range") is None:
            raw("HTTP/1.1 200 OK", 'ETag: "v"', "Content-Length: 2000", body=b"x" * 1000)(handler)
        else:
            lines = ("HTTP/1.1 206 Part", f"Content-Range: {answered}", "Content-Length: 1000")
            raw(*lines, body=b"y" * 1000)(handler)

    with pytest.raises(StoreError, match=r"1,000 of 2,000 bytes"):
        get(server.serve("/a.csv", send=send))


def test_a_server_that_breaks_without_end_is_left(server):
    url = server.serve("/a.csv", send=breaking(b"x" * 2000, ['"v1"'] * 100, every=0))
    with pytest.raises(StoreError, match=r"0 of 2,000 bytes"):
        get(url)
    assert len(server.asked) == 4
