"""The datasets of a workspace: found by name, opened once, forgotten where they are gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from trueline.chain.chain import Chain
from trueline.chain.store.folders import Inside, remove_database
from trueline.dataset.lost_head import is_lost
from trueline.errors import BadName, CorruptionError
from trueline.limits import limits_of
from trueline.workspace import config
from trueline.workspace.catalogue import Catalogue, CatalogueEntry, FoundDataset
from trueline.workspace.dataset import Dataset
from trueline.workspace.locations import Place
from trueline.workspace.names import check_name, is_name, not_found
from trueline.workspace.spark_sessions import Rooms
from trueline.workspace.tags import Tags
from trueline.workspace.transfer.origin import forget_origin, forget_unfinished, is_unfinished

if TYPE_CHECKING:
    from trueline.chain.instant import Instant
    from trueline.identity.dataset_id import DatasetId
    from trueline.identity.multihash import Multihash
    from trueline.workspace.workspace import Workspace


class OpenDatasets:
    """What a workspace holds, by name: a mapping from names to datasets that are opened when asked for."""

    def __init__(
        self, place: Place, settings: config.Config, spark: Any = None, *, trusted_sql: bool = False
    ) -> None:
        self._location = place
        self.location = place.location
        self.config = settings
        settings.on_change = self._limit
        self._spark = Rooms(spark, settings)
        self.trusted_sql = trusted_sql
        # What says what time it is, if not the system; with it commits can be made again, hash for hash.
        self.clock: Callable[[], Instant] | None = None
        # By folder: a dataset that was renamed is the same one.
        self._open: dict[str, Dataset] = {}
        # The ids of datasets that are known to be roots, which they stay: to know them again takes no read.
        self._known_roots: set[str] = set()
        self._catalogue = Catalogue(place, self._look)
        self._tags = Tags(place)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        # Of the transactions that code is in: what it appends to joins them.
        self._joins: ContextVar[tuple[Callable[[DatasetId], None], ...]] = ContextVar("joins", default=())

    def __iter__(self) -> Iterator[str]:
        return iter([entry.name for entry in self._catalogue.entries()])

    def __len__(self) -> int:
        return len(self._catalogue.entries())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        try:
            return is_name(name) and self._catalogue.find(str(name)) is not None
        except BadName:
            return False  # a link that leads out of the workspace

    def __getitem__(self, name: str) -> Dataset:
        if str(name).startswith("did:"):
            # What lost its name to a successor is still found by its id.
            name = self._names_by_id().get(name, name)
        entry = self._catalogue.find(check_name(name))
        if entry is None:
            self._location.exists(name)  # a link that leads out of the workspace raises
            raise not_found(name, self, self.location)
        return self._dataset(entry)

    def datasets(self) -> list[Dataset]:
        """Return the datasets, by name."""
        return [self._dataset(entry) for entry in self._catalogue.entries()]

    def _index_path(self, folder: str) -> Path:
        """Where the private index of a dataset is; it may be deleted at any time."""
        return self._location.private / "index" / f"{folder}.sqlite"

    def _index_of(self, folder: str) -> Inside:
        return self._location.inside(self._index_path(folder))

    def _dataset(self, entry: CatalogueEntry) -> Dataset:
        """Return the dataset of an entry, under the name that it has now."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked child opens its own files.
                self._open, self._pid = {}, os.getpid()
            dataset = self._open.get(entry.folder)
            if dataset is None:
                store = self._location.store(entry.folder, durable=self.config["storage.durable"])
                index = self._index_of(entry.folder)
                chain = Chain(store, index=index)
                chain.limits = limits_of(self.config)
                chain.tags = partial(self._tags_of, chain)
                dataset = self._open[entry.folder] = Dataset(
                    cast("Workspace", self), entry.name, chain, index, entry.folder
                )
            dataset.name = entry.name
            return dataset

    def _limit(self) -> None:
        """Hold the open datasets to the limits that are set now, and work where it is set."""
        self._spark.may_work = None
        with self._lock:
            for dataset in self._open.values():
                dataset.chain.limits = limits_of(self.config)

    def _look(self, folder: str) -> FoundDataset | None:
        """Say whether a folder is a dataset: once it has a head, or when it has lost one."""
        try:
            with self._lock:
                known = self._open.get(folder)
            chain = (known or self._dataset(CatalogueEntry(folder, folder))).chain
        except BadName:
            return None
        try:
            if chain.store.head() is None and (
                not is_lost(chain.store, self._index_of(folder)) or is_unfinished(self._location, folder)
            ):
                return None
            tail = chain.tail()
        except CorruptionError:
            return FoundDataset(None)
        return FoundDataset(None if tail is None else str(tail.dataset_id))

    def _names_by_id(self) -> dict[str, str]:
        """Return the names of the datasets by their ids; only those whose id was not readable are opened."""
        found: dict[str, str] = {}
        for entry in self._catalogue.entries():
            known = entry.id
            if known is None and (now := self._look(entry.folder)) is not None:
                known = now.id
            if known is not None:
                found[known] = entry.name
        return found

    def _rename(self, dataset: Dataset, name: str) -> None:
        self._catalogue.rename(dataset._folder, name)
        dataset.name = name

    def _unborn(self, name: str) -> Dataset:
        """Return the place of a dataset that is yet to come; its name must not be too like another's."""
        entry = self._catalogue.reserve(check_name(name))
        if entry.creating is not None:
            if not self._location.exists(entry.folder):
                self._forget(entry.folder)
                forget_origin(self._location, entry.folder)
            forget_unfinished(self._location, entry.folder)
        return self._dataset(entry)

    def _forget(self, folder: str) -> None:
        """Drop what is remembered of a dataset whose folder somebody has removed."""
        with self._lock:
            dataset = self._open.pop(folder, None)
        if dataset is not None:
            dataset.chain.close()
        remove_database(self._index_of(folder))

    def _tags_of(self, chain: Chain) -> dict[str, Multihash]:
        tail = chain.tail()
        return {} if tail is None else self._tags.of(str(tail.dataset_id))

    def close(self) -> None:
        """Close what is open; it can be used again."""
        with self._lock:
            for dataset in self._open.values():
                dataset.chain.close()
            self._open.clear()
        self._spark.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
