"""A declared source: where new data of a dataset is found, and how it is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape, glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from trueline.chain.events import Event, SetPollingSource
from trueline.chain.sources import (
    FetchContainer,
    FetchEthereumLogs,
    FetchFilesGlob,
    FetchMqtt,
    FetchStep,
    FetchUrl,
    ReadStep,
    SourceOrdering,
)
from trueline.credentials import has_secrets, is_secret_name, masked
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.readers import Reader, Source

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NOT_IN_A_URL: Final = re.compile(r"[\x00-\x20\x7f]")
SCHEMES: Final = ("http", "https", "file")


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """A folder, file, pattern or URL that `pull` reads; made by `trueline.source`."""

    location: str
    reader: Reader | None = None
    max_bad: float | None = None
    max_bytes: int | None = None


def source(
    location: str | os.PathLike[str],
    reader: Reader | None = None,
    *,
    max_bad: float | None = None,
    max_bytes: int | None = None,
) -> DeclaredSource:
    """Declare where `pull` finds new data: a folder, a file, a pattern, or an http(s) or file URL.

    Without a `reader` the ending of the names decides. `max_bad` is that of
    `append`; a download of more than `max_bytes` is refused.

    >>> source("inbox/*.csv").location
    'inbox/*.csv'
    """
    given: object = location
    if not isinstance(given, str | os.PathLike) or not os.fspath(given).strip():
        raise InputError(f"{location!r:.80} is not a source", remedy="give a path, a pattern or a URL")
    limits: tuple[tuple[str, object], ...] = (("max_bad", max_bad), ("max_bytes", max_bytes))
    for what, limit in limits:
        if limit is not None and (not isinstance(limit, int | float) or not 0 <= limit < 1 << 63):
            raise InputError(f"{what} is {limit!r:.80}, not a number of at least 0", remedy="give a number")
    if reader is not None:
        from trueline.readers import Reader as Kind

        if not isinstance(reader, Kind):
            raise InputError(
                f"reader is {reader!r:.80}, not a reader", remedy="give trueline.csv(...), .json(...) …"
            )
    return DeclaredSource(os.fspath(location), reader, max_bad, max_bytes)


def declared(given: object) -> DeclaredSource | None:
    """Return what `create` was given as a source."""
    if given is None or isinstance(given, DeclaredSource):
        return given
    location: Any = given
    return source(location)


# --- where -----------------------------------------------------------------------------


def to_fetch(location: str, base: Path | None) -> FetchUrl | FetchFilesGlob:
    """Return a location as blocks store it.

    Paths below the workspace's folder `base` are kept relative to it, so that
    the workspace can be moved; others become absolute.
    """
    if match := _URL.match(location):
        return FetchUrl(_checked_url(location, match[1].lower()))
    if "\0" in location:
        raise InputError(f"{location!r:.80} is not a path", remedy="give a path, a pattern or a URL")
    path = Path(location).expanduser()
    is_folder = location.endswith(("/", os.sep)) or path.is_dir()
    is_pattern = not is_folder and has_magic(location) and not path.exists()
    # The folder we are in is meant as it is written, whatever characters it has.
    prefix, given = ("", str(path)) if path.is_absolute() else (str(Path.cwd()), str(path))
    whole = os.path.normpath(Path(prefix, given))
    if base is not None and Path(whole).is_relative_to(base):
        kept = os.path.relpath(whole, base)
        text = kept if is_pattern else escape(kept)
    else:
        text = os.path.join(escape(prefix), given if is_pattern else escape(given))  # noqa: PTH118 (a pattern)
        text = os.path.normpath(text)
    text = Path(text).as_posix()
    if is_folder:
        text = "*" if text == "." else f"{text.rstrip('/')}/*"
    return FetchFilesGlob(text, order=SourceOrdering.ByName)


def _checked_url(url: str, scheme: str) -> str:
    remedy = "give a path, or an http, https or file URL"
    if scheme not in SCHEMES:
        raise InputError(f"{scheme} URLs are not read", remedy=remedy, code="UnknownSource", url=url)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InputError(f"{masked(url)!r:.200} is not a URL", remedy=remedy, code="BadUrl") from None
    if parts.username is not None or parts.password is not None or has_secrets(url):
        raise secret_in_chain(f"the URL {masked(url)!r:.200} has a password or a key in it")
    good = host in (None, "localhost") and parts.path if scheme == "file" else host
    if not good or _NOT_IN_A_URL.search(url):
        raise InputError(f"{masked(url)!r:.200} is not a URL", remedy=remedy, code="BadUrl")
    return url


def secret_in_chain(problem: str) -> InputError:
    """The error of a definition with a secret in it."""
    return InputError(
        f"{problem}, and a source is part of the dataset and of every copy",
        remedy="leave it out, or fetch the file by other means (keys in the environment) "
        "and declare its folder",
        code="BadUrl",
    )


def check_no_secrets(events: Iterable[Event]) -> None:
    """Refuse events whose source holds a password or a key: what is in a chain is there for good."""
    for event in events:
        if isinstance(event, SetPollingSource):
            problem = _secret_of(event.fetch)
            if problem is not None:
                raise secret_in_chain(problem)


def _secret_of(fetch: FetchStep) -> str | None:
    """Say what is secret in a source, None if nothing is."""
    match fetch:
        case FetchUrl(url, headers=headers):
            if has_secrets(url):
                return f"the URL {masked(url)!r:.200} has a password or a key in it"
            names = [each.name for each in headers or () if is_secret_name(each.name)]
            return f"the header {names[0]!r:.80} is secret" if names else None
        case FetchMqtt(password=password):
            return "the source has a password" if password else None
        case FetchContainer(env=env):
            names = [each.name for each in env or () if each.value and is_secret_name(each.name)]
            return f"the variable {names[0]!r:.80} is secret" if names else None
        case FetchEthereumLogs(node_url=url):
            return f"the URL {masked(url)!r:.200} has a key in it" if url and has_secrets(url) else None
    return None


def shown(fetch: FetchStep) -> str:
    """Name a recorded source for people: the path or pattern, or the URL, masked."""
    match fetch:
        case FetchUrl(url):
            return masked(url)
        case FetchFilesGlob(path):
            return path
    return fetch.KIND


def is_one_file(fetch: FetchFilesGlob, base: Path | None) -> bool:
    """Say whether a recorded path names one file, whose new content is a new version of it."""
    literal = _literal(fetch.path)
    return literal is not None and not placed(literal, base).is_dir()


def matching(fetch: FetchFilesGlob, base: Path | None) -> list[Source]:
    """List the files a recorded path names now, in the order of their names."""
    from dataclasses import replace

    from trueline.readers import Source

    path = fetch.path
    if (literal := _literal(path)) is not None:
        if not placed(literal, base).is_dir():
            return [replace(Source.file(placed(literal, base)), path=literal)]
        path = f"{escape(literal)}/*"
    root = placed(".", base) if not Path(path).is_absolute() else None
    folder = placed(_stem(path), base)
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}",
            remedy="create it, or fix the path of the source",
            code="NoSuchFile",
            path=path,
        )
    names = glob(path, root_dir=root, recursive=True)  # noqa: PTH207 (absolute or not)
    found = sorted(Path(name).as_posix() for name in names if placed(name, base).is_file())
    return [replace(Source.file(placed(name, base)), path=name) for name in found]


def _literal(path: str) -> str | None:
    """Return the one path a pattern names, None if it may name several."""
    plain = re.sub(r"\[([*?[])\]", lambda match: match[1], path)
    return plain if escape(plain) == path else None


def _stem(path: str) -> str:
    """Return the folders before the first part that is a pattern."""
    parts = Path(path).parts
    before = [_literal(part) for part in parts[:-1]]
    kept = before[: before.index(None)] if None in before else before
    return str(Path(*[part for part in kept if part is not None])) if kept else "."


def placed(path: str, base: Path | None) -> Path:
    """Return the path that a recorded one means here."""
    if Path(path).is_absolute():
        return Path(path)
    if base is None:
        raise InputError(
            f"the source {path!r} is relative, and the workspace is not in a folder",
            remedy="declare an absolute path",
            code="UnknownSource",
        )
    return base / path


# --- how -------------------------------------------------------------------------------


def reader_for_source(asked: DeclaredSource, fetch: FetchUrl | FetchFilesGlob, base: Path | None) -> Reader:
    """Return the reader of a new source: the one given, or the one for the ending of the names."""
    if asked.reader is not None:
        return asked.reader
    from trueline.readers import Source, reader_for

    names: Sequence[Source]
    if isinstance(fetch, FetchUrl):
        names = [Source.memory(b"", urlsplit(fetch.url).path)]
    else:
        tells = Source.memory(b"", fetch.path)
        names = [tells] if Path(fetch.path).suffix not in ("", ".*") else matching(fetch, base)
    if not names:
        raise InputError(
            f"how to read {asked.location} is not known: no file is there yet",
            remedy="give trueline.source(path, reader=trueline.csv(...))",
            code="UnknownFormat",
        )
    return reader_for(names)


def to_read(reader: Reader) -> ReadStep:
    """Return a reader as blocks store it."""
    from trueline.chain.sources import ReadCsv, ReadNdJson, ReadParquet
    from trueline.chain.text import record_from_dict

    step = reader.to_read_step()
    kinds = {kind.KIND: kind for kind in (ReadCsv, ReadNdJson, ReadParquet)}
    read: Any = record_from_dict(step, kinds[str(step["kind"])], "read")
    found: ReadStep = read
    return found
