"""A pull in an object store that a fault stops at any request is finished by the next one, hash for hash."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from tests.faults import ServerFaults, server_fault
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from tests.workspace.derive.recorded import NOON
from trueline.chain.store import object_turn
from trueline.errors import OutcomeUnknown, PullError, RetryError, StoreError

pytestmark = pytest.mark.contract("derive:V21")
COLUMNS = {"account": pa.string(), "total": pa.float64()}
DIAMOND = {"credits": ["transfers"], "debits": ["transfers"], "balances": ["credits", "debits"]}
HOW = ("full", "dropped", "lost")
# In between there are the same kinds of requests again.
STRIDE = 9


class Lake:
    """A diamond in an object store before a pull, and what the pull leaves if nothing goes wrong."""

    def __init__(self, server, folder, monkeypatch):
        self.server, self.folder, self.patch = server, folder, monkeypatch
        self.machines = itertools.count()
        with self.open(create=True) as ws:
            ws.create("transfers").append(pa.table({"account": ["a"], "total": [1.0]}))
            for name, read in DIAMOND.items():
                define_by_hand(ws, name, f"select * from {name}", read, columns=COLUMNS)
        self.before = dict(server.objects)
        with server_fault(server, ServerFaults(0, "lost")) as counting, self.open() as ws:
            assert sum(len(each.commits) for each in ws.pull(workers=1)) == 3
            self.history = history(ws)
        self.requests = counting.requests

    def open(self, **more):
        """Open it on a machine that has never seen it; no request is sent twice by the library."""
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            self.patch.setenv(name, str(self.folder / str(next(self.machines))))
        options = self.server.options | {"retry_config": {"max_retries": 0}}
        ws = tl.open("s3://bucket/lake", **options, **more)
        ws.clock = lambda: NOON
        return ws

    def check(self, at, how):
        """Pull with a fault, then without."""
        self.server.objects = dict(self.before)
        with server_fault(self.server, ServerFaults(at, how)) as fault:
            try:
                with self.open() as ws:
                    ws.pull(workers=1)
            except (PullError, RetryError, StoreError, OutcomeUnknown):
                assert fault.failed
        assert fault.failed
        with self.open() as ws:
            ws.pull()
            assert history(ws) == self.history, (at, how)
            assert all(not each.commits for each in ws.pull())
            assert ws.verify().ok


def history(ws):
    return {ds.name: [str(name) for name, _ in ds.blocks()] for ds in ws.datasets()}


@pytest.fixture
def lake(tmp_path, monkeypatch):
    # Whose turn was not given back is waited for; the server tells whole seconds.
    monkeypatch.setattr(object_turn, "TURN_SECONDS", 2.0)
    # Renewals come by the clock, so that they would have other numbers each time.
    monkeypatch.setattr(object_turn.ObjectTurn, "_renew", lambda *_: None)
    with serving() as server, computing(counted):
        yield Lake(server, tmp_path, monkeypatch)


def test_requests_that_fail(lake):
    assert lake.requests > 20
    for at in range(1, lake.requests + 1, STRIDE):
        for shift, how in enumerate(HOW):
            if at + shift <= lake.requests:
                lake.check(at + shift, how)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_each_request_fails_in_each_way(lake):
    for at, how in itertools.product(range(1, lake.requests + 1), HOW):
        lake.check(at, how)
