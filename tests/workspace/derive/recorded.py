"""Results that Spark gave once, kept by what they were computed from: pulls are done again, hash for hash.

Whatever is written of them is written as ever: slices, state, checkpoints, blocks, heads, cuts.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.workspace.derive.small_slices import slices_of
from trueline.chain.instant import Instant
from trueline.dataset.append.incoming import from_table
from trueline.dataset.append.pieces import IncomingPiece
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.derive import follow, strategies
from trueline.workspace.derive.strategies import keyed
from trueline.workspace.derive.strategies.increment import Impossible

NOON = Instant.parse("2100-01-01T12:00:00Z")  # later than any clock that made the datasets


VERSIONS = {"canonical": "1"}


def _place(folder, transaction, what="result"):
    positions = transaction.advance.positions
    taken = "-".join(str(positions[each.id].offset) for each in transaction.inputs.values())
    return Path(folder) / f"{transaction.dataset.name}-{taken}-{what}.parquet"


def _whole(*_):
    raise Impossible("recorded")


@contextmanager
def _computed_by(computed, built=None):
    """Have whole results computed by something else; what increments keep is `built` so, or not made."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (follow, strategies):
            patch.setattr(room, "computed", computed)
        patch.setattr(strategies, "_increment", _whole)
        if built is None:
            patch.setattr(strategies, "_kept", lambda *_: {})
        else:
            patch.setattr(strategies, "built", built)
        patch.setattr(follow, "engine_versions", lambda _: VERSIONS)
        yield


@contextmanager
def recording(folder, *, state=False):
    """Keep the results of Spark in a folder; those of which `state` is built too, if it is to be."""
    real, spooled = strategies.computed, keyed.spooled

    def built(transaction, session, scratch):
        def noted(frame, *given):
            pieces = list(spooled(frame, *given))
            found = pa.concat_tables([table for piece in pieces for table in piece.read(0, piece.rows)])
            pq.write_table(found, _place(folder, transaction, "parts"))
            return pieces

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keyed, "spooled", noted)
            return keyed.built(transaction, session, scratch)

    @contextmanager
    def computed(transaction):
        with real(transaction) as (session, rows, scratch, tasks):
            tables = [table for piece in rows.pieces for table in piece.read(0, piece.rows)]
            given = pa.concat_tables(tables)
            given = given.select([name for name in given.column_names if name in rows.given])
            pq.write_table(given, _place(folder, transaction))
            yield session, rows, scratch, tasks

    with _computed_by(computed, built if state else None):
        yield


@contextmanager
def replaying(folder, *, state=False):
    """Take the results from a folder; there is no Spark."""

    def built(transaction, session, scratch):
        parts = pq.read_table(_place(folder, transaction, "parts"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keyed, "run_sql", lambda *_: parts)
            patch.setattr(keyed, "_schema", lambda frame: frame.schema)
            patch.setattr(keyed, "spooled", lambda *_: [IncomingPiece.of(parts)])
            patch.setattr(type(transaction.workspace._spark), "tasks_for", lambda *_: InlineTasks())
            return keyed.built(transaction, session, scratch)

    @contextmanager
    def computed(transaction):
        table = pq.read_table(_place(folder, transaction))
        with transaction.dataset.chain.store.scratch() as scratch:
            rows = from_table(table, transaction.tail, with_op=False)
            yield SimpleNamespace(session=None), rows, scratch, InlineTasks()

    with _computed_by(computed, built if state else None):
        yield


def _not_whole(transaction):
    raise AssertionError(f"{transaction.dataset.name} was not pulled by the increment")


@contextmanager
def of_one_version():
    """Pull as if Spark and all else had no versions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "engine_versions", lambda _: VERSIONS)
        yield


@contextmanager
def by_increments(_folder):
    """Pull by increments that this process follows: nothing is computed as a whole, nor by Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies, "recomputed", _not_whole)
        patch.setattr(keyed, "increment_session", lambda _: nullcontext(_no_spark))
        with of_one_version():
            yield


def _no_spark():
    raise AssertionError("a session was asked for")


def at_noon(path, **more):
    ws = tl.open(path, **more)
    ws.clock = lambda: NOON
    return ws


def pulling_small_slices(path, what):
    """The same where each result is several slices."""
    act = pulling(path, what)

    def small():
        with slices_of(2):
            act()

    return small


def pulling(path, what):
    """A deed of `tests.faults`: the pull of a workspace by recorded results, in a process that is killed."""
    ws = at_noon(path)

    def act():
        with replaying(what):
            ws.pull(workers=1)

    return act
