"""Queries as Spark itself parses them: what they name, before anything of them is looked up or run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from trueline.spark.engines import engine_of
from trueline.workspace.query_guard import (
    MOST_NESTED,
    check_function,
    check_query,
    check_relation,
    check_words,
    refused,
)

_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."
_ANALYSIS: Final = "org.apache.spark.sql.catalyst.analysis."
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
# What queries are made of. All else in that package is a command, or writes, or runs a program.
_PLANS: Final = """
    Aggregate AsOfJoin Deduplicate Distinct Except Expand Filter Generate GlobalLimit Intersect Join
    LateralJoin LocalLimit LocalRelation Offset OneRowRelation PipeOperator Pivot Project Range Repartition
    RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias Tail Union Unpivot UnresolvedHint
    UnresolvedWith Window WithWindowDefinition UnionLoop UnionLoopRef FunctionTableSubqueryArgumentExpression
"""
# Names that are made when the query is analysed, objects of catalogs, streams.
_NOT_YET: Final = """
    PlanWithUnresolvedIdentifier ExpressionWithUnresolvedIdentifier UnresolvedTable UnresolvedView
    UnresolvedTableOrView UnresolvedExecuteImmediate UnresolvedInsertTarget
    UnresolvedIdentifier UnresolvedProcedure UnresolvedNamespace UnresolvedFunctionName
    NamedStreamingRelation RelationTimeTravel RelationChanges
"""


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What a query may name: tables in small letters, and functions of ours."""

    tables: frozenset[str]
    helpers: frozenset[str]


def check_sql(
    session: Any,
    text: str,
    tables: Collection[str],
    helpers: Collection[str] = (),
    most_nested: int = MOST_NESTED,
) -> None:
    """Refuse an unsafe query; Spark's own parser says what is in it, where it can be reached."""
    if engine_of(session).is_connect:
        check_query(text, tables, helpers, most_nested)
        return
    check_words(text, most_nested)
    parsed = session._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001 (no public way)
    allowed = _Allowed(frozenset(name.lower() for name in tables), frozenset(helpers))
    try:
        for node in plan_roots(json.loads(parsed.toJSON())):
            _check(text, node, allowed)
    except RecursionError:
        raise refused(text, "this query", "is nested too deeply to be checked") from None


# --- trees ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a plan or an expression, and the trees in its fields."""

    kind: str
    fields: dict[str, Any]
    children: tuple[PlanNode, ...]


def plan_roots(found: Any) -> Iterator[PlanNode]:
    """Find the trees in a value: Spark writes a tree as the list of its nodes, each before its children."""
    if isinstance(found, dict):
        for value in found.values():
            yield from plan_roots(value)
    elif isinstance(found, list):
        if found and all(isinstance(each, dict) and "class" in each for each in found):
            coming = iter(found)
            while (first := next(coming, None)) is not None:
                yield _node(first, coming)
        else:
            for each in found:
                yield from plan_roots(each)


def _node(first: dict[str, Any], coming: Iterator[dict[str, Any]]) -> PlanNode:
    children = tuple(_node(next(coming), coming) for _ in range(first["num-children"]))
    return PlanNode(first["class"], first, children)


def _check(text: str, node: PlanNode, allowed: _Allowed) -> None:
    name = node.kind.rpartition(".")[2]
    _check_kind(text, node.kind, name)
    if name == "UnresolvedRelation":
        shown = node.fields["multipartIdentifier"]
        # A name of several parts is never a dataset, even if a dataset's name has dots.
        check_relation(text, _joined(shown), () if ", " in shown else allowed.tables)
    elif name == "UnresolvedFunction":
        check_function(text, _joined(node.fields["nameParts"]), allowed.helpers)
    elif name == "UnresolvedTableValuedFunction":
        check_function(text, _joined(node.fields["name"]))
    elif name == "UnresolvedGenerator":
        called = node.fields["name"]
        parts = [called.get(part) for part in ("catalog", "database", "funcName")]
        check_function(text, ".".join(part for part in parts if part))
    if name == "UnresolvedWith":
        _check_with(text, node, allowed)
        return
    for child in node.children:
        _check(text, child, allowed)
    for value in node.fields.values():
        for inner in plan_roots(value):
            _check(text, inner, allowed)


def _check_with(text: str, node: PlanNode, allowed: _Allowed) -> None:
    """Check the parts of a WITH, each with the names of those before it, and the query with all of them."""
    for part in node.fields["cteRelations"]:
        own = frozenset({part["_1"].lower()})
        after = replace(allowed, tables=allowed.tables | own)
        seen = after if node.fields.get("allowRecursion") else allowed
        for inner in plan_roots(part):
            _check(text, inner, seen)
        allowed = after
    for child in node.children:
        _check(text, child, allowed)


def _check_kind(text: str, kind: str, name: str) -> None:
    if kind.startswith(_LOGICAL):
        if name == "ScriptTransformation":
            raise refused(text, "TRANSFORM … USING", "runs a program")
        if name not in _PLANS.split():
            raise refused(text, name, "is not part of a query")
    elif kind.startswith(_ANALYSIS):
        if name in _NOT_YET.split():
            raise refused(text, name, "is not part of a query over datasets")
    elif not kind.startswith(_EXPRESSIONS):
        raise refused(text, name, "is not part of a query")


def _joined(shown: str) -> str:
    """Return a name of one part as it is, of several with dots: Spark shows both as `[a, b]`."""
    return shown[1:-1].replace(", ", ".")


def operators_of(session: Any, text: str) -> set[str] | None:
    """Return the names of the nodes of a query's plan above the tables it reads; None on Connect.

    Subqueries in expressions are not among them.
    """
    if engine_of(session).is_connect:
        return None
    found: set[str] = set()
    waiting = [session.sql(text)._jdf.queryExecution().analyzed()]  # noqa: SLF001 (no public way)
    while waiting:
        plan = waiting.pop()
        name = str(plan.getClass().getSimpleName())
        found.add(name)
        if name != "View":
            children = plan.children()
            waiting += [children.apply(at) for at in range(children.size())]
    return found
