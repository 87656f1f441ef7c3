"""Snapshots of derived datasets that Spark computes: the bank, by pulls."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import trueline as tl
from bench import agreement
from bench.run import Run
from bench.scale import TINY
from tests.cli.conftest import run  # noqa: F401 (a fixture)
from tests.workspace.derive.following import follow_all
from trueline.errors import DatasetNotFound, InputError, NoCommonCut
from trueline.spark.source import Asked, register
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import Roots
from trueline.workspace.derive.define import DerivationRequest, derive
from trueline.workspace.derive.follow import follow_to

QUERIES = {
    "credits": "select receiver as account, sum(amount) as credit from transfers group by receiver",
    "debits": "select sender as account, sum(amount) as debit from transfers group by sender",
    "balances": "select coalesce(c.account, d.account) as account, "
    "coalesce(credit, 0) - coalesce(debit, 0) as amount "
    "from credits c full outer join debits d on c.account = d.account",
    "total": "select 1 as id, sum(amount) as amount from balances",
}
TOTAL = "select (select sum(credit) from credits) - (select sum(debit) from debits) as total"


def transfer(ws, *numbers):
    rows = {"id": numbers, "sender": [n % 3 for n in numbers], "receiver": [(n + 1) % 3 for n in numbers]}
    return ws["transfers"].append(pa.table({**rows, "amount": [10 + n for n in numbers]}))


@pytest.fixture
def ws(tmp_path, spark):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as workspace:
        workspace.create("transfers", merge=tl.merge.ledger("id"))
        transfer(workspace, 0, 1, 2)
        for name, query in QUERIES.items():
            derive(workspace, DerivationRequest(name, query, key="id" if name == "total" else "account"))
            follow_all(workspace, [name])
        yield workspace


@pytest.mark.contract("cut:P7", "cut:P14")
def test_queries_frames_and_commands_read_where_datasets_agree(ws, spark, run):  # noqa: F811
    first = ws.snapshot(*QUERIES)
    assert first.cut == {"transfers": 2}
    transfer(ws, 3, 4)
    log = CutLog.of(ws)
    cut = log.record(Roots(ws).under("total"))
    follow_to(ws, ws["credits"], cut)

    # A query over several datasets reads one snapshot; each by its head shows money that is not there.
    answer = ws.sql(TOTAL)
    assert f"read at one snapshot: {answer.read_at}" in answer.explain()
    assert answer.filter("total = 0").read_at == ws.snapshot("credits", "debits").shown_cut
    assert answer.to_arrow().to_pylist() == [{"total": 0}]
    assert ws.sql(TOTAL, at="head").to_arrow().to_pylist() == [{"total": 13 + 14}]
    assert ws.sql(TOTAL, at="cut:1").to_arrow().to_pylist() == [{"total": 0}]
    alone = ws.sql("select count(*) as n from credits")
    assert "one snapshot" not in alone.explain()
    assert alone.read_at == ws.sql(TOTAL, at="head").read_at == ""
    with pytest.raises(DatasetNotFound, match="not in this snapshot"):
        first.sql("select * from transfers")
    assert first.sql("select count(*) as n from credits where account >= :least", least=0).to_arrow()[
        "n"
    ].to_pylist() == [3]

    # Laggards are brought to the newest recorded cut, and nothing beyond it.
    transfer(ws, 5)
    snap = ws.snapshot(*QUERIES, advance=True)
    assert snap.cut == {"transfers": 4}
    assert snap["total"].to_arrow().to_pylist() == [{"id": 1, "amount": 0}]
    assert log.newest().number == cut.number
    assert ws.snapshot("transfers", "credits", "debits", advance=True).cut == {"transfers": 5}

    # The same by frames of Spark, at the cut as it was printed.
    assert snap.create_views(spark.newSession()) == tuple(QUERIES)
    other = spark.newSession()
    snap.create_views(other)
    assert [row.total for row in other.sql(TOTAL).collect()] == [0]
    register(other)
    frame = other.read.format("trueline").option("workspace", ws.location).option("dataset", "credits")
    text = ",".join(f"{name}={offset}" for name, offset in first.cut.items())
    rows = first["credits"].to_arrow()["credit"].to_pylist()
    for cut in (text, "1"):
        assert sorted(row.credit for row in frame.option("cut", cut).load().collect()) == sorted(rows)
    with pytest.raises(PySparkException, match="a stream cannot be read 'at' a commit or a 'cut'"):
        stream = other.readStream.format("trueline").option("workspace", ws.location)
        query = stream.option("dataset", "transfers").option("cut", "1").load().writeStream.format("noop")
        query.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(InputError, match="'at' and 'cut' exclude each other"):
        Asked.of({"workspace": ws.location, "dataset": "credits", "at": "2026-01-01", "cut": "1"})

    # And from the command line, which says where it reads.
    done = run("-C", ws.location, "sql", TOTAL, "--cut", "1", "--json")
    assert (done.json["rows"], done.json["cut"]) == ([{"total": 0}], first.shown_cut)
    newest = ws.snapshot("credits", "debits").shown_cut
    assert f"read at one snapshot: cut {newest}" in run("-C", ws.location, "sql", TOTAL).out
    alone = run("-C", ws.location, "sql", "select count(*) as n from credits", "--json")
    assert alone.json["cut"] is None
    with pytest.raises(NoCommonCut):
        ws.snapshot(*QUERIES, cut=3)


@pytest.mark.contract("cut:P7", "cut:P13")
def test_the_bank_shows_no_money_out_of_nothing_while_it_is_updated(tmp_path, spark, monkeypatch):
    """100,000 transfers, tables that are pulled one by one, a dashboard that reads all the time."""
    monkeypatch.setitem(agreement.ROWS, "tiny", 100_000)
    monkeypatch.setitem(agreement.COMMITS, "tiny", 3)
    wrong, _ = agreement.bank(Run(TINY, tmp_path))
    assert wrong.ours.data["torn"] == 0
    assert wrong.ours.data["readings"] >= agreement.READINGS["tiny"]
    assert wrong.peer.data["naive"] > 0, "the newest of each have to disagree at times, or nothing was shown"
    assert wrong.met
