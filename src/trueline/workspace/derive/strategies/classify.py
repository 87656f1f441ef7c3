"""Which strategy a query can be followed by: row by row, by keyed state, or only by recomputing it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from trueline.workspace.derive.strategies.accumulators import NotIncremental, accumulation, parsed

STATELESS: Final = "stateless"
KEYED: Final = "keyed"
RECOMPUTE: Final = "recompute"

# Why a query is recomputed: stable codes, with what people read.
REASONS: Final[Mapping[str, str]] = {
    "join": "it joins tables",
    "window": "it has window functions",
    "subquery": "it has a subquery in an expression",
    "limit": "it has LIMIT or OFFSET",
    "set_operation": "it has UNION without ALL, EXCEPT or INTERSECT",
    "grouping_sets": "it groups by several sets of columns, or by ALL",
    "nested_aggregate": "it goes on computing with the rows of an aggregate",
    "pivot": "it has PIVOT, UNPIVOT or TABLESAMPLE",
    "steps": "it has several named steps",
    "table": "it reads something that is not the current rows of an input",
    "several_aggregates": "it joins the rows of several aggregates by UNION",
    "ungrouped": "it uses a column outside of an aggregate that it does not group by, or orders in groups",
    "operator": "Spark runs it with an operator that is not known to work row by row",
    "inexact": "a sum in it is not exact",
    "key_type": "it groups by a column of a type that cannot be a key",
    "opaque": "it cannot be read here without changing what it means",
    "round_trip": "it means another thing to Spark once it was read here and written again",
    "function": "a function computes it",
}
# Why a dataset whose query follows by the increment is computed as a whole once in a while.
WHOLE_REASONS: Final[Mapping[str, str]] = {
    "first": "nothing was recorded yet",
    "redefined": "the definition, or the version of what computes it, is another one",
    "no_state": "what is kept is not there, or damaged",
    "state_missing": "what is kept is not there, or damaged",
    "state_disagrees": "what is kept does not fit the rows that are there",
    "not_append_only": "an input whose `first` or `last` is asked for got another merge strategy",
    "records_removed": "records of an input were removed for good, which no event says",
    "wide_numbers": "a sum has numbers outside of the range of its accumulators",
}
# What the plan of a query may consist of, by Spark's names of the nodes.
_BY_ROW: Final = frozenset(
    {"Project", "Filter", "Generate", "Union", "SubqueryAlias", "View", "WithCTE", "CTERelationDef"}
    | {"CTERelationRef", "LocalRelation", "LogicalRDD", "MapInArrow", "Range", "LogicalRelation", "Relation"}
    | {"RelationV2", "DataSourceV2Relation", "Sort", "ResolvedHint", "Coalesce", "Repartition"}
)


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What is known of an input: whether it only grows, so that no row of it is ever lost or changed."""

    append_only: bool = False


@dataclass(frozen=True, slots=True)
class StrategyVerdict:
    """The strategy of a query; where it is recomputed, a stable code says why."""

    strategy: str
    reason: str = ""

    @property
    def is_incremental(self) -> bool:
        """Whether a change costs what it touches."""
        return self.strategy != RECOMPUTE

    @property
    def explained(self) -> str:
        """The reason as people read it."""
        return explained(self.reason)


def explained(reason: str) -> str:
    """Return why a query is recomputed as people read it; a code may name an operator behind a colon.

    >>> explained("operator:Deduplicate"), explained("")
    ('Spark runs it with an operator that is not known to work row by row', '')
    """
    return REASONS.get(reason.partition(":")[0], reason)


def classify(
    text: str,
    inputs: Mapping[str, InputFacts],
    key: Sequence[str] = (),
    *,
    operators: Collection[str] | None = None,
) -> StrategyVerdict:
    """Return how a canonical query is followed; `operators` are the nodes of Spark's plan of it.

    Functions that sqlglot does not know may be aggregates: only Spark's plan says that they are not.
    """
    del key
    try:
        query = parsed(text)
    except (SqlglotError, RecursionError):
        return StrategyVerdict(RECOMPUTE, "opaque")
    try:
        body = outermost(query)
        if isinstance(body, exp.Select) and is_aggregate(body):
            check_source(body, inputs)
            append_only = all(inputs[name].append_only for name in tables_in(query, inputs))
            accumulation(query, append_only=append_only)
            _check_operators(operators, _BY_ROW | {"Aggregate", "Distinct"}, query)
            return StrategyVerdict(KEYED)
        check_by_row(body, _with(query), inputs)
        _check_operators(operators, _BY_ROW, query)
        return StrategyVerdict(STATELESS)
    except NotIncremental as problem:
        return StrategyVerdict(RECOMPUTE, problem.code)


def _check_operators(operators: Collection[str] | None, known: frozenset[str], query: exp.Expr) -> None:
    if operators is None:
        unknown = [call for call in query.find_all(exp.Anonymous) if not call.name.lower().startswith("tl_")]
        if unknown:
            raise NotIncremental("operator")
    elif not set(operators) <= known:
        raise NotIncremental("operator")


def outermost(query: exp.Expr) -> exp.Expr:
    """Return the query without parentheses around it."""
    while isinstance(query, exp.Subquery | exp.Paren) and not query.args.get("alias"):
        query = query.this
    return query


def is_aggregate(select: exp.Select) -> bool:
    """Say whether a SELECT makes one row of several."""
    if select.args.get("group") or select.args.get("distinct") or select.args.get("having"):
        return True
    return any(
        call.find_ancestor(exp.Select) is select and call.find_ancestor(exp.Window) is None
        for call in select.find_all(exp.AggFunc)
    )


def tables_in(query: exp.Expr, inputs: Mapping[str, InputFacts]) -> list[str]:
    """Return the inputs that a query names."""
    return [table.name for table in query.find_all(exp.Table) if table.name in inputs]


_NOT_BY_ROW: Final = (
    ("joins", "join"),
    ("limit", "limit"),
    ("offset", "limit"),
    ("qualify", "window"),
    ("distribute", "operator"),
    ("sort", "operator"),
    ("cluster", "operator"),
    ("match", "operator"),
    ("connect", "operator"),
    ("pivots", "pivot"),
    ("sample", "pivot"),
)


def check_source(select: exp.Select, inputs: Mapping[str, InputFacts]) -> None:
    """Refuse what an aggregate reads, unless it is made row by row."""
    known = _known(_with(select), inputs)
    _check_clauses(select)
    _check_from(select, known)


def check_by_row(query: exp.Expr, steps: exp.With | None, inputs: Mapping[str, InputFacts]) -> None:
    """Refuse a query unless its result for some rows does not depend on the others."""
    _check_query(query, _known(steps, inputs))


def _known(steps: exp.With | None, inputs: Mapping[str, InputFacts]) -> set[str]:
    """Return the names that may be read: inputs, and steps of WITH that work row by row."""
    known = set(inputs)
    for step in steps.expressions if steps is not None else ():
        if steps is not None and steps.args.get("recursive"):
            raise NotIncremental("operator")
        _check_query(step.this, known)
        known.add(step.alias)
    return known


def _check_query(query: exp.Expr, known: set[str]) -> None:
    query = outermost(query)
    if isinstance(query, exp.Union):
        if query.args.get("distinct"):
            raise NotIncremental("set_operation")
        for clause in ("limit", "offset"):
            if query.args.get(clause):
                raise NotIncremental("limit")
        for side in (query.this, query.expression):
            body = outermost(side)
            if isinstance(body, exp.Select) and is_aggregate(body):
                raise NotIncremental("several_aggregates")
            _check_query(side, known)
        return
    if not isinstance(query, exp.Select):
        raise NotIncremental("set_operation" if isinstance(query, exp.SetOperation) else "operator")
    if is_aggregate(query):
        raise NotIncremental("nested_aggregate")
    _check_clauses(query)
    _check_from(query, known)


def _check_clauses(select: exp.Select) -> None:
    for clause, code in _NOT_BY_ROW:
        if select.args.get(clause):
            raise NotIncremental(code)
    own = [
        node
        for kind in (exp.Window, exp.Subquery, exp.Exists, exp.Select)
        for node in select.find_all(kind)
        if node is not select and node.find_ancestor(exp.Select) is select
    ]
    source = select.args.get("from_") or select.args.get("from")
    for node in own:
        if isinstance(node, exp.Window):
            raise NotIncremental("window")
        if node.find_ancestor(exp.From, exp.CTE, exp.Lateral) is None or node.find_ancestor(exp.Lateral):
            raise NotIncremental("subquery")
    if source is None:
        raise NotIncremental("table")


def _check_from(select: exp.Select, known: set[str]) -> None:
    clause = select.args.get("from_") or select.args.get("from")
    assert clause is not None
    source = clause.this
    if source.args.get("joins"):
        raise NotIncremental("join")
    if source.args.get("pivots") or source.args.get("sample"):
        raise NotIncremental("pivot")
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not source.db:
        if source.name not in known:
            raise NotIncremental("table")
        return
    if isinstance(source, exp.Subquery):
        _check_query(source.this, known)
        return
    raise NotIncremental("table")


def _with(query: exp.Expr) -> exp.With | None:
    return query.args.get("with_") or query.args.get("with")
