"""Lowering: what a node of a view becomes on Spark, found by its class, as `view.execute` does it in process.

Subtrees that look at single rows only are read by tasks piece by piece, with the code of this process. Above
them each verb has a module of its own, under the name it has in `view/plan`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.store.scratch import Scratch
from trueline.errors import NotPortable
from trueline.spark.engines import engine_of
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered, read_by_tasks, types_of
from trueline.spark.lowering.sizes import most_rows, text_bytes
from trueline.spark.lowering.slices import read_by_spark
from trueline.view.execute import pieces, portable, serial
from trueline.view.plan.node import Node, Want, steps
from trueline.view.plan.sources import Memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SENT_ALONG: Final = 1 << 20


@dataclass(frozen=True)
class LoweringTarget:
    """Where a view is to run; a node that several others rest on is lowered once.

    `needs` is what has to stay until Spark has read it: frames that are frozen, rows in files of ours.
    Where nobody asks for the rows in order (not `ordered`), nodes need not know it, and their layout has none
    or any. Bad cells that tasks meet are noted in the scratch `notes`, if somebody reads them there.
    """

    session: SparkSession
    ordered: bool = True
    notes: Scratch | None = None
    needs: list[object] = field(default_factory=list)
    known: dict[tuple[Any, ...], tuple[Node, Lowered]] = field(default_factory=dict)

    def lower(self, node: Node, want: Want) -> Lowered:
        """Return a node as rows on Spark."""
        plain = Want(want.columns, want.ids, dict(want.bounds))
        key = (
            id(node),
            self.ordered,
            plain.columns,
            plain.ids,
            tuple(sorted(plain.bounds.items(), key=lambda each: each[0])),
        )
        if key not in self.known:
            if is_read_by_tasks(node):
                made = read_by_spark(self.session, node, plain) or self.read(node, plain)
            else:
                made = lowered(node, plain, self)
            if made.text is None:
                made = replace(made, text=text_bytes(node))
            self.known[key] = node, made
        return self.known[key][1]

    def read(self, node: Node, want: Want) -> Lowered:
        """Return a node that tasks can read as rows that they do."""
        found = read_by_tasks(
            self.session, node, want, pieces(node, want), ordered=self.ordered, notes=self.notes
        )
        return found if found.most is not None else replace(found, most=most_rows(node))

    @property
    def in_order(self) -> LoweringTarget:
        """The same for those who ask for rows in order."""
        return self if self.ordered else replace(self, ordered=True)

    @property
    def cores(self) -> int | None:
        """How many tasks run beside each other; None where nobody says."""
        is_known = not engine_of(self.session).is_connect
        return int(self.session.sparkContext.defaultParallelism) if is_known else None

    @property
    def parts(self) -> int:
        """In how many partitions rows are brought together."""
        return int(self.session.conf.get("spark.sql.shuffle.partitions") or 200)


@singledispatch
def lowered(node: Node, want: Want, target: LoweringTarget) -> Lowered:
    """Return what a node becomes, whose rows tasks cannot just read."""
    del want, target
    raise NotPortable(
        f"{node.title}: its rows are in this process, where Spark's tasks cannot read them",
        remedy="read them from files or a dataset, or run the view in this process",
    )


def is_read_by_tasks(node: Node) -> bool:
    """Say whether tasks can read a node piece by piece, none of which is all of it for want of a count."""
    return portable(node) and all(serial(each) is None and not is_heavy(each) for each in steps(node))


def is_heavy(node: Node) -> bool:
    """Say whether a node is a table in memory that is not sent along with the work of every task."""
    return isinstance(node, Memory) and node.table.nbytes > _SENT_ALONG


def layout_of(node: Node, want: Want, below: Layout) -> Layout:
    """Return the layout of what is wanted of a node, in the order of what it is made of."""
    return Layout(types_of(node.schema, want.columns), want.ids, below.order)
