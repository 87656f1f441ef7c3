"""Rows that are brought from machines which share nothing with this one: as bytes, so many at a time at most.

Tasks pack rows in parcels of a few MiB. What each would send is counted first: where it is more than a share,
Spark moves the shares to tasks of their own. So no result of a task is larger than a share, however large a
partition is, and however small the driver (`spark.driver.maxResultSize`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trueline.dataset.append.pieces import rows_within
from trueline.spark.engines import engine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Between machines, packing saves more than it costs: half of the bytes for 45 ns a row.
PACKED: Final = "lz4"
_BYTES_OF_A_PARCEL: Final = 4 << 20
_BYTES_OF_A_SHARE: Final = 16 << 20
_SCHEMA: Final = "part int, share int, number int, size int, parcel binary"


def parcels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a task as values of a few MiB, or of one row if it has more."""
    for data in _packed(batches, _BYTES_OF_A_PARCEL):
        yield pa.record_batch({"parcel": pa.array([data], pa.binary())})


def _packed(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[bytes]:
    for batch in batches:
        for part in _cut(batch, most):
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression=PACKED)
            with pa.ipc.new_stream(sink, part.schema, options=options) as stream:
                stream.write_batch(part)
            yield sink.getvalue().to_pybytes()


def _cut(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    while batch.nbytes > most and batch.num_rows > 1:
        rows, _ = rows_within(pa.Table.from_batches([batch]), most)
        yield batch.slice(0, rows)
        batch = batch.slice(rows)
    if batch.num_rows:
        yield batch


@dataclass(frozen=True, slots=True)
class FewParcels:
    """Packs the batches of a task until they have more than so many bytes; the others stay where they are."""

    most: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels: what is beyond the limit is known by one more of them."""
        size = 0
        for batch in batches:
            # A task whose input is not read to the end costs its worker.
            if size <= self.most:
                yield from parcels(iter([batch]))
                size += batch.nbytes


@dataclass(frozen=True, slots=True)
class ParcelShares:
    """Packs the rows of a task, and says of each parcel in which share of them it is."""

    most: int
    of_a_parcel: int = _BYTES_OF_A_PARCEL

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels with their numbers."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, share, held = context.partitionId(), 0, 0
        for number, data in enumerate(_packed(batches, self.of_a_parcel)):
            if held and held + len(data) > self.most:
                share, held = share + 1, 0
            held += len(data)
            yield pa.record_batch(
                {
                    "part": pa.array([part], pa.int32()),
                    "share": pa.array([share], pa.int32()),
                    "number": pa.array([number], pa.int32()),
                    "size": pa.array([len(data)], pa.int32()),
                    "parcel": pa.array([data], pa.binary()),
                }
            )


def fetched(frame: DataFrame) -> Iterator[bytes]:
    """Yield the parcels of a frame in the order of its partitions and rows, a share at a time."""
    from pyspark import StorageLevel

    packed = frame.mapInArrow(ParcelShares(_BYTES_OF_A_SHARE, _BYTES_OF_A_PARCEL), _SCHEMA)
    # They are counted, then moved: executors keep them on their disks, and make those of a lost one again.
    packed = packed.persist(StorageLevel.DISK_ONLY)
    try:
        counts = packed.select("part", "share", "size").toArrow()
        moved, sizes = _in_shares(packed, counts)
        yield from engine_of(frame.sparkSession).values(moved.select("parcel"), sizes)
    finally:
        packed.unpersist()


def _in_shares(packed: DataFrame, counts: pa.Table) -> tuple[DataFrame, dict[int, int]]:
    """Return parcels with no more than a share in one task, and how many bytes each of the tasks has."""
    from pyspark.sql import functions as f

    found = [counts[name].to_pylist() for name in ("part", "share", "size")]
    parts = max(found[0], default=-1) + 1
    shares = [1] * parts
    for part, share in zip(found[0], found[1], strict=True):
        shares[part] = max(shares[part], share + 1)
    starts = list(accumulate(shares, initial=0))
    sizes: dict[int, int] = {}
    for part, share, size in zip(*found, strict=True):
        sizes[starts[part] + share] = sizes.get(starts[part] + share, 0) + size
    if starts[-1] == parts:
        return packed, sizes
    first = f.element_at(f.array(*map(f.lit, starts[:-1])), f.col("part") + 1)
    moved = packed.repartitionById(starts[-1], (first + f.col("share")).cast("int"))
    return moved.sortWithinPartitions("number"), sizes
