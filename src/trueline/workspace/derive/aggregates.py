"""Aggregates of a query in their canonical forms: exact, sorted, or with an order that has no ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from trueline.kernel.power_sums import KINDS
from trueline.workspace.derive import exact
from trueline.workspace.derive.part_types import NotCanonical, PartType, PartTypes
from trueline.workspace.derive.spark_sql import call, called, cast, filled, names, written

# The names that one function has.
_SAME: Final = {
    "mean": "avg",
    "try_avg": "avg",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "array_agg": "collect_list",
    "string_agg": "listagg",
    "first_value": "first",
    "last_value": "last",
}
_MOMENTS: Final = frozenset(KINDS) - {"sum"}
# What they give does not depend on the order of rows, once equal numbers have one form.
_FREE: Final = names(
    """count count_if bool_and bool_or every some any bit_and bit_or bit_xor bitmap_and_agg bitmap_or_agg
    bitmap_construct_agg min max percentile median percentile_cont percentile_disc grouping grouping_id
    regr_count"""
)
_REPAIRED: Final = frozenset(
    ("sum", "try_sum", "avg", "collect_list", "collect_set", "listagg", "min_by", "max_by", "mode")
)
# Of one row of a window, or of any row: they need a window with an order.
BY_ROW: Final = names("first last any_value nth_value row_number ntile lag lead")
RANKS: Final = frozenset(["rank", "dense_rank", "percent_rank", "cume_dist"])
AGGREGATES: Final = _FREE | _REPAIRED | _MOMENTS | BY_ROW | RANKS | frozenset(_SAME)


def aggregate_name(node: exp.Expr) -> str:
    """Return the one name of the aggregate that a part calls."""
    name = called(node)
    return _SAME.get(name, name)


def arguments_of(node: exp.Expr) -> list[exp.Expr]:
    """Return what an aggregate is computed from, without stars."""
    found: list[exp.Expr] = []
    for each in node.expressions:
        inner = each.expressions if isinstance(each, exp.Distinct) else [each]
        found += [part for part in inner if not isinstance(part, exp.Star)]
    if isinstance(node.parent, exp.WithinGroup):
        found += [ordered.this for ordered in node.parent.expression.expressions]
    return found


def around(node: exp.Expr) -> exp.Expr:
    """Return an aggregate with its order, filter and window."""
    while isinstance(
        node.parent, exp.Filter | exp.Window | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
    ):
        if node.parent.this is not node:
            break
        node = node.parent
    return node


def window_of(node: exp.Expr) -> exp.Window | None:
    """Return the window of an aggregate."""
    whole = around(node)
    return whole if isinstance(whole, exp.Window) else None


def by_offset(node: exp.Anonymous, offset: exp.Expr) -> exp.Expr:
    """Return `first` or `last` of rows in the order of their offsets, with its filter."""
    value, *more = node.expressions
    where, at = None, around(node)
    skips = isinstance(value, exp.IgnoreNulls) or any(written(each).lower() == "true" for each in more)
    while at is not node:
        where = at.expression.this if isinstance(at, exp.Filter) else where
        skips = skips or isinstance(at, exp.IgnoreNulls)
        at = at.this
    if isinstance(value, exp.IgnoreNulls | exp.RespectNulls):
        value = value.this
    # Rows of which the order is null are passed over.
    order = filled("CASE WHEN v IS NOT NULL THEN o END", v=value, o=offset) if skips else offset.copy()
    made = call("min_by" if aggregate_name(node) == "first" else "max_by", value.copy(), order)
    return made if where is None else exp.Filter(this=made, expression=exp.Where(this=where.copy()))


class AggregateRewriting:
    """The aggregates of one SELECT on their way to their canonical forms."""

    def __init__(self, types: PartTypes, repaired: Callable[[str], None]) -> None:
        self._types = types
        self._repaired = repaired

    def rewrite(self, node: exp.Anonymous) -> None:
        """Replace one aggregate where it is."""
        name = aggregate_name(node)
        is_distinct = bool(node.expressions) and isinstance(node.expressions[0], exp.Distinct)
        if name in ("sum", "try_sum", "avg"):
            self._sum(node, name, is_distinct)
        elif name in _MOMENTS:
            if is_distinct:
                raise NotCanonical("distinct_moments", f"{name}(distinct …) has no exact form")
            self._put(node, exact.moment(name, arguments_of(node), self._aggregated(node)), "double")
        elif name in ("min_by", "max_by"):
            self._extreme(node)
        elif name in ("collect_list", "collect_set"):
            self._collect(node)
        elif name == "listagg":
            self._list(node, is_distinct)
        elif name == "mode":
            self._mode(node)
        elif name in _FREE:
            self._normalise(node)

    # --- sums -----------------------------------------------------------------------------

    def _sum(self, node: exp.Anonymous, name: str, is_distinct: bool) -> None:
        argument = arguments_of(node)[0]
        kind = self._kind(argument)
        aggregated = self._aggregated(node)
        averaged = name == "avg"
        if kind.is_float or kind.name in ("string", "void"):
            make = exact.distinct_double_sum if is_distinct else exact.double_sum
            total = make(argument, aggregated)
        elif kind.is_integer and is_distinct:
            total = exact.distinct_integer_sum(argument, aggregated)
            total = cast(total, "double" if averaged else "bigint")
            if name == "try_sum":
                total = exp.TryCast(this=total.this, to=total.args["to"])
        elif kind.is_integer:
            total = exact.integer_sum(argument, aggregated, as_double=averaged, tried=name == "try_sum")
        elif kind.is_decimal and kind.digits > 28:
            raise NotCanonical(
                "wide_decimals",
                f"{written(node)}: totals of {kind.digits} digits may be too large on the way",
                "cast to a decimal of at most 28 digits",
            )
        elif kind.is_decimal or kind.name.startswith("interval"):
            return  # exact as it is: there is room for ten billion rows
        else:
            raise NotCanonical("types_unknown", f"a sum of {kind.name} has no exact form")
        if averaged:
            total = self._divided(total, argument, is_distinct, aggregated)
        self._put(node, total, "double" if averaged or kind.is_float else kind.name)

    def _divided(
        self, total: exp.Expr, argument: exp.Expr, is_distinct: bool, aggregated: exact.Aggregated
    ) -> exp.Expr:
        counted = argument.copy()
        if is_distinct:
            counted = self._plain(argument)
            counted = exp.Distinct(expressions=[counted])
        count = cast(aggregated("count", counted), "double")
        # Of no rows the total is null, and so is what it is divided by.
        none = exp.Nullif(this=count, expression=exp.Literal.number("0"))
        # What is too small for a double is no -0.0.
        return filled("x / n + 0D", x=exp.Paren(this=total), n=none)

    # --- one value of many ------------------------------------------------------------------

    def _extreme(self, node: exp.Anonymous) -> None:
        value, order = node.expressions[:2]
        for part in (value, order):
            self._must_have_order(node, part)
        shown = self._plain(value)
        both = call("struct", self._plain(order), shown.copy())
        least = filled("CASE WHEN o IS NOT NULL THEN b END", o=order, b=both)
        kept = self._types.get(node)
        node.set("expressions", [shown, least, *node.expressions[2:]])
        if kept is not None:
            self._types.put(node, kept)
        self._repaired(f"{aggregate_name(node)}: of rows that tie the value decides")

    def _collect(self, node: exp.Anonymous) -> None:
        window = window_of(node)
        argument = arguments_of(node)[0]
        if window is not None and _counts_rows(window):
            self._normalise(node)
            return  # the order of the window is that of the values
        self._must_have_order(node, argument)
        self._normalise(node)
        whole = around(node)
        kind = self._types.get(whole)
        sorted_values = call("sort_array", whole.copy())
        whole.replace(sorted_values)
        if kind is not None:
            self._types.put(sorted_values, kind)
        self._repaired(f"{aggregate_name(node)}: its values are sorted")

    def _list(self, node: exp.Anonymous, is_distinct: bool) -> None:
        argument = arguments_of(node)[0]
        within = node.parent if isinstance(node.parent, exp.WithinGroup) else None
        if window_of(node) is not None:
            raise NotCanonical(
                "ties", "listagg over a window has no order", "collect the values into an array and join that"
            )
        last = exp.Ordered(this=argument.copy())
        if within is None:
            made = exp.WithinGroup(this=node.copy(), expression=exp.Order(expressions=[last]))
            node.replace(made)
        elif not is_distinct:
            within.expression.append("expressions", last)
        self._repaired("listagg: its values are sorted")

    def _mode(self, node: exp.Anonymous) -> None:
        self._normalise(node)
        if node.expressions and not isinstance(node.parent, exp.WithinGroup):
            node.set("expressions", [node.expressions[0], exp.true()])
            self._repaired("mode: of values that are there as often the smallest is taken")

    # --- parts --------------------------------------------------------------------------------

    def _kind(self, part: exp.Expr) -> PartType:
        kind = self._types.get(part)
        if kind is None:
            raise NotCanonical("types_unknown", f"the type of {written(part)} is not known")
        return kind

    def _must_have_order(self, node: exp.Expr, part: exp.Expr) -> None:
        kind = self._kind(part)
        if not kind.is_orderable:
            raise NotCanonical(
                "ties", f"{written(node)}: values of {kind.name} have no order", "use a key of the rows"
            )
        if kind.is_collated:
            raise _collated(node, kind)

    def _plain(self, part: exp.Expr) -> exp.Expr:
        made = self._kind(part).normalised(part)
        return part.copy() if made is None else made

    def _normalise(self, node: exp.Anonymous) -> None:
        """Give the numbers that an aggregate is computed from one form."""
        for part in arguments_of(node):
            kind = self._types.get(part)
            if kind is None or called(node).startswith("grouping"):
                continue
            if kind.is_collated and aggregate_name(node) not in ("count", "count_if"):
                raise _collated(node, kind)
            made = kind.normalised(part)
            if made is not None:
                part.replace(made)

    def _put(self, node: exp.Anonymous, made: exp.Expr, kind: str) -> None:
        whole = around(node)
        closed = exp.Paren(this=made)
        whole.replace(closed)
        # Its zeros have no sign: it needs no other form.
        self._types.put(closed, PartType("" if kind in ("double", "float") else kind))

    def _aggregated(self, node: exp.Anonymous) -> exact.Aggregated:
        """Return what makes another aggregate with the same filter and window."""
        whole = around(node)

        def aggregated(name: str, part: exp.Expr) -> exp.Expr:
            made: exp.Expr = call(name, part)
            at: exp.Expr = node
            while at is not whole:
                assert at.parent is not None
                at = at.parent
                wrap = at.copy()
                wrap.set("this", made)
                made = wrap
            return made

        return aggregated


def _counts_rows(window: exp.Window) -> bool:
    frame = window.args.get("spec")
    return frame is not None and str(frame.args.get("kind")).upper() == "ROWS"


def _collated(node: exp.Expr, kind: PartType) -> NotCanonical:
    return NotCanonical(
        "collation",
        f"{written(node)}: of texts that are equal under {kind.name} any may be shown",
        "compare the text in small letters",
    )
