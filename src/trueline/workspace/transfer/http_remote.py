"""A dataset behind a static file server: GET refs/head, blocks/…, data/…, checkpoints/…"""

from __future__ import annotations

import base64
import http.client
import queue
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from trueline.chain.store import Folder, object_missing
from trueline.errors import CorruptionError, InputError, StoreError
from trueline.identity.multihash import Multihash
from trueline.workspace.transfer.remote import Interrupted

_CHUNK: Final = 1 << 20
_REF_BYTES: Final = 4096
_REDIRECTS: Final = 5
_ATTEMPTS: Final = 4
_LONGEST_PAUSE: Final = 30.0
_IDLE: Final = 16
_MOVED: Final = {301, 302, 303, 307, 308}
_LATER: Final = {408, 425, 429, 500, 502, 503, 504}
_ABSENT: Final = {404, 410}
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


def pause(seconds: float) -> None:
    """Wait before a request is sent again."""
    time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response whose body has not been read, and the connection it comes over."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    url: SplitResult


class HttpRemote:
    """Reads over HTTP(S), keeping connections open.

    Redirects are followed to HTTP(S) only, never from HTTPS to HTTP; the
    credentials of the address go to its own host only and are not part of
    `location`.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 60.0) -> None:
        self._base = _parsed(url)
        self.location = shown(url)
        self._timeout = timeout
        self._headers = {**_authorization(self._base), **(headers or {})}
        self._idle: dict[tuple[str, str], queue.LifoQueue[http.client.HTTPConnection]] = {}

    # --- reading ------------------------------------------------------------

    def head(self) -> Multihash | None:
        with self._get("refs/head") as answer:
            if answer is None:
                return None
            text = self._body(answer, _REF_BYTES, "refs/head", may_be_page=True)
        try:
            return Multihash(text.decode("ascii").strip())
        except ValueError:
            raise InputError(
                f"there is no dataset at {self.location}: its refs/head begins with {text[:40]!r}",
                remedy="give the address of the folder that holds blocks/, data/ and refs/",
                code="NotADataset",
                location=self.location,
            ) from None

    def get(self, folder: Folder, name: Multihash, limit: int) -> bytes:
        for attempt in range(_ATTEMPTS):
            try:
                with self._get(f"{folder}/{name}") as answer:
                    if answer is None:
                        raise object_missing(folder, name, self.location)
                    return self._body(answer, limit, f"{folder}/{name}")
            except Interrupted:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def chunks(self, folder: Folder, name: Multihash) -> Iterator[Iterator[bytes]]:
        with self._get(f"{folder}/{name}") as answer:
            if answer is None:
                raise object_missing(folder, name, self.location)
            yield self._pieces(answer, f"{folder}/{name}")

    def names(self) -> Iterator[Multihash] | None:
        return None

    def close(self) -> None:
        for idle in self._idle.values():
            with suppress(queue.Empty):
                while True:
                    idle.get_nowait().close()

    def _body(self, answer: _Answer, limit: int, path: str, *, may_be_page: bool = False) -> bytes:
        pieces: list[bytes] = []
        size = 0
        for piece in self._pieces(answer, path, may_be_page=may_be_page):
            size += len(piece)
            if size > limit:
                raise CorruptionError(
                    f"{self.location}/{path} is not what its name says: more than {limit:,} bytes",
                    remedy="the source is damaged: verify it there, or take another copy",
                    path=f"{self.location}/{path}",
                )
            pieces.append(piece)
        return b"".join(pieces)

    def _pieces(self, answer: _Answer, path: str, *, may_be_page: bool = False) -> Iterator[bytes]:
        kind = answer.response.headers.get_content_type()
        if kind == "text/html" and not may_be_page:
            raise CorruptionError(
                f"{self.location}/{path} answers with a web page",
                remedy="give the address of the files themselves, served as they are",
                path=f"{self.location}/{path}",
            )
        coding = answer.response.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            raise CorruptionError(
                f"{self.location}/{path} comes as {coding}, though it was asked for as it is",
                remedy="switch compression off at the server",
                path=f"{self.location}/{path}",
            )
        try:
            while piece := answer.response.read(_CHUNK):
                yield piece
        except (http.client.HTTPException, OSError) as error:
            raise self._failed(path, error, Interrupted) from error
        if answer.response.length:
            missing = f"{answer.response.length:,} bytes are missing at its end"
            raise self._failed(path, missing, Interrupted)

    # --- requests -----------------------------------------------------------

    @contextmanager
    def _get(self, path: str) -> Iterator[_Answer | None]:
        """Ask for a file; None if it is not there. What is left of the body is thrown away."""
        answer = self._asked(path)
        try:
            status = answer.response.status
            if status in _ABSENT:
                yield None
            elif status == http.HTTPStatus.OK:
                yield answer
            else:
                raise self._refused(path, answer)
        finally:
            self._give_back(answer)

    def _asked(self, path: str) -> _Answer:
        """Send a request, again where that may help."""
        error: Exception | None = None
        wait = 0.0
        for attempt in range(_ATTEMPTS):
            if attempt:
                pause(wait)
            wait = min(0.2 * 2**attempt, _LONGEST_PAUSE)
            try:
                answer = self._followed(self._url(path))
            except (http.client.HTTPException, OSError) as failed:
                if isinstance(failed, http.client.InvalidURL | ssl.SSLCertVerificationError):
                    raise InputError(
                        f"cannot ask {self.location}: {failed}", remedy="check the address and its host"
                    ) from failed
                error = failed
                continue
            if answer.response.status not in _LATER or attempt == _ATTEMPTS - 1:
                return answer
            wait = max(wait, _asked_to_wait(answer.response))
            self._give_back(answer)
        raise self._failed(path, error, StoreError)

    def _followed(self, url: SplitResult) -> _Answer:
        for _ in range(_REDIRECTS + 1):
            answer = self._sent(url)
            location = answer.response.headers.get("Location")
            if answer.response.status not in _MOVED or location is None:
                return answer
            self._give_back(answer)
            there = urlsplit(urljoin(urlunsplit(url), location))
            if there.scheme not in ("http", "https") or (url.scheme == "https" and there.scheme == "http"):
                raise InputError(
                    f"{self.location} leads on to a {there.scheme}: address",
                    remedy="only http and https are followed, and never from https to http",
                    code="BadRedirect",
                    location=self.location,
                )
            url = there
        raise InputError(
            f"{self.location} leads on more than {_REDIRECTS} times",
            remedy="give the address it leads to in the end",
            code="BadRedirect",
            location=self.location,
        )

    def _sent(self, url: SplitResult) -> _Answer:
        """Send one request; a connection that was kept may have been closed by the server meanwhile."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "trueline"}
        if (url.scheme, _host(url)) == (self._base.scheme, _host(self._base)):
            headers |= self._headers
        while True:
            connection, is_new = self._connection(url)
            proxied = isinstance(connection, _ThroughProxy)
            whole = (url.scheme, _host(url)) if proxied else ("", "")
            target = urlunsplit((*whole, url.path or "/", url.query, ""))
            try:
                connection.request("GET", target, headers=headers)
                _acknowledge_at_once(connection)
                return _Answer(connection, connection.getresponse(), url)
            except (http.client.HTTPException, OSError):
                connection.close()
                if is_new:
                    raise

    def _connection(self, url: SplitResult) -> tuple[http.client.HTTPConnection, bool]:
        idle = self._idle.setdefault((url.scheme, _host(url)), queue.LifoQueue(_IDLE))
        with suppress(queue.Empty):
            return idle.get_nowait(), False
        return _connected(url, self._timeout), True

    def _give_back(self, answer: _Answer) -> None:
        """Keep a connection for the next request, if the body was read to its end."""
        if not answer.response.isclosed() or answer.response.will_close:
            answer.connection.close()
            return
        with suppress(queue.Full):
            self._idle[answer.url.scheme, _host(answer.url)].put_nowait(answer.connection)
            return
        answer.connection.close()

    def _url(self, path: str) -> SplitResult:
        base = self._base
        return base._replace(path=f"{base.path.rstrip('/')}/{path}")

    # --- errors -------------------------------------------------------------

    def _refused(self, path: str, answer: _Answer) -> Exception:
        status, reason = answer.response.status, answer.response.reason
        problem = f"{self.location}/{path} answers {status} {reason}"
        if status in _LATER:
            return StoreError(problem, remedy="try again later", path=path)
        return InputError(
            problem, remedy="check the address and the right to read it", code="NotAllowed", status=status
        )

    def _failed(self, path: str, error: Exception | str | None, kind: type[StoreError]) -> StoreError:
        return kind(
            f"cannot read {self.location}/{path}: {error}",
            remedy="check the connection, then try again: what has arrived is kept",
            path=f"{self.location}/{path}",
        )


def shown(url: str) -> str:
    """Return an address without credentials, query and fragment.

    >>> shown("https://ann:secret@example.org/lake/trades/?token=x#top")
    'https://example.org/lake/trades'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), _host(parts), parts.path.rstrip("/"), "", ""))


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise InputError(f"{url!r} is no address", remedy="give one like https://host/path", code="BadUrl")
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~")
    return parts._replace(scheme=parts.scheme.lower(), path=path, fragment="")


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2].lower()


def _authorization(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _connected(url: SplitResult, timeout: float) -> http.client.HTTPConnection:
    """Return a connection to a host, through the proxy of the environment where there is one."""
    assert url.hostname
    proxy = None if proxy_bypass(url.hostname) else getproxies().get(url.scheme)
    if proxy is None:
        if url.scheme == "https":
            return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout)
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if url.scheme == "https":
        secure = http.client.HTTPSConnection(through.hostname or "", through.port, timeout=timeout)
        secure.set_tunnel(url.hostname, url.port)
        return secure
    return _ThroughProxy(through.hostname or "", through.port, timeout=timeout)


def _acknowledge_at_once(connection: http.client.HTTPConnection) -> None:
    """Do not keep a server waiting that sends headers and body apart.

    Until the headers are acknowledged it holds the body back, and the system
    acknowledges 40 ms late: 15.7 s for 600 small objects instead of 1.1 s.
    """
    if _QUICKACK is not None:
        with suppress(OSError):
            connection.sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


class _ThroughProxy(http.client.HTTPConnection):
    """A connection to a proxy: its requests name the whole address."""


def _asked_to_wait(response: http.client.HTTPResponse) -> float:
    """Return the seconds a server asks for, within reason."""
    try:
        return min(max(float(response.headers.get("Retry-After", "0")), 0.0), _LONGEST_PAUSE)
    except ValueError:
        return 0.0
