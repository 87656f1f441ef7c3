"""Files that were put there to harm: pipes as settings, a stranger's journals, names with escapes in them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from trueline import console as tc
from trueline.cli import main
from trueline.console.items import as_html, as_text, one_line
from trueline.errors import ConfigError, InputError, visible
from trueline.workspace.config import Config
from trueline.workspace.settings_file import MAX_BYTES

pytestmark = pytest.mark.contract("guard:G3")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    monkeypatch.delenv("TRUELINE_WORKSPACE", raising=False)
    (tmp_path / "mine" / "trueline").mkdir(parents=True)
    return tmp_path / "mine" / "trueline" / "config.toml"


# --- settings -------------------------------------------------------------------------------

# Another process, because what it shows is that it ends: a reader of a pipe would wait for ever.
OPENED = """
import sys, trueline as tl
try:
    with tl.open(sys.argv[1]) as ws:
        ws.config["gc.older_than"]
except (tl.errors.ConfigError, tl.errors.LinkRefused) as error:
    print(type(error).__name__, error.remedy)
"""


def put(kind: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "large":
            path.write_bytes(b"#" * (MAX_BYTES + 1))
        case "endless":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "binary":
            path.write_bytes(os.urandom(64) + b"\xff\x00")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "endless", "binary"])
@pytest.mark.parametrize("whose", ["workspace", "user"])
def test_settings_that_are_not_a_small_file_are_refused_at_once(tmp_path, home, kind, whose):
    tl.open(tmp_path / "ws", create=True).close()
    path = home if whose == "user" else tmp_path / "ws" / "trueline.toml"
    put(kind, path)
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(tmp_path / "ws")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # Inside a workspace nothing but a file is taken for one, whatever it is for.
    refused = whose == "workspace" and kind in ("pipe", "device", "folder")
    assert done.stdout.startswith("LinkRefused look at it" if refused else "ConfigError correct ")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "9" * 5000,
        "x = 0x" + "f" * 5000,
        "format = 0x" + "f" * 5000,
        "format = 1\n[gc]\nolder_than = 0x" + "f" * 5000,
        "format = 1\n[gc]\nolder_than = 1e999",
        "x = " + "[" * 5000,
        "x = {" * 5000,
        # The parser keeps every beginning of a dotted name: memory grows with the square of the dots.
        ".".join("a" * 6_000) + " = 1",
        "format = 1\n" + ".".join("a" * 5000) + " = 1",
        "format = 1\n[spark]\nmaster = '\x1b[2J'",
        'format = 1\n[spark]\nmaster = "\\u001b[2J\\u202e"',
        'format = 1\n"\\u001b[2J\\nx" = 1',
    ],
    ids=lambda text: text[:30].encode("unicode_escape").decode(),
)
def test_hostile_text_is_a_typed_error_without_its_control_characters(tmp_path, home, text):
    with pytest.raises(ConfigError) as told:
        Config(text, lambda *_: None)
    assert not set(str(told.value)) & {"\x1b", "\u202e"}
    assert len(str(told.value)) < 2000
    home.write_text(text.replace("format = 1\n", ""))
    with pytest.raises(ConfigError), tl.open(tmp_path / "ws", create=True) as ws:
        _ = ws.config["gc.older_than"]


# --- names ----------------------------------------------------------------------------------

EVIL = "a\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066\nerror: forged\r\x9b31m"
RAW = {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\u2066"}


def test_names_of_columns_and_values_do_not_write_on_the_terminal(tmp_path, capsys):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("sales", description=EVIL).append(pa.table({"x" + EVIL: [EVIL], "y": [1]}))
    for words in (["show", "sales"], ["schema", "sales"], ["list"], ["status"], ["log"], ["diff", "sales"]):
        main(["-C", str(tmp_path / "ws"), *words])
        said = capsys.readouterr()
        assert not set(said.out + said.err) & RAW, words
        assert "\nerror: forged" not in said.out + said.err, words
    assert main(["-C", str(tmp_path / "ws"), "show", "sales", "--json"]) == 0
    assert EVIL in str_values(json.loads(capsys.readouterr().out)), "programs have it exactly"


def str_values(document: object) -> list[str]:
    """All texts in a JSON document."""
    if isinstance(document, dict):
        return [text for each in document.values() for text in str_values(each)]
    if isinstance(document, list):
        return [text for each in document for text in str_values(each)]
    return [document] if isinstance(document, str) else []


@pytest.mark.parametrize("name", ["x\x1b[2J.csv", "x\u202e.csv", "x\nerror: forged.csv", "x\udcff.csv"])
def test_names_of_files_neither(tmp_path, capsys, name):
    (tmp_path / name).write_bytes(b'a,b\n1\n"')
    tl.open(tmp_path / "ws", create=True).close()
    assert main(["-C", str(tmp_path / "ws"), "create", "sales"]) == 0
    for words in (
        ["ingest", "sales", str(tmp_path / name)],
        ["ingest", "sales", str(tmp_path / name), "--json"],
        ["create", "other", "--source", str(tmp_path / name)],
        ["pull", "other"],
        ["pull", "other", "--json"],
        ["status"],
        ["clone", str(tmp_path / name)],
        ["export", "sales", str(tmp_path / name / "x.csv")],
    ):
        main(["-C", str(tmp_path / "ws"), *words])
        said = capsys.readouterr()
        assert not set(said.out + said.err) & RAW, words
        assert "\nerror: forged" not in said.out + said.err, (words, said.err)
        assert "Unexpected" not in said.err, (words, said.err)
        assert "should not happen" not in said.err, (words, said.err)


def test_an_error_that_python_shows_is_harmless_too():
    error = InputError(f"no column {EVIL}", remedy="give another", column=EVIL)
    assert not set(str(error)) & RAW
    assert error.column == EVIL, "programs have it exactly"


def test_what_is_shown_stays_in_its_cell():
    table = tc.Table((EVIL,), ((EVIL,), ("x",)))
    assert as_text(table).count("\n") == 2
    assert not set(as_text(table) + as_html(tc.Table(("<b>",), ((EVIL,),)))) & RAW
    assert "<b>" not in as_html(tc.Table(("<b>",), (("<b>",),)))
    assert as_text(tc.Tree("a", (tc.Tree(EVIL),))).count("\n") == 1
    assert as_text(tc.Fields(((EVIL, EVIL),))).count("\n") == 0


def test_half_a_character_does_not_stop_a_command():
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = tc.JsonConsole(out, out)
    console.answer({"name": "x\udcff"}, lambda shown: None)
    out.seek(0)
    assert json.loads(out.read()) == {"name": "x\udcff"}
    assert one_line("x\udcff") == "x\\udcff"


@given(st.text())
def test_shown_text_can_always_be_written_and_hides_nothing(text):
    shown = visible(text, lines=False)
    shown.encode()
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert len(shown) >= len(text)
