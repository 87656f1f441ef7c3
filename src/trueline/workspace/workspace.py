"""A workspace: datasets that live together, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trueline import merge as merges
from trueline.chain.events import SetTransform
from trueline.chain.verify import Progress, VerificationReport
from trueline.dataset.append.new_columns import NewColumns, checked_policy
from trueline.dataset.definition import Definition, check_options
from trueline.dataset.duration import seconds
from trueline.errors import (
    CorruptionError,
    InputError,
    WorkspaceNotFound,
)
from trueline.merge import Strategy
from trueline.workspace import config, settings_file
from trueline.workspace import tags as tagging
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.dataset import Dataset
from trueline.workspace.locations import folder_of, place_of
from trueline.workspace.names import check_name
from trueline.workspace.open_datasets import OpenDatasets
from trueline.workspace.tags import Tag

if TYPE_CHECKING:
    import pyarrow as pa

    from trueline.chain.datatypes import DataSchema
    from trueline.check import DatasetCheck
    from trueline.dataset.commit import Commit
    from trueline.run import Observer
    from trueline.view import Schema, View
    from trueline.workspace.cuts.transaction import Transaction
    from trueline.workspace.derive.folder_plan import FolderPlan
    from trueline.workspace.gc import Swept
    from trueline.workspace.lineage import LineageGraph
    from trueline.workspace.plan import PullPlan
    from trueline.workspace.pull import DeclaredSource, PullReport
    from trueline.workspace.snapshot.snapshot import WorkspaceSnapshot


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


class Workspace(OpenDatasets):
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
    >>> ws.derive("stamped", "select now() as at from sales")
    Traceback (most recent call last):
    trueline.errors.IrreproducibleQuery: now() depends on when it runs (line 1, column 8)
        select now() as at from sales
               ^^^
      → use the event time of the rows
    >>> ws.derive_folder(folder.name).is_empty
    True
    >>> ws.plan().moves, [node.name for node in ws.lineage("days").nodes]
    (False, ['days'])
    >>> with ws.snapshot("sales", "days") as snap:
    ...     snap.groups
    (('sales',), ('days',))
    >>> ws.delete("twin")
    >>> "twin" in ws
    False
    >>> ws.close()
    >>> folder.cleanup()
    """

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
        checks: Sequence[DatasetCheck] = (),
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
        it holds stays, and merge, event time and columns cannot be changed. `checks` (`trueline.check`) are
        what must hold of the rows.
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
            checks=checks,
        )
        if checks:
            from trueline.workspace.derive.checks import check_definition

            known = check_definition(self, definition.checks, definition.schema)
            definition = replace(definition, checks=known)
        return make(self, name, CreationPlan.of(definition, on_change))

    def derive(
        self,
        name: str,
        sql: str | Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        *,
        fn: object = None,
        inputs: Mapping[str, Any] | Sequence[str] | None = None,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        checks: Sequence[DatasetCheck] = (),
        description: str | None = None,
        columns: Mapping[str, str] | None = None,
        strategy: str = "auto",
        on_change: str = "error",
    ) -> Dataset:
        """Make a dataset that is computed from others; `pull` brings it up to date.

        `sql` is a query of Spark over the current rows of datasets, or several named ones of which the
        last is the result; `fn` a function of frames, as `module:function`. `inputs` are the datasets, by the
        names they have in the query (`{"fx": "rates"}`; `{"fx": nondet("why")}` reads one at its own cut);
        without them, those the query names. `key` identifies a row of the result. `columns` describes columns
        by name. With `strategy="incremental"` a query that can only be recomputed is refused. The same
        definition again returns the dataset, another raises with the difference, unless `on_change` is
        "rebuild" (the next pull records what changes) or "from_here" (rows that are there stay).
        """
        from trueline.workspace.derive.define import derive
        from trueline.workspace.derive.request import DerivationRequest

        request = DerivationRequest(
            name, sql, inputs, key, event_time, description, fn, checks, columns or {}, strategy, on_change
        )
        return derive(self, request)

    def derive_folder(
        self, folder: str | os.PathLike[str], *, apply: bool = False, prune: bool = False
    ) -> FolderPlan:
        """Compare a folder of definitions (`balances.sql` …) with the workspace; with `apply` carry them out.

        What a file says is YAML in comments before its query (`-- key: account`), or in a file beside it.
        Datasets whose file vanished are reported; with `prune` they are deleted.
        """
        from trueline.workspace.derive.folder import apply_folder, plan_folder

        path = Path(folder)
        return apply_folder(self, path, prune=prune) if apply else plan_folder(self, path)

    def create_from_manifest(self, text: str | bytes) -> Dataset:
        """Make a dataset from a `DatasetSnapshot` manifest in YAML or JSON.

        A `SetTransform` for the engine `trueline` is defined as `derive` does; those of other engines are
        recorded as they are, and not computed here.
        """
        from trueline.chain.manifest import DatasetSnapshot

        snapshot = DatasetSnapshot.from_yaml(text)
        name = check_name(snapshot.name)
        if any(isinstance(event, SetTransform) and event.transform.is_ours for event in snapshot.events):
            from trueline.workspace.derive.define import derive
            from trueline.workspace.derive.request import request_of_manifest

            return derive(self, request_of_manifest(snapshot))
        return make(self, name, CreationPlan.of_manifest(self, snapshot))

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

    def delete(self, name: str) -> None:
        """Delete a dataset: it is gone at once and its name free; `gc` collects its files later.

        Refused (`DatasetInUse`) while datasets are computed from it, or tags name commits of it.
        """
        from trueline.workspace.deletion import delete

        delete(self, name)

    # --- tags ---------------------------------------------------------------------------

    def tag(self, name: str, commit: Commit | Dataset | WorkspaceSnapshot | str) -> Tag:
        """Name a commit (or a dataset's newest, or `"sales@2026-11-13"`); `sales@name` is then that one.

        Of a snapshot it names the commits of all its datasets, and of the roots they rest on: with
        `ws.snapshot(at=name)` it is read again.
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

    # --- filling ------------------------------------------------------------------------

    def transaction(self, *names: str, seconds: float = 300.0) -> Transaction:
        """Append to several datasets so that whatever is computed from them shows all of it or none.

        No cut falls between the appends that are made inside of `with ws.transaction():`, in this process or
        another; `names` are held from the beginning, others from the first append to them in the same thread:
        where other threads append, name what they append to. Each append is a commit of its own, and stays if
        a later one fails. A transaction whose process died holds cuts back for so many `seconds`; then they
        go on, and the first that may show a part of it says so.

        >>> import tempfile, trueline as tl
        >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
        ...     orders, lines = ws.create("orders"), ws.create("lines")
        ...     with ws.transaction():
        ...         commit = orders.append([{"id": 1}])
        ...         commit = lines.append([{"order": 1, "what": "tea"}])
        ...     ws.snapshot("orders", "lines").cut
        {'orders': 0, 'lines': 0}
        """
        from trueline.workspace.cuts.transaction import transaction

        return transaction(self, *names, seconds=seconds)

    def pull(
        self,
        *names: str | PullPlan,
        watch: bool = False,
        full_refresh: bool = False,
        resend: bool = False,
        allow_empty: bool = False,
        workers: int = 8,
        observers: Sequence[Observer] = (),
        new_columns: NewColumns | None = None,
        stop: Callable[[float], bool] | None = None,
        on_report: Callable[[PullReport], object] | None = None,
    ) -> PullReport:
        """Read what is new in the sources of datasets, and bring derived datasets to one cut of them.

        Without names all datasets are pulled. What is named is pulled with all it rests on; `name+` names a
        dataset with all that rests on it, `+name` and `2+name` with what it rests on. A plan (`ws.plan`) is
        carried out exactly, or `StalePlan` is raised if something has moved since.
        With `full_refresh` derived datasets are computed again, once, and what differs is recorded; those
        defined with `on_change="from_here"` are left as they are, and the report says so. With `watch` it
        goes on until it is interrupted, looking again after a second, then more rarely while nothing comes;
        `on_report` gets the report of each round, `stop` waits for so many seconds and ends it by True.

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
        from trueline.workspace.plan import PullPlan
        from trueline.workspace.plan.planning import apply
        from trueline.workspace.pull.pull import pull
        from trueline.workspace.pull.scheduler import in_rounds

        plans = [each for each in names if isinstance(each, PullPlan)]
        if plans:
            if len(names) > 1 or watch or full_refresh:
                raise InputError(
                    "a plan is pulled alone, as it is",
                    remedy="leave the other names and options out",
                    code="PlanAlone",
                )
            return apply(self, plans[0], workers=workers)

        def once(*, is_first: bool = True) -> PullReport:
            return pull(
                self,
                [str(name) for name in names],
                full_refresh=full_refresh and is_first,
                resend=resend,
                allow_empty=allow_empty,
                workers=workers,
                observers=observers,
                new_columns=checked_policy(new_columns),
            )

        return in_rounds(once, stop, on_report) if watch else once()

    def plan(self, *names: str) -> PullPlan:
        """Say what `pull` would do to derived datasets, from metadata alone; sources are not read.

        Names are those of `pull`. For each dataset: what is new in its inputs, how it is computed and why,
        how far it is behind.
        """
        from trueline.workspace.plan.planning import plan

        return plan(self, names)

    def lineage(self, name: str | None = None) -> LineageGraph:
        """Show which datasets are computed from which: all of them, or those around one."""
        from trueline.workspace.dependencies import lineage

        return lineage(self, name)

    # --- reading ------------------------------------------------------------------------

    def snapshot(
        self, *names: str, at: Any = None, cut: Any = None, advance: bool = False, together: bool = False
    ) -> WorkspaceSnapshot:
        """Read several datasets (all, if none is named) at the newest state at which they agree.

        Each then shows exactly what its definition makes of one state of the roots, also where datasets are
        updated one by one meanwhile. `at` is a time, a date or a tag; `cut` the number of a cut, or the
        offset of each root as `snap.cut` gives it. With `advance` derived datasets that lag are brought to
        the newest cut first. Datasets that share nothing are each at their newest state, and `groups` shows
        them apart; with `together` they are refused.
        """
        from trueline.workspace.snapshot.find import snapshot

        return snapshot(self, names, at=at, cut=cut, advance=advance, together=together)

    def sql(self, query: str, /, at: Any = None, **parameters: object) -> View:
        """Answer a query over the current rows of datasets, by Spark.

        Datasets are tables by their names; `` `name@commit` `` in back-ticks reads
        one as it was, `at` all of them (a time, a date, a tag, a cut, or a dictionary by
        name). Several datasets are read where they agree, as by `snapshot`; `at="head"` reads each at its
        newest commit. `:name` is a parameter. The view is computed when it is
        first read.
        """
        from trueline.workspace.sql import query as answer

        return answer(self, query, at, parameters)

    # --- looking after ------------------------------------------------------------------

    def verify(
        self,
        *names: str,
        replay: bool | Literal["head"] = False,
        progress: Progress | None = None,
        workers: int = 2,
    ) -> VerificationReport:
        """Prove datasets (all of them, if none is named): every block, every rule, every file.

        `+name` names a dataset with what it rests on, `name+` with what rests on it.
        With `replay` the rows of derived datasets are computed again, by Spark: those of every commit from
        its recorded inputs and definition, or with "head" the current ones. Up to `workers` datasets, or
        intervals of one, are replayed side by side; nothing in the workspace changes.
        """
        from trueline.workspace.verify import selected, verify_datasets

        return verify_datasets(self, selected(self, names), replay=replay, progress=progress, workers=workers)

    def gc(self, older_than: str | float | timedelta | None = None, dry_run: bool = False) -> Swept:
        """Remove what nothing refers to and is older than a while (setting `gc.older_than`).

        Commits in flight are spared, whatever their age.
        """
        from trueline.workspace.gc import sweep

        age = seconds(self.config["gc.older_than"] if older_than is None else older_than)
        return sweep(self, age, dry_run)

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
