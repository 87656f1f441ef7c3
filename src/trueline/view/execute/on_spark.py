"""Rows that Spark computes, brought here in order when they are first read."""

from __future__ import annotations

from collections.abc import Sequence

from trueline.kernel.chunk import Piece
from trueline.view.engine import engine
from trueline.view.execute.dispatch import count, pieces, portable, row_count
from trueline.view.plan.node import Want
from trueline.view.plan.on_spark import OnSpark


@pieces.register(OnSpark)
def _on_spark(node: OnSpark, want: Want) -> Sequence[Piece]:
    return engine().deliver(node.below, want, node.session)


@count.register(OnSpark)
def _count(node: OnSpark) -> int:
    """As many as Spark counts where they are: none of them is brought here."""
    known = row_count(node)
    return known if known is not None else engine().count(node.below, node.session)


@portable.register(OnSpark)
def _portable(node: OnSpark) -> bool:
    """Where its input can be read, it can: a task that starts no Spark of its own reads that."""
    return portable(node.below)
