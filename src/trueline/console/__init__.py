"""One console object: whatever Trueline says to people goes through it, the core never prints.

The library says nothing unless it is asked to: in a program notices go to the logger `trueline`, in a
notebook they appear under the cell, on the command line in the terminal. `use` chooses another console; a
console of your own subclasses `Console` and says in `show` how an item is shown. A new thread starts without
what `use` set: hand the console over.

>>> with use(CapturedConsole()) as seen:
...     current().warn("7 bad cells", remedy="look at them")
>>> seen.items
[Notice(kind='warning', problem='7 bad cells', remedy='look at them', code='')]
>>> isinstance(current(), SilentConsole)
True
>>> import sys
>>> out = TerminalConsole(sys.stdout, sys.stdout)
>>> out.say("3 datasets")
3 datasets
>>> JsonConsole(sys.stdout, sys.stderr).answer({"datasets": 3}, lambda console: None)
{
  "datasets": 3
}
>>> NotebookConsole().confirm("go on?") is None
True
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from trueline.console.items import (
    Fields,
    Item,
    Line,
    Notice,
    Style,
    Table,
    Tree,
    as_html,
    as_json,
    as_text,
    plain,
    safe,
)
from trueline.credentials import masked_text
from trueline.errors import TruelineError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

__all__ = [
    "CapturedConsole",
    "Console",
    "Fields",
    "JsonConsole",
    "Line",
    "NotebookConsole",
    "Notice",
    "Progress",
    "SilentConsole",
    "Table",
    "TerminalConsole",
    "Tree",
    "current",
    "use",
]


class Progress(Protocol):
    """A piece of work under way.

    >>> with CapturedConsole().progress("reading") as work:
    ...     work.expect(2)
    ...     work.describe("the second file")
    ...     work.advance()
    """

    def advance(self, steps: float = 1) -> None:
        """Say that more of it is done."""

    def describe(self, text: str) -> None:
        """Say what is being worked on now."""

    def expect(self, total: float) -> None:
        """Say how much there is, once that is known."""


class _NoProgress:
    """Progress that is not shown."""

    def advance(self, steps: float = 1) -> None:
        """Ignore it."""

    def describe(self, text: str) -> None:
        """Ignore it."""

    def expect(self, total: float) -> None:
        """Ignore it."""


# --- the console --------------------------------------------------------------


class Console(ABC):
    """Where output goes. An implementation says how an item is shown; the verbs are the same for all.

    >>> console = CapturedConsole()
    >>> console.table(["name", "rows"], [("trades", 3)])
    >>> console.items[0].rows
    (('trades', 3),)

    >>> console.say("done")
    >>> console.fields({"rows": 3})
    >>> console.tree(Tree("sales", (Tree("daily"),)))
    >>> console.warn("7 bad cells")
    >>> console.error("no dataset 'x'", remedy="create it")
    >>> console.show(Line("a line"))
    >>> console.answer({"rows": 3}, lambda shown: shown.say("3 rows"))
    >>> console.confirm("go on?") is None
    True
    >>> with console.progress("reading", total=2) as work:
    ...     work.advance()
    """

    @abstractmethod
    def show(self, item: Item) -> None:
        """Show one item."""

    def progress(self, label: str, total: float | None = None) -> AbstractContextManager[Progress]:
        """Follow a piece of work; without `total` only that something happens is shown."""
        return nullcontext(_NoProgress())

    def answer(self, document: object, render: Callable[[Console], None]) -> None:
        """Give the answer of a command: `document` to programs, what `render` shows to people."""
        render(self)

    def say(self, text: str, style: Style = "plain") -> None:
        """Show a status line."""
        self.show(Line(masked_text(text), style))

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", data: bool = False
    ) -> None:
        """Show rows under named columns; `data` are values of people's own, not counts of ours."""
        self.show(Table(tuple(columns), tuple(tuple(row) for row in rows), title, data))

    def fields(self, values: Mapping[str, object], *, title: str = "") -> None:
        """Show the named values of one thing."""
        self.show(Fields(tuple(values.items()), title))

    def tree(self, tree: Tree) -> None:
        """Show a label with its branches."""
        self.show(tree)

    def warn(self, problem: str, *, remedy: str = "", code: str = "") -> None:
        """Show something that needs attention but stopped nothing."""
        self.show(Notice("warning", masked_text(problem), remedy, code))

    def error(self, error: BaseException | str, *, remedy: str = "") -> None:
        """Show what failed and what to do about it."""
        self.show(_notice(error, remedy))

    def confirm(self, question: str) -> bool | None:
        """Ask for a yes or no; None where there is no one to ask."""
        return None


def _notice(error: BaseException | str, remedy: str) -> Notice:
    if isinstance(error, TruelineError):
        return Notice("error", error.problem, remedy or error.remedy, error.code)
    if isinstance(error, BaseException):
        return Notice("error", masked_text(str(error)) or type(error).__name__, remedy, type(error).__name__)
    return Notice("error", masked_text(error), remedy)


# --- implementations ----------------------------------------------------------


class TerminalConsole(Console):
    """Answers on stdout, warnings, errors and progress on stderr.

    On a terminal it is drawn by rich (colours, bars); into a pipe or file it is plain text, without rich
    being imported.
    """

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, keys: TextIO | None = None
    ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.keys: TextIO | None = keys or sys.stdin
        self._rich: dict[TextIO, RichConsole] = {}

    def _drawn(self, stream: TextIO) -> RichConsole | None:
        if not stream.isatty():
            return None
        if stream not in self._rich:
            from rich.console import Console as RichConsole

            self._rich[stream] = RichConsole(file=stream, markup=False, highlight=False, emoji=False)
        return self._rich[stream]

    def show(self, item: Item) -> None:
        """Show one item."""
        stream = self.err if isinstance(item, Notice) else self.out
        rich = self._drawn(stream)
        if rich is None:
            stream.write(as_text(item) + "\n")
        else:
            from trueline.console.rich_items import drawing

            rich.print(drawing(item, rich.width), soft_wrap=not isinstance(item, Table))

    def confirm(self, question: str) -> bool | None:
        """Ask on stderr, if that and the keyboard are a terminal's; anything but yes is no."""
        # A process without a terminal may have no keyboard at all.
        if self.keys is None or not (self.err.isatty() and self.keys.isatty()):
            return None
        self.err.write(f"{safe(question)} [y/N] ")
        self.err.flush()
        return self.keys.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def progress(self, label: str, total: float | None = None) -> Iterator[Progress]:
        """Draw a bar on stderr if that is a terminal; it is gone when the work is done."""
        rich = self._drawn(self.err)
        if rich is None:
            yield _NoProgress()
            return
        from trueline.console.rich_items import bar

        with bar(rich, label, total) as drawn:
            yield drawn


class JsonConsole(Console):
    """For programs: the answer as one JSON document on stdout, everything else on stderr.

    An error is a JSON document of one line there: `{"error": {"code", "message", "remedy"}}`.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.answered = False
        self._beside = TerminalConsole(self.err, self.err)

    def show(self, item: Item) -> None:
        """Show an item on stderr, an error as a document of its own."""
        if isinstance(item, Notice) and item.kind == "error":
            told = {"code": item.code, "message": item.problem, "remedy": item.remedy}
            self.err.write(as_json({"error": told}) + "\n")
        else:
            self._beside.show(item)

    def progress(self, label: str, total: float | None = None) -> AbstractContextManager[Progress]:
        """Draw a bar on stderr if that is a terminal."""
        return self._beside.progress(label, total)

    def answer(self, document: object, render: Callable[[Console], None]) -> None:
        """Write the document; a second answer is a mistake of the command."""
        if self.answered:
            raise RuntimeError("a command gives one answer")
        self._write(document)

    def _write(self, document: object) -> None:
        self.answered = True
        self.out.write(as_json(plain(document), indent=2) + "\n")


class NotebookConsole(Console):
    """For notebooks: tables as HTML through IPython, and plain text where that is missing."""

    def show(self, item: Item) -> None:
        """Display one item under the cell."""
        text = as_text(item)
        try:
            from IPython.display import display
        except ImportError:
            TerminalConsole().show(item)
            return
        display({"text/plain": text, "text/html": as_html(item)}, raw=True)

    @contextmanager
    def progress(self, label: str, total: float | None = None) -> Iterator[Progress]:
        """Draw a bar under the cell; it is gone when the work is done."""
        try:
            from IPython.display import display
        except ImportError:
            with TerminalConsole().progress(label, total) as drawn:
                yield drawn
            return
        handle = display({"text/plain": label}, raw=True, display_id=True)
        bar = _NotebookBar(label, total, handle)
        bar.draw()
        try:
            yield bar
        finally:
            handle.update({"text/plain": "", "text/html": ""}, raw=True)


class _NotebookBar:
    """A bar of plain HTML, drawn again at most ten times a second."""

    def __init__(self, label: str, total: float | None, handle: Any) -> None:
        self.label, self.total, self.handle = label, total, handle
        self.done = 0.0
        self._drawn = 0.0

    def advance(self, steps: float = 1) -> None:
        """Say that more of it is done."""
        self.done += steps
        if time.monotonic() - self._drawn > 0.1:
            self.draw()

    def describe(self, text: str) -> None:
        """Say what is being worked on now."""
        self.label = text
        self.draw()

    def expect(self, total: float) -> None:
        """Say how much there is, once that is known."""
        self.total = total
        self.draw()

    def draw(self) -> None:
        """Show how far the work is."""
        from html import escape

        self._drawn = time.monotonic()
        limits = f'max="{self.total:g}" value="{self.done:g}"' if self.total else ""
        text = f"{self.label} {self.done:g}" + (f" of {self.total:g}" if self.total else "")
        shown = f"<progress {limits}></progress> {escape(safe(text))}"
        self.handle.update({"text/plain": text, "text/html": shown}, raw=True)


class SilentConsole(Console):
    """For programs that use the library: nothing is shown, notices go to the logger `trueline`."""

    def show(self, item: Item) -> None:
        """Log notices, drop the rest."""
        if isinstance(item, Notice):
            import logging

            level = logging.ERROR if item.kind == "error" else logging.WARNING
            text = item.problem + (f" → {item.remedy}" if item.remedy else "")
            logging.getLogger("trueline").log(level, "%s", safe(text))


class CapturedConsole(Console):
    """For tests: keeps what was shown, answered and followed, as structured records.

    >>> captured = CapturedConsole()
    >>> captured.say("3 rows")
    >>> captured.text
    '3 rows'
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.answers: list[Any] = []
        self.work: list[CapturedProgress] = []

    def show(self, item: Item) -> None:
        """Keep one item."""
        self.items.append(item)

    @contextmanager
    def progress(self, label: str, total: float | None = None) -> Iterator[Progress]:
        """Keep what was followed."""
        work = CapturedProgress(label, total)
        self.work.append(work)
        yield work
        work.closed = True

    def answer(self, document: object, render: Callable[[Console], None]) -> None:
        """Keep the document and what people would see of it."""
        self.answers.append(plain(document))
        render(self)

    @property
    def text(self) -> str:
        """Everything shown, as plain text."""
        return "\n".join(as_text(item) for item in self.items)


@dataclass(slots=True)
class CapturedProgress:
    """A piece of work as a test sees it; `closed` only if it ended without an exception."""

    label: str
    total: float | None = None
    done: float = 0
    closed: bool = False

    def advance(self, steps: float = 1) -> None:
        """Count it."""
        self.done += steps

    def describe(self, text: str) -> None:
        """Keep the newest text."""
        self.label = text

    def expect(self, total: float) -> None:
        """Keep the total."""
        self.total = total


# --- the one in use -----------------------------------------------------------

_current: ContextVar[Console | None] = ContextVar("trueline_console", default=None)


def current() -> Console:
    """Return the console in use: what `use` set, else a notebook's, else a silent one.

    A new thread starts without what `use` set: hand the console over to it.
    """
    return _current.get() or (NotebookConsole() if _in_notebook() else SilentConsole())


@contextmanager
def use(console: Console) -> Iterator[Console]:
    """Use a console within a `with` block.

    >>> with use(CapturedConsole()) as seen:
    ...     current().say("hello")
    >>> seen.text
    'hello'
    """
    token = _current.set(console)
    try:
        yield console
    finally:
        _current.reset(token)


def _in_notebook() -> bool:
    """Say whether an IPython kernel runs this, without importing IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config
