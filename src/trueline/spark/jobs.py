"""Running one action of Spark: followed, cancellable, its errors ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Generic, TypeVar, cast

from trueline import console
from trueline.spark.engines import SessionAdapter
from trueline.spark.errors import translated
from trueline.spark.progress import PACE, Shown, follow

Answer = TypeVar("Answer")


class _Outcome(Generic[Answer]):
    """What came of an action, once it is over."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def get(self) -> Answer:
        """Return the answer, or raise the error in the caller's thread."""
        if self.error is not None:
            raise self.error
        return cast("Answer", self.answer)


def run(
    engine: SessionAdapter,
    action: Callable[[], Answer],
    *,
    label: str,
    about: str = "",
    shown: Shown | None = None,
) -> Answer:
    """Do something that starts Spark jobs, show their progress, and cancel them if the caller gives up.

    Spark's web page shows the label, after what it is `about`.

    The action runs in a thread of its own, which inherits the caller's properties and ends with the action:
    the tag and description of its jobs never stay behind. Its progress is `shown` where that is given, else
    on a bar of its own.
    """
    tag = f"trueline-{uuid.uuid4().hex}"
    outcome: _Outcome[Answer] = _Outcome()

    def work() -> None:
        try:
            engine.mark(tag, f"{about}: {label}" if about else label)
            with translated():
                outcome.answer = action()
        except BaseException as error:  # noqa: BLE001 (handed to the caller's thread)
            outcome.error = error

    thread = engine.thread(work)
    with translated():
        counter = engine.counter(tag, thread)
    try:
        with nullcontext(shown) if shown else _own_bar(label) as bar:
            thread.start()
            follow(thread, counter, bar)
            answer = outcome.get()
            bar.finish()
            return answer
    except BaseException:
        # A job that is only about to start has no tag yet, so once is not enough.
        while thread.is_alive():
            with suppress(Exception):  # a JVM that is gone has nothing to cancel
                engine.cancel(tag)
            thread.join(PACE)
        raise
    finally:
        counter.close()


@contextmanager
def _own_bar(label: str) -> Iterator[Shown]:
    with console.current().progress(label) as bar:
        yield Shown(bar, label)
