"""A workspace's own file may propose where Spark runs, and so where the data goes; its user decides."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import trueline as tl
from trueline import console as tc
from trueline.cli import main
from trueline.errors import ConfigError, SettingNotConfirmed, TruelineError
from trueline.spark import session as sessions
from trueline.spark.settings import Settings

pytestmark = pytest.mark.contract("guard:G3", "guard:G10")

THEIRS = "sc://collector.example:15002"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Settings of a user who has none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    for name in ("MASTER", "REMOTE"):
        monkeypatch.delenv(f"TRUELINE_SPARK_{name}", raising=False)
    return tmp_path / "mine" / "trueline" / "config.toml"


@pytest.fixture
def entered(monkeypatch):
    """Where Spark would have been entered; nothing is started."""
    asked = []
    room = SimpleNamespace(is_stopped=False, stop=lambda: None, session=None)
    monkeypatch.setattr(sessions, "enter", lambda *args: asked.append(args) or room)
    return asked


@pytest.fixture
def theirs(tmp_path):
    """A workspace that came from a stranger, by an archive or a shared folder."""
    with tl.open(tmp_path / "theirs", create=True) as ws:
        ws.create("sales").append(pa.table({"x": [1]}))
    return tmp_path / "theirs"


def propose(folder: Path, **values: str) -> None:
    lines = "".join(f'{name} = "{value}"\n' for name, value in values.items())
    (folder / "trueline.toml").write_text(f"format = 1\n[spark]\n{lines}")


@pytest.mark.parametrize(
    "proposal",
    [
        {"remote": THEIRS},
        {"master": "spark://collector.example:7077"},
        {"master": "k8s://https://collector.example"},
        {"master": "yarn"},
        {"master": "local-cluster[2,1,1024]"},
    ],
    ids=str,
)
def test_a_workspace_does_not_decide_where_its_data_goes(theirs, entered, proposal):
    propose(theirs, **proposal)
    ((name, value),) = proposal.items()
    with tl.open(theirs) as ws:
        with pytest.raises(SettingNotConfirmed) as refused:
            ws.sql("select * from sales")
        assert entered == []
        assert ws.config[f"spark.{name}"] != value
        assert ws["sales"].info.rows == 1, "all else works"
    told = refused.value
    assert (told.name, told.value) == (f"spark.{name}", value)
    assert value in told.problem
    assert str(theirs / "trueline.toml") in told.problem


def test_the_remedy_works_and_is_for_this_value_in_this_workspace(theirs, entered, tmp_path):
    propose(theirs, remote=THEIRS)
    with tl.open(theirs) as ws, pytest.raises(SettingNotConfirmed) as refused:
        _ = ws._spark.first
    program, *words = shlex.split(refused.value.remedy.split("`")[1])
    assert program == "trueline"
    assert main(words) == 0
    with tl.open(theirs) as ws:
        _ = ws._spark.first
    assert entered == [(None, Settings(remote=THEIRS))]
    propose(theirs, remote=THEIRS.replace("15002", "15003"))
    with tl.open(theirs) as ws, pytest.raises(SettingNotConfirmed):
        _ = ws._spark.first
    propose(theirs, remote=THEIRS)
    theirs.rename(tmp_path / "elsewhere")
    with tl.open(tmp_path / "elsewhere") as ws:
        with pytest.raises(SettingNotConfirmed):
            _ = ws._spark.first
        assert ws.config.trust("spark.remote") == THEIRS
        _ = ws._spark.first
    assert len(entered) == 2


def test_who_sets_it_by_hand_has_confirmed_it(theirs, entered, home):
    with tl.open(theirs) as ws:
        ws.config.set("spark.remote", "sc://ours:1/;token=hunter2")
    with tl.open(theirs) as ws:
        _ = ws._spark.first
    assert entered == [(None, Settings(remote="sc://ours:1/;token=hunter2"))]
    assert "hunter2" not in home.read_text(), "what was confirmed is kept without its key"
    assert home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_a_spark_on_this_machine_is_taken_without_asking(theirs, entered, master):
    propose(theirs, master=master)
    with tl.open(theirs) as ws:
        _ = ws._spark.first
    assert entered == [(None, Settings(master=master))]


@pytest.mark.parametrize(
    "chosen",
    [
        ({"MASTER": "local[3]"}, {}, Settings(master="local[3]")),
        ({"REMOTE": "sc://env:1"}, {"spark.remote": "sc://own:1"}, Settings(remote="sc://env:1")),
        ({"MASTER": "local[3]"}, {"spark.remote": "sc://own:1"}, Settings(master="local[3]")),
        ({}, {"spark.remote": "sc://own:1"}, Settings(remote="sc://own:1")),
        ({}, {"spark.master": "yarn"}, Settings(master="yarn")),
    ],
    ids=str,
)
def test_the_user_decides_and_is_not_asked_about_what_was_proposed(theirs, entered, monkeypatch, chosen):
    environment, own, expected = chosen
    propose(theirs, remote=THEIRS)
    for name, value in environment.items():
        monkeypatch.setenv(f"TRUELINE_SPARK_{name}", value)
    for name, value in own.items():
        assert main(["config", "set", "--user", name, value]) == 0
    with tl.open(theirs) as ws:
        _ = ws._spark.first
    assert entered == [(None, expected)]


def test_a_call_comes_before_everything(theirs, entered):
    propose(theirs, remote=THEIRS)
    with tl.open(theirs, spark="local[1]") as ws:
        _ = ws._spark.first
    assert entered == [("local[1]", Settings())]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "is_used"), [("y\n", True), ("yes\n", True), ("n\n", False), ("", False)])
def test_on_a_terminal_it_is_asked_about_once(theirs, entered, answer, is_used):
    propose(theirs, remote=THEIRS)
    asked = Terminal()
    with tc.use(tc.TerminalConsole(io.StringIO(), asked, Terminal(answer))), tl.open(theirs) as ws:
        if is_used:
            _ = ws._spark.first
        else:
            with pytest.raises(SettingNotConfirmed):
                _ = ws._spark.first
    assert THEIRS in asked.getvalue()
    assert [args[1].remote for args in entered] == [THEIRS] * is_used
    again = Terminal()
    with tc.use(tc.TerminalConsole(io.StringIO(), again, Terminal(""))), tl.open(theirs) as ws:
        if is_used:
            _ = ws._spark.first
            assert again.getvalue() == ""
        else:
            with pytest.raises(SettingNotConfirmed):
                _ = ws._spark.first


def test_a_pipe_is_not_asked(theirs, entered):
    propose(theirs, remote=THEIRS)
    said = io.StringIO()
    with (
        tc.use(tc.TerminalConsole(said, said, io.StringIO("y\n"))),
        tl.open(theirs) as ws,
        pytest.raises(SettingNotConfirmed),
    ):
        _ = ws._spark.first
    assert entered == []


@pytest.mark.parametrize("line", ["[http]\nallow_private = true", '[safe]\ndirectory = ["*"]'])
def test_what_is_the_users_alone_is_refused_in_a_workspace(theirs, line):
    (theirs / "trueline.toml").write_text(f"format = 1\n{line}\n")
    with pytest.raises(ConfigError, match="cannot be set by a workspace") as refused:
        tl.open(theirs)
    assert "config set --user" in refused.value.remedy


def test_the_list_says_where_each_value_comes_from(theirs, capsys, monkeypatch, home):
    propose(theirs, remote=THEIRS, master="local[2]")
    monkeypatch.setenv("TRUELINE_GC_OLDER_THAN", "3h")
    assert main(["config", "set", "--user", "spark.driver.memory", "3g"]) == 0
    capsys.readouterr()
    assert main(["-C", str(theirs), "config", "list"]) == 0
    said = capsys.readouterr()
    rows = {line.split()[0]: line for line in said.out.splitlines()[1:]}
    assert "TRUELINE_GC_OLDER_THAN" in rows["gc.older_than"]
    assert str(home) in rows["spark.driver.memory"]
    assert "trueline.toml, not confirmed" in rows["spark.remote"]
    assert THEIRS not in rows["spark.remote"]
    assert "trueline.toml" in rows["spark.master"]
    assert "default" in rows["storage.durable"]
    assert f"proposes spark.remote = {THEIRS}" in said.err


def test_settings_of_the_user_keep_their_comments_and_what_was_confirmed(theirs, home):
    home.parent.mkdir(parents=True)
    home.write_text("# mine\n[gc]\nolder_than = '2h'  # a while\n")
    propose(theirs, remote=THEIRS)
    with tl.open(theirs) as ws:
        ws.config.trust("spark.remote")
    for folder in ("/a", "/b", "/a"):
        assert main(["config", "set", "--user", "safe.directory", folder]) == 0
    text = home.read_text()
    assert text.startswith("# mine\n[gc]\nolder_than = '2h'  # a while\n")
    assert 'directory = ["/a", "/b"]' in text
    with tl.open(theirs) as ws:
        assert ws.config["spark.remote"] == THEIRS
        assert ws.config["gc.older_than"] == "2h"


def test_a_wrong_value_in_the_environment_names_the_variable(theirs, monkeypatch):
    monkeypatch.setenv("TRUELINE_SPARK_MASTER", "everywhere")
    with tl.open(theirs) as ws, pytest.raises(ConfigError, match="TRUELINE_SPARK_MASTER"):
        _ = ws._spark.first


def test_a_user_without_a_home_has_no_settings_and_is_told_so_when_setting_one(theirs):
    code = """
import os, sys
os.environ.pop("HOME", None); os.environ.pop("XDG_CONFIG_HOME", None)
import pwd
def nobody(uid): raise KeyError(uid)
pwd.getpwuid = nobody
import trueline as tl
from trueline.workspace.user_config import UserConfig
with tl.open(sys.argv[1]) as ws:
    assert ws.config["gc.older_than"] == "1h"
try:
    UserConfig().set("gc.older_than", "2h")
except tl.errors.ConfigError as error:
    print(error.problem)
"""
    done = subprocess.run([sys.executable, "-c", code, str(theirs)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "this user has no home folder\n"), done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[[trust]]\nworkspace = 1\n",
        "trust = 1\n",
        "[[trust]]\nname = 'x'\n",
        "surprise = 1\n",
        "[",
        "a.b" * 9,
    ],
)
def test_a_broken_file_of_the_user_is_named(theirs, home, text):
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text(text)
    with tl.open(theirs) as ws, pytest.raises(TruelineError) as refused:
        _ = ws.config["gc.older_than"]
    assert isinstance(refused.value, ConfigError)
    assert os.fspath(home) in str(refused.value) or "no setting" in str(refused.value)
