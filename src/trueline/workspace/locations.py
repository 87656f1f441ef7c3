"""Where a workspace keeps its things: in a folder, or below an object-store URL."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from trueline.chain.store.file import FileStore
from trueline.chain.store.files import make_folders, refusal
from trueline.chain.store.folders import Inside, remove_tree
from trueline.chain.store.leases import is_private
from trueline.chain.store.open import below, open_store
from trueline.chain.store.options import nested
from trueline.chain.store.store import Folder, Store, check_ref
from trueline.errors import BadName, ConfigError, InputError, StoreError
from trueline.identity.dataset_id import DatasetId, DatasetKey
from trueline.workspace import config
from trueline.workspace.names import check_name, is_name

T = TypeVar("T")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OBJECT: Final = re.compile(r"f[0-9a-f]{68,74}")
# Names of `open` and `clone` that are not options of a provider.
_OURS: Final = frozenset({"path", "create", "spark", "trusted_sql", "url", "name", "force", "expected_head"})
DATASETS: Final = "datasets"
PRIVATE: Final = ".trueline"
# Beside the datasets, so that they go where the datasets go; no dataset can have such a name.
ORIGINS: Final = ".origins"


class Place(Protocol):
    """What a workspace asks of the place it is in."""

    location: str
    private: Path  # a local folder for what can be rebuilt: indexes
    keys: Path  # a local folder for what cannot: private keys

    def inside(self, path: Path) -> Inside:
        """Return a path at or below `private` or `keys` as a place on whose way no link is followed."""

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
        """Remove what a creation that died left before a time; True if there was such."""

    def read_origin(self, name: str) -> bytes | None:
        """Return what is kept of where a dataset came from, None if nothing is."""

    def write_origin(self, name: str, data: bytes | None) -> None:
        """Keep where a dataset came from, beside the datasets; None forgets it."""


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

    def inside(self, path: Path) -> Inside:
        return Inside(self.path, path.relative_to(self.path).parts)

    def read_config(self) -> str | None:
        return config.read_settings(self.inside(self.path / config.FILE))

    def write_config(self, text: str, *, new: bool = False) -> None:
        with _refusing("write", self.path / config.FILE):
            make_folders(self.path)
            with self._datasets.folder(make=True, durable=True):
                self.inside(self.path / config.FILE).write(text.encode(), replace=not new)

    @property
    def _datasets(self) -> Inside:
        return Inside(self.path, (DATASETS,))

    def names(self) -> Iterator[str]:
        with _refusing("list", self.path / DATASETS):
            found = self._datasets.listing()
        kinds = (stat.S_IFDIR, stat.S_IFLNK)
        yield from (name for name, of in found if is_name(name) and stat.S_IFMT(of.st_mode) in kinds)

    def folder(self, name: str) -> Path:
        """Return the path of a dataset's folder."""
        return self._folder(name).path

    def _folder(self, name: str) -> Inside:
        """Return a dataset's folder; a link to another dataset of this workspace is that one's."""
        place = self._datasets / check_name(name)
        if not os.path.islink(place):  # noqa: PTH114 (what was opened by descriptor decides, not this)
            return place
        real = place.path.resolve()
        if real.parent == self.path.resolve() / DATASETS and is_name(real.name):
            return self._datasets / real.name
        raise BadName(
            f"{place}, the folder of dataset {name!r}, is a link that leads out of the workspace or to what "
            f"is not a dataset of it: {real}",
            remedy=f"move the dataset into {self.path / DATASETS}, or remove the link",
            name=name,
            path=str(real),
        )

    def store(self, name: str, *, durable: bool) -> Store:
        return FileStore(self._folder(name), durable=durable)

    def refs(self, name: str) -> list[str]:
        found = (self._folder(name) / "refs").listing()
        return [file for file, of in found if stat.S_ISREG(of.st_mode) and _is_ref(file)]

    def exists(self, name: str) -> bool:
        return os.path.lexists(self._folder(name))

    def remove_unfinished(self, name: str, before: float, *, dry_run: bool) -> bool:
        folder = self._datasets / check_name(name)
        with _refusing("remove", folder.path), self._datasets.folder() as datasets:
            found = _contents(name, datasets)
            if found is None or not all(is_ours(path) for path in found if path):
                return False
            if max(found.values()) >= before or _is_busy(FileStore(folder)):
                return False
            if not dry_run:
                # Renamed first: a creation that begins at this moment is seen there, and put back.
                aside = f".{name}.{os.urandom(4).hex()}"
                os.rename(name, aside, src_dir_fd=datasets, dst_dir_fd=datasets)
                if _is_busy(FileStore(self._datasets / aside)):
                    os.rename(aside, name, src_dir_fd=datasets, dst_dir_fd=datasets)
                    return False
                remove_tree(aside, datasets)
        return True

    def read_origin(self, name: str) -> bytes | None:
        path = self._origin(name)
        with _refusing("read", path.path):
            return path.read_small()

    def write_origin(self, name: str, data: bytes | None) -> None:
        path = self._origin(name)
        with _refusing("write", path.path):
            if data is None:
                path.remove()
            else:
                path.write(data, replace=True)

    def _origin(self, name: str) -> Inside:
        return Inside(self.path, (DATASETS, ORIGINS, f"{check_name(name)}.json"))


def _contents(name: str, within: int) -> dict[str, float] | None:
    """Return the files below a folder (links too, which are not followed) and the folder itself, as "".

    Each with the time it was last written; None if the folder is itself a link.
    """
    own = os.stat(name, dir_fd=within, follow_symlinks=False)
    if not stat.S_ISDIR(own.st_mode):
        return None
    found = {"": own.st_mtime}
    for folder, folders, files, fd in os.fwalk(name, dir_fd=within):
        for each in (*folders, *files):
            of = os.stat(each, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISDIR(of.st_mode):
                found[f"{folder}/{each}".partition("/")[2]] = of.st_mtime
    return found


def _is_ref(name: str) -> bool:
    try:
        check_ref(name)
    except InputError:
        return False
    return True


def is_ours(path: str) -> bool:
    """Say whether a file below a dataset is one that we write, and not something people keep there."""
    folder, _, leaf = path.partition("/")
    if folder == "private":
        return is_private(leaf)
    return folder in tuple(Folder) and _OBJECT.fullmatch(leaf) is not None


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


def _key_path(place: Place, dataset_id: DatasetId) -> Inside:
    return place.inside(place.keys / f"{dataset_id.removeprefix('did:odf:')}.key")


def holds_key(place: Place, dataset_id: DatasetId) -> bool:
    """Say whether a dataset is one's own: whether its private key is here."""
    found = _key_path(place, dataset_id).stat()
    return found is not None and stat.S_ISREG(found.st_mode)


def keep_key(place: Place, key: DatasetKey) -> Inside:
    """Store the private half of a dataset's key where only its owner can read it."""
    path = _key_path(place, key.id)
    with _refusing("write", path.path):
        text = key.private_bytes().hex().encode() + b"\n"
        path.write(text, replace=False, mode=0o600, folder_mode=0o700)
    return path


# --- a URL --------------------------------------------------------------------


class UrlPlace:
    """A workspace in an object store; what is private stays on this machine.

    Indexes can be rebuilt and lie under `XDG_CACHE_HOME`; keys cannot and
    lie under `XDG_DATA_HOME`.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        from trueline.chain.store.object_client import connect

        self.location = url.rstrip("/")
        self._options = options
        self._client, self._prefix = connect(self.location, options)
        home = f"trueline/{hashlib.sha3_256(self.location.encode()).hexdigest()[:32]}"
        self._homes = (_home("XDG_CACHE_HOME", ".cache"), _home("XDG_DATA_HOME", ".local/share"))
        self.private = self._homes[0] / home
        self.keys = self._homes[1] / home / "keys"

    def inside(self, path: Path) -> Inside:
        root = next(home for home in self._homes if path.is_relative_to(home / "trueline"))
        return Inside(root, path.relative_to(root).parts)

    def _key(self, *parts: str) -> str:
        return "/".join((self._prefix, *parts)) if self._prefix else "/".join(parts)

    def _asked(self, doing: str, ask: Callable[[], T]) -> T:
        from obstore.exceptions import BaseError

        from trueline.chain.store.object_client import first_line

        try:
            return ask()
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            raise StoreError(
                f"cannot {doing} {self.location}: {first_line(error)}",
                remedy="check address, permissions, the network and the option endpoint, then try again",
                path=self.location,
            ) from error

    def read_config(self) -> str | None:
        import obstore

        try:
            found = self._asked("read", lambda: obstore.get(self._client, self._key(config.FILE)))
            if found.meta["size"] > config.MAX_BYTES:
                raise self._broken("is too large for a configuration")
            return self._asked("read", lambda: found.bytes().to_bytes()).decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise self._broken("is not text") from None

    def _broken(self, how: str) -> ConfigError:
        path = f"{self.location}/{config.FILE}"
        return ConfigError(f"{path} {how}", remedy="correct it by hand", path=path)

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
        paths = [meta["path"].removeprefix(f"{within}/") for meta in found]
        # Nothing else puts objects below `private/`: there are no links there, and no folders to be kept.
        if not all(path.startswith("private/") or is_ours(path) for path in paths):
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

    def read_origin(self, name: str) -> bytes | None:
        import obstore

        key = self._key(DATASETS, ORIGINS, f"{check_name(name)}.json")
        try:
            return self._asked("read", lambda: obstore.get(self._client, key).bytes().to_bytes())
        except FileNotFoundError:
            return None

    def write_origin(self, name: str, data: bytes | None) -> None:
        import obstore

        key = self._key(DATASETS, ORIGINS, f"{check_name(name)}.json")
        if data is not None:
            self._asked("write to", lambda: obstore.put(self._client, key, data))
            return
        with suppress(FileNotFoundError):
            self._asked("remove from", lambda: obstore.delete(self._client, key))


def _home(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    # The rule of the XDG specification: a relative path there counts as not set.
    return Path(given) if os.path.isabs(given) else Path.home() / default  # noqa: PTH117 ("" is not a path)
