"""The rows of a slice as they pass: offsets, operations, change pairs, times, values that must be there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.events import OffsetInterval, SetVocab
from trueline.chain.instant import Instant

CORRECT_FROM: Final = 2
CORRECT_TO: Final = 3
_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

Fault = tuple[str, object, object]
"""What is wrong, what was expected, what was found."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a block says of the rows of its slice.

    A replacement of a slice that lost rows is not `dense`: its offsets only ascend.
    """

    interval: OffsetInterval
    vocab: SetVocab
    system_time: Instant
    key: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    dense: bool = True


class RowCheck:
    """Looks at the rows of one slice, batch by batch; each kind of fault is reported once, where it begins.

    A change pair may lie in two slices of one commit, so whether the first
    row ends one (`closes`) and the last begins one (`opens`) is for the
    caller to match, with the rows themselves.
    """

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._last: pa.Table | None = None
        self._told: set[str] = set()
        self._previous = expected.interval.start - 1
        self.rows = 0
        self.closes: pa.Table | None = None
        self.operations = np.zeros(CORRECT_TO + 1, dtype=np.int64)

    @property
    def opens(self) -> pa.Table | None:
        """The last row, if it is a correct-from that waits for its correct-to."""
        op = self._expected.vocab.op
        return self._last if self._last is not None and self._last[op][0].as_py() == CORRECT_FROM else None

    def add(self, batch: pa.RecordBatch) -> Iterator[Fault]:
        """Take the next rows; yields what is wrong with them."""
        if not batch.num_rows:
            return
        vocab = self._expected.vocab
        checks = (
            ("nulls", self._nulls(batch)),
            ("offset", self._offsets(batch.column(vocab.offset))),
            ("op", self._operations(batch.column(vocab.op))),
            ("time", self._times(batch.column(vocab.system_time))),
            ("pair", self._pairs(batch)),
        )
        for name, faults in checks:
            for fault in faults:
                if name not in self._told:
                    self._told.add(name)
                    yield fault
        self.rows += batch.num_rows

    def _nulls(self, batch: pa.RecordBatch) -> Iterator[Fault]:
        for name in self._expected.required:
            missing = batch.column(name).null_count
            if missing:
                yield f"has {missing:,} null values in column {name!r}, which is required", 0, missing

    def _offsets(self, column: pa.Array) -> Iterator[Fault]:
        found = _integers(column)
        before, start = self._previous, self._expected.interval.start
        self._previous = int(found[-1])
        if self._expected.dense:
            first = start + self.rows
            wrong = np.flatnonzero(found != np.arange(first, first + len(found), dtype=np.int64))
            if len(wrong):
                at = int(wrong[0])
                expected, actual = first + at, int(found[at])
                yield f"has offset {actual:,} in row {self.rows + at:,}, not {expected:,}", expected, actual
            return
        steps = np.diff(found, prepend=before)
        wrong = np.flatnonzero((steps <= 0) | (found > self._expected.interval.end))
        if len(wrong):
            at = int(wrong[0])
            yield f"has offset {int(found[at]):,} in row {self.rows + at:,}, out of order", None, found[at]

    def _operations(self, column: pa.Array) -> Iterator[Fault]:
        found = _integers(column)
        wrong = np.flatnonzero((found < 0) | (found > CORRECT_TO))
        if len(wrong):
            at = int(wrong[0])
            yield f"has operation {found[at]} in row {self.rows + at:,}", "0 to 3", found[at]
        else:
            self.operations += np.bincount(found, minlength=CORRECT_TO + 1)

    def _times(self, column: pa.Array) -> Iterator[Fault]:
        moment = self._expected.system_time
        if not pa.types.is_timestamp(column.type):
            yield f"has system times of type {column.type}", "timestamp", column.type
            return
        step = _NANOSECONDS[column.type.unit]
        found = _integers(column)
        wrong = np.flatnonzero(found != int(moment) // step)
        if len(wrong):
            at = int(wrong[0])
            actual = _moment(int(found[at]) * step)
            yield (
                f"has system time {actual} in row {self.rows + at:,}, the block's is {moment}",
                moment,
                actual,
            )

    def _pairs(self, batch: pa.RecordBatch) -> Iterator[Fault]:
        """A correct-from is directly followed by its correct-to, and both have the same key."""
        vocab = self._expected.vocab
        rows = pa.Table.from_batches([batch.select([vocab.op, *self._expected.key])])
        before, self._last = self._last, rows.slice(rows.num_rows - 1)
        first = self.rows
        if before is not None:
            rows, first = pa.concat_tables([before, rows]), first - 1
        ops = _integers(rows[vocab.op])
        if before is None and ops[0] == CORRECT_TO:
            self.closes = rows.slice(0, 1)
        if not self._expected.dense:
            # One half of a pair may have been removed.
            return
        opened, closed = ops[:-1] == CORRECT_FROM, ops[1:] == CORRECT_TO
        wrong = np.flatnonzero(opened != closed)
        if len(wrong):
            at = int(wrong[0])
            yield unpaired(int(ops[at]), int(ops[at + 1]), f"row {first + at + 1:,}")
        pairs = np.flatnonzero(opened & closed)
        other = differing(rows, self._expected.key, pairs, pairs + 1)
        if other is not None:
            yield f"corrects one key to another in row {first + other[0] + 1:,}: {other[1]}", None, other[1]


def unpaired(before: int, after: int, where: str) -> Fault:
    """Say that two neighbours are half a pair."""
    if before == CORRECT_FROM:
        return f"has a correct-from without its correct-to: operation {after} follows in {where}", 3, after
    return f"has a correct-to without its correct-from: operation {before} precedes {where}", 2, before


def differing(
    rows: pa.Table, key: tuple[str, ...], first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> tuple[int, str] | None:
    """Return the first pair of rows whose keys differ, and how; None if all are alike."""
    if not len(first):
        return None
    for name in key:
        column = rows[name].combine_chunks()
        one, other = column.take(pa.array(first)), column.take(pa.array(second))
        same = _equal(one, other)
        wrong = np.flatnonzero(~same)
        if len(wrong):
            at = int(wrong[0])
            return int(first[at]), f"{name} {one[at].as_py()!r} and {other[at].as_py()!r}"
    return None


def _equal(one: Any, other: Any) -> npt.NDArray[np.bool_]:
    """Compare two columns; null equals null, and NaN equals NaN."""
    same = pc.fill_null(pc.equal(one, other), False)
    same = pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        nans = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))
        same = pc.or_(same, nans)
    return np.asarray(same.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _integers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The values of a whole-number or timestamp column; a null is -1, and is reported elsewhere."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    plain = column.cast(pa.int64()) if not pa.types.is_int64(column.type) else column
    values = pc.fill_null(plain, -1) if plain.null_count else plain
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)


def _moment(nanoseconds: int) -> str:
    try:
        return str(Instant(nanoseconds))
    except ValueError:
        return f"{nanoseconds} ns"
