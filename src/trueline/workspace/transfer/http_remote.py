"""A dataset behind a static file server: GET refs/head, blocks/…, data/…, checkpoints/…"""

from __future__ import annotations

import http
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from trueline.chain.store.store import Folder, object_missing
from trueline.errors import CorruptionError, InputError
from trueline.identity.multihash import Multihash
from trueline.workspace.http import Answer, HttpLimits, HttpReader, Interrupted, host_of, refused

_REF_BYTES: Final = 4096
_ATTEMPTS: Final = 4
_ABSENT: Final = {404, 410}


class HttpRemote:
    """Reads a dataset over HTTP(S).

    The credentials of the address go to its own host only and are not part of
    `location`.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 60.0) -> None:
        self._reader = HttpReader(url, headers=headers, limits=HttpLimits(silence=timeout))
        self.location = shown(url)

    # --- reading ------------------------------------------------------------

    def head(self) -> Multihash | None:
        with self._get("refs/head") as answer:
            if answer is None:
                return None
            text = self._body(answer, _REF_BYTES, may_be_page=True)
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
                    return self._body(answer, limit)
            except Interrupted:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def chunks(self, folder: Folder, name: Multihash) -> Iterator[Iterator[bytes]]:
        with self._get(f"{folder}/{name}") as answer:
            if answer is None:
                raise object_missing(folder, name, self.location)
            # Objects are named by their bytes, so the rest of one belongs to its beginning.
            yield self._pieces(answer, unchanging=True)

    def names(self) -> Iterator[Multihash] | None:
        return None

    def close(self) -> None:
        self._reader.close()

    def _body(self, answer: Answer, limit: int, *, may_be_page: bool = False) -> bytes:
        pieces: list[bytes] = []
        size = 0
        for piece in self._pieces(answer, may_be_page=may_be_page):
            size += len(piece)
            if size > limit:
                raise _damaged(
                    f"{answer.name} is not what its name says: more than {limit:,} bytes",
                    "the source is damaged: verify it there, or take another copy",
                    answer.name,
                )
            pieces.append(piece)
        return b"".join(pieces)

    def _pieces(
        self, answer: Answer, *, may_be_page: bool = False, unchanging: bool = False
    ) -> Iterator[bytes]:
        if answer.content_type == "text/html" and not may_be_page:
            raise _damaged(
                f"{answer.name} answers with a web page",
                "give the address of the files themselves, served as they are",
                answer.name,
            )
        coding = answer.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            raise _damaged(
                f"{answer.name} comes as {coding}, though it was asked for as it is",
                "switch compression off at the server",
                answer.name,
            )
        return self._reader.pieces(answer, unchanging=unchanging)

    @contextmanager
    def _get(self, path: str) -> Iterator[Answer | None]:
        """Ask for a file; None if it is not there."""
        with self._reader.get(path, name=f"{self.location}/{path}") as answer:
            if answer.status in _ABSENT:
                yield None
            elif answer.status == http.HTTPStatus.OK:
                yield answer
            else:
                raise refused(answer)


def shown(url: str) -> str:
    """Return an address without credentials, query and fragment.

    >>> shown("https://ann:secret@example.org/lake/trades/?token=x#top")
    'https://example.org/lake/trades'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), host_of(parts), parts.path.rstrip("/"), "", ""))


def _damaged(problem: str, remedy: str, path: str) -> CorruptionError:
    return CorruptionError(problem, remedy=remedy, path=path)
