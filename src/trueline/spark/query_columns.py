"""Which columns of its tables a query needs: those that Spark's optimiser leaves in its plan.

Rows that Python tasks read come with all columns they were asked for: Spark cannot look into a function.
So a query is planned first over stand-ins that have no rows, and its tables are then read with fewer columns;
the others are null, which the plan says nobody sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline.spark.plans import PlanNode, plan_roots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NAME: Final = "trueline.table"
_PLAN: Final = "org.apache.spark.sql.catalyst.plans.logical."
_ATTRIBUTE: Final = "AttributeReference"
# What hands on only what it names.
_CHOOSING: Final = frozenset({"Project", "Aggregate"})
# What hands on whatever is below, and may look at some of it.
_PASSING: Final = frozenset(
    {
        "Filter",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Offset",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "Tail",
        "Window",
    }
)


def stand_in(session: SparkSession, name: str, schema: StructType) -> DataFrame:
    """Return a frame with the columns of a table, each of which knows whose it is; any may be null."""
    from pyspark.sql.types import StructField, StructType

    # Of a column that is never null the optimiser would not need the values to count them.
    fields = [StructField(each.name, each.dataType, True, {_NAME: name}) for each in schema.fields]
    return session.range(1).mapInArrow(_nothing, StructType(fields))


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    del batches
    return iter(())


def needed_columns(frame: DataFrame) -> dict[str, set[str]]:
    """Return the columns of stand-ins that a query over them needs, by the names of the tables.

    A table that is not in the plan is not there: nothing is said of it.
    """
    plan: Any = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (no public way has the plan)
    output = plan.output()
    shown = frozenset(output.apply(place).exprId().id() for place in range(output.size()))
    found: dict[str, set[str]] = {}
    for root in plan_roots(json.loads(plan.toJSON())):
        _visit(root, shown, found)
    return found


def _visit(node: PlanNode, above: frozenset[int] | None, found: dict[str, set[str]]) -> None:
    """Note what is needed of the stand-ins below a node, of which these columns are needed; None for all."""
    kind = node.kind.removeprefix(_PLAN)
    mentioned: set[int] = set()
    for tree in _trees(node):
        _look_into(tree, mentioned.add, found)
    table = _table_of(node) if kind == "MapInArrow" else None
    if table is not None:
        columns = found.setdefault(table, set())
        for each in _attributes(node.fields["output"]):
            if above is None or each["exprId"]["id"] in above:
                columns.add(each["name"])
    below: frozenset[int] | None = None
    if kind in _CHOOSING:
        below = frozenset(mentioned)
    elif kind in _PASSING and above is not None:
        below = above | mentioned
    for child in node.children:
        _visit(child, below, found)


def _trees(node: PlanNode) -> Iterator[PlanNode]:
    """Yield the trees in the fields of a node: its expressions, and plans inside of them."""
    for value in node.fields.values():
        yield from plan_roots(value)


def _look_into(tree: PlanNode, mention: Callable[[int], None], found: dict[str, set[str]]) -> None:
    if tree.kind.startswith(_PLAN):
        _visit(tree, None, found)
        return
    if tree.kind.endswith(_ATTRIBUTE):
        mention(tree.fields["exprId"]["id"])
    for each in (*tree.children, *_trees(tree)):
        _look_into(each, mention, found)


def _table_of(node: PlanNode) -> str | None:
    """Return the table that a node stands for: what its function gives says so."""
    for function in plan_roots(node.fields["functionExpr"]):
        for each in function.fields["dataType"]["fields"]:
            found = each["metadata"].get(_NAME)
            return None if found is None else str(found)
    return None


def _attributes(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in plan_roots(value):
        if each.kind.endswith(_ATTRIBUTE):
            yield each.fields
