"""Versions that a result may depend on: what another one computed is read, and never gone on from."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from trueline.chain.events import SetTransform
from trueline.dataset import derivation
from trueline.errors import UnsupportedVersion
from trueline.workspace.derive import define, evaluate, follow, strategies
from trueline.workspace.plan import planning

BALANCES = "select account, sum(amount) as total from transfers group by account"
RICH = "select * from balances where total > 1"


@pytest.fixture
def reasons(monkeypatch):
    """By which strategy each dataset came where it is, and why by no better one."""
    found, advance = {}, strategies.advance_by

    def noted(given):
        made = advance(given)
        found[given.dataset.name] = (made.strategy, made.reason)
        return made

    monkeypatch.setattr(follow, "advance_by", noted)
    return found


def use_canonical(monkeypatch, version):
    for room in (derivation, define, evaluate, follow, planning):
        monkeypatch.setattr(room, "CANONICAL", version)
    derivation._read.cache_clear()


def transfers(*ids):
    return pa.table({"id": ids, "account": [str(each % 2) for each in ids], "amount": list(map(float, ids))})


@pytest.fixture
def bank(spark_workspace):
    ws = spark_workspace
    ws.create("transfers", merge=tl.merge.upsert("id")).append(transfers(1, 2))
    ws.derive("balances", BALANCES, key="account")
    ws.derive("rich", RICH, key="account")
    follow_all(ws, ["rich"])
    return ws


def defined(dataset):
    """The version of each definition of a dataset, the oldest first."""
    events = (block.event for _, block in dataset.blocks())
    return [event.transform.version for event in events if isinstance(event, SetTransform)][::-1]


@pytest.mark.contract("derive:V17")
def test_canonical_queries_of_an_earlier_version_are_recorded_again_and_rebuilt(bank, monkeypatch, reasons):
    shown = bank["rich"].view().to_arrow()
    use_canonical(monkeypatch, "2")
    # It is read as ever, and the plan says what the next pull will do.
    assert bank["rich"].view().to_arrow() == shown
    assert bank["rich"].info.strategy == "stateless"
    assert [stage.state for stage in bank.plan("rich")][:1] == ["redefined"]
    assert sorted(defined(bank["balances"])) == ["1"]
    bank["transfers"].append(transfers(3, 4))
    follow_all(bank, ["rich"])
    assert {tuple(sorted(defined(bank[name]))) for name in ("balances", "rich")} == {("1", "2")}
    assert set(reasons.values()) == {("recompute", "redefined")}
    assert sorted(bank["rich"].view().to_arrow()["total"].to_pylist()) == [4.0, 6.0]
    assert not bank.plan("rich").moves
    # What the new version left is gone on from.
    bank["transfers"].append(transfers(5))
    follow_all(bank, ["rich"])
    assert reasons == {"balances": ("keyed", ""), "rich": ("stateless", "")}
    report = bank.verify("balances", "rich", replay=True)
    assert (report.problems, report.replayed) == ((), 6)
    # Software of the earlier version does not guess.
    use_canonical(monkeypatch, "1")
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        derivation.derivation_at(bank["rich"].chain.tail())


@pytest.mark.contract("derive:V17")
def test_what_another_spark_left_is_not_gone_on_from(bank, monkeypatch, reasons):
    real = follow.engine_versions
    monkeypatch.setattr(follow, "engine_versions", lambda ws: {**real(ws), "spark": "99"})
    bank["transfers"].append(transfers(3))
    follow_all(bank, ["rich"])
    assert set(reasons.values()) == {("recompute", "redefined")}
    bank["transfers"].append(transfers(4))
    follow_all(bank, ["rich"])
    assert reasons == {"balances": ("keyed", ""), "rich": ("stateless", "")}
    # Its rows follow from the inputs alone, so that its definition stays as it is.
    assert defined(bank["balances"]) == ["1"]
