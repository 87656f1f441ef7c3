"""The one console object: what is shown where, and that nothing else is."""

from __future__ import annotations

import io
import json
import logging
import math
import subprocess
import sys
import types
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pytest

from trueline import console as tc
from trueline.chain.instant import Instant
from trueline.console.items import as_html, as_text, cell, plain
from trueline.errors import DatasetNotFound


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def everything(console):
    console.say("ready", style="good")
    console.table(["name", "rows"], [("trades", 1200), ("quotes", None)], title="datasets")
    console.fields({"kind": "root", "rows": 3}, title="trades")
    console.tree(tc.Tree("daily", (tc.Tree("trades", (tc.Tree("a.csv"),)), tc.Tree("quotes"))))
    console.warn("7 bad cells", remedy="trueline show sales --bad")
    console.error(DatasetNotFound("no dataset 'trade'", remedy="did you mean 'trades'?"))


def test_a_pipe_gets_plain_text_and_notices_go_to_stderr():
    out, err = io.StringIO(), io.StringIO()
    everything(tc.TerminalConsole(out, err))
    assert out.getvalue() == (
        "ready\n"
        "datasets\nname     rows\ntrades  1,200\nquotes      –\n"
        "trades\nkind  root\nrows  3\n"
        "daily\n├─ trades\n│  └─ a.csv\n└─ quotes\n"
    )
    assert err.getvalue() == (
        "warning: 7 bad cells\n  → trueline show sales --bad\n"
        "error: no dataset 'trade'\n  → did you mean 'trades'?\n"
    )


def test_a_terminal_gets_colours_and_the_same_words(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = Terminal(), Terminal()
    everything(tc.TerminalConsole(out, err))
    assert "\x1b[" in out.getvalue()
    for word in ("ready", "datasets", "trades", "1,200", "kind", "root", "a.csv"):
        assert word in out.getvalue()
    for word in ("7 bad cells", "no dataset 'trade'", "did you mean"):
        assert word in err.getvalue()


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    tc.TerminalConsole(out, Terminal()).say("ready", style="good")
    assert "\x1b[32m" not in out.getvalue()
    assert "ready" in out.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_markup_and_escape_sequences_in_names_are_shown_not_obeyed(stream, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = stream()
    tc.TerminalConsole(out, out).say("[red]x[/red] \x1b[2Jy \x9bz")
    assert "[red]x[/red] \\x1b[2Jy \\x9bz" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


def test_a_progress_bar_appears_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with tc.TerminalConsole(io.StringIO(), stream).progress("hashing", total=2) as work:
            work.advance()
            work.describe("hashing b.csv")
            work.expect(4)
            work.advance(3)
        assert ("hashing" in stream.getvalue()) is drawn


def test_json_mode_gives_one_document_on_stdout_and_the_rest_on_stderr():
    out, err = io.StringIO(), io.StringIO()
    console = tc.JsonConsole(out, err)
    console.say("reading")
    console.warn("slow disk")
    console.answer({"rows": 3}, lambda c: c.say("never shown"))
    assert json.loads(out.getvalue()) == {"rows": 3}
    assert err.getvalue() == "reading\nwarning: slow disk\n"


def test_json_mode_tells_an_error_as_one_line_on_stderr():
    out, err = io.StringIO(), io.StringIO()
    tc.JsonConsole(out, err).error(DatasetNotFound("no dataset 'x'", remedy="trueline list"))
    told = {"code": "DatasetNotFound", "message": "no dataset 'x'", "remedy": "trueline list"}
    assert json.loads(err.getvalue()) == {"error": told}
    assert err.getvalue().count("\n") == 1
    assert out.getvalue() == ""


def test_a_second_answer_is_refused():
    console = tc.JsonConsole(io.StringIO(), io.StringIO())
    console.answer(1, lambda c: None)
    with pytest.raises(RuntimeError, match="one answer"):
        console.answer(2, lambda c: None)


def test_a_terminal_shows_the_answer_and_not_the_document():
    out = io.StringIO()
    tc.TerminalConsole(out, io.StringIO()).answer({"rows": 3}, lambda c: c.say("3 rows"))
    assert out.getvalue() == "3 rows\n"


@dataclass
class Point:
    x: int
    y: float


def test_documents_hold_only_what_json_knows():
    document = {
        "time": datetime(2026, 11, 13, tzinfo=UTC),
        "bytes": b"\x01\xff",
        "set": {3, 1},
        "numpy": np.int64(7),
        "nan": math.nan,
        "point": Point(1, 0.5),
        5: (True, None),
    }
    assert json.loads(json.dumps(plain(document), allow_nan=False)) == {
        "time": "2026-11-13T00:00:00+00:00",
        "bytes": "01ff",
        "set": [1, 3],
        "numpy": 7,
        "nan": None,
        "point": {"x": 1, "y": 0.5},
        "5": [True, None],
    }


def test_a_silent_console_logs_notices_and_shows_nothing(capsys, caplog):
    with caplog.at_level(logging.WARNING, logger="trueline"):
        everything(tc.SilentConsole())
    assert capsys.readouterr() == ("", "")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "7 bad cells → trueline show sales --bad"),
        ("ERROR", "no dataset 'trade' → did you mean 'trades'?"),
    ]


def test_a_captured_console_keeps_records():
    console = tc.CapturedConsole()
    everything(console)
    kinds = [type(item).__name__ for item in console.items]
    assert kinds == ["Line", "Table", "Fields", "Tree", "Notice", "Notice"]
    assert console.items[-1].code == "DatasetNotFound"
    with console.progress("reading") as work:
        work.expect(5)
        work.advance(5)
    with pytest.raises(ZeroDivisionError), console.progress("failing"):
        _ = 1 / 0
    assert [(w.label, w.total, w.done, w.closed) for w in console.work] == [
        ("reading", 5, 5, True),
        ("failing", None, 0, False),
    ]


def test_use_is_undone_even_after_an_error():
    before = type(tc.current())
    with pytest.raises(KeyError), tc.use(tc.CapturedConsole()) as seen:
        assert tc.current() is seen
        raise KeyError
    assert type(tc.current()) is before is tc.SilentConsole


def test_a_notebook_gets_escaped_html_beside_text(monkeypatch):
    shown = []
    display = types.ModuleType("IPython.display")
    display.display = lambda bundle, raw: shown.append(bundle)
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    console = tc.current()
    assert isinstance(console, tc.NotebookConsole)
    console.table(["<b>"], [("a&b",)])
    assert shown == [
        {
            "text/plain": "<b>\na&b",
            "text/html": "<table><thead><tr><th>&lt;b&gt;</th></tr></thead>"
            "<tbody><tr><td>a&amp;b</td></tr></tbody></table>",
        }
    ]


def test_everything_but_a_table_is_preformatted_html():
    assert as_html(tc.Line("a < b")) == "<pre>a &lt; b</pre>"


def test_cells_read_like_people_write():
    assert cell(datetime(2026, 11, 13, 9, 5, 7, 123)) == "2026-11-13 09:05:07"
    assert cell(["a", 1000]) == "a, 1,000"
    assert as_text(tc.Table(("x",), ())) == "x"


def test_importing_the_console_loads_neither_rich_nor_ipython():
    code = "import sys, trueline.console; print([m for m in ('rich', 'IPython', 'json') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_notebook_follows_work_in_place(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data)

    class Display:
        @staticmethod
        def display(data, raw, display_id=False):
            return Handle() if display_id else None

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", Display)
    with tc.NotebookConsole().progress("reading <a>", 2) as work:
        work.advance()
        work.describe("hashing <b>")
        work.expect(4)
    assert any(
        "&lt;b&gt;" in data["text/html"] and 'max="4" value="1"' in data["text/html"] for data in shown
    )
    assert shown[-1] == {"text/plain": "", "text/html": ""}


def test_a_number_that_writes_itself_as_text_is_text():
    moment = Instant.parse("2026-11-13T12:00:00Z")
    table = tc.Table(("at", "n"), ((moment, 1200), (None, 7)))
    assert cell(moment) == plain(moment) == "2026-11-13T12:00:00Z"
    assert plain({"at": [moment]}) == {"at": ["2026-11-13T12:00:00Z"]}
    assert [table.is_numeric(0), table.is_numeric(1)] == [False, True]
    assert cell(np.float64(1234.5)) == "1,234.5"
