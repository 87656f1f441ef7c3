"""A Spark frame as ordered Parquet pieces: written by the executors, past the driver, or fetched to it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.store.folders import Inside, inside
from trueline.errors import EnvironmentMissing, InputError
from trueline.kernel.tasks import failure
from trueline.spark.engines import engine_of
from trueline.spark.errors import CarriedError, expecting, lasting_nonce, translated
from trueline.spark.jobs import run
from trueline.spark.parcels import PACKED, FewParcels
from trueline.spark.results import batches_of, decode, encode, unreadable
from trueline.spark.settings import LOCAL
from trueline.spark.types import arrow_schema_of
from trueline.spark.workers import versioned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Written = TypeVar("Written")

# The values of a frame are made under its own session's settings; only how they are written is ours.
_WRITE_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.timeType.enabled": "true",
    # Columns that differ by case only are two columns.
    "spark.sql.caseSensitive": "true",
}
# Pieces are read once and thrown away: on a disk of this machine, compressing them costs more than it saves.
_PLAIN: Final = "none"
_WRITE_OPTIONS: Final = {
    "parquet.enable.dictionary": "false",
    "parquet.block.size": str(16 << 20),
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_ROWS_OF_A_GROUP: Final = 131_072
_PART: Final = re.compile(r"part-(\d+)-.*-c(\d+)(?:\.\w+)*\.parquet")
_PIECE: Final = re.compile(r"part-\d{5,10}-[0-9a-f]{32}-c000\.parquet")
_SCHEMA: Final = "partition int, result binary"
# Rows of fewer bytes may pass the driver of a cluster: they are here before it has begun a job.
SMALL: Final = 16 << 20
_ARROW: Final = pa.schema({"partition": pa.int32(), "result": pa.binary()})


@dataclass(frozen=True, slots=True)
class SpooledFile:
    """A Parquet file with some of the rows."""

    place: Inside
    rows: int
    size: int

    @property
    def path(self) -> str:
        """Where it is, for those who read by path."""
        return str(self.place)


@dataclass(frozen=True, slots=True)
class Spooled:
    """A frame on disk: pieces in the frame's order, and the schema its columns are to be read as."""

    schema: pa.Schema
    pieces: tuple[SpooledFile, ...]

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(piece.rows for piece in self.pieces)


def spool(frame: DataFrame, folder: str | Path | Inside, *, label: str = "reading the frame") -> Spooled:
    """Write a frame into a new folder below `folder`, which driver and executors share.

    One file per partition, in the order of the partitions; empty ones are left out. A classic session
    writes from the JVM, under a copy of the frame's session; on Connect the rows go through Python workers.
    The JVM knows paths only: that no link is on the way is checked before, and again when it has written.
    """
    schema = _checked(frame)
    target = inside(folder) / uuid.uuid4().hex
    try:
        with target.parent.folder(make=True):
            pass
        if engine_of(frame.sparkSession).is_connect:
            written = write_pieces(frame, WritePiece(target, schema), label=label)
            # The driver chooses the folder, the task only names its file in it.
            pieces = tuple(_told(piece).inside(target) for piece in written if piece is not None)
            return _all_there(Spooled(schema, pieces), target, sum(piece.rows for piece in pieces))
        count = _written_by_jvm(frame, target.path, label)
        return _all_there(Spooled(schema, _pieces(target)), target, count)
    except BaseException:
        target.remove_tree()
        raise


class TooLarge(Exception):
    """The rows of a frame have more bytes than may be fetched."""


def fetch(
    frame: DataFrame, folder: str | Path | Inside, *, label: str = "reading the frame", most: int = SMALL
) -> Spooled:
    """Bring the rows of a frame to this process, one partition at a time, into a new folder below `folder`.

    For results that are read here from a Spark whose machines share no folder with this one. Rows of more
    bytes than `most` raise `TooLarge`; no task sends more than that.
    """
    schema = _checked(frame)
    target = inside(folder) / uuid.uuid4().hex
    place = target / "part-00000-fetched-c000.parquet"

    engine = engine_of(frame.sparkSession)

    def write() -> int:
        received = engine.values(frame.mapInArrow(FewParcels(most), "parcel binary"))
        with (
            place.create() as file,
            pq.ParquetWriter(file, schema, compression="none", use_dictionary=False) as writer,
        ):
            rows = size = 0
            for parcel in received:
                for batch in batches_of(parcel, schema.names):
                    table = pa.Table.from_batches([batch]).cast(schema)
                    writer.write_table(table, row_group_size=_ROWS_OF_A_GROUP)
                    rows, size = rows + table.num_rows, size + table.nbytes
                if size > most:
                    raise TooLarge
            return rows

    try:
        rows = run(engine, write, label=label)
        return Spooled(schema, (SpooledFile(place, rows, _size(place)),) if rows else ())
    except BaseException:
        target.remove_tree()
        raise


def shares_folders(session: SparkSession) -> bool:
    """Say whether executors surely see the folders of this machine: they run on it."""
    if engine_of(session).is_connect:
        return False
    master = str(session.sparkContext.master)
    return master == "local" or master.startswith(LOCAL)


def _checked(frame: DataFrame) -> pa.Schema:
    with translated():
        if frame.isStreaming:
            raise InputError(
                "a streaming frame cannot be read as a batch",
                remedy="use foreachBatch, which gives a frame per batch",
            )
        return arrow_schema_of(frame.schema)


# --- by the JVM -------------------------------------------------------------------------


def _written_by_jvm(frame: Any, target: Path, label: str) -> int:
    """Write a frame from the JVM and return how many rows it had, counted in the same pass."""
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql import functions as f

    session = frame.sparkSession
    java = frame._jdf  # noqa: SLF001 (no public way leads from a frame to another session)
    copy = java.sparkSession().cloneSession()
    for key, value in _WRITE_SETTINGS.items():
        copy.conf().set(key, value)
    dataset = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")  # noqa: SLF001
    moved = DataFrame(
        dataset.ofRows(copy, java.queryExecution().analyzed()), SparkSession(session.sparkContext, copy)
    )
    rows = Observation()
    codec = _PLAIN if shares_folders(session) else f"{PACKED}_raw"
    writer = moved.observe(rows, f.count(f.lit(1)).alias("rows")).write.options(**_WRITE_OPTIONS)
    writer = writer.option("compression", codec)
    run(engine_of(session), lambda: writer.parquet(target.as_uri()), label=label)
    return int(rows.get["rows"])


def _pieces(target: Inside) -> tuple[SpooledFile, ...]:
    """Return the files in the order of their part numbers, with their rows from the footers."""
    found = []
    for name, _ in target.listing():
        part = _PART.fullmatch(name)
        if part is not None:
            found.append((int(part.group(1)), int(part.group(2)), name))
    places = [target / name for _, _, name in sorted(found)]
    pieces = (SpooledFile(place, _rows(place), _size(place)) for place in places)
    return tuple(piece for piece in pieces if piece.rows)


def _rows(place: Inside) -> int:
    with place.open() as file:
        return int(pq.read_metadata(file).num_rows)


def _size(place: Inside) -> int:
    found = place.stat()
    return 0 if found is None else found.st_size


def _all_there(spooled: Spooled, target: Inside, count: int) -> Spooled:
    """Check that the driver sees every row: where a folder is not shared, some stay on other machines."""
    missing = [piece.path for piece in spooled.pieces if not piece.place.exists()]
    if spooled.rows != count or missing:
        raise EnvironmentMissing(
            f"{count:,} rows were written below {target}, but the driver sees {spooled.rows:,}"
            if not missing
            else f"{missing[0]} was written, but the driver does not see it",
            remedy="choose a folder that all machines of the cluster share, or an object store",
            code="FolderNotShared",
            folder=str(target),
        )
    return spooled


# --- by Python workers ------------------------------------------------------------------


def write_pieces(
    frame: DataFrame,
    function: Callable[[int, Iterator[pa.RecordBatch]], Written],
    *,
    label: str = "reading the frame",
) -> list[Written]:
    """Hand each partition's rows to a function in its task; return the results in the partitions' order.

    For Connect, and for object stores that Spark has no jars for: the function writes through a store of
    ours and returns something small. It may run more than once for a partition and must be idempotent.
    """
    _checked(frame)
    with expecting() as nonce:
        work = versioned(_PerPartition(function, label, nonce), lasting_nonce())
        mapped = frame.mapInArrow(work, _SCHEMA)
        table = run(engine_of(frame.sparkSession), mapped.toArrow, label=label)
    found: dict[int, Written] = {}
    for partition, result in zip(table["partition"].to_pylist(), table["result"].to_pylist(), strict=True):
        if partition not in found:
            found[partition] = decode(result)
    return [found[partition] for partition in sorted(found)]


class _PerPartition:
    """What one task does with its partition."""

    def __init__(
        self, function: Callable[[int, Iterator[pa.RecordBatch]], object], label: str, nonce: str
    ) -> None:
        self.function, self.label, self.nonce = function, label, nonce

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        try:
            result = encode(self.function(partition, batches))
        except Exception as error:  # noqa: BLE001 (anything the function raises)
            raise CarriedError(failure(error, label=self.label, index=partition), self.nonce) from None
        yield pa.record_batch([[partition], [result]], schema=_ARROW)


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """What a task says of the file it wrote: its name, not where it is."""

    name: str
    rows: int
    size: int

    def inside(self, folder: Inside) -> SpooledFile:
        """Return the piece in the folder that the driver chose."""
        if _PIECE.fullmatch(self.name) is None:
            raise unreadable(f"{self.name!r:.80} is not the name of a piece")
        return SpooledFile(folder / self.name, self.rows, self.size)


def _told(answer: object) -> WrittenPiece:
    """Return what a task says of its file, if that is what it says."""
    if not isinstance(answer, WrittenPiece) or min(answer.rows, answer.size) < 0:
        raise unreadable(f"a {type(answer).__name__} is not what a task says of its file")
    return answer


@dataclass(frozen=True, slots=True)
class WritePiece:
    """Writes a partition as one Parquet file of a folder; nothing for an empty one."""

    folder: Inside
    schema: pa.Schema

    def __call__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> WrittenPiece | None:
        """Write the rows, in their order; a second attempt writes a file of its own."""
        place = self.folder / f"part-{partition:05}-{uuid.uuid4().hex}-c000.parquet"
        rows = 0
        with ExitStack() as stack:
            writer: pq.ParquetWriter | None = None
            for batch in batches:
                if batch.num_rows:
                    if writer is None:
                        file = stack.enter_context(place.create())
                        writer = stack.enter_context(
                            pq.ParquetWriter(file, self.schema, compression=PACKED, use_dictionary=False)
                        )
                    table = pa.Table.from_batches([batch]).cast(self.schema)
                    writer.write_table(table, row_group_size=_ROWS_OF_A_GROUP)
                    rows += batch.num_rows
        return WrittenPiece(place.name, rows, _size(place)) if rows else None
