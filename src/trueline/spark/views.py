"""Views and frames: what `trueline.view.engine` asks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from trueline.errors import SchemaError
from trueline.kernel.chunk import Piece
from trueline.spark.engines import engine_of
from trueline.spark.errors import carrying, lasting_nonce, translated
from trueline.spark.frame_needs import keep_for
from trueline.spark.frozen_frames import freeze
from trueline.spark.lowering import LoweringTarget, scan
from trueline.spark.lowering.deliver import counted, delivered, written_by, written_whole
from trueline.spark.lowering.dispatch import is_read_by_tasks
from trueline.spark.lowering.join import is_small
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered
from trueline.spark.lowering.places import advise, describe, travels
from trueline.spark.lowering.slices import MOST_SLICES, quoted, read_parquet
from trueline.spark.packing import pack, shares, unpack
from trueline.spark.plans import check_sql
from trueline.spark.query_columns import needed_columns, stand_in
from trueline.spark.session import check_age, start
from trueline.spark.shared_places import SharedPlace
from trueline.spark.types import arrow_schema_of, as_spark_values, to_spark_schema
from trueline.spark.workers import versioned
from trueline.view.execute import pieces
from trueline.view.execute.dispatch import batch_of
from trueline.view.plan.node import Node, Want
from trueline.view.plan.select import Select
from trueline.view.plan.sources import SourceScan
from trueline.view.schema import Column
from trueline.view.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "advise",
    "answer",
    "count",
    "deliver",
    "describe",
    "frame",
    "freeze",
    "given",
    "lend",
    "session_of",
    "travels",
    "write",
    "write_whole",
]

Written = TypeVar("Written")

_LABEL: Final = "reading the view"


# --- to a frame ---------------------------------------------------------------------------


def frame(node: Node, session: SparkSession | None = None) -> DataFrame:
    """Return the rows of a plan as a frame.

    Slices that are files Spark reads itself are read by it; other rows are read in its tasks by the view's
    own code. Where rows depend on each other (a join, a group) Spark's shuffle brings them together.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    session = start().session if session is None else given(session)()
    columns = node.schema.visible
    if not columns:
        raise SchemaError(
            "a view without columns cannot be a Spark frame", remedy="select at least one column"
        )
    with translated():
        ours = node.schema.to_arrow()
        schema = to_spark_schema(ours)
        source = _files(node, columns)
        if source is not None:
            return _from_files(session, *source)
        target = arrow_schema_of(schema)
        if not is_read_by_tasks(node):
            want = Want(tuple(column.index for column in columns))
            target_session = LoweringTarget(session, ordered=False)
            made = _of_unknown_size(published(target_session.lower(node, want), columns, ours, schema))
            keep_for(made, target_session.needs)
            return made
        parts = pieces(node, Want(tuple(column.index for column in columns)))
        if not parts:
            return session.createDataFrame(target.empty_table(), schema)
        # Spark takes a time of day from Python in nanoseconds only.
        taken = to_arrow_schema(schema, timezone="UTC")
        packed, small = [pack(part) for part in parts], is_small(node, session)
        shared: list[DataFrame] = []
        for share in shares(packed):
            count = len(share)
            read = _Read(packed[share.start : share.stop], columns, ours, taken, lasting_nonce())
            # What is small Spark may send to all executors: it takes it for as small as these numbers.
            plain = session.range(0, count, 1, count)
            numbers = plain if small else engine_of(session).numbers(count, count)
            shared.append(numbers.mapInArrow(versioned(read, read.nonce), schema))
        rows = reduce(lambda one, other: one.union(other), shared)
        return rows if small else _of_unknown_size(rows)


def _of_unknown_size(made: DataFrame) -> DataFrame:
    """Return a frame that Spark does not take for small, and so sends to all executors only when asked.

    Behind Connect, where Spark takes it for as small as the numbers of its pieces, joins shuffle it.
    """
    return made.hint("merge") if engine_of(made.sparkSession).is_connect else made


class _Read:
    """What one task does: reads its piece of the view."""

    def __init__(
        self, parts: list[bytes], columns: Sequence[Column], ours: pa.Schema, schema: pa.Schema, nonce: str
    ) -> None:
        self.parts, self.columns, self.ours, self.schema = parts, tuple(columns), ours, schema
        self.nonce = nonce

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with carrying(self.nonce, _LABEL, number):
                    part: Piece = unpack(self.parts[number])
                    for chunk in part.chunks():
                        yield as_spark_values(batch_of(chunk, self.columns, self.ours), self.schema)


def published(found: Lowered, columns: Sequence[Column], ours: pa.Schema, schema: StructType) -> DataFrame:
    """Return rows under the names and types that frames have, in any order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    plain = found.layout.spark_schema.fields[: len(columns)]
    if all(one.dataType == other.dataType for one, other in zip(plain, schema.fields, strict=True)):
        named = zip(found.layout.columns, schema.fields, strict=True)
        return found.frame.select(
            [found.frame[name].alias(field.name, metadata=field.metadata) for name, field in named]
        )
    work = Publish(
        found.layout, tuple(columns), ours, to_arrow_schema(schema, timezone="UTC"), lasting_nonce()
    )
    return found.frame.mapInArrow(versioned(work, work.nonce), schema)


class Publish:
    """What one task does: gives rows the types that frames have."""

    def __init__(
        self, layout: Layout, columns: tuple[Column, ...], ours: pa.Schema, schema: pa.Schema, nonce: str
    ) -> None:
        self.layout, self.columns, self.ours, self.schema, self.nonce = layout, columns, ours, schema, nonce

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying(self.nonce, _LABEL):
            for chunk in self.layout.chunks(batches):
                values = chunk.select(range(len(self.columns)))
                yield as_spark_values(batch_of(values, self.columns, self.ours), self.schema)


def deliver(node: Node, want: Want, session: Callable[[], SparkSession] | None) -> Sequence[Piece]:
    """Return the rows of a plan that runs on Spark, in order; it runs when the first is read."""
    return delivered(node, want, session_of(session))


def count(node: Node, session: Callable[[], SparkSession] | None) -> int:
    """Return how many rows a plan has on Spark."""
    return counted(node, session_of(session))


def write(
    node: Node,
    session: Callable[[], SparkSession] | None,
    function: Callable[[int, Iterator[pa.RecordBatch]], Written],
) -> list[Written]:
    """Hand the visible columns of a plan to a function in tasks; return what it returns, in order."""
    return written_by(node, session_of(session), function)


def write_whole(
    node: Node,
    session: Callable[[], SparkSession] | None,
    folder: Path,
    function: Callable[[Iterator[pa.RecordBatch]], Written],
) -> Written | None:
    """Hand the visible columns of a plan, in order, to a function in one task that sees a folder.

    None where this process is as near to the rows, or the machines of a cluster do not share the folder.
    """
    return written_whole(node, session_of(session), folder, function)


def lend(node: Node, place: SharedPlace) -> None:
    """Offer a place that tasks see to what a plan rests on: to frames, and to rows of this process."""
    scan.lend(node, place)


def given(session: SparkSession) -> Callable[[], SparkSession]:
    """Return what returns a session that was handed in, if its Spark has all we use."""
    with translated():
        check_age(session)
    return lambda: session


def session_of(given: Callable[[], SparkSession] | None) -> SparkSession:
    """Return the session that a plan runs in: one of ours, if none is given."""
    return given() if given is not None else start().session


def _files(node: Node, columns: Sequence[Column]) -> tuple[Sequence[str], dict[str, pa.Field]] | None:
    """Return the files of a view that is nothing but columns of them, of types Spark reads as they are.

    With them, by the name each column gets, its field in the files.
    """
    wanted = {column.name: column.index for column in columns}
    while isinstance(node, Select):
        wanted = {name: node.places[index] for name, index in wanted.items()}
        node = node.below
    if not isinstance(node, SourceScan) or not hasattr(node.source, "files"):
        return None
    fields = node.source.schema
    names = [name.lower() for name in fields.names]
    if len(set(names)) != len(names) or not all(_is_plain(field.type) for field in fields):
        return None
    files = node.source.files()
    if not files or len(files) > MOST_SLICES:
        return None
    return files, {name: fields.field(index) for name, index in wanted.items()}


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
        or (pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"))
    )


def _from_files(session: SparkSession, files: Sequence[str], fields: Mapping[str, pa.Field]) -> DataFrame:
    needed = pa.schema({field.name: field for field in fields.values()}.values())
    rows = read_parquet(session, needed, files)
    return rows.select([rows[quoted(field.name)].alias(name) for name, field in fields.items()])


# --- queries ------------------------------------------------------------------------------


def answer(
    session: SparkSession,
    query: str,
    parameters: Mapping[str, object],
    tables: Mapping[str, Node],
    *,
    trusted: bool,
) -> DataFrame:
    """Return the frame of a query over plans, parameters bound; it may use nothing else unless trusted.

    The plans get their names in the session. Of those that Python tasks read, no more columns are read
    than the query needs.
    """
    with translated(query):
        if not trusted:
            check_sql(session, query, tables)
            # A second protection: in this session the name of a format never means a path.
            session.conf.set("spark.sql.runSQLOnFiles", "false")

        def planned() -> DataFrame:
            return session.sql(query, args=dict(parameters)) if parameters else session.sql(query)

        for name, columns in _needed(session, tables, planned).items():
            _named(name, _table(session, tables[name], columns))
        return planned()


def _needed(
    session: SparkSession, tables: Mapping[str, Node], planned: Callable[[], DataFrame]
) -> dict[str, set[str] | None]:
    """Return the columns that a query needs, None for all, of each table that tasks read.

    Tables that Spark reads itself get their names here.
    """
    found: dict[str, set[str] | None] = {}
    pruned = []
    for name, node in tables.items():
        columns = node.schema.visible
        if len(columns) > 1 and not engine_of(session).is_connect and _files(node, columns) is None:
            _named(name, stand_in(session, name, to_spark_schema(node.schema.to_arrow())))
            pruned.append(name)
        else:
            _named(name, _table(session, node, None))
    if pruned:
        needed = needed_columns(planned())
        found = {name: needed.get(name) for name in pruned}
    return found


def _named(name: str, rows: DataFrame) -> None:
    rows.createOrReplaceTempView(quoted(name))


def _table(session: SparkSession, node: Node, needed: set[str] | None) -> DataFrame:
    """Return a plan as a frame of which some columns are read, None for all; the others are null."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    names = [column.name for column in node.schema.visible]
    if not names and node.row_count == 0:
        # A dataset that nothing was appended to has no columns yet, and no rows.
        return session.createDataFrame([], StructType([]))
    if needed is None or len(needed) == len(names):
        return frame(node, session)
    # Rows without columns are no frame.
    kept = [name for name in names if name in needed] or names[:1]
    rows = frame(View(node).select(*kept).node, session)
    schema = to_spark_schema(node.schema.to_arrow())
    return rows.select(
        [
            rows[quoted(field.name)]
            if field.name in kept
            else f.lit(None).cast(field.dataType).alias(field.name, metadata=field.metadata)
            for field in schema.fields
        ]
    )
