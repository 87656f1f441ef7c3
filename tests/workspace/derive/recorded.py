"""Results that Spark gave once, kept by what they were computed from: pulls are done again, hash for hash.

Whatever is written of them is written as ever: slices, state, checkpoints, blocks, heads, cuts.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl
from trueline.chain.instant import Instant
from trueline.dataset.append.incoming import from_table
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.derive.follow import EvaluatedRows, Evaluation

NOON = Instant.parse("2100-01-01T12:00:00Z")  # later than any clock that made the datasets


def _place(folder, evaluation):
    taken = "-".join(str(evaluation.taken[each.id].offset) for each in evaluation.inputs.values())
    return Path(folder) / f"{evaluation.dataset.name}-{taken}.parquet"


@contextmanager
def recording(folder):
    """Keep the results of Spark in a folder."""
    real = Evaluation.result

    @contextmanager
    def result(self):
        with real(self) as found:
            tables = [table for piece in found.rows.pieces for table in piece.read(0, piece.rows)]
            given = pa.concat_tables(tables)
            given = given.select([name for name in given.column_names if name in found.rows.given])
            pq.write_table(given, _place(folder, self))
            yield found

    Evaluation.result = result
    try:
        yield
    finally:
        Evaluation.result = real


@contextmanager
def replaying(folder):
    """Take the results from a folder; there is no Spark."""
    real = Evaluation.result

    @contextmanager
    def result(self):
        table = pq.read_table(_place(folder, self))
        with self.dataset.chain.store.scratch() as scratch:
            rows = from_table(table, self.tail, with_op=False)
            yield EvaluatedRows(rows, scratch, InlineTasks(), {"canonical": "1"})

    Evaluation.result = result
    try:
        yield
    finally:
        Evaluation.result = real


def at_noon(path, **more):
    ws = tl.open(path, **more)
    ws.clock = lambda: NOON
    return ws


def pulling(path, what):
    """A deed of `tests.faults`: the pull of a workspace by recorded results, in a process that is killed."""
    ws = at_noon(path)

    def act():
        with replaying(what):
            ws.pull(workers=1)

    return act
