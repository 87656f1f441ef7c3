"""Chunks of rows, and pieces that are read whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from trueline.kernel.chunk import Chunk, all_chunks


@dataclass(frozen=True)
class Numbered:
    """A piece of so many chunks of a row, whose first reading may fail."""

    number: int
    chunks_of_a_row: int = 1
    fails: bool = False

    @property
    def rows(self):
        return self.chunks_of_a_row

    def chunks(self):
        if self.fails:
            raise OSError(f"piece {self.number} is gone")
        for _ in range(self.chunks_of_a_row):
            yield Chunk(1, (pa.array([self.number]),))


def number_of(chunk):
    return chunk.arrays[0][0].as_py()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 77, 1_000])
def test_pieces_that_are_read_whole_come_in_their_order(count, threads):
    pieces = [Numbered(number, number % 3) for number in range(count)]
    expected = [number for number in range(count) for _ in range(number % 3)]
    assert all_chunks(pieces, number_of, threads) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_of_several_pieces_that_fail_the_first_is_told(threads):
    pieces = [Numbered(number, fails=number in (23, 40, 70)) for number in range(77)]
    with pytest.raises(OSError, match="piece 23"):
        all_chunks(pieces, number_of, threads)


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.bool_(), pa.timestamp("us"), pa.string()])
def test_rows_are_kept_with_their_nulls_and_without(kind, start):
    random = np.random.default_rng(5)
    whole = pa.array(random.integers(0, 2, 100)).cast(pa.string() if kind == pa.string() else kind)
    gone = pa.array(random.random(100) < 0.3)
    column = pa.array(
        [None if none else value.as_py() for value, none in zip(whole, gone, strict=True)], kind
    )
    given = Chunk(100, (whole, column)).slice(start)
    for mask in (given.arrays[1].is_valid(), pa.array(random.random(given.rows) < 0.5)):
        kept = given.filter(mask)
        assert kept.rows == mask.true_count
        for array, found in zip(given.arrays, kept.arrays, strict=True):
            found.validate(full=True)
            assert found.to_pylist() == [
                v for v, k in zip(array.to_pylist(), mask.to_pylist(), strict=True) if k
            ]
