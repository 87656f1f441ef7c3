"""A stranger's server leads us to services of this machine and its network, or answers absurdly."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import trueline as tl
from tests.workspace.pull.serving import Server, serving
from trueline.errors import InputError, PullError, TruelineError
from trueline.workspace import http
from trueline.workspace.addresses import Addresses, HostAddress, is_public
from trueline.workspace.http import HttpReader

pytestmark = pytest.mark.contract("guard:G10")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "pause", lambda seconds: None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    for name in ("http_proxy", "HTTP_PROXY", "TRUELINE_HTTP_ALLOW_PRIVATE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


class Inside:
    """A service of this machine that nobody outside can reach, and who asked it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []


@contextmanager
def inside(address: str) -> Iterator[Inside]:
    """Serve a secret at another address of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            body = b"key\nhunter2\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is told."""

    class Here(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with Here((address, 0), Handler) as http:
        shown = f"[{address}]" if ":" in address else address
        found = Inside(f"http://{shown}:{http.server_address[1]}")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            http.shutdown()
            thread.join()


def body_of(url: str, addresses: Addresses | None = None) -> bytes:
    reader = HttpReader(url, addresses=addresses)
    with closing(reader), reader.get(name=url) as answer:
        return b"".join(reader.pieces(answer))


# --- leading inside ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_a_service_of_this_machine_is_refused_before_it_is_asked(server, status):
    with inside("127.0.0.2") as service:
        url = server.serve("/a.csv", status=status, headers={"Location": f"{service.url}/latest/meta-data"})
        with pytest.raises(InputError, match="not a public address") as refused:
            body_of(url)
        assert service.asked == []
    assert refused.value.code == "BadRedirect"
    assert refused.value.address == "127.0.0.2"
    assert "http.allow_private" in refused.value.remedy


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://0.0.0.0:1/",
        "http://2130706434:1/",
        "http://0x7f000002:1/",
        "http://0177.0.0.2:1/",
        "http://127.2:1/",
        "http://[::ffff:127.0.0.2]:1/",
        "http://[::ffff:7f00:2]:1/",
        "http://[64:ff9b::7f00:2]:1/",
        "http://[fe80::1]:1/",
        "http://[fd00::1]:1/",
        "http://[2002:7f00:2::]:1/",
        "//127.0.0.2:1/",
    ],
)
def test_however_the_address_is_written(server, target):
    with pytest.raises(InputError, match="not a public address"):
        body_of(server.serve("/a.csv", status=302, headers={"Location": target}))


def test_a_dataset_is_not_cloned_and_a_source_not_pulled_from_inside(server, tmp_path):
    with inside("127.0.0.2") as service, tl.open(tmp_path / "ws", create=True) as ws:
        url = server.serve("/a.csv", status=302, headers={"Location": f"{service.url}/x"})
        server.serve("/ds/refs/head", status=302, headers={"Location": f"{service.url}/x"})
        ws.create("keys", source=url)
        with pytest.raises(PullError, match="not a public address"):
            ws.pull()
        with pytest.raises(InputError, match="not a public address"):
            ws.clone(f"{server.url}/ds")
        assert service.asked == []


def test_the_remedy_works(server, monkeypatch):
    with inside("127.0.0.2") as service:
        url = server.serve("/a.csv", status=302, headers={"Location": f"{service.url}/x"})
        from trueline.cli import main

        assert main(["config", "set", "--user", "http.allow_private", "true"]) == 0
        assert body_of(url) == b"key\nhunter2\n"
        monkeypatch.setenv("TRUELINE_HTTP_ALLOW_PRIVATE", "false")
        with pytest.raises(InputError, match="not a public address"):
            body_of(url)


def test_what_the_user_has_named_may_be_private_and_lead_to_itself(server):
    server.serve("/real.csv", b"x")
    assert body_of(server.serve("/a.csv", status=302, headers={"Location": "/real.csv"})) == b"x"
    other = server.url.replace("127.0.0.1", "localhost")
    assert body_of(server.serve("/b.csv", status=302, headers={"Location": f"{other}/real.csv"})) == b"x"


# --- names that change --------------------------------------------------------------------


def names(**known: list[str]) -> Callable[[str, int], list[HostAddress]]:
    """Look names up in a list: each time the next answer, the last one for ever."""

    def look_up(host: str, port: int) -> list[HostAddress]:
        answers = known[host.partition(".")[0]]
        text = answers.pop(0) if len(answers) > 1 else answers[0]
        return [HostAddress(socket.AF_INET, (each, port)) for each in text.split()]

    return look_up


def test_a_name_that_leads_inside_is_refused():
    addresses = Addresses("public.example", look_up=names(public=["93.184.216.34"], evil=["127.0.0.2"]))
    assert addresses.of("public.example", 80)
    with pytest.raises(InputError, match=r"evil\.example is at 127\.0\.0\.2"):
        addresses.of("evil.example", 80)


def test_a_name_that_leads_elsewhere_the_second_time_is_refused():
    addresses = Addresses("public.example", look_up=names(public=["93.184.216.34", "127.0.0.1"]))
    assert addresses.of("public.example", 80)
    with pytest.raises(InputError, match="not a public address"):
        addresses.of("public.example", 6379)


def test_only_addresses_that_were_looked_at_are_connected_to():
    addresses = Addresses("home.example", look_up=names(home=["10.1.1.1"], other=["127.0.0.2 93.184.216.34"]))
    assert [found.place for found in addresses.of("other.example", 80)] == [("93.184.216.34", 80)]


def test_a_connection_goes_where_the_check_has_looked_and_asks_no_name_again(server):
    server.serve("/a.csv", b"x")
    port = server.url.rpartition(":")[2]
    asked = []

    def look_up(host, port):
        asked.append(host)
        return [HostAddress(socket.AF_INET, ("127.0.0.1", port))]

    url = f"http://nowhere.invalid:{port}/a.csv"
    assert body_of(url, Addresses("nowhere.invalid", look_up=look_up)) == b"x"
    assert asked == ["nowhere.invalid"]


@pytest.mark.parametrize(
    "ip", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"]
)
def test_public_addresses_are_public(ip):
    assert is_public(ipaddress.ip_address(ip))


@pytest.mark.parametrize("host", ["127.0.0.2", "0x7f000002", "localhost", "x.localhost.", "169.254.169.254"])
def test_a_proxy_is_not_sent_inside_either(server, monkeypatch, host):
    """The proxy is the server itself: what is asked of it is what would have been fetched."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    server.serve("http://public.example/a.csv", status=302, headers={"Location": f"http://{host}/x"})
    with pytest.raises(InputError, match="not a public address"):
        body_of("http://public.example/a.csv")
    assert [path for path, _ in server.asked] == ["http://public.example/a.csv"]


# --- absurd answers -----------------------------------------------------------------------


def raw(text: bytes, *, times: int = 1) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer with bytes as they are, until whoever asked hangs up."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        try:
            for _ in range(times):
                handler.wfile.write(text)
        except OSError:
            return

    return send


OK = b"HTTP/1.1 200 OK\r\n"
ABSURD = {
    "an endless header": raw(OK + b"X: " + b"y" * 10_000_000),
    "thousands of headers": raw(OK + b"X: y\r\n" * 50_000 + b"\r\n"),
    "two lengths": raw(OK + b"Content-Length: 1\r\nContent-Length: 5\r\n\r\nhello"),
    "a length below nothing": raw(OK + b"Content-Length: -5\r\n\r\nhello"),
    "a length of thousands of digits": raw(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nhello"),
    "a length that is a word": raw(OK + b"Content-Length: five\r\n\r\nhello"),
    "a length that is a list": raw(OK + b"Content-Length: 5, 6\r\n\r\nhello"),
    "more than there is": raw(OK + b"Content-Length: 999999999999999999\r\n\r\nhello"),
    "chunks without end": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 5000 + b"\r\n"),
    "a chunk below nothing": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
    "always soon": raw(b"HTTP/1.1 100 Continue\r\n\r\n", times=1_000_000),
    "no status": raw(b"\x00\xff garbage\r\n\r\n"),
    "a status of a thousand digits": raw(b"HTTP/1.1 " + b"2" * 1000 + b" OK\r\n\r\n"),
    "nothing": raw(b""),
    "a redirect to a bracket": raw(
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1/\r\nContent-Length: 0\r\n\r\n"
    ),
    "a redirect to a port": raw(
        b"HTTP/1.1 302 Found\r\nLocation: http://h:999999/\r\nContent-Length: 0\r\n\r\n"
    ),
    "a redirect to nothing": raw(b"HTTP/1.1 302 Found\r\nLocation: http:///\r\nContent-Length: 0\r\n\r\n"),
    "a coding with escapes": raw(OK + b"Content-Encoding: \x1b[2J\r\nContent-Length: 1\r\n\r\nx"),
    "a type with a charset": raw(
        OK + b"Content-Type: text/csv; charset*=utf-9''%ff\r\nContent-Length: -1\r\n\r\n"
    ),
    "busy until never": raw(b"HTTP/1.1 503 Busy\r\nRetry-After: nan\r\nContent-Length: 0\r\n\r\n"),
    "busy for ever": raw(b"HTTP/1.1 503 Busy\r\nRetry-After: inf\r\nContent-Length: 0\r\n\r\n"),
    "a reason with escapes": raw(b"HTTP/1.1 404 \x1b[2J\x9b\rfake\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("how", ABSURD, ids=str)
@pytest.mark.parametrize("kind", ["source", "remote"])
def test_an_absurd_answer_is_a_typed_error_without_its_control_characters(server, tmp_path, how, kind):
    url = server.serve("/a.csv", send=ABSURD[how])
    server.serve("/ds/refs/head", send=ABSURD[how])
    with tl.open(tmp_path / "ws", create=True) as ws:
        if kind == "source":
            ws.create("x", source=url)
        with pytest.raises(TruelineError) as told:
            if kind == "source":
                ws.pull()
            else:
                ws.clone(f"{server.url}/ds")
    assert told.value.remedy
    assert not set(str(told.value)) & {"\x1b", "\x9b", "\r"}
    assert len(str(told.value)) < 2000


def test_a_pause_that_is_not_a_number_is_not_waited_for(server, monkeypatch):
    waited = []
    monkeypatch.setattr(http, "pause", waited.append)
    with pytest.raises(TruelineError):
        fetched = HttpReader(server.serve("/a", send=ABSURD["busy until never"]))
        with fetched.get(name="a") as answer:
            raise http.refused(answer)
    assert waited
    assert all(0 <= seconds <= 30 for seconds in waited)


def test_a_range_of_thousands_of_digits_is_not_read(server):
    """The rest of a body that broke off comes with a place that cannot be."""
    asked = []

    def send(handler):
        asked.append(handler.headers.get("Range"))
        if len(asked) == 1:
            handler.wfile.write(OK + b'ETag: "a"\r\nContent-Length: 10\r\n\r\nhello')
        else:
            digits = b"9" * 5000
            handler.wfile.write(
                b"HTTP/1.1 206 Part\r\nContent-Range: bytes "
                + digits
                + b"-9/"
                + digits
                + b"\r\nContent-Length: 5\r\n\r\nworld"
            )

    with pytest.raises(TruelineError, match="5 of 10 bytes"):
        body_of(server.serve("/a", send=send))
    assert asked[1] == "bytes=5-"


def test_an_encrypted_connection_goes_to_the_checked_address_and_wants_the_name(server):
    """The server does not speak TLS: that it fails there shows that it was tried there."""
    port = server.url.rpartition(":")[2]
    addresses = Addresses(
        "nowhere.invalid", look_up=lambda host, port: [HostAddress(socket.AF_INET, ("127.0.0.1", port))]
    )
    with pytest.raises(TruelineError, match="SSL"):
        body_of(f"https://nowhere.invalid:{port}/a.csv", addresses)
