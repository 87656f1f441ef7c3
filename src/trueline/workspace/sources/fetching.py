"""Fetching a file by HTTP(S): whole or not at all, bounded, and only if it changed."""

from __future__ import annotations

import http.client
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from trueline.chain.events import SourceState
from trueline.chain.instant import Instant
from trueline.chain.scratch import Scratch
from trueline.errors import BrokenFile, InputError, StoreError, TruelineError
from trueline.readers import Source

ETAG: Final = "odf/etag"
LAST_MODIFIED: Final = "odf/last-modified"
MAX_BYTES: Final = 16 << 30
# Seconds: of silence, and of a whole download.
SILENCE: Final = 60.0
LONGEST: Final = 6 * 3600.0
_OF_A_URL: Final = "%/:?#[]@!$&'()*+,;=~-._"
_CHUNK: Final = 1 << 20
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_LONGEST_ETAG: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server may send, how long it may be silent, and how long it may take."""

    bytes: int = MAX_BYTES
    silence: float = SILENCE
    longest: float = LONGEST


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that was fetched whole, and what its server calls this version of it."""

    source: Source
    state: SourceState | None


def fetch(
    url: str,
    scratch: Scratch,
    *,
    source_name: str,
    headers: Mapping[str, str] | None = None,
    known: SourceState | None = None,
    limits: Limits | None = None,
) -> Fetched | None:
    """Fetch a file into scratch; None if it is still the version that is `known`."""
    bounds = limits if limits is not None else Limits()
    asked = {
        "Accept-Encoding": "identity",
        "User-Agent": "trueline",
        **(headers or {}),
        **_condition(known),
    }
    try:
        request = Request(quote(url, safe=_OF_A_URL), headers=asked)  # noqa: S310 (`_open` looks)
        with closing(_open(request, bounds.silence)) as answer:
            size = _save(answer, url, scratch, bounds)
            state = _state(answer.headers, source_name)
    except HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.NOT_MODIFIED and known is not None:
            return None
        raise _refused(url, error) from None
    except (URLError, http.client.HTTPException, OSError, ValueError) as error:
        if isinstance(error, TruelineError):
            raise
        raise _failed(url, error) from error
    return Fetched(Source(url, partial(scratch.open, _NAME), size), state)


_NAME: Final = "fetched"


def _open(request: Request, silence: float) -> Any:
    """Send a request. Only HTTP and HTTPS are spoken, so that no redirect leads to a local file."""
    if request.type not in ("http", "https"):
        raise InputError(f"{request.type} is not spoken here", remedy="give an http or https URL")
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        HTTPHandler(),
        HTTPSHandler(),
        _Redirects(),
        HTTPErrorProcessor(),
        HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener.open(request, timeout=silence)


class _Redirects(HTTPRedirectHandler):
    """Follows a few redirects: to HTTP(S) only, never from HTTPS to HTTP, and takes no secrets along."""

    max_redirections = 5

    def redirect_request(  # noqa: PLR0917 (urllib calls it so)
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        before, after = urlsplit(req.full_url), urlsplit(urljoin(req.full_url, newurl))
        if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
            raise InputError(
                f"{req.full_url} leads on to a {after.scheme}: address",
                remedy="only http and https are followed, and never from https to http",
                code="BadRedirect",
                url=req.full_url,
            )
        following = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if following is not None and before.netloc != after.netloc:
            for name in ("Authorization", "Cookie"):
                following.remove_header(name)
        return following


# --- the body --------------------------------------------------------------------------


def _save(answer: Any, url: str, scratch: Scratch, limits: Limits) -> int:
    """Write a body to scratch; a body that is not whole raises."""
    if answer.status != http.HTTPStatus.OK:
        raise InputError(
            f"{url} answers {answer.status} {answer.reason}",
            remedy="give the address of the whole file",
            code="NotAFile",
            url=url,
        )
    if answer.headers.get_content_type() == "text/html":
        raise InputError(
            f"{url} answers with a web page",
            remedy="give the address of the file itself; is a login needed?",
            code="NotAFile",
            url=url,
        )
    size = 0
    with scratch.create(_NAME) as file:
        for piece in _decoded(_pieces(answer, url, limits), answer.headers, url):
            size += len(piece)
            if size > limits.bytes:
                raise _too_large(url, limits.bytes)
            file.write(piece)
    return size


def _pieces(answer: Any, url: str, limits: Limits) -> Iterator[bytes]:
    length = answer.headers.get("Content-Length")
    chunked = "chunked" in answer.headers.get("Transfer-Encoding", "").lower()
    if not chunked and (length is None or not length.isdecimal()):
        raise InputError(
            f"{url} does not say how long its answer is, so that half of it could be taken for all",
            remedy="fetch the file by other means and declare its folder",
            code="NoLength",
            url=url,
        )
    if not chunked and int(length) > limits.bytes:
        raise _too_large(url, limits.bytes)
    until, received = time.monotonic() + limits.longest, 0
    # One read is one wait: `read` would go on waiting until a piece is full.
    while piece := answer.read1(_CHUNK):
        received += len(piece)
        if received > limits.bytes:
            raise _too_large(url, limits.bytes)
        if time.monotonic() > until:
            raise _failed(url, TimeoutError(f"not done after {limits.longest:,.0f} s"))
        yield piece
    if not chunked and received != int(length):
        raise _failed(url, EOFError(f"{received:,} of {int(length):,} bytes arrived"))


def _decoded(pieces: Iterator[bytes], headers: Message, url: str) -> Iterator[bytes]:
    """Undo what a server did for the way, though it was not asked to."""
    coding = headers.get("Content-Encoding", "identity").strip().lower()
    if coding == "identity":
        return pieces
    if coding in ("gzip", "x-gzip"):
        return _unzipped(pieces, url)
    raise InputError(
        f"{url} comes encoded as {coding}", remedy="switch that off at the server", code="NotAFile", url=url
    )


def _unzipped(pieces: Iterator[bytes], url: str) -> Iterator[bytes]:
    """Unpack gzip a bounded piece at a time; members may follow each other."""
    member, begun = zlib.decompressobj(31), False
    try:
        for piece in pieces:
            rest = piece
            while rest:
                if member.eof:
                    member = zlib.decompressobj(31)
                begun = True
                yield member.decompress(rest, _CHUNK)
                rest = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise BrokenFile(f"{url} is not the gzip it says: {error}", remedy="try again", path=url) from None
    if begun and not member.eof:
        raise BrokenFile(f"{url} ends in the middle of its gzip", remedy="try again", path=url)


# --- versions --------------------------------------------------------------------------


def _condition(known: SourceState | None) -> dict[str, str]:
    """Return the header that asks for a newer version only."""
    if known is None:
        return {}
    if known.kind == ETAG and _is_plain(known.value):
        return {"If-None-Match": known.value}
    if known.kind == LAST_MODIFIED:
        try:
            moment = Instant.parse(known.value).datetime
        except InputError:
            return {}
        return {"If-Modified-Since": format_datetime(moment, usegmt=True)}
    return {}


def _state(headers: Message, source_name: str) -> SourceState | None:
    """Return what a server calls this version: its tag, else its time."""
    tag = headers.get("ETag", "").strip()
    if tag and _is_plain(tag):
        return SourceState(source_name, ETAG, tag)
    try:
        moment = parsedate_to_datetime(headers.get("Last-Modified", ""))
        return SourceState(source_name, LAST_MODIFIED, str(Instant.of(moment)))
    except (ValueError, TypeError, OverflowError):
        return None


def _is_plain(tag: str) -> bool:
    return len(tag) <= _LONGEST_ETAG and tag.isascii() and tag.isprintable()


# --- errors ----------------------------------------------------------------------------


def _too_large(url: str, limit: int) -> InputError:
    return InputError(
        f"{url} has more than {limit:,} bytes",
        remedy="allow more with trueline.source(url, max_bytes=...)",
        code="TooLarge",
        url=url,
    )


def _refused(url: str, error: HTTPError) -> InputError | StoreError:
    problem = f"{url} answers {error.code} {error.reason}".splitlines()[0]
    if error.code in _LATER:
        return StoreError(problem, remedy="try again later", url=url, status=error.code)
    moved = error.code in _MOVED
    return InputError(
        problem,
        remedy="give the http or https address it leads to in the end"
        if moved
        else "check the address and the right to read it",
        code="BadRedirect" if moved else "NotAllowed",
        url=url,
        status=error.code,
    )


def _failed(url: str, error: Exception) -> StoreError | InputError:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError | http.client.InvalidURL):
        return InputError(f"cannot ask {url}: {reason}", remedy="check the address and its host", url=url)
    return StoreError(
        f"cannot fetch {url}: {str(reason) or type(reason).__name__}",
        remedy="check the connection, then try again; nothing of it was taken in",
        url=url,
    )
