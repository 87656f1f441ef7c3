"""A workspace: datasets that live together, by name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trueline import merge as merges
from trueline.chain.chain import Chain
from trueline.chain.store.folders import Inside, remove_database
from trueline.chain.verify import Progress, VerificationReport
from trueline.dataset.append.new_columns import NewColumns, checked_policy
from trueline.dataset.definition import Definition, check_options
from trueline.dataset.duration import seconds
from trueline.dataset.lost_head import is_lost
from trueline.errors import (
    BadName,
    CorruptionError,
    WorkspaceNotFound,
)
from trueline.limits import limits_of
from trueline.merge import Strategy
from trueline.workspace import config, settings_file
from trueline.workspace import tags as tagging
from trueline.workspace.catalogue import Catalogue, CatalogueEntry, FoundDataset
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.dataset import Dataset
from trueline.workspace.locations import Place, folder_of, place_of
from trueline.workspace.names import check_name, is_name, not_found
from trueline.workspace.spark_sessions import Rooms
from trueline.workspace.tags import Tag, Tags
from trueline.workspace.transfer.origin import forget_origin, forget_unfinished, is_unfinished

if TYPE_CHECKING:
    import pyarrow as pa

    from trueline.chain.datatypes import DataSchema
    from trueline.chain.instant import Instant
    from trueline.dataset.commit import Commit
    from trueline.identity.multihash import Multihash
    from trueline.run import Observer
    from trueline.view import Schema, View
    from trueline.workspace.gc import Swept
    from trueline.workspace.pull import DeclaredSource, PullReport


def open(  # noqa: A001 (the promised name)
    path: str | os.PathLike[str],
    create: bool = False,
    spark: Any = None,
    *,
    trusted_sql: bool = False,
    **options: Any,
) -> Workspace:
    """Open a workspace: a folder, or an object-store URL with the `options` its provider needs.

    With `create` it is made if it is not there; done twice it is the same
    workspace. `spark` is a session (never changed: work is done in a new one
    beside it), the address of a Connect server (`sc://…`) or a master
    (`local[4]`); without it the settings `spark.…` say where Spark is started
    when it is first needed. Queries reach the datasets and functions that
    compute; with `trusted_sql` all that Spark can do: programs, Java, paths,
    tables of its catalogs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(folder, create=True) as ws:
    ...     list(ws)
    []
    """
    place = place_of(path, **options)
    text = place.read_config()
    if text is None and create:
        place.create_config(settings_file.NEW)
        text = place.read_config()
    if text is None:
        raise WorkspaceNotFound(
            f"{place.location} is not a workspace: it has no {settings_file.FILE}",
            remedy="give the folder of one, or make one: trueline.open(path, create=True), `trueline init`",
            path=place.location,
        )
    settings = config.Config(text, place.swap_config, f"{place.location}/{settings_file.FILE}")
    return Workspace(place, settings, spark, trusted_sql=trusted_sql)


class Workspace:
    """Datasets by name; made by `trueline.open`. Iterating gives the names, in order.

    >>> import tempfile, trueline as tl
    >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
    ...     sales = ws.create("sales")
    ...     "sales" in ws, list(ws), ws["sales"].kind
    (True, ['sales'], 'root')

    >>> folder = tempfile.TemporaryDirectory()
    >>> ws = tl.open(f"{folder.name}/shop", create=True)
    >>> sales = ws.create("sales")
    >>> [dataset.name for dataset in ws.datasets()]
    ['sales']
    >>> manifest = '''
    ... kind: DatasetSnapshot
    ... version: 1
    ... content: {name: other, kind: Root, metadata: []}
    ... '''
    >>> ws.create_from_manifest(manifest).kind
    'root'
    >>> sales.push(f"{folder.name}/copy").dataset
    'sales'
    >>> ws.clone(f"{folder.name}/copy", "twin").id == sales.id
    True
    >>> ws.tag("audit", "sales").at["sales"] == sales.head, list(ws.tags())
    (True, ['audit'])
    >>> ws.untag("audit")
    >>> ws.verify().ok, ws.gc(dry_run=True).objects
    (True, 0)
    >>> _ = ws.create("days", source=tl.source(f"{folder.name}/*.csv"))
    >>> ws.pull("days").ok
    True
    >>> ws.delete("twin")
    >>> "twin" in ws
    False
    >>> ws.close()
    >>> folder.cleanup()
    """

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
        self._catalogue = Catalogue(place, self._look)
        self._tags = Tags(place)
        self._lock = threading.RLock()
        self._pid = os.getpid()

    # --- finding ----------------------------------------------------------------------

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
                dataset = self._open[entry.folder] = Dataset(self, entry.name, chain, index, entry.folder)
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

    # --- making -----------------------------------------------------------------------

    def create(
        self,
        name: str,
        schema: pa.Schema | Schema | DataSchema | None = None,
        merge: Strategy | None = None,
        event_time: str | None = None,
        description: str | None = None,
        *,
        lateness: str | float | timedelta | None = None,
        checks: Sequence[object] = (),
        source: str | os.PathLike[str] | DeclaredSource | None = None,
        new_columns: NewColumns = "error",
        on_change: str = "error",
    ) -> Dataset:
        """Make a root dataset, in one commit; the same definition again returns it, another raises.

        Without a schema the first table decides the columns. `event_time`
        names the column that says when a row happened; without it a column
        called `event_time` counts. The watermark stays `lateness` ("2h")
        behind the newest event time. `merge` is `trueline.merge.append()`.
        With a `source` (a folder, file, pattern or URL, or `trueline.source`)
        the dataset is filled by `pull`. `new_columns` says what later data with
        other columns does: "error", "add" or "ignore". With `on_change="from_here"` an existing
        dataset gets another source, lateness or description from now on; what
        it holds stays, and merge, event time and columns cannot be changed.
        """
        check_name(name)
        check_options(checks, on_change)
        strategy = merges.append() if merge is None else merge
        definition = Definition.of(
            schema,
            strategy,
            event_time,
            description,
            lateness=lateness,
            source=source,
            base=folder_of(self._location),
            new_columns=new_columns,
        )
        return make(self, name, CreationPlan.of(definition, on_change))

    def create_from_manifest(self, text: str | bytes) -> Dataset:
        """Make a dataset from a `DatasetSnapshot` manifest in YAML or JSON."""
        from trueline.chain.manifest import DatasetSnapshot

        snapshot = DatasetSnapshot.from_yaml(text)
        name = check_name(snapshot.name)
        return make(self, name, CreationPlan.of_manifest(self, snapshot))

    def _unborn(self, name: str) -> Dataset:
        """Return the place of a dataset that is yet to come; its name must not be too like another's."""
        entry = self._catalogue.reserve(check_name(name))
        if entry.creating is not None:
            if not self._location.exists(entry.folder):
                self._forget(entry.folder)
                forget_origin(self._location, entry.folder)
            forget_unfinished(self._location, entry.folder)
        return self._dataset(entry)

    def clone(
        self,
        url: str | os.PathLike[str],
        name: str | None = None,
        *,
        force: bool = False,
        expected_head: str | Commit | None = None,
        **options: Any,
    ) -> Dataset:
        """Bring a dataset here from a folder, an object store or a static file server (http, https).

        It is called `name`, or as it is there. Nothing is visible before all
        of it is here and proven. Done again it brings what is new; `force`
        discards blocks the source does not have. A source that has no block
        `expected_head`, which you keep elsewhere, is refused. `options` are
        for the provider of an object store.
        """
        from trueline.workspace.transfer.clone import clone

        done = clone(self, url, name, force=force, expected_head=expected_head, **options)
        return self[done.dataset]

    def _forget(self, folder: str) -> None:
        """Drop what is remembered of a dataset whose folder somebody has removed."""
        with self._lock:
            dataset = self._open.pop(folder, None)
        if dataset is not None:
            dataset.chain.close()
        remove_database(self._index_of(folder))

    def delete(self, name: str) -> None:
        """Delete a dataset: it is gone at once and its name free; `gc` collects its files later.

        Refused (`DatasetInUse`) while datasets are computed from it, or tags name commits of it.
        """
        from trueline.workspace.deletion import delete

        delete(self, name)

    # --- tags ---------------------------------------------------------------------------

    def tag(self, name: str, commit: Commit | Dataset | str) -> Tag:
        """Name a commit (or a dataset's newest, or `"sales@2026-11-13"`); `sales@name` is then that one.

        One tag may name a commit of each of several datasets, and never changes those it has. It is kept
        until `untag`; `gc` removes nothing it names, `push` and `clone` carry it.
        """
        return tagging.tag(self, name, commit)

    def tags(self) -> dict[str, Tag]:
        """Return the tags, by name."""
        return tagging.tags(self)

    def untag(self, name: str) -> None:
        """Remove a tag; what it named stays."""
        self._tags.remove(name)

    def _tags_of(self, chain: Chain) -> dict[str, Multihash]:
        tail = chain.tail()
        return {} if tail is None else self._tags.of(str(tail.dataset_id))

    # --- filling ------------------------------------------------------------------------

    def pull(
        self,
        *names: str,
        resend: bool = False,
        allow_empty: bool = False,
        workers: int = 8,
        observers: Sequence[Observer] = (),
        new_columns: NewColumns | None = None,
    ) -> PullReport:
        """Read what is new in the sources of datasets (of all that have one, if none is named).

        Files and pages that were read before are passed over, clones are
        brought up to what they are copies of. A known file name with other
        bytes is refused unless `resend`, and so is a snapshot that sorts before one that was read
        (`day-9` before `day-10`). An empty snapshot is refused unless `allow_empty`, new columns unless
        `new_columns` or the dataset says "add" or "ignore".
        Up to `workers` datasets are pulled side by side, by a `trueline.run.Run` whose `observers` may
        watch; all they get is stamped with one time, that of `clock`. A dataset that fails
        does not stop the others; `PullError` is raised at the end and has the
        report.
        """
        from trueline.workspace.pull.pull import pull

        return pull(
            self,
            names,
            resend=resend,
            allow_empty=allow_empty,
            workers=workers,
            observers=observers,
            new_columns=checked_policy(new_columns),
        )

    # --- reading ------------------------------------------------------------------------

    def sql(self, query: str, /, at: Any = None, **parameters: object) -> View:
        """Answer a query over the current rows of datasets, by Spark.

        Datasets are tables by their names; `` `name@commit` `` in back-ticks reads
        one as it was, `at` all of them (a time, a date, a tag, or a dictionary by
        name). `:name` is a parameter. The view is computed when it is
        first read.
        """
        from trueline.workspace.sql import query as answer

        return answer(self, query, at, parameters)

    # --- looking after ------------------------------------------------------------------

    def verify(self, *names: str, progress: Progress | None = None) -> VerificationReport:
        """Prove datasets (all of them, if none is named): every block, every rule, every file."""
        report = VerificationReport()
        for dataset in [self[name] for name in names] if names else self.datasets():
            report += dataset.verify(progress=progress)
        return report

    def gc(self, older_than: str | float | timedelta | None = None, dry_run: bool = False) -> Swept:
        """Remove what nothing refers to and is older than a while (setting `gc.older_than`).

        Commits in flight are spared, whatever their age.
        """
        from trueline.workspace.gc import sweep

        age = seconds(self.config["gc.older_than"] if older_than is None else older_than)
        return sweep(self, age, dry_run)

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

    def __repr__(self) -> str:
        return f"<Workspace {self.location}>"

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        rows = [(dataset.name, *_stands(dataset)) for dataset in self.datasets()]
        return html_table(f"Workspace {self.location}", ("dataset", "rows", "updated"), rows)


def _stands(dataset: Dataset) -> tuple[object, str]:
    """How many rows a dataset has and when it last moved, for a notebook; a damaged one says so."""
    try:
        tail = dataset._tail
    except CorruptionError as error:
        return None, f"damaged: {error.code}"
    return tail.next_offset, f"{str(tail.system_time)[:19].replace('T', ' ')} UTC"
