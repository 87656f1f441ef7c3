"""Fetching a file by HTTP(S): whole or not at all, bounded, and only if it changed."""

from __future__ import annotations

import http
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import Final

from trueline.chain.events import SourceState
from trueline.chain.instant import Instant
from trueline.chain.store.scratch import Scratch
from trueline.credentials import masked
from trueline.errors import BrokenFile, InputError, visible
from trueline.readers import Source
from trueline.workspace.http import CHUNK, Answer, HttpLimits, HttpReader, refused, too_large
from trueline.workspace.pull.scheduler import go_on

ETAG: Final = "odf/etag"
LAST_MODIFIED: Final = "odf/last-modified"
_NAME: Final = "fetched"
_LONGEST_ETAG: Final = 1024


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
    limits: HttpLimits | None = None,
) -> Fetched | None:
    """Fetch a file into scratch; None if it is still the version that is `known`.

    It is called by its address, masked: a key in that is not written down.
    """
    name = masked(url)
    reader = HttpReader(url, headers={**(headers or {}), **_condition(known)}, limits=limits)
    with closing(reader), reader.get(name=name) as answer:
        if answer.status == http.HTTPStatus.NOT_MODIFIED and known is not None:
            return None
        size = _save(reader, answer, name, scratch)
        state = _state(answer.headers, source_name)
    return Fetched(Source(name, partial(scratch.open, _NAME), size), state)


# --- the body --------------------------------------------------------------------------


def _save(reader: HttpReader, answer: Answer, url: str, scratch: Scratch) -> int:
    """Write a body to scratch; a body that is not whole raises."""
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        raise _no_file(
            f"{url} answers {answer.status}, with a part of a file", "give the address of the whole file", url
        )
    if answer.status != http.HTTPStatus.OK:
        raise refused(answer)
    if answer.content_type == "text/html":
        raise _no_file(
            f"{url} answers with a web page",
            "give the address of the file itself; is a login needed?",
            url,
        )
    if answer.size is None and not answer.is_chunked:
        raise InputError(
            f"{url} answers without a Content-Length, so a truncated file would not be noticed",
            remedy="fetch the file by other means and declare its folder",
            code="NoLength",
            url=url,
        )
    limit = reader.limits.bytes
    if answer.size is not None and answer.size > limit:
        raise too_large(url, limit)
    size = 0
    with scratch.create(_NAME) as file:
        for piece in _decoded(reader.pieces(answer), answer.headers, url):
            go_on()
            size += len(piece)
            if size > limit:
                raise too_large(url, limit)
            file.write(piece)
    return size


def _no_file(problem: str, remedy: str, url: str) -> InputError:
    return InputError(problem, remedy=remedy, code="NotAFile", url=url)


def _decoded(pieces: Iterator[bytes], headers: Mapping[str, str], url: str) -> Iterator[bytes]:
    """Undo an encoding that a server applied though it was not asked to."""
    coding = headers.get("Content-Encoding", "identity").strip().lower()
    if coding == "identity":
        return pieces
    if coding in ("gzip", "x-gzip"):
        return _unzipped(pieces, url)
    raise _no_file(
        f"{url} comes encoded as {visible(coding, lines=False):.80}", "switch that off at the server", url
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
                yield member.decompress(rest, CHUNK)
                rest = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise BrokenFile(f"{url} is not gzip as it says: {error}", remedy="try again", path=url) from None
    if begun and not member.eof:
        raise BrokenFile(f"{url} ends in the middle of its gzip stream", remedy="try again", path=url)


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


def _state(headers: Mapping[str, str], source_name: str) -> SourceState | None:
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
