"""Where a view is computed, and what each of its steps does on Spark: known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trueline.dataset.read.events import Events
from trueline.spark.engines import engine_of
from trueline.spark.frames import SMALL, shares_folders
from trueline.spark.frozen_frames import FrozenFrame
from trueline.spark.lowering.dispatch import is_heavy
from trueline.spark.lowering.group_by import is_in_parts
from trueline.spark.lowering.join import MAY_BE_SENT
from trueline.spark.lowering.limit import is_few
from trueline.spark.lowering.sizes import known_bytes
from trueline.spark.session import is_stopped
from trueline.view.engine import ChosenEngine
from trueline.view.execute import portable, row_count
from trueline.view.plan.aggregates import needs_all_rows
from trueline.view.plan.cache import Cache
from trueline.view.plan.concat import Concat
from trueline.view.plan.group_by import GroupBy
from trueline.view.plan.join import Join
from trueline.view.plan.limit import LastRows, Limit
from trueline.view.plan.node import Node, SourceNode, Want, steps
from trueline.view.plan.shuffle import Shuffle
from trueline.view.plan.sort import Sort
from trueline.view.plan.sources import Memory, SourceScan, TextFiles
from trueline.view.plan.window import Window
from trueline.view.plan.zip import Zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows of more bytes than this are not sorted, grouped or joined in one process where a Spark is at hand.
_BUDGET: Final = 1 << 30
# Fewer bytes are read here before a cluster has begun a job.
_SMALL: Final = SMALL
_TEXT_BYTES: Final = 32
_MOVES: Final = (Sort, Shuffle, GroupBy, Join, Window)
_COUNTS: Final = "its input is counted first, by jobs that start when the plan is made"
_SAMPLES: Final = "before that, a job takes a sample of its order to choose ranges"


def advise(node: Node, session: SparkSession) -> ChosenEngine:
    """Say where a plan is better computed; nothing is read to find out, and no job started."""
    if is_stopped(session):
        return ChosenEngine(False, "the Spark that was at hand is stopped")
    if engine_of(session).is_connect:
        return ChosenEngine(
            False, "machines behind Connect need not see what this one does; ask with on_spark()"
        )
    found = list(steps(node))
    sources = [each for each in found if isinstance(each, SourceNode)]
    size = sum(map(_bytes_of, sources))
    if not shares_folders(session):
        bound = next((each for each in sources if not _is_seen(each)), None)
        if bound is not None and not _is_elsewhere(sources):
            return ChosenEngine(False, f"a cluster cannot read {bound.title}")
        if any(map(_is_uncomputed, sources)):
            return ChosenEngine(True, "it rests on a Spark frame")
        return _by_size(size, _SMALL, "the session is of a cluster")
    if not any(isinstance(each, _MOVES) for each in found):
        # What does not move rows is read as it comes.
        return ChosenEngine(False, "no step moves rows")
    if any(map(_is_uncomputed, sources)):
        return ChosenEngine(True, "it rests on a Spark frame")
    return _by_size(size, _BUDGET)


def _by_size(size: int, budget: int, why: str = "") -> ChosenEngine:
    about = f"it rests on about {size >> 20:,} MiB"
    if size > budget:
        return ChosenEngine(True, why or f"{about}, more than {budget >> 20:,}")
    return ChosenEngine(False, f"{about}, not more than {budget >> 20:,}")


def travels(node: Node, session: SparkSession) -> bool:
    """Say whether a plan is for the tasks of a session: they can read it, or it is more than is here.

    What they cannot read is brought to them or refused by name; the rest never comes here for its sake.
    """
    if shares_folders(session):
        return True
    sources = [each for each in steps(node) if isinstance(each, SourceNode)]
    return all(map(_is_seen, sources)) or _is_elsewhere(sources)


def _is_seen(node: SourceNode) -> bool:
    """Say whether the tasks of a cluster can read a source; frames are computed where they can."""
    return _is_frame(node) or (portable(node) and not is_heavy(node))


def _is_elsewhere(sources: Sequence[SourceNode]) -> bool:
    """Say whether a cluster has rows that are too many for this process, or nobody knows how many."""
    seen = [each for each in sources if _is_seen(each)]
    return any(map(_is_uncomputed, seen)) or sum(map(_bytes_of, seen)) > _SMALL


def _is_frame(node: SourceNode) -> bool:
    return isinstance(node, SourceScan) and isinstance(node.source, FrozenFrame)


def _is_uncomputed(node: SourceNode) -> bool:
    """Say whether a source is a frame of a size that nobody knows yet."""
    return _is_frame(node) and row_count(node) is None


def _bytes_of(node: SourceNode) -> int:
    """Return about how many bytes a source has, as far as that is known without reading."""
    if isinstance(node, Memory):
        return int(node.table.nbytes)
    if isinstance(node, TextFiles):
        return sum(file.size or 0 for file in node.files)
    widths = (_width(column.type.arrow) for column in node.schema)
    return (row_count(node) or 0) * sum(widths)


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES


# --- what each step does ----------------------------------------------------------------------


@singledispatch
def describe(node: Node) -> str:
    """Say what one step of a plan does on Spark, without its inputs."""
    del node
    return "in the tasks that have the rows, by the code of this process"


@describe.register(SourceNode)
def _source(node: SourceNode) -> str:
    if _is_frame(node):
        return (
            "computed once, by a job of its own, into files that tasks read; "
            "on a cluster in a place that all machines see, else refused unless it is small"
        )
    if not portable(node) or is_heavy(node):
        return (
            "written by this process to files that tasks read; on a cluster sent along if it is small, "
            "else written to a place that all machines see, or refused"
        )
    if isinstance(node, Memory):
        return "sent along with the tasks that read it"
    if isinstance(node, SourceScan) and isinstance(node.source, Events):
        return "read by tasks, piece by piece; by Spark itself where the next step moves rows of plain types"
    return "read by tasks, piece by piece"


@describe.register(Sort)
def _sort(node: Sort) -> str:
    del node
    return (
        "each row gets its place; where the order is needed, a job takes a sample of it to choose ranges, "
        "and a shuffle brings them together"
    )


@describe.register(Shuffle)
def _shuffle(node: Shuffle) -> str:
    del node
    return "each row gets its place; a shuffle brings ranges of the order together where it is needed"


@describe.register(GroupBy)
def _group_by(node: GroupBy) -> str:
    if is_in_parts(node, Want(tuple(range(len(node.schema))))):
        return (
            "tasks that read rows combine them to exact parts of groups where there is no key, or those of a "
            "dataset are few whole numbers, else Spark's aggregation does; the code of this process puts "
            "parts together; of sorted rows a shuffle brings those of equal keys to one task instead, in "
            "their order"
        )
    if not node.by:
        return "all rows meet in one task, in their order"
    return "a shuffle brings rows of equal keys to one task, in their order"


@describe.register(Join)
def _join(node: Join) -> str:
    if node.as_of is not None:
        if not node.on:
            return "all rows of both sides meet in one task, in the order of time"
        return "a shuffle brings rows of equal keys to one task, in the order of time"
    text = "Spark's join, by a shuffle of both sides on keys compared as in this process"
    if not node.on:
        text = "Spark's join, by a task for each part of one side and part of the other"
    sides = [side for side in MAY_BE_SENT[node.how] if known_bytes(getattr(node, side)) is not None]
    return f"{text}; the {sides[0]} side, if it is small, goes to all tasks instead" if sides else text


@describe.register(Window)
def _window(node: Window) -> str:
    if node.by:
        return "a shuffle brings rows of equal keys to one task, in their order"
    blocks = "blocks of rows go to tasks with their neighbours"
    ranges = "ranges of values go to tasks to be ranked, rows of a frequent value to any of them"
    ranks = list(map(needs_all_rows, node.calls))
    counting = f"{_COUNTS}; {_SAMPLES}" if any(ranks) else _counting(node.below)
    return f"{'; '.join([ranges] * any(ranks) + [blocks] * (not all(ranks)))}; {counting}"


@describe.register(Limit)
def _limit(node: Limit) -> str:
    if is_few(node):
        return "Spark keeps the first rows of the order"
    return f"rows by number; {_counting(node.below)}"


@describe.register(LastRows)
def _last_rows(node: LastRows) -> str:
    return f"rows by number; {_counting(node.below)}"


@describe.register(Zip)
def _zip(node: Zip) -> str:
    return f"rows of equal number are joined; {_counting(*node.views)}"


def _counting(*inputs: Node) -> str:
    """Say which jobs number the rows of inputs."""
    return f"{_COUNTS}; {_SAMPLES}" if any(map(_is_sampled, inputs)) else _COUNTS


def _is_sampled(node: Node) -> bool:
    """Say whether ranges of the order of rows are known from a look at them only: it is no number of rows."""
    if isinstance(node, Sort) or (isinstance(node, Join) and node.as_of is not None):
        return True
    if isinstance(node, Join) and not node.keeps_right:
        # Rows have the order of the left, whatever that of the right is.
        return _is_sampled(node.left)
    is_numbered = isinstance(node, Shuffle | LastRows | Zip) or (isinstance(node, Limit) and not is_few(node))
    return not is_numbered and any(map(_is_sampled, node.inputs))


@describe.register(Concat)
def _concat(node: Concat) -> str:
    del node
    return "piece by piece where tasks read all inputs, else a union, in which each row keeps its place"


@describe.register(Cache)
def _cache(node: Cache) -> str:
    del node
    return "nothing is kept: rows of this process's cache stay in it"
