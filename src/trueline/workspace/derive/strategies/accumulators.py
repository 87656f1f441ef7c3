"""An aggregate query as accumulators: what is kept of each group, and what the query makes of it.

Counts and exact sums are groups in the sense of algebra: what a row added, its retraction takes away. Other
aggregates are computed from the values they were given, which are kept with how often each occurs. The last
step is always the expression of the canonical query itself, over accumulators in the place of aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sqlglot import exp, parse_one

# Tables of the last step: accumulators to be added up, of version 0 (before) and 1 (after).
PARTS: Final = "tl_parts"
VERSION, SIGN, ROWS, VALUES, RESULT = "version", "sign", "n", "m", "r"
_COUNT: Final = "c"
# The fields of a row that an order chooses, and the aggregates that choose.
_ORDER, _VALUE = "o", "v"
_BY: Final = ("min_by", "max_by")
# The flags of an exact sum are bits; each is counted.
_FLAG_BITS: Final = 4
# Functions of one number that are null where it is, and nowhere else.
_NULL_AS_ARGUMENT: Final = frozenset({"tl_first", "tl_next", "tl_plain", "shiftright"})
# Functions that are told how many numbers were added, and are null where there were none.
_COUNT_FIRST: Final = frozenset({"tl_from_limbs"})
_WITH_CONSTANT: Final = (exp.BitwiseAnd, exp.BitwiseRightShift)
# How often a value occurs does not matter to them.
_ONCE: Final = (
    exp.Min,
    exp.Max,
    exp.ArgMin,
    exp.ArgMax,
    exp.ArrayUniqueAgg,
    exp.BitwiseAndAgg,
    exp.BitwiseOrAgg,
)


_ALSO: Final = {"every": exp.LogicalAnd, "some": exp.LogicalOr, "any": exp.LogicalOr}


class NotIncremental(Exception):
    """Why a query cannot be followed by the increment: a stable code of `classify.REASONS`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class _Kept:
    """What is kept of a group while a query is taken apart."""

    append_only: bool
    # SQL of an aggregate → its name and how partial values become one.
    sums: dict[str, tuple[str, str]] = field(default_factory=dict)
    # SQL of an argument → its name.
    values: dict[str, str] = field(default_factory=dict)
    # Name → aggregate over kept values.
    computed: dict[str, exp.Expr] = field(default_factory=dict)
    is_counted: bool = False

    def add(self, call: exp.Expr, merge: str = "sum") -> exp.Expr:
        name, _ = self.sums.setdefault(call.sql("spark"), (f"a{len(self.sums)}", merge))
        return exp.column(name)

    def value(self, part: exp.Expr) -> exp.Expr:
        return exp.column(self.values.setdefault(part.sql("spark"), f"v{len(self.values)}"))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The expressions that rows are grouped by, each with the name of its value."""

    names: Mapping[str, str]
    kinds: frozenset[type[exp.Expr]]

    @classmethod
    def of(cls, groups: Sequence[exp.Expr]) -> _Groups:
        names = {group.sql("spark"): f"k{at}" for at, group in enumerate(groups)}
        return cls(names, frozenset(type(group) for group in groups))

    def name(self, node: exp.Expr) -> str | None:
        # To write a part as text takes long, and sums have many parts.
        return self.names.get(node.sql("spark")) if type(node) in self.kinds else None


@dataclass(frozen=True, slots=True)
class Accumulation:
    """An aggregate query cut in two: `partial` makes accumulators of rows, `finish` results of accumulators.

    `keys` are the names that the values of the group have in both, `sums` those of accumulators with the
    function that joins two of them, `values` what is kept of each row for aggregates that need it, `results`
    what the columns of the query are over all of these, where they are `having` something.
    """

    partial: str
    keys: tuple[str, ...]
    sums: Mapping[str, str]
    values: tuple[str, ...]
    columns: tuple[str, ...]
    results: tuple[str, ...]
    having: str | None
    _computed: Mapping[str, str]
    _each_once: bool

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of the state."""
        return (*self.keys, ROWS, *self.sums, *((VALUES,) if self.values else ()))

    @property
    def is_global(self) -> bool:
        """Whether there is always one row, of all rows or of none."""
        return not self.keys

    def finish(self, types: Mapping[str, str]) -> str:
        """Return the query over `PARTS`: for each version and group what is kept, and the result if any.

        `types` are those of the accumulators and values as Spark names them. Kept values are in the order of
        values, unless maps are among them, which have none: so the same state is kept whoever adds up.
        """
        group = [VERSION, *self.keys]
        added = [f"sum({SIGN} * {ROWS}) AS {ROWS}"]
        for name, merge in self.sums.items():
            given = f"IF({SIGN} < 0, -{name}, {name})" if merge == "sum" else name
            if merge in _BY:
                given = f"{name}, {name}.{_ORDER}"
            added.append(f"CAST({merge}({given}) AS {types[name]}) AS {name}")
        by = ", ".join(group)
        steps = [f"tl_added AS (SELECT {by}, {', '.join(added)} FROM {PARTS} GROUP BY {by})"]
        source = "tl_added"
        if self.values:
            steps += self._over_values(by, is_ordered="map<" not in types[VALUES])
            same = " AND ".join(f"tl_added.{name} <=> tl_computed.{name}" for name in group)
            made = ", ".join(f"tl_computed.{name}" for name in (VALUES, *self._computed))
            steps.append(
                f"tl_all AS (SELECT /*+ MERGE(tl_computed) */ tl_added.*, {made}"
                f" FROM tl_added LEFT JOIN tl_computed ON {same})"
            )
            source = "tl_all"
        conditions = [] if self.is_global else [f"{ROWS} > 0"]
        conditions += [f"({self.having})"] if self.having is not None else []
        fields = ", ".join(f"'c{at}', {text}" for at, text in enumerate(self.results))
        result = f"named_struct({fields})"
        if conditions:
            # Where there is no row its expressions are not evaluated: they might fail.
            result = f"CASE WHEN {' AND '.join(conditions)} THEN {result} END"
        shown = ", ".join([VERSION, *self.kept, f"{result} AS {RESULT}"])
        return f"WITH {', '.join(steps)} SELECT {shown} FROM {source}"

    def _over_values(self, by: str, *, is_ordered: bool) -> list[str]:
        names = ", ".join(self.values)
        each = ", ".join(f"'{name}', {name}" for name in (*self.values, _COUNT))
        counted = (
            f"tl_values AS (SELECT {by}, {names}, sum({SIGN} * {_COUNT}) AS {_COUNT}"
            f" FROM (SELECT {by}, {SIGN}, inline({VALUES}) FROM {PARTS})"
            f" GROUP BY {by}, {names} HAVING sum({SIGN} * {_COUNT}) != 0L)"
        )
        found = "tl_values"
        if self.is_global:
            # Without rows there is a row of nulls, which aggregates pass over: there is always one result.
            nulls = ", ".join(f"NULL AS {name}" for name in (*self.values, _COUNT))
            found = f"(SELECT * FROM tl_values UNION ALL SELECT {by}, {nulls} FROM tl_added)"
        again, once = "", f"{_COUNT} IS NOT NULL"
        if not self._each_once:
            again = f" LATERAL VIEW OUTER explode(sequence(1L, {_COUNT})) tl_copies AS copy"
            once += " AND copy = 1L"
        made = ", ".join(f"{text} AS {name}" for name, text in self._computed.items())
        kept = f"collect_list(named_struct({each})) FILTER (WHERE {once})"
        kept = f"sort_array({kept})" if is_ordered else kept
        computed = (
            f"tl_computed AS (SELECT {by}, {kept} AS {VALUES}, {made} FROM {found}{again} GROUP BY {by})"
        )
        return [counted, computed]


def parsed(text: str) -> exp.Expr:
    """Read a canonical query; aggregates that sqlglot takes for functions of one row are named as such."""

    def named(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Any):
            return exp.LogicalOr(this=node.this.copy())
        if isinstance(node, exp.Anonymous) and (kind := _ALSO.get(node.name.lower())) is not None:
            return kind(this=node.expressions[0].copy())
        return node

    return parse_one(text, read="spark").transform(named)


@lru_cache(maxsize=256)
def accumulation_of_text(text: str, *, append_only: bool) -> Accumulation:
    """Take a canonical query apart; every increment of a dataset asks for the same."""
    return accumulation(parsed(text), append_only=append_only)


def accumulation(query: exp.Expr, *, append_only: bool) -> Accumulation:
    """Take an aggregate query apart; with inputs that only grow, extremes need no values."""
    query = query.copy()
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    if not isinstance(query, exp.Select):
        raise NotIncremental("operator")
    groups = _groups(query)
    keys = _Groups.of(groups)
    kept = _Kept(append_only)
    results = [_finished(column.unalias(), keys, kept).sql("spark") for column in query.expressions]
    having = query.args.get("having")
    condition = None if having is None else _finished(having.this, keys, kept).sql("spark")
    names = tuple(column.alias_or_name for column in query.expressions)
    return Accumulation(
        _partial(query, groups, kept),
        tuple(keys.names.values()),
        dict(kept.sums.values()),
        tuple(kept.values.values()),
        names,
        tuple(results),
        condition,
        {name: call.sql("spark") for name, call in kept.computed.items()},
        not kept.is_counted,
    )


def _groups(query: exp.Select) -> list[exp.Expr]:
    if query.args.get("distinct"):
        if query.args["distinct"].args.get("on") or query.args.get("group"):
            raise NotIncremental("nested_aggregate")
        return _unique([column.unalias() for column in query.expressions])
    group = query.args.get("group")
    if group is None:
        return []
    if any(value for name, value in group.args.items() if name != "expressions"):
        raise NotIncremental("grouping_sets")
    several = (exp.Literal, exp.Rollup, exp.Cube, exp.GroupingSets)
    if any(isinstance(part, several) for part in group.expressions):
        raise NotIncremental("grouping_sets")
    return _unique(group.expressions)


def _unique(parts: Sequence[exp.Expr]) -> list[exp.Expr]:
    return list({part.sql("spark"): part for part in parts}.values())


def _finished(part: exp.Expr, keys: _Groups, kept: _Kept, *, guarded: bool = True) -> exp.Expr:
    """Return an expression with groups and accumulators in the place of columns and aggregates.

    A sum of no numbers is null; `guarded` says that it must be here, where others would take 0 for it.
    """

    def replaced(node: exp.Expr) -> exp.Expr:
        if (name := keys.name(node)) is not None:
            return exp.column(name)
        if isinstance(node, exp.Window):
            raise NotIncremental("window")
        if isinstance(node, exp.Query | exp.Exists):
            raise NotIncremental("subquery")
        if isinstance(node, exp.Filter):
            return _accumulated(node.this, node.expression.this, kept, guarded)
        if isinstance(node, exp.AggFunc):
            return _accumulated(node, None, kept, guarded)
        if isinstance(node, exp.Anonymous) and node.name.lower() in _COUNT_FIRST and guarded:
            return _finished(node, keys, kept, guarded=False)
        if isinstance(node, exp.Column):
            raise NotIncremental("ungrouped")
        return node

    return part.transform(replaced)


def _accumulated(call: exp.Expr, where: exp.Expr | None, kept: _Kept, guarded: bool) -> exp.Expr:
    """Return what an aggregate is, over what is kept of its group."""

    def over(function: str, *parts: exp.Expr) -> exp.Expr:
        made: exp.Expr = exp.Anonymous(this=function, expressions=[part.copy() for part in parts])
        return made if where is None else exp.Filter(this=made, expression=exp.Where(this=where.copy()))

    def counted(part: exp.Expr) -> exp.Expr:
        return kept.add(over("count", part))

    inner = call.this
    plain = isinstance(inner, exp.Expr) and not isinstance(inner, exp.Distinct)
    if isinstance(call, exp.Sum) and plain:
        total = kept.add(over("sum", inner))
        return _unless_none(counted(_null_with(inner)), total) if guarded else total
    if isinstance(call, exp.Count) and plain:
        parts = [inner, *call.expressions]
        return kept.add(over("count", *parts))
    if isinstance(call, exp.CountIf) and plain:
        return kept.add(over("count_if", inner))
    if isinstance(call, exp.LogicalOr | exp.LogicalAnd) and plain:
        wanted = inner if isinstance(call, exp.LogicalOr) else exp.Not(this=exp.Paren(this=inner.copy()))
        found: exp.Expr = exp.GT(this=kept.add(over("count_if", wanted)), expression=_number("0L"))
        if isinstance(call, exp.LogicalAnd):
            found = exp.Not(this=exp.Paren(this=found))
        return _unless_none(counted(inner), found)
    if (
        isinstance(call, exp.BitwiseOrAgg)
        and isinstance(inner, exp.Anonymous)
        and inner.name.lower() == "tl_flags"
    ):
        return _flags(inner, over, kept)
    if isinstance(call, exp.Min | exp.Max) and plain and kept.append_only and not call.expressions:
        name = "min" if isinstance(call, exp.Min) else "max"
        return kept.add(over(name, inner), name)
    if isinstance(call, exp.ArgMin | exp.ArgMax) and kept.append_only and not call.args.get("count"):
        return _one_row(call, over, kept)
    return _computed(call, where, kept)


def _one_row(call: exp.ArgMin | exp.ArgMax, over: object, kept: _Kept) -> exp.Expr:
    """Return a value of the row that comes first or last in an order: that row alone is kept."""
    assert callable(over)
    order, name = call.expression, "min_by" if isinstance(call, exp.ArgMin) else "max_by"
    both = [exp.Literal.string(_ORDER), _nullable(order), exp.Literal.string(_VALUE), _nullable(call.this)]
    row = kept.add(over(name, exp.Anonymous(this="named_struct", expressions=both), order), name)
    return exp.Dot(this=row, expression=exp.to_identifier(_VALUE))


def _nullable(part: exp.Expr) -> exp.Expr:
    """Return a part as Spark types what may be null: Arrow refuses a null struct with other fields."""
    return exp.If(this=exp.true(), true=part.copy(), false=exp.Null())


def _flags(flags: exp.Expr, over: object, kept: _Kept) -> exp.Expr:
    """Return the flags of an exact sum: each is there while a row has it."""
    assert callable(over)
    total: exp.Expr = _number("0")
    for bit in range(_FLAG_BITS):
        is_set = exp.Cast(
            this=exp.Paren(this=exp.BitwiseAnd(this=flags.copy(), expression=_number(str(1 << bit)))),
            to=exp.DataType.build("bigint"),
        )
        count = kept.add(over("sum", is_set))
        there = exp.GT(this=count, expression=_number("0L"))
        total = exp.Add(
            this=total, expression=exp.If(this=there, true=_number(str(1 << bit)), false=_number("0"))
        )
    return exp.Paren(this=total)


def _computed(call: exp.Expr, where: exp.Expr | None, kept: _Kept) -> exp.Expr:
    """Return an aggregate that is computed from the values that its group was given."""
    made = call.copy()
    for part in list(_arguments(made)):
        part.replace(kept.value(part))
    if where is not None:
        made = exp.Filter(this=made, expression=exp.Where(this=kept.value(where)))
    is_once = isinstance(call, _ONCE) or isinstance(call.this, exp.Distinct)
    kept.is_counted = kept.is_counted or not is_once
    name = next((name for name, other in kept.computed.items() if other == made), f"b{len(kept.computed)}")
    kept.computed[name] = made
    return exp.column(name)


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    """Return the expressions of an aggregate that are computed of each row: the largest without constants."""
    found = []
    waiting = list(call.iter_expressions())
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, exp.Distinct | exp.Ordered | exp.Order | exp.Tuple | exp.WithinGroup):
            waiting += list(node.iter_expressions())
        elif node.find(exp.Column) is not None:
            found.append(node)
    return found


def _partial(query: exp.Select, groups: Sequence[exp.Expr], kept: _Kept) -> str:
    made = query.copy()
    for clause in ("having", "order", "distinct", "group"):
        made.set(clause, None)
    columns = [exp.alias_(group.copy(), f"k{at}") for at, group in enumerate(groups)]
    columns.append(exp.alias_(exp.Count(this=exp.Star()), ROWS))
    columns += [exp.alias_(parse_one(text, read="spark"), name) for text, (name, _) in kept.sums.items()]
    if kept.values:
        each = ", ".join(f"'{name}', {text}" for text, name in kept.values.items())
        columns.append(
            exp.alias_(parse_one(f"collect_list(named_struct({each}, '{_COUNT}', 1L))", read="spark"), VALUES)
        )
    made.set("expressions", columns)
    if groups:
        made.set("group", exp.Group(expressions=[group.copy() for group in groups]))
    return made.sql(dialect="spark")


def _unless_none(count: exp.Expr, found: exp.Expr) -> exp.Expr:
    """Return a value, null where no row gave one."""
    none = exp.EQ(this=count, expression=_number("0L"))
    return exp.Paren(this=exp.If(this=none, true=exp.Null(), false=found))


def _null_with(part: exp.Expr) -> exp.Expr:
    """Return the simplest expression that is null exactly where a part is."""
    while True:
        if isinstance(part, exp.Cast | exp.Paren):
            part = part.this
        elif isinstance(part, exp.Anonymous) and part.name.lower() in _NULL_AS_ARGUMENT:
            part = part.expressions[0]
        elif isinstance(part, exp.BitwiseAnd | exp.BitwiseRightShift) and isinstance(
            part.expression, exp.Literal | exp.Cast
        ):
            part = part.this
        else:
            return part


def _number(text: str) -> exp.Expr:
    return parse_one(text, read="spark")
