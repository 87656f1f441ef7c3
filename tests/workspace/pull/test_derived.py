"""When derived datasets are computed: each after what it reads, beside strangers, until somebody gives up."""

from __future__ import annotations

import os
import re
import signal
import threading

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import by_hand, computing, counted, define_by_hand
from trueline import console
from trueline.chain.store.file import FileStore
from trueline.chain.store.store import Folder
from trueline.cli.app import run
from trueline.errors import NoCommonCut, PullError, QueryError, StalePlan
from trueline.run import current
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.derive.redefine import OnChange, redefine
from trueline.workspace.derive.rest import Origins, RootOrder, newest_cut_at, rest_at
from trueline.workspace.pull.going import GoingTo, going_to

COLUMNS = {"account": pa.string(), "total": pa.float64()}
ROW = pa.table({"account": ["a"], "total": [1.0]})


def derived(ws, **inputs):
    for name, read in inputs.items():
        define_by_hand(ws, name, f"select * from {name}", read, columns=COLUMNS)


@pytest.fixture
def bank(ws):
    for name in ("transfers", "rates"):
        ws.create(name).append(ROW)
    derived(ws, credits=["transfers"], debits=["transfers"], balances=["credits", "debits"], slow=["rates"])
    return ws


def test_datasets_run_beside_each_other_and_nobody_waits_for_a_slow_stranger(bank):
    both, last = threading.Barrier(2, timeout=60), threading.Event()

    def result(name, inputs):
        if name in ("credits", "debits"):
            both.wait()
        if name == "slow":
            assert last.wait(60)
        if name == "balances":
            last.set()
        return counted(name, inputs)

    with computing(result):
        assert [each.dataset for each in bank.pull(workers=3)] == ["credits", "debits", "slow", "balances"]


def test_progress_names_each_dataset_and_counts_those_that_are_there(bank, monkeypatch):
    described = []
    monkeypatch.setattr(console.CapturedProgress, "describe", lambda _, text: described.append(text))
    with computing(counted), console.use(console.CapturedConsole()) as seen:
        bank.pull(workers=1)
    (work,) = [each for each in seen.work if each.label == "derive"]
    assert (work.total, work.done, work.closed) == (4, 4, True)
    assert sorted(described) == ["balances", "credits", "debits", "slow"]


@pytest.mark.contract("derive:V20")
def test_what_fails_stops_its_readers_alone(bank):
    def result(name, inputs):
        if name == "debits":
            raise ZeroDivisionError("no")
        return counted(name, inputs)

    with (
        computing(result),
        pytest.raises(PullError, match="not pulled, since they rest on these: balances") as e,
    ):
        bank.pull()
    report = e.value.report
    assert set(report.errors) == {"debits"}
    assert (report["balances"].waits_for, report["balances"].told) == (("debits",), "waits for debits")
    assert bank["slow"].chain.tail().data is not None
    assert bank["credits"].chain.tail().data is not None
    assert bank["balances"].chain.tail().data is None
    with computing(counted):
        assert [each.rows for each in bank.pull("balances")] == [0, 1, 1]


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V26")
@pytest.mark.contract("derive:V7")
def test_a_result_with_two_rows_of_a_key_is_refused_and_both_are_shown(bank):
    twins = pa.table({"account": ["b", "a", "a", "a"], "total": [0.0, 1.0, 2.0, 3.0]})
    with computing(lambda *_: twins), pytest.raises(PullError) as caught:
        bank.pull("slow")
    error = caught.value.report.errors["slow"]
    assert (error.code, error.fields["keys"]) == ("KeyViolated", [{"account": "a"}])
    assert "\n    account = 'a', total = 1.0\n    account = 'a', total = 2.0\n" in str(error)
    assert [row["total"] for row in error.fields["rows"]] == [1.0, 2.0]


def test_a_report_says_how_a_dataset_was_computed_and_why_as_a_whole(ws):
    source = ws.create("transfers")
    for _ in range(3):
        source.append(ROW)
    how = {"strategy": "stateless", "reason": ""}
    define_by_hand(ws, "rows", "select account, total from transfers", ["transfers"], columns=COLUMNS, **how)
    derived(ws, whole=["transfers"])
    with computing(counted):
        first = ws.pull()
        source.drop_data(upto=0, reason="asked to")
        stage = ws.plan("rows")["rows"]
        assert (stage.state, stage.strategy, stage.reason) == ("behind", "recompute", "records_removed")
        report = ws.pull()
    assert (first["rows"].strategy, first["rows"].reason) == ("recompute", "first")
    assert "as a whole" not in first["rows"].told
    found = report["rows"]
    assert (found.strategy, found.reason) == ("recompute", "records_removed")
    # The rows that were there are compared here.
    assert found.driver_bytes > 0
    assert "computed as a whole (records_removed)" in found.told
    assert found.to_dict()["reason"] == "records_removed"
    # Of what is always recomputed the plan says why.
    assert (report["whole"].strategy, report["whole"].reason) == ("recompute", "")
    assert ws["rows"].view().to_arrow()["total"].to_pylist() == [2.0]


def _unreadable(_):
    raise QueryError("the value 'x' of the type STRING cannot be cast", remedy="correct it")


def _failing(_):
    raise ZeroDivisionError("in a function")


@pytest.mark.contract("derive:V8")
@pytest.mark.parametrize(
    "bad",
    [_unreadable, _failing, lambda rows: pa.concat_tables([rows, rows])],
    ids=["query", "function", "key"],
)
def test_rows_that_were_corrected_fail_no_stop_on_the_way(bank, bad):
    def result(name, inputs):
        rows = counted(name, inputs)
        return bad(rows) if name == "debits" and rows["total"].to_pylist() == [2.0] else rows

    with computing(result):
        bank.pull()
        bank["transfers"].append(ROW)
        # Another dataset rests there, so that the next pull stops there.
        bank.pull("credits")
        with pytest.raises(PullError):
            bank.pull("debits")
        bank["transfers"].append(ROW)
        assert bank.pull("debits")["debits"].error is None
        bank.pull()
    assert bank["debits"].view().to_arrow()["total"].to_pylist() == [3.0]
    assert bank.snapshot("credits", "debits", "balances").cut == {"transfers": 2}


@pytest.mark.contract("cut:P3")
def test_a_pull_reads_no_heads_of_roots_that_it_has_nothing_to_do_with(bank, monkeypatch):
    strangers = {bank.create(f"stranger-{number}").chain.store for number in range(9)}
    strangers.add(bank["rates"].chain.store)
    looked = []
    head = FileStore.head

    def watched(store, *args):
        looked.append(store)
        return head(store, *args)

    with computing(counted):
        bank.pull("credits")
        bank["transfers"].append(ROW)
        monkeypatch.setattr(FileStore, "head", watched)
        assert [each.rows for each in bank.pull("credits")] == [2]
    assert looked
    assert not [store for store in looked if store in strangers]


def damage(dataset):
    """Lose what the newest transaction of a dataset left."""
    checkpoint = dataset.chain.tail().data.new_checkpoint
    dataset.chain.store.delete(Folder.CHECKPOINTS, checkpoint.physical_hash)


@pytest.mark.contract("derive:V20")
def test_a_damaged_dataset_stops_its_readers_alone(bank):
    with computing(counted):
        bank.pull()
        bank["transfers"].append(ROW)
        damage(bank["debits"])
        with tl.open(bank.location) as again:
            assert [each.rows for each in again.pull("credits")] == [2], "nobody stops for it"
            with pytest.raises(PullError) as e:
                again.pull()
    report = e.value.report
    assert set(report.errors) == {"debits"}
    assert report["balances"].waits_for == ("debits",)


@pytest.mark.contract("derive:V20")
def test_a_damaged_root_is_reported_once_and_stops_its_readers_alone(bank):
    with computing(counted):
        bank.pull()
        for name in ("transfers", "rates"):
            bank[name].append(ROW)
        lost = bank["rates"].chain
        lost.store.delete(Folder.BLOCKS, lost.tail().head)
        with tl.open(bank.location) as again, pytest.raises(PullError) as e:
            again.pull()
    report = e.value.report
    assert set(report.errors) == {"rates"}
    assert [each.dataset for each in report].count("rates") == 1
    assert report["slow"].waits_for == ("rates",)
    assert [report[name].rows for name in ("credits", "debits", "balances")] == [2, 2, 0]


@pytest.fixture
def strangers(ws):
    """Datasets over two roots, pulled apart: those over one were never where those over the other are."""
    for name in ("x", "y"):
        ws.create(name).append(ROW)
    derived(ws, of_x=["x"], also_x=["x"], of_y=["y"], also_y=["y"])
    with computing(counted):
        ws.pull()
        for root, name in (("y", "also_y"), ("x", "of_x"), ("x", "also_x"), ("y", "also_y")):
            ws[root].append(ROW)
            ws.pull(name)
        ws.pull("of_y")
    return ws


STRANGERS = ("of_x", "also_x", "of_y", "also_y")


def totals(ws, *names):
    """The cut of a snapshot, and what it shows: each dataset counts the rows of what it reads."""
    snap = ws.snapshot(*names)
    return dict(snap.cut), {name: snap[name].to_arrow()["total"].to_pylist() for name in names}


@pytest.mark.contract("cut:P13")
def test_strangers_that_a_new_dataset_joins_come_along_and_are_read_with_it(strangers):
    ws = strangers
    derived(ws, joined=["x", "y"])
    plan = ws.plan("joined")
    assert {stage.dataset: stage.along_with for stage in plan} == {"joined": ()} | dict.fromkeys(
        STRANGERS, ("joined",)
    )
    assert "comes along: joined could not be read" in plan.explain()
    assert plan.to_dict()["stages"][0]["along_with"] == ["joined"]
    with computing(counted):
        report = ws.pull("joined")
    assert {each.dataset for each in report} == {"joined", *STRANGERS}
    cut, found = totals(ws, "joined", *STRANGERS)
    assert cut == {"x": 2, "y": 2}
    assert found == {"joined": [6.0]} | {name: [3.0] for name in STRANGERS}
    assert ws["joined"].chain.tail().last_offset == 0, "one transaction, after those that came along"
    # From here on they are one group: each stops where the others are.
    with computing(counted):
        for root, name in (("y", "also_y"), ("x", "of_x"), ("x", "also_x"), ("y", "joined")):
            ws[root].append(ROW)
            assert [each.dataset for each in ws.pull(name)] == [name]
            ws.snapshot("joined", *STRANGERS)


@pytest.mark.contract("cut:P13")
def test_a_plan_with_those_that_come_along_is_carried_out_as_it_is(strangers):
    derived(strangers, joined=["x", "y"])
    plan = strangers.plan("joined")
    with computing(counted):
        strangers["x"].append(ROW)
        with pytest.raises(StalePlan):
            strangers.pull(plan)
        report = strangers.pull(strangers.plan("joined"))
    assert {each.dataset for each in report} == {"joined", *STRANGERS}
    assert totals(strangers, "joined", *STRANGERS)[0] == {"x": 3, "y": 2}


def test_a_full_refresh_is_of_what_was_named_and_not_of_those_that_come_along(strangers):
    derived(strangers, joined=["x", "y"])
    with computing(counted):
        report = strangers.pull("joined", full_refresh=True)
    found = {each.dataset: (each.differed, each.not_refreshed) for each in report}
    assert found == {"joined": (False, "")} | dict.fromkeys(STRANGERS, (None, ""))


def test_strangers_that_have_a_common_cut_stay_where_they_are(strangers):
    with computing(counted):
        strangers.pull()
        strangers["x"].append(ROW)
        strangers.pull("of_x")
        derived(strangers, joined=["x", "y"])
        strangers["y"].append(ROW)
        assert [each.dataset for each in strangers.pull("joined")] == ["joined"]
    assert totals(strangers, "joined", *STRANGERS)[0] == {"x": 2, "y": 2}


@pytest.mark.contract("cut:P13")
def test_a_dataset_that_joins_strangers_by_a_new_definition_brings_them_along(strangers):
    made, schema = by_hand(strangers, "select * from also_x, y", ["x", "y"], columns=COLUMNS)
    redefine(strangers, strangers["also_x"], made, schema, OnChange.REBUILD)
    with computing(counted):
        strangers.pull("also_x")
    cut, found = totals(strangers, *STRANGERS)
    assert (cut, found["also_x"], found["of_y"]) == ({"x": 2, "y": 2}, [6.0], [3.0])


@pytest.mark.contract("derive:V20")
@pytest.mark.contract("cut:P12")
def test_a_stranger_that_cannot_come_along_stops_nobody_and_says_what_to_pull(strangers):
    def result(name, inputs):
        if name == "of_y":
            raise ZeroDivisionError("no")
        return counted(name, inputs)

    derived(strangers, joined=["x", "y"])
    strangers["y"].append(ROW)
    with computing(result), pytest.raises(PullError) as failed:
        strangers.pull("joined")
    assert set(failed.value.report.errors) == {"of_y"}
    others = [name for name in STRANGERS if name != "of_y"]
    assert totals(strangers, "joined", *others)[0] == {"x": 2, "y": 3}
    with pytest.raises(NoCommonCut) as caught:
        strangers.snapshot("joined", *STRANGERS)
    with computing(counted):
        strangers.pull(*re.findall(r"'(\w+)'", caught.value.remedy))
    assert totals(strangers, "joined", *STRANGERS)[1]["of_y"] == [4.0]


@pytest.mark.contract("cut:P13")
def test_a_pull_that_does_not_know_of_a_new_dataset_stops_where_its_own_is_brought(strangers):
    strangers.create("z").append(ROW)
    derived(strangers, of_z=["z"])
    with computing(counted):
        strangers.pull("of_z")
    known, log = Dependencies.of(strangers), CutLog.of(strangers)
    derived(strangers, joined=["x", "z"])
    others, place = Dependencies.of(strangers), GoingTo.of(strangers)
    strangers["z"].append(ROW)
    first = log.record([strangers["z"].id])
    # Somebody who knows of it brings strangers along to a cut; who began before goes further.
    with going_to(place, log, others, ["joined"], first) as route:
        assert set(route.along) == {"of_x", "also_x", "of_z"}
        strangers["z"].append(ROW)
        second = log.record([strangers["z"].id])
        with going_to(place, log, known, ["of_z"], second) as own:
            assert [each.number for each in own.stops["of_z"]] == [first.number, second.number]


def test_a_pull_of_all_passes_over_datasets_that_lost_their_name_to_a_new_chain(ws):
    ws.create("transfers").append(ROW)
    derived(ws, totals=["transfers"])
    old = ws["totals"]
    with computing(counted):
        ws.pull()
        # Another type of a column: no chain allows that, so that a new one takes the name.
        columns = {"account": pa.string(), "total": pa.string()}
        made, schema = by_hand(ws, "select 1", ["transfers"], columns=columns)
        redefine(ws, old, made, schema, OnChange.REBUILD)
        assert old.name != "totals"
        former = old.head

        def as_text(name, inputs):
            table = counted(name, inputs)
            return table.set_column(1, "total", table["total"].cast(pa.string()))

        ws["transfers"].append(ROW)
    with computing(as_text):
        assert [stage.dataset for stage in ws.plan()] == ["totals"]
        assert [each.dataset for each in ws.pull()] == ["totals"]
    assert old.head == former
    with computing(counted):
        assert [each.dataset for each in ws.pull(old.name)] == [old.name]


@pytest.mark.parametrize("on_command_line", [False, True])
def test_an_interrupted_pull_commits_nothing_more(bank, on_command_line, capsys):
    def result(name, inputs):
        os.kill(os.getpid(), signal.SIGINT)
        token, pause = current(), threading.Event()
        while not token.superseded():
            pause.wait(0.01)
        return counted(name, inputs)

    with computing(result):
        if on_command_line:
            assert run(["-C", bank.location, "pull", "slow"]) == 130
            assert capsys.readouterr().err == "interrupted\n"
        else:
            with pytest.raises(KeyboardInterrupt):
                bank.pull("slow")
    assert bank["slow"].chain.tail().data is None
    with computing(counted):
        assert bank.pull("slow")["slow"].rows == 1


class Counting:
    """Counts the blocks that are read of a chain."""

    def __init__(self, chain, monkeypatch):
        self.blocks = 0
        real = chain.block

        def block(name):
            self.blocks += 1
            return real(name)

        monkeypatch.setattr(chain, "block", block)


@pytest.mark.contract("cut:P1")
def test_where_a_dataset_was_at_rest_is_found_by_few_reads(bank, monkeypatch):
    log, found = CutLog.of(bank), []
    with computing(counted):
        for number in range(40):
            bank["transfers"].append(ROW)
            if number % 2:
                bank["rates"].append(ROW)
                bank.pull("slow")
            report = bank.pull("credits")
            found.append(
                (report["credits"].cut, bank["credits"].head, bank["credits"].chain.tail().last_offset)
            )
    known = Dependencies.of(bank)
    counting = Counting(bank["credits"].chain, monkeypatch)
    for number, head, offset in found:
        origins = Origins(known, log.cut(number))
        assert rest_at(bank["credits"], origins.of("credits"), origins.order) == (head, offset)
    assert counting.blocks <= len(found) * 9  # the newest, and as many as halving takes
    # Cuts that move another root alone leave it at rest: the newest of them counts.
    order = RootOrder({node.id: node.dataset.chain for node in known.nodes.values()})
    newest = log.newest().number
    for number, following in zip(found, [*found[1:], (newest + 1,)], strict=True):
        roots = Origins(known, log.cut(number[0])).of("credits").roots
        at = newest_cut_at(log, roots, order, newest)
        assert number[0] <= at < following[0]
        assert at == newest or log.cut(at + 1)[bank["transfers"].id] != roots[bank["transfers"].id]
    # It never was at a cut that it was not brought to; a root that went back is where the newest cut has it.
    bank["transfers"].append(ROW)
    cut = log.record([bank["transfers"].id])
    assert rest_at(bank["credits"], Origins(known, cut).of("credits"), order) is None
    bank["transfers"].chain.reset(list(bank["transfers"].log())[3].block)
    cut = log.record([bank["transfers"].id])
    roots = Origins(known, cut).of("credits").roots
    assert newest_cut_at(log, roots, order, cut.number) == cut.number
