"""Faults where a dataset is defined anew or computed again: doing it once more ends where others do."""

from __future__ import annotations

import errno
import shutil
import warnings
from dataclasses import replace

import pyarrow as pa
import pytest

import trueline as tl
from tests.examples import some
from tests.faults import DURABLE, WatchedFiles, failing, watching
from tests.workspace.derive.computed_here import by_hand, computing, define_by_hand
from tests.workspace.derive.recorded import at_noon
from tests.workspace.derive.test_versions import defined, use_canonical
from trueline.chain.datatypes import DataSchema
from trueline.chain.schema import fields_of
from trueline.dataset.derivation import derivation_at
from trueline.errors import TruelineError
from trueline.workspace.derive import follow
from trueline.workspace.derive.redefine import OnChange, redefine

pytestmark = [pytest.mark.contract("derive:V21"), pytest.mark.sampled]
DOUBLE = pa.float64()
COLUMNS = {"account": pa.string(), "total": DOUBLE}


def summed(factor, kind=DOUBLE):
    """Return what computes the totals of accounts, times a factor."""

    def computed(_name, inputs):
        found = {}
        for row in inputs["transfers"].to_pylist():
            found[row["account"]] = found.get(row["account"], 0) + row["amount"] * factor
        totals = pa.array(map(kind.to_pandas_dtype(), found.values()), kind)
        return pa.table({"account": list(found), "total": totals})

    return computed


class Redefined:
    """Another query whose columns follow in the same chain."""

    kind, factor = DOUBLE, 10

    def act(self, ws):
        made, schema = by_hand(
            ws, "select 10 * total", ["transfers"], columns={**COLUMNS, "total": self.kind}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tl.errors.DataWarning)
            redefine(ws, ws["totals"], made, schema, OnChange.REBUILD)
        with computing(summed(self.factor, self.kind)):
            ws.pull("totals", workers=1)


class InANewChain(Redefined):
    """Another query whose columns need a chain of their own."""

    kind = pa.int64()


class Refreshed:
    """A dataset whose rows are wrong is computed again, and what differs is recorded."""

    factor = 3

    def act(self, ws):
        with computing(summed(self.factor)):
            ws.pull("totals", full_refresh=True, workers=1)


class OfAnotherVersion:
    """Canonical queries of another version, which the next pull records before it computes all again."""

    factor = 7

    def act(self, ws):
        with computing(summed(self.factor)):
            ws.pull("totals", workers=1)
        assert defined(ws["totals"]) == ["1", "2"]


@pytest.fixture
def next_version(monkeypatch):
    """The version after the one that all was defined in."""

    def again(_, dataset):
        tail = dataset.chain.tail()
        return replace(derivation_at(tail), version="2"), DataSchema(fields_of(tail.schema))

    def begin():
        use_canonical(monkeypatch, "2")
        monkeypatch.setattr(follow, "defined_again", again)

    yield begin
    monkeypatch.undo()
    use_canonical(monkeypatch, "1")


@pytest.mark.parametrize("kind", [Redefined, InANewChain, Refreshed, OfAnotherVersion])
def test_every_durable_operation_fails_once(tmp_path, kind, next_version):
    change, template = kind(), tmp_path / "template"
    with at_noon(template, create=True) as ws, computing(summed(1)):
        amounts = pa.table({"account": ["a", "b", "a"], "amount": [1.0, 2.0, 4.0]})
        ws.create("transfers").append(amounts)
        define_by_hand(ws, "totals", "select total", ["transfers"], columns=COLUMNS)
        ws.pull(workers=1)
    if kind is OfAnotherVersion:
        next_version()
    files, undisturbed = WatchedFiles(), copied(template, tmp_path / "undisturbed")
    with watching(files), at_noon(undisturbed) as ws:
        change.act(ws)
        expected, names = contents(ws), {dataset.name for dataset in ws.datasets()}
    assert {row["account"]: row["total"] for row in expected} == {
        "a": 5 * change.factor,
        "b": 2 * change.factor,
    }
    count = sum(name in DURABLE for name, _ in files.log)
    assert count > 15
    for number in some(range(1, count + 1), 12):
        place = copied(template, tmp_path / f"failed-{number}")
        files = failing(number, errno.ENOSPC, only=DURABLE)
        with watching(files), at_noon(place) as ws:
            try:
                change.act(ws)
            except TruelineError:
                assert files.failed
        assert files.failed
        with at_noon(place) as ws:
            change.act(ws)
            assert contents(ws) == expected, number
            assert {dataset.name for dataset in ws.datasets()} == names, number
            heads = {dataset.name: dataset.head for dataset in ws.datasets()}
            change.act(ws)
            assert {dataset.name: dataset.head for dataset in ws.datasets()} == heads, number
            with computing(summed(change.factor, getattr(change, "kind", DOUBLE))):
                assert ws.verify("totals", replay="head").ok
            assert ws.verify(replay=False).ok
        shutil.rmtree(place)


def copied(template, place):
    shutil.copytree(template, place)
    return place


def contents(ws):
    return sorted(ws["totals"].view().to_arrow().to_pylist(), key=str)
