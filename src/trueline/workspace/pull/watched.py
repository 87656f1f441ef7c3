"""Work in threads that ends when nobody wants it any more: whenever it moves a bar, it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from trueline import console
from trueline.console.items import Item

# Raises if the work was given up.
Look = Callable[[], None]


class WatchedConsole(console.Console):
    """Shows items where they were to be shown; its bars end work that was given up.

    Of several datasets at once no bars are drawn: nobody could read them.
    """

    def __init__(self, inner: console.Console, look: Look, *, alone: bool) -> None:
        self._inner = inner
        self._look = look
        self._alone = alone

    def show(self, item: Item) -> None:
        self._inner.show(item)

    def progress(self, label: str, total: float | None = None) -> AbstractContextManager[console.Progress]:
        return self._progress(label, total)

    @contextmanager
    def _progress(self, label: str, total: float | None) -> Iterator[console.Progress]:
        with self._inner.progress(label, total) if self._alone else super().progress(label, total) as bar:
            yield _WatchedBar(bar, self._look)


class _WatchedBar:
    """A bar that looks, whenever it moves, whether the work is still wanted."""

    def __init__(self, inner: console.Progress, look: Look) -> None:
        self._inner = inner
        self._look = look

    def advance(self, steps: float = 1) -> None:
        self._look()
        self._inner.advance(steps)

    def describe(self, text: str) -> None:
        self._look()
        self._inner.describe(text)

    def expect(self, total: float) -> None:
        self._look()
        self._inner.expect(total)
