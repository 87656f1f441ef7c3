"""The canonical query: what is run in place of what was written, by every strategy and by replay (derive:V4).

The answer of a canonical query is a function of the rows alone: sums are exact, overflow is judged on the
total, -0.0 and NaN have one form wherever rows are compared, and what depends on an order has a total one.
sqlglot rewrites; the types come from Spark, which analyses a query without running it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sqlglot import exp

from trueline.workspace.derive.aggregates import (
    AGGREGATES,
    BY_ROW,
    RANKS,
    AggregateRewriting,
    aggregate_name,
    arguments_of,
    around,
    by_offset,
    window_of,
)
from trueline.workspace.derive.part_types import (
    NotCanonical,
    PartType,
    PartTypes,
    Types,
    calls_of,
    types_in,
)
from trueline.workspace.derive.spark_sql import called, cast, names, own, own_calls, written
from trueline.workspace.query_guard import own_names

__all__ = ["UNORDERED", "CanonicalQuery", "NotCanonical", "OffsetTable", "Types", "canonical"]

# The code of what takes one of several rows that have no order.
UNORDERED: Final = "unordered"

# What makes several rows of one; it cannot be part of an expression.
GENERATORS: Final = names(
    """explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple"""
)
# Look at all rows of a frame that tie with the last one: an order without ties would be another frame.
_AT_THE_END: Final = frozenset({"last", "nth_value", "any_value"})
# Aggregates whose result in a pivot cannot depend on the order of rows.
_IN_PIVOTS: Final = frozenset(
    ("count", "count_if", "bool_and", "bool_or", "every", "some", "any", "bit_and", "bit_or", "bit_xor")
)


@dataclass(frozen=True, slots=True)
class CanonicalQuery:
    """The text that is run, and what was changed to make its answer a function of the rows."""

    text: str
    repairs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """A table with the rows of another and their offsets, in a column."""

    name: str
    column: str


def canonical(
    query: exp.Expr, types: Types, offsets: Mapping[str, OffsetTable] | None = None
) -> CanonicalQuery:
    """Return the canonical form of a query without stars; `NotCanonical` says why there is none.

    `offsets` are, by the names of tables whose rows have an order, the tables that have it as a column.
    """
    rewriting = _Rewriting(query.copy(), types, offsets or {})
    rewriting.run()
    return CanonicalQuery(written(rewriting.query), tuple(dict.fromkeys(rewriting.repairs)))


class _Rewriting:
    """One query on its way to its canonical form."""

    def __init__(self, query: exp.Expr, types: Types, offsets: Mapping[str, OffsetTable]) -> None:
        self.query = query
        self.types = types
        self.offsets = {name.lower(): table for name, table in offsets.items()}
        self.repairs: list[str] = []
        self.is_wrapped = False

    def run(self) -> None:
        # Inner ones first: what is put around a part is put around a copy of it.
        selects = list(self.query.find_all(exp.Select))[::-1]
        for select in selects:
            _check_pivots(select)
            _inline_windows(select)
        for ordered in self.query.find_all(exp.Select, exp.SetOperation, exp.Subquery):
            _drop_order(ordered)
        # Types are asked for before anything is changed: what is asked is a part of the query as written.
        typed = [
            (select, types_in(select, _typed_parts(select), AGGREGATES, self.types)) for select in selects
        ]
        for select, known in typed:
            _Select(self, select, known).rewrite()
        for ordered in self.query.find_all(exp.SetOperation, exp.Subquery):
            self._order_others(ordered)
        if self.is_wrapped:
            self._wrap()

    def _order_others(self, ordered: exp.Expr) -> None:
        """Give LIMIT and OFFSET of what is not one SELECT a total order."""
        if ordered.args.get("limit") or ordered.args.get("offset"):
            first = ordered.find(exp.Select)
            assert first is not None
            _order_by_all(ordered, [column.alias_or_name for column in first.expressions])
            self.repairs.append("limit: rows that tie are ordered by all their columns")

    def _wrap(self) -> None:
        """Give numbers one form outside of the query, where they cannot have it in place."""
        known = {name: PartType(kind) for name, kind in self.types(written(self.query)).items()}
        inner = exp.Subquery(this=self.query, alias=exp.TableAlias(this=exp.to_identifier("tl_rows")))
        shown = []
        for name, kind in known.items():
            column = exp.column(name, quoted=True)
            made = kind.normalised(column)
            shown.append(exp.alias_(column if made is None else made, name, quoted=True))
        self.query = exp.Select(expressions=shown).from_(inner)


class _Select:
    """One SELECT, without those inside it."""

    def __init__(self, whole: _Rewriting, select: exp.Select, types: PartTypes) -> None:
        self.whole = whole
        self.select = select
        self.types = types

    def rewrite(self) -> None:
        for window in list(own(self.select, exp.Window)):
            self._order_window(window)
        aggregates = AggregateRewriting(self.types, self.whole.repairs.append)
        for node in calls_of(self.select, AGGREGATES):
            if aggregate_name(node) in BY_ROW and window_of(node) is None:
                self._order_by_offset(node)
            else:
                aggregates.rewrite(node)
        self._normalise_groups()
        if self._is_shown or self._is_compared or self._is_limited:
            self._normalise_columns()
        if self._is_limited:
            self._order_rows()

    def _order_by_offset(self, node: exp.Anonymous) -> None:
        """Take the first or last row in the order of offsets, if the rows have one."""
        offset = self._offset if aggregate_name(node) in ("first", "last") else None
        if offset is None:
            raise NotCanonical(
                UNORDERED, f"{called(node)}(…) takes any of several rows", "give it a window with an order"
            )
        whole = around(node)
        kind, made = self.types.get(whole), by_offset(node, offset)
        whole.replace(made)
        if kind is not None:
            self.types.put(made, kind)
        self.whole.repairs.append(f"{aggregate_name(node)}: rows are in the order of their offsets")

    @cached_property
    def _offset(self) -> exp.Expr | None:
        """The column of offsets of the one table that is read; None if that has none."""
        tables = list(_sources(self.select))
        is_plain = len(tables) == 1 and isinstance(tables[0], exp.Table) and not tables[0].db
        if not is_plain or any(tables[0].args.get(name) for name in ("pivots", "sample", "joins")):
            return None
        source = tables[0]
        found = self.whole.offsets.get(source.name.lower())
        stars = [star for star in own(self.select, exp.Star) if called(star.parent or star) != "count"]
        if found is None or source.name.lower() in own_names(source) or stars:
            return None
        alias = source.alias_or_name
        source.set("this", exp.to_identifier(found.name, quoted=True))
        source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        return exp.column(found.column, table=alias, quoted=True)

    # --- comparing ----------------------------------------------------------------------------

    @property
    def _is_shown(self) -> bool:
        node: exp.Expr = self.select
        while isinstance(node.parent, exp.SetOperation | exp.Subquery | exp.Paren):
            node = node.parent
        return node.parent is None

    @property
    def _is_compared(self) -> bool:
        """Whether its rows are compared with others: by DISTINCT, UNION, EXCEPT or INTERSECT."""
        if self.select.args.get("distinct"):
            return True
        return isinstance(self.select.find_ancestor(exp.SetOperation, exp.Select), exp.SetOperation)

    @property
    def _is_limited(self) -> bool:
        return bool(self.select.args.get("limit") or self.select.args.get("offset"))

    def _normalise_groups(self) -> None:
        """Give grouped numbers one form, everywhere the SELECT shows them."""
        group = self.select.args.get("group")
        for part in _grouped_parts(group):
            kind = self.types.get(part)
            if kind is None:
                continue
            if kind.is_collated:
                raise _collated(part, kind)
            made = kind.normalised(part)
            if made is None:
                continue
            places = [self.select.args.get(name) for name in ("group", "having", "order", "qualify")]
            wanted = part.copy()
            for place in (*self.select.expressions, *places):
                if place is not None:
                    _replace_equal(place, wanted, made)

    def _normalise_columns(self) -> None:
        for column in self.select.expressions:
            part = column.unalias()
            if isinstance(column, exp.Aliases) or called(part) in GENERATORS:
                if not self._is_shown:
                    raise NotCanonical(
                        "generator_compared",
                        f"rows of {written(part)} are compared",
                        "put it into a subquery",
                    )
                self.whole.is_wrapped = True
                continue
            kind = self.types.get(part)
            if kind is None:
                continue
            if kind.is_collated and (self._is_compared or self._is_limited):
                raise _collated(part, kind)
            made = kind.normalised(part)
            if made is not None:
                _replace_shown(part, made)

    # --- order --------------------------------------------------------------------------------

    def _order_window(self, window: exp.Window) -> None:
        node = window.find(exp.Anonymous)
        assert node is not None
        name = aggregate_name(node)
        frame = window.args.get("spec")
        counts_rows = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
        if name in RANKS or not (counts_rows or name in BY_ROW):
            return
        if (
            frame is None
            and not window.args.get("order")
            and name in ("first", "last", "any_value", "nth_value")
        ):
            pass  # the frame is the whole partition, whatever its order
        elif not counts_rows and _ends_with_ties(name, window):
            raise NotCanonical(
                "ties",
                f"{written(window)}: its frame ends with rows that tie",
                "add ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW (or UNBOUNDED FOLLOWING) to the window",
            )
        order = window.args.get("order") or exp.Order(expressions=[])
        there = {written(each.this) for each in order.expressions}
        there |= {written(each) for each in window.args.get("partition_by") or ()}
        for column in self._tie_breakers(window):
            if written(column) not in there or self._kind(column).is_float:
                order.append("expressions", exp.Ordered(this=column))
            if self._kind(column).is_float:
                # Both zeros tie, and are not the same to what shows them as text.
                order.append("expressions", exp.Ordered(this=cast(column.copy(), "string")))
        window.set("order", order)
        self.whole.repairs.append(f"{name}: rows that tie are ordered by all their columns")

    def _tie_breakers(self, window: exp.Window) -> list[exp.Expr]:
        """Return what tells the rows apart that a window sees: rows equal in these are the same to it."""
        group = self.select.args.get("group")
        if group is None and not any(_is_plain_aggregate(node) for node in own_calls(self.select)):
            parts = _columns_of_sources(self.select)
        else:
            parts = [part.copy() for part in group.expressions] if group else []
            if group and len(parts) != len(list(_grouped_parts(group))):
                raise NotCanonical(
                    "ties", f"{written(window)}: groups of grouping sets may tie", "use a subquery"
                )
        for part in parts:
            kind = self._kind(part)
            if not kind.is_orderable:
                raise NotCanonical(
                    "ties",
                    f"{written(window)}: rows that tie in all but {written(part)} have no order: {kind.name}",
                    "order the window by a key of the rows",
                )
        return parts

    def _kind(self, part: exp.Expr) -> PartType:
        text = written(part)
        for known in _ordering_parts(self.select):
            if written(known) == text and (kind := self.types.get(known)) is not None:
                return kind
        return PartType("")

    def _order_rows(self) -> None:
        """Give LIMIT and OFFSET a total order; without them no order says which rows there are."""
        for column in self.select.expressions:
            kind = self.types.get(column.unalias())
            if kind is not None and not kind.is_orderable:
                raise NotCanonical(
                    "ties",
                    f"limit: rows that tie in all but {column.alias_or_name} ({kind.name}) have no order",
                    "leave the column out, or number the rows over a window",
                )
        _order_by_all(self.select, [column.alias_or_name for column in self.select.expressions])
        self.whole.repairs.append("limit: rows that tie are ordered by all their columns")


# --- parts of a query ---------------------------------------------------------------------------


def _typed_parts(select: exp.Select) -> list[exp.Expr]:
    """Return what is aggregated, grouped by, shown or ordered by one SELECT."""
    parts: list[exp.Expr] = []
    for node in calls_of(select, AGGREGATES):
        if aggregate_name(node) not in BY_ROW | RANKS and not called(node).startswith("grouping"):
            parts += arguments_of(node)
    parts += [part for part in _grouped_parts(select.args.get("group")) if not isinstance(part, exp.Literal)]
    for column in select.expressions:
        part = column.unalias()
        if not (column.is_star or isinstance(column, exp.Aliases) or called(part) in GENERATORS):
            parts.append(part)
    if any(True for _ in own(select, exp.Window)):
        parts += _ordering_parts(select)
    return parts


def _ordering_parts(select: exp.Select) -> list[exp.Expr]:
    group = select.args.get("group")
    grouped = list(_grouped_parts(group))
    return grouped or [column for column in own(select, exp.Column) if _is_of_sources(column, select)]


def _grouped_parts(group: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the expressions of GROUP BY, also those of rollups, cubes and grouping sets."""
    if group is None:
        return
    waiting: list[exp.Expr] = list(group.expressions)
    for name in ("rollup", "cube", "grouping_sets"):
        found = group.args.get(name)
        waiting += found if isinstance(found, list) else []
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, exp.Tuple | exp.Rollup | exp.Cube | exp.GroupingSets):
            waiting += part.expressions
        elif isinstance(part, exp.Paren):
            waiting.append(part.this)
        else:
            yield part


def _columns_of_sources(select: exp.Select) -> list[exp.Expr]:
    """Return the columns that a SELECT uses of its sources, also in what is inside it."""
    found: dict[str, exp.Expr] = {}
    for column in select.find_all(exp.Column):
        if _is_of_sources(column, select):
            found.setdefault(written(column), column.copy())
    return list(found.values())


def _is_of_sources(column: exp.Column, select: exp.Select) -> bool:
    names = {source.alias_or_name for source in _sources(select)}
    nested = column.find_ancestor(exp.Select) is not select
    if column.find_ancestor(exp.Lambda) is not None and not column.table:
        return False
    return column.table in names if column.table else not nested


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    start = select.args.get("from_") or select.args.get("from")
    if start is not None:
        yield start.this
    for join in select.args.get("joins") or ():
        yield join.this
    yield from select.args.get("laterals") or ()


def _is_plain_aggregate(node: exp.Expr) -> bool:
    return aggregate_name(node) in AGGREGATES and window_of(node) is None


def _ends_with_ties(name: str, window: exp.Window) -> bool:
    """Say whether an order without ties would change which rows a function looks at."""
    if name not in _AT_THE_END and name != "first":
        return False
    frame = window.args.get("spec")
    if frame is not None:
        sides = {str(frame.args.get("start")).upper(), str(frame.args.get("end")).upper()}
        if sides == {"UNBOUNDED"}:
            return False
        if str(frame.args.get("start")).upper() != "UNBOUNDED":
            return True
    # The first of a frame that begins with the partition is the first, whatever its end; not so if nulls
    # are passed over.
    return name != "first" or isinstance(window.this, exp.IgnoreNulls)


def _inline_windows(select: exp.Select) -> None:
    """Write the windows that have names where they are used."""
    named = {window.name.lower(): window for window in select.args.get("windows") or ()}
    if not named:
        return
    for use in list(own(select, exp.Window)):
        base = named.get(use.alias.lower()) if use.alias else None
        if use.arg_key == "windows" or base is None:
            continue
        for name in ("partition_by", "order", "spec"):
            value = base.args.get(name)
            if value and not use.args.get(name):
                use.set(name, [each.copy() for each in value] if isinstance(value, list) else value.copy())
        use.set("alias", None)
    select.set("windows", None)


def _drop_order(query: exp.Expr) -> None:
    """Leave out an order that does not say which rows there are; one within tasks becomes one of all rows."""
    is_limited = query.args.get("limit") or query.args.get("offset")
    for name in ("sort", "cluster", "distribute"):
        given = query.args.get(name)
        if given and is_limited and name != "distribute" and not query.args.get("order"):
            query.set("order", exp.Order(expressions=[each.copy() for each in given.expressions]))
        query.set(name, None)
    if not is_limited:
        query.set("order", None)


def _check_pivots(select: exp.Select) -> None:
    for pivot in select.find_all(exp.Pivot):
        if pivot.find_ancestor(exp.Select) is not select or pivot.args.get("unpivot"):
            continue
        for node in pivot.find_all(exp.Anonymous):
            if aggregate_name(node) in AGGREGATES - _IN_PIVOTS:
                raise NotCanonical(
                    "pivot",
                    f"{written(node)} in a PIVOT has no canonical form",
                    "write the aggregate with a FILTER for each column, and GROUP BY",
                )


def _replace_equal(place: exp.Expr, wanted: exp.Expr, made: exp.Expr) -> None:
    """Replace the parts that are equal to one."""
    for node in [node for node in place.find_all(type(wanted)) if node == wanted]:
        _replace_shown(node, made.copy())


def _replace_shown(part: exp.Expr, made: exp.Expr) -> None:
    """Replace a part; a column that is shown keeps its name."""
    shown = isinstance(part.parent, exp.Select) and part.arg_key == "expressions" and part.output_name
    part.replace(exp.alias_(made, part.output_name, quoted=True) if shown else made)


def _order_by_all(query: exp.Expr, names: list[str]) -> None:
    order = query.args.get("order") or exp.Order(expressions=[])
    for name in names:
        order.append("expressions", exp.Ordered(this=exp.column(name, quoted=True)))
    query.set("order", order)


def _collated(part: exp.Expr, kind: PartType) -> NotCanonical:
    return NotCanonical(
        "collation",
        f"of texts that are equal under {kind.name} any may be shown for {written(part)}",
        "compare the text in small letters",
    )
