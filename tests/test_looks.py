"""How things look: values as they are, tables as wide as a terminal, HTML without long hashes."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest

import trueline as tl
from trueline.console import CapturedConsole, TerminalConsole, use
from trueline.console.items import Table, as_text, data_cell, fitted
from trueline.errors import EnvironmentMissing
from trueline.kernel import tasks
from trueline.kernel.tasks import measured

HASH = re.compile(r"f1620[0-9a-f]{64}")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(table, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    TerminalConsole(out, out).show(table)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def test_years_and_ids_have_no_separators_and_counts_do():
    row = ((2026, 1234567, 1234567.25, "a\nb\tc", None, True),)
    names = ("year", "id", "amount", "text", "no", "yes")
    assert as_text(Table(names, row, data=True)).splitlines()[1].split() == [
        "2026", "1234567", "1234567.25", "a\\nb\\tc", "–", "true",
    ]  # fmt: skip
    assert "1,234,567" in as_text(Table(names, row))


def test_the_command_line_shows_values_as_they_are(tmp_path, capsys):
    from trueline.cli import main

    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("sales").append(pa.table({"year": [2026], "id": [1234567]}))
    assert main(["-C", str(tmp_path / "ws"), "show", "sales"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["2026", "1234567"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_wide_table_is_cut_as_the_terminal_is_wide(width, monkeypatch):
    columns = tuple(f"column{n}" for n in range(30))
    rows = tuple(tuple("x" * 100 if n == 0 else "long\nvalue" * 3 for n in range(30)) for _ in range(3))
    lines = drawn(Table(columns, rows, "3 rows", data=True), width, monkeypatch)
    assert max(map(len, lines)) <= width
    assert sum("x" in line for line in lines) == 3, "one line for each row"
    assert "columns are not shown" in " ".join(" ".join(lines[:2]).split())
    assert any("…" in line for line in lines)


def test_a_table_that_fits_is_not_cut(monkeypatch):
    lines = drawn(Table(("city", "year"), (("Bern", 2026),), data=True), 80, monkeypatch)
    assert [line.split() for line in lines if "Bern" in line] == [["Bern", "2026"]]
    assert fitted(Table(("a",), (("x" * 50,),), data=True), 80).rows == (("x" * 50,),)


def test_into_a_pipe_nothing_is_cut():
    assert "x" * 500 in as_text(Table(("a",), (("x" * 500,),), data=True))


def test_nested_values_are_written_as_they_are():
    assert data_cell([1000, None, "a"]) == "[1000, –, a]"


@pytest.fixture
def sales(ws, tmp_path):
    sales = ws.create("sales")
    (tmp_path / "a.csv").write_text("x\n" + "".join(f"{n}\n" for n in range(2000, 2030)))
    sales.append(tmp_path / "a.csv")
    return sales


def test_html_has_rows_and_dates_and_no_long_hashes(ws, sales):
    for thing in (ws, sales, sales.info, sales.commit(), sales.verify(), sales.schema, sales.view()):
        html = thing._repr_html_()
        assert not HASH.search(html), type(thing)
        assert html.count("<table>") == 1
    assert "<td>30</td>" in ws._repr_html_()
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", ws._repr_html_())
    assert "Verification: ok" in sales.verify()._repr_html_()
    assert "a.csv" in sales.commit()._repr_html_()
    assert "<td>x</td><td>int64</td>" in sales.schema._repr_html_()


def test_html_says_how_many_of_how_many_rows_it_shows(sales):
    html = sales.view()._repr_html_()
    assert "first 20 of 30 rows" in html
    assert "<td>2000</td>" in html
    assert "first" not in sales.view().limit(5)._repr_html_()


def test_progress_counts_bytes_of_files_and_rows_of_slices(ws, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x\n" + "1\n" * 1000 + f"{ord(name)}\n")
    with use(CapturedConsole()) as seen:
        ws.create("sales").append(str(tmp_path / "*.csv"))
    sizes = sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
    work = {each.label: (each.done, each.total) for each in seen.work}
    assert work["hash files, bytes"] == (sizes, sizes)


class Watched(CapturedConsole):
    """Keeps every move of a bar, not only the last."""

    @contextmanager
    def progress(self, label, total=None):
        with super().progress(label, total) as work:
            moves = []
            keep = SimpleNamespace(
                advance=lambda steps=1: (work.advance(steps), moves.append((work.done, work.label))),
                describe=work.describe,
                expect=work.expect,
            )
            yield keep
            self.moves = {**getattr(self, "moves", {}), label: moves}


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_progress_counts_bytes_and_rows_while_a_file_is_parsed(ws, tmp_path, monkeypatch, name):
    monkeypatch.setattr(tasks, "_PACE", 0)
    path = tmp_path / name
    text = "x\n" + "".join(f"{n}\n" for n in range(100_000))
    if name == "a.json":
        text = "".join(f'{{"x": {n}}}\n' for n in range(50_000))
    path.write_text(text)
    reader = (tl.json if name == "a.json" else tl.csv)(block_bytes=1 << 16)
    with use(Watched()) as seen:
        commit = ws.create("sales").append(path, reader)
    [work] = [each for each in seen.work if each.label.startswith("read files")]
    assert work.label == f"read files, bytes, {commit.rows:,} rows"
    size = path.stat().st_size
    assert (work.done, work.total, work.closed) == (size, size, True)
    moves = seen.moves["read files, bytes"]
    inside = [(done, label) for done, label in moves if 0 < done < size]
    assert inside, "nothing was shown before the file was read"
    assert [done for done, _ in moves] == sorted(done for done, _ in moves)
    assert any(label.endswith("rows") for _, label in inside)


def test_rows_of_files_that_are_read_side_by_side_are_counted_together(ws, tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.csv").write_text("x\n" + f"{ord(name)}\n" * 1000)
    with use(CapturedConsole()) as seen:
        ws.create("sales").append(str(tmp_path / "*.csv"))
    sizes = sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
    work = {each.label: (each.done, each.total) for each in seen.work}
    assert work["read files, bytes, 5,000 rows"] == (sizes, sizes)


def test_pieces_of_work_are_measured_in_what_all_of_them_know():
    assert measured([]) == ("", [])
    assert measured([SimpleNamespace(rows=3), SimpleNamespace(rows=4)]) == (", rows", [3, 4])
    assert measured([SimpleNamespace(size=3), SimpleNamespace(size=None)]) == ("", [1, 1])


def test_of_tasks_that_spark_only_counts_the_smallest_are_said_to_be_done():
    from trueline.spark.progress import Counted, Shown

    with CapturedConsole().progress("read files, bytes", 111) as work:
        shown = Shown(work, "read files, bytes", [100, 1, 10])
        seen = []
        for done in range(4):
            shown.look(Counted(done, 3))
            seen.append(work.done)
        shown.finish()
    assert (seen, work.done, work.total) == ([0, 1, 11, 111], 111, 111)


def test_a_query_of_spark_counts_tasks_and_says_how_many_rows_were_read():
    from trueline.spark.progress import Counted, Shown

    with CapturedConsole().progress("answering") as work:
        shown = Shown(work, "answering")
        shown.look(Counted(1, 4, 1_000))
        shown.look(Counted(3, 6, 2_000))
        assert (work.done, work.total, work.label) == (3, 6, "answering, 2,000 rows")
        shown.finish()
    assert work.done == 6


def test_something_is_shown_while_spark_starts(monkeypatch):
    from trueline.spark import session

    def refused(_):
        raise EnvironmentMissing("no Java", remedy="install one")

    monkeypatch.setattr(session, "launch", refused)
    monkeypatch.setattr(session._Process, "room", None)
    monkeypatch.setattr(session, "_running", lambda: None)
    with use(CapturedConsole()) as seen, pytest.raises(EnvironmentMissing):
        session.start()
    assert [each.label for each in seen.work] == ["starting Spark"]
