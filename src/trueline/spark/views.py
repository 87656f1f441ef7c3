"""Views and frames: what `trueline.view.engine` asks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trueline.errors import SchemaError
from trueline.kernel.chunk import Piece
from trueline.spark.errors import carrying, lasting_nonce, translated
from trueline.spark.frozen_frames import freeze
from trueline.spark.lowering import LoweringTarget
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import is_read_by_tasks
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered
from trueline.spark.lowering.places import advise, describe, travels
from trueline.spark.packing import pack, unpack
from trueline.spark.plans import check_sql
from trueline.spark.session import start
from trueline.spark.types import arrow_schema_of, to_spark_schema
from trueline.view.execute import pieces
from trueline.view.execute.dispatch import batch_of
from trueline.view.plan.node import Node, Want
from trueline.view.plan.select import Select
from trueline.view.plan.sources import SourceScan
from trueline.view.schema import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["advise", "answer", "deliver", "describe", "frame", "freeze", "register", "travels"]

_LABEL: Final = "reading the view"
_NEEDED: Final[list[object]] = []


# --- to a frame ---------------------------------------------------------------------------


def frame(node: Node, session: SparkSession | None = None) -> DataFrame:
    """Return the rows of a plan as a frame.

    Slices that are files Spark reads itself are read by it; other rows are read in its tasks by the view's
    own code. Where rows depend on each other (a join, a group) Spark's shuffle brings them together.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    session = start().session if session is None else session
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
            found = target_session.lower(node, want)
            # A frame does not say when it goes: what it reads stays as long as this process.
            _NEEDED.extend(target_session.needs)
            return published(found, columns, ours, schema)
        parts = pieces(node, Want(tuple(column.index for column in columns)))
        if not parts:
            return session.createDataFrame(target.empty_table(), schema)
        # Spark takes a time of day from Python in nanoseconds only.
        taken = to_arrow_schema(schema, timezone="UTC")
        read = _Read([pack(part) for part in parts], columns, ours, taken, lasting_nonce())
        return session.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)


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
                        yield batch_of(chunk, self.columns, self.ours).cast(self.schema)


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
    return found.frame.mapInArrow(work, schema)


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
                yield batch_of(values, self.columns, self.ours).cast(self.schema)


def deliver(node: Node, want: Want, session: Callable[[], SparkSession] | None) -> Sequence[Piece]:
    """Return the rows of a plan that runs on Spark, in order; it runs when the first is read."""
    return delivered(node, want, session() if session is not None else start().session)


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
    return (files, {name: fields.field(index) for name, index in wanted.items()}) if files else None


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
    rows = session.read.schema(to_spark_schema(needed)).parquet(*files)
    return rows.select([rows[_quoted(field.name)].alias(name) for name, field in fields.items()])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


# --- queries ------------------------------------------------------------------------------


def answer(
    session: SparkSession, query: str, parameters: Mapping[str, object], tables: Collection[str] | None
) -> DataFrame:
    """Return the frame of a query, parameters bound; it may use these tables only, None if it is trusted."""
    with translated(query):
        if tables is not None:
            check_sql(session, query, tables)
            # A second protection: in this session the name of a format never means a path.
            session.conf.set("spark.sql.runSQLOnFiles", "false")
        return session.sql(query, args=dict(parameters)) if parameters else session.sql(query)


def register(session: SparkSession, name: str, node: Node) -> None:
    """Give the rows of a plan a name that queries of a session can use."""
    from pyspark.sql.types import StructType

    with translated():
        # A dataset that nothing was appended to has no columns yet, and no rows.
        none = not node.schema.visible and node.row_count == 0
        found = session.createDataFrame([], StructType([])) if none else frame(node, session)
        found.createOrReplaceTempView(_quoted(name))
