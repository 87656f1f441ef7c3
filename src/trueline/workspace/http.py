"""Reading over HTTP(S) with httpx: limits, time-outs, redirects, checked addresses, and bodies that go on.

The one reader for sources that are polled and for datasets that are cloned. Requests go to httpx's transport
itself: a client would keep cookies, and log addresses with the keys that are in them.
"""

from __future__ import annotations

import base64
import math
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from trueline.credentials import masked, masked_text
from trueline.errors import InputError, StoreError, visible
from trueline.workspace.addresses import Addresses, CheckedBackend, CheckedStream
from trueline.workspace.user_config import UserConfig

if TYPE_CHECKING:
    import httpx

MAX_BYTES: Final = 16 << 30
# Seconds: of silence, and of a whole download.
SILENCE: Final = 60.0
LONGEST: Final = 6 * 3600.0
CHUNK: Final = 1 << 20
LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_REDIRECTS: Final = 5
_ATTEMPTS: Final = 4
_LONGEST_PAUSE: Final = 30.0
_IDLE: Final = 16
_OF_A_PATH: Final = "/%:@!$&'()*+,;=~"
_OF_A_QUERY: Final = "%/:?[]@!$&'()*+,;=~-._"
# No size has more digits; numbers of thousands of them are not even read.
_SIZE: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})")
_REASON: Final = 200


def pause(seconds: float) -> None:
    """Wait before a request is sent again."""
    time.sleep(seconds)


class Interrupted(StoreError):
    """A source stopped in the middle of an object; asking again may help."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How much a server may send, how long it may be silent, and how long it may take."""

    bytes: int = MAX_BYTES
    silence: float = SILENCE
    longest: float = LONGEST


@dataclass(slots=True)
class Answer:
    """A response whose body has not been read, and what was asked for."""

    response: httpx.Response
    url: SplitResult
    name: str

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self.response.headers

    @property
    def content_type(self) -> str:
        """What kind of body it is, without its parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def size(self) -> int | None:
        """How long the body is; None if it comes in chunks or ends with the connection."""
        length = self.headers.get("Content-Length", "").strip()
        return int(length) if _SIZE.fullmatch(length) and not self.is_chunked else None

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def body(self) -> Iterator[bytes]:
        """Yield what comes, as it comes: one piece is one wait, so that limits of time are looked at."""
        return self.response.iter_raw()


class HttpReader:
    """Reads from one host, and from those it redirects to.

    Redirects are followed to HTTP(S) only, never from HTTPS to HTTP, and to
    private addresses only where the user's setting `http.allow_private` says
    so; `headers` and the credentials of the address go to its own host only.
    """

    def __init__(
        self,
        home: str,
        *,
        headers: Mapping[str, str] | None = None,
        limits: HttpLimits | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        self.home = parsed(home)
        assert self.home.hostname
        self._addresses = addresses or Addresses(
            self.home.hostname, allow_private=UserConfig().value("http.allow_private")
        )
        self.limits = limits if limits is not None else HttpLimits()
        self._headers = {**_authorization(self.home), **(headers or {})}
        self._transports: dict[tuple[str, str | None], httpx.HTTPTransport] = {}
        self._making = threading.Lock()

    @contextmanager
    def get(self, path: str = "", *, name: str) -> Iterator[Answer]:
        """Ask for the address, or for a path below it; `name` is what people call it.

        What is left of the body is thrown away.
        """
        home = self.home
        url = home._replace(path=f"{home.path.rstrip('/')}/{path}") if path else home
        answer = self._asked(url, name)
        try:
            yield answer
        finally:
            self._give_back(answer)

    def pieces(self, answer: Answer, *, unchanging: bool = False) -> Iterator[bytes]:
        """Yield a body in pieces; a body that is not whole raises `Interrupted`.

        Where a connection breaks it goes on from there, if the server says
        that it still has the same version, or if the object is `unchanging`.
        """
        total, received, tries = answer.size, 0, 0
        until = time.monotonic() + self.limits.longest
        while True:
            problem: Exception | str | None = None
            try:
                for piece in answer.body():
                    received, tries = received + len(piece), 0
                    if received > self.limits.bytes:
                        raise too_large(answer.name, self.limits.bytes)
                    if time.monotonic() > until:
                        raise self._failed(answer.name, f"not done after {self.limits.longest:,.0f} s")
                    yield piece
            except _failures() as error:
                if isinstance(error, StoreError):
                    raise
                problem = error
            if problem is None and (total is None or received == total):
                return
            if total is not None and _is_end(problem):
                problem = f"{received:,} of {total:,} bytes arrived"
            tries += 1
            following = self._following(answer, received, total, unchanging) if tries < _ATTEMPTS else None
            if following is None:
                raise self._failed(answer.name, problem, Interrupted)
            total = following

    def close(self) -> None:
        """Close the connections that were kept."""
        with self._making:
            transports, self._transports = self._transports, {}
        for transport in transports.values():
            transport.close()

    # --- going on -------------------------------------------------------------

    def _following(self, answer: Answer, received: int, total: int | None, unchanging: bool) -> int | None:
        """Ask for the rest of a body; returns the size of the whole, None if the server does not give it."""
        version = _version(answer.headers)
        if (version is None and not unchanging) or answer.headers.get("Accept-Ranges", "") == "none":
            return None
        asked = {"Range": f"bytes={received}-"} | ({"If-Range": version} if version is not None else {})
        answer.response.close()
        try:
            rest = self._asked(answer.url, answer.name, asked)
        except (InputError, StoreError):
            return None
        answer.response, answer.url = rest.response, rest.url
        found = _RANGE.fullmatch(rest.headers.get("Content-Range", ""))
        fits = rest.status == HTTPStatus.PARTIAL_CONTENT and found is not None
        if not fits or found is None or int(found[1]) != received or total not in (None, int(found[2])):
            return None
        return int(found[2])

    # --- requests -------------------------------------------------------------

    def _asked(self, url: SplitResult, name: str, more: Mapping[str, str] | None = None) -> Answer:
        """Send a request, again where that may help."""
        error: Exception | None = None
        wait = 0.0
        for attempt in range(_ATTEMPTS):
            if attempt:
                pause(wait)
            wait = min(0.2 * 2**attempt, _LONGEST_PAUSE)
            try:
                answer = self._followed(url, name, more or {})
            except ValueError as failed:
                if isinstance(failed, InputError):
                    raise _leading(name, failed) from None
                raise _unaskable(name, failed) from failed
            except _failures() as failed:
                if _is_final(failed):
                    raise _unaskable(name, failed) from failed
                error = failed
                continue
            if answer.status not in LATER or attempt == _ATTEMPTS - 1:
                return answer
            wait = max(wait, _asked_to_wait(answer.headers))
            self._give_back(answer)
        raise self._failed(name, error)

    def _followed(self, url: SplitResult, name: str, more: Mapping[str, str]) -> Answer:
        for _ in range(_REDIRECTS + 1):
            answer = self._sent(url, name, more)
            location = answer.headers.get("Location")
            if answer.status not in _MOVED or location is None:
                _check_length(answer)
                return answer
            self._give_back(answer)
            there = _target(url, location, name)
            if there.scheme not in ("http", "https") or (url.scheme == "https" and there.scheme == "http"):
                raise _bad_redirect(
                    f"{name} redirects to {visible(there.scheme)}://…; "
                    "only http and https are followed, and never from https to http",
                    "give the address of the file itself",
                )
            url = there
        raise _bad_redirect(
            f"{name} redirects more than {_REDIRECTS} times", "give the address it redirects to in the end"
        )

    def _sent(self, url: SplitResult, name: str, more: Mapping[str, str]) -> Answer:
        """Send one request."""
        import httpx

        headers = {"Accept-Encoding": "identity", "User-Agent": "trueline", "Host": host_of(url)}
        if (url.scheme, host_of(url)) == (self.home.scheme, host_of(self.home)):
            headers |= self._headers
        try:
            target = httpx.URL(urlunsplit((url.scheme, host_of(url), url.path or "/", url.query, "")))
        except httpx.InvalidURL as error:
            # The system may understand it, though, as an address of its own.
            self._addresses.check_beyond_proxy(url.hostname or "")
            raise ValueError(str(error)) from None
        waits = dict.fromkeys(("connect", "read", "write", "pool"), self.limits.silence)
        request = httpx.Request("GET", target, headers={**headers, **more}, extensions={"timeout": waits})
        response = self._transport(url).handle_request(request)
        stream = response.extensions.get("network_stream")
        if isinstance(stream, CheckedStream):
            stream.answered()
        return Answer(response, url, name)

    def _transport(self, url: SplitResult) -> httpx.HTTPTransport:
        """Return what carries requests to a host: through the proxy of the environment where there is one."""
        assert url.hostname
        proxy = None if proxy_bypass(url.hostname) else getproxies().get(url.scheme)
        if proxy is not None:
            self._addresses.check_beyond_proxy(url.hostname)
        with self._making:
            if (found := self._transports.get((url.scheme, proxy))) is None:
                found = _transport(url.scheme, proxy, self._addresses)
                self._transports[url.scheme, proxy] = found
        return found

    def _give_back(self, answer: Answer) -> None:
        """Let go of an answer; its connection is kept if the body was read to its end."""
        with suppress(*_failures()):
            answer.response.close()

    def _failed(self, name: str, error: object, kind: type[StoreError] = StoreError) -> StoreError:
        return kind(
            f"cannot read {name}: {_said(error)}",
            remedy="check the connection, then try again: what has arrived is kept",
            path=name,
        )


def refused(answer: Answer) -> InputError | StoreError:
    """Return the error of an answer that is not a success: whether trying again may help is its kind."""
    reason = visible(answer.response.reason_phrase[:_REASON], lines=False)
    problem = f"{answer.name} answers {answer.status} {reason}".rstrip()
    if answer.status in LATER:
        return StoreError(problem, remedy="try again later", path=answer.name, status=answer.status)
    return InputError(
        problem,
        remedy="check the address and the right to read it",
        code="NotAllowed",
        url=answer.name,
        status=answer.status,
    )


def too_large(name: str, limit: int) -> InputError:
    """Return the error of a body that has more bytes than it may."""
    return InputError(
        f"{name} has more than {limit:,} bytes",
        remedy="allow more in a dataset of another name: ws.create(…, "
        "source=trueline.source(…, max_bytes=…))",
        code="TooLarge",
        url=name,
    )


def parsed(url: str) -> SplitResult:
    """Take an address apart; what people write in it and HTTP does not allow is escaped."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme.lower() not in ("http", "https"):
        raise InputError(
            f"{masked(url)!r:.300} is not a URL", remedy="give one like https://host/path", code="BadUrl"
        )
    path, query = quote(parts.path, safe=_OF_A_PATH), quote(parts.query, safe=_OF_A_QUERY)
    return parts._replace(scheme=parts.scheme.lower(), path=path, query=query, fragment="")


def host_of(url: SplitResult) -> str:
    """Return host and port of an address, without credentials."""
    return url.netloc.rpartition("@")[2].lower()


# --- answers ------------------------------------------------------------------------------


def _failures() -> tuple[type[Exception], ...]:
    """Return what a connection may raise; httpx is imported where something is asked for."""
    import httpx

    return (httpx.TransportError, OSError)


def _is_end(problem: object) -> bool:
    """Say whether a body just ended too early, with nothing else to say of it."""
    import httpx

    return not isinstance(problem, httpx.TimeoutException | httpx.NetworkError | OSError)


def _is_final(error: BaseException) -> bool:
    """Say whether asking again cannot help: a certificate that is not the host's, or a proxy that refuses."""
    import httpx

    causes: BaseException | None = error
    while causes is not None:
        if isinstance(causes, ssl.SSLCertVerificationError | httpx.ProxyError | httpx.UnsupportedProtocol):
            return True
        causes = causes.__cause__ or causes.__context__  # httpcore raises again "from None"
    return False


def _unaskable(name: str, error: Exception) -> InputError:
    return InputError(
        f"cannot ask {name}: {_said(error)}", remedy="check the address, its host and the proxy"
    )


def _version(headers: Mapping[str, str]) -> str | None:
    """Return what says that a body is still the same, byte for byte."""
    tag = headers.get("ETag", "").strip()
    if tag.startswith('"') and tag.isascii() and tag.isprintable():
        return tag
    moment = headers.get("Last-Modified", "").strip()
    return moment if moment and moment.isascii() and moment.isprintable() else None


def _asked_to_wait(headers: Mapping[str, str]) -> float:
    """Return the seconds a server asks for, within reason."""
    try:
        asked = float(headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(asked) else min(max(asked, 0.0), _LONGEST_PAUSE)


# --- connections --------------------------------------------------------------------------


def _authorization(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _transport(scheme: str, proxy: str | None, addresses: Addresses) -> httpx.HTTPTransport:
    import httpx

    try:
        transport = httpx.HTTPTransport(
            # The authorities that the system trusts, as other tools of it do.
            verify=ssl.create_default_context() if scheme == "https" or proxy is not None else False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_IDLE),
            proxy=None if proxy is None else httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}"),
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise InputError(
            f"the proxy for {scheme} cannot be used: {_said(error)}",
            # In small letters: that one counts where both are set.
            remedy=f"set {scheme}_proxy to http://host:port, the address of one",
            code="BadProxy",
        ) from None
    # httpx has no argument for it; without it names would be looked up again, and not looked at.
    transport._pool._network_backend = CheckedBackend(None if proxy is not None else addresses)  # type: ignore[assignment]
    return transport


# --- what servers say -----------------------------------------------------------------------


def _target(url: SplitResult, location: str, name: str) -> SplitResult:
    """Return the target of a redirect."""
    problem = _bad_redirect(f"{name} redirects to what is not a URL", "ask the operator of the server")
    try:
        there = urlsplit(urljoin(urlunsplit(url), location))
        is_good = there.port != 0 and (there.hostname or there.scheme not in ("http", "https"))
    except ValueError:
        raise problem from None
    if not is_good:
        raise problem
    return there._replace(
        path=quote(there.path, safe=_OF_A_PATH), query=quote(there.query, safe=_OF_A_QUERY), fragment=""
    )


def _check_length(answer: Answer) -> None:
    """Refuse an answer that says a length that cannot be: where it ends would be a guess."""
    length = answer.headers.get("Content-Length")
    if length is not None and not _SIZE.fullmatch(length.strip()):
        answer.response.close()
        raise InputError(
            f"{answer.name} answers with an invalid Content-Length",
            remedy="ask the operator of the server, or fetch it by other means",
            code="BadAnswer",
            url=answer.name,
        )


def _said(error: object) -> str:
    """Return what an error says, on one line and bounded: parts of it may be a server's words."""
    text = visible(masked_text(str(error)), lines=False) or type(error).__name__
    return text if len(text) <= _REASON else f"{text[:_REASON]}…"


def _leading(name: str, refused: InputError) -> InputError:
    """Say which address redirected to what is refused."""
    if refused.code != "BadRedirect" or "host" not in refused.fields:
        return refused
    problem = f"{name} redirects to a private address: {refused.problem}"
    return InputError(problem, remedy=refused.remedy, code=refused.code, in_shell="", **refused.fields)


def _bad_redirect(problem: str, remedy: str) -> InputError:
    return InputError(problem, remedy=remedy, code="BadRedirect")
