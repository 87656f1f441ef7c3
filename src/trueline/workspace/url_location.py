"""A workspace below an object-store URL."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from trueline.chain.store.folders import Inside
from trueline.chain.store.open import below, open_store
from trueline.chain.store.store import Store, is_ref
from trueline.errors import ConfigError, StorageReadOnly, StoreError
from trueline.workspace import settings_file
from trueline.workspace.locations import (
    CATALOGUE,
    CUTS,
    DATASETS,
    ORIGINS,
    TAGS,
    damaged_cut,
    damaged_document,
    is_busy,
    is_of_dataset,
    is_ours,
)
from trueline.workspace.names import check_name, is_name
from trueline.workspace.small_objects import CatalogueBytes, Damaged, SmallObjects, UrlObjects

T = TypeVar("T")
# How often a creation that met others, all of which were refused, is tried.
_ATTEMPTS: Final = 8


class UrlPlace:
    """A workspace in an object store; what is private stays on this machine.

    Indexes can be rebuilt and lie under `XDG_CACHE_HOME`; keys cannot and
    lie under `XDG_DATA_HOME`.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        from trueline.chain.store.object_client import connect

        self.location = url.rstrip("/")
        self.catalogue = f"{self.location}/{DATASETS}/{CATALOGUE}"
        self.tags = f"{self.location}/{DATASETS}/{TAGS}"
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

        try:
            return ask()
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            raise self._refused(doing, error) from error

    def _refused(self, doing: str, error: Exception) -> StoreError:
        from trueline.chain.store.object_client import first_line, is_refusal

        kind = StorageReadOnly if doing == "write to" and is_refusal(error) else StoreError
        return kind(
            f"cannot {doing} {self.location}: {first_line(error)}",
            remedy="check address, permissions, the network and the option endpoint, then try again",
            path=self.location,
        )

    def read_config(self) -> str | None:
        return self._read_config()[0]

    def _read_config(self) -> tuple[str | None, Any]:
        """Return the text of the settings, and what the store tells its version by."""
        import obstore

        try:
            found = self._asked("read", lambda: obstore.get(self._client, self._key(settings_file.FILE)))
            if found.meta["size"] > settings_file.MAX_BYTES:
                raise self._broken("is too large for a configuration")
            return self._asked("read", lambda: found.bytes().to_bytes()).decode(), found.meta
        except FileNotFoundError:
            return None, None
        except UnicodeDecodeError:
            raise self._broken("is not text") from None

    def _broken(self, how: str) -> ConfigError:
        path = f"{self.location}/{settings_file.FILE}"
        return ConfigError(f"{path} {how}", remedy="correct it by hand", path=path)

    def swap_config(self, kept: str, text: str) -> str | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        from trueline.chain.store.object_client import condition

        found, version = self._read_config()
        if found is not None and found != kept:
            return found
        try:
            obstore.put(self._client, self._key(settings_file.FILE), text.encode(), mode=condition(version))
        except (BaseError, OSError) as error:
            now = self.read_config()
            if now == text:  # the library may have sent a request again that had been done
                return None
            if now is not None and isinstance(error, AlreadyExistsError | PreconditionError):
                return now
            raise self._refused("write to", error) from error
        return None

    def create_config(self, text: str) -> None:
        """Write the configuration unless there is one: of several who create at once, one wins."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        key = self._key(settings_file.FILE)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                obstore.put(self._client, key, text.encode(), mode="create")
                return
            except (BaseError, OSError) as error:
                # Also where the library has sent a request again that had been done.
                if self.read_config() is not None:
                    return
                # S3 may refuse all of several writes that meet; then nothing is there yet.
                met = isinstance(error, AlreadyExistsError | PreconditionError)
                if not met or attempt == _ATTEMPTS:
                    raise self._refused("write to", error) from error

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
        return sorted(ref for ref in self._below(DATASETS, check_name(name), "refs")[1] if is_ref(ref))

    def exists(self, name: str) -> bool:
        return check_name(name) in self._below(DATASETS)[0]

    def remove_unfinished(self, name: str, before: float, *, dry_run: bool) -> bool:
        import obstore

        within = self._key(DATASETS, check_name(name))
        found = self._asked("list", lambda: [m for page in obstore.list(self._client, within) for m in page])
        paths = [meta["path"].removeprefix(f"{within}/") for meta in found]
        # Nobody else puts objects below `private/`: there are no links there, and no folders to be kept.
        if not all(path.startswith("private/") or is_ours(path) for path in paths):
            return False
        store = self.store(name, durable=True)
        # Ages by the clock that stamps the objects, not by this machine's.
        before += store.clock() - time.time()
        if any(meta["last_modified"].timestamp() >= before for meta in found) or is_busy(store):
            return False
        if not dry_run:
            # A creation that was given up, and sleeps, cannot set its head any more.
            if store.fence() is not None or store.head() is not None:
                return False
            self._asked("remove from", lambda: obstore.delete(self._client, [meta["path"] for meta in found]))
        return True

    def remove_deleted(self, name: str, *, dry_run: bool) -> bool:
        import obstore

        store = self.store(name, durable=True)
        try:
            # Once fenced, a commit that sleeps cannot set the head of what is being removed.
            if (store.oldest_lease() if dry_run else store.fence()) is not None:
                return False
        finally:
            store.close()
        within = self._key(DATASETS, check_name(name))
        found = self._asked("list", lambda: [m for page in obstore.list(self._client, within) for m in page])
        paths = {meta["path"]: meta["path"].removeprefix(f"{within}/") for meta in found}
        ours = [key for key, path in paths.items() if path.startswith("private/") or is_of_dataset(path)]
        if not dry_run:
            self._asked("remove from", lambda: obstore.delete(self._client, ours))
        return len(ours) == len(paths)

    def read_catalogue(self) -> CatalogueBytes:
        return self._documents.read(CATALOGUE)

    def swap_catalogue(self, kept: CatalogueBytes, data: bytes) -> bool:
        return self._documents.swap(CATALOGUE, kept, data)

    def read_tags(self) -> CatalogueBytes:
        return self._documents.read(TAGS)

    def swap_tags(self, kept: CatalogueBytes, data: bytes) -> bool:
        return self._documents.swap(TAGS, kept, data)

    def cuts(self) -> SmallObjects:
        return self._objects(self._key(DATASETS, CUTS), f"{self.location}/{DATASETS}/{CUTS}", damaged_cut)

    @property
    def _documents(self) -> SmallObjects:
        return self._objects(self._key(DATASETS), f"{self.location}/{DATASETS}", damaged_document)

    def _objects(self, key: str, location: str, damaged: Damaged) -> SmallObjects:
        return UrlObjects(self._client, key, location, damaged, self._refused)

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
    return Path(given) if os.path.isabs(given) else Path.home() / default  # noqa: PTH117 ("" is no path)
