"""The judge of a definition: sqlglot rewrites a query, Spark says whether it still means the same.

What sqlglot cannot write as Spark reads it is *opaque*: it is computed as it was written, if nothing in it
needs another form, and refused otherwise. The verdict is recorded with the definition, so that later pulls
need no judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trueline.dataset.derivation import COPY, KeyKind
from trueline.errors import InputError, SchemaError, TruelineError
from trueline.workspace.derive.canonical import UNORDERED, NotCanonical, OffsetTable, canonical
from trueline.workspace.derive.input_tables import EVENT_KINDS, InputTable, offset_column
from trueline.workspace.derive.output_keys import proven_key
from trueline.workspace.derive.part_types import PartType
from trueline.workspace.derive.reproducible import check_calls, check_plan
from trueline.workspace.derive.spark_sql import names, parsed, qualified, written

if TYPE_CHECKING:
    from sqlglot import exp

    from trueline.workspace.dataset import Dataset
    from trueline.workspace.derive.evaluate import QuerySession
    from trueline.workspace.derive.plan_part import PlanPart

# Nodes of an analysed query that the rewriting knows. All else makes a query opaque.
_KNOWN: Final = names(
    """Query Project Filter Aggregate Join Sort GlobalLimit LocalLimit Offset Union Distinct Window
    Generate Expand SubqueryAlias View WithCTE CTERelationDef CTERelationRef Except Intersect
    LateralJoin OneRowRelation LocalRelation Range Unpivot Pivot ResolvedHint UnresolvedHint Subquery
    WithWindowDefinition"""
)
# In an opaque query: aggregates that give the same whatever the order of rows, of types but floating-point.
_FREE: Final = names(
    """Count CountIf Min Max BoolAnd BoolOr BitAndAgg BitOrAgg BitXorAgg Sum Average Percentile Median
    RegrCount"""
)
_RANKS: Final = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
_NEEDS_ORDER: Final = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample", "Deduplicate"})
# Of floating-point numbers their result depends on the order of rows.
_INEXACT: Final = names(
    "Sum Average StddevSamp StddevPop VarianceSamp VariancePop CovSample CovPopulation Corr"
)
_ARITHMETIC: Final = names("Add Subtract Multiply Divide Remainder UnaryMinus UnaryPositive Abs Coalesce")
_TYPED: Final = frozenset({"AttributeReference", "Cast", "Literal", "OuterReference"})
_FLOATING: Final = re.compile(r"\b(double|float)\b")


@dataclass(frozen=True, slots=True)
class Judged:
    """What is recorded of a query: its text without stars, what is run for it, what identifies its rows.

    `opaque_reason` is a stable code of why it is run as it was written; `repairs` say what was changed.
    """

    expanded: str
    canonical: str
    key: tuple[str, ...]
    key_kind: KeyKind
    opaque_reason: str = ""
    repairs: tuple[str, ...] = ()

    def with_key(self, key: str | Sequence[str] | None, columns: Sequence[str]) -> Judged:
        """Return the same with the key that was declared; it is checked whenever rows are committed."""
        if key is None:
            return self
        names = (key,) if isinstance(key, str) else tuple(key)
        for name in names:
            if name not in columns:
                raise SchemaError(
                    f"the key has a column {name!r}, the result has {', '.join(columns)}",
                    remedy="name columns of the result",
                    code="MissingKeyColumn",
                    column=name,
                )
        kind = KeyKind.PROVEN if self.key_kind is KeyKind.PROVEN and self.key == names else KeyKind.DECLARED
        return replace(self, key=names, key_kind=kind)


def judged(session: QuerySession, text: str, keys: Mapping[str, tuple[str, ...]]) -> Judged:
    """Judge one query; `keys` are those of the tables that have one.

    Raises what says why it is refused: `IrreproducibleQuery`, `InputError` with code `NotCanonical`, or what
    Spark says of it.
    """
    from trueline.spark.canonical import analysed, check_safe, function_names

    text = text.strip().rstrip(";")
    check_safe(session.session, text, session.tables)
    check_calls(text, function_names(session.session), ordered=bool(session.offsets))
    described, plan = analysed(session.session, text)
    columns, types = [name for name, _ in described], dict(described)
    _check_columns(columns)
    if plan is not None:
        check_plan(text, plan)
    unknown = None if plan is None else _unknown(plan)
    expanded = None if unknown else _expanded(session, text, columns)
    if expanded is None:
        return _opaque(text, types, plan, f"operator:{unknown}" if unknown else "round_trip")
    query = parsed(expanded)
    try:
        made = canonical(query, session.types, session.offsets)
    except NotCanonical as problem:
        if problem.code == UNORDERED:
            check_calls(text, frozenset())
        raise _refused(problem) from None
    shown, run = analysed(session.session, made.text)
    _check_same_columns(types, dict(shown))
    _check_exact(run)
    key = proven_key(query, session.tables, keys)
    if key is None:
        return Judged(expanded, made.text, (*columns, COPY), KeyKind.BAG, "", made.repairs)
    return Judged(expanded, made.text, key, KeyKind.PROVEN, "", made.repairs)


def with_offsets(
    session: QuerySession, inputs: Mapping[str, Dataset], offsets: Iterable[InputTable]
) -> QuerySession:
    """Let the judge know which tables have offsets: those, and events, where they are shown."""
    possible = (InputTable(alias, kind) for alias in inputs for kind in EVENT_KINDS)
    events = [table for table in possible if table.name in session.tables]
    found = {table.name: OffsetTable(table.name, offset_column(inputs[table.alias])) for table in events}
    found |= {table.alias: OffsetTable(table.name, offset_column(inputs[table.alias])) for table in offsets}
    return replace(session, offsets=found)


def judged_steps(
    session: QuerySession, steps: Sequence[tuple[str, str]], keys: Mapping[str, tuple[str, ...]]
) -> list[Judged]:
    """Judge several named queries, each of which may read those before it; the last one is the result."""
    from trueline.spark.canonical import result_of

    found: list[Judged] = []
    known = dict(keys)
    tables = {name: dict(columns) for name, columns in session.tables.items()}
    for at, (name, text) in enumerate(steps):
        hidden = {step for step, _ in steps[:at]}
        offsets = {table: each for table, each in session.offsets.items() if table not in hidden}
        verdict = judged(replace(session, tables=tables, offsets=offsets), text, known)
        found.append(verdict)
        if at < len(steps) - 1:
            tables[name] = dict(session.types(verdict.canonical))
            result_of(session.session, tables, {name: verdict.canonical}, verdict.canonical)
            if verdict.key_kind is not KeyKind.BAG:
                known[name] = verdict.key
    return found


# --- rewriting ------------------------------------------------------------------------------------


def _expanded(session: QuerySession, text: str, columns: Sequence[str]) -> str | None:
    """Write out what stars stand for; None if what sqlglot makes of a query means another thing to Spark."""
    from sqlglot.errors import SqlglotError

    tables: dict[str, object] = {name: dict(kinds) for name, kinds in session.tables.items()}
    try:
        query = qualified(parsed(text), tables)
        _name_as_tables(query, session.tables)
        _name_columns(query, columns)
        _drop_needless_names(query)
        expanded = written(query)
        return expanded if session.same(text, expanded) else None
    except (SqlglotError, RecursionError, TruelineError):
        return None


def _name_as_tables(query: exp.Expr, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Give columns the large letters that they have in their tables, where all tables have the same."""
    from sqlglot import exp

    found: dict[str, set[str]] = {}
    for name in (name for columns in tables.values() for name in columns):
        found.setdefault(name.lower(), set()).add(name)
    names = {low: written.pop() for low, written in found.items() if len(written) == 1}
    for column in query.find_all(exp.Column):
        if column.name in names:
            column.set("this", exp.to_identifier(names[column.name], quoted=True))


def _name_columns(query: exp.Expr, columns: Sequence[str]) -> None:
    """Give the columns of the result the names that Spark gives them."""
    from sqlglot import exp

    selects = [query]
    while any(not isinstance(each, exp.Select) for each in selects):
        inner: list[exp.Expr] = []
        for each in selects:
            if isinstance(each, exp.SetOperation):
                inner += [each.this, each.expression]
            elif isinstance(each, exp.Subquery | exp.Paren):
                inner.append(each.this)
            elif isinstance(each, exp.Select):
                inner.append(each)
            else:
                return
        selects = inner
    for select in selects:
        shown = select.expressions
        if len(shown) != len(columns) or any(isinstance(each, exp.Aliases) for each in shown):
            continue
        named = [
            exp.alias_(each.unalias(), name, quoted=True) for each, name in zip(shown, columns, strict=True)
        ]
        select.set("expressions", named)


def _drop_needless_names(query: exp.Expr) -> None:
    """Show columns under their own names as they are: to Spark a new name is another column."""
    from sqlglot import exp

    for select in query.find_all(exp.Select):
        shown = []
        for each in select.expressions:
            column = each.unalias()
            if isinstance(column, exp.Column) and each.alias.lower() == column.name.lower():
                _rename(select, column, each.alias)
                shown.append(column)
            else:
                shown.append(each)
        select.set("expressions", shown)


def _rename(select: exp.Expr, column: exp.Expr, name: str) -> None:
    """Write a column as its result is called wherever it is read, if other letters are large."""
    from sqlglot import exp

    if column.name != name:
        known = column.sql().lower()
        for each in select.find_all(exp.Column):
            if each.sql().lower() == known:
                each.set("this", exp.to_identifier(name, quoted=True))


def _check_columns(columns: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in columns:
        if name.lower() in seen:
            raise SchemaError(
                f"the result has two columns {name!r}",
                remedy="give one of them another name with AS",
                column=name,
            )
        seen.add(name.lower())


def _check_same_columns(types: Mapping[str, str], made: Mapping[str, str]) -> None:
    if dict(types) != dict(made):
        differing = [name for name in {*types, *made} if types.get(name) != made.get(name)]
        raise _refused(
            NotCanonical("columns_differ", f"the canonical form changes {', '.join(sorted(differing))}")
        )


def _check_exact(plan: PlanPart | None) -> None:
    """Check once more, in Spark's own plan, that no sum of floating-point numbers is left."""
    for part in plan.walk() if plan is not None else ():
        if part.name in _INEXACT and any(_is_floating(inner) for inner in part.parts):
            raise _refused(NotCanonical("inexact", f"{part.name} of floating-point numbers is left in it"))


def _is_floating(part: PlanPart) -> bool:
    if part.name in _ARITHMETIC:
        return any(_is_floating(inner) for inner in part.parts)
    return part.name in _TYPED and _FLOATING.search(part.type) is not None


def _refused(problem: NotCanonical) -> InputError:
    return InputError(
        f"the query has no canonical form: {problem.reason}",
        remedy=problem.remedy,
        code="NotCanonical",
        reason=problem.code,
    )


# --- opaque queries -------------------------------------------------------------------------------


def _unknown(plan: PlanPart) -> str:
    """Return the name of a node that the rewriting does not know."""
    return next((part.name for part in plan.walk() if part.is_plan and part.name not in _KNOWN), "")


def _opaque(text: str, types: Mapping[str, str], plan: PlanPart | None, reason: str) -> Judged:
    """Judge a query that is computed as it was written; only its columns get their one form."""
    problem = "its plan cannot be seen" if plan is None else next(_needs_repair(plan), None)
    if problem is not None:
        raise InputError(
            f"the query cannot be rewritten, and its result may depend on the order of rows: {problem}",
            remedy="write it with plain SELECT, JOIN, GROUP BY and named columns",
            code="Opaque",
            reason=reason,
        )
    shown = ", ".join(in_one_form(types))
    run = f"SELECT {shown} FROM ({text})"  # noqa: S608 (it was checked, and is the user's own)
    return Judged(text, run, (*types, COPY), KeyKind.BAG, reason)


def in_one_form(types: Mapping[str, str]) -> list[str]:
    """Return what selects columns of these types so that equal numbers have one form (derive:V4)."""
    shown = []
    for name, kind in types.items():
        quoted = f"`{name.replace('`', '``')}`"
        try:
            made = PartType(kind).normalised(_column(name))
        except NotCanonical as problem:
            raise _refused(problem) from None
        shown.append(quoted if made is None else f"{written(made)} AS {quoted}")
    return shown


def _column(name: str) -> exp.Expr:
    from sqlglot import exp

    return exp.column(name, quoted=True)


def _needs_repair(plan: PlanPart) -> Iterator[str]:
    """Yield what in a query may depend on the order of rows, or on how equal numbers are written."""
    for part in plan.walk():
        if part.name in _NEEDS_ORDER:
            yield part.name
        elif part.name == "AggregateExpression":
            function = part.parts[0]
            if function.name not in _FREE:
                yield function.name
            elif function.name != "Count" and _may_float(function):
                yield f"{function.name} of floating-point numbers"
        elif part.name == "WindowExpression" and part.parts[0].name not in _RANKS:
            yield f"{part.parts[0].name} over a window"
        elif part.name in ("Aggregate", "Distinct", "Except", "Intersect", "UnionLoop") and _may_float(part):
            yield f"floating-point numbers in {part.name}"


def _may_float(part: PlanPart) -> bool:
    return any(_FLOATING.search(inner.type) is not None for inner in part.walk())
