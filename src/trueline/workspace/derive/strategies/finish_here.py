"""Aggregates that follow a small change in this process: the rows that came and went become accumulators,
these are added to those that are kept, and the results before and after are evaluated.

What is not certain to have the bits that Spark gives is `Elsewhere`: then Spark does all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from trueline.kernel.key_encoding import KeyEncoding, encode_keys
from trueline.kernel.sorted_keys import as_array
from trueline.workspace.derive.spark_sql import called, parsed
from trueline.workspace.derive.strategies.accumulators import RESULT, ROWS, SIGN, VERSION, Accumulation
from trueline.workspace.derive.strategies.expressions_here import (
    Columns,
    Elsewhere,
    Evaluation,
    all_rows,
    by_name,
    columns_of,
    compiled,
    known_here,
)

_Whole: TypeAlias = npt.NDArray[np.int64]
_Results: TypeAlias = tuple[tuple[Evaluation, ...], Evaluation | None]

# Whole numbers whose sums are certain to have room.
_ROOM: Final = 2.0**62
# Doubles add whole numbers of less without loss, in any order.
_EXACT: Final = 2.0**53
# Rows that are looked at together: what is computed of them is then still at hand for the next step.
_ROWS_AT_ONCE: Final = 1 << 16
# Accumulators of rows have many times the bytes of the rows: so many before those of a group become one.
_BYTES_AT_ONCE: Final = 16 << 20
_COUNTS: Final = ("count", "count_if")


# --- rows become accumulators -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sum:
    """An accumulator: the function, its argument if any, and of which rows it is."""

    function: str
    argument: Evaluation | None
    where: Evaluation | None

    def of(self, rows: Columns, count: int) -> pa.Array:
        """Return what each row adds."""
        found = pa.repeat(1, count) if self.argument is None else all_rows(self.argument(rows), count)
        if self.function == "count":
            found = pc.cast(pc.is_valid(found), pa.int64())
        elif self.function == "count_if":
            found = pc.cast(pc.fill_null(found, False), pa.int64())
        if self.where is not None:
            holds = pc.fill_null(all_rows(self.where(rows), count), False)
            found = pc.if_else(holds, found, pa.scalar(0 if self.function in _COUNTS else None, found.type))
        return found


@dataclass(frozen=True, slots=True)
class Accumulating:
    """The first step of a query over one table, as it is done here; `columns` are those it reads."""

    columns: frozenset[str]
    keys: Mapping[str, Evaluation]
    sums: Mapping[str, _Sum]
    where: Evaluation | None

    def of(self, rows: pa.Table, kept: pa.Schema, room: int) -> pa.Table:
        """Return the accumulators of the groups of rows, typed as those that are kept, of so many bytes."""
        names = [*self.keys, *self.sums]
        held = [pa.schema([kept.field(name) for name in names]).empty_table()]
        size, most = 0, min(_BYTES_AT_ONCE, room)
        with known_here():
            for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
                held.append(self._given(batch))
                size += held[-1].nbytes
                if size > most:
                    held = [self._together(held)]
                    size = held[0].nbytes
                    most = max(most, 2 * size)
                if size > room:
                    raise Elsewhere
            return self._together(held)

    def _given(self, batch: pa.RecordBatch) -> pa.Table:
        if self.where is not None:
            holds = all_rows(self.where(by_name(batch)), batch.num_rows)
            batch = batch.filter(holds)
        rows, count = by_name(batch), batch.num_rows
        arrays = [all_rows(each(rows), count) for each in self.keys.values()]
        arrays += [each.of(rows, count) for each in self.sums.values()]
        return pa.table(arrays, names=[*self.keys, *self.sums])

    def _together(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return one row for each group; parts of other types are not those that are kept."""
        if any(part.schema.types != parts[0].schema.types for part in parts):
            raise Elsewhere
        table = pa.concat_tables([part.cast(parts[0].schema) for part in parts])
        merges = {
            name: each.function if each.function in ("min", "max") else "sum"
            for name, each in self.sums.items()
        }
        return _added(table, tuple(self.keys), merges, np.ones(table.num_rows, np.int64))


def accumulating(made: Accumulation) -> Accumulating | None:
    """Return how rows are accumulated here; None if that, or what is made of it, is not known."""
    is_finished = not made.values and _results(made.results, made.having) is not None
    return _accumulating(made.partial) if is_finished else None


@lru_cache(maxsize=256)
def _accumulating(partial: str) -> Accumulating | None:
    query = parsed(partial)
    if not isinstance(query, exp.Select) or any(
        value for name, value in query.args.items() if name not in ("expressions", "from_", "where", "group")
    ):
        return None
    source = query.args["from_"].this
    if not isinstance(source, exp.Table) or any(source.args.get(name) for name in ("pivots", "sample")):
        return None
    if isinstance(source.args.get("alias"), exp.TableAlias) and source.args["alias"].columns:
        return None
    if {column.table for column in query.find_all(exp.Column)} - {"", source.alias_or_name}:
        return None  # fields of a column
    condition = query.args.get("where")
    keys: dict[str, Evaluation] = {}
    sums: dict[str, _Sum] = {}
    try:
        with known_here():
            where = None if condition is None else compiled(condition.this)
            for column in query.expressions:
                part = column.unalias()
                if (found := _sum(part)) is not None:
                    sums[column.alias] = found
                else:
                    keys[column.alias] = compiled(part)
    except Elsewhere:
        return None
    return Accumulating(frozenset(columns_of(query)), keys, sums, where)


def _sum(part: exp.Expr) -> _Sum | None:
    """Return an accumulator; None of what is no aggregate."""
    where = None
    if isinstance(part, exp.Filter):
        part, where = part.this, compiled(part.expression.this)
    function = called(part)
    if function not in ("sum", "count", "count_if", "min", "max"):
        if where is not None or isinstance(part, exp.AggFunc):
            raise Elsewhere
        return None
    (argument,) = part.expressions if len(part.expressions) == 1 else (None,)
    if argument is None or isinstance(argument, exp.Distinct):
        raise Elsewhere
    return _Sum(function, None if isinstance(argument, exp.Star) else compiled(argument), where)


# --- accumulators are added ---------------------------------------------------------------------


def finished_here(
    made: Accumulation, touched: pa.Table, new: pa.Table, result: Sequence[pa.DataType]
) -> pa.Table:
    """Return what `Accumulation.finish` gives for kept groups and partial ones, whose signs are a column.

    `result` are the types of the columns of the query, which what is evaluated here has to have.
    """
    expressions = None if made.values else _results(made.results, made.having)
    if expressions is None:
        raise Elsewhere
    with known_here():
        before = touched.select(list(made.kept)).combine_chunks()
        after = _after(made, before, new)
        versions = [
            _with_results(made, rows, expressions, result).add_column(
                0, VERSION, pa.array(np.full(rows.num_rows, number, np.int32))
            )
            for number, rows in enumerate((before, after))
        ]
        return pa.concat_tables(versions)


def _after(made: Accumulation, before: pa.Table, new: pa.Table) -> pa.Table:
    """Return the accumulators of each group, those that were kept and those that came and went."""
    rows = pa.concat_tables([before, new.select(list(made.kept)).cast(before.schema)])
    ones = np.ones(before.num_rows, np.int64)
    signs = np.concatenate([ones, np.asarray(as_array(new[SIGN])).astype(np.int64)])
    return _added(rows, made.keys, {ROWS: "sum", **made.sums}, signs)


def _added(rows: pa.Table, keys: Sequence[str], merges: Mapping[str, str], signs: _Whole) -> pa.Table:
    """Return one row for each group: sums of what is added or, where the sign says so, taken away."""
    if not rows.num_rows:
        return rows
    groups = _Groups(rows, keys)
    found = {name: as_array(rows[name]).take(pa.array(groups.firsts)) for name in keys}
    for name, merge in merges.items():
        column = as_array(rows[name])
        if merge == "sum":
            found[name] = groups.sums(column, signs)
        elif merge in ("min", "max") and (signs > 0).all():
            found[name] = groups.extremes(column, is_least=merge == "min")
        else:
            raise Elsewhere
    return pa.table([found[name] for name in rows.column_names], schema=rows.schema)


class _Groups:
    """Rows of a table by group: the number of its group of each row."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self.codes = _codes(rows, keys)
        self.sizes = np.bincount(self.codes)

    @property
    def firsts(self) -> npt.NDArray[np.intp]:
        """The first row of each."""
        found = np.empty(len(self.sizes), np.intp)
        # Of several that are put in one place the last one stays.
        found[self.codes[::-1]] = np.arange(len(self.codes))[::-1]
        return found

    @cached_property
    def in_order(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Rows in the order of their groups, and where in it each starts."""
        return np.argsort(self.codes, kind="stable"), np.cumsum(self.sizes) - self.sizes

    def sums(self, column: pa.Array, signs: _Whole) -> pa.Array:
        if not pa.types.is_signed_integer(column.type):
            raise Elsewhere
        numbers = np.asarray(pc.fill_null(column, 0) if column.null_count else column).astype(np.int64)
        # As doubles, since the least whole number has no opposite.
        most = max(abs(float(numbers.max())), abs(float(numbers.min()))) * float(self.sizes.max())
        if most >= _ROOM:
            raise Elsewhere
        given = numbers if (signs == 1).all() else numbers * signs
        if most < _EXACT:
            totals = np.bincount(self.codes, weights=given).astype(np.int64)
        else:
            order, starts = self.in_order
            totals = np.add.reduceat(given[order], starts)
        none = None
        if column.null_count:
            none = np.bincount(self.codes, weights=np.asarray(column.is_valid())) == 0
        return pa.array(totals, pa.int64(), mask=none).cast(column.type)

    def extremes(self, column: pa.Array, *, is_least: bool) -> pa.Array:
        is_date = pa.types.is_date32(column.type)
        if not (pa.types.is_signed_integer(column.type) or is_date) or column.null_count:
            raise Elsewhere
        numbers = np.asarray(column.cast(pa.int32()) if is_date else column)
        order, starts = self.in_order
        least = np.minimum if is_least else np.maximum
        return pa.array(least.reduceat(numbers[order], starts)).cast(column.type)


def _codes(rows: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.intp]:
    """Number groups as they come."""
    kinds = [rows.schema.field(name).type for name in keys]
    if len(kinds) == 1 and (pa.types.is_integer(kinds[0]) or pa.types.is_string(kinds[0])):
        column = as_array(rows[keys[0]])  # equal are those that are the same
    else:
        column = encode_keys(rows, keys, encoding=KeyEncoding.GROUP)
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices)


# --- results ------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _results(results: tuple[str, ...], having: str | None) -> _Results | None:
    """Return what evaluates the columns of a query and its condition; None if one is not known here."""
    try:
        with known_here():
            made = tuple(compiled(parsed(text)) for text in results)
            return made, None if having is None else compiled(parsed(having))
    except Elsewhere:
        return None


def _with_results(
    made: Accumulation, rows: pa.Table, expressions: _Results, kinds: Sequence[pa.DataType]
) -> pa.Table:
    """Add the result of each group; null where it has none, of which nothing is evaluated."""
    made_of, having = expressions
    there = np.arange(rows.num_rows)
    if not made.is_global:
        there = there[np.asarray(as_array(rows[ROWS])) > 0]
    if having is not None:
        holds = all_rows(having(_columns(rows, there)), len(there))
        there = there[np.asarray(pc.fill_null(holds, False)).astype(bool)]
    given = _columns(rows, there)
    arrays = [all_rows(evaluate(given), len(there)) for evaluate in made_of]
    if [array.type for array in arrays] != list(kinds):
        raise Elsewhere
    struct = pa.StructArray.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])
    if len(there) < rows.num_rows:
        places = np.full(rows.num_rows, -1)
        places[there] = np.arange(len(there))
        struct = struct.take(pa.array(places, mask=places < 0))
    return rows.append_column(RESULT, struct)


def _columns(rows: pa.Table, there: npt.NDArray[np.intp]) -> Columns:
    return by_name(rows if len(there) == rows.num_rows else rows.take(pa.array(there)))
