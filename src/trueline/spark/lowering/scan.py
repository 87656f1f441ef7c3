"""Rows that tasks read themselves, piece by piece, in the order of pieces and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trueline.spark.lowering.layout import Layout, OrderColumn
from trueline.spark.lowering.lowered import Lowered, types_of
from trueline.spark.packing import pack
from trueline.view.execute import pieces
from trueline.view.plan.node import Node, Want

if TYPE_CHECKING:
    from trueline.spark.lowering.dispatch import Target

PLACE: Final = (OrderColumn(pa.int64()), OrderColumn(pa.int64()))


def scanned(target: Target, node: Node, want: Want) -> Lowered:
    """Return the rows of a node whose pieces travel."""
    parts = tuple(pack(piece) for piece in pieces(node, want))
    layout = Layout(types_of(node.schema, want.columns), want.ids, PLACE)
    count = len(parts)
    return Lowered(target.session.range(0, count, 1, max(1, count)), parts, (), layout, is_ordered=True)
