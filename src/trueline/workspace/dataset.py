"""One dataset of a workspace: what it is, what happened to it, and adding to it."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.events import DatasetKind
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.store.folders import Inside
from trueline.chain.verify import Progress, VerificationReport
from trueline.dataset.at import At, resolve
from trueline.dataset.columns import StoredColumn, hide_column, stored_columns
from trueline.dataset.commit import Commit, commit_at, commits, keyed_commit
from trueline.dataset.lost_head import head_missing
from trueline.errors import BadCellsWarning, DataWarning, visible
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.names import not_found

if TYPE_CHECKING:
    from trueline.dataset.append.intake import AppendRequest
    from trueline.dataset.append.new_columns import NewColumns
    from trueline.dataset.compact import Compacted
    from trueline.dataset.remove.drop import Removed, Where
    from trueline.readers import Reader
    from trueline.run import Executor, Observer, Step
    from trueline.view import View
    from trueline.view.export import Exported
    from trueline.view.schema import Schema
    from trueline.workspace.info import Health, Info
    from trueline.workspace.transfer.origin import CopyOrigin
    from trueline.workspace.transfer.report import Transferred
    from trueline.workspace.workspace import Workspace


class Dataset:
    """A dataset, by its name in a workspace; it always shows the newest commit."""

    def __init__(self, workspace: Workspace, name: str, chain: Chain, index: Inside, folder: str) -> None:
        self.name = name
        self.chain = chain
        self._folder = folder  # what it is kept under, whatever it is called
        self._workspace = workspace
        self._index = index
        self._is_deleted = False
        # A stream that is being appended may itself append.
        self._writing = threading.RLock()

    # --- what it is ---------------------------------------------------------------

    @property
    def kind(self) -> str:
        """`root` if data enters from outside, `derived` if it is computed from others."""
        return "root" if self._tail.dataset_kind is DatasetKind.Root else "derived"

    @property
    def id(self) -> DatasetId:
        """Who the dataset is, wherever it is copied to and whatever it is called there."""
        return self._tail.dataset_id

    @property
    def head(self) -> Multihash:
        """The newest block; its hash covers everything before it."""
        return self._tail.head

    @property
    def schema(self) -> Schema | None:
        """The columns people gave, as a view has them, without the system's; None before the first data."""
        from trueline.dataset.read import schema_of

        return schema_of(self.name, self._present)

    @property
    def system_schema(self) -> Schema | None:
        """All columns of the slices, the system's first; None before the first data."""
        from trueline.dataset.read import schema_of

        return schema_of(self.name, self._present, system=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns people gave, in order; none before the first data."""
        schema = self.schema
        return () if schema is None else schema.names

    def stored_columns(self, system: bool = False, at: At = None) -> list[StoredColumn]:
        """Describe the columns as the chain stores them, none before the first data; with `system` all."""
        if at is None:
            return stored_columns(self._tail, system=system)
        from trueline.dataset.read import resolve

        return stored_columns(self.chain.tail_at(resolve(self._present, at).block), system=system)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the datasets it is computed from (their ids, where they are elsewhere)."""
        transform = self._tail.transform
        if transform is None:
            return ()
        known = self._workspace._names_by_id()
        return tuple(known.get(source.dataset_ref, source.dataset_ref) for source in transform.inputs)

    @property
    def info(self) -> Info:
        """Counts, times and definition, found by a few block reads whatever the length of the chain."""
        from trueline.workspace.info import info_of

        return info_of(self)

    def health(self) -> Health:
        """Say whether the index is up to date with the head, and since when a commit is in flight."""
        from trueline.workspace.info import health_of

        return health_of(self)

    def rename(self, name: str) -> None:
        """Give it another name in its workspace; what refers to it by id, and who has it open, go on.

        A name that another dataset has, or has but for case, is refused. The folder stays.

        >>> import tempfile, trueline as tl
        >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
        ...     ws.create("sales").rename("orders")
        ...     list(ws)
        ['orders']
        """
        self._workspace._rename(self, name)

    def hide_column(self, name: str) -> None:
        """Leave a column out of views from here on; its values stay, and earlier commits show it.

        Rows that are appended may go on bringing it. A column of the key, and the event time, stay.

        >>> import tempfile, pyarrow as pa, trueline as tl
        >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
        ...     sales = ws.create("sales")
        ...     commit = sales.append(pa.table({"city": ["Bern"], "note": ["x"]}))
        ...     sales.hide_column("note")
        ...     sales.columns, sales.view(at=commit).columns
        (('city',), ('city', 'note'))
        """
        self._hide(name, hide=True)

    def show_column(self, name: str) -> None:
        """Show a column again that was hidden.

        >>> import tempfile, pyarrow as pa, trueline as tl
        >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
        ...     sales = ws.create("sales")
        ...     commit = sales.append(pa.table({"city": ["Bern"], "note": ["x"]}))
        ...     sales.hide_column("note")
        ...     sales.show_column("note")
        ...     sales.columns
        ('city', 'note')
        """
        self._hide(name, hide=False)

    def _hide(self, name: str, *, hide: bool) -> None:
        with self._writing, self.chain.store.turn():
            hide_column(self.chain, self._tail, name, hide=hide, clock=self._workspace.clock)
        if hide:
            from trueline.workspace.derive.redefine import tell_hidden

            tell_hidden(self, name)

    # --- adding -------------------------------------------------------------------

    def append(
        self,
        data: object,
        reader: Reader | None = None,
        steps: Sequence[Step] = (),
        *,
        max_bad: float | None = None,
        idempotency_key: str | None = None,
        watermark: object = None,
        resend: bool = False,
        allow_empty: bool = False,
        new_columns: NewColumns | None = None,
        observers: Sequence[Observer] = (),
        executor: Executor | None = None,
    ) -> Commit:
        """Add rows as one commit; when it returns they are durable and the head has moved.

        `data` is an Arrow table or batch, a pandas or polars frame, a list of dictionaries, a stream (a view,
        anything with `__arrow_c_stream__`, an iterator of tables, batches or frames; drawn once, batch by
        batch, so that it need not fit in memory), a Spark frame (its rows do not
        pass the driver), or files: a path, a glob, or a list of them, read by
        `reader` (by default chosen by their ending).
        The first rows decide the columns; later ones may leave out optional
        columns. New columns are refused unless `new_columns` is "add" or "ignore"
        (by default what the dataset was created with); every file is checked by itself.
        What an upsert leaves out stays as it is for known keys, a snapshot
        may leave out only what it does not compare, and one without rows is refused unless `allow_empty`.
        A file whose bytes were appended before is passed over; a known name with other bytes is refused
        unless `resend`.
        Cells that cannot be read are null and counted; more than `max_bad`
        of them (a number, or below 1 a share of the rows) refuse the whole.
        `watermark` says that nothing older is expected (by default the newest
        event time less the dataset's lateness). With `idempotency_key` the same append again returns the
        first commit, for as long as that is in the chain: the key is part of its block.
        `steps` prepare the rows of each file on their way (see `trueline.workspace.preparing`), by a
        run that `observers` may watch, in threads or on an `executor`.
        """
        from trueline.dataset.append.intake import AppendRequest
        from trueline.dataset.append.new_columns import checked_policy

        preparation = None
        if steps:
            from trueline.dataset.prepare import Preparation

            preparation = Preparation.of(steps, observers, executor)
        request = AppendRequest(data, reader, max_bad, idempotency_key, watermark, resend, preparation)
        request = replace(request, allow_empty=allow_empty, new_columns=checked_policy(new_columns))
        return self._append(request, self._workspace.clock)

    def _append(self, request: AppendRequest, clock: Callable[[], Instant] | None) -> Commit:
        """Carry out an append that somebody asked for, or that a pull of the declared source found."""
        from trueline.dataset.append.append import append_rows
        from trueline.dataset.append.intake import is_frame

        if self._tail.attachments is not None:  # it may have checks
            from trueline.workspace.derive.checks import RelatedColumns

            request = replace(request, column_of=RelatedColumns(self._workspace))
        tasks = None
        spark = self._workspace._spark
        may_work = spark.settle() if spark.may_work is None else spark.may_work
        # Whatever else is appended is written here, unless a Spark may work.
        if may_work or is_frame(request.data) or hasattr(request.data, "node"):
            from trueline.workspace.placement import place_append

            request, tasks = place_append(spark, self.name, self.chain.store, request)
        self._join_transactions()
        # One at a time: a sync that fails gives up all its store has staged, other threads' rows too.
        with self._writing:
            made = append_rows(self.name, self.chain, self._tail, request, tasks=tasks, clock=clock)
        for each in made.advice:
            kind = BadCellsWarning if each.code == "BadCells" else DataWarning
            warnings.warn(visible(f"{self.name}: {each.problem}\n  → {each.remedy}"), kind, stacklevel=3)
        return self._awaited(made)

    def _join_transactions(self) -> None:
        """Let this dataset join the transactions that the code is in (see `Workspace.transaction`)."""
        for join in self._workspace._joins.get():
            join(self.id)

    def revert(self, to: At) -> Commit:
        """Restore the current rows of an earlier commit, by a new commit; what happened since stays.

        For snapshot, upsert and changelog; `to` is anything `at` takes in `view`. What differs is
        recorded as inserts, updates and deletes, so that readers of changes follow.

        >>> import tempfile, trueline as tl
        >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
        ...     stock = ws.create("stock", merge=tl.merge.upsert("id"))
        ...     good = stock.append([{"id": 1, "n": 5}])
        ...     bad = stock.append([{"id": 1, "n": -5}, {"id": 2, "n": 9}])
        ...     stock.revert(to=good).changes, stock.get(1)["n"], stock.info.rows
        ('~1 -1 rows', 5, 1)
        """
        from trueline.dataset.append.revert import revert_rows

        self._join_transactions()
        with self._writing:
            return self._awaited(revert_rows(self.name, self._present, to, clock=self._workspace.clock))

    def reset(self, to: At = None, *, rebuild: bool = False) -> tuple[str, ...]:
        """Move the head back to a commit, as if what came later had never been; `revert` keeps the past.

        Datasets computed from later commits are named in a warning; with `rebuild` they are reset too, each
        to its newest commit that still holds; so is a derived dataset without `to`.
        """
        from trueline.workspace.reset import reset

        return reset(self, to, rebuild=rebuild)

    def confirm_source(self) -> str:
        """Let `pull` read a source, or call a function, that somebody else declared; returns what that is.

        It holds for this dataset and just this source or function: a changed one asks again.
        """
        from trueline.workspace.pull.confirm import confirm_source

        return confirm_source(self)

    # --- reading ------------------------------------------------------------------

    def view(self, at: At = None, system: bool = False) -> View:
        """View the current rows: all records, or for keyed datasets the newest of each key, in key order.

        `at` is a commit, a hash or part of one, an aware datetime, a date (its
        end, UTC), a tag, or the offset a commit ends at; None or "head" is the
        newest commit. The view stays at that commit. With `system` the columns of the
        system are shown too.
        """
        from trueline.dataset.read import view_of

        return self._at_home(view_of(self.name, self._present, at, system=system))

    def changes(self, after: At = None, upto: At = None, system: bool = False) -> View:
        """View the events in (after, upto], with their offset, operation and time.

        Operations are insert, delete, update_preimage and update_postimage.
        With `system`, `late` says whether a record of a root had an event time before
        the watermark that was in force when it came.
        """
        from trueline.dataset.read import changes_of

        return self._at_home(changes_of(self.name, self._present, after, upto, system=system))

    def diff(self, a: At, b: At = None) -> View:
        """View the net change from one commit to another: per key, or the rows that were added."""
        from trueline.dataset.read import diff_of

        return self._at_home(diff_of(self.name, self._present, a, b))

    def get(self, key: object, at: At = None) -> dict[str, object] | None:
        """Return the current row of a key, None if there is none.

        The key is a value, a tuple of values, or values by column; a dataset
        without a key takes columns and returns the newest row that has them.
        """
        from trueline.dataset.read import row_of

        return row_of(self.name, self._present, key, at)

    def export(
        self, path: str | os.PathLike[str], at: At = None, *, system: bool = False, overwrite: bool = False
    ) -> Exported:
        """Write the current rows to a file: `.csv`, `.parquet`, `.arrow`, `.json` or `.jsonl`."""
        from trueline.view.export import export

        return export(self.view(at, system).node, path, overwrite=overwrite)

    # --- what happened --------------------------------------------------------------

    def log(self, at: At = None) -> Iterator[Commit]:
        """Iterate over the commits, newest first, from `at` backwards."""
        return map(self._awaited, commits(self.name, self.blocks(at), self.chain))

    def blocks(self, at: At = None) -> Iterator[tuple[Multihash, Block]]:
        """Iterate over the blocks with their names, newest first, from `at` backwards."""
        if at is None:
            return self.chain.walk(self.head)
        return self.chain.walk(resolve(self._present, at).block)

    def commit(self, at: At = None, *, idempotency_key: str | None = None) -> Commit:
        """Return a commit: the newest, that of a key, or the one that `at` names; any block of it will do."""
        if idempotency_key is not None:
            return self._awaited(keyed_commit(self.name, self._present, idempotency_key))
        return self._awaited(commit_at(self.name, self._present, resolve(self.chain, at, inside=True).block))

    def verify(
        self,
        after: At = None,
        upto: At = None,
        replay: bool | Literal["head"] = True,
        progress: Progress | None = None,
        *,
        expected_head: str | Commit | None = None,
    ) -> VerificationReport:
        """Prove the chain, every file it names and the rows in them; `after` and `upto` bound the look.

        The head is compared with those that were seen here before, and with
        `expected_head` for those who keep one elsewhere. `replay` computes the rows of a derived dataset
        again, by Spark: those of every commit, or with "head" the current ones. `progress` is called with
        how many blocks, then how many files, then how many commits are done.
        """
        from trueline.workspace.verify import verify_dataset

        return verify_dataset(
            self, after, upto, replay=replay, progress=progress, expected_head=expected_head
        )

    def accept_head(self) -> None:
        """Take the present head as meant, where `verify` reports that it was rolled back or replaced."""
        from trueline.workspace.rollback import accept_head

        _ = self._tail
        accept_head(self)

    def restore_head(self, block: str | Commit) -> None:
        """Put the head back to a newer block that `verify` says was seen; all before it has to be here."""
        from trueline.workspace.rollback import given_head, restore_head

        restore_head(self, given_head(block))

    def drop_data(
        self,
        upto: At = None,
        where: Where | None = None,
        *,
        reason: str,
        **parameters: object,
    ) -> Removed:
        """Remove records for good: those up to a position, or those that meet a condition.

        Their bytes go, here and in the state; their hashes and the reason stay
        in the chain, and the other records of a touched slice stay readable.
        `upto` is anything `at` takes, or any offset; `where` is a condition as
        in `View.filter`, with its `parameters`. In a keyed dataset what a
        record replaced goes with it.
        """
        from trueline.workspace.deletion import drop_records

        return drop_records(self, upto, where, reason, parameters)

    def compact(self) -> Compacted:
        """Write many small slices again into few larger files, which reads use from then on.

        They are private to this place and can be deleted; no hash, no commit and no answer changes.

        >>> import tempfile, trueline as tl
        >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
        ...     sales = ws.create("sales")
        ...     head = [sales.append([{"price": number}]) for number in range(3)][-1].block
        ...     done = sales.compact()
        ...     done.files, done.slices, done.rows, sales.head == head
        (1, 3, 3, True)
        """
        from trueline.dataset.compact import compact

        return compact(self.name, self._present)

    # --- elsewhere --------------------------------------------------------------------

    @property
    def workspace(self) -> Workspace:
        """The workspace it is in."""
        return self._workspace

    @property
    def origin(self) -> CopyOrigin | None:
        """Where it was cloned from, None if it was not."""
        from trueline.workspace.transfer.origin import origin_of

        found = origin_of(self._workspace._location, self._folder)
        return found if found is not None and found.head is not None else None

    def push(self, url: str | os.PathLike[str], *, force: bool = False, **options: Any) -> Transferred:
        """Send it, or what is new of it, to a folder or an object store, byte for byte.

        Refused where the copy there has blocks that this one lacks, unless `force`. Tags of what was sent go
        along; `left_behind` are those whose commits a reset has cut off.
        """
        from trueline.workspace.transfer.push import push

        _ = self._tail
        return push(self, url, force=force, **options)

    # --- inside -----------------------------------------------------------------------

    def _awaited(self, commit: Commit) -> Commit:
        """A commit that can be waited for."""
        from trueline.workspace.snapshot.snapshot import Waiting

        return replace(commit, waiting=Waiting(self))

    def _at_home(self, view: View) -> View:
        """A view that goes to the Spark of the workspace, where it goes to one."""
        spark = self._workspace._spark
        return type(view)(view.node, spark.session, spark.choice)

    @property
    def _present(self) -> Chain:
        """The chain, once it is sure that it has a head."""
        _ = self._tail
        return self.chain

    @property
    def _tail(self) -> Tail:
        if self._is_deleted:
            raise not_found(self.name, self._workspace, self._workspace.location)
        tail = self.chain.tail()
        if tail is None:
            raise head_missing(self.chain.store)
        return tail

    def __repr__(self) -> str:
        return f"<Dataset {self.name} in {self._workspace.location}>"

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html
        from trueline.workspace.info import notebook_values

        info = self.info
        names = "kind events commits head updated watermark merge inputs strategy behind_commits description"
        shown = [name for name in names.split() if getattr(info, name) not in (None, ())]
        values = {"rows": info.rows_shown} | {name: getattr(info, name) for name in shown}
        return html(f"Dataset {self.name}", notebook_values(values))
