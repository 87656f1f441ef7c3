"""Rows by their number: a few first ones by a sort that keeps no more, others by counting."""

from __future__ import annotations

from typing import Final

from trueline.spark.lowering.dispatch import LoweringTarget, layout_of, lowered
from trueline.spark.lowering.exchange import ranked
from trueline.spark.lowering.lowered import Lowered
from trueline.spark.lowering.rows import column
from trueline.view.plan.limit import LastRows, Limit
from trueline.view.plan.node import Want

# So many rows pass one task.
_FEW: Final = 100_000


@lowered.register(Limit)
def _limit(node: Limit, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    target = target.in_order
    found = target.lower(node.below, below)
    layout = layout_of(node, want, found.layout)
    if node.count is not None and is_few(node):
        first = found.frame.sort(*found.in_order).limit(node.start + node.count)
        frame = first.sort(*found.in_order).offset(node.start) if node.start else first
        return Lowered(frame, layout, (), layout, cuts=found.cuts, most=node.count)
    numbers = ranked(found, target).rows
    number = column(numbers.layout.order_names[0])
    frame = numbers.frame.where(number >= node.start)
    if node.count is not None:
        frame = frame.where(number < node.start + node.count)
    return Lowered(frame, numbers.layout, (), numbers.layout, cuts=numbers.cuts, most=numbers.most)


def is_few(node: Limit) -> bool:
    """Say whether one task can take the rows up to the last that is wanted."""
    return node.count is not None and node.start + node.count <= _FEW


@lowered.register(LastRows)
def _last_rows(node: LastRows, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    target = target.in_order
    found = ranked(target.lower(node.below, below), target)
    number = column(found.rows.layout.order_names[0])
    frame = found.rows.frame.where(number >= found.count - node.count)
    return Lowered(frame, found.rows.layout, (), found.rows.layout, cuts=found.rows.cuts, most=node.count)
