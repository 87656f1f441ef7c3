"""The one reader of HTTP: proxies that want a password, tunnels, and servers that never begin to answer."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trueline.errors import InputError, StoreError, TruelineError
from trueline.workspace import http
from trueline.workspace.http import HttpReader

ANN = "Basic " + base64.b64encode(b"ann:p@ss").decode()
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
WANTED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setattr(http, "pause", lambda _: None)
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answer each connection in a thread of its own; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def head(connection: socket.socket) -> list[str]:
    """Read a request up to its empty line."""
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        if not (more := connection.recv(1)):
            break
        text += more
    return text.decode("latin-1").split("\r\n")


def copied(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(4096):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


class Proxy:
    """A proxy that wants a password; what it was asked, and by whom."""

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.asked: list[tuple[str, str | None]] = []

    def __call__(self, connection: socket.socket) -> None:
        request, *headers = head(connection)
        sent = {name.lower(): value for name, _, value in (line.partition(": ") for line in headers)}
        assert "authorization" not in sent
        self.asked.append((request, sent.get("proxy-authorization")))
        if self.asked[-1][1] != ANN:
            connection.sendall(WANTED)
        elif request.startswith("CONNECT"):
            with socket.create_connection(("127.0.0.1", self.target)) as there:
                connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=copied, args=(there, connection), daemon=True)
                back.start()
                copied(connection, there)
                back.join()
        else:
            connection.sendall(BODY)


def body_of(url: str) -> bytes:
    reader = HttpReader(url)
    with closing(reader), reader.get(name=url) as answer:
        if answer.status != 200:
            raise http.refused(answer)
        return b"".join(reader.pieces(answer))


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
def test_a_proxy_gets_the_user_and_the_password_of_its_address(monkeypatch, name):
    proxy = Proxy()
    with listening(proxy) as port:
        monkeypatch.setenv(name, f"http://ann:p%40ss@127.0.0.1:{port}")
        assert body_of("http://data.example/a.csv?x=1") == b"hello"
    assert proxy.asked == [("GET http://data.example/a.csv?x=1 HTTP/1.1", ANN)]


def test_a_proxy_that_refuses_is_reported_without_the_password(monkeypatch):
    proxy = Proxy()
    with listening(proxy) as port:
        monkeypatch.setenv("http_proxy", f"http://ann:wrong@127.0.0.1:{port}")
        monkeypatch.setenv("https_proxy", f"http://ann:wrong@127.0.0.1:{port}")
        for url in ("http://data.example/a.csv", "https://data.example/a.csv"):
            with pytest.raises(InputError, match="407") as refused:
                body_of(url)
            assert "wrong" not in str(refused.value)
    assert len(proxy.asked) == 2, "asking again does not help"


@pytest.mark.parametrize("proxy", ["socks9://127.0.0.1:1", "http://127.0.0.1:port"])
def test_a_proxy_that_cannot_be_used_is_refused(monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(InputError) as refused:
        body_of("http://data.example/a.csv")
    assert refused.value.code == "BadProxy"
    assert "http_proxy" in refused.value.remedy


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of data.example and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "data.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("data.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def test_https_goes_through_a_tunnel_of_the_proxy(monkeypatch, certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    asked: list[str] = []

    def secure(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            asked.append(head(encrypted)[0])
            encrypted.sendall(BODY)

    with listening(secure) as target:
        proxy = Proxy(target)
        with listening(proxy) as port:
            monkeypatch.setenv("https_proxy", f"http://ann:p%40ss@127.0.0.1:{port}")
            with pytest.raises(InputError, match="certificate"):
                body_of("https://data.example/a.csv")
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert body_of("https://data.example/a.csv") == b"hello"
            with pytest.raises(InputError, match="certificate"):
                body_of("https://other.example/a.csv")
    assert asked == ["GET /a.csv HTTP/1.1"]
    assert {user for _, user in proxy.asked} == {ANN}
    assert proxy.asked[0][0] == "CONNECT data.example:443 HTTP/1.1"


@pytest.mark.contract("guard:G10")
@pytest.mark.parametrize("again", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Soon\r\nX: y\r\n\r\n"])
def test_a_server_that_always_says_it_will_answer_is_left(again):
    """It goes on for as long as anyone listens."""
    sent: list[int] = []

    def soon(connection: socket.socket) -> None:
        head(connection)
        sent.append(0)
        while True:
            sent[-1] += connection.send(again * 1000)

    with listening(soon) as port, pytest.raises(StoreError, match="no answer begins"):
        body_of(f"http://127.0.0.1:{port}/a.csv")
    assert len(sent) == 4
    assert max(sent) < 64 << 20, "what fits into the buffers of the system, and no more"


def test_a_kept_connection_has_no_cookies(tmp_path):
    """Two requests over one connection: the second repeats nothing that the server said."""
    requests: list[list[str]] = []

    def answering(connection: socket.socket) -> None:
        for _ in range(2):
            requests.append(head(connection))
            connection.sendall(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 1\r\n\r\nx")

    with listening(answering) as port:
        reader = HttpReader(f"http://127.0.0.1:{port}/lake")
        with closing(reader):
            for path in ("one", "two"):
                with reader.get(path, name=path) as answer:
                    assert b"".join(reader.pieces(answer)) == b"x"
    assert [lines[0] for lines in requests] == ["GET /lake/one HTTP/1.1", "GET /lake/two HTTP/1.1"]
    assert requests[0][1:] == requests[1][1:]
    assert "accept-encoding: identity" in [line.lower() for line in requests[0]]


def test_an_error_of_a_connection_is_typed_whatever_it_is():
    with listening(lambda connection: connection.close()) as port, pytest.raises(TruelineError):
        body_of(f"http://127.0.0.1:{port}/a.csv")
