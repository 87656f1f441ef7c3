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
from pyarrow import feather

import trueline as tl
from trueline.chain.instant import Instant
from trueline.dataset.append.incoming import from_table
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.derive import follow, strategies
from trueline.workspace.derive.strategies import keyed
from trueline.workspace.derive.strategies.groups import Partials
from trueline.workspace.derive.strategies.increment import Impossible

NOON = Instant.parse("2100-01-01T12:00:00Z")  # later than any clock that made the datasets


VERSIONS = {"canonical": "1"}


def _place(folder, transaction):
    positions = transaction.advance.positions
    taken = "-".join(str(positions[each.id].offset) for each in transaction.inputs.values())
    return Path(folder) / f"{transaction.dataset.name}-{taken}.parquet"


def _whole(*_):
    raise Impossible("recorded")


@contextmanager
def _computed_by(computed, **more):
    """Have whole results computed by something else; what increments would keep is not made."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (follow, strategies):
            patch.setattr(room, "computed", computed)
        patch.setattr(strategies, "_increment", _whole)
        patch.setattr(strategies, "_kept", lambda *_: {})
        for name, value in more.items():
            patch.setattr(follow, name, value)
        yield


@contextmanager
def recording(folder):
    """Keep the results of Spark in a folder."""
    real = strategies.computed

    @contextmanager
    def computed(transaction):
        with real(transaction) as (session, rows, scratch, tasks):
            tables = [table for piece in rows.pieces for table in piece.read(0, piece.rows)]
            given = pa.concat_tables(tables)
            given = given.select([name for name in given.column_names if name in rows.given])
            pq.write_table(given, _place(folder, transaction))
            yield session, rows, scratch, tasks

    with _computed_by(computed, engine_versions=lambda _: VERSIONS):
        yield


@contextmanager
def replaying(folder):
    """Take the results from a folder; there is no Spark."""

    @contextmanager
    def computed(transaction):
        table = pq.read_table(_place(folder, transaction))
        with transaction.dataset.chain.store.scratch() as scratch:
            rows = from_table(table, transaction.tail, with_op=False)
            yield SimpleNamespace(session=None), rows, scratch, InlineTasks()

    with _computed_by(computed, engine_versions=lambda _: VERSIONS):
        yield


def _step(folder, transaction, what):
    return _place(folder, transaction).with_suffix(f".{what}.arrow")


@contextmanager
def _increments_by(partials, finished, **more):
    """Have the two jobs of a keyed increment done by something else; nothing is computed as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "_partials", partials)
        patch.setattr(keyed, "_finished", finished)
        for name, value in more.items():
            patch.setattr(keyed, name, value)
        patch.setattr(strategies, "recomputed", _not_whole)
        with of_one_version():
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
def recording_increments(folder):
    """Keep in a folder what the jobs of keyed increments give."""
    real_partials, real_finished = keyed._partials, keyed._finished

    def partials(transaction, *given):
        made = real_partials(transaction, *given)
        feather.write_feather(made.rows, _step(folder, transaction, "partials"))
        return made

    def finished(transaction, *given):
        made = real_finished(transaction, *given)
        feather.write_feather(made, _step(folder, transaction, "finished"))
        return made

    with _increments_by(partials, finished):
        yield


@contextmanager
def replaying_increments(folder):
    """Take what the jobs gave from a folder; accumulators are read, merged and written as ever."""

    def partials(transaction, _session, made, *_):
        return Partials(made, None, feather.read_table(_step(folder, transaction, "partials")))

    def finished(transaction, *_):
        return feather.read_table(_step(folder, transaction, "finished"))

    with _increments_by(partials, finished, increment_session=lambda _: nullcontext(lambda: None)):
        yield


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
