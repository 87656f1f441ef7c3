"""Which columns of a result identify its rows, as far as the query alone proves it (derive:V6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from trueline.dataset.derivation import KeyKind, derivation_at
from trueline.workspace.derive.aggregates import AGGREGATES, aggregate_name, window_of
from trueline.workspace.derive.canonical import GENERATORS
from trueline.workspace.derive.part_types import PartType
from trueline.workspace.derive.spark_sql import called, own_calls, written

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# The tables a query reads with their columns and types, and with the keys that are known of them.
Tables = Mapping[str, Mapping[str, str]]
Keys = Mapping[str, tuple[str, ...]]
_POSITIONED: Final = frozenset({"posexplode", "posexplode_outer"})


def key_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the columns by which the current rows of a dataset differ; none if nothing says so."""
    from trueline.dataset.definition import strategy_of

    tail = dataset.chain.tail()
    if tail is None:
        return ()
    derivation = derivation_at(tail)
    if derivation is not None:
        return () if derivation.identity is KeyKind.BAG else derivation.key
    return tuple(getattr(strategy_of(tail), "key", ()))


def proven_key(query: exp.Expr, tables: Tables, keys: Keys) -> tuple[str, ...] | None:
    """Return columns of which no two rows of a query have the same values; None if that is not proven.

    A global aggregate has one row: any column would do, and the first is taken.
    """
    return _Proof(tables, {name.lower(): key for name, key in keys.items()}).of(query)


class _Proof:
    """What is known of the tables that parts of a query read."""

    def __init__(self, tables: Tables, keys: Keys) -> None:
        self._tables = {name.lower(): columns for name, columns in tables.items()}
        self._keys = dict(keys)

    def of(self, query: exp.Expr) -> tuple[str, ...] | None:
        """Return the key of a query, or of a part of one."""
        outer = self._keys
        self._keys = dict(outer)
        steps = query.args.get("with_") or query.args.get("with")
        is_recursive = steps is not None and steps.args.get("recursive")
        for step in steps.expressions if steps is not None else ():
            # A step may have the name of a table that it hides.
            found = None if is_recursive else self.of(step.this)
            self._keys[step.alias.lower()] = found or ()
        try:
            if isinstance(query, exp.Subquery | exp.Paren):
                return self.of(query.this)
            if isinstance(query, exp.Union):
                return self._of_union(query)
            if isinstance(query, exp.Except | exp.Intersect):
                return None if query.args.get("distinct") is False else _names(query)
            return self._of_select(query) if isinstance(query, exp.Select) else None
        finally:
            self._keys = outer

    def _of_union(self, union: exp.Union) -> tuple[str, ...] | None:
        if union.args.get("distinct"):
            return _names(union)
        branches = _branches(union)
        selects = [branch for branch in branches if isinstance(branch, exp.Select)]
        names = _names(union)
        if len(selects) != len(branches) or names is None:
            return None
        for at, name in enumerate(names):
            literals = [_literal(select, at) for select in selects]
            kinds = {literal[0] for literal in literals if literal is not None}
            if None not in literals and len(kinds) == 1 and len(set(literals)) == len(literals):
                found = [self.of(select) for select in selects]
                return self._by_place(selects, found, name, names)
        return None

    def _by_place(
        self,
        selects: list[exp.Select],
        found: list[tuple[str, ...] | None],
        literal: str,
        names: tuple[str, ...],
    ) -> tuple[str, ...] | None:
        """Return the literal and the key that all branches have in the same places."""
        places: set[int] = set()
        for select, key in zip(selects, found, strict=True):
            own = _names(select)
            if key is None or own is None:
                return None
            places |= {own.index(name) for name in key}
        return (literal, *(names[at] for at in sorted(places) if names[at] != literal))

    def _of_select(self, select: exp.Select) -> tuple[str, ...] | None:
        shown = _shown(select)
        if shown is None:
            return None
        if select.args.get("distinct"):
            return tuple(shown.values()) or None
        if any(called(column.unalias()) in GENERATORS for column in select.expressions):
            return None
        group = select.args.get("group")
        if group is not None:
            return _grouped(group, shown)
        is_aggregate = any(
            aggregate_name(node) in AGGREGATES and window_of(node) is None for node in own_calls(select)
        )
        if is_aggregate or select.args.get("having"):
            return tuple(shown.values())[:1] or None
        return self._kept(select)

    def _kept(self, select: exp.Select) -> tuple[str, ...] | None:
        """Return the key of the only source, if it is shown; with the position of what was exploded."""
        source = select.args.get("from_") or select.args.get("from")
        if source is None or select.args.get("joins") or select.args.get("pivots"):
            return None
        key = self._of_source(source.this)
        if not key:
            return None
        alias = source.this.alias_or_name
        wanted = [written(exp.column(name, table=alias, quoted=True)) for name in key]
        for lateral in select.args.get("laterals") or ():
            inner, names = lateral.this, lateral.args.get("alias")
            if called(inner) not in _POSITIONED or names is None or not names.columns:
                return None
            position = exp.column(names.columns[0].name, table=names.name, quoted=True)
            wanted.append(written(position))
        columns = [column for column in select.expressions if isinstance(column.unalias(), exp.Column)]
        # Spark does not tell large letters of names from small ones.
        shown = {written(column.unalias()).lower(): column.alias_or_name for column in columns}
        found = [shown.get(each.lower()) for each in wanted]
        return tuple(name for name in found if name is not None) if None not in found else None

    def _of_source(self, source: exp.Expr) -> tuple[str, ...] | None:
        if source.args.get("pivots") or source.args.get("sample"):
            return None
        if isinstance(source, exp.Subquery):
            return self.of(source)
        if not isinstance(source, exp.Table):
            return None
        name = source.name.lower()
        key = self._keys.get(name)
        columns = self._tables.get(name, {})
        # Keys of chains may tell 0.0 from -0.0; columns of a result do not.
        if key and any(PartType(columns.get(each, "")).is_float for each in key):
            return None
        return key


def _branches(union: exp.Expr) -> list[exp.Expr]:
    if isinstance(union, exp.Subquery | exp.Paren):
        return _branches(union.this)
    if isinstance(union, exp.Union) and not union.args.get("distinct"):
        return [*_branches(union.this), *_branches(union.expression)]
    return [union]


def _names(query: exp.Expr) -> tuple[str, ...] | None:
    """Return the names of the columns of a query."""
    while not isinstance(query, exp.Select):
        if not isinstance(query, exp.SetOperation | exp.Subquery | exp.Paren):
            return None
        query = query.this
    return tuple(column.alias_or_name for column in query.expressions)


def _literal(select: exp.Select, at: int) -> tuple[bool, str] | None:
    """Return a text or a whole number that a column shows; other equal literals may look different."""
    if at >= len(select.expressions):
        return None
    part = select.expressions[at].unalias()
    if not isinstance(part, exp.Literal) or not (part.is_string or part.is_int):
        return None
    return part.is_string, part.name


def _shown(select: exp.Select) -> dict[str, str] | None:
    """Return the columns that are shown, by what they are made of."""
    if any(column.is_star or isinstance(column, exp.Aliases) for column in select.expressions):
        return None
    return {written(column.unalias()): column.alias_or_name for column in select.expressions}


def _grouped(group: exp.Expr, shown: dict[str, str]) -> tuple[str, ...] | None:
    if any(value for name, value in group.args.items() if name != "expressions"):
        return None
    if any(
        isinstance(part, exp.Literal | exp.Rollup | exp.Cube | exp.GroupingSets) for part in group.expressions
    ):
        return None
    found = [shown.get(written(part)) for part in group.expressions]
    if None in found or not found:
        return None
    return tuple(dict.fromkeys(name for name in found if name is not None))
