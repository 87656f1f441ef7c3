"""Running one action of Spark: followed, cancellable, its errors ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from trueline import console
from trueline.spark.engines import SessionAdapter
from trueline.spark.errors import translated
from trueline.spark.progress import PACE, follow

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
    total: int | None = None,
    about: str = "",
) -> Answer:
    """Do something that starts Spark jobs, show their progress, and cancel them if the caller gives up.

    Spark's web page shows the label, after what it is `about`.

    The action runs in a thread of its own, which inherits the caller's properties and ends with the action:
    the tag and description of its jobs never stay behind. `total` is how many tasks there will be, if known.
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
    counter = engine.counter(tag, thread)
    try:
        with console.current().progress(label, total) as bar:
            thread.start()
            left = follow(thread, counter, bar, total)
            answer = outcome.get()
            bar.advance(left)
            return answer
    except BaseException:
        # A job that is only about to start has no tag yet, so once is not enough.
        while thread.is_alive():
            engine.cancel(tag)
            thread.join(PACE)
        raise
    finally:
        counter.close()
