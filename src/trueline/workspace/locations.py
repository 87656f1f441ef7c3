"""Where a workspace keeps its things: in a folder, or (`url_location`) below an object-store URL."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from trueline.chain.store.file import FileStore
from trueline.chain.store.files import make_folders
from trueline.chain.store.folders import Inside, remove_tree
from trueline.chain.store.leases import is_private
from trueline.chain.store.options import nested
from trueline.chain.store.store import Folder, Store, is_ref
from trueline.errors import BadName, CatalogueDamaged, CorruptionError, InputError
from trueline.identity.dataset_id import DatasetId, DatasetKey
from trueline.workspace import settings_file
from trueline.workspace.names import check_name, is_name
from trueline.workspace.small_objects import CatalogueBytes, FolderObjects, SmallObjects, locked, refusing

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OBJECT: Final = re.compile(r"f[0-9a-f]{68,74}")
# Names of `open` and `clone` that are not options of a provider.
_OURS: Final = frozenset({"path", "create", "spark", "trusted_sql", "url", "name", "force", "expected_head"})
DATASETS: Final = "datasets"
# Beside the datasets, so that they go where the datasets go; no dataset can have such a name.
ORIGINS: Final = ".origins"
CATALOGUE: Final = ".catalogue"
TAGS: Final = ".tags"
CUTS: Final = ".cuts"


def catalogue_damaged(path: str, how: str) -> CatalogueDamaged:
    """The error of a catalogue that cannot be relied on; names are not guessed, rows would go astray."""
    return CatalogueDamaged(
        f"{path}, the catalogue of names, is damaged: {how}",
        remedy="restore it from a copy; or remove it: it is made again, "
        "and each dataset has the name of its folder",
        path=path,
    )


def tags_damaged(path: str, how: str) -> CorruptionError:
    """The error of tags that cannot be relied on; what they keep from `gc` is not known."""
    return CorruptionError(
        f"{path}, the tags, is damaged: {how}",
        remedy="restore it from a copy; or remove it, and tag the commits again",
        code="TagsDamaged",
        path=path,
    )


def cuts_damaged(path: str, how: str) -> CorruptionError:
    """The error of a part of the log of cuts that cannot be relied on."""
    return CorruptionError(
        f"{path}, a part of the log of cuts, is damaged: {how}",
        remedy="restore it from a copy; or remove the whole log, the folder it is in: cuts are then "
        "numbered from 1 again, and the datasets lose nothing",
        code="CutsDamaged",
        path=path,
    )


_DAMAGED: Final = {CATALOGUE: catalogue_damaged, TAGS: tags_damaged}


def damaged_document(name: str, path: str, how: str) -> CorruptionError:
    """The error of a document beside the datasets that cannot be relied on."""
    return _DAMAGED[name](path, how)


def damaged_cut(name: str, path: str, how: str) -> CorruptionError:
    """The error of an object of the log of cuts, whichever it is."""
    del name
    return cuts_damaged(path, how)


class Place(Protocol):
    """What a workspace asks of the place it is in."""

    location: str
    catalogue: str  # where the catalogue is, for people
    tags: str  # where the tags are, for people
    private: Path  # a local folder for what can be rebuilt: indexes
    keys: Path  # a local folder for what cannot: private keys

    def inside(self, path: Path) -> Inside:
        """Return a path at or below `private` or `keys` as a place on whose way no link is followed."""

    def read_config(self) -> str | None:
        """Return the text of `trueline.toml`, None if there is no workspace here."""

    def create_config(self, text: str) -> None:
        """Write `trueline.toml` unless there is one."""

    def swap_config(self, kept: str, text: str) -> str | None:
        """Replace `trueline.toml` if it is still what was `kept`; otherwise return what it is now."""

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

    def remove_deleted(self, name: str, *, dry_run: bool) -> bool:
        """Remove the files of a deleted dataset; False if some stay: others', or of a commit in flight."""

    def read_catalogue(self) -> CatalogueBytes:
        """Return the catalogue of names as it is."""

    def swap_catalogue(self, kept: CatalogueBytes, data: bytes) -> bool:
        """Replace the catalogue durably if it is still what was `kept`; False if it is not."""

    def read_tags(self) -> CatalogueBytes:
        """Return the tags as they are."""

    def swap_tags(self, kept: CatalogueBytes, data: bytes) -> bool:
        """Replace the tags durably if they are still what was `kept`; False if they are not."""

    def cuts(self) -> SmallObjects:
        """Return the objects of the log of cuts, beside the datasets."""

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
        from trueline.workspace.url_location import UrlPlace

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


class FolderPlace:
    """A workspace in a folder; private things are in `.trueline/`."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 (resolve() would follow links)
        self.location = str(self.path)
        self.catalogue = str(self.path / DATASETS / CATALOGUE)
        self.tags = str(self.path / DATASETS / TAGS)
        self.private = self.path / settings_file.PRIVATE
        self.keys = self.private / "keys"

    def inside(self, path: Path) -> Inside:
        return Inside(self.path, path.relative_to(self.path).parts)

    def read_config(self) -> str | None:
        return settings_file.read_settings(self.inside(self.path / settings_file.FILE))

    def create_config(self, text: str) -> None:
        with refusing("write", self.path / settings_file.FILE):
            make_folders(self.path)
            with self._datasets.folder(make=True, durable=True):
                self.inside(self.path / settings_file.FILE).write(text.encode(), replace=False)

    def swap_config(self, kept: str, text: str) -> str | None:
        path = self.path / settings_file.FILE
        with (
            refusing("write", path),
            self._datasets.folder(make=True, durable=True) as within,
            locked(f".{settings_file.FILE}.lock", within),
        ):
            found = self.read_config()
            if found is not None and found != kept:
                return found
            self.inside(path).write(text.encode(), replace=True)
            return None

    @property
    def _datasets(self) -> Inside:
        return Inside(self.path, (DATASETS,))

    def names(self) -> Iterator[str]:
        with refusing("list", self.path / DATASETS):
            found = self._datasets.listing()
        for name, of in found:
            if is_name(name) and (stat.S_ISDIR(of.st_mode) or self._is_second_name(name, of)):
                yield name

    def _is_second_name(self, name: str, of: os.stat_result) -> bool:
        """Say whether a link leads to another dataset of this workspace."""
        try:
            return stat.S_ISLNK(of.st_mode) and bool(self._folder(name))
        except BadName:
            return False

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
        return [file for file, of in found if stat.S_ISREG(of.st_mode) and is_ref(file)]

    def exists(self, name: str) -> bool:
        return os.path.lexists(self._folder(name))

    def remove_unfinished(self, name: str, before: float, *, dry_run: bool) -> bool:
        folder = self._datasets / check_name(name)
        with refusing("remove", folder.path), self._datasets.folder() as datasets:
            found = _contents(name, datasets)
            if found is None or not all(is_ours(path) for path in found if path):
                return False
            if max(found.values()) >= before or is_busy(FileStore(folder)):
                return False
            if not dry_run:
                # Renamed first: a creation that begins at this moment is seen there, and put back.
                aside = f".{name}.{os.urandom(4).hex()}"
                os.rename(name, aside, src_dir_fd=datasets, dst_dir_fd=datasets)
                if is_busy(FileStore(self._datasets / aside)):
                    os.rename(aside, name, src_dir_fd=datasets, dst_dir_fd=datasets)
                    return False
                remove_tree(aside, datasets)
        return True

    def remove_deleted(self, name: str, *, dry_run: bool) -> bool:
        folder = self._datasets / check_name(name)
        with refusing("remove", folder.path):
            found = folder.stat()
            if found is not None and stat.S_ISLNK(found.st_mode):
                # The dataset has another folder, which stays.
                if not dry_run:
                    folder.remove()
                return True
            if is_in_flight(FileStore(folder)):
                return False
            if not dry_run:
                folder.remove_own(is_of_dataset)
        return dry_run or not os.path.lexists(folder)

    def read_catalogue(self) -> CatalogueBytes:
        return self._documents.read(CATALOGUE)

    def swap_catalogue(self, kept: CatalogueBytes, data: bytes) -> bool:
        return self._documents.swap(CATALOGUE, kept, data)

    def read_tags(self) -> CatalogueBytes:
        return self._documents.read(TAGS)

    def swap_tags(self, kept: CatalogueBytes, data: bytes) -> bool:
        return self._documents.swap(TAGS, kept, data)

    def cuts(self) -> SmallObjects:
        return FolderObjects(self._datasets / CUTS, damaged_cut)

    @property
    def _documents(self) -> SmallObjects:
        return FolderObjects(self._datasets, damaged_document)

    def read_origin(self, name: str) -> bytes | None:
        path = self._origin(name)
        with refusing("read", path.path):
            return path.read_small()

    def write_origin(self, name: str, data: bytes | None) -> None:
        path = self._origin(name)
        with refusing("write", path.path):
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


def is_ours(path: str) -> bool:
    """Say whether a file below a dataset is one that we write, and not something people keep there."""
    folder, _, leaf = path.partition("/")
    if folder == "private":
        return is_private(leaf)
    return folder in tuple(Folder) and _OBJECT.fullmatch(leaf) is not None


def is_of_dataset(path: str) -> bool:
    """Say whether a file below a dataset is part of it: what we write, and its refs."""
    folder, _, leaf = path.partition("/")
    return is_ours(path) or (folder == "refs" and is_ref(leaf))


def is_in_flight(store: Store) -> bool:
    """Say whether a commit is in flight."""
    try:
        return store.oldest_lease() is not None
    finally:
        store.close()


def is_busy(store: Store) -> bool:
    """Say whether a dataset has a head, or somebody is about to give it one."""
    try:
        return store.head() is not None or store.oldest_lease() is not None
    finally:
        store.close()


def _key_path(place: Place, dataset_id: DatasetId) -> Inside:
    return place.inside(place.keys / f"{dataset_id.removeprefix('did:odf:')}.key")


def holds_key(place: Place, dataset_id: DatasetId) -> bool:
    """Say whether a dataset is one's own: whether its private key is here."""
    found = _key_path(place, dataset_id).stat()
    return found is not None and stat.S_ISREG(found.st_mode)


def keep_key(place: Place, key: DatasetKey) -> Inside:
    """Store the private half of a dataset's key where only its owner can read it."""
    path = _key_path(place, key.id)
    with refusing("write", path.path):
        text = key.private_bytes().hex().encode() + b"\n"
        path.write(text, replace=False, mode=0o600, folder_mode=0o700)
    return path
