"""The configuration file: defaults, changes, and what happens when people break it."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.architecture import ROOT
from trueline.errors import ConfigError, TruelineError, UnsupportedVersion
from trueline.workspace.config import Config
from trueline.workspace.settings import SETTINGS
from trueline.workspace.settings_file import edited


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
    config = Config(text, kept.append)
    config.set("gc.older_than", "3h")
    assert kept == [text.replace("older_than = '1h'  # short", 'older_than = "3h"')]


@pytest.mark.parametrize(
    "text",
    ["format = 1\ngc.older_than = '1h'\n", "format = 1\ngc = {older_than = '1h'}\n", "format=1\n[ gc ]\n"],
)
def test_a_file_written_in_another_way_is_written_anew(text):
    kept: list[str] = []
    config = Config(text, kept.append)
    config.set("gc.older_than", "3h")
    assert Config(kept[-1], kept.append)["gc.older_than"] == "3h"


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("gc.older_than", "soon", "not a duration"),
        ("gc.older_than", True, "not a duration"),
        ("storage.durable", "maybe", "neither true nor false"),
        ("gc.oldr_than", "1h", "settings are"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_written(name, value, match):
    kept: list[str] = []
    with pytest.raises(ConfigError, match=match):
        Config("format = 1", kept.append).set(name, value)
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
        Config(text, lambda _: None)


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
