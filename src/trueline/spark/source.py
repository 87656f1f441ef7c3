"""Datasets as a data source of Spark: `format("trueline")` for frames and streams, to read and to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from trueline.dataset.dataset_at import Standing
from trueline.dataset.read import resolve
from trueline.dataset.read.changes import OPERATIONS
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.events import Events
from trueline.dataset.read.slice_reader import SliceFile, Slices
from trueline.errors import CorruptionError, InputError, SchemaError
from trueline.kernel.chunk import Piece
from trueline.spark.errors import carrying, lasting_nonce
from trueline.spark.options import absolute, bad_option, flag, opened, parsed, store_options
from trueline.spark.packing import pack, unpack
from trueline.spark.pushdown import ENABLED, NO_CONDITIONS, Conditions
from trueline.spark.session import check_age
from trueline.spark.types import as_spark_values, to_spark_schema
from trueline.spark.writer import OPTIONS as WRITE_OPTIONS
from trueline.spark.writer import FrameWriter, StreamWriter, Target, writing
from trueline.view.execute import pieces, portable
from trueline.view.execute.dispatch import batch_of
from trueline.view.plan.node import NO_BOUNDS, Want
from trueline.view.plan.sources import SourceScan
from trueline.view.schema import Column, unknown_column
from trueline.view.source import RowSource
from trueline.view.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trueline.chain.chain import Chain
    from trueline.chain.head_state import Position
    from trueline.workspace.dataset import Dataset

__all__ = ["register"]

FORMAT: Final = "trueline"
_OPTIONS: Final = ("at", "cut", "after", "columns", "system", "changes")
_ROWS_OF_A_PIECE: Final = 1 << 20
Place: TypeAlias = dict[str, Any]


def register(spark: SparkSession) -> None:
    """Let a session read and write datasets with `format("trueline")`; it becomes the active one.

    If `spark.sql.python.filterPushdown.enabled` is set in the session, what conditions rule out is not read.
    Frames of other sessions do not know the format, unless it is registered there.
    A source is a class that Spark makes and runs in processes of its own. The nonce of its errors goes there
    with the class; one that is registered in another way has none, and its errors are text.
    """
    check_age(spark)
    # Spark looks for formats in the active session, not in that of the frame that is written, and refuses a
    # name that the active one knows. Making a frame without rows makes a session active and runs nothing.
    spark.createDataFrame([], "n int")
    # A reader that takes conditions is refused by a session that does not hand them over.
    takes = spark.conf.get(ENABLED, "false") == "true"
    attributes = {"nonce": lasting_nonce(), "takes_filters": takes}
    spark.dataSource.register(type("TruelineSource", (TruelineSource,), attributes))


# --- what is asked for ----------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The options of a read, parsed; `block` is the commit it was fixed at when it was made.

    `store` is what the provider of an object store needs; it goes to the tasks and is never shown.
    """

    workspace: str
    dataset: str
    at: str | None
    after: str | None
    columns: tuple[str, ...] | None
    system: bool
    changes: bool
    block: str = ""
    store: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cut: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Asked:
        """Parse options, or raise naming the one that is not valid."""
        given = parsed(options, _OPTIONS)
        columns = given.get("columns")
        named = None if columns is None else tuple(name.strip() for name in columns.split(","))
        if "at" in given and "cut" in given:
            raise bad_option("the options 'at' and 'cut' exclude each other", "leave out one of them")
        return cls(
            given["workspace"],
            given["dataset"],
            given.get("at"),
            given.get("after"),
            named,
            flag(given, "system"),
            flag(given, "changes"),
            store=store_options(given),
            cut=given.get("cut"),
        )

    def opened(self) -> AbstractContextManager[Dataset]:
        """Open the dataset."""
        return opened(self.workspace, self.dataset, self.store)

    def fixed(self) -> Asked:
        """Return it fixed at the commit that `at` names now."""
        with self.opened() as dataset:
            _ = dataset.head  # says what is wrong with a dataset that has lost it
            block = str(self._position(dataset).block)
        return replace(self, workspace=absolute(self.workspace), block=block)

    def _position(self, dataset: Dataset) -> Position:
        if self.cut is None:
            return resolve(dataset.chain, self.at)
        with dataset.workspace.snapshot(dataset.name, cut=self.cut) as snap:
            return snap.positions[dataset.name]

    def view(self, dataset: Dataset, where: Conditions = NO_CONDITIONS) -> View:
        """Return the rows that are asked for, with the columns that are.

        Of a keyed dataset those of other keys than conditions name may be left out.
        """
        view = (
            dataset.changes(self.after, self.block, system=False)
            if self.changes
            else _of_keys(dataset.view(self.block, self.system), where)
        )
        names = view.schema.names
        for name in self.columns or ():
            if name not in names:
                raise unknown_column(name, names)
        if not names:
            raise SchemaError(
                f"{self.dataset} has no columns at this commit",
                remedy="append rows first, or declare a schema",
                dataset=self.dataset,
            )
        return view if self.columns is None else view.select(*self.columns)

    def schema(self) -> pa.Schema:
        """The columns that are asked for."""
        with self.opened() as dataset:
            return self.view(dataset).schema.to_arrow()


def _of_keys(view: View, where: Conditions) -> View:
    """Return a view of a keyed dataset with no more than the keys that conditions name, if they do."""
    source = view.node.source if isinstance(view.node, SourceScan) else None
    if not isinstance(source, CurrentRows):
        return view
    keys = where.keys(source.standing)
    return view if keys is None else View(replace(source, only=keys))


# --- pieces of it ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """All rows, for one task: where rows are folded from events no other task can help."""

    asked: Asked

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self.asked.opened() as dataset:
            yield from self.asked.view(dataset).batches(columns)


@dataclass(frozen=True)
class EventRows:
    """Some rows; with `op` the column of that name holds operations, which are shown as words."""

    source: RowSource
    op: str | None = None

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.source.batches(columns, NO_BOUNDS):
            is_shown = self.op is not None and self.op in columns
            yield _worded(batch, list(columns).index(self.op or "")) if is_shown else batch


@dataclass(frozen=True)
class ViewRows:
    """Some rows of a view."""

    part: Piece
    columns: tuple[Column, ...]
    schema: pa.Schema

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for chunk in self.part.chunks():
            yield batch_of(chunk, self.columns, self.schema).select(list(columns))


def _worded(batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
    ops = batch.column(place)
    try:
        words = pa.array(OPERATIONS).take(ops)
    except pa.ArrowIndexError:
        raise CorruptionError(
            "a slice has unknown operations",
            remedy="`trueline verify` says which",
            code="SliceDamaged",
        ) from None
    return batch.set_column(
        place, pa.field(batch.schema.field(place).name, pa.string(), nullable=False), words
    )


def _events(
    standing: Standing, columns: Sequence[str], first: int, last: int, *, words: bool
) -> list[EventRows]:
    """Return the events with these offsets, in pieces of about a million."""
    vocab = standing.vocab
    needed = tuple(columns)
    events = Events(standing, needed, first)
    groups: list[list[SliceFile]] = []
    for entry in events.entries(first, last):
        if not groups or entry.first - groups[-1][0].first >= _ROWS_OF_A_PIECE:
            groups.append([])
        groups[-1].append(events.file(entry))
    op = vocab.op if words else None
    return [EventRows(Slices(tuple(group), events.schema, vocab.offset), op) for group in groups]


def _partitions(pieces: Sequence[EventRows | ViewRows | Whole]) -> list[InputPartition]:
    return [InputPartition(pack(piece)) for piece in pieces]


def _read(partition: InputPartition, schema: StructType, nonce: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition exactly as Spark will have them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if partition.value is None:
        return  # what Spark makes of a list of no partitions
    target = to_arrow_schema(schema, timezone="UTC")
    with carrying(nonce):
        for batch in unpack(partition.value).read(target.names):
            yield as_spark_values(batch, target)


# --- the source ----------------------------------------------------------------------------------


class TruelineSource(DataSource):
    """Datasets of a workspace: current rows, or events with `changes`; a frame stays at its commit."""

    nonce = ""
    takes_filters = False

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.given = dict(options)
        # Spark makes this once for each load() and sends copies around: here is where the commit is chosen.
        # It does not say whether to read or to write.
        self.fixed: Asked | None = None
        if not any(name.lower() in WRITE_OPTIONS for name in options):
            with carrying(self.nonce):
                self.fixed = Asked.of(options).fixed()

    @property
    def asked(self) -> Asked:
        """What is to be read."""
        return self.fixed if self.fixed is not None else Asked.of(self.given).fixed()

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with carrying(self.nonce):
            return to_spark_schema(self.asked.schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        with carrying(self.nonce):
            if self.asked.after is not None and not self.asked.changes:
                raise InputError(
                    "the option 'after' needs the option 'changes'",
                    remedy='add .option("changes", "true")',
                    code="BadOption",
                )
            _check_schema(self.schema(), schema)
            kind = FilteringReader if self.takes_filters else BatchReader
            return kind(self.asked, schema, self.nonce)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        with carrying(self.nonce):
            if self.asked.at is not None or self.asked.cut is not None:
                raise InputError(
                    "a stream cannot be read 'at' a commit or a 'cut'",
                    remedy="leave out the option; 'after' says where to begin",
                    code="BadOption",
                )
            _check_schema(self.schema(), schema)
            return StreamReader(self.asked, schema, self.nonce)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with writing(self.nonce):
            return FrameWriter(Target.of(self.given, stream=False), schema, overwrite, self.nonce)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        with writing(self.nonce):
            return StreamWriter(Target.of(self.given, stream=True), schema, overwrite, self.nonce)


def _check_schema(ours: StructType, given: StructType) -> None:
    """Refuse a schema given by hand that differs from the dataset's."""
    if [(f.name, f.dataType) for f in ours] != [(f.name, f.dataType) for f in given]:
        raise SchemaError(
            f"the dataset has the columns {ours.simpleString()}, not {given.simpleString()}",
            remedy="leave out the schema; the option 'columns' selects columns",
        )


class BatchReader(DataSourceReader):
    """Reads slices, or ranges of keys, in tasks of their own."""

    def __init__(self, asked: Asked, schema: StructType, nonce: str) -> None:
        self.asked, self.schema, self.nonce = asked, schema, nonce
        self.where = NO_CONDITIONS

    def partitions(self) -> Sequence[InputPartition]:
        asked = self.asked
        with carrying(self.nonce), asked.opened() as dataset:
            view = asked.view(dataset, self.where)
            if asked.changes:
                chain = dataset.chain
                standing = Standing.of(dataset.name, chain, resolve(chain, asked.block))
                first = 0 if asked.after is None else _next(resolve(chain, asked.after).offset)
                return _partitions(
                    _events(standing, view.schema.names, first, standing.last_offset, words=True)
                )
            if not portable(view.node):
                return _partitions([Whole(asked)])
            columns, schema = view.schema.visible, view.schema.to_arrow()
            bounds = {view.schema[name].index: each for name, each in self.where.bounds(schema).items()}
            want = Want(tuple(column.index for column in columns)).within(bounds)
            return _partitions([ViewRows(part, columns, schema) for part in pieces(view.node, want)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.schema, self.nonce)


class FilteringReader(BatchReader):
    """The same for sessions that hand conditions over: slices, groups of rows and keys are passed over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self.where = Conditions(tuple(filters))
        return filters  # what is passed over is coarse: Spark looks at each row


def _next(offset: int | None) -> int:
    return 0 if offset is None else offset + 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a dataset from commit end to commit end.

    `{"offset": n, "block": hash}` is the last record that was read and the block that brought it, so that a
    dataset which was reset and grew again is not taken for the same. Before the first record, and in
    checkpoints of earlier versions, there is no block.
    """

    def __init__(self, asked: Asked, schema: StructType, nonce: str) -> None:
        self.asked, self.schema, self.nonce = asked, schema, nonce
        self.target: Place | None = None
        with asked.opened() as dataset:
            here = Standing.of(dataset.name, dataset.chain, resolve(dataset.chain, asked.block))
            if here.is_keyed and not asked.changes:
                raise InputError(
                    f"{asked.dataset} replaces rows, and a stream cannot retract rows",
                    remedy='read its events: .option("changes", "true")',
                    code="KeyedStream",
                )

    def _place(self, at: Any) -> Place:
        with carrying(self.nonce), self.asked.opened() as dataset:
            return _place_at(dataset.chain, resolve(dataset.chain, at).offset)

    def initialOffset(self) -> Place:  # noqa: N802
        return {"offset": -1} if self.asked.after is None else self._place(self.asked.after)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:  # noqa: N802
        del limit
        with carrying(self.nonce), self.asked.opened() as dataset:
            chain = dataset.chain
            newest = self.target or _place_at(chain, resolve(chain, None).offset)
            if newest["offset"] < start["offset"]:
                raise _behind(self.asked.dataset, start["offset"], newest["offset"])
            _check_same(self.asked.dataset, chain, start)
            return newest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self._place(None)

    def partitions(self, start: Place, end: Place) -> Sequence[InputPartition]:
        with carrying(self.nonce), self.asked.opened() as dataset:
            chain = dataset.chain
            for place in (start, end):
                _check_same(self.asked.dataset, chain, place)
                if place["offset"] >= 0:
                    resolve(chain, place["offset"])  # refuses what is not the end of a commit
            # Of the columns as they are now: a batch that is read again may end before one was added.
            standing = Standing.of(dataset.name, chain, resolve(chain, None))
            names = self.schema.names
            first, last = start["offset"] + 1, end["offset"]
            return _partitions(_events(standing, names, first, last, words=self.asked.changes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.schema, self.nonce)


def _place_at(chain: Chain, offset: int | None) -> Place:
    """Return an offset with the block that brought it: later blocks without records do not change it."""
    if offset is None:
        return {"offset": -1}
    block = next(chain.slice_blocks(offset, offset), None)
    return {"offset": offset} | ({"block": str(block.hash)} if block is not None else {})


def _check_same(name: str, chain: Chain, place: Place) -> None:
    """Refuse a place whose block does not exist any more."""
    if "block" in place and _place_at(chain, place["offset"]) != place:
        raise InputError(
            f"the record at offset {place['offset']:,} of {name} is not the one that the checkpoint has read",
            remedy="the dataset was reset and appended to, or replaced: start with a new checkpoint",
            code="StreamReset",
            offset=place["offset"],
            block=place["block"],
        )


def _behind(name: str, start: int, newest: int) -> InputError:
    return InputError(
        f"the checkpoint has read {name} up to offset {start:,}, and it ends at {newest:,} now",
        remedy="the dataset was reset or replaced: start with a new checkpoint",
        code="StreamBehind",
        offset=start,
        newest=newest,
    )
