"""The way to an object store: its client, what its errors mean, reading by ranges."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from trueline.chain.store.options import with_retries, without_secrets
from trueline.credentials import has_secrets, masked
from trueline.errors import InputError

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult
    from obstore.store import ObjectStore as Client


class RangeReader(io.RawIOBase):
    """Seekable reading of an object by ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise InputError(f"cannot seek to {start + offset}", remedy="seek to 0 or beyond")
        self._at = start + offset
        return self._at

    def readall(self) -> bytes:
        rest = max(0, self._size - self._at)
        data = self._read(self._at, rest) if rest else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        data = self._read(self._at, length)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def connect(url: str, options: dict[str, Any]) -> tuple[Client, str]:
    """Return a client for a URL, and the prefix that the client does not add itself."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        raise InputError(
            f"{url} is a folder, not an object store",
            remedy="use FileStore, or open_store, which chooses",
            code="NotAnObjectStore",
            url=url,
        )
    if has_secrets(url):
        raise InputError(
            f"{masked(url)} has a password or a key in it, and addresses are shown and kept",
            remedy="leave it out and give it as an option of the provider, or in the environment",
            code="BadStoreUrl",
        )
    if parts.scheme == "memory":
        return _memory(parts.netloc), parts.path.strip("/")
    try:
        return from_url(url, **with_retries(options)), ""
    except InputError:
        raise
    except (BaseError, ValueError, TypeError) as error:
        raise InputError(
            f"cannot open {url}: {without_secrets(first_line(error), options)}",
            remedy="give a URL such as s3://bucket/path with the options its provider needs",
            code="BadStoreUrl",
            url=url,
        ) from error


@cache
def _memory(name: str) -> Client:  # noqa: ARG001 (what the cache tells them apart by)
    from obstore.store import MemoryStore

    return MemoryStore()


def condition(meta: ObjectMeta | PutResult | None) -> PutMode:
    """The condition that nothing was written since `meta` was read or answered."""
    if meta is None:
        return "create"
    told = {"e_tag": meta["e_tag"], "version": meta["version"]}
    return cast("PutMode", {key: value for key, value in told.items() if value is not None})


def is_refusal(error: Exception) -> bool:
    """Whether the store said no, so that nothing can have been done."""
    from obstore.exceptions import (
        InvalidPathError,
        NotSupportedError,
        PermissionDeniedError,
        UnauthenticatedError,
    )

    kinds = (PermissionDeniedError, UnauthenticatedError, NotSupportedError, InvalidPathError)
    return isinstance(error, (*kinds, NotImplementedError, PermissionError))


def first_line(error: Exception | None) -> str:
    """What an error says, without the debug dump that obstore adds below."""
    return without_secrets(str(error).strip().partition("\n")[0], {})
