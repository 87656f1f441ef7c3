"""The catalogue of a workspace: what its datasets are called, and which of them has which id.

A dataset lives in a folder that never changes; its name is what the catalogue says. The folders decide
which datasets there are: one that was removed is gone, whatever the catalogue says, and one that somebody
put there is taken up under the name of its folder. So the catalogue is read once for any number of names,
and no dataset is opened to find another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from trueline.chain.instant import Instant
from trueline.errors import (
    BadName,
    DatasetExists,
    DatasetNotFound,
    RetryError,
    StoreError,
    UnsupportedVersion,
)
from trueline.workspace.locations import Place, catalogue_damaged
from trueline.workspace.names import check_name, is_name, same_but_for_case
from trueline.workspace.small_objects import CatalogueBytes

_FORMAT: Final = "trueline/catalogue"
# What says that a dataset was deleted is version 2: software that knows version 1 alone would show it.
_VERSION: Final = 1
_WITH_DELETED: Final = 2
_KEYS: Final = ("folder", "name", "id", "creating", "deleted")
_ID: Final = re.compile(r"did:[a-z0-9]{1,20}:[A-Za-z0-9._:%-]{1,500}")
# Each attempt that fails means that somebody else's succeeded.
_ATTEMPTS: Final = 1000
# Room for a number behind a name that is as long as names may be.
_STEM: Final = 120


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A dataset's folder, its name and its id (None where it could not be read).

    `creating` is the moment at which the name was reserved for a dataset that has no head yet; `deleted`
    the one at which it was deleted: its name is free, its folder is kept until `gc` collects it.
    """

    folder: str
    name: str
    id: str | None = None
    creating: Instant | None = None
    deleted: Instant | None = None


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """What is in a folder that the catalogue does not know: a dataset, and its id if that can be read."""

    id: str | None


Entries = dict[str, CatalogueEntry]
Look = Callable[[str], FoundDataset | None]


def to_bytes(entries: Iterable[CatalogueEntry]) -> bytes:
    """Write entries as the canonical document.

    >>> to_bytes([CatalogueEntry("sales", "orders", "did:odf:fed01…")]).decode()[:52]
    '{"datasets":[{"folder":"sales","id":"did:odf:fed01…"'
    """
    datasets = [_to_dict(entry) for entry in sorted(entries, key=lambda entry: entry.folder)]
    version = _WITH_DELETED if any("deleted" in each for each in datasets) else _VERSION
    document = {"format": _FORMAT, "version": version, "datasets": datasets}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _to_dict(entry: CatalogueEntry) -> dict[str, str | None]:
    values: dict[str, str | None] = {"folder": entry.folder, "name": entry.name, "id": entry.id}
    moments = {"creating": entry.creating, "deleted": entry.deleted}
    return values | {key: str(moment) for key, moment in moments.items() if moment is not None}


def from_bytes(raw: bytes, path: str) -> Entries:
    """Read the document, by folder; names that lead elsewhere, or that two datasets have, are damage."""
    try:
        entries: Entries = {}
        names: set[str] = set()
        for entry in map(_from_dict, _datasets(raw, path)):
            if entry.folder in entries or (entry.deleted is None and entry.name in names):
                raise catalogue_damaged(path, f"it has {entry.name!r} in {entry.folder!r} and elsewhere")
            entries[entry.folder] = entry
            if entry.deleted is None:
                names.add(entry.name)
    except UnsupportedVersion:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise catalogue_damaged(path, str(error) or type(error).__name__) from None
    return entries


def _datasets(raw: bytes, path: str) -> list[Any]:
    document = json.loads(raw)
    form, version, datasets = document["format"], document["version"], document["datasets"]
    if form != _FORMAT or type(version) is not int or not isinstance(datasets, list):
        raise ValueError(f"its format is {form!r:.80}, version {version!r:.80}")
    if version not in (_VERSION, _WITH_DELETED):
        raise UnsupportedVersion(
            f"{path} has version {version}, this Trueline knows {_VERSION} and {_WITH_DELETED}",
            remedy="use the newer Trueline that wrote it",
            path=path,
            version=version,
        )
    return datasets


def _from_dict(value: Mapping[str, Any]) -> CatalogueEntry:
    folder, name, dataset_id, creating, deleted = (value.get(key) for key in _KEYS)
    if unknown := set(value) - set(_KEYS):
        raise ValueError(f"it has an unknown field {min(unknown)!r:.80}")
    for text in (folder, name):
        if not is_name(text):
            raise ValueError(f"{text!r:.80} cannot name a dataset")
    if dataset_id is not None and not _ID.fullmatch(dataset_id):
        raise ValueError(f"{dataset_id!r:.80} is not the id of a dataset")
    moments = (None if moment is None else Instant.parse(moment) for moment in (creating, deleted))
    return CatalogueEntry(str(folder), str(name), dataset_id, *moments)


class Catalogue:
    """The catalogue in its place, and the folders beside it; `look` says what is in an unknown folder."""

    def __init__(self, place: Place, look: Look) -> None:
        self._place = place
        self._look = look
        self._known: tuple[bytes, Entries] | None = None

    # --- finding ----------------------------------------------------------------------

    def entries(self) -> list[CatalogueEntry]:
        """Return the datasets there are, by name; folders that were put there are taken up."""
        for _ in range(_ATTEMPTS):
            kept = self._place.read_catalogue()
            known, folders = self._entries(kept), set(self._place.names())
            now = self._complete(known, folders)
            # A reader who may not write finds the same names next time.
            with suppress(StoreError):
                if now != known and not self._swap(kept, now):
                    continue
            live = (entry for entry in now.values() if entry.folder in folders and _is_live(entry))
            return sorted(live, key=lambda entry: entry.name)
        raise self._crowded()

    def find(self, name: str) -> CatalogueEntry | None:
        """Return the dataset of a name, None if there is none."""
        known = self._entries(self._place.read_catalogue())
        entry = next((entry for entry in known.values() if entry.name == name and _is_live(entry)), None)
        if entry is not None and self._place.exists(entry.folder):
            return entry
        return next((entry for entry in self.entries() if entry.name == name), None)

    def deleted(self) -> list[CatalogueEntry]:
        """Return the datasets that were deleted and not collected yet."""
        known = self._entries(self._place.read_catalogue())
        return [entry for entry in known.values() if entry.deleted is not None]

    # --- changing ---------------------------------------------------------------------

    def reserve(self, name: str) -> CatalogueEntry:
        """Return the folder for a dataset that is to be made, its name kept from others; or the dataset.

        Whoever makes the same name at the same time gets the same folder, where the head decides.
        """
        reserved: list[CatalogueEntry] = []

        def change(now: Entries, folders: Collection[str]) -> Entries:
            reserved[:] = [e for e in now.values() if e.name == name and e.deleted is None]
            if reserved and (reserved[0].creating is not None or reserved[0].folder in folders):
                return now
            others = [folder for folder in folders if folder not in now]
            _refuse_twin(name, [*_names(now, folders), *others])
            free = _without(now, name, folders)
            folder = _folder_for(name, free, folders)
            self._place.exists(folder)  # a link that leads out of the workspace raises
            reserved[:] = [CatalogueEntry(folder, name, creating=Instant.now())]
            return free | {folder: reserved[0]}

        self._change(change)
        return reserved[0]

    def confirm(self, folder: str, dataset_id: str) -> None:
        """Put down that a dataset has a head, and which id; where that fails the next reader does it."""

        def change(now: Entries, folders: Collection[str]) -> Entries:
            if folder in now and now[folder].deleted is not None:
                return now
            name = now[folder].name if folder in now else _free_name(folder, now, folders)
            return _without(now, name, folders) | {folder: CatalogueEntry(folder, name, dataset_id)}

        with suppress(StoreError):
            self._change(change)

    def rename(self, folder: str, new: str) -> None:
        """Give the dataset in a folder another name, which nobody may have."""

        def change(now: Entries, folders: Collection[str]) -> Entries:
            entry = self._present(folder, now, folders)
            rest = {key: other for key, other in now.items() if key != folder}
            _refuse_taken(new, rest, folders, self._place.location)
            return _without(rest, new, folders) | {folder: replace(entry, name=new)}

        check_name(new)
        self._change(change)

    def exchange(self, folder: str, former: str, successor: str, name: str) -> None:
        """Give the name of one dataset to another, and the first one another name, in one step."""

        def change(now: Entries, folders: Collection[str]) -> Entries:
            old, new = (self._present(each, now, folders) for each in (folder, successor))
            rest = {key: other for key, other in now.items() if key not in (folder, successor)}
            _refuse_taken(former, rest, folders, self._place.location)
            return rest | {folder: replace(old, name=former), successor: replace(new, name=name)}

        check_name(former)
        self._change(change)

    def delete(self, folder: str) -> None:
        """Put down that the dataset in a folder was deleted; its name is free from then on."""

        def change(now: Entries, folders: Collection[str]) -> Entries:
            return now | {folder: replace(self._present(folder, now, folders), deleted=Instant.now())}

        self._change(change)

    def _present(self, folder: str, now: Entries, folders: Collection[str]) -> CatalogueEntry:
        entry = now.get(folder)
        if entry is not None and folder in folders and entry.deleted is None:
            return entry
        raise DatasetNotFound(
            f"the dataset in the folder {folder!r} is no longer in {self._place.location}",
            remedy="look at what there is: `trueline list`",
            name=folder,
        )

    def release(self, folder: str) -> None:
        """Give back the name of a creation that failed; where that cannot be done `sweep` does it later."""

        def change(now: Entries, _folders: Collection[str]) -> Entries:
            return {key: entry for key, entry in now.items() if key != folder or entry.creating is None}

        with suppress(StoreError):
            self._change(change)

    def sweep(self, before: float) -> None:
        """Give back names that were reserved before a moment and of which there is not even a folder.

        Datasets whose folder is gone stay known: one that is put back has its name again. Those that were
        deleted are forgotten with their folder.
        """

        def change(now: Entries, folders: Collection[str]) -> Entries:
            return {
                folder: entry
                for folder, entry in now.items()
                if folder in folders or _is_live(entry) or int(entry.creating or 0) / 1e9 >= before
            }

        self._change(change)

    def _change(self, change: Callable[[Entries, Collection[str]], Entries]) -> None:
        """Read, change and swap, as often as others were faster."""
        for _ in range(_ATTEMPTS):
            kept = self._place.read_catalogue()
            known, folders = self._entries(kept), set(self._place.names())
            now = change(self._complete(known, folders), folders)
            if now == known or self._swap(kept, now):
                return
        raise self._crowded()

    # --- inside -----------------------------------------------------------------------

    def _entries(self, kept: CatalogueBytes) -> Entries:
        if kept.raw is None:
            return {}
        if self._known is None or self._known[0] != kept.raw:
            self._known = (kept.raw, from_bytes(kept.raw, self._place.catalogue))
        return self._known[1]

    def _complete(self, known: Entries, folders: Collection[str]) -> Entries:
        """Take up the datasets in folders that are not known, or whose creation was not confirmed."""
        now = known
        for folder in sorted(folders):
            entry = now.get(folder)
            if entry is not None and entry.creating is None:
                continue  # known, deleted or not
            found = self._look(folder)
            if found is not None:
                name = entry.name if entry is not None else _free_name(folder, now, folders)
                now = _without(now, name, folders) | {folder: CatalogueEntry(folder, name, found.id)}
        return now

    def _swap(self, kept: CatalogueBytes, now: Entries) -> bool:
        return self._place.swap_catalogue(kept, to_bytes(now.values()))

    def _crowded(self) -> RetryError:
        return RetryError(
            f"{self._place.catalogue} was changed by others {_ATTEMPTS:,} times in a row",
            remedy="nothing was changed; try again",
            code="CatalogueBusy",
        )


def _is_live(entry: CatalogueEntry) -> bool:
    return entry.creating is None and entry.deleted is None


def _names(entries: Entries, folders: Collection[str]) -> list[str]:
    """The names that are taken: of datasets whose folder is there, and reserved ones."""
    there = (e for e in entries.values() if e.folder in folders or e.creating is not None)
    return [entry.name for entry in there if entry.deleted is None]


def _without(entries: Entries, name: str, folders: Collection[str]) -> Entries:
    """Leave out the dataset that had a name and whose folder somebody has removed."""
    return {
        folder: entry
        for folder, entry in entries.items()
        if entry.name != name or folder in folders or entry.creating is not None
    }


def _numbered(stem: str) -> Iterable[str]:
    yield stem
    yield from (f"{stem[:_STEM]}.{number}" for number in range(2, 1_000_000))


def _free_name(folder: str, entries: Entries, folders: Collection[str]) -> str:
    """Return the name of a dataset that was found: that of its folder, unless another has it by now."""
    taken = set(_names(entries, folders))
    return next(name for name in _numbered(folder) if name not in taken)


def _folder_for(name: str, entries: Entries, folders: Collection[str]) -> str:
    """Return the folder of a new dataset: one that no file system takes for another's."""
    taken = {folder.lower() for folder in entries}
    for folder in _numbered(name):
        if folder.lower() not in taken and same_but_for_case(folder, folders) is None:
            return folder
    raise AssertionError("there are fewer datasets than numbers")


def _refuse_twin(name: str, others: Iterable[str]) -> None:
    twin = same_but_for_case(name, others)
    if twin is not None:
        raise BadName(
            f"{name!r} and {twin!r} differ only by case, which some file systems cannot tell apart",
            remedy="choose another name",
            name=name,
        )


def _refuse_taken(name: str, others: Entries, folders: Collection[str], location: str) -> None:
    for other in (entry for entry in others.values() if entry.deleted is None):
        if other.name == name and other.creating is not None:
            raise DatasetExists(
                f"the name {name!r} is reserved in {location} by a creation that has not finished",
                remedy="choose another name; `trueline gc` gives it back once the creation was given up",
                name=name,
            )
        if other.name == name and other.folder in folders:
            raise DatasetExists(
                f"there is a dataset {name!r} in {location} already", remedy="choose another name", name=name
            )
    _refuse_twin(name, _names(others, folders))
