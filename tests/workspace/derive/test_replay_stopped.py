"""A replay that does not come to its end says what it has found, and how to go on. No Spark."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pyarrow as pa
import pytest

from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline import console
from trueline.errors import SparkFailed
from trueline.workspace.derive import replay_commit

COLUMNS = {"account": pa.string(), "total": pa.float64()}


@pytest.fixture
def counts(ws):
    """Five commits."""
    transfers = ws.create("transfers")
    made = define_by_hand(ws, "counts", "counts", ["transfers"], columns=COLUMNS)
    with computing(counted):
        for _ in range(5):
            transfers.append([{"account": "a"}])
            ws.pull()
    return made


def ends(dataset):
    return [each.block.short for each in reversed(list(dataset.log())) if each.rows]


def doubled(name, inputs):
    """Give another result than was recorded."""
    table = counted(name, inputs)
    return table.set_column(1, "total", pa.array([2 * each for each in table["total"].to_pylist()]))


@contextmanager
def at_the_third(then):
    """Let the third evaluation end like this."""
    evaluations, real = [], replay_commit.computed

    @contextmanager
    def computed(transaction):
        evaluations.append(transaction)
        if len(evaluations) == 3:
            then()
        with real(transaction) as found:
            yield found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_commit, "computed", computed)
        yield evaluations


def failing():
    raise SparkFailed("an executor was lost", remedy="try again")


def test_what_was_found_before_a_failure_is_said_and_how_to_go_on(counts):
    with (
        console.use(console.CapturedConsole()) as seen,
        computing(doubled),
        at_the_third(failing),
        pytest.raises(SparkFailed),
    ):
        counts.verify()
    told = [item for item in seen.items if isinstance(item, console.Notice)]
    assert len(told) == 2
    assert told[0].problem.startswith("not_reproducible: counts: the commit does not record")
    assert f"`trueline verify counts --replay --after {ends(counts)[1]}` goes on from there" in seen.text
    with computing(counted):
        assert counts.verify(after=ends(counts)[1]).replayed == 3


@pytest.fixture
def heard():
    """Ctrl-C is heard, also where a shell has started the tests in its background and lets them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_commit_under_way_at_its_next_look(counts, heard):
    """The work is in a thread, which no signal reaches."""

    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        with console.current().progress("evaluate") as bar:
            for _ in range(20_000_000):
                bar.advance()
        pytest.fail("it went on")

    with (
        console.use(console.CapturedConsole()) as seen,
        computing(counted),
        at_the_third(interrupted) as done,
        pytest.raises(KeyboardInterrupt),
    ):
        counts.verify()
    assert len(done) == 3
    assert f"`trueline verify counts --replay --after {ends(counts)[1]}` goes on from there" in seen.text
