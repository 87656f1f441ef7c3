"""The canonical query: what is run in place of what was written, by every strategy and by replay (derive:V4).

The answer of a canonical query is a function of the rows alone: sums are exact, overflow is judged on the
total, -0.0 and NaN have one form wherever rows are compared, and what depends on an order has a total one.
sqlglot rewrites; the types come from Spark, which analyses a query without running it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from sqlglot import exp

from trueline.workspace.derive import exact

_Part = TypeVar("_Part", bound=exp.Expr)
# The columns of a query with Spark's names of their types; the query is analysed, not run.
Types: TypeAlias = Callable[[str], Mapping[str, str]]

_FLOATS: Final = ("double", "float")
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
# Window functions that look at single rows of their frame: rows that tie must have an order.
_BY_ROW: Final = (
    exp.RowNumber,
    exp.Ntile,
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.IgnoreNulls,
    exp.RespectNulls,
)
_MOMENTS: Final = (
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Variance,
    exp.VariancePop,
    exp.Corr,
    exp.CovarPop,
    exp.CovarSamp,
)


class NotCanonical(Exception):
    """What a query has that no canonical form is known for: a stable code, and a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CanonicalQuery:
    """The text that is run, and what was changed to make its answer a function of the rows."""

    text: str
    repairs: tuple[str, ...]


def canonical(query: exp.Expr, types: Types) -> CanonicalQuery:
    """Return the canonical form of a query without stars; `NotCanonical` says why there is none."""
    rewriting = _Rewriting(query.copy(), types)
    rewriting.run()
    return CanonicalQuery(rewriting.query.sql(dialect="spark"), tuple(dict.fromkeys(rewriting.repairs)))


class _Rewriting:
    """One query on its way to its canonical form."""

    def __init__(self, query: exp.Expr, types: Types) -> None:
        self.query = query
        self.types = types
        self.repairs: list[str] = []

    def run(self) -> None:
        selects = list(self.query.find_all(exp.Select))
        # Types are asked for before anything is changed: a probe is a part of the query as it was written.
        typed = [(select, self._types_in(select)) for select in selects]
        for select, known in typed:
            self._rewrite(select, known)

    # --- types ------------------------------------------------------------------------------

    def _types_in(self, select: exp.Select) -> dict[int, str]:
        """Return the types, by identity, of what is aggregated, grouped by or shown by one SELECT."""
        wanted = list(_typed_parts(select))
        plain = [part for part in wanted if part.find(exp.AggFunc) is None]
        nested = [part for part in wanted if part.find(exp.AggFunc) is not None]
        found = self._probe(select, plain, grouped=False)
        return found | self._probe(select, nested, grouped=True)

    def _probe(self, select: exp.Select, parts: list[exp.Expr], grouped: bool) -> dict[int, str]:
        if not parts:
            return {}
        kept = {"from_", "from", "joins", "laterals", "with_", "with"} | ({"group"} if grouped else set())
        taken = {name: value for name, value in select.args.items() if name in kept and value}
        probe = exp.Select(**{name: _copied(value) for name, value in taken.items()})
        probe.set("expressions", [exp.alias_(part.copy(), f"c{at}") for at, part in enumerate(parts)])
        for outer in _outer_withs(select):
            probe = _with_before(outer, probe)
        try:
            types = self.types(probe.sql(dialect="spark"))
        except Exception as error:
            shown = parts[0].sql("spark")
            raise NotCanonical("types_unknown", f"the type of {shown} cannot be found") from error
        return {id(part): types[f"c{at}"] for at, part in enumerate(parts)}

    # --- rewriting ----------------------------------------------------------------------------

    def _rewrite(self, select: exp.Select, types: dict[int, str]) -> None:
        for window in list(_own(select, exp.Window)):
            self._order_window(select, window)
        for call in list(_own(select, exp.AggFunc)):
            self._rewrite_call(call, types)
        group = select.args.get("group")
        compared = list(group.expressions) if group else []
        if select.args.get("distinct") or _is_compared(select) or select is _outermost(select):
            compared += [column.unalias() for column in select.expressions]
        for part in compared:
            if (known := types.get(id(part))) is not None and part.parent is not None:
                _normalise(part, known)
        self._order_rows(select)

    def _rewrite_call(self, call: exp.AggFunc, types: dict[int, str]) -> None:
        argument = call.this
        distinct = isinstance(argument, exp.Distinct)
        inner = argument.expressions[0] if distinct else argument
        known = types.get(id(inner), "")
        if isinstance(call, exp.Sum | exp.Avg) and not distinct:
            self._exact(call, inner, known)
        elif isinstance(call, exp.Sum | exp.Avg):
            if known in _FLOATS:
                raise NotCanonical("distinct_doubles", "sum(distinct …) of doubles has no exact form here")
        elif isinstance(call, _MOMENTS):
            raise NotCanonical("moments", f"{call.key}(…) has no exact form here")
        elif isinstance(call, exp.ArrayAgg | exp.ArrayUniqueAgg):
            self.repairs.append(f"{call.sql('spark')}: its values are sorted")
            _normalise(inner, known)
            call.replace(exp.func("sort_array", call.copy(), dialect="spark"))
        elif isinstance(inner, exp.Expr):
            _normalise(inner, known)

    def _exact(self, call: exp.Sum | exp.Avg, argument: exp.Expr, known: str) -> None:
        """Replace a sum or average by its exact form, with the filter and window that it has."""
        around: exp.Expr = call
        while isinstance(around.parent, exp.Filter | exp.Window) and around.parent.this is around:
            around = around.parent
        averaged = isinstance(call, exp.Avg)

        def aggregated(name: str, part: exp.Expr) -> exp.Expr:
            """Return another aggregate with the same filter and window."""
            made: exp.Expr = exp.func(name, part, dialect="spark")
            node: exp.Expr | None = call
            while node is not around:
                assert node is not None
                node = node.parent
                assert node is not None
                wrap = node.copy()
                wrap.set("this", made)
                made = wrap
            return made

        if known in _FLOATS:
            total = exact.double_sum(argument, aggregated)
        elif known in _INTEGERS:
            total = exact.integer_sum(argument, aggregated, as_double=averaged)
        elif known.startswith(("decimal", "interval")):
            return  # exact as it is
        else:
            raise NotCanonical("types_unknown", f"the type of {argument.sql('spark')} is not known")
        if averaged:
            count = exp.Cast(this=aggregated("count", argument.copy()), to=exp.DataType.build("double"))
            # Of no rows the total is null, and so is what it is divided by nothing.
            none = exp.Nullif(this=count, expression=exp.Literal.number("0"))
            total = exp.Div(this=exp.Paren(this=total), expression=none)
        around.replace(exp.Paren(this=total))

    def _order_window(self, select: exp.Select, window: exp.Window) -> None:
        frame = window.args.get("spec")
        is_counted = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
        if not (is_counted or isinstance(window.this, _BY_ROW)):
            return
        columns = _columns_of_sources(select)
        order = window.args.get("order") or exp.Order(expressions=[])
        for column in columns:
            order.append("expressions", exp.Ordered(this=column))
        window.set("order", order)
        self.repairs.append(f"{window.this.sql('spark')}: rows that tie are ordered by all their columns")

    def _order_rows(self, select: exp.Select) -> None:
        """Give LIMIT and OFFSET a total order; without them no order says which rows there are."""
        if not (select.args.get("limit") or select.args.get("offset")):
            return
        order = select.args.get("order") or exp.Order(expressions=[])
        for column in select.expressions:
            order.append("expressions", exp.Ordered(this=exp.column(column.alias_or_name, quoted=True)))
        select.set("order", order)
        self.repairs.append("limit: rows that tie are ordered by all their columns")


# --- parts of a query ---------------------------------------------------------------------------


def _own(select: exp.Select, kind: type[_Part]) -> Iterator[_Part]:
    """Yield the parts of one kind that belong to a SELECT itself, not to one inside it."""
    for node in select.find_all(kind):
        if node.find_ancestor(exp.Select) is select:
            yield node


def _typed_parts(select: exp.Select) -> Iterator[exp.Expr]:
    for call in _own(select, exp.AggFunc):
        inner = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
        if isinstance(inner, exp.Expr) and not isinstance(inner, exp.Star):
            yield inner
    group = select.args.get("group")
    if group:
        yield from (part for part in group.expressions if not isinstance(part, exp.Literal))
    yield from (column.unalias() for column in select.expressions if not column.is_star)


def _copied(value: Any) -> Any:
    return [item.copy() for item in value] if isinstance(value, list) else value.copy()


def _outer_withs(select: exp.Select) -> Iterator[exp.With]:
    """Yield the WITH clauses that a part of a query sees, the nearest first."""
    node: Any = select
    while node.parent is not None:
        outer = node.parent
        if isinstance(outer, exp.With):
            before = outer.copy()
            before.set("expressions", before.expressions[: outer.expressions.index(node)])
            if before.expressions:
                yield before
            node = outer.parent
            continue
        found = outer.args.get("with_") or outer.args.get("with")
        if found is not None and found is not node:
            yield found.copy()
        node = outer


def _with_before(outer: exp.With, probe: exp.Select) -> exp.Select:
    name = "with_" if "with_" in exp.Select.arg_types else "with"
    own = probe.args.get(name)
    if own is not None:
        outer.set("expressions", [*outer.expressions, *own.expressions])
    probe.set(name, outer)
    return probe


def _outermost(select: exp.Select) -> exp.Expr:
    node: exp.Expr = select
    while isinstance(node.parent, exp.SetOperation | exp.Subquery | exp.Paren):
        node = node.parent
    return select if node.parent is None else node


def _is_compared(select: exp.Select) -> bool:
    """Say whether the rows of a SELECT are compared with others: by UNION, EXCEPT or INTERSECT."""
    return select.find_ancestor(exp.SetOperation, exp.Select) is not None and isinstance(
        select.find_ancestor(exp.SetOperation, exp.Select), exp.SetOperation
    )


def _columns_of_sources(select: exp.Select) -> list[exp.Expr]:
    """Return the columns that a SELECT uses of its sources: rows equal in them are the same to it."""
    found: dict[str, exp.Expr] = {}
    for column in _own(select, exp.Column):
        found.setdefault(column.sql("spark"), column.copy())
    return list(found.values())


def _normalise(part: exp.Expr, known: str) -> None:
    """Give the zeros and NaN of a part one form; of types that have none it stays as it is."""
    if known not in _FLOATS:
        return
    made = exact.normalised(part.copy(), known)
    # A column that is shown keeps its name.
    shown = isinstance(part.parent, exp.Select) and part.arg_key == "expressions" and part.output_name
    part.replace(exp.alias_(made, part.output_name, quoted=True) if shown else made)
