"""From a path or a URL to the store that is there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from trueline.chain.store.store import Store
from trueline.errors import BadName, InputError

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_store(location: str | os.PathLike[str], **options: Any) -> Store:
    """Return the store of the dataset at a folder or an object-store URL; nothing is made there.

    `options` go to the store: `durable=` for folders, credentials and the like for URLs.
    `store.location` is such a location again, for another process.

    >>> open_store("/srv/lake/trades").location
    '/srv/lake/trades'
    >>> open_store("file:///srv/lake/trades").location
    '/srv/lake/trades'
    """
    text = os.fspath(location)
    if not _URL.match(text):
        from trueline.chain.store.file import FileStore

        return FileStore(text, **options)
    parts = urlsplit(text)
    if parts.scheme.lower() == "file":
        if parts.netloc not in ("", "localhost"):
            raise InputError(
                f"{text} names the host {parts.netloc!r}",
                remedy="write file:///path, with three slashes",
                code="BadStoreUrl",
                url=text,
            )
        from trueline.chain.store.file import FileStore

        return FileStore(unquote(parts.path), **options)
    from trueline.chain.store.object import ObjectStore

    return ObjectStore(text, **options)


def below(location: str | os.PathLike[str], *names: str) -> str:
    """Return the location of something below a folder or URL, such as a dataset of a workspace.

    >>> below("s3://lake/main", "datasets", "trades")
    's3://lake/main/datasets/trades'
    """
    for name in names:
        if name in ("", ".", "..") or any(c in name for c in "/\\\0"):
            raise BadName(f"{name!r} cannot be part of a path", remedy="use one plain name", name=name)
    text = os.fspath(location)
    if _URL.match(text):
        return "/".join([text.rstrip("/"), *(quote(name) for name in names)])
    return str(Path(text, *names))
