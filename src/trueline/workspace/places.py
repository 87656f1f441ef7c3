"""Where a workspace keeps its things: in a folder, or below an object-store URL."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from trueline.chain.files import make_folders, refusal, sync_folder
from trueline.chain.open_store import below, open_store
from trueline.chain.store import Folder, Store, check_ref
from trueline.chain.store_options import nested
from trueline.errors import BadName, ConfigError, InputError, StoreError
from trueline.identity.dataset_id import DatasetKey
from trueline.workspace import config
from trueline.workspace.names import check_name, is_name

T = TypeVar("T")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OBJECT: Final = re.compile(r"f[0-9a-f]{68,74}")
# Names of `open` and `clone` that are no options of a provider.
_OURS: Final = frozenset({"path", "create", "spark", "url", "name", "force"})
DATASETS: Final = "datasets"
PRIVATE: Final = ".trueline"


class Place(Protocol):
    """What a workspace asks of the place it is in."""

    location: str
    private: Path  # a local folder for what can be made anew: indexes
    keys: Path  # a local folder for what cannot: private keys

    def read_config(self) -> str | None:
        """Return the text of `trueline.toml`, None if there is no workspace here."""

    def write_config(self, text: str, *, new: bool = False) -> None:
        """Write `trueline.toml`; with `new` an existing one is left as it is."""

    def names(self) -> Iterator[str]:
        """Iterate over what may be datasets; foreign things are passed over."""

    def store(self, name: str, *, durable: bool) -> Store:
        """Return the store of a dataset; nothing is made."""

    def refs(self, name: str) -> list[str]:
        """Return the refs of a dataset."""

    def exists(self, name: str) -> bool:
        """Say whether there is anything under a dataset's name."""

    def remove_unfinished(self, name: str, before: float, *, dry_run: bool) -> bool:
        """Remove what a creation that died left before a moment; True if there was such."""


def place_of(path: str | os.PathLike[str], **options: Any) -> Place:
    """Return the place a path or URL names; `options` are for the provider of an object store."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise InputError(f"{path!r} is not a path", remedy="give a folder or an object-store URL")
    parts = urlsplit(text) if _URL.match(text) else None
    if parts is not None and parts.scheme.lower() != "file":
        return UrlPlace(text, options)
    if options:
        raise InputError(
            f"{text} is a folder, which takes no option {next(iter(options))!r}",
            remedy="leave it out, or give an object-store URL",
            code="BadOption",
        )
    return FolderPlace(Path(text if parts is None else unquote(parts.path)))


def provider_options(given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return what `place_of` takes for an object store, from text under flat names."""
    named = list(given)
    for name, _ in named:
        if name in _OURS:
            raise InputError(
                f"there is no option {name!r}",
                remedy="give options of the provider, such as region",
                code="BadOption",
            )
    return nested(named)


def folder_of(place: Place) -> Path | None:
    """Return the folder a workspace is in, None if it is not in one."""
    return place.path if isinstance(place, FolderPlace) else None


# --- a folder -----------------------------------------------------------------


class FolderPlace:
    """A workspace in a folder; private things are in `.trueline/`."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 (resolve() would follow links)
        self.location = str(self.path)
        self.private = self.path / PRIVATE
        self.keys = self.private / "keys"

    def read_config(self) -> str | None:
        path = self.path / config.FILE
        try:
            if path.stat().st_size > config.MAX_BYTES:
                raise ConfigError(
                    f"{path} is too large for a configuration", remedy="mend it by hand", path=str(path)
                )
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not text", remedy="mend it by hand", path=str(path)) from None
        except OSError as error:
            raise refusal(error, "read", str(path)) from error

    def write_config(self, text: str, *, new: bool = False) -> None:
        with _refusing("write", self.path / config.FILE):
            make_folders(self.path / DATASETS)
            write_file(self.path / config.FILE, text.encode(), replace=not new)

    def names(self) -> Iterator[str]:
        try:
            with os.scandir(self.path / DATASETS) as entries:
                found = [entry.name for entry in entries if is_name(entry.name) and entry.is_dir()]
        except FileNotFoundError:
            return
        except OSError as error:
            raise refusal(error, "list", str(self.path / DATASETS)) from error
        yield from sorted(found)

    def folder(self, name: str) -> Path:
        """Return a dataset's folder, which is in the workspace whatever links say."""
        path = self.path / DATASETS / check_name(name)
        inside, real = self.path.resolve(), path.resolve()
        if not real.is_relative_to(inside):
            raise BadName(
                f"the folder of dataset {name!r} is a link that leads out of the workspace, to {real}",
                remedy=f"move the dataset into {self.path / DATASETS}, or remove the link",
                name=name,
                path=str(real),
            )
        return path

    def store(self, name: str, *, durable: bool) -> Store:
        return open_store(self.folder(name), durable=durable)

    def refs(self, name: str) -> list[str]:
        try:
            files = [entry.name for entry in (self.folder(name) / "refs").iterdir() if entry.is_file()]
            return sorted(file for file in files if _is_ref(file))
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.folder(name))

    def remove_unfinished(self, name: str, before: float, *, dry_run: bool) -> bool:
        import shutil

        if (self.path / DATASETS / name).is_symlink():
            return False
        folder = self.folder(name)
        with _refusing("remove", folder):
            files = [path for path in folder.rglob("*") if not path.is_dir()]
            if not all(_is_ours(path.relative_to(folder).as_posix()) for path in files):
                return False
            if any(path.lstat().st_mtime >= before for path in (folder, *files)) or _is_busy(
                open_store(folder)
            ):
                return False
            if not dry_run:
                # Moved aside first: a creation that begins at this moment is seen there, and put back.
                aside = folder.with_name(f".{name}.{os.urandom(4).hex()}")
                folder.rename(aside)
                if _is_busy(open_store(aside)):
                    aside.rename(folder)
                    return False
                shutil.rmtree(aside)
        return True


def _is_ref(name: str) -> bool:
    try:
        check_ref(name)
    except InputError:
        return False
    return True


def _is_ours(path: str) -> bool:
    """Say whether a file below a dataset is one that we write, and not something people keep there."""
    folder, _, leaf = path.partition("/")
    return folder == "private" or (folder in tuple(Folder) and _OBJECT.fullmatch(leaf) is not None)


def _is_busy(store: Store) -> bool:
    try:
        return store.head() is not None or store.oldest_lease() is not None
    finally:
        store.close()


@contextmanager
def _refusing(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise refusal(error, doing, str(path)) from error


def write_file(path: Path, data: bytes, *, replace: bool, mode: int = 0o644) -> None:
    """Write a small file whole and durably, or not at all; without `replace` an existing one stays."""
    make_folders(path.parent)
    staged = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            staged.rename(path)
        else:
            with suppress(FileExistsError):
                path.hardlink_to(staged)
    finally:
        with suppress(FileNotFoundError):
            staged.unlink()
    sync_folder(path.parent)


def keep_key(place: Place, key: DatasetKey) -> Path:
    """Store the private half of a dataset's key where only its owner can read it."""
    path = place.keys / f"{key.id.removeprefix('did:odf:')}.key"
    with _refusing("write", path):
        make_folders(path.parent, mode=0o700)
        write_file(path, key.private_bytes().hex().encode() + b"\n", replace=False, mode=0o600)
    return path


# --- a URL --------------------------------------------------------------------


class UrlPlace:
    """A workspace in an object store; what is private stays on this machine.

    Indexes can be made anew and lie under `XDG_CACHE_HOME`; keys cannot and
    lie under `XDG_DATA_HOME`.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        from trueline.chain.object_client import connect

        self.location = url.rstrip("/")
        self._options = options
        self._client, self._prefix = connect(self.location, options)
        home = f"trueline/{hashlib.sha3_256(self.location.encode()).hexdigest()[:32]}"
        self.private = _home("XDG_CACHE_HOME", ".cache") / home
        self.keys = _home("XDG_DATA_HOME", ".local/share") / home / "keys"

    def _key(self, *parts: str) -> str:
        return "/".join((self._prefix, *parts)) if self._prefix else "/".join(parts)

    def _asked(self, doing: str, ask: Callable[[], T]) -> T:
        from obstore.exceptions import BaseError

        from trueline.chain.object_client import first_line

        try:
            return ask()
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            raise StoreError(
                f"cannot {doing} {self.location}: {first_line(error)}",
                remedy="check the address, the rights, the network and the option endpoint, then try again",
                path=self.location,
            ) from error

    def read_config(self) -> str | None:
        import obstore

        try:
            raw = self._asked(
                "read", lambda: obstore.get(self._client, self._key(config.FILE)).bytes().to_bytes()
            )
            return raw.decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            path = f"{self.location}/{config.FILE}"
            raise ConfigError(f"{path} is not text", remedy="mend it by hand", path=path) from None

    def write_config(self, text: str, *, new: bool = False) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        mode: Any = "create" if new else "overwrite"
        with suppress(AlreadyExistsError):
            self._asked(
                "write to",
                lambda: obstore.put(self._client, self._key(config.FILE), text.encode(), mode=mode),
            )

    def names(self) -> Iterator[str]:
        yield from sorted(name for name in self._below(DATASETS)[0] if is_name(name))

    def _below(self, *parts: str) -> tuple[set[str], set[str]]:
        """Return the folders and the objects directly below a folder."""
        import obstore

        within = self._key(*parts)
        found = self._asked("list", lambda: obstore.list_with_delimiter(self._client, within))
        folders = {path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]}
        objects: set[str] = set()
        for meta in found["objects"]:
            # Servers that do not know delimiters list everything below.
            name, _, deeper = meta["path"].removeprefix(f"{within}/").partition("/")
            (folders if deeper else objects).add(name)
        return folders, objects

    def store(self, name: str, *, durable: bool) -> Store:
        return open_store(below(self.location, DATASETS, check_name(name)), **self._options)

    def refs(self, name: str) -> list[str]:
        return sorted(ref for ref in self._below(DATASETS, check_name(name), "refs")[1] if _is_ref(ref))

    def exists(self, name: str) -> bool:
        return check_name(name) in self._below(DATASETS)[0]

    def remove_unfinished(self, name: str, before: float, *, dry_run: bool) -> bool:
        import obstore

        within = self._key(DATASETS, check_name(name))
        found = self._asked("list", lambda: [m for page in obstore.list(self._client, within) for m in page])
        if not all(_is_ours(meta["path"].removeprefix(f"{within}/")) for meta in found):
            return False
        store = self.store(name, durable=True)
        # Ages by the clock that stamps the objects, not by this machine's.
        before += store.clock() - time.time()
        if any(meta["last_modified"].timestamp() >= before for meta in found) or _is_busy(store):
            return False
        if not dry_run:
            # A creation that was given up, and sleeps, cannot set its head any more.
            if store.fence() is not None or store.head() is not None:
                return False
            self._asked("remove from", lambda: obstore.delete(self._client, [meta["path"] for meta in found]))
        return True


def _home(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    # The rule of the XDG specification: a relative path there counts as not set.
    return Path(given) if os.path.isabs(given) else Path.home() / default  # noqa: PTH117 ("" is no path)
