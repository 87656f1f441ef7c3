"""Sorting what does not fit into memory: sorted runs in files, read back by ranges of keys.

Each task sorts its piece into a run; splitters chosen from samples of all runs
cut the keys into ranges of about equal numbers of rows; each range is then
merged by itself. Rows are ordered by key, then by rank, which is unique: so
neither the number of runs nor the splitters show in the result. Views, whose
orders are not merge keys, sort by `external_sort`, with cuts chosen in the same
way; it says why the two are apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trueline.errors import InputError, RetryError, TruelineError, check_memory
from trueline.kernel.key_encoding import KEY, RANK, KeyRange, MergeKey
from trueline.kernel.sorted_keys import (
    SAMPLES_OF_A_RUN,
    as_array,
    even_cuts,
    merged,
    sample_places,
    sorting,
    within,
)

# Key and rank in one column of bytes, so that every row of every run has a place of its own.
_ORDER: Final = "_order"
_RANK_BYTES: Final = 8
# A range holds one group of each run in memory: 100 runs of 100 bytes a row are 160 MB.
ROWS_OF_A_GROUP: Final = 16_384


class RunStorage(Protocol):
    """Where runs are kept until they are merged; a file appears when it is closed."""

    def create(self, name: str) -> BinaryIO: ...

    def open(self, name: str) -> BinaryIO: ...


@dataclass(frozen=True, slots=True)
class RunFile:
    """A sorted file of rows: its name, how many rows, and keys taken from it at regular distances."""

    name: str
    rows: int
    samples: tuple[bytes, ...]


def sort_run(
    table: pa.Table, key: MergeKey, place: RunStorage, name: str, *, samples: int = SAMPLES_OF_A_RUN
) -> RunFile:
    """Write rows sorted by key and `_rank` as one run; rows without a key are refused."""
    if RANK not in table.column_names or table.schema.field(RANK).type != pa.int64():
        raise InputError(f"rows without {RANK!r} cannot be sorted", remedy="number the rows of the source")
    orders = key.encode_ranked(table, RANK)
    order = sorting(orders)
    if order is not None:
        orders, table = orders.take(pa.array(order)), table.combine_chunks().take(pa.array(order))
    rows = table.drop_columns([KEY]) if KEY in table.column_names else table
    rows = rows.add_column(0, pa.field(_ORDER, pa.binary(), nullable=False), orders)
    with closing(place.create(name)) as file:
        pq.write_table(
            rows,
            file,
            row_group_size=ROWS_OF_A_GROUP,
            compression="lz4",
            use_dictionary=False,
            write_statistics=[_ORDER],
            write_page_checksum=True,
        )
    at = pa.array(sample_places(len(orders), samples))
    return RunFile(name, len(orders), tuple(_keys(orders.take(at)).to_pylist()))


def choose_splitters(runs: Sequence[RunFile], parts: int) -> list[bytes]:
    """Return at most `parts` − 1 keys that cut the rows of all runs into ranges of about equal size.

    >>> choose_splitters([RunFile("a", 4, (b"a", b"b", b"c", b"d"))], 2)
    [b'c']
    """
    return even_cuts([(sample, run.rows / len(run.samples)) for run in runs for sample in run.samples], parts)


def read_range(
    place: RunStorage, runs: Sequence[RunFile], wanted: KeyRange | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of all runs in a range, with `_key`, by key and rank, a group of each run at a time."""
    for table in merged([_stream(place, run, wanted) for run in runs if run.rows], _ORDER):
        keys = _keys(as_array(table[_ORDER]))
        yield table.drop_columns([_ORDER]).append_column(pa.field(KEY, pa.binary(), nullable=False), keys)


def _keys(orders: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_slice(orders, 0, -_RANK_BYTES)


def _stream(place: RunStorage, run: RunFile, wanted: KeyRange | None) -> Iterator[pa.Table]:
    with closing(place.open(run.name)) as file:
        with _readable(run):
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
        for number in range(parquet.num_row_groups):
            statistics = parquet.metadata.row_group(number).column(0).statistics
            if wanted is not None and statistics is not None and statistics.has_min_max:
                after = wanted.end is not None and statistics.min >= wanted.end
                before = wanted.first is not None and statistics.max < wanted.first
                if after or before:
                    continue
            with _readable(run):
                rows = parquet.read_row_group(number)
            first, end = within(as_array(rows[_ORDER]), wanted)
            yield rows.slice(first, end - first)


@contextmanager
def _readable(run: RunFile) -> Iterator[None]:
    """Say of a run that cannot be read that the work is to be done again."""
    try:
        yield
    except TruelineError:
        raise
    except (pa.ArrowException, OSError) as error:
        check_memory(error, f"reading the sorted run {run.name}")
        raise RetryError(
            f"the sorted run {run.name} cannot be read: {error}", remedy="sort the rows again"
        ) from error
