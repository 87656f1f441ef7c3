"""Functions in Spark tasks: descriptors in, small results out, on classic and on Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline import console
from trueline.errors import SparkFailed
from trueline.kernel.tasks import Descriptor, Result, TaskProgress, failure, following, measured
from trueline.spark.errors import CarriedError, expecting
from trueline.spark.jobs import run
from trueline.spark.packing import pack, unpack
from trueline.spark.progress import Shown
from trueline.spark.results import decode, encode
from trueline.spark.workers import check_version, our_version

if TYPE_CHECKING:
    from trueline.spark.engines import SessionAdapter

# One job runs so many tasks at most, or as many as their descriptors fill so many bytes: each task is
# sent all descriptors of its job.
_TASKS: Final = 1_024
_BYTES: Final = 4 << 20
SCHEMA: Final = "id long, result binary"
ARROW: Final = pa.schema({"id": pa.int64(), "result": pa.binary()})
_SCHEMA: Final = f"{SCHEMA}, rows long"
_ARROW: Final = ARROW.append(pa.field("rows", pa.int64()))


class SparkTasks:
    """The protocol `workspace.Tasks`, one Spark task per descriptor.

    Spark may run a function more than once for a descriptor (retries, speculation): it must be idempotent.
    Exactly one result per descriptor is returned. `about` is what Spark's web page says all of it is for.
    """

    def __init__(self, engine: SessionAdapter, about: str = "") -> None:
        self._engine = engine
        self._about = about

    def map(
        self, function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], *, label: str
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, result), each index exactly once; results come when their job is done."""
        unit, sizes = measured(descriptors)
        rows = 0
        with console.current().progress(f"{label}{unit}", sum(sizes)) as bar:
            for first, packed in _jobs(descriptors):
                shown = Shown(bar, label, sizes[first : first + len(packed)])
                for index, result, made in self._job(Work(function, first, packed, label), shown):
                    rows += made
                    yield index, result
                if rows:
                    bar.describe(f"{label}{unit}, {rows:,} rows")

    def _job(self, work: Work, shown: Shown) -> Iterator[tuple[int, Any, int]]:
        """Yield the index of each descriptor of a job, its result, and how many rows were made of it."""
        count, label = len(work.packed), work.label
        with expecting() as work.nonce:
            frame = self._engine.session.range(0, count, 1, count).mapInArrow(work, _SCHEMA)
            table = run(self._engine, frame.toArrow, label=label, about=self._about, shown=shown)
        seen: set[int] = set()
        for index, result, made in zip(*(table[name].to_pylist() for name in _ARROW.names), strict=True):
            if index not in seen and 0 <= index < count:
                seen.add(index)
                yield work.first + index, decode(result), made if type(made) is int else 0
        if len(seen) != count:
            raise SparkFailed(
                f"{label}: {count - len(seen)} of {count} tasks returned no result", remedy="try again"
            )


def _jobs(descriptors: Sequence[Any]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut the descriptors, pickled, into jobs."""
    first, size = 0, 0
    packed: list[bytes] = []
    for index, descriptor in enumerate(descriptors):
        data = pack(descriptor)
        if packed and (len(packed) >= _TASKS or size + len(data) > _BYTES):
            yield first, packed
            first, size, packed = index, 0, []
        packed.append(data)
        size += len(data)
    if packed:
        yield first, packed


class Work:
    """What one task does: finds its descriptor by number, applies the function, encodes the result."""

    def __init__(
        self, function: Callable[[Any], object], first: int, packed: list[bytes], label: str, nonce: str = ""
    ) -> None:
        self.function, self.first, self.packed = function, first, packed
        self.label, self.nonce = label, nonce
        self.version = our_version()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with following(TaskProgress()) as done:
                    result = self._one(number)
                yield pa.record_batch([[number], [result], [done.rows]], schema=_ARROW)

    def _one(self, number: int) -> bytes:
        try:
            # Machines that joined after the workers were checked are met here.
            check_version(self.version)
            return encode(self.function(unpack(self.packed[number])))
        except Exception as error:  # noqa: BLE001 (anything the function raises)
            ours = failure(error, label=self.label, index=self.first + number)
            raise CarriedError(ours, self.nonce) from None
