"""What passes the driver while a view runs on Spark, counted: jobs, bytes, and what frames are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partialmethod
from itertools import takewhile
from typing import Any

import pytest

from tests.spark.lowering.nasty import difference, everything, in_process, rows_of
from trueline.spark.frames import shares_folders
from trueline.spark.lowering import exchange
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.join import small_side
from trueline.view import View
from trueline.view.plan.join import Join
from trueline.view.plan.node import steps

# What a task says of the file it wrote, beside its number; a count and the number of its range.
BYTES_OF_A_NAME, BYTES_OF_A_COUNT = 200, 24
# How many values a view ranks at most: ranges of each are counted, those between its cuts and the cuts.
MOST_RANKS = 3
# What Spark itself sends of a task: what it has measured of each of its operators.
BYTES_OF_A_TASK = 16 << 10
_BROADCAST = "broadcast exchange"


@dataclass
class Answer:
    """Rows of a frame that came to the driver."""

    columns: tuple[str, ...]
    rows: int
    bytes: int

    def is_small(self, parts: int) -> bool:
        """Say whether it is names of files, counts of ranges, or a sample of an order: no value, no id."""
        match self.columns:
            case ("partition" | "id", "result"):
                return self.bytes <= self.rows * BYTES_OF_A_NAME
            case ("part", "rows"):
                most = max(parts, MOST_RANKS * (2 * parts + 1))
                return self.rows <= most and self.bytes <= self.rows * BYTES_OF_A_COUNT
        is_order = all(name == f"o{number}" for number, name in enumerate(self.columns))
        return is_order and self.rows <= exchange._SAMPLES * parts


@dataclass
class Passed:
    """How many jobs and tasks ran, how many bytes tasks sent to the driver, as Spark counts them."""

    jobs: int = 0
    tasks: int = 0
    bytes: int = 0
    broadcasts: int = 0  # sides of joins that the driver collected, to send them to all tasks
    answers: list[Answer] = field(default_factory=list)

    def check(self, view: View, session: Any) -> None:
        """Assert that no row of a view came to the driver, and that jobs were few for its steps."""
        self.check_answers(session)
        joins = [each for each in steps(view.node) if isinstance(each, Join) and each.as_of is None]
        # One that is known to be small may be sent again, where a sample of the order is taken before.
        is_small = any(small_side(each, session) is not None for each in joins)
        assert is_small or not self.broadcasts, "a side of a join passed the driver"
        # Each step moves rows twice at most, to count them, then to where they are wanted. Rows of machines
        # that share no folder with this one are fetched by further jobs.
        assert self.jobs <= 2 + 6 * len(list(steps(view.node))) or not shares_folders(session)

    def check_answers(self, session: Any) -> None:
        """Assert that frames were asked for names of files, counts, and samples of orders only."""
        parts = int(session.conf.get("spark.sql.shuffle.partitions"))
        large = [each for each in self.answers if not each.is_small(parts)]
        assert not large, f"rows passed the driver: {large}"
        assert len(self.answers) <= self.jobs
        if shares_folders(session):
            assert ("partition", "result") in [each.columns for each in self.answers]
            answered = sum(each.bytes for each in self.answers)
            assert 0 < self.bytes <= self.tasks * BYTES_OF_A_TASK + 2 * answered


@contextmanager
def counted(session: Any) -> Iterator[Passed]:
    """Count what passes the driver inside."""
    context = session.sparkContext
    scheduler, store = context._jsc.sc().dagScheduler(), context._jsc.sc().statusStore()
    found, jobs = Passed(), scheduler.numTotalJobs()
    stage = next((each.stageId() for each in _newest_stages(context)), -1)
    with pytest.MonkeyPatch.context() as patch:
        _note_answers(found, patch)
        yield found
    for each in takewhile(lambda each: each.stageId() > stage, _newest_stages(context)):
        found.tasks += each.numTasks()
        found.bytes += each.resultSize()
    last = scheduler.numTotalJobs()
    found.jobs = last - jobs
    tags = [store.job(number).jobTags().mkString(" ") for number in range(jobs, last)]
    found.broadcasts = sum(_BROADCAST in each for each in tags)


def _newest_stages(context: Any) -> Iterator[Any]:
    """Yield what Spark knows of its stages, the newest first: it keeps the last ones."""
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = java.statusStore().stageList(None, False, False, quantiles, None)
    for place in range(stages.size()):
        yield stages.apply(place)


def _note_answers(found: Passed, patch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    def noted(frame, *given, real, **options):
        answer = real(frame, *given, **options)
        rows, size = getattr(answer, "num_rows", None), getattr(answer, "nbytes", 0)
        found.answers.append(Answer(tuple(frame.columns), len(answer) if rows is None else rows, size))
        return answer

    for name in ("toArrow", "collect", "toPandas"):
        patch.setattr(DataFrame, name, partialmethod(noted, real=getattr(DataFrame, name)))


def check(view: View, session: Any) -> None:
    """Assert that a view gives the same here and on Spark, and that no row passes the driver there."""
    with counted(session) as passed:
        found = rows_of(delivered(view.node, everything(view), session))
    assert difference(in_process(view), found, view) == "", view.explain()
    passed.check(view, session)
