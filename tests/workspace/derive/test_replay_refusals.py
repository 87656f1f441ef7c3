"""A replay that cannot run here says so, and does not say that the data are wrong. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive import frame_functions
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline import check
from trueline.dataset.derivation import FunctionOf
from trueline.errors import ConfigError, EnvironmentMissing, InputError, QueryError
from trueline.workspace.derive import function, replay_commit

COLUMNS = {"account": pa.string(), "total": pa.float64()}
TOTALS = FunctionOf(
    "tests.workspace.derive.frame_functions:totals", Path(frame_functions.__file__).read_text()
)


@pytest.fixture
def ws(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(function, "_named_here", set())
    with tl.open(tmp_path / "ws", create=True) as workspace:
        workspace.create("transfers")
        append(workspace)
        yield workspace


def append(workspace):
    return workspace["transfers"].append(pa.table({"account": ["a"], "total": [1.0]}))


def computed_by(workspace, name, computes):
    define_by_hand(
        workspace,
        name,
        name,
        ["transfers"],
        columns=COLUMNS,
        function=computes,
        reason="function",
        queries=(computes.step,),
        canonical=(),
    )
    with computing(counted):
        for _ in range(2):
            workspace.pull(name)
            append(workspace)
    return workspace[name]


def kinds(report):
    return [str(problem.kind) for problem in report.problems]


@pytest.mark.contract("derive:V23")
def test_a_function_that_nobody_has_confirmed_is_not_replayed_and_not_wrong(ws):
    computed_by(ws, "largest", TOTALS)
    for mode in (True, "head"):
        report = ws.verify("largest", replay=mode)
        assert (report.problems, report.replayed) == ((), 0)
        (said,) = [each for each in report.not_checked if "replay" in each]
        assert said.startswith("replay of largest: dataset 'largest' is computed by the function")
        assert said.endswith("read it, and if it may run: ws['largest'].confirm_source()")
    ws["largest"].confirm_source()
    with computing(counted):
        assert ws.verify("largest", replay=True).replayed == 2


@pytest.mark.contract("derive:V23")
def test_a_function_whose_module_is_not_installed_is_not_replayed_and_not_wrong(ws):
    made = computed_by(ws, "elsewhere", FunctionOf("no.such.module:rows", "x = 1"))
    made.confirm_source()
    report = made.verify()
    assert (report.problems, report.replayed) == ((), 0)
    assert any("the module no.such.module" in each and "PYTHONPATH" in each for each in report.not_checked)


@pytest.mark.contract("derive:V23")
def test_a_function_whose_module_has_changed_is_another_engine(ws):
    made = computed_by(ws, "changed", replace(TOTALS, source=TOTALS.source + "#"))
    made.confirm_source()
    assert kinds(made.verify()) == ["other_engine", "other_engine"]


def replayed_with(ws, error):
    """Replay two commits of a dataset where each evaluation fails."""
    define_by_hand(ws, "counts", "counts", ["transfers"], columns=COLUMNS)

    def fails(_):
        raise error

    with computing(counted):
        for _ in range(2):
            ws.pull("counts")
            append(ws)
        # Undone before what `computing` has put there is.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replay_commit, "computed", fails)
            return ws["counts"].verify()


@pytest.mark.parametrize(
    "error",
    [
        EnvironmentMissing("not seen where tasks run", remedy="share the folder", code="FolderNotShared"),
        EnvironmentMissing("workers lack it", remedy="install it there", code="WorkersLackTrueline"),
        ConfigError("spark.master is not known", remedy="name another"),
        InputError("nobody knows", remedy="look", code="SomethingElse"),
    ],
    ids=lambda error: error.code,
)
def test_what_a_machine_lacks_is_raised_and_not_said_of_the_data(ws, error):
    with pytest.raises(InputError) as caught:
        replayed_with(ws, error)
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        QueryError("divided by zero", remedy="use try_divide"),
        InputError("two rows of one key", remedy="add a column", code="DuplicateKeys"),
        InputError("other rows in other partitions", remedy="order them", code="NotReproducible"),
    ],
    ids=lambda error: error.code,
)
def test_a_definition_that_has_no_such_result_is_told_of_the_data(ws, error):
    report = replayed_with(ws, error)
    assert kinds(report) == ["not_reproducible", "not_reproducible"]
    assert f"cannot be evaluated again: {error.problem}" in report.problems[0].message


@pytest.mark.contract("derive:V23")
@pytest.mark.parametrize("action", ["stop", "warn"])
def test_checks_that_would_break_today_say_nothing_of_commits_that_kept_them(ws, action):
    """What a dataset referred to has lost the row since, or is gone; and there are more rows now."""
    accounts = ws.create("accounts", merge=tl.merge.upsert("account"))
    accounts.append([{"account": "all"}])
    checks = (getattr(check.relation("account", "accounts"), action)(), check.row_count(at_most=1))
    define_by_hand(ws, "counts", "counts", ["transfers"], columns=COLUMNS, checks=checks)
    with computing(counted):
        ws.pull()
        accounts.append(pa.table({"account": ["all"], "op": pa.array([1], pa.int32())}))
        for mode in (True, "head"):
            assert ws.verify("counts", replay=mode).problems == ()
        ws._catalogue.delete(accounts._folder)  # as in a copy that has no more than it needs
        assert ws["counts"].verify().problems == ()


@pytest.mark.contract("derive:V23")
def test_an_input_that_had_nothing_yet_is_no_part_of_the_origin_and_that_is_not_wrong(ws):
    rates = ws.create("rates")
    define_by_hand(ws, "counts", "counts", ["transfers", "rates"], columns=COLUMNS)
    with computing(counted):
        ws.pull()
        assert ws["counts"].verify().problems == ()
        rates.append([{"account": "a"}])
        ws.pull()
        report = ws["counts"].verify()
    assert (report.problems, report.replayed) == ((), 2)


def test_rows_that_a_check_left_out_are_left_out_again(ws):
    checks = (check.in_range("total", at_most=1).quarantine(),)
    define_by_hand(ws, "counts", "counts", ["transfers"], columns=COLUMNS, checks=checks)
    with computing(counted):
        ws.pull()
        append(ws)
        ws.pull()
        report = ws["counts"].verify()
    assert (report.problems, report.replayed) == ((), 2)
    assert ws["counts"].view().to_arrow().to_pylist() == []
