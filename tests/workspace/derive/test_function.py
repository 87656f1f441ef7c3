"""Functions of frames: recorded with their module, run only where somebody here has named them."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive import frame_functions
from tests.workspace.derive.following import follow_all
from trueline.dataset.derivation import derivation_at
from trueline.errors import InputError
from trueline.workspace.derive import function

PATH = "tests.workspace.derive.frame_functions"


@pytest.fixture
def ws(spark_workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    spark_workspace.config.user.path = tmp_path / "config" / "trueline" / "config.toml"
    rows = pa.table(
        {"id": list(range(20)), "account": ["a", "b"] * 10, "amount": [float(n) for n in range(20)]}
    )
    spark_workspace.create("transfers").append(rows)
    monkeypatch.setattr(function, "_named_here", set())
    return spark_workspace


def test_a_function_is_recorded_with_its_module_and_recomputed(ws):
    made = ws.derive("largest", fn=frame_functions.totals, inputs=["transfers"], key="account")
    there = derivation_at(made.chain.tail())
    assert there.function.path == f"{PATH}:totals"
    assert "def totals(transfers)" in there.function.source
    assert there.reason == "function"
    assert ws.derive("largest", fn=f"{PATH}:totals", inputs=["transfers"], key="account") is made
    follow_all(ws, ["largest"])
    assert made.view().to_arrow().to_pylist() == [
        {"account": "a", "largest": 18.0},
        {"account": "b", "largest": 19.0},
    ]


@pytest.mark.contract("derive:V5")
def test_what_cannot_be_computed_again_is_refused(ws):
    for name, code in (("number", "BadFunction"), ("of_two", "BadFunction"), ("nobody", "FunctionMissing")):
        with pytest.raises(InputError) as caught:
            ws.derive("x", fn=f"{PATH}:{name}", inputs=["transfers"], key="id")
        assert caught.value.code == code
        assert "x" not in ws
    ws.derive("places", fn=f"{PATH}:by_place", inputs=["transfers"], key="id")
    with pytest.raises(InputError, match="cut into other partitions") as caught:
        follow_all(ws, ["places"])
    assert caught.value.code == "NotReproducible"
    assert ws["places"].chain.tail().data is None


@pytest.mark.contract("derive:V5")
def test_another_function_is_run_over_other_partitions_too(ws):
    made = ws.derive("places", fn=f"{PATH}:places", inputs=["transfers"], key="id")
    follow_all(ws, ["places"])
    last = made.chain.tail().data
    assert (
        ws.derive("places", fn=f"{PATH}:by_place", inputs=["transfers"], key="id", on_change="rebuild")
        is made
    )
    with pytest.raises(InputError) as caught:
        follow_all(ws, ["places"])
    assert caught.value.code == "NotReproducible"
    assert made.chain.tail().data == last


@pytest.mark.contract("derive:V4")
def test_equal_numbers_of_a_function_have_one_form(ws):
    made = ws.derive("zeros", fn=f"{PATH}:zeros", inputs=["transfers"], key="id")
    follow_all(ws, ["zeros"])
    shown = {str(row) for row in made.view().select("zero", "l", "s").to_arrow().to_pylist()}
    assert shown == {"{'zero': 0.0, 'l': [0.0], 's': {'z': 0.0}}"}


def test_a_function_that_somebody_else_named_does_not_run(ws, tmp_path, monkeypatch):
    """A copy of a dataset names code: neither the recorded text nor a module of that name may run unasked."""
    ran = tmp_path / "ran"
    module = tmp_path / "code" / "planted.py"
    module.parent.mkdir()
    module.write_text(
        textwrap.dedent(f"""
        from pathlib import Path
        Path({str(ran)!r}).write_text("imported")

        def rows(transfers):
            return transfers
        """)
    )
    monkeypatch.syspath_prepend(str(module.parent))
    ws.derive("copied", fn="planted:rows", inputs=["transfers"], key="id")
    monkeypatch.setattr(function, "_named_here", set())
    ws.config.user.path.unlink()
    ws.config.user._load()
    ran.unlink()
    del sys.modules["planted"]
    with pytest.raises(InputError) as caught:
        follow_all(ws, ["copied"])
    assert caught.value.code == "FunctionNotConfirmed"
    assert not ran.exists()
    assert ws["copied"].confirm_source() == "planted:rows"
    assert follow_all(ws, ["copied"])["copied"].rows == 20
    # What was confirmed is this text of the module, and no other.
    module.write_text(module.read_text() + "\n# changed\n")
    ws["transfers"].append(pa.table({"id": [99], "account": ["c"], "amount": [1.0]}))
    with pytest.raises(InputError) as caught:
        follow_all(ws, ["copied"])
    assert caught.value.code == "OtherFunction"
    ws.derive("copied", fn="planted:rows", inputs=["transfers"], key="id", on_change="rebuild")
    assert follow_all(ws, ["copied"])["copied"].rows == 1


def test_what_was_confirmed_is_kept_in_the_users_own_file(ws, tmp_path, spark):
    ws.derive("largest", fn=f"{PATH}:totals", inputs=["transfers"], key="account")
    function._named_here.clear()
    with tl.open(tmp_path / "ws", spark=spark) as again:
        assert follow_all(again, ["largest"])["largest"].rows == 2


@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_job_of_a_pull_and_nothing_is_recorded(ws, spark, tmp_path, monkeypatch):
    made = ws.derive("stalled", fn=f"{PATH}:stalled", inputs=["transfers"], key="id")
    follow_all(ws, ["stalled"])
    ws["transfers"].append(pa.table({"id": [99], "account": ["c"], "amount": [1.0]}))
    pipes = [str(tmp_path / name) for name in ("gate", "never")]
    for pipe in pipes:
        os.mkfifo(pipe)
    monkeypatch.setenv("STALLED_AT", ":".join(pipes))
    before = made.head

    def interrupt():
        with Path(pipes[0]).open():
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ws.pull("stalled")
    thread.join()
    assert made.head == before
    # What the tracker knows it hears from a queue.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
