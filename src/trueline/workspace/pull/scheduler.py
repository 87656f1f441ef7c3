"""Datasets pulled side by side, by a run: its keys are the names of the datasets.

The mapping. A key is a dataset's name; its value is the dataset as it is
and becomes what its pull did. A step pulls the datasets of one depth, so there
is one today: that of the roots. They do not depend on each other, so it writes
no other key, and a dataset that fails is a key left out, with its failure kept.
What a pull writes depends on the dataset, its source and the one time of the
pull, not on the order: the result is that of pulling one after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, Protocol

from trueline import console
from trueline.console.items import Item
from trueline.errors import PullError, RetryError
from trueline.run import Event, Observer, Run, Step, current
from trueline.workspace.pull.report import Pulled, PullReport

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# In seconds, while datasets are watched.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class Stopped(Exception):
    """That a dataset could not be pulled to the end; `pulled` says what was done and what went wrong."""

    def __init__(self, pulled: Pulled) -> None:
        super().__init__(pulled.told)
        self.pulled = pulled


class PullRoots(Step):
    """Pulls each dataset once: commits are not made ahead on a value that may change."""

    name = "pull"
    eager = False
    batch_size = 1
    on_error = "skip_key"

    def __init__(self, pull_one: Callable[[Dataset], Pulled]) -> None:
        super().__init__()
        self._pull_one = pull_one
        # Worker threads write to the caller's console.
        self._context = copy_context()

    def map(self, key: str, value: Dataset) -> Pulled:
        """Pull one dataset; what went wrong there stays there."""
        pulled = self._context.copy().run(self._pull_one, value)
        if pulled.error is not None:
            raise Stopped(pulled)
        return pulled


def pulled_together(
    datasets: Sequence[Dataset],
    pull_one: Callable[[Dataset], Pulled],
    *,
    workers: int,
    observers: Sequence[Observer] = (),
) -> list[Pulled]:
    """Pull datasets, some at a time; return what was done for each, in the order given."""
    told = console.current()
    several = len(datasets) > 1
    # Several bars at once cannot be read: there is one that counts datasets.
    with told.progress("pull", len(datasets)) if several else nullcontext() as bar:
        with console.use(_Words(told)) if several else nullcontext():
            step = PullRoots(pull_one)
        run = Run([step], workers, observers=(*observers, *([_Counted(bar)] if bar is not None else [])))
        done = run.execute({dataset.name: dataset for dataset in datasets})
    for failure in run.failures:
        if not isinstance(failure.cause, Stopped):
            raise failure.cause
        done[failure.key] = failure.cause.pulled
    return [done[dataset.name] for dataset in datasets]


def go_on() -> None:
    """Raise if the pull this thread works for was given up, so that it ends soon."""
    token = current()
    if token is not None and token.superseded():
        raise RetryError("the pull was interrupted", remedy="pull again: what was read is kept")


class Round(Protocol):
    """One pull of several."""

    def __call__(self, *, is_first: bool) -> PullReport: ...


def in_rounds(
    once: Round,
    stop: Callable[[float], bool] | None = None,
    on_report: Callable[[PullReport], object] | None = None,
) -> PullReport:
    """Pull again and again, more rarely while nothing comes, until `stop` says so; return the last report.

    `stop` waits for so many seconds and says whether to end; by default it waits, and Ctrl-C ends it. What
    could not be pulled is in the report and tried again.
    """
    wait = stop if stop is not None else _wait
    pause, is_first = _FIRST_PAUSE, True
    while True:
        try:
            report = once(is_first=is_first)
        except PullError as error:
            report = error.report
        if on_report is not None:
            on_report(report)
        is_first = False
        moved = any(each.commits or each.blocks for each in report)
        pause = _FIRST_PAUSE if moved else min(pause * 2, _LONGEST_PAUSE)
        if wait(pause):
            return report


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


class _Counted:
    """Moves a bar by the datasets that are done."""

    def __init__(self, bar: console.Progress) -> None:
        self._bar = bar

    def event(self, event: Event) -> None:
        if event.what in ("changed", "failed"):
            self._bar.advance()


class _Words(console.Console):
    """Shows items where they were to be shown, and draws no bars."""

    def __init__(self, inner: console.Console) -> None:
        self._inner = inner

    def show(self, item: Item) -> None:
        self._inner.show(item)
