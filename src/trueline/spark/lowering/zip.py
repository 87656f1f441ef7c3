"""Views side by side: rows are numbered, and those with equal numbers joined."""

from __future__ import annotations

from trueline.spark.lowering.dispatch import LoweringTarget, lowered
from trueline.spark.lowering.exchange import by_shuffle, ranked
from trueline.spark.lowering.layout import IDS, Layout
from trueline.spark.lowering.lowered import Lowered, types_of
from trueline.spark.lowering.rows import column
from trueline.view.plan.node import Want
from trueline.view.plan.zip import Zip


@lowered.register(Zip)
def _zip(node: Zip, want: Want, target: LoweringTarget) -> Lowered:
    target = target.in_order
    sides = [
        ranked(target.lower(view, below), target).rows
        for view, below in zip(node.views, node.wants(want), strict=True)
    ]
    views = [
        side.frame.select([column(name).alias(f"v{number}_{name}") for name in side.layout.names])
        for number, side in enumerate(sides)
    ]
    frame = views[0]
    for number, view in enumerate(views[1:], 1):
        frame = frame.join(by_shuffle(view), column("v0_o0") == column(f"v{number}_o0"))
    seen = [0] * len(sides)
    values = []
    for index in want.columns:
        of, _ = node.line[index]
        values.append(column(f"v{of}_c{seen[of]}"))
        seen[of] += 1
    layout = Layout(types_of(node.schema, want.columns), want.ids, sides[0].layout.order)
    rest = [column(f"v0_{name}") for name in (*(IDS if want.ids else ()), "o0")]
    named = [each.alias(name) for each, name in zip([*values, *rest], layout.names, strict=True)]
    return Lowered(frame.select(*named), layout, (), layout, cuts=sides[0].cuts, most=sides[0].most)
