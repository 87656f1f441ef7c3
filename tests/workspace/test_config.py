"""The configuration file: defaults, changes, and what happens when people break it."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.architecture import ROOT
from trueline.errors import ConfigError, RetryError, TruelineError, UnsupportedVersion
from trueline.workspace.config import Config
from trueline.workspace.settings import SETTINGS
from trueline.workspace.settings_file import edited
from trueline.workspace.user_config import UserConfig


def test_settings_have_defaults_and_can_be_changed(ws):
    assert ws.config["gc.older_than"] == "1h"
    ws.config.set("gc.older_than", "2d")
    with tl.open(ws.location) as again:
        assert again.config["gc.older_than"] == "2d"
        assert again.config.is_set("gc.older_than")
        assert not again.config.is_set("storage.durable")


def test_changing_a_setting_keeps_comments_and_other_lines():
    text = "# mine\nformat = 1\n\n[gc]\n# why\nolder_than = '1h'  # short\n\n[storage]\ndurable = true\n"
    kept: list[str] = []
    config = Config(text, lambda _, text: kept.append(text))
    config.set("gc.older_than", "3h")
    assert kept == [text.replace("older_than = '1h'  # short", 'older_than = "3h"')]


def test_of_two_who_set_different_settings_at_once_both_count(ws):
    """Both have opened the workspace before either of them writes."""
    with tl.open(ws.location) as one, tl.open(ws.location) as other:
        one.config.set("gc.older_than", "2d")
        other.config.set("storage.durable", False)
        one.config.set("limits.columns", 77)
        assert other.config["gc.older_than"] == "2d", "seen when it was in the way"
    with tl.open(ws.location) as again:
        found = [again.config[name] for name in ("gc.older_than", "storage.durable", "limits.columns")]
    assert found == ["2d", False, 77]


def test_a_file_that_was_edited_by_hand_since_it_was_read_keeps_what_was_edited(ws):
    path = Path(ws.location, "trueline.toml")
    path.write_text("# mine\nformat = 1\n[limits]\ncolumns = 77 # few\n")
    ws.config.set("gc.older_than", "2d")
    assert path.read_text().startswith("# mine\nformat = 1\n[limits]\ncolumns = 77 # few\n")
    assert (ws.config["limits.columns"], ws.config["gc.older_than"]) == (77, "2d")
    path.write_text("nonsense")
    with pytest.raises(ConfigError, match="not TOML"):
        ws.config.set("gc.older_than", "3d")
    assert path.read_text() == "nonsense"


SET = """
import sys
import trueline as tl
from trueline.workspace.user_config import UserConfig
own = UserConfig()
with tl.open(sys.argv[1]) as ws:
    print("ready", flush=True)
    sys.stdin.readline()
    for name, value in (pair.split("=") for pair in sys.argv[2:]):
        ws.config.set(name, value)
        own.set("safe.directory", f"/{name}")
"""


def test_processes_that_set_settings_at_the_same_time_lose_none(ws, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    shares = [
        {"gc.older_than": "2d", "limits.columns": "77", "spark.driver.memory": "2g"},
        {"storage.durable": "false", "limits.record_bytes": "3MiB", "limits.batch_bytes": "64MiB"},
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SET, ws.location, *(f"{name}={value}" for name, value in share.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with tl.open(ws.location) as again:
        for name, value in (shares[0] | shares[1]).items():
            assert str(again.config[name]).lower() == value.lower(), name
    expected = {f"/{name}" for share in shares for name in share}
    assert set(UserConfig().value("safe.directory")) == expected


def test_settings_that_others_change_without_end_are_an_error_to_try_again():
    config = Config("format = 1\n", lambda kept, text: kept + "#")
    with pytest.raises(RetryError) as caught:
        config.set("gc.older_than", "2d")
    assert caught.value.code == "SettingsBusy"


@pytest.mark.parametrize(
    "text",
    ["format = 1\ngc.older_than = '1h'\n", "format = 1\ngc = {older_than = '1h'}\n", "format=1\n[ gc ]\n"],
)
def test_a_file_written_in_another_way_is_written_anew(text):
    kept: list[str] = []
    config = Config(text, lambda _, text: kept.append(text))
    config.set("gc.older_than", "3h")
    assert Config(kept[-1], lambda _, text: kept.append(text))["gc.older_than"] == "3h"


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("gc.older_than", "soon", "not a duration"),
        ("gc.older_than", True, "not a duration"),
        ("storage.durable", "maybe", "neither true nor false"),
        ("gc.oldr_than", "1h", "did you mean gc.older_than"),
        ("colour", "red", "settings are"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_written(name, value, match):
    kept: list[str] = []
    with pytest.raises(ConfigError, match=match):
        Config("format = 1", lambda _, text: kept.append(text)).set(name, value)
    assert kept == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"\xff\xfe garbage", ConfigError),
        (b"format = [", ConfigError),
        (b"", ConfigError),
        (b"format = true", ConfigError),
        (b"format = 2", UnsupportedVersion),
        (b"format = 1\n[gc]\nolder_than = []\n", ConfigError),
        (b"format = 1\nsurprise = 1\n", ConfigError),
    ],
)
def test_a_garbled_file_is_a_clear_error_and_damages_nothing(ws, tmp_path, text, error):
    ws.create("trades")
    path = tmp_path / "ws" / "trueline.toml"
    before = path.read_bytes()
    path.write_bytes(text)
    with pytest.raises(error) as caught:
        tl.open(ws.location, create=True)
    assert caught.value.remedy
    assert path.read_bytes() == text
    path.write_bytes(before)
    with tl.open(ws.location) as again:
        assert list(again) == ["trades"]


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_typed_error(text):
    with suppress(TruelineError):
        Config(text, lambda *_: None)


@given(st.sampled_from(["1h", "2d", '"', "\\", "é"]))
def test_what_is_written_is_what_is_read(value):
    import tomllib

    assert tomllib.loads(edited("format = 1\n", "a.b", value))["a"]["b"] == value


def test_the_page_on_settings_has_all_of_them():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z._]+)` \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    shown = {None: "–", (): "–", True: "`true`", False: "`false`"}
    expected = [
        (name, shown.get(setting.default) or f"`{setting.default}`", setting.meaning)
        for name, setting in SETTINGS.items()
    ]
    assert listed == expected
